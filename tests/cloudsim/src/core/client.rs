//! Requests over HTTP for tests, each on its own connection. They block.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A request takes milliseconds, but seconds while the machine is compiling.
const PATIENCE: Duration = Duration::from_secs(120);

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// The headers; the names are in lower case.
    pub headers: BTreeMap<String, String>,
    pub text: String,
    /// The body, or null if it is not JSON.
    pub json: Value,
}

/// Sends one request to a URL `http://…` and reads the whole answer.
pub fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Answer> {
    send_within(PATIENCE, method, url, headers, body)
}

/// Like [`send`], but each read ends after this time.
pub fn send_within(
    patience: Duration,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Answer> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    let mut request = format!("{method} /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let answer = String::from_utf8_lossy(&bytes);
    let broken = || io::Error::new(io::ErrorKind::UnexpectedEof, format!("not a whole HTTP answer: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = head.lines().skip(1).filter_map(pair).collect();
    let length = headers.get("content-length").and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length > body.len()) {
        return Err(broken());
    }
    let json = serde_json::from_str(body).unwrap_or_default();
    Ok(Answer { status, headers, text: body.to_owned(), json })
}
