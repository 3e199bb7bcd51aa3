//! The connection to the API server: credentials, rate limit, deadlines, and retries.
//!
//! ```text
//! Client ─> rate (if requested) ─> Link (own credentials) or Account (a controller's) ─> Pool (HTTP/2) ─> API server
//!    └─ again after 429 or 5xx with Retry-After, within the deadline; after 401 once, with credentials read again
//! ```

mod account;
mod call;
mod config;
mod connection;
mod dial;
mod error;
mod link;
mod metrics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ccm_provider::Clock;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use http::{HeaderValue, Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::time::Instant;

use crate::limit::Limiter;
pub use crate::limit::Rate;
use crate::metrics::Metrics;
use account::{Account, Token};
pub use call::{Call, REQUEST_DEADLINE, Urgency};
pub use config::{Access, ConnectOptions, RemoteServer, Trust, context_names, context_namespace};
pub(crate) use error::status_error;
pub use error::{ApiError, ConnectError, chain};
use link::{Link, Session};
pub(crate) use metrics::{ClientMetrics, REQUEST};

/// The maximum number of repetitions of a request that the server requests (client-go: 10).
const REPEATS: u32 = 10;
/// A wait for the client-side rate limit is logged when it is longer than this.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// A client. Cheap to clone; all clones share one pool of connections.
#[derive(Clone)]
pub struct Client {
    link: Arc<Link>,
    /// `None`: the credentials of this process.
    account: Option<Arc<Account>>,
    user_agent: Option<HeaderValue>,
    rate: Option<Rate>,
    limiter: Option<Arc<Limiter>>,
    /// Replaces the deadlines of requests.
    timeout: Option<Duration>,
    metrics: Metrics,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("host", &self.link.peer.host).finish_non_exhaustive()
    }
}

/// The credentials that a request was sent with.
enum Identity {
    Own(Arc<Session>),
    Account(Arc<Token>),
}

/// Reads null as the default.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct List<T> {
    #[serde(deserialize_with = "or_default")]
    items: Vec<T>,
}

impl Client {
    /// Reads the configuration: `--kubeconfig` and `--master`, else the pod's service account. Makes no request.
    pub async fn connect(options: &ConnectOptions, metrics: Metrics) -> Result<Self, ConnectError> {
        let link = Link::new(options).await?;
        let client = Self { timeout: options.access.timeout, ..Self::new(link, metrics) };
        Ok(client.with_user_agent(&options.user_agent))
    }

    /// A client of another server, with the credentials of `options` for the API server. Makes no request.
    pub async fn connect_elsewhere(
        options: &ConnectOptions,
        server: &RemoteServer,
        metrics: Metrics,
    ) -> Result<Self, ConnectError> {
        let link = Link::to_server(options, server).await?;
        Ok(Self::new(link, metrics).with_user_agent(&options.user_agent))
    }

    /// A client over any transport: tests run the API server in the process.
    pub fn over(inner: kube::Client, metrics: Metrics) -> Self {
        Self::new(Link::given(inner), metrics)
    }

    /// A client without an API server, for passes over objects from another source: each request fails with `why`.
    pub fn without_server(why: &'static str, metrics: Metrics) -> Self {
        let refuse = move |_: Request<Body>| async move { Err::<http::Response<Body>, _>(std::io::Error::other(why)) };
        Self::over(kube::Client::new(tower::service_fn(refuse), "default"), metrics)
    }

    fn new(link: Link, metrics: Metrics) -> Self {
        Self {
            link: Arc::new(link),
            account: None,
            user_agent: None,
            rate: None,
            limiter: None,
            timeout: None,
            metrics,
        }
    }

    /// The same connection with another `User-Agent` and a separate rate limit.
    #[must_use]
    pub fn with_user_agent(&self, user_agent: &str) -> Self {
        let user_agent = HeaderValue::from_str(user_agent).ok().filter(|value| !value.is_empty());
        Self { user_agent, ..self.clone() }.with_rate(self.rate)
    }

    /// The same connection with a separate rate limit for requests, except for watches.
    #[must_use]
    pub fn with_rate(self, rate: Option<Rate>) -> Self {
        let limiter = rate.map(|rate| Arc::new(Limiter::new(rate, Instant::now().into_std())));
        Self { rate, limiter, ..self }
    }

    /// A client of the same API server with the identity of a service account, and without any credentials of this
    /// process, not even its client certificate. Ensures that the account exists; tokens are requested when needed,
    /// with this client.
    pub async fn for_account(&self, namespace: &str, name: &str, clock: Arc<dyn Clock>) -> Result<Self, ConnectError> {
        let account = Account::new(self.clone(), namespace, name, clock);
        let exists = account.ensure().await;
        self.with_account(account, exists)
    }

    /// The same for an account that roles for the Go programs may not know: it has its token now, and is not created
    /// if that is refused.
    pub async fn for_optional_account(
        &self,
        namespace: &str,
        name: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConnectError> {
        let account = Account::new(self.clone(), namespace, name, clock);
        let begun = account.begin().await;
        self.with_account(account, begun)
    }

    fn with_account(&self, account: Arc<Account>, ready: Result<(), ApiError>) -> Result<Self, ConnectError> {
        ready.map_err(|error| ConnectError::Account { account: account.label(), error })?;
        Ok(Self { account: Some(account), ..self.clone() }.with_rate(self.rate))
    }

    /// The metrics of this client.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Sends later requests of all clients of this server over new connections: the present one may be dead, which pings
    /// find only after a while. Requests on it go on.
    pub(crate) async fn reconnect(&self) {
        self.link.reconnect().await;
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&self, call: &Call<'_>) -> Result<Bytes, ApiError> {
        self.send_while(call, || Ok(()), &sleep).await
    }

    /// As [`Client::send`], but `may` is checked before each attempt, since a pause may precede it. The caller provides
    /// the pause, which may end the call.
    pub(crate) async fn send_while<E: From<ApiError>>(
        &self,
        call: &Call<'_>,
        may: impl Fn() -> Result<(), E>,
        pause: &Pause<'_, E>,
    ) -> Result<Bytes, E> {
        let deadline = self.timeout.unwrap_or(call.deadline);
        let answer = tokio::time::timeout(deadline, async {
            let response = self.start(call, true, &may, pause).await?;
            let body = response.into_body().collect().await.map_err(|error| ApiError::Transport(chain(&error)))?;
            let body = body.to_bytes();
            self.metrics.rest_response_size(call.verb(), &self.link.peer.host, body.len());
            // Callers decode the answers to reads, but mostly ignore those to writes: a proxy's answer must not count
            // as success.
            if call.method != Method::GET && !body.trim_ascii_start().starts_with(b"{") {
                let text =
                    "the API server, or a proxy before it, answered a write with something that is not an object";
                return Err(ApiError::Decode(text.to_owned()).into());
            }
            Ok(body)
        });
        answer.await.unwrap_or_else(|_| Err(ApiError::Deadline(deadline).into()))
    }

    /// Sends a request and decodes the answer.
    pub async fn read<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, ApiError> {
        let bytes = self.send(call).await?;
        serde_json::from_slice(&bytes).map_err(|e| ApiError::Decode(e.to_string()))
    }

    /// Reads one object of a collection; `None` if there is none with this name. Where only `list` is granted, as to the
    /// Go programs, by a list with a field selector: it proves absence just as well.
    pub async fn read_named<T: DeserializeOwned>(&self, collection: &str, name: &str) -> Result<Option<T>, ApiError> {
        let refused = match self.read(&Call::get(format!("{collection}/{name}"))).await {
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if error.is_forbidden() => error,
            answer => return answer.map(Some),
        };
        let list = Call::get(format!("{collection}?fieldSelector=metadata.name%3D{name}"));
        match self.read::<List<T>>(&list).await {
            Ok(list) => Ok(list.items.into_iter().next()),
            Err(error) if error.is_forbidden() => Err(refused),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and streams the answer; the deadline covers only its beginning. Not rate-limited, like watches
    /// in client-go.
    pub async fn stream(
        &self,
        call: &Call<'_>,
    ) -> Result<impl Stream<Item = Result<Bytes, ApiError>> + Send + use<>, ApiError> {
        let deadline = self.timeout.unwrap_or(call.deadline);
        let started = tokio::time::timeout(deadline, self.start(call, false, &|| Ok(()), &sleep)).await;
        let response = started.unwrap_or(Err(ApiError::Deadline(deadline)))?;
        let frames = response.into_body().into_data_stream();
        Ok(frames.map(|frame| frame.map_err(|e| ApiError::Transport(chain(&e)))))
    }

    /// Sends until the server requests no more retries: `client-go/rest/with_retry.go`.
    async fn start<E: From<ApiError>>(
        &self,
        call: &Call<'_>,
        paced: bool,
        may: &impl Fn() -> Result<(), E>,
        pause: &Pause<'_, E>,
    ) -> Result<http::Response<Body>, E> {
        let deadline = Instant::now() + self.timeout.unwrap_or(call.deadline);
        let (mut repeats, mut renewed) = (0, false);
        loop {
            if paced {
                self.pace(call, deadline, pause).await?;
            }
            let identity = self.identity().await?;
            // The wait for a turn and for credentials may have been long.
            may()?;
            let began = Instant::now();
            let answer = self.attempt(call, &identity, repeats > 0).await;
            let error = match answer {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if matches!(error, ApiError::Status { code: 401, .. }) && !renewed && self.refused(&identity).await {
                renewed = true;
                continue;
            }
            let Some(wait) =
                asked_to_wait(&error).filter(|wait| repeats < REPEATS && Instant::now() + *wait < deadline)
            else {
                return Err(error.into());
            };
            repeats += 1;
            tracing::debug!(%error, ?wait, repeats, took = ?began.elapsed(), path = &*call.path, "Got a Retry-After response");
            pause(wait).await?;
        }
    }

    /// Waits for the client-side rate limit, if there is one.
    async fn pace<E: From<ApiError>>(&self, call: &Call<'_>, deadline: Instant, pause: &Pause<'_, E>) -> Result<(), E> {
        let Some(limiter) = &self.limiter else {
            self.metrics.rest_rate_limited(call.verb(), &self.link.peer.host, Duration::ZERO);
            return Ok(());
        };
        let now = Instant::now();
        let wait = limiter.reserve(now.into_std(), deadline.saturating_duration_since(now));
        let wait = wait.ok_or(ApiError::Paced)?;
        if !wait.is_zero() {
            pause(wait).await?;
        }
        if wait > LONG_WAIT {
            tracing::info!(?wait, path = &*call.path, "Waited before sending request: client-side throttling");
        }
        self.metrics.rest_rate_limited(call.verb(), &self.link.peer.host, wait);
        Ok(())
    }

    async fn identity(&self) -> Result<Identity, ApiError> {
        Ok(match &self.account {
            None => Identity::Own(self.link.session().await),
            Some(account) => Identity::Account(account.token().await?),
        })
    }

    /// Whether a retry with newer credentials makes sense after a 401.
    async fn refused(&self, identity: &Identity) -> bool {
        match (identity, &self.account) {
            (Identity::Own(session), _) => self.link.refused(session).await,
            (Identity::Account(token), Some(account)) => {
                account.refused(token);
                true
            }
            (Identity::Account(_), None) => false,
        }
    }

    async fn attempt(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        repeated: bool,
    ) -> Result<http::Response<Body>, ApiError> {
        let mut builder =
            Request::builder().method(call.method.clone()).uri(&*call.path).header(header::ACCEPT, call.accept);
        if let Some(kind) = call.content_type {
            builder = builder.header(header::CONTENT_TYPE, kind);
        }
        if let Some(agent) = &self.user_agent {
            builder = builder.header(header::USER_AGENT, agent);
        }
        if let Identity::Account(token) = identity {
            builder = builder.header(header::AUTHORIZATION, &token.header);
        }
        let body = call.body.clone().unwrap_or_default();
        let request = builder.body(Body::from(body.to_vec())).map_err(|e| ApiError::Transport(e.to_string()))?;
        let link = &self.link;
        let began = std::time::Instant::now();
        let answer = match identity {
            Identity::Own(session) => session.own.send(request).await,
            Identity::Account(_) => link.session().await.bare.send(request).await,
        };
        let code = answer.as_ref().map_or("<error>".to_owned(), |r| r.status().as_u16().to_string());
        self.metrics.rest_request(call.verb(), &code, &link.peer.host, began.elapsed());
        self.metrics.rest_request_size(call.verb(), &link.peer.host, call.body.as_ref().map_or(0, Bytes::len));
        if repeated {
            self.metrics.rest_repeated(&code, call.verb(), &link.peer.host);
        }
        let response = answer.map_err(|error| error::transport(&error, &link.peer))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(status_error(status, &body, retry_after.map(Duration::from_secs)))
    }
}

/// Waits before an attempt, or returns the reason why there is none.
pub(crate) type Pause<'a, E> = dyn Fn(Duration) -> BoxFuture<'a, Result<(), E>> + Sync + 'a;

/// A pause that cannot be interrupted.
pub(crate) fn sleep<E: 'static>(wait: Duration) -> BoxFuture<'static, Result<(), E>> {
    tokio::time::sleep(wait).map(Ok).boxed()
}

/// Whether the server requests a retry: 429 or 5xx with a delay. A resource version from the future has a delay, too,
/// but after an etcd restore it may take long to be reached.
fn asked_to_wait(error: &ApiError) -> Option<Duration> {
    match error {
        error if error.is_too_large_version() => None,
        ApiError::Status { code: 429 | 500..=599, retry_after, .. } => *retry_after,
        _ => None,
    }
}
