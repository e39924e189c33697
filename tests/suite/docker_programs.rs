//! The Docker module with programs that it finds through `PATH`: `ssh` and credential helpers.
//!
//! A test cannot change its own `PATH` safely, so each one runs itself again as a child with stand-ins in front.

use crate::support::docker as support;
use crate::support::own_process::runs_in_own_process;

use std::path::Path;

use rdmaprep::docker::auth::{AuthError, Credentials, find};
use rdmaprep::docker::build::{Builder, BuilderKind};
use rdmaprep::docker::config::{ClientConfig, ClientEnv, parse_client_config};
use rdmaprep::docker::container_spec::ContainerSpec;
use rdmaprep::docker::endpoint::Endpoint;
use rdmaprep::docker::engine::Engine;
use rdmaprep::docker::error::DockerError;
use rdmaprep::docker::upload::{Content, Upload};
use rdmaprep::remedy::Remedy;
use support::real_engine::{Workshop, program, skip};
use tokio_util::sync::CancellationToken;

fn config(text: &str) -> ClientConfig {
    parse_client_config(text, Path::new("config.json")).expect("the fixture is valid")
}

/// Answers by the server it is asked for, as a helper does.
const HELPER: &str = r#"#!/bin/sh
server=$(cat)
case "$1 $server" in
'get password.example') echo '{"ServerURL":"x","Username":"u","Secret":"p"}' ;;
'get token.example') echo '{"ServerURL":"x","Username":"<token>","Secret":"t"}' ;;
'get https://index.docker.io/v1/') echo '{"ServerURL":"x","Username":"hub","Secret":"p"}' ;;
'get broken.example') echo 'no json' ;;
'get locked.example') echo 'the keychain is locked' && exit 1 ;;
*) echo 'credentials not found in native keychain' && exit 1 ;;
esac
"#;

#[test]
fn credential_helpers_are_asked() {
    if runs_in_own_process("docker_programs::credential_helpers_are_asked", &[("docker-credential-stand-in", HELPER)]) {
        return;
    }
    let password = |username: &str| Credentials::Password { username: username.to_owned(), password: "p".to_owned() };
    let store = config(r#"{"credsStore":"stand-in","auths":{"password.example":{},"other.example":{"auth":"Zjpw"}}}"#);
    assert_eq!(find(&store, "password.example").expect("an answer"), Some(password("u")));
    assert_eq!(find(&store, "docker.io").expect("an answer"), Some(password("hub")));
    let token = Credentials::IdentityToken { token: "t".to_owned() };
    assert_eq!(find(&store, "token.example").expect("an answer"), Some(token));
    // The helper has nothing: then the file may have it, or nobody has.
    assert_eq!(find(&store, "other.example").expect("an answer"), Some(password("f")));
    assert_eq!(find(&store, "none.example").expect("an answer"), None);

    let error = find(&store, "locked.example").expect_err("the helper fails");
    assert!(
        matches!(&error, AuthError::HelperFailed { message, .. } if message == "the keychain is locked"),
        "{error:?}"
    );
    assert!(error.to_string().contains("docker-credential-stand-in"), "{error}");
    let error = find(&store, "broken.example").expect_err("the helper talks nonsense");
    assert!(matches!(error, AuthError::HelperAnswer { .. }), "{error:?}");

    let own = config(r#"{"credHelpers":{"password.example":"stand-in"},"credsStore":"gone"}"#);
    assert_eq!(find(&own, "password.example").expect("an answer"), Some(password("u")));
    assert!(matches!(find(&own, "token.example"), Err(AuthError::HelperMissing { .. })));
}

async fn connect(host: &str) -> Result<Engine, DockerError> {
    let endpoint = Endpoint::resolve(Some(host), None, &ClientEnv::default(), &ClientConfig::default());
    Engine::connect(&endpoint.expect("a valid host")).await
}

#[tokio::test]
async fn what_ssh_says_is_the_error() {
    let failing = "#!/bin/sh\necho 'root@gpu: Permission denied (publickey).' >&2\nexit 255\n";
    if runs_in_own_process("docker_programs::what_ssh_says_is_the_error", &[("ssh", failing)]) {
        return;
    }
    let error = connect("ssh://root@gpu:2222").await.expect_err("there is no such host");
    let DockerError::Ssh { endpoint, detail } = &error else { panic!("{error:?}") };
    assert_eq!(endpoint, "ssh://root@gpu:2222");
    assert_eq!(detail, "root@gpu: Permission denied (publickey).");
    assert!(error.remedy().is_some());
}

/// Checks its arguments, and does what the program at the other end would do.
const LOCAL_SSH: &str = r#"#!/bin/sh
test "$*" = '-o ConnectTimeout=30 -T -l root -p 2222 -- gpu docker system dial-stdio' || { echo "$*" >&2; exit 1; }
exec docker system dial-stdio
"#;

#[tokio::test]
async fn a_build_runs_through_ssh() {
    if program("docker").is_none() {
        skip::<()>("the program docker is not installed");
        return;
    }
    if runs_in_own_process("docker_programs::a_build_runs_through_ssh", &[("ssh", LOCAL_SSH)]) {
        return;
    }
    let Some(workshop) = Workshop::open().await else { return };
    let engine = connect("ssh://root@gpu:2222").await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(engine.info().endpoint, "ssh://root@gpu:2222");
    for (builder, kind) in [(Builder::BuildKit, BuilderKind::BuildKit), (Builder::Classic, BuilderKind::Classic)] {
        let request = workshop.request(builder, "RUN echo through ssh");
        let built = engine.build(request, &mut |_| {}, CancellationToken::new()).await;
        let built = built.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(built.builder, kind);
        assert!(workshop.engine.inspect_image(&built.id).await.expect("an answer").is_some());
    }
}

/// A stream that goes both ways, and an archive that is made while it is sent, through `ssh`.
#[tokio::test]
async fn a_container_runs_through_ssh() {
    if program("docker").is_none() {
        skip::<()>("the program docker is not installed");
        return;
    }
    if runs_in_own_process("docker_programs::a_container_runs_through_ssh", &[("ssh", LOCAL_SSH)]) {
        return;
    }
    let Some(workshop) = Workshop::open().await else { return };
    let engine = connect("ssh://root@gpu:2222").await.unwrap_or_else(|error| panic!("{error}"));
    let mut spec = ContainerSpec::new(&workshop.base);
    spec.entrypoint = Some(vec!["/bin/cat".to_owned()]);
    spec.command = Some(vec!["/file".to_owned()]);
    let container = engine.create_container(&spec).await.unwrap_or_else(|error| panic!("{error}"));
    let content = "through ssh\n".repeat(100_000);
    let file = Upload { path: "/file".to_owned(), mode: 0o644, content: Content::Bytes(content.clone().into_bytes()) };
    container.upload(&[file]).await.unwrap_or_else(|error| panic!("{error}"));
    let mut output = container.attach().await.expect("a stream");
    container.start().await.unwrap_or_else(|error| panic!("{error}"));
    let mut seen = Vec::new();
    while let Some(chunk) = output.next().await {
        seen.extend_from_slice(&chunk.expect("whole frames").bytes);
    }
    assert!(seen == content.as_bytes(), "{} bytes of {}", seen.len(), content.len());
    assert_eq!(container.wait().await.expect("an exit code"), 0);
    // Dropped, so that the removal goes through an `ssh` of its own.
    drop(container);
    assert_eq!(workshop.containers(), [""; 0]);
}
