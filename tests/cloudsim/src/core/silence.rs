//! A server over TLS behind a proxy that can fall silent: it forwards nothing any more and keeps its sockets open, as a
//! load balancer or NAT gateway that has forgotten a connection.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The proxy and the server; both stop when this is dropped.
#[derive(Debug)]
pub struct Silence {
    address: SocketAddr,
    certificate: String,
    connections: Arc<AtomicUsize>,
    /// Whether the connections so far are silent.
    silent: Arc<Mutex<watch::Sender<bool>>>,
    tasks: [AbortHandle; 2],
}

impl Silence {
    /// Starts a server that speaks this version of HTTP (`h2` or `http/1.1`), gives each request this answer, and never
    /// answers a request of `/never`.
    pub async fn start(version: &str, answer: &'static str) -> io::Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_no_client_auth();
        let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).map_err(io::Error::other)?;
        config.alpn_protocols = vec![version.as_bytes().to_vec()];

        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (proxy, target) = (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, server.local_addr()?);
        let (address, connections) = (proxy.local_addr()?, Arc::default());
        let silent = Arc::new(Mutex::new(watch::Sender::new(false)));
        let serving = tokio::spawn(serve(server, Arc::new(config).into(), answer));
        let forwarding = tokio::spawn(forward(proxy, target, Arc::clone(&connections), Arc::clone(&silent)));
        let tasks = [serving.abort_handle(), forwarding.abort_handle()];
        Ok(Self { address, certificate: made.cert.pem(), connections, silent, tasks })
    }

    /// The URL `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate to trust, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Forwards nothing more on the connections so far; later ones work.
    pub fn fall(&self) {
        let mut silent = self.silent.lock();
        silent.send_replace(true);
        *silent = watch::Sender::new(false);
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, answer: &'static str) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let tls = tls.clone();
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request: http::Request<Incoming>| async move {
                if request.uri().path() == "/never" {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(answer.as_bytes()))))
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // Errors come from the clients, which give connections up.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn forward(
    listener: TcpListener,
    target: SocketAddr,
    made: Arc<AtomicUsize>,
    silent: Arc<Mutex<watch::Sender<bool>>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        made.fetch_add(1, Ordering::SeqCst);
        let silent = silent.lock().subscribe();
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else { return };
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::join!(copy(from_client, to_server, silent.clone()), copy(from_server, to_client, silent));
        });
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, silent: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        // What arrives is acknowledged by the kernel, and lost. The peer learns nothing about the close.
        if *silent.borrow() {
            if read == 0 {
                std::future::pending::<()>().await;
            }
            continue;
        }
        if read == 0 || to.write_all(buffer.get(..read).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}
