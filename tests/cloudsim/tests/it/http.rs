//! Requests over HTTP, each on its own connection.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
    /// The body, or null if it is not JSON.
    pub(crate) json: Value,
}

/// Sends one request on a new connection. An error means that the connection broke.
pub(crate) fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> std::io::Result<Answer> {
    let rest = url.strip_prefix("http://").expect("a plain URL");
    let (address, path) = rest.split_once('/').map_or((rest, String::from("/")), |(at, path)| (at, format!("/{path}")));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\nContent-Type: application/json\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let answer = String::from_utf8_lossy(&bytes);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no HTTP answer"))?;
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = head.lines().skip(1).filter_map(pair).collect();
    let length = headers.get("content-length").and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length > body.len()) {
        return Err(std::io::Error::other("the body breaks off"));
    }
    let json = serde_json::from_str(body).unwrap_or_default();
    Ok(Answer { status, headers, text: body.to_owned(), json })
}
