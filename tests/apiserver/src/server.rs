//! The listener on 127.0.0.1.

use crate::faults::Faults;
use crate::http::Handler;
use crate::options::Options;
use crate::store::Store;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A running API server; stopped when dropped.
#[derive(Debug)]
pub struct ApiServer {
    store: Store,
    faults: Faults,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl ApiServer {
    /// The same API without a listener or tasks, for clients in the process that accept a [`Handler`].
    pub fn in_process(options: Options) -> (Store, Faults, Handler) {
        let store = Store::new(options);
        let faults = Faults::new(store.core.clone());
        let handler = Handler::new(store.core.clone(), faults.clone());
        (store, faults, handler)
    }

    /// Starts a server on a free port; it is listening when this returns.
    pub async fn start(options: Options) -> io::Result<ApiServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (store, faults, handler) = ApiServer::in_process(options);
        let task = tokio::spawn(run(listener, handler));
        Ok(ApiServer { store, faults, address, task })
    }

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for this server.
    pub fn kubeconfig(&self) -> String {
        let url = self.url();
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: test\n  cluster:\n    server: {url}\nusers:\n- name: test\n  user:\n    \
             token: any\ncontexts:\n- name: test\n  context:\n    cluster: test\n    user: test\ncurrent-context: test\n"
        )
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The switches for faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The request handler, for clients that need no socket.
    pub fn handler(&self) -> Handler {
        Handler::new(self.store.core.clone(), self.faults.clone())
    }

    /// Closes the listener and all connections.
    pub async fn stop(mut self) {
        self.task.abort();
        // The error is the cancellation.
        let _cancelled = (&mut self.task).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(listener: TcpListener, handler: Handler) {
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
        }
    }
}

async fn serve(stream: TcpStream, handler: Handler) {
    // Small events must not wait for an acknowledgement.
    let _unsupported = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { handler.call(request).await }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    // A connection may break at any time.
    let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
}
