//! The HTTPS endpoint: health and metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ccm_runtime::Metrics;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 256;
/// How long a TLS handshake, and then the headers of a request, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the endpoint shows.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// For `/metrics`.
    pub(crate) metrics: Metrics,
}

/// Binds the port; the future serves until it is dropped.
pub(crate) async fn bind(address: SocketAddr, state: State) -> Result<impl Future<Output = ()> + Send, String> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("failed to create listener on --bind-address and --secure-port {address}: {error}"))?;
    let tls = TlsAcceptor::from(Arc::new(tls(address)?));
    tracing::info!("Serving securely on {address}");
    Ok(async move {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors, most likely: give connections time to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (tls, state) = (tls.clone(), state.clone());
            tokio::spawn(async move {
                let _slot = slot;
                let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else { return };
                let answer = service_fn(move |request| {
                    let answer = respond(&request, &state);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let mut server = auto::Builder::new(TokioExecutor::new());
                server.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
                    tracing::debug!(error, "connection ended");
                }
            });
        }
    })
}

fn respond<B>(request: &Request<B>, state: &State) -> Response<Full<Bytes>> {
    let (status, kind, body) = match request.uri().path() {
        "/healthz" | "/livez" | "/readyz" => (StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned()),
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", state.metrics.text()),
        _ => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}

/// A self-signed certificate, made anew at each start.
fn tls(address: SocketAddr) -> Result<rustls::ServerConfig, String> {
    let fail = |error: &dyn std::fmt::Display| format!("cannot make a self-signed certificate: {error}");
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_string());
    }
    let made = rcgen::generate_simple_self_signed(names).map_err(|e| fail(&e))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(|e| fail(&e))?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(|e| fail(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
