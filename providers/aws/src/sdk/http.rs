//! The HTTP client of all SDK clients: the kit's connections, with proxies and trusted certificates from the environment.
//!
//! Go programs obey `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `AWS_CA_BUNDLE`, and people rely on it. The SDK's own
//! client does not notice that an HTTP/2 connection is dead, and every request would use it again.

use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use ccm_kit::http::{Environment, Health, Tls, connections};
use ccm_provider::ProviderError;

/// The maximum time to connect.
const CONNECT: Duration = Duration::from_secs(3);

/// A client that obeys the environment.
pub(super) fn client(environment: Environment<'_>) -> Result<SharedHttpClient, ProviderError> {
    with(environment, Health { connect: CONNECT, ..Health::default() })
}

fn with(environment: Environment<'_>, health: Health) -> Result<SharedHttpClient, ProviderError> {
    // `AWS_CA_BUNDLE` replaces the certificates that the host trusts, as in all SDKs.
    let bundle = environment("AWS_CA_BUNDLE");
    let tls = Tls { authorities: bundle.as_deref(), ..Tls::default() };
    let connections = connections(environment, tls, health).map_err(|problem| {
        ProviderError::unknown(match problem.starts_with('"') {
            true => format!("environment variable AWS_CA_BUNDLE = {problem}"),
            false => problem,
        })
    })?;
    Ok(SharedHttpClient::new(Connections { connections, read_timeout: None }))
}

#[derive(Debug, Clone)]
struct Connections {
    connections: reqwest::Client,
    /// The maximum time to the head of an answer, connecting included. The metadata client of the SDK has one.
    read_timeout: Option<Duration>,
}

impl HttpClient for Connections {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Self { read_timeout: settings.read_timeout(), ..self.clone() })
    }
}

impl HttpConnector for Connections {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { connections, read_timeout } = self.clone();
        HttpConnectorFuture::new(async move {
            let answer = connections.execute(converted(request)?);
            let answer = match read_timeout {
                Some(limit) => {
                    tokio::time::timeout(limit, answer).await.map_err(|late| ConnectorError::timeout(late.into()))?
                }
                None => answer.await,
            };
            let answer = http::Response::from(answer.map_err(failed)?).map(SdkBody::from_body_1_x);
            HttpResponse::try_from(answer).map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

fn converted(request: HttpRequest) -> Result<reqwest::Request, ConnectorError> {
    let user = |error| ConnectorError::user(error);
    let request = request.try_into_http1x().map_err(|error| user(error.into()))?;
    let (head, body) = request.into_parts();
    let body = body.bytes().ok_or_else(|| user("the body is a stream".into()))?.to_vec();
    reqwest::Request::try_from(http::Request::from_parts(head, body)).map_err(|error| user(error.into()))
}

/// Of an error only its causes are shown, and not the URL.
fn failed(error: reqwest::Error) -> ConnectorError {
    match (error.is_timeout(), error.is_connect()) {
        (true, false) => ConnectorError::timeout(error.without_url().into()),
        (_, true) => ConnectorError::io(error.without_url().into()).never_connected(),
        (false, false) => ConnectorError::io(error.without_url().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ccm_cloudsim::core::silence::Silence;

    use super::*;
    use crate::tests::world;

    fn refusal(variables: &[(&str, &str)]) -> String {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        client(&get).expect_err("refused").to_string()
    }

    #[test]
    fn a_bad_proxy_is_refused_without_its_password() {
        for (name, value) in [("HTTPS_PROXY", "http://user:secret@ho st:1"), ("http_proxy", "ftp://user:secret@host")] {
            let text = refusal(&[(name, value)]);
            assert!(
                text.starts_with(&format!("environment variable {name}: not the URL of a proxy; expected")),
                "{text}"
            );
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_bad_bundle_is_refused_by_name() {
        let text = refusal(&[("AWS_CA_BUNDLE", "/nonexistent/bundle")]);
        let expected = "environment variable AWS_CA_BUNDLE = \"/nonexistent/bundle\": cannot be read: No such file";
        assert!(text.starts_with(expected), "{text}");
    }

    #[tokio::test]
    async fn a_connection_that_fell_silent_is_replaced() {
        let server = Silence::start(
            "h2",
            "<DescribeLoadBalancersResponse xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/\">\
             <DescribeLoadBalancersResult><LoadBalancers/></DescribeLoadBalancersResult></DescribeLoadBalancersResponse>",
        );
        let server = server.await.unwrap();
        let bundle = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&bundle, server.certificate()).unwrap();
        let get = |name: &str| (name == "AWS_CA_BUNDLE").then(|| bundle.path().display().to_string());
        let short = Duration::from_millis(300);
        let health = Health { read_idle: short, ping_timeout: short, ..Health::default() };
        let clients = world::clients(&server.url(), |config| config.http_client(with(&get, health).unwrap()));
        let ask = async || clients.elbv2.describe_load_balancers().send().await;
        ask().await.unwrap();
        server.fall();
        let began = Instant::now();
        ask().await.unwrap_err();
        ask().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(server.connections(), 2);
    }
}
