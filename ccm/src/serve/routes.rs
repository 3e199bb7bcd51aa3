//! The endpoints of the secure port, and their authorization.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_runtime::Metrics;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use tokio::time::Instant;

use super::answer::{self, Answer};
use super::authn::Authenticator;
use super::authz::{Authorizer, Refusal};
use super::health::{Health, Probe};
use super::{AccessMetrics, uri};
use crate::{logging, page};

/// Maximum size of the body of `/debug/flags/v`.
const FLAG_BODY: usize = 1024;
/// Time limit for that body.
const FLAG_PATIENCE: Duration = Duration::from_secs(10);
const METRICS_TEXT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
const STATE: &str = "/debug/state";
const PAGE: &str = "/debug/";
/// The page with the only flag that can be set, with upstream's text.
const FLAGS_PAGE: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";
const NO_PPROF: &str = "this program has no Go runtime and therefore no pprof profiles: see /metrics for its memory and CPU, and /debug/state for what it is doing";

/// The data of the endpoints.
#[derive(Clone)]
pub struct State {
    /// The metrics of `/metrics`.
    pub metrics: Metrics,
    /// The checks of `/healthz`, `/livez`, `/readyz` and `/metrics/slis`.
    pub health: Health,
    /// The content of `/configz`: the configuration, under its group.
    pub configz: Value,
    /// The content of `/debug/state`; must not contain secrets.
    pub debug: Arc<dyn Fn() -> Value + Send + Sync>,
    /// The content of `/debug/`, a page for people; must not contain secrets.
    pub page: Arc<dyn Fn() -> String + Send + Sync>,
    /// `--profiling`: serve `/debug/pprof` and `/debug/flags`.
    pub profiling: bool,
}

opaque_debug!(State, this, "health" = &this.health);

pub(super) struct Routes {
    pub(super) state: State,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) started: SystemTime,
}

impl Routes {
    /// Answers a request from a connection with these client certificates; also returns whether the client is
    /// authenticated.
    pub(super) async fn serve<B>(&self, request: Request<B>, certificates: &[CertificateDer<'static>]) -> (Answer, bool)
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let method = request.method().clone();
        let (answer, known) = self.guarded(request, certificates).await;
        (answer::for_method(&method, answer), known)
    }

    async fn guarded<B>(&self, request: Request<B>, certificates: &[CertificateDer<'static>]) -> (Answer, bool)
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let Some(path) = uri::decode(request.uri().path()) else {
            return (answer::error(StatusCode::BAD_REQUEST, "400 Bad Request"), false);
        };
        let (access, began) = (AccessMetrics::of(&self.state.metrics), Instant::now());
        let user = match self.authenticator.authenticate(certificates, request.headers()).await {
            Ok(user) => {
                access.authenticated(Some(&user.name), began.elapsed());
                user
            }
            Err(error) => {
                access.authenticated(None, began.elapsed());
                tracing::error!(error, "Unable to authenticate the request");
                return (answer::unauthorized(request.headers()), false);
            }
        };
        let known = !user.is_anonymous();
        let verb = request.method().as_str().to_lowercase();
        let began = Instant::now();
        // The page shows that state, so it needs the same permission.
        let asked = if matches!(&*path, "/debug" | PAGE) { STATE } else { &path };
        let allowed = self.authorizer.authorize(&user, &verb, asked).await;
        let result = match &allowed {
            Ok(()) => "allowed",
            Err(Refusal::Forbidden(_)) => "no-opinion",
            Err(Refusal::Unknown(_)) => "error",
        };
        access.authorized(result, began.elapsed());
        let answer = match allowed {
            Ok(()) => self.route(request, &path).await,
            Err(Refusal::Forbidden(why)) => {
                tracing::debug!(user = user.name, path, why, "Forbidden");
                answer::forbidden(request.headers(), &user.name, &verb, &path, &why)
            }
            Err(Refusal::Unknown(error)) => {
                tracing::error!(error, "a request cannot be authorized");
                let text = "Internal Server Error: the API server could not be asked whether this is allowed";
                answer::error(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        };
        (answer, known)
    }

    async fn route<B>(&self, request: Request<B>, path: &str) -> Answer
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let state = &self.state;
        match path {
            // The Go program of Azure serves its metrics under both.
            "/metrics" | "/metrics/v2" => self.metrics(state.metrics.text()),
            "/metrics/slis" if request.method() == Method::DELETE => {
                state.health.reset_counts();
                answer::text(StatusCode::OK, "metrics reset\n")
            }
            "/metrics/slis" => self.metrics(state.health.counts()),
            "/configz" => answer::json(&state.configz),
            STATE => answer::json(&(state.debug)()),
            "/debug" => answer::moved("/debug/"),
            PAGE => answer::page((state.page)(), &page::policy()),
            "/debug/flags/v" if state.profiling => self.set_verbosity(request).await,
            _ if state.profiling && is_below(path, "/debug/flags") => {
                answer::answer(StatusCode::OK, answer::HTML, FLAGS_PAGE)
            }
            _ if state.profiling && is_below(path, "/debug/pprof") => {
                answer::error(StatusCode::NOT_IMPLEMENTED, NO_PPROF)
            }
            _ => self.health(path, request.uri().query().unwrap_or_default()),
        }
    }

    fn health(&self, path: &str, query: &str) -> Answer {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (probe, check) = path.split_once('/').map_or((path, None), |(probe, check)| (probe, Some(check)));
        let Some(probe) = Probe::named(probe) else { return answer::not_found() };
        if let Some(check) = check {
            return match self.state.health.single(probe, check) {
                Some(Ok(())) => answer::text(StatusCode::OK, "ok"),
                Some(Err(error)) => {
                    answer::error(StatusCode::INTERNAL_SERVER_ERROR, format_args!("internal server error: {error}"))
                }
                None => answer::not_found(),
            };
        }
        let (mut excluded, mut verbose) = (Vec::new(), false);
        for (name, value) in uri::query(query) {
            match name.as_str() {
                "exclude" => excluded.push(value),
                "verbose" => verbose = true,
                _ => {}
            }
        }
        let report = self.state.health.report(probe, &excluded, verbose);
        answer::text(if report.healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, report.text)
    }

    fn metrics(&self, text: String) -> Answer {
        let mut answer = answer::answer(StatusCode::OK, METRICS_TEXT, text);
        let seconds = self.started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        answer.headers_mut().insert("process-start-time-unix", seconds.into());
        answer
    }

    async fn set_verbosity<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        if request.method() != Method::PUT {
            return answer::text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
        }
        let body = Limited::new(request.into_body(), FLAG_BODY);
        let read = async { Box::pin(body).collect().await };
        let text = match tokio::time::timeout(FLAG_PATIENCE, read).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => {
                let text = format!("error reading request body: {error}\n");
                return answer::text(StatusCode::BAD_REQUEST, text);
            }
            Err(_) => return answer::text(StatusCode::REQUEST_TIMEOUT, "the request body took too long\n"),
        };
        let text = String::from_utf8_lossy(&text);
        match logging::parse_verbosity(&text) {
            Ok(verbosity) => {
                logging::set_verbosity(verbosity);
                answer::text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {verbosity}\n"))
            }
            Err(error) => answer::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        }
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
