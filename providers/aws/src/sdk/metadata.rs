//! The HTTP client for the metadata service: without a token where none is to be had, as in the Go program.
//!
//! Upstream: `feature/ec2/imds/token_provider.go` of aws-sdk-go-v2. The SDK for Rust gives up without a token. But unless
//! an instance allows more, the answer with the token passes one hop only, and a pod network is a second one; and some
//! metadata proxies for pods refuse the request for a token.

use std::sync::Once;

use aws_smithy_runtime_api::client::http::{
    HttpClient as _, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use ccm_kit::http::causes;

/// How a pod gets a token.
pub(super) const FROM_A_POD: &str = "in a pod, run with hostNetwork, or let the answer pass one more hop (aws ec2 \
                                     modify-instance-metadata-options --instance-id ID --http-put-response-hop-limit 2)";

/// The error of a service that gives no token says this if it requires one.
pub(super) const REQUIRED: &str = "a request without a token is refused";

const TOKEN: &str = "x-aws-ec2-metadata-token";

/// What the SDK gets instead of a token. It is not sent.
const NONE: &str = "none";

static REPORTED: Once = Once::new();

pub(super) fn client(http: SharedHttpClient) -> SharedHttpClient {
    http_client_fn(move |settings, components| {
        SharedHttpConnector::new(Metadata(http.http_connector(settings, components)))
    })
}

#[derive(Debug)]
struct Metadata(SharedHttpConnector);

impl HttpConnector for Metadata {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let http = self.0.clone();
        if let Some(service) = request.uri().strip_suffix("/latest/api/token").map(str::to_owned) {
            return HttpConnectorFuture::new(token(http, request, service));
        }
        if request.headers().get(TOKEN) == Some(NONE) {
            request.headers_mut().remove(TOKEN);
        }
        http.call(request)
    }
}

/// The answer to a request for a token.
async fn token(
    http: SharedHttpConnector,
    request: HttpRequest,
    service: String,
) -> Result<HttpResponse, ConnectorError> {
    let answer = http.call(request).await;
    let reason = match &answer {
        Ok(answer) if matches!(answer.status().as_u16(), 403..=405) => format!("HTTP {}", answer.status()),
        Ok(_) => return answer,
        Err(error) => causes(error, None),
    };
    let Ok(without) = HttpRequest::get(format!("{service}/latest/meta-data/")) else { return answer };
    match http.call(without).await.map(|answer| answer.status().as_u16()) {
        Err(_) | Ok(403) => return answer,
        Ok(401) => return Err(ConnectorError::other(format!("{reason}; {REQUIRED}").into(), None)),
        Ok(_) => {}
    }
    REPORTED.call_once(|| {
        tracing::warn!("The instance metadata service gives no token ({reason}) and is used without one; {FROM_A_POD}");
    });
    let answer = http::Response::builder()
        // The SDK does not keep it, so the next request asks for a token again.
        .header("x-aws-ec2-metadata-token-ttl-seconds", 0)
        .body(SdkBody::from(NONE))
        .map_err(|error| ConnectorError::other(error.into(), None))?;
    HttpResponse::try_from(answer).map_err(|error| ConnectorError::other(error.into(), None))
}
