//! A stand-in for a Docker daemon: an HTTP server on a loopback port that answers what a test tells it to.
//!
//! Input: a function from a request to an answer. Output: an address for `DOCKER_HOST`, and the requests that came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Without the framing of chunks.
    pub body: Vec<u8>,
}

impl Request {
    /// A header's value; names are compared without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The path without the API version and the query.
    pub fn endpoint(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        match path.strip_prefix("/v").and_then(|rest| rest.find('/').map(|slash| &rest[slash..])) {
            Some(endpoint) => endpoint,
            None => path,
        }
    }
}

/// Writes the answer to one request.
pub struct Reply {
    stream: TcpStream,
}

impl Reply {
    /// A whole answer.
    pub fn json(&mut self, status: u16, body: &str) {
        let head =
            format!("HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        self.write(format!("{head}{body}").as_bytes());
    }

    /// Switches to a raw stream, as the answer to an attach, and writes these bytes into it.
    pub fn upgrade(&mut self, bytes: &[u8]) {
        let head = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
        self.write(head.as_bytes());
        self.write(bytes);
    }

    /// The head of an answer in chunks.
    pub fn start(&mut self) {
        self.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    }

    /// One chunk. Returns false if the client is gone.
    pub fn chunk(&mut self, data: &[u8]) -> bool {
        let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
        framed.extend_from_slice(data);
        framed.extend_from_slice(b"\r\n");
        self.stream.write_all(&framed).is_ok()
    }

    /// The last, empty chunk. Without it the answer is broken off.
    pub fn end(&mut self) {
        self.write(b"0\r\n\r\n");
    }

    /// An answer in chunks, from its first to its last.
    pub fn stream(&mut self, chunks: &[&[u8]]) {
        self.start();
        for chunk in chunks {
            self.chunk(chunk);
        }
        self.end();
    }

    /// Waits until the client closes the connection.
    pub fn wait_for_close(&mut self) {
        let _ = std::io::copy(&mut self.stream, &mut std::io::sink());
    }

    fn write(&mut self, bytes: &[u8]) {
        // The client may be gone, which is for the test to notice.
        let _ = self.stream.write_all(bytes);
    }
}

/// The server. It ends with the process.
pub struct MockDaemon {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl MockDaemon {
    /// Starts a server that answers every request with `handler`.
    pub fn start(handler: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binding a loopback port");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (handler, seen) = (Arc::new(handler), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, seen) = (Arc::clone(&handler), Arc::clone(&seen));
                std::thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        seen.lock().expect("no panic holds the lock").push(request.clone());
                        handler(&request, &mut Reply { stream });
                    }
                });
            }
        });
        Self { port, requests }
    }

    /// Starts a daemon with API version `api` that leaves all but `/version` to `handler`.
    pub fn with_api(api: &'static str, handler: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) -> Self {
        Self::start(move |request, reply| match request.endpoint() {
            "/version" => reply.json(200, &version(api)),
            // What a build looks at before it begins.
            "/containers/json" | "/images/json" => reply.json(200, "[]"),
            // The session of BuildKit; the recorded streams need none.
            "/grpc" | "/session" => reply.json(404, r#"{"message":"page not found"}"#),
            _ => handler(request, reply),
        })
    }

    /// Its address.
    pub fn host(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic holds the lock").clone()
    }
}

/// An answer to `/version`.
pub fn version(api: &str) -> String {
    format!(
        r#"{{"Version":"99.0","ApiVersion":"{api}","MinAPIVersion":"1.12","Os":"linux","Arch":"amd64","Components":[{{"Name":"Engine","Version":"99.0"}}]}}"#
    )
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let mut request = Request { method, path, headers, body: Vec::new() };
    if request.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let length = u64::from_str_radix(line.trim(), 16).ok()?;
            (&mut reader).take(length).read_to_end(&mut request.body).ok()?;
            reader.read_line(&mut String::new()).ok()?;
            if length == 0 {
                break;
            }
        }
    } else {
        let length: u64 = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        reader.take(length).read_to_end(&mut request.body).ok()?;
    }
    Some(request)
}
