//! The HTTP client of all SDK clients, with proxies and trusted certificates from the environment.
//!
//! Go programs obey `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `AWS_CA_BUNDLE`, and people rely on it.

use std::time::Duration;

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use ccm_kit::http::{Environment, Route, bundle, proxy_url, route, variable};
use ccm_provider::ProviderError;

/// Idle connections are closed after this time, before the peer closes them: a request on a connection that was just
/// closed fails, and the SDK's own retries are off.
const IDLE: Duration = Duration::from_secs(30);

/// A client that obeys the environment.
pub(super) fn client(environment: Environment<'_>) -> Result<SharedHttpClient, ProviderError> {
    let tls = tls(environment)?;
    let no_proxy = variable(environment, "NO_PROXY").map(|(_, value)| value).unwrap_or_default();
    let via = |name: &str, proxy: fn(String) -> Option<ProxyConfig>| match variable(environment, name) {
        None => Ok(connections(&tls, None)),
        Some((name, value)) => match proxy(proxy_url(value)) {
            Some(proxy) => Ok(connections(&tls, Some(proxy.no_proxy(&no_proxy)))),
            // Never quotes the value: it may hold a password.
            None => Err(ProviderError::unknown(format!(
                "environment variable {name}: not the URL of a proxy; want http://host:port"
            ))),
        },
    };
    let http = via("HTTP_PROXY", |url| ProxyConfig::http(url).ok())?;
    let https = via("HTTPS_PROXY", |url| ProxyConfig::https(url).ok())?;
    Ok(SharedHttpClient::new(Routes { direct: connections(&tls, None), http, https }))
}

/// `AWS_CA_BUNDLE` replaces the certificates that the host trusts, as in all SDKs.
fn tls(environment: Environment<'_>) -> Result<TlsContext, ProviderError> {
    let trusted = match environment("AWS_CA_BUNDLE") {
        None => TrustStore::default(),
        Some(path) => {
            // Checked here: the connector would panic on its first use.
            let (_, pem) = bundle(&path).map_err(|problem| {
                ProviderError::unknown(format!("environment variable AWS_CA_BUNDLE = {path:?}: {problem}"))
            })?;
            TrustStore::empty().with_pem_certificate(pem)
        }
    };
    let context = TlsContext::builder().with_trust_store(trusted).build();
    context.map_err(|error| ProviderError::unknown(format!("TLS of the AWS clients: {error}")))
}

fn connections(tls: &TlsContext, proxy: Option<ProxyConfig>) -> SharedHttpClient {
    let tls = tls.clone();
    Builder::new().build_with_connector_fn(move |settings, _| {
        let mut builder = Connector::builder().pool_idle_timeout(IDLE);
        builder.set_proxy_config(proxy.clone());
        if let Some(settings) = settings {
            builder = builder.connector_settings(settings.clone());
        }
        builder.tls_provider(Provider::rustls(CryptoMode::AwsLc)).tls_context(tls.clone()).build()
    })
}

/// One pool of connections for each route.
#[derive(Debug)]
struct Routes<T> {
    direct: T,
    http: T,
    https: T,
}

impl HttpClient for Routes<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let of = |client: &SharedHttpClient| client.http_connector(settings, components);
        let Self { direct, http, https } = self;
        SharedHttpConnector::new(Routes { direct: of(direct), http: of(http), https: of(https) })
    }
}

impl HttpConnector for Routes<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match request.uri().parse().map_or(Route::Direct, |uri| route(&uri)) {
            Route::Direct => self.direct.call(request),
            Route::Http => self.http.call(request),
            Route::Https => self.https.call(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(variables: &[(&str, &str)]) -> String {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        client(&get).expect_err("refused").to_string()
    }

    #[test]
    fn a_bad_proxy_is_refused_without_its_password() {
        for (name, value) in [("HTTPS_PROXY", "http://user:secret@ho st:1"), ("http_proxy", "ftp://user:secret@host")] {
            let text = refusal(&[(name, value)]);
            assert!(text.starts_with(&format!("environment variable {name}: not the URL of a proxy; want")), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_bad_bundle_is_refused_by_name() {
        let text = refusal(&[("AWS_CA_BUNDLE", "/nonexistent/bundle")]);
        let expected = "environment variable AWS_CA_BUNDLE = \"/nonexistent/bundle\": cannot be read: No such file";
        assert!(text.starts_with(expected), "{text}");
    }
}
