//! The HTTP client of all SDK clients: proxies and trusted certificates as the environment says.
//!
//! Go programs obey `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `AWS_CA_BUNDLE`, and people rely on it.

use std::net::IpAddr;
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
use ccm_provider::ProviderError;
use http::Uri;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A connection that waits longer than this is closed here before the other side closes it: a request on a connection that
/// was just closed fails, and the SDK's own retries are off.
const IDLE: Duration = Duration::from_secs(30);

/// An environment variable, if it is set to something.
pub(super) type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// A client that obeys the environment.
pub(super) fn client(environment: Environment<'_>) -> Result<SharedHttpClient, ProviderError> {
    let tls = tls(environment)?;
    let no_proxy = either(environment, "NO_PROXY").map(|(_, value)| value).unwrap_or_default();
    let via = |variable: &str, kind: fn(String) -> Result<ProxyConfig, String>| match either(environment, variable) {
        None => Ok::<_, ProviderError>(connections(&tls, None)),
        Some((name, value)) => {
            // Never quotes the value: it may hold a password.
            let proxy = kind(with_scheme(value)).map_err(|problem| {
                ProviderError::unknown(format!("environment variable {name}: {problem}; want http://host:port"))
            })?;
            Ok(connections(&tls, Some(proxy.no_proxy(&no_proxy))))
        }
    };
    let http = via("HTTP_PROXY", |url| ProxyConfig::http(url).map_err(|_| "not the URL of a proxy".to_owned()))?;
    let https = via("HTTPS_PROXY", |url| ProxyConfig::https(url).map_err(|_| "not the URL of a proxy".to_owned()))?;
    Ok(SharedHttpClient::new(Routes { direct: connections(&tls, None), http, https }))
}

/// The variable in upper or lower case, and which of them it was.
fn either(environment: Environment<'_>, name: &str) -> Option<(String, String)> {
    [name.to_owned(), name.to_ascii_lowercase()].into_iter().find_map(|name| Some((name.clone(), environment(&name)?)))
}

/// Go takes `proxy:3128` for `http://proxy:3128`.
fn with_scheme(url: String) -> String {
    if url.contains("://") { url } else { format!("http://{url}") }
}

/// `AWS_CA_BUNDLE` replaces the certificates that the host trusts, as in all SDKs.
fn tls(environment: Environment<'_>) -> Result<TlsContext, ProviderError> {
    let trusted = match environment("AWS_CA_BUNDLE") {
        None => TrustStore::default(),
        Some(path) => TrustStore::empty().with_pem_certificate(bundle(&path).map_err(|problem| {
            ProviderError::unknown(format!("environment variable AWS_CA_BUNDLE = {path:?}: {problem}"))
        })?),
    };
    let context = TlsContext::builder().with_trust_store(trusted).build();
    context.map_err(|error| ProviderError::unknown(format!("TLS of the AWS clients: {error}")))
}

/// Checks here what the connector would only find out on its first use, by a panic.
fn bundle(path: &str) -> Result<Vec<u8>, String> {
    let pem = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut store = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| format!("not a file of PEM certificates: {error}"))?;
        store.add(certificate).map_err(|error| format!("certificate {} of the file: {error}", store.len() + 1))?;
    }
    if store.is_empty() { Err("no certificate in the file; want PEM blocks".to_owned()) } else { Ok(pem) }
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

/// One pool of connections for each way out.
#[derive(Debug)]
struct Routes {
    direct: SharedHttpClient,
    http: SharedHttpClient,
    https: SharedHttpClient,
}

impl HttpClient for Routes {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Connectors {
            direct: self.direct.http_connector(settings, components),
            http: self.http.http_connector(settings, components),
            https: self.https.http_connector(settings, components),
        })
    }
}

#[derive(Debug)]
struct Connectors {
    direct: SharedHttpConnector,
    http: SharedHttpConnector,
    https: SharedHttpConnector,
}

impl HttpConnector for Connectors {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match way(request.uri()) {
            Way::Direct => self.direct.call(request),
            Way::Http => self.http.call(request),
            Way::Https => self.https.call(request),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Http,
    Https,
}

/// This host, and what only this host can reach (the metadata service, the credentials of containers), is never asked
/// through a proxy. Go makes the first exception; without the second every `NO_PROXY` would have to name those addresses.
fn way(uri: &str) -> Way {
    let Ok(uri) = uri.parse::<Uri>() else { return Way::Direct };
    let host = uri.host().unwrap_or_default();
    let is_near = match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unicast_link_local() || ip.segments().starts_with(&[0xfd00, 0xec2])
        }
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    match uri.scheme_str() {
        _ if is_near => Way::Direct,
        Some("http") => Way::Http,
        _ => Way::Https,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_and_its_metadata_are_asked_directly() {
        let cases = [
            ("https://ec2.us-west-2.amazonaws.com/", Way::Https),
            ("http://ec2.example/", Way::Http),
            ("http://169.254.169.254/latest/api/token", Way::Direct),
            ("http://169.254.170.23/v1/credentials", Way::Direct),
            ("http://[fd00:ec2::254]/latest", Way::Direct),
            ("http://[fd00:ec3::1]/", Way::Http),
            ("https://127.0.0.9:8443/", Way::Direct),
            ("http://[::1]:1/", Way::Direct),
            ("http://LOCALHOST:1/", Way::Direct),
            ("https://localhost.example/", Way::Https),
        ];
        for (uri, expected) in cases {
            assert_eq!(way(uri), expected, "{uri}");
        }
    }

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
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let missing = folder.path().join("missing").display().to_string();
        let cases = [
            (missing, "cannot be read: No such file"),
            (file("empty", "no certificates here\n"), "no certificate in the file; want PEM blocks"),
            (file("cut", "-----BEGIN CERTIFICATE-----\nAAAA\n"), "not a file of PEM certificates: "),
            (
                file("odd", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
                "certificate 1 of the file: ",
            ),
        ];
        for (path, expected) in cases {
            let text = refusal(&[("AWS_CA_BUNDLE", &path)]);
            let prefix = format!("environment variable AWS_CA_BUNDLE = {path:?}: {expected}");
            assert!(text.starts_with(&prefix), "{text}");
        }
    }
}
