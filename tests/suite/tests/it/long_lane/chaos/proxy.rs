//! A TCP relay, and an HTTP proxy with faults, between the replicas and the API server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The faults of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Watches end in the middle of a line.
    CutWatches,
    /// Requests are dropped, delayed, or answered in part.
    Lossy,
    /// Requests are answered with HTML, 429 or 5xx.
    Refusing,
}

/// Accepts plain HTTP, one request per connection, and forwards it over TLS with the token that its path begins with:
/// without TLS the program sends none.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    fault: Arc<watch::Sender<Fault>>,
}

const ANSWERS: [&str; 6] = [
    "502 Bad Gateway\r\nContent-Type: text/html\r\n\r\n<html><h1>Bad gateway</h1></html>",
    "200 OK\r\nContent-Type: text/html\r\n\r\n<html><h1>Please log in</h1></html>",
    "404 Not Found\r\nContent-Type: text/html\r\n\r\n<html><h1>Not found</h1></html>",
    "429 Too Many Requests\r\nRetry-After: 1\r\n\r\n",
    "503 Service Unavailable\r\n\r\n",
    "500 Internal Server Error\r\n\r\n{\"kind\":\"Status\",\"code\":500,\"reason\":\"InternalError\",\"message\":\"etcdserver: leader changed\"}",
];

impl Proxy {
    pub(super) async fn start(upstream: Upstream, ca_pem: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let tls = tokio_rustls::TlsConnector::from(config);
        let proxy = Self { address: listener.local_addr().unwrap(), fault: Arc::new(watch::Sender::new(Fault::None)) };
        let (fault, rng) = (Arc::clone(&proxy.fault), Mutex::new(StdRng::seed_from_u64(seed)));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let luck = StdRng::seed_from_u64(rng.lock().random());
                let (tls, upstream, fault) = (tls.clone(), upstream.clone(), *fault.borrow());
                tokio::spawn(async move { request(client, tls, &upstream.address(), fault, luck).await });
            }
        });
        proxy
    }

    pub(super) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

/// `None` if either side has closed the connection.
async fn request(
    mut client: TcpStream,
    tls: tokio_rustls::TlsConnector,
    upstream: &str,
    fault: Fault,
    mut luck: StdRng,
) -> Option<()> {
    let head = head(&mut client).await?;
    let (method, path) = head.split_once(" /")?;
    let (token, path) = path.split_once('/')?;
    let headers = format!("\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
    let is_watch = head.lines().next()?.contains("watch=");
    match fault {
        Fault::Lossy if luck.random_bool(0.2) => return None,
        Fault::Lossy if luck.random_bool(0.3) => {
            tokio::time::sleep(Duration::from_millis(luck.random_range(50..2000))).await;
        }
        Fault::Refusing if luck.random_bool(0.7) => {
            let answer = ANSWERS[luck.random_range(0..ANSWERS.len())];
            client
                .write_all(format!("HTTP/1.1 {}", answer.replacen("\r\n", "\r\nConnection: close\r\n", 1)).as_bytes())
                .await
                .ok()?;
            return client.shutdown().await.ok();
        }
        _ => {}
    }
    let server = TcpStream::connect(upstream).await.ok()?;
    let mut server = tls.connect("127.0.0.1".try_into().unwrap(), server).await.ok()?;
    server.write_all(format!("{method} /{path}").replacen("\r\n", &headers, 1).as_bytes()).await.ok()?;
    let cut = (fault == Fault::CutWatches && is_watch) || (fault == Fault::Lossy && luck.random_bool(0.3));
    if !cut {
        return copy_bidirectional(&mut client, &mut server).await.ok().map(drop);
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let up = async {
        tokio::io::copy(&mut from_client, &mut to_server).await.ok();
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut left = luck.random_range(1..5000_usize);
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            let pass = length.min(left);
            to_client.write_all(&buffer[..pass]).await.ok();
            left -= pass;
            if left == 0 {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
    None
}

/// The head of a request, including the empty line.
async fn head(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// The current address of the API server.
#[derive(Clone)]
pub(super) struct Upstream(Arc<Mutex<String>>);

impl Upstream {
    pub(super) fn new(address: String) -> Self {
        Self(Arc::new(Mutex::new(address)))
    }

    pub(super) fn set(&self, address: String) {
        *self.0.lock() = address;
    }

    fn address(&self) -> String {
        self.0.lock().clone()
    }
}

/// A TCP relay, so that clients see one address and the TLS of the API server.
pub(super) async fn relay(listener: TcpListener, upstream: Upstream) {
    while let Ok((mut client, _)) = listener.accept().await {
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let mut server = TcpStream::connect(upstream.address()).await.ok()?;
            copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
        });
    }
}
