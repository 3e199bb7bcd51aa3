//! Clients with configurable TLS and raw HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longer than all time limits of the server, and than a flood takes on a machine with other work.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// The TLS parameters that a client offers.
pub(super) struct Offer<'a> {
    pub(super) name: &'a str,
    pub(super) protocols: &'a [&'a str],
    pub(super) versions: &'a [&'static SupportedProtocolVersion],
    /// Empty: all.
    pub(super) suites: &'a [rustls::CipherSuite],
    /// Certificate and key in PEM.
    pub(super) identity: Option<&'a (String, String)>,
}

impl Default for Offer<'_> {
    fn default() -> Self {
        Self { name: "localhost", protocols: &[], versions: rustls::ALL_VERSIONS, suites: &[], identity: None }
    }
}

impl Offer<'_> {
    pub(super) async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let suites = Some(self.suites).filter(|suites| !suites.is_empty());
        let identity = self.identity.map(|(certificate, key)| (&**certificate, &**key));
        let mut config = ccm_test_bed::trusting_client(suites, self.versions, identity);
        config.alpn_protocols = self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(self.name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
    }
}

/// A connection for HTTP/1.1.
pub(super) async fn http1(address: SocketAddr) -> TlsStream<TcpStream> {
    Offer::default().connect(address).await.unwrap()
}

/// A connection for HTTP/2, with the preface sent.
pub(super) async fn http2(address: SocketAddr) -> TlsStream<TcpStream> {
    let offer = Offer { protocols: &["h2"], ..Offer::default() };
    let mut stream = offer.connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    stream
}

/// Requests a path and reads one answer: its status, or `None` if the connection ended.
pub(super) async fn status<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, path: &str) -> Option<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(read).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0").parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(head[9..12].parse().unwrap())
}

/// Reads until the server closes the connection in any way.
pub(super) async fn rest<S: AsyncRead + Unpin>(stream: &mut S) -> Vec<u8> {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
    assert!(ended.is_ok(), "the connection is still open; read so far: {read:?}");
    read
}

pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GO_AWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const END_STREAM: u8 = 1;
/// `GET https://x/` in HPACK.
pub(super) const GET: [u8; 6] = [0x82, 0x87, 0x84, 0x41, 1, b'x'];

/// A frame of HTTP/2.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Kind, stream and payload of all whole frames.
pub(super) fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while bytes.len() >= 9 {
        let length = usize::try_from(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])).unwrap();
        if bytes.len() < 9 + length {
            break;
        }
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        frames.push((bytes[3], stream, bytes[9..9 + length].to_vec()));
        bytes = &bytes[9 + length..];
    }
    frames
}
