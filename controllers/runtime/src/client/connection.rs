//! One pool of connections: HTTP/2 where the server offers it, so that watches and requests share a connection.
//!
//! kube's own client supports HTTP/1.1 only, with a connection for each watch and each request in flight, and does not
//! detect a dead peer while a watch is idle.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::tls::Verifier;
use http::Uri;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tower::ServiceExt as _;

use super::config::{Identity, Proxy};
use super::dial::{Dial, boxed, each_address, one_for_all, system};
use super::error::{ConnectError, explain};

/// The maximum time to connect, TLS included.
const CONNECT: Duration = Duration::from_secs(30);
/// A connection that is idle for this long gets a ping: client-go's default.
const READ_IDLE: Duration = Duration::from_secs(30);
/// The connection is closed if the ping is not answered within this time: client-go's default.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle connections are closed after this time (client-go: 90 s).
const IDLE: Duration = Duration::from_secs(90);
/// The maximum number of idle connections (client-go: 25). Only HTTP/1.1 ever has more than one.
const IDLE_CONNECTIONS: usize = 25;
/// Flow-control window of one stream. Large, so that a list of 100 MB does not wait for round trips.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Flow-control window of a connection: two unread lists leave capacity for the lease.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;

/// The address and TLS of a server, and the client certificate for it.
pub(super) struct Server<'a> {
    pub(super) config: &'a kube::Config,
    pub(super) identity: Option<&'a Identity>,
}

/// Sends requests over one pool of connections. Clones share the pool.
pub(super) type Pool = legacy::Client<Dial, Body>;
/// A pool for the address, TLS and client certificate of a configuration. Makes no connection yet.
pub(super) fn pool(server: &Server<'_>, proxy: Option<&Proxy>) -> Result<Pool, ConnectError> {
    pool_with(server, proxy, &Health::from(|name| std::env::var(name).ok()))
}

fn pool_with(server: &Server<'_>, proxy: Option<&Proxy>, health: &Health) -> Result<Pool, ConnectError> {
    let config = server.config;
    let name = config.tls_server_name.as_deref();
    if let Some(name) = name.filter(|name| ServerName::try_from(*name).is_err()) {
        let text = format!("tls-server-name {name:?} is neither a DNS name nor an IP address");
        return Err(ConnectError::Setup(text));
    }
    let name = name.or(config.cluster_url.host()).unwrap_or_default();
    let secured = |dial| match config.cluster_url.scheme_str() {
        // Without TLS there are no certificates to verify: the host needs none.
        Some("http") => Ok(dial),
        _ => tls(server, name, dial, Versions::from_env()),
    };
    let dial = one_for_all(match proxy {
        Some(proxy) => secured(through(proxy, server)?)?,
        None => each_address(secured(boxed(tcp()))?, system),
    });
    let limited = tower::service_fn(move |target: Uri| {
        let connecting = dial.clone().oneshot(target);
        async move {
            let late =
                || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {}s", CONNECT.as_secs()));
            tokio::time::timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(late().into()))
        }
    });
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(health.read_idle)
        .http2_keep_alive_timeout(health.ping_timeout)
        .http2_keep_alive_while_idle(true);
    Ok(builder.build(boxed(limited)))
}

/// The offered versions of HTTP.
#[derive(Clone, Copy)]
enum Versions {
    All,
    Http1,
}

impl Versions {
    /// `DISABLE_HTTP2`, as in client-go.
    fn from_env() -> Self {
        match std::env::var_os("DISABLE_HTTP2") {
            Some(value) if !value.is_empty() => Self::Http1,
            _ => Self::All,
        }
    }
}

/// The times after which an HTTP/2 connection counts as dead.
#[derive(Debug, PartialEq)]
struct Health {
    /// `None`: no pings.
    read_idle: Option<Duration>,
    ping_timeout: Duration,
}

impl Health {
    /// `HTTP2_READ_IDLE_TIMEOUT_SECONDS` and `HTTP2_PING_TIMEOUT_SECONDS`: `apimachinery/pkg/util/net`. A 0 in the
    /// first disables pings; a 0 in the second means the default, as in Go's transport.
    fn from(variable: impl Fn(&str) -> Option<String>) -> Self {
        let seconds = |name: &str, default: Duration| {
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return default };
            text.parse().map_or_else(
                |error| {
                    tracing::warn!("{name}={text:?} is not a number of seconds ({error}); using {}", default.as_secs());
                    default
                },
                Duration::from_secs,
            )
        };
        let read_idle = Some(seconds("HTTP2_READ_IDLE_TIMEOUT_SECONDS", READ_IDLE)).filter(|time| !time.is_zero());
        let ping_timeout = Some(seconds("HTTP2_PING_TIMEOUT_SECONDS", PING_TIMEOUT)).filter(|time| !time.is_zero());
        Self { read_idle, ping_timeout: ping_timeout.unwrap_or(PING_TIMEOUT) }
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // HTTP/1.1 has no pings: TCP keepalive and user timeout detect a dead peer within the same time.
    tcp.set_keepalive(Some(READ_IDLE));
    tcp.set_keepalive_interval(Some(PING_TIMEOUT / 3));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(READ_IDLE));
    tcp
}

fn through(proxy: &Proxy, server: &Server<'_>) -> Result<Dial, ConnectError> {
    let Proxy { address, authorization, user, .. } = proxy;
    Ok(match address.scheme_str() {
        Some("socks5" | "socks5h") => {
            let socks = SocksV5::new(address.clone(), each_address(boxed(tcp()), system));
            boxed(match user.clone() {
                Some((name, password)) => socks.with_auth(name, password),
                None => socks,
            })
        }
        scheme => {
            let mut dial = boxed(tcp());
            if scheme == Some("https") {
                dial = tls(server, address.host().unwrap_or_default(), dial, Versions::Http1)?;
            }
            let tunnel = Tunnel::new(address.clone(), each_address(dial, system));
            boxed(match authorization.clone() {
                Some(header) => tunnel.with_auth(header),
                None => tunnel,
            })
        }
    })
}

/// TLS with the server of this name, over connections to its address.
fn tls(server: &Server<'_>, name: &str, dial: Dial, versions: Versions) -> Result<Dial, ConnectError> {
    let name = name.trim_matches(['[', ']']).to_owned();
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(client_config(server)?)
        .https_or_http()
        .with_server_name_resolver(move |_: &Uri| ServerName::try_from(name.clone()));
    Ok(match versions {
        Versions::All => boxed(builder.enable_all_versions().wrap_connector(dial)),
        Versions::Http1 => boxed(builder.enable_http1().wrap_connector(dial)),
    })
}

fn client_config(&Server { config, identity }: &Server<'_>) -> Result<ClientConfig, ConnectError> {
    let setup = |error: kube::Error| ConnectError::Setup(explain(&error));
    let mut config = config.clone();
    if config.accept_invalid_certs {
        // Else kube reads the certificates of the host if no others are given, and fails if it has none.
        config.root_cert.get_or_insert_default();
    }
    let mut client = config.rustls_client_config().map_err(setup)?;
    if let (Some(authorities), false) = (&config.root_cert, config.accept_invalid_certs) {
        let trusted: Vec<CertificateDer<'static>> = authorities.iter().cloned().map(CertificateDer::from).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let verifier = Verifier::new(roots, trusted, client.crypto_provider());
        let verifier = verifier.map_err(|error| ConnectError::Setup(error.to_string()))?;
        client.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    if let Some(identity) = identity {
        let resolver = identity.resolver(client.crypto_provider()).map_err(ConnectError::Setup)?;
        client.client_auth_cert_resolver = resolver;
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use ccm_cloudsim::core::silence::Silence;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_fell_silent_is_replaced_also_if_it_was_idle() {
        let (short, long) = (Duration::from_millis(300), Duration::from_secs(20));
        let health = Health { read_idle: Some(short), ping_timeout: short };
        for is_idle in [false, true] {
            let server = Silence::start("h2", "{}").await.unwrap();
            let authority = CertificateDer::from_pem_slice(server.certificate().as_bytes()).unwrap();
            let mut config = kube::Config::new(server.url().parse().unwrap());
            config.root_cert = Some(vec![authority.to_vec()]);
            let pool = pool_with(&Server { config: &config, identity: None }, None, &health).unwrap();
            let ask = async |path: &str| {
                let request = http::Request::get(format!("{}{path}", server.url())).body(Body::empty()).unwrap();
                timeout(long, pool.request(request)).await
            };
            ask("/").await.unwrap().unwrap();
            let began = Instant::now();
            if is_idle {
                server.fall();
                sleep(short * 5).await;
            } else {
                // A watch without events, which is left alone while the server answers pings.
                let fall = async {
                    sleep(short * 5).await;
                    server.fall();
                    Instant::now()
                };
                let watch = async { (ask("/never").await, Instant::now()) };
                let ((watch, ended), fell) = tokio::join!(watch, fall);
                assert!(watch.unwrap().is_err() && ended > fell);
            }
            ask("/").await.unwrap().unwrap();
            assert!(began.elapsed() < long, "{:?}", began.elapsed());
            assert_eq!(server.connections(), 2);
        }
    }

    /// A handshake in memory with a server that has this certificate.
    fn handshake(
        client: ClientConfig,
        certificate: &CertificateDer<'static>,
        key: &KeyPair,
    ) -> Result<(), rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = server.with_no_client_auth().with_single_cert(vec![certificate.clone()], key)?;
        let mut server = ServerConnection::new(Arc::new(server))?;
        let mut client = ClientConnection::new(Arc::new(client), "127.0.0.1".try_into().unwrap())?;
        while client.is_handshaking() || server.is_handshaking() {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            client.write_tls(&mut there).unwrap();
            server.read_tls(&mut &*there).unwrap();
            server.process_new_packets()?;
            server.write_tls(&mut back).unwrap();
            client.read_tls(&mut &*back).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    /// Such certificates are made by `openssl req -x509`, or handed out without that of their issuer; Go accepts them.
    #[test]
    fn a_server_may_show_the_very_certificate_that_is_trusted() {
        let (key, other_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let params = |name: &str, is_ca| {
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = is_ca;
            params
        };
        let authority = || IsCa::Ca(BasicConstraints::Unconstrained);
        let other = Issuer::new(params("other", authority()), &other_key);
        let signed_by_itself = |name| params(name, authority()).self_signed(&key).unwrap().der().clone();
        let signed_by_another = |name| params(name, IsCa::NoCa).signed_by(&key, &other).unwrap().der().clone();
        let trusting = |certificate: &CertificateDer<'_>| {
            let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
            config.root_cert = Some(vec![certificate.to_vec()]);
            config
        };
        let client_of = |config: &kube::Config| client_config(&Server { config, identity: None }).unwrap();
        for certificate in [signed_by_itself("127.0.0.1"), signed_by_another("127.0.0.1")] {
            let config = trusting(&certificate);
            handshake(client_of(&config), &certificate, &key).unwrap();
            // kube's own configuration.
            handshake(config.rustls_client_config().unwrap(), &certificate, &key).unwrap_err();
        }
        for certificate in [signed_by_itself("127.0.0.2"), signed_by_another("127.0.0.2")] {
            handshake(client_of(&trusting(&certificate)), &certificate, &key).unwrap_err();
        }
        let client = client_of(&trusting(&signed_by_itself("127.0.0.1")));
        handshake(client, &signed_by_another("127.0.0.1"), &key).unwrap_err();
    }

    #[test]
    fn the_environment_decides_how_soon_a_dead_connection_is_found_as_with_client_go() {
        let health = |idle: &str, ping: &str| {
            let variable = |name: &str| {
                Some(if name.contains("PING") { ping } else { idle }).filter(|text| *text != "unset").map(str::to_owned)
            };
            let Health { read_idle, ping_timeout } = Health::from(variable);
            (read_idle.map(|time| time.as_secs()), ping_timeout.as_secs())
        };
        assert_eq!(health("unset", "unset"), (Some(30), 15));
        assert_eq!(health("", ""), (Some(30), 15));
        assert_eq!(health("5", "2"), (Some(5), 2));
        assert_eq!(health("0", "0"), (None, 15));
        assert_eq!(health("5s", "-1"), (Some(30), 15));
    }
}
