//! A Docker connection through `ssh`.
//!
//! Input: an [`SshTarget`]. Output: a client whose every connection is one `ssh` process that runs
//! `docker system dial-stdio` at the other end, as the Docker client does. The client library has a transport of
//! its own, but it hands `host:port` to `ssh` as a host name, and drops what `ssh` says when it fails.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};
use std::time::Duration;

use bollard::errors::Error as ClientError;
use bollard::{BollardRequest, ClientVersion, Docker};
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::address::SshTarget;
use crate::shell::shell_quote;

/// How long `ssh` may take to connect; the Docker client uses the same.
const CONNECT_TIMEOUT: &str = "ConnectTimeout=30";

/// How much of what `ssh` prints is kept for an error.
const STDERR_LIMIT: usize = 16 * 1024;

/// How long a failed connection may take to explain itself.
const STDERR_WAIT: Duration = Duration::from_secs(2);

/// Makes a client that connects through `ssh`. Nothing is started before the first request.
pub(super) fn connect(target: &SshTarget, timeout: u64, version: &ClientVersion) -> Result<Docker, ClientError> {
    let target = target.clone();
    let address = format!("ssh://{}", if target.host.contains(':') { "[v6]" } else { &target.host });
    let transport = move |request: BollardRequest| send(target.clone(), request);
    Docker::connect_with_custom_transport(transport, Some(address), timeout, version)
}

/// Arguments of `ssh`. The host follows `--`, so that it can never be read as an option.
fn arguments(target: &SshTarget) -> Vec<String> {
    let mut arguments = vec!["-o".to_owned(), CONNECT_TIMEOUT.to_owned(), "-T".to_owned()];
    if let Some(user) = &target.user {
        arguments.extend(["-l".to_owned(), user.clone()]);
    }
    if let Some(port) = target.port {
        arguments.extend(["-p".to_owned(), port.to_string()]);
    }
    arguments.extend(["--".to_owned(), target.host.clone(), "docker".to_owned()]);
    if let Some(socket) = &target.socket {
        // The remote shell splits the words again.
        arguments.push(format!("--host=unix://{}", shell_quote(socket)));
    }
    arguments.extend(["system".to_owned(), "dial-stdio".to_owned()]);
    arguments
}

async fn send(target: SshTarget, mut request: BollardRequest) -> Result<Response<Incoming>, ClientError> {
    let mut child = Command::new("ssh")
        .args(arguments(&target))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| io::Error::other(format!("starting the program ssh: {error}")))?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        unreachable!("all three streams were asked for");
    };
    let said = tokio::spawn(collect(stderr));

    // An HTTP/1 server requires the bare path, and a host, whose name does not matter on a socket.
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    *request.uri_mut() = path.parse()?;
    request.headers_mut().insert("host", "docker".parse().map_err(io::Error::other)?);

    let stream = SshStream { stdin, stdout, _process: child };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // A connection error shows up in the response or its body, so the task's own result adds nothing.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    match sender.send_request(request).await {
        Ok(response) => Ok(response),
        Err(error) => match tokio::time::timeout(STDERR_WAIT, said).await {
            Ok(Ok(text)) if !text.is_empty() => Err(io::Error::other(text).into()),
            _ => Err(error.into()),
        },
    }
}

/// Reads what `ssh`, or the program at the other end, prints until it ends. Reading goes on past the limit: a full
/// pipe would stop the process.
async fn collect(mut stderr: ChildStderr) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(length) = stderr.read(&mut chunk).await
        && length > 0
    {
        let room = STDERR_LIMIT.saturating_sub(text.len());
        text.extend_from_slice(&chunk[..length.min(room)]);
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// The two pipes of an `ssh` process as one stream. The process ends with the stream, also after an upgrade, when the
/// HTTP connection is long gone.
struct SshStream {
    stdin: ChildStdin,
    stdout: ChildStdout,
    _process: Child,
}

impl AsyncRead for SshStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(cx, buf)
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stdin).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_the_docker_client() {
        let bare = SshTarget { user: None, host: "gpu".into(), port: None, socket: None };
        assert_eq!(arguments(&bare).join(" "), "-o ConnectTimeout=30 -T -- gpu docker system dial-stdio");
        let full = SshTarget {
            user: Some("root".into()),
            host: "::1".into(),
            port: Some(2222),
            socket: Some("/run/my docker.sock".into()),
        };
        assert_eq!(
            arguments(&full).join(" "),
            "-o ConnectTimeout=30 -T -l root -p 2222 -- ::1 docker --host=unix://'/run/my docker.sock' system dial-stdio"
        );
    }
}
