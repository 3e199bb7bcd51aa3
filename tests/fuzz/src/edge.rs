//! HTTP from untrusted clients.

use std::time::Duration;

use ccm::serve::config::AllowedPaths;
use ccm::serve::edge::Edge;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// The preface of HTTP/2, with settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The bytes of a decrypted connection. The first one selects the protocol: `1` and `3` are HTTP/1.1, `2` and `4` are
/// HTTP/2 (without its preface); with `1` and `2` no request is authorized, with the others every request is.
pub(crate) fn http(data: &[u8]) {
    let Some((kind, input)) = data.split_first() else { return };
    let (http2, open) = match kind {
        b'1' => (false, false),
        b'2' => (true, false),
        b'3' => (false, true),
        b'4' => (true, true),
        _ => return,
    };
    let allowed: &[String] = if open { &["*".to_owned()] } else { &[] };
    let edge = Edge::new(AllowedPaths::new(allowed).unwrap());
    // Paused time: time limits expire as soon as no other work remains.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let answer = runtime.block_on(async {
        let (client, server) = tokio::io::duplex(4096);
        let whole = async { tokio::join!(edge.speak(server, http2), exchange(client, http2, input)).1 };
        // Longer than every time limit.
        tokio::time::timeout(Duration::from_secs(3600), whole)
            .await
            .expect("a connection whose client has left stays open")
    });
    if http2 {
        assert!(are_frames(&answer), "no frames: {answer:?}");
    } else if !answer.is_empty() {
        assert!(answer.starts_with(b"HTTP/1.1 ") || answer.starts_with(b"HTTP/1.0 "), "{answer:?}");
        let granted = answer.windows(13).any(|words| words == b"HTTP/1.1 200 ");
        assert!(open || !granted, "a stranger got something");
    }
}

/// Sends the input, and reads until the server is done.
async fn exchange(client: DuplexStream, http2: bool, input: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = tokio::io::split(client);
    let send = async {
        let preface = if http2 { PREFACE } else { &[] };
        // The server may close the connection before the end.
        if write.write_all(preface).await.is_ok() && write.write_all(input).await.is_ok() {
            drop(write.shutdown().await);
        }
    };
    let mut answer = Vec::new();
    let (_, ended) = tokio::join!(send, read.read_to_end(&mut answer));
    ended.expect("a pipe cannot fail");
    answer
}

/// Whether this is a sequence of frames, of which the last may be incomplete.
fn are_frames(mut bytes: &[u8]) -> bool {
    while let [high, middle, low, kind, _, rest @ ..] = bytes {
        // The answers respect a client's default settings: frames of at most 16 KiB, of known types.
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        if length > 16384 || *kind > 9 {
            return false;
        }
        bytes = rest.get(4 + length..).unwrap_or_default();
    }
    true
}
