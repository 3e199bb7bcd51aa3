//! HTTP/1.1 servers on loopback, on their own thread: they serve while the test's thread blocks, and stop when the
//! handle is dropped.

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

/// A request with its whole body.
pub type Request = http::Request<Bytes>;

/// The outcome of a request.
#[derive(Debug)]
pub enum Answer {
    Reply(http::Response<Bytes>),
    /// An answer that is truncated after this many bytes, before its announced length.
    Cut(http::Response<Bytes>, usize),
    /// The connection is reset (RST) without an answer.
    Reset,
}

/// Answers requests; shared by all connections.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. A future that never completes is a hanging call.
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer>;
}

/// The thread of the servers.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    arrived: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts servers on a [`Runtime`]'s thread.
#[derive(Debug, Clone)]
pub struct Spawner {
    handle: Handle,
    /// The number of requests so far, of all servers.
    arrived: Arc<AtomicU64>,
}

/// A listening server; dropping it closes the socket and every connection.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: AbortHandle,
}

impl Runtime {
    /// Starts the thread.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Both a message and a dropped sender mean shutdown.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Runtime { handle, arrived: Arc::default(), stop: Some(stop), thread: Some(thread) })
    }

    /// A handle to start servers on this thread.
    pub fn spawner(&self) -> Spawner {
        Spawner { handle: self.handle.clone(), arrived: self.arrived.clone() }
    }

    /// Waits until no caller is waiting for an answer, regardless of the machine's speed: every call is either
    /// answered, and the caller has read the answer, or deliberately delayed. For callers on the current-thread runtime
    /// that waits.
    pub async fn settled(&self) {
        // Enough for connect, accept, write and read, with a reserve.
        const TURNS: u64 = 6;
        let arrived = || self.arrived.load(Ordering::Acquire);
        // An answer may cause the next request.
        while {
            let before = arrived();
            for _ in 0..TURNS {
                // Both complete only after the sockets of their thread were polled.
                tokio::task::yield_now().await;
                let _ended = self.handle.spawn(tokio::task::yield_now()).await;
            }
            arrived() != before
        } {}
    }
}

impl Spawner {
    /// Serves on 127.0.0.1 at this port (0: any free one).
    pub fn serve(&self, port: u16, handler: Arc<dyn Handler>) -> io::Result<Server> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let arrived = self.arrived.clone();
        let task = self.handle.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            accept(listener, handler, arrived).await;
        });
        Ok(Server { address, task: task.abort_handle() })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the serving thread was already printed.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, handler: Arc<dyn Handler>, arrived: Arc<AtomicU64>) {
    // Owned by this task, so that the connections are closed when it ends.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, handler.clone(), arrived.clone())); }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, handler: Arc<dyn Handler>, arrived: Arc<AtomicU64>) {
    // Answers are written in several pieces; otherwise each would wait for the peer's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let reset = Arc::new(AtomicBool::new(false));
    let io = Resettable { stream, reset: reset.clone() };
    let service = service_fn(move |request| {
        arrived.fetch_add(1, Ordering::Release);
        exchange(request, handler.clone(), reset.clone())
    });
    // Errors come from injected faults and from callers that disconnect.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

type Body = http_body_util::combinators::BoxBody<Bytes, io::Error>;

async fn exchange(
    request: http::Request<Incoming>,
    handler: Arc<dyn Handler>,
    reset: Arc<AtomicBool>,
) -> Result<http::Response<Body>, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match handler.answer(http::Request::from_parts(parts, body)).await {
        Answer::Reply(response) => Ok(response.map(whole)),
        Answer::Cut(response, at) => Ok(cut(response, at)),
        Answer::Reset => {
            reset.store(true, Ordering::Release);
            Err(io::Error::from(io::ErrorKind::ConnectionReset))
        }
    }
}

fn whole(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}

fn cut(response: http::Response<Bytes>, at: usize) -> http::Response<Body> {
    let (mut parts, bytes) = response.into_parts();
    parts.headers.insert(http::header::CONTENT_LENGTH, http::HeaderValue::from(bytes.len()));
    let frames = [Ok(Frame::data(bytes.slice(..at.min(bytes.len())))), Err(io::Error::other("cut on purpose"))];
    let body = StreamBody::new(futures::stream::iter(frames));
    http::Response::from_parts(parts, BodyExt::boxed(body))
}

/// A stream that can be closed with RST instead of FIN.
struct Resettable {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Acquire) {
            // Closing with a linger time of zero sends RST.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Acquire) {
            // After a FIN, the reset would look like an orderly shutdown.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
