//! A registry of one repository without TLS that does what a test tells it to do wrong.

use super::oci_fixture::{Parts, blob_name, digest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What to do with one request.
#[derive(Clone, Debug)]
pub enum Answer {
    Right,
    /// Send the body's first bytes and close, whatever the header said.
    CutAfter(usize),
    /// Close without an answer.
    Close,
    Status(u16),
    /// More bytes than there are.
    Longer,
    /// Other bytes, with the digest of the right ones in the header.
    Body(Vec<u8>),
    /// Send to the same path of another server.
    Redirect(String),
}

/// Decides by path and how often it was asked for before.
pub type Behaviour = Box<dyn Fn(&str, usize) -> Answer + Send + Sync>;

struct State {
    /// Path → content type and body.
    content: BTreeMap<String, (String, Vec<u8>)>,
    asked: Mutex<Vec<String>>,
    /// The credentials that came with each request.
    authorizations: Mutex<Vec<Option<String>>>,
    behave: Behaviour,
    /// Tokens are wanted; the `user:password` that the token server wants to see.
    tokens: Option<Option<String>>,
    address: String,
}

/// Serves until the process of the test ends.
pub struct Unruly {
    /// `host:port`
    pub address: String,
    state: Arc<State>,
}

const TOKEN: &str = "a-token";

impl Unruly {
    /// Serves the blobs and, as `repo:1`, `image`. `behave` decides by path and how often it was asked for before.
    pub fn start(
        parts: &Parts,
        image: &Value,
        behave: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> Unruly {
        Unruly::serve(parts, image, Box::new(behave), None)
    }

    /// The registry behind a token server.
    pub fn with_tokens(parts: &Parts, image: &Value, wanted: Option<String>) -> Unruly {
        Unruly::serve(parts, image, Box::new(|_, _| Answer::Right), Some(wanted))
    }

    /// The registry with its blobs on another server.
    pub fn redirecting(parts: &Parts, image: &Value, to: String) -> Unruly {
        let behave = move |path: &str, _| match path.contains("/blobs/") {
            true => Answer::Redirect(to.clone()),
            false => Answer::Right,
        };
        Unruly::serve(parts, image, Box::new(behave), Some(None))
    }

    fn serve(parts: &Parts, image: &Value, behave: Behaviour, tokens: Option<Option<String>>) -> Unruly {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut content = BTreeMap::new();
        for bytes in parts.0.values() {
            for kind in ["blobs", "manifests"] {
                let path = format!("/v2/repo/{kind}/{}", digest(bytes));
                content.insert(path, ("application/octet-stream".to_owned(), bytes.clone()));
            }
        }
        let top = parts.0[&blob_name(image)].clone();
        content.insert("/v2/repo/manifests/1".into(), (image["mediaType"].as_str().unwrap().to_owned(), top));
        let state = Arc::new(State {
            content,
            asked: Mutex::default(),
            authorizations: Mutex::default(),
            behave,
            tokens,
            address: address.clone(),
        });
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&served);
                std::thread::spawn(move || while state.answer(&stream).is_some() {});
            }
        });
        Unruly { address, state }
    }

    /// How often paths with this end were asked for.
    pub fn asked_for(&self, end: &str) -> usize {
        self.state.asked.lock().unwrap().iter().filter(|path| path.ends_with(end)).count()
    }

    /// The credentials that came.
    pub fn credentials(&self) -> Vec<String> {
        self.state.authorizations.lock().unwrap().iter().flatten().cloned().collect()
    }

    pub fn all_asked(&self) -> Vec<String> {
        self.state.asked.lock().unwrap().clone()
    }
}

impl State {
    /// Answers one request; `None` ends the connection.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        // One request at a time is on its way, so nothing of the next is read ahead.
        let mut lines = BufReader::new(stream).lines();
        let request = lines.next()?.ok()?;
        let path = request.split(' ').nth(1)?.to_owned();
        let mut authorization = None;
        for line in lines {
            let line = line.ok()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("authorization")
            {
                authorization = Some(value.to_owned());
            }
        }
        self.authorizations.lock().unwrap().push(authorization.clone());
        let plain = path.split('?').next()?.to_owned();
        let times = {
            let mut asked = self.asked.lock().unwrap();
            let times = asked.iter().filter(|other| **other == plain).count();
            asked.push(plain.clone());
            times
        };
        let mut out = stream;
        if plain == "/token" {
            let status = self.token_status(&path, authorization.as_deref());
            let body = format!("{{\"token\":\"{TOKEN}\"}}");
            let body = if status == 200 { body.as_str() } else { "{}" };
            return send(&mut out, status, &[], body.as_bytes(), body.len());
        }
        if self.tokens.is_some() && authorization.as_deref() != Some(&format!("Bearer {TOKEN}")) {
            let challenge = format!(
                "WWW-Authenticate: Bearer realm=\"http://{}/token\",service=\"test\",scope=\"repository:repo:pull\"",
                self.address
            );
            return send(&mut out, 401, &[challenge], b"{}", 2);
        }
        let Some((kind, body)) = self.content.get(&plain) else { return send(&mut out, 404, &[], b"{}", 2) };
        let headers = [format!("Content-Type: {kind}"), format!("Docker-Content-Digest: {}", digest(body))];
        match (self.behave)(&plain, times) {
            Answer::Right => send(&mut out, 200, &headers, body, body.len()),
            Answer::Longer => {
                let longer = [body.as_slice(), &[0; 100]].concat();
                send(&mut out, 200, &headers, &longer, longer.len())
            }
            Answer::Body(other) => send(&mut out, 200, &headers, &other, other.len()),
            Answer::CutAfter(bytes) => {
                assert!(bytes < body.len());
                send(&mut out, 200, &headers, &body[..bytes], body.len())?;
                close(stream)
            }
            Answer::Close => close(stream),
            Answer::Redirect(to) => send(&mut out, 307, &[format!("Location: http://{to}{plain}")], b"", 0),
            Answer::Status(status) => send(&mut out, status, &[], b"{}", 2),
        }
    }

    fn token_status(&self, path: &str, authorization: Option<&str>) -> u16 {
        use base64::Engine as _;
        assert!(
            path.contains("scope=repository%3Arepo%3Apull") || path.contains("scope=repository:repo:pull"),
            "{path}"
        );
        let wanted = self.tokens.clone().flatten();
        let wanted = wanted.map(|it| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(it)));
        if authorization == wanted.as_deref() { 200 } else { 401 }
    }
}

fn close(stream: &TcpStream) -> Option<()> {
    let _ = stream.shutdown(std::net::Shutdown::Both);
    None
}

fn send(out: &mut impl Write, status: u16, headers: &[String], body: &[u8], length: usize) -> Option<()> {
    let mut head = format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n");
    headers.iter().for_each(|header| head.push_str(&format!("{header}\r\n")));
    out.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    out.write_all(body).ok()
}
