//! The programs under `examples/`, built and run: what another program can do with the library.

use crate::support::image_fixture::Fixture;
use crate::support::oci_fixture::*;
use crate::support::tls_registry::{PASSWORD, TlsRegistry, USER};
use crate::support::*;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Builds an example, as somebody who tries it does, and runs it.
fn example(name: &str, args: &[&str], home: &Path) -> Ran {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--example", name, "--"]).args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    run(command.env("DOCKER_CONFIG", home).env("DOCKER_HOST", "unix:///nonexistent/docker.sock").env("NO_PROXY", "*"))
}

#[test]
fn inspect_registry() {
    let Some(registry) = TlsRegistry::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let auth = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"))
    };
    let config = json!({"auths": {registry.address.as_str(): {"auth": auth}}});
    std::fs::write(home.path().join("config.json"), config.to_string()).unwrap();
    let mut parts = Parts::default();
    let image = parts.image(&[Fixture::good().layer()], "amd64", Packing::Gzip);
    registry.push("team/train", &parts, &[(&image, "1")]);
    let name = format!("{}/team/train:1", registry.address);
    let ca = registry.ca.display().to_string();
    let ran = example("inspect_registry", &[&name, &ca], home.path());
    ran.expect(0).prints(&format!("docker://{name} is sha256:")).prints("on ubuntu\n1 layers, ").prints("\nNCCL 2.");
    example("inspect_registry", &[&format!("{}/no/such:1", registry.address), &ca], home.path()).expect(1);
}

#[test]
fn judge_facts() {
    let dir = tempfile::tempdir().unwrap();
    let facts = dir.path().join("facts.json").display().to_string();
    for (fixture, code, said) in [
        (Fixture::good(), 0, "PASS for pai-dlc"),
        (Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1"), 1, "FAIL     ofed-packages"),
    ] {
        let archive = dir.path().join("image.tar");
        std::fs::write(&archive, fixture.archive()).unwrap();
        run(rdmaprep().arg("inspect").arg(&archive).args(["-o", &format!("json={facts}")])).expect(0);
        let ran = example("judge_facts", &[&facts], dir.path());
        ran.expect(code).prints(said);
        // What the program itself says of them.
        let check = run(rdmaprep().args(["check", "--facts", &facts]));
        assert_eq!((ran.code, ran.stdout), (check.code, check.stdout));
    }
}

#[test]
fn render_swap() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("image.tar");
    std::fs::write(&archive, Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive()).unwrap();
    let archive = archive.display().to_string();
    let ran = example("render_swap", &[&archive], dir.path());
    ran.expect(0).prints("\nFROM ");
    assert_eq!(ran.stdout, run(rdmaprep().args(["render", &archive])).expect(0).stdout);
}
