//! Relays between the program and the API server: they count connections, stop forwarding, or add a path prefix.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Forwards bytes to one address. Connections are numbered in order of arrival.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    made: AtomicUsize,
    open: AtomicUsize,
    /// Connections with a lower number no longer forward anything, and stay open.
    silent: AtomicUsize,
}

impl Relay {
    /// A relay to `https://<host>:<port>`.
    pub(crate) async fn to(url: &str) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), url)
    }

    pub(crate) fn listening(listener: TcpListener, url: &str) -> Self {
        let (address, target) = (listener.local_addr().unwrap(), authority(url));
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target.clone(), Arc::clone(&shared)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn made(&self) -> usize {
        self.state.made.load(Ordering::SeqCst)
    }

    /// The number of connections that the client has not closed.
    pub(crate) fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Stops forwarding on the current connections in both directions, without closing them. New ones work.
    pub(crate) fn fall_silent(&self) {
        self.state.silent.store(self.made(), Ordering::SeqCst);
    }
}

/// `<host>:<port>` of a URL.
pub(crate) fn authority(url: &str) -> String {
    url.split("://").nth(1).unwrap().to_owned()
}

async fn carry(client: TcpStream, target: String, state: Arc<State>) {
    let number = state.made.fetch_add(1, Ordering::SeqCst);
    state.open.fetch_add(1, Ordering::SeqCst);
    if let Ok(server) = TcpStream::connect(target).await {
        let ((client_read, client_write), (server_read, server_write)) = (client.into_split(), server.into_split());
        let back = async {
            copy(server_read, client_write, number, &state).await;
            // An unresponsive connection does not forward the server's close either.
            if number < state.silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = copy(client_read, server_write, number, &state) => {}
            () = back => {}
        }
    }
    state.open.fetch_sub(1, Ordering::SeqCst);
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, number: usize, state: &State) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let silent = number < state.silent.load(Ordering::SeqCst);
        if !silent && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// A server without TLS that accepts only requests with a path prefix, removes it, and forwards them over TLS, one per
/// connection: like the proxies of Rancher and others in front of API servers.
pub(crate) async fn prefixing(url: &str, ca_pem: &str, prefix: &'static str, token: &str) -> SocketAddr {
    use rustls_pki_types::pem::PemObject as _;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, target) = (listener.local_addr().unwrap(), authority(url));
    let headers = format!("\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls_pki_types::CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (tls, target, headers) = (tls.clone(), target.clone(), headers.clone());
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let head = head(&mut client).await?;
                let Some((method, path)) = head.split_once(' ').filter(|(_, path)| path.starts_with(prefix)) else {
                    let answer = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                    return client.write_all(answer.as_bytes()).await.ok();
                };
                let rest = path.strip_prefix(prefix)?.replacen("\r\n", &headers, 1);
                let server = TcpStream::connect(&target).await.ok()?;
                let host = target.split(':').next()?.to_owned().try_into().ok()?;
                let mut server = tls.connect(host, server).await.ok()?;
                server.write_all(format!("{method} {rest}").as_bytes()).await.ok()?;
                copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
            });
        }
    });
    address
}

/// A proxy with CONNECT that counts its requests, and connects to `target` for any name.
pub(crate) async fn proxy(target: Option<String>, used: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (target, used) = (target.clone(), Arc::clone(&used));
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let head = head(&mut client).await?;
                let asked = head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
                let mut server = TcpStream::connect(target.unwrap_or(asked)).await.ok()?;
                client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
                used.fetch_add(1, Ordering::SeqCst);
                copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
            });
        }
    });
    address
}

/// The head of a request, including the empty line.
async fn head(client: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}
