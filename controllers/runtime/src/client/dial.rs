//! Dials a host with several addresses, and keeps one HTTP/2 connection for all requests.
//!
//! When an address does not connect soon, the next one is dialed in parallel, so a dead address costs [`HEAD_START`]
//! and not the deadline of the request. Each request that finds no connection dials one, so none waits for the hanging
//! dial of another request.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use parking_lot::Mutex;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

use super::error::Unresolved;

/// The time to connect to one address, TLS included, before the next address is tried in parallel: Go's delay between
/// address families (`net.Dialer.FallbackDelay`).
const HEAD_START: Duration = Duration::from_millis(300);
/// The maximum time for the pool to hand a new connection to all waiting requests. It usually takes almost no time.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// A connector behind one type, so that the HTTP code is compiled once.
pub(super) type Dial = BoxCloneSyncService<Uri, Io, BoxError>;

/// Finds the addresses of a host and port.
pub(super) type Resolve = fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

trait Stream: Read + Write + Connection + Send + Unpin {}
impl<T: Read + Write + Connection + Send + Unpin> Stream for T {}

/// A connection of any kind.
pub(super) struct Io {
    stream: Box<dyn Stream>,
    /// Ends with the connection.
    _life: Option<Arc<()>>,
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

pub(super) fn boxed<C>(connector: C) -> Dial
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    let connector = connector.map_response(|stream| Io { stream: Box::new(stream), _life: None });
    BoxCloneSyncService::new(connector.map_err(Into::into))
}

/// The resolver of this machine.
pub(super) fn system(host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
}

/// Dials each address of the target's host with `dial`, which gets targets with addresses for hosts.
pub(super) fn each_address(dial: Dial, resolve: Resolve) -> Dial {
    BoxCloneSyncService::new(tower::service_fn(move |target: Uri| {
        let dial = dial.clone();
        async move {
            let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("https") { 443 } else { 80 });
            let host = target.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let addresses = resolve(host, port).await.map_err(Unresolved)?;
            first_of(addresses.into_iter().map(|address| {
                let (dial, target) = (dial.clone(), with_address(&target, address));
                async move { dial.oneshot(target?).await }
            }))
            .await
        }
    }))
}

fn with_address(target: &Uri, address: SocketAddr) -> http::Result<Uri> {
    let scheme = target.scheme_str().unwrap_or("http");
    Uri::builder().scheme(scheme).authority(address.to_string()).path_and_query("/").build()
}

/// Drops an HTTP/2 connection if another one was made in the meantime: the pool hands that one to all waiting requests.
/// Without this, hyper-util would use both connections if they become ready at the same time, and a watch on each would
/// keep both open.
pub(super) fn one_for_all(dial: Dial) -> Dial {
    // The number of connections made, and a handle that lives as long as the newest one.
    let shared = Arc::new(Mutex::new((0_u64, Weak::<()>::new())));
    BoxCloneSyncService::new(tower::service_fn(move |target: Uri| {
        let (dial, shared) = (dial.clone(), Arc::clone(&shared));
        async move {
            let began = shared.lock().0;
            let io = dial.oneshot(target).await?;
            if !io.connected().is_negotiated_h2() {
                return Ok(io);
            }
            {
                let mut shared = shared.lock();
                if shared.0 == began || shared.1.strong_count() == 0 {
                    let life = Arc::new(());
                    *shared = (shared.0 + 1, Arc::downgrade(&life));
                    return Ok(Io { _life: Some(life), ..io });
                }
            }
            drop(io);
            tokio::time::sleep(HANDED_OVER).await;
            Err(io::Error::other("another connection was made in the meantime").into())
        }
    }))
}

/// The first success, or the first failure if there is none. The next attempt begins when one has failed, or has not
/// ended within its head start.
async fn first_of<T>(
    mut attempts: impl Iterator<Item = impl Future<Output = Result<T, BoxError>>>,
) -> Result<T, BoxError> {
    let (mut running, mut failure) = (FuturesUnordered::new(), None);
    loop {
        let patience = match attempts.next() {
            Some(attempt) => {
                running.push(attempt);
                HEAD_START
            }
            None => Duration::MAX,
        };
        match tokio::time::timeout(patience, running.next()).await {
            Ok(Some(Ok(connected))) => return Ok(connected),
            Ok(Some(Err(error))) => drop(failure.get_or_insert(error)),
            Ok(None) => return Err(failure.unwrap_or_else(|| Unresolved(io::ErrorKind::NotFound.into()).into())),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpStream;
    use tokio::time::Instant;

    use super::*;

    /// The result of one attempt.
    #[derive(Clone, Copy)]
    enum Address {
        /// It never answers.
        Dead,
        Refuses,
        ConnectsAfter(u64),
    }
    use Address::{ConnectsAfter, Dead, Refuses};

    /// The address that gets the connection, or the failure, and the time in milliseconds.
    async fn first(addresses: &[Address]) -> (Result<usize, String>, u128) {
        let began = Instant::now();
        let attempts = addresses.iter().enumerate().map(async |(number, address)| match address {
            Dead => std::future::pending().await,
            Refuses => Err(io::Error::other(format!("refused by {number}")).into()),
            ConnectsAfter(time) => {
                tokio::time::sleep(Duration::from_millis(*time)).await;
                Ok(number)
            }
        });
        let connected = first_of(attempts).await.map_err(|error| error.to_string());
        (connected, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_address_costs_its_head_start() {
        assert_eq!(first(&[ConnectsAfter(200), Dead]).await, (Ok(0), 200));
        assert_eq!(first(&[Dead, ConnectsAfter(10)]).await, (Ok(1), 310));
        assert_eq!(first(&[Dead, Dead, Refuses, ConnectsAfter(10)]).await, (Ok(3), 610));
        assert_eq!(first(&[ConnectsAfter(400), ConnectsAfter(200)]).await, (Ok(0), 400));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_costs_nothing_and_the_first_failure_is_reported() {
        assert_eq!(first(&[Refuses, Refuses, ConnectsAfter(10)]).await, (Ok(2), 10));
        assert_eq!(first(&[Refuses, Refuses]).await, (Err("refused by 0".to_owned()), 0));
        assert_eq!(first(&[]).await.0.unwrap_err(), "dns error");
    }

    /// The target for each address, as the error of dialing it.
    async fn dialed(target: &'static str, resolve: Resolve) -> String {
        let dial = tower::service_fn(|target: Uri| async move {
            Err::<TokioIo<TcpStream>, _>(io::Error::other(target.to_string()))
        });
        each_address(boxed(dial), resolve).oneshot(Uri::from_static(target)).await.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn a_host_is_replaced_by_its_address_and_a_port_follows_from_the_scheme() {
        let resolve: Resolve = |host, port| {
            assert_eq!(host, "api.example");
            Box::pin(async move { Ok(vec![([192, 0, 2, 1], port).into()]) })
        };
        assert_eq!(dialed("https://api.example", resolve).await, "https://192.0.2.1:443/");
        assert_eq!(dialed("http://api.example/", resolve).await, "http://192.0.2.1:80/");
        assert_eq!(dialed("https://api.example:6443", resolve).await, "https://192.0.2.1:6443/");
        assert_eq!(dialed("https://[2001:db8::1]:6443", system).await, "https://[2001:db8::1]:6443/");
    }
}
