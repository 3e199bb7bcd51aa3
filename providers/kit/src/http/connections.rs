//! The connections: a pool of reqwest with the settings of a cloud.

use std::time::Duration;

use reqwest::{Proxy, redirect};

use super::environment::Environment;
use super::proxy::Proxies;
use super::tls::Tls;

/// Idle connections are closed here before the server closes them: a request on a connection that was just closed
/// fails.
const IDLE: Duration = Duration::from_secs(30);

/// The times after which a connection counts as dead. The server or a proxy may have forgotten it without closing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The maximum time to connect, proxy and TLS included.
    pub connect: Duration,
    /// A connection on which nothing arrives for this long gets a ping, also while it is idle.
    pub read_idle: Duration,
    /// The connection is closed if the ping is not answered within this time.
    pub ping_timeout: Duration,
}

impl Default for Health {
    /// A connection that dies silently is noticed within 45 seconds.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read_idle: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
        }
    }
}

/// A pool of connections with proxies from the environment. HTTP/2 if the server offers it; answers may be compressed.
/// Redirects are not followed, because credentials would be sent along. The pool sends a request again only if the
/// server has certainly not processed it.
///
/// # Errors
///
/// A proxy or a certificate is invalid; the text names the setting and never quotes a password.
pub fn connections(environment: Environment<'_>, tls: Tls<'_>, health: Health) -> Result<reqwest::Client, String> {
    let proxies = Proxies::from(environment)?;
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.client_config()?)
        .proxy(Proxy::custom(move |target| proxies.of(target)))
        .redirect(redirect::Policy::none())
        .connect_timeout(health.connect)
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(health.read_idle)
        .http2_keep_alive_timeout(health.ping_timeout)
        .http2_keep_alive_while_idle(true)
        // HTTP/1.1 has no pings: the kernel finds a dead peer within the same time.
        .tcp_keepalive(health.read_idle)
        .tcp_keepalive_interval(health.ping_timeout / 3)
        .tcp_keepalive_retries(3);
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(health.read_idle);
    builder.build().map_err(|error| format!("connections: {error}"))
}
