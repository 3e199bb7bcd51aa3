//! The port: TLS and HTTP for arbitrary clients, within limits.
//!
//! A client can be slow, faulty or hostile in the handshake, the head, the body, reading the response, or by being
//! idle. Each has a time limit; the number of read-ahead bytes and of connections is limited too.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::answer::Answer;
use super::certs::{Certificates, Only};
use super::config::Serving;
use super::connections::{Activity, Connections, InFlight, Place};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// For the TLS handshake, starting at the accept.
    pub(crate) handshake: Duration,
    /// For the head of a request.
    pub(crate) head: Duration,
    /// For a connection without a request.
    pub(crate) idle: Duration,
    /// For a response that the client does not read.
    pub(crate) stuck: Duration,
    /// For overlapping requests without a pause; then the connection accepts no more requests, and is closed after the
    /// same time again.
    pub(crate) busy: Duration,
    /// Maximum bytes of a head and of read-ahead.
    pub(crate) head_bytes: u32,
}

impl Limits {
    /// As in upstream where it has a limit: for heads (32 s, 1 MiB) and idle connections.
    pub(crate) const DEFAULT: Self = Self {
        connections: 256,
        handshake: Duration::from_secs(10),
        head: Duration::from_secs(32),
        idle: Duration::from_secs(90),
        stuck: Duration::from_secs(30),
        busy: Duration::from_secs(120),
        head_bytes: 64 * 1024,
    };
}

/// Answers requests; one per port.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The response, and whether the client is authenticated.
    fn handle(
        &self,
        request: Request<Incoming>,
        certificates: &[CertificateDer<'static>],
    ) -> impl Future<Output = (Answer, bool)> + Send;
}

pub(super) struct Configuration {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) certificates: Arc<Certificates>,
}

pub(super) struct Port {
    listener: TcpListener,
    configuration: watch::Receiver<Arc<Configuration>>,
    http2_streams: u32,
    limits: Limits,
}

/// Binds the port.
///
/// # Errors
///
/// The port cannot be bound; with upstream's text.
pub(super) fn bind(serving: &Serving) -> Result<TcpListener, String> {
    // As in Go, an unspecified address of either family means both, if the machine has IPv6.
    let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), serving.port);
    let given = SocketAddr::new(serving.address, serving.port);
    let bound = match serving.address.is_unspecified() {
        true => listen(any, serving).or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
            _ => listen(given, serving),
        }),
        false => listen(given, serving),
    };
    bound.map_err(|error| format!("failed to create listener: failed to listen on {given}: {error}"))
}

fn listen(address: SocketAddr, serving: &Serving) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // Always, as in Go: connections in TIME_WAIT must not delay a restart. --permit-address-sharing sets it too.
    socket.set_reuse_address(true)?;
    if serving.share_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

impl Port {
    pub(super) fn new(
        listener: TcpListener,
        configuration: watch::Receiver<Arc<Configuration>>,
        serving: &Serving,
        limits: Limits,
    ) -> Self {
        Self { listener, configuration, http2_streams: serving.http2_streams.unwrap_or(1), limits }
    }

    /// Serves until it is dropped; then all connections are closed.
    pub(super) async fn serve<H: Handler>(self, handler: Arc<H>) {
        let connections = EndOnDrop(Connections::new(self.limits.connections));
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let configuration = self.configuration.borrow().clone();
                    let (limits, streams, handler) = (self.limits, self.http2_streams, handler.clone());
                    connections.0.admit(peer.ip(), move |activity, place| {
                        let connection = Connection { limits, streams, handler, activity };
                        connection.run(stream, configuration, place)
                    });
                }
                Err(error) => {
                    // Most likely there are no file descriptors left.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    connections.0.make_room();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

struct EndOnDrop(Arc<Connections>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Connection<H> {
    limits: Limits,
    streams: u32,
    handler: Arc<H>,
    activity: Arc<Activity>,
}

impl<H: Handler> Connection<H> {
    async fn run(self, stream: TcpStream, configuration: Arc<Configuration>, place: Place) {
        let _place = place;
        // Responses are small and written at once.
        drop(stream.set_nodelay(true));
        match tokio::time::timeout(self.limits.handshake, handshake(stream, &configuration)).await {
            Ok(Ok(Some(stream))) => {
                let (_, session) = stream.get_ref();
                let http2 = session.alpn_protocol() == Some(b"h2");
                let certificates = session.peer_certificates().unwrap_or_default().to_vec().into();
                self.speak(stream, http2, certificates).await;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "http: TLS handshake error"),
            Err(_) => tracing::debug!("http: TLS handshake error: timeout"),
        }
    }

    async fn speak<S>(self, stream: S, http2: bool, certificates: Arc<[CertificateDer<'static>]>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (handler, activity) = (self.handler.clone(), self.activity.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (handler, activity, certificates) = (handler.clone(), activity.clone(), certificates.clone());
            async move {
                let in_flight = activity.request();
                let (answer, known) = handler.handle(request, &certificates).await;
                if http2 && !known {
                    // As in upstream: HTTP/2 allows many requests on one connection, so an anonymous client gets only
                    // this response.
                    activity.close_after_this();
                }
                Ok::<_, Infallible>(answer.map(|body| Counted { body, _in_flight: in_flight }))
            }
        });
        let io = TokioIo::new(Watched { stream, activity: self.activity.clone() });
        let limits = self.limits;
        let size = usize::try_from(limits.head_bytes).unwrap_or(usize::MAX);
        if http2 {
            let mut server = http2::Builder::new(TokioExecutor::new());
            server
                .timer(TokioTimer::new())
                .max_concurrent_streams(self.streams)
                .max_header_list_size(limits.head_bytes)
                .max_pending_accept_reset_streams(20)
                .max_local_error_reset_streams(64)
                .max_send_buf_size(64 * 1024)
                // Limits the memory that 256 connections can fill with unread bodies: bodies here are small or can
                // wait.
                .initial_stream_window_size(64 * 1024)
                .initial_connection_window_size(128 * 1024)
                .keep_alive_interval(limits.idle / 3)
                .keep_alive_timeout(limits.stuck);
            let connection = std::pin::pin!(server.serve_connection(io, service));
            watch_over(connection, http2::Connection::graceful_shutdown, &self.activity, limits, true).await;
        } else {
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(size.max(8192));
            let connection = std::pin::pin!(server.serve_connection(io, service));
            watch_over(connection, http1::Connection::graceful_shutdown, &self.activity, limits, false).await;
        }
    }
}

/// Serves HTTP on a connection without TLS, like the port after the handshake, to a client without a certificate.
pub(super) async fn speak<S, H: Handler>(stream: S, http2: bool, handler: Arc<H>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::new());
    Connection { limits: Limits::DEFAULT, streams: 100, handler, activity }.speak(stream, http2, Arc::default()).await;
}

/// Drives a connection until it ends or a limit closes it.
async fn watch_over<C>(
    mut connection: Pin<&mut C>,
    finish: impl Fn(Pin<&mut C>),
    activity: &Activity,
    limits: Limits,
    http2: bool,
) where
    C: Future<Output = hyper::Result<()>>,
{
    let shortest = limits.head.min(limits.idle).min(limits.stuck).min(limits.busy);
    let mut ticks = tokio::time::interval((shortest / 4).max(Duration::from_millis(1)));
    let (mut finishing, mut asked) = (false, false);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            _ = ticks.tick() => {}
            () = activity.closing() => asked = true,
        }
        let over = |time: Option<Duration>, limit: Duration| time.is_some_and(|time| time >= limit);
        // In HTTP/2, frames without a request are received between requests.
        let slow_head = !http2 && over(activity.head(), limits.head);
        if slow_head || over(activity.stuck(), limits.stuck) || over(activity.busy(), limits.busy * 2) {
            tracing::debug!("a client that is too slow is cut off");
            return;
        }
        if over(activity.idle(), limits.idle * 2) {
            return;
        }
        if !finishing && (asked || over(activity.idle(), limits.idle) || over(activity.busy(), limits.busy)) {
            finishing = true;
            finish(connection.as_mut());
        }
    }
}

/// `None` if the client speaks plain HTTP; it gets an error response.
async fn handshake(mut stream: TcpStream, configuration: &Configuration) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    // A TLS record begins with 22, a method with a letter.
    if first.first().is_some_and(u8::is_ascii_uppercase) {
        let answer = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    let local = stream.local_addr()?.ip();
    let started = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
    let mut tls = configuration.tls.clone();
    if started.client_hello().server_name().is_none()
        && let Some(key) = configuration.certificates.for_address(local)
    {
        let mut only = ServerConfig::clone(&tls);
        only.cert_resolver = Arc::new(Only(key.clone()));
        tls = Arc::new(only);
    }
    Ok(Some(started.into_stream(tls).await?))
}

/// The decrypted stream; records its reads and writes in the [`Activity`].
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Watched<S> {
    fn note<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Pending => self.activity.blocked(),
            Poll::Ready(_) => self.activity.sent(),
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.note(polled)
    }
}

/// A body whose request is in progress until the body is dropped.
struct Counted<B> {
    body: B,
    _in_flight: InFlight,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
