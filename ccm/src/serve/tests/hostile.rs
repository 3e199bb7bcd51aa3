//! Clients that are slow, faulty or hostile. The tests assert that the server stops them, and how much work it did
//! until then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::client::{
    CONTINUATION, END_HEADERS, END_STREAM, GET, GO_AWAY, HEADERS, PATIENCE, PING, RESET, SETTINGS, frame, frames,
    http1, http2, rest, status,
};
use super::{Hello, serve, serving};
use crate::serve::answer::{self, Answer};
use crate::serve::listener::{Handler, Limits};

const SHORT: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(3600);
/// Limits that close no connection, except those that a test shortens.
const PATIENT: Limits =
    Limits { handshake: NEVER, head: NEVER, idle: NEVER, stuck: NEVER, busy: NEVER, ..Limits::DEFAULT };
/// HTTP/2: ENHANCE_YOUR_CALM.
const CALM_DOWN: u32 = 11;

/// Counts requests and never answers.
#[derive(Default)]
struct Stuck {
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most: AtomicUsize,
}

struct Running<'a>(&'a Stuck);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Stuck {
    async fn handle(&self, _: http::Request<Incoming>, _: &[CertificateDer<'static>]) -> (Answer, bool) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let _running = Running(self);
        std::future::pending().await
    }
}

/// Answers without authentication.
struct Stranger;

impl Handler for Stranger {
    async fn handle(&self, _: http::Request<Incoming>, _: &[CertificateDer<'static>]) -> (Answer, bool) {
        (answer::text(http::StatusCode::FORBIDDEN, "no"), false)
    }
}

fn start(limits: Limits) -> (AbortOnDropHandle<()>, SocketAddr) {
    serve(&serving(&[]), Arc::new(Hello), limits, NEVER)
}

fn start_stuck(limits: Limits, streams: &str) -> (AbortOnDropHandle<()>, SocketAddr, Arc<Stuck>) {
    let handler = Arc::new(Stuck::default());
    let serving = serving(&[("http2-max-streams-per-connection", &[streams])]);
    let (server, address) = serve(&serving, handler.clone(), limits, NEVER);
    (server, address, handler)
}

/// Sends the same bytes repeatedly, without reading, until the server closes the connection.
async fn flood<S: AsyncWrite + Unpin>(stream: &mut S, piece: &[u8]) {
    let sent = async { while stream.write_all(piece).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, sent).await.expect("the server takes anything for ever");
}

/// The server still answers other clients.
async fn serves(address: SocketAddr) {
    assert_eq!(status(&mut http1(address).await, "/livez").await, Some(200));
}

#[tokio::test]
async fn a_head_that_dribbles_in_is_cut_off() {
    let (_server, address) = start(Limits { head: SHORT, ..PATIENT });
    let mut stream = http1(address).await;
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let dribble = async {
        while write.write_all(b"a").await.is_ok() && write.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        ended = rest(&mut read) => assert_eq!(ended, b""),
        () = dribble => {}
    }
    serves(address).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let (_server, address) = start(PATIENT);
    for head in [
        format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(300_000)),
        format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "a: b\r\n".repeat(1000)),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(300_000)),
    ] {
        let mut stream = http1(address).await;
        // The server may close the connection before the end.
        drop(stream.write_all(head.as_bytes()).await);
        let answer = String::from_utf8(rest(&mut stream).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 ") || answer.starts_with("HTTP/1.1 414 "), "{answer}");
    }
    serves(address).await;
}

#[tokio::test]
async fn requests_in_one_piece_are_answered_in_their_order() {
    let (_server, address) = start(PATIENT);
    let mut stream = http1(address).await;
    let many =
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200) + "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(many.as_bytes()).await.unwrap();
    let answers = String::from_utf8(rest(&mut stream).await).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 201);
}

#[tokio::test]
async fn nothing_is_read_ahead_during_an_answer_and_a_client_that_never_reads_is_closed() {
    let (_server, address, handler) = start_stuck(Limits { busy: SHORT, ..PATIENT }, "0");
    let mut stream = http1(address).await;
    flood(&mut stream, &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)).await;
    assert_eq!(handler.asked.load(Ordering::SeqCst), 1);

    let (_server, address) = start(Limits { stuck: SHORT, ..PATIENT });
    let mut stream = http1(address).await;
    flood(&mut stream, &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)).await;
    serves(address).await;
}

#[tokio::test]
async fn a_request_that_is_ambiguous_or_no_http_ends_the_connection() {
    let (_server, address) = start(PATIENT);
    for bad in [
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\0\u{1}\u{2}\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n",
    ] {
        let mut stream = http1(address).await;
        stream.write_all(bad.as_bytes()).await.unwrap();
        let answer = String::from_utf8(rest(&mut stream).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 4"), "{bad:?}: {answer}");
    }
}

#[tokio::test]
async fn garbage_within_tls_ends_the_connection() {
    let (_server, address) = start(PATIENT);
    let mut tcp = http1(address).await.into_inner().0;
    tcp.write_all(&[23, 3, 3, 0, 32]).await.unwrap();
    tcp.write_all(&[7; 32]).await.unwrap();
    rest(&mut tcp).await;
    serves(address).await;
}

#[tokio::test]
async fn a_probe_gets_in_among_more_clients_than_there_is_room_for() {
    const MOST: usize = 8;
    let (_server, address) = start(Limits { connections: MOST, ..PATIENT });
    let mut idle = Vec::new();
    for number in 0..60 {
        let mut stream = http1(address).await;
        if number % 2 == 0 {
            assert_eq!(status(&mut stream, "/").await, Some(200));
        }
        idle.push(stream);
        if number % 10 == 9 {
            serves(address).await;
        }
    }
    let mut open = 0;
    for mut stream in idle {
        // Counts the connections that are still served; all others were closed.
        open += usize::from(status(&mut stream, "/").await == Some(200));
    }
    assert!((1..=MOST).contains(&open), "{open}");
}

#[tokio::test]
async fn a_request_without_an_end_is_given_up() {
    let (_server, address, handler) = start_stuck(Limits { busy: SHORT, ..PATIENT }, "0");
    let mut one = http1(address).await;
    assert_eq!(status(&mut one, "/").await, None);
    let mut two = http2(address).await;
    two.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &GET)).await.unwrap();
    rest(&mut two).await;
    assert_eq!((handler.asked.load(Ordering::SeqCst), handler.at_once.load(Ordering::SeqCst)), (2, 0));
}

/// The error code of the last GOAWAY, if there was one.
fn farewell(read: &[u8]) -> Option<u32> {
    let last = frames(read).into_iter().rfind(|(kind, ..)| *kind == GO_AWAY)?;
    Some(u32::from_be_bytes(last.2[4..8].try_into().unwrap()))
}

/// Sends and reads at the same time, until the server closes the connection.
async fn exchange<S: AsyncRead + AsyncWrite>(stream: S, pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let (mut read, mut write) = tokio::io::split(stream);
    let send = async {
        for piece in pieces {
            if write.write_all(&piece).await.is_err() {
                return;
            }
        }
        drop(write.flush().await);
    };
    tokio::join!(rest(&mut read), send).0
}

fn streams() -> impl Iterator<Item = u32> {
    (0..).map(|number| number * 2 + 1)
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_end_the_connection() {
    let (_server, address, handler) = start_stuck(PATIENT, "0");
    let pieces = streams().take(1_000_000).map(|stream| {
        let mut piece = frame(HEADERS, END_HEADERS | END_STREAM, stream, &GET);
        piece.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
        piece
    });
    exchange(http2(address).await, pieces).await;
    let asked = handler.asked.load(Ordering::SeqCst);
    assert!(asked < 1000, "{asked} requests were begun");
    assert!(handler.most.load(Ordering::SeqCst) <= 100);
}

#[tokio::test]
async fn streams_over_the_limit_are_refused_and_a_flood_of_them_ends_the_connection() {
    let head = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &GET);
    let is_refused = |(kind, _, payload): &(u8, u32, Vec<u8>)| *kind == RESET && payload == &[0, 0, 0, 7];
    let refused = |read: &[u8]| frames(read).iter().filter(|frame| is_refused(frame)).count();
    let (_server, address, handler) = start_stuck(PATIENT, "8");
    let mut stream = http2(address).await;
    for number in streams().take(20) {
        stream.write_all(&head(number)).await.unwrap();
    }
    let mut read = Vec::new();
    let all = async {
        while refused(&read) < 12 {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0);
        }
        while handler.asked.load(Ordering::SeqCst) < 8 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap();
    assert_eq!((refused(&read), handler.asked.load(Ordering::SeqCst)), (12, 8));

    let read = exchange(http2(address).await, streams().take(100_000).map(head)).await;
    assert!(refused(&read) <= 100, "{}", refused(&read));
    assert!(handler.asked.load(Ordering::SeqCst) <= 16 && handler.most.load(Ordering::SeqCst) <= 16);
    assert_eq!(farewell(&read), Some(CALM_DOWN));
}

#[tokio::test]
async fn pings_and_settings_with_unread_answers_end_the_connection() {
    for piece in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])] {
        let (_server, address) = start(Limits { stuck: SHORT, ..PATIENT });
        let mut stream = http2(address).await;
        flood(&mut stream, &piece.repeat(1000)).await;
        serves(address).await;
    }
}

#[tokio::test]
async fn pings_keep_no_connection_open_that_asks_for_nothing() {
    let (_server, address) = start(Limits { idle: SHORT, ..PATIENT });
    let (mut read, mut write) = tokio::io::split(http2(address).await);
    // Paced: the kernel resets a connection that is closed with unread input, and then the client loses the last frames.
    let pings = async {
        while write.write_all(&frame(PING, 0, 0, &[0; 8])).await.is_ok() && write.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (read, ()) = tokio::join!(rest(&mut read), pings);
    assert_eq!(farewell(&read), Some(0), "it is announced first");
    assert!(frames(&read).iter().any(|(kind, ..)| *kind == PING));
}

#[tokio::test]
async fn a_head_without_an_end_ends_the_connection() {
    let (_server, address, handler) = start_stuck(PATIENT, "0");
    let first = frame(HEADERS, END_STREAM, 1, &GET);
    let header = [&[0, 1, b'a', 127, 0x81, 0x7f][..], &[b'a'; 256]].concat();
    let more = std::iter::repeat_with(|| frame(CONTINUATION, 0, 1, &header));
    exchange(http2(address).await, std::iter::once(first).chain(more)).await;
    assert_eq!(handler.asked.load(Ordering::SeqCst), 0);
    // A connection without requests is idle.
    let (_server, address, handler) = start_stuck(Limits { idle: SHORT, ..PATIENT }, "0");
    let mut stream = http2(address).await;
    stream.write_all(&frame(HEADERS, END_STREAM, 1, &GET)).await.unwrap();
    rest(&mut stream).await;
    assert_eq!(handler.asked.load(Ordering::SeqCst), 0);
}

type Http2 = hyper::client::conn::http2::SendRequest<Empty<bytes::Bytes>>;

async fn client(address: SocketAddr) -> (Http2, AbortOnDropHandle<hyper::Result<()>>) {
    let offer = super::client::Offer { protocols: &["h2"], ..Default::default() };
    let io = TokioIo::new(offer.connect(address).await.unwrap());
    let (client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    (client, AbortOnDropHandle::new(tokio::spawn(connection)))
}

async fn ask(client: &mut Http2, headers: &[(&str, String)]) -> Option<u16> {
    let mut request = http::Request::get("https://x/").body(Empty::new()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    client.send_request(request).await.ok().map(|answer| answer.status().as_u16())
}

#[tokio::test]
async fn a_header_list_that_is_too_large_never_reaches_the_handler() {
    let (_server, address, handler) = start_stuck(PATIENT, "0");
    let large: Vec<(&str, String)> = (0..10).map(|_| ("a", "a".repeat(10_000))).collect();
    let status = ask(&mut client(address).await.0, &large).await;
    assert!(status.is_none_or(|status| status == 431), "{status:?}");
    assert_eq!(handler.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_stranger_gets_one_answer_over_http2_and_others_keep_their_connection() {
    let (_server, address) = serve(&serving(&[]), Arc::new(Stranger), PATIENT, NEVER);
    let (mut stranger, connection) = client(address).await;
    assert_eq!(ask(&mut stranger, &[]).await, Some(403));
    assert!(tokio::time::timeout(PATIENCE, connection).await.is_ok(), "the connection is still open");
    let (_server, address) = start(PATIENT);
    let (mut known, _connection) = client(address).await;
    for _ in 0..3 {
        assert_eq!(ask(&mut known, &[]).await, Some(200));
    }
}

#[tokio::test]
async fn a_handshake_that_stalls_is_cut_off_wherever_it_does() {
    let (_server, address) = start(Limits { handshake: SHORT, ..PATIENT });
    rest(&mut TcpStream::connect(address).await.unwrap()).await;
    for piece in [&[22, 3, 1, 0, 4, 1, 2, 3, 4][..], &[22, 3, 1, 2, 0, 1], &[22], &[128, 46, 1], &[0; 100]] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(piece).await.unwrap();
        rest(&mut stream).await;
    }
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = [0; 26];
    plain.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.0 400 Bad Request\r\n");
    serves(address).await;
}
