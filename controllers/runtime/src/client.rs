//! The connection to the API server: kube's transport, our errors, deadlines and metrics.

use std::time::Duration;

use bytes::Bytes;
use ccm_provider::duration;
use futures::{Stream, StreamExt};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::metrics::Metrics;

/// How to reach the API server.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// `--kubeconfig`; empty for none.
    pub kubeconfig: String,
    /// `--master`; overrides the address in the kubeconfig.
    pub master: String,
    /// `User-Agent` header.
    pub user_agent: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither flag is given and the process does not run in a pod.
    #[error(
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable (give --kubeconfig or --master, or run in a pod with a service account: {0})"
    )]
    None(String),
    /// The kubeconfig is bad.
    #[error("--kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why, with all causes.
        reason: String,
    },
    /// The address is bad.
    #[error("--master {0:?}: {1}")]
    Master(String, String),
    /// TLS or credentials are bad.
    #[error("cannot set up the connection to the API server: {0}")]
    Setup(String),
}

/// Why a request did not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// The API server said so.
    #[error("{message}")]
    Status {
        /// HTTP status code.
        code: u16,
        /// Reason word: `Conflict`, `NotFound`, …
        reason: String,
        /// Its message.
        message: String,
        /// From the `Retry-After` header or the status details.
        retry_after: Option<Duration>,
    },
    /// No answer. A write may or may not have taken effect.
    #[error("cannot reach the API server: {0}")]
    Transport(String),
    /// No answer in time. A write may or may not have taken effect.
    #[error("the API server did not answer within {}", duration::format(*.0))]
    Deadline(Duration),
    /// An answer that makes no sense.
    #[error("the answer of the API server cannot be read: {0}")]
    Decode(String),
}

impl ApiError {
    fn code(&self) -> u16 {
        match self {
            Self::Status { code, .. } => *code,
            _ => 0,
        }
    }

    /// 404
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// 409: somebody else wrote in between, or the object exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// 410: the version asked for is forgotten.
    pub fn is_gone(&self) -> bool {
        self.code() == 410
    }

    /// Whether the server refused for good: trying the same again is of no use.
    pub fn is_refused(&self) -> bool {
        matches!(self.code(), 400 | 401 | 403 | 404 | 405 | 409 | 410 | 413 | 415 | 422)
    }

    /// How long the server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A client. Cheap to clone; all clones share one pool of connections.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    user_agent: Option<header::HeaderValue>,
    host: String,
    metrics: Metrics,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("host", &self.host).finish_non_exhaustive()
    }
}

const JSON: &str = "application/json";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Default deadline of a request.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

impl Client {
    /// Reads the configuration: `--kubeconfig` and `--master`, else the pod's service account. Makes no request.
    pub async fn connect(options: &ConnectOptions, metrics: Metrics) -> Result<Self, ConnectError> {
        let mut config = config(options).await?;
        // Retries are ours: kube's policy waits for up to 1000 s and repeats writes.
        config.default_retry = false;
        config.disable_compression = true;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let inner = kube::Client::try_from(config).map_err(|e| ConnectError::Setup(chain(&e)))?;
        let user_agent = header::HeaderValue::from_str(&options.user_agent).ok().filter(|v| !v.is_empty());
        Ok(Self { inner, user_agent, host, metrics })
    }

    /// A client over any transport: tests run the API server in the process.
    pub fn over(inner: kube::Client, metrics: Metrics) -> Self {
        Self { inner, user_agent: None, host: "in-process".into(), metrics }
    }

    /// The same connection under another `User-Agent`.
    #[must_use]
    pub fn with_user_agent(&self, user_agent: &str) -> Self {
        Self { user_agent: header::HeaderValue::from_str(user_agent).ok(), ..self.clone() }
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&self, call: &Call<'_>) -> Result<Bytes, ApiError> {
        let answer = tokio::time::timeout(call.deadline, async {
            let response = self.start(call).await?;
            let body = response.into_body().collect().await.map_err(|e| ApiError::Transport(chain(&e)))?;
            Ok(body.to_bytes())
        });
        answer.await.unwrap_or(Err(ApiError::Deadline(call.deadline)))
    }

    /// Sends a request and decodes the answer.
    pub async fn read<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, ApiError> {
        let bytes = self.send(call).await?;
        serde_json::from_slice(&bytes).map_err(|e| ApiError::Decode(e.to_string()))
    }

    /// Sends a request and hands out the answer as it comes; the deadline covers only its beginning.
    pub async fn stream(
        &self,
        call: &Call<'_>,
    ) -> Result<impl Stream<Item = Result<Bytes, ApiError>> + Send + use<>, ApiError> {
        let started = tokio::time::timeout(call.deadline, self.start(call)).await;
        let response = started.unwrap_or(Err(ApiError::Deadline(call.deadline)))?;
        let frames = response.into_body().into_data_stream();
        Ok(frames.map(|frame| frame.map_err(|e| ApiError::Transport(chain(&e)))))
    }

    async fn start(&self, call: &Call<'_>) -> Result<http::Response<Body>, ApiError> {
        let mut builder =
            Request::builder().method(call.method.clone()).uri(&*call.path).header(header::ACCEPT, call.accept);
        if let Some(kind) = call.content_type {
            builder = builder.header(header::CONTENT_TYPE, kind);
        }
        if let Some(agent) = &self.user_agent {
            builder = builder.header(header::USER_AGENT, agent);
        }
        let body = call.body.clone().unwrap_or_default();
        let request = builder.body(Body::from(body.to_vec())).map_err(|e| ApiError::Transport(e.to_string()))?;
        let began = std::time::Instant::now();
        let answer = self.inner.send(request).await;
        let code = answer.as_ref().map_or("<error>".to_owned(), |r| r.status().as_u16().to_string());
        self.metrics.rest_request(call.verb(), &code, &self.host, began.elapsed());
        let response = answer.map_err(|e| ApiError::Transport(chain(&e)))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(status_error(status, &body, retry_after.map(Duration::from_secs)))
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: std::borrow::Cow<'a, str>,
    /// `Content-Type` of the body.
    pub content_type: Option<&'static str>,
    /// `Accept`: what the answer shall be.
    pub accept: &'static str,
    /// Body.
    pub body: Option<Bytes>,
    /// How long the answer may take.
    pub deadline: Duration,
}

impl<'a> Call<'a> {
    /// A GET.
    pub fn get(path: impl Into<std::borrow::Cow<'a, str>>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            content_type: None,
            accept: JSON,
            body: None,
            deadline: REQUEST_DEADLINE,
        }
    }

    /// A request with a JSON body.
    pub fn json(method: Method, path: impl Into<std::borrow::Cow<'a, str>>, body: &serde_json::Value) -> Self {
        let body = Some(Bytes::from(body.to_string()));
        Self { method, content_type: Some("application/json"), body, ..Self::get(path) }
    }

    /// A strategic-merge patch.
    pub fn strategic(path: impl Into<std::borrow::Cow<'a, str>>, body: &serde_json::Value) -> Self {
        let content_type = Some("application/strategic-merge-patch+json");
        Self { content_type, ..Self::json(Method::PATCH, path, body) }
    }

    /// The same, but only the metadata of the object comes back: a node is some 20 KB, and a writer knows what it wrote.
    #[must_use]
    pub fn brief(self) -> Self {
        Self { accept: METADATA_ONLY, ..self }
    }

    /// The same with another deadline.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    fn verb(&self) -> &str {
        self.method.as_str()
    }
}

async fn config(options: &ConnectOptions) -> Result<kube::Config, ConnectError> {
    if options.kubeconfig.is_empty() && options.master.is_empty() {
        return kube::Config::incluster().map_err(|e| ConnectError::None(chain(&e)));
    }
    let master: Option<http::Uri> = match &*options.master {
        "" => None,
        master => {
            let url = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
            Some(url.parse().map_err(|e| ConnectError::Master(master.to_owned(), format!("not an address: {e}")))?)
        }
    };
    let mut config = match (&*options.kubeconfig, &master) {
        ("", Some(master)) => kube::Config::new(master.clone()),
        (path, _) => {
            let fail = |reason| ConnectError::Kubeconfig { path: path.to_owned(), reason };
            let file = kube::config::Kubeconfig::read_from(path).map_err(|e| fail(chain(&e)))?;
            let defaults = kube::config::KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(file, &defaults).await.map_err(|e| fail(chain(&e)))?
        }
    };
    if let Some(master) = master {
        config.cluster_url = master;
    }
    Ok(config)
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// Makes an error of a Kubernetes `Status`, or of whatever else came with the status code.
pub(crate) fn status_error(http: StatusCode, body: &[u8], retry_after: Option<Duration>) -> ApiError {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if !status.message.is_empty() || !status.reason.is_empty() => ApiError::Status {
            code: if status.code == 0 { http.as_u16() } else { status.code },
            reason: status.reason,
            message: status.message,
            retry_after: retry_after
                .or_else(|| Some(Duration::from_secs(status.details?.retry_after_seconds.filter(|s| *s > 0)?))),
        },
        _ => {
            let text: String = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
            let text: String = text.chars().take(200).collect();
            ApiError::Status {
                code: http.as_u16(),
                reason: String::new(),
                message: format!(
                    "the API server, or a proxy before it, answered {http} with something that is no Kubernetes status: {text:?}"
                ),
                retry_after,
            }
        }
    }
}

/// An error and all its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_html_error_page_becomes_a_readable_error() {
        let error = status_error(StatusCode::BAD_GATEWAY, b"<html>\n <h1>Bad\n gateway</h1></html>", None);
        assert_eq!(
            error.to_string(),
            "the API server, or a proxy before it, answered 502 Bad Gateway with something that is no Kubernetes \
             status: \"<html> <h1>Bad gateway</h1></html>\""
        );
        assert!(!error.is_refused());
    }

    #[test]
    fn a_status_keeps_message_reason_and_delay() {
        let body = br#"{"kind":"Status","reason":"TooManyRequests","message":"slow down","code":429,
            "details":{"retryAfterSeconds":7}}"#;
        let error = status_error(StatusCode::TOO_MANY_REQUESTS, body, None);
        assert_eq!(error.to_string(), "slow down");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        let header = status_error(StatusCode::TOO_MANY_REQUESTS, body, Some(Duration::from_secs(1)));
        assert_eq!(header.retry_after(), Some(Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn a_brief_write_asks_for_the_metadata_alone() {
        let service = tower::service_fn(async |request: Request<Body>| {
            let accept = request.headers()[header::ACCEPT].to_str().unwrap().to_owned();
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(accept.into_bytes())))
        });
        let client = Client::over(kube::Client::new(service, "default"), Metrics::new());
        let call = Call::strategic("/x", &serde_json::json!({}));
        assert_eq!(client.send(&call).await.unwrap(), JSON);
        assert_eq!(client.send(&call.brief()).await.unwrap(), METADATA_ONLY);
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let options = ConnectOptions { kubeconfig: "/nonexistent/config".into(), ..ConnectOptions::default() };
        let error = Client::connect(&options, Metrics::new()).await.unwrap_err().to_string();
        assert!(error.starts_with("--kubeconfig /nonexistent/config: "), "{error}");
    }
}
