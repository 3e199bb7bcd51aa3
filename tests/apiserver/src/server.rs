//! The listener on 127.0.0.1.

use crate::fair::Receiver;
use crate::faults::{Control, Faults};
use crate::http::Handler;
use crate::options::Options;
use crate::store::Store;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A running API server. Stops when dropped.
#[derive(Debug)]
pub struct ApiServer {
    store: Store,
    faults: Faults,
    address: SocketAddr,
    token: Option<String>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ApiServer {
    /// The same API without a listener or any task, for clients in the process that take a [`Handler`].
    #[must_use]
    pub fn in_process(options: Options) -> (Store, Faults, Handler) {
        let store = Store::new(options);
        let faults = Faults::new(store.core.clone());
        let handler = Handler::new(store.core.clone(), faults.clone());
        (store, faults, handler)
    }

    /// Starts a server; it listens when this returns.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start(options: Options) -> io::Result<ApiServer> {
        ApiServer::serve(Store::new(options)).await
    }

    /// Serves an existing store: a restart keeps the objects.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn serve(store: Store) -> io::Result<ApiServer> {
        let port = store.core.options.port;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let faults = Faults::new(store.core.clone());
        let handler = Handler::new(store.core.clone(), faults.clone());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(listener, address, handler, faults.control(), stopped));
        let token = store.core.options.token.clone();
        Ok(ApiServer { store, faults, address, token, stop, task })
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for this server.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let (url, token) = (self.url(), self.token.as_deref().unwrap_or("any"));
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: test\n  cluster:\n    server: {url}\nusers:\n- name: test\n  user:\n    \
             token: {token}\ncontexts:\n- name: test\n  context:\n    cluster: test\n    user: test\ncurrent-context: test\n"
        )
    }

    /// The objects.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The fault switches.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The request handler, for clients that need no socket.
    #[must_use]
    pub fn handler(&self) -> Handler {
        Handler::new(self.store.core.clone(), self.faults.clone())
    }

    /// Closes the listener and every connection.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // An error would mean that the task is gone already.
        let _joined = (&mut self.task).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Accepts until told to stop.
async fn run(
    listener: TcpListener,
    address: SocketAddr,
    handler: Handler,
    mut control: Receiver<Control>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut listener = Some(listener);
    loop {
        let Some(open) = listener.take() else { return };
        let ended = accept(open, &handler, &mut control, &mut stopped).await;
        if ended == Ended::Stopped {
            return;
        }
        listener = closed(address, &mut control, &mut stopped).await;
    }
}

#[derive(PartialEq, Eq)]
enum Ended {
    Stopped,
    Gone,
}

/// Serves connections until the server stops or goes away; both close every connection.
async fn accept(
    listener: TcpListener,
    handler: &Handler,
    control: &mut Receiver<Control>,
    stopped: &mut watch::Receiver<bool>,
) -> Ended {
    // Dropping the set aborts the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, handler.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
            changed = stopped.wait_for(|stopped| *stopped) => {
                drop(changed);
                return Ended::Stopped;
            }
            changed = control.wait_for(|control| control.gone) => {
                let ended = if changed.is_ok() { Ended::Gone } else { Ended::Stopped };
                drop(changed);
                return ended;
            }
        }
    }
}

/// Holds the port without listening, so that clients are refused and nobody else takes it.
async fn closed(
    address: SocketAddr,
    control: &mut Receiver<Control>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<TcpListener> {
    let mut holder = bind(address).ok();
    loop {
        tokio::select! {
            changed = stopped.wait_for(|stopped| *stopped) => {
                drop(changed);
                return None;
            }
            changed = control.wait_for(|control| !control.gone) => {
                changed.ok()?;
            }
        }
        if let Some(listener) = holder.take().or_else(|| bind(address).ok()).and_then(|socket| socket.listen(1024).ok())
        {
            return Some(listener);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn serve(stream: TcpStream, handler: Handler) {
    // Small events must not wait for an acknowledgement.
    let _unsupported = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { handler.call(request).await }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    // A broken connection is the client's business, or a fault's.
    let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
}
