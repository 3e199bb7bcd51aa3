//! Connections on which nothing arrives any more, although nobody closed them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tower::service_fn;

use super::*;

/// The client's end of a connection through a proxy that forwards HTTP/2 until it is silent.
struct Line {
    stream: DuplexStream,
    silent: Arc<AtomicBool>,
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self.silent.load(Ordering::SeqCst) {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.silent.load(Ordering::SeqCst) {
            // The kernel takes it.
            true => Poll::Ready(Ok(bytes.len())),
            false => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new().negotiated_h2()
    }
}

async fn answer(_: Request<hyper::body::Incoming>) -> Result<http::Response<Full<Bytes>>, Infallible> {
    Ok(http::Response::new(Full::from("{}")))
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_fell_silent_is_replaced_within_a_minute_also_while_it_is_idle() {
    for idle in [false, true] {
        let (made, silent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let connector = service_fn({
            let (made, silent) = (made.clone(), silent.clone());
            move |_: Uri| {
                // Only the first connection falls silent.
                let first = made.fetch_add(1, Ordering::SeqCst) == 0;
                let silent = if first { silent.clone() } else { Arc::default() };
                Box::pin(async move {
                    let (stream, server) = tokio::io::duplex(64 << 10);
                    let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let answer = hyper::service::service_fn(answer);
                    tokio::spawn(http2.serve_connection(TokioIo::new(server), answer));
                    Ok::<_, Infallible>(TokioIo::new(Line { stream, silent }))
                })
            }
        });
        let pool = pool(connector);
        let ask = async || {
            let request = Request::get("http://cloud.example/").body(Full::default()).unwrap();
            timeout(TIMEOUT, pool.request(request)).await.is_ok_and(|answer| answer.is_ok())
        };
        assert!(ask().await);
        silent.store(true, Ordering::SeqCst);
        let began = Instant::now();
        if idle {
            tokio::time::sleep(READ_IDLE + PING_TIMEOUT + Duration::from_secs(1)).await;
            assert!(ask().await, "the connection was checked while nobody used it");
        } else {
            while !ask().await {}
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }
}
