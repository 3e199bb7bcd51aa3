//! Turns HTTP requests into calls of the store, with faults in between.

mod reply;
mod route;
mod stream;

pub use reply::{Body, Closed};

use crate::discovery;
use crate::error::{ApiError, details};
use crate::faults::{Effect, Faults, RequestFacts};
use crate::kind::Kind;
use crate::log::WriteEntry;
use crate::patch::Patch;
use crate::store::{Core, ListOptions, Write};
use crate::table::{self, Column};
use crate::watch::Watch;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use reply::Reply;
use route::{Query, Route};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stream::{End, Stream};

/// Answers requests. Usable without a socket, for clients that accept any service and for paused time.
#[derive(Debug, Clone)]
pub struct Handler {
    core: Arc<Core>,
    faults: Faults,
}

/// A parsed request.
struct Call {
    parts: Parts,
    query: Query,
    body: Bytes,
    /// The body, read once for the faults, the log and the write.
    parsed: OnceLock<Result<Value, ApiError>>,
}

impl Call {
    fn header(&self, name: header::HeaderName) -> &str {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON; null if there is none.
    fn value(&self) -> &Result<Value, ApiError> {
        self.parsed.get_or_init(|| self.parse())
    }

    fn parse(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let media = self.header(header::CONTENT_TYPE);
        // The content type of a plain HTTP client without settings, and of kubectl for a delete without options.
        if !(media.is_empty() || media.contains("json") || media.contains("x-www-form-urlencoded")) {
            return Err(ApiError::unsupported_media());
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            ApiError::bad_request(format!("the object provided is unrecognized (must be of type Object): {error}"))
        })
    }
}

impl Handler {
    pub(crate) fn new(core: Arc<Core>, faults: Faults) -> Handler {
        Handler { core, faults }
    }

    /// Answers one request. [`Closed`] if a fault closes the connection instead.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Body>, Closed>
    where
        B: hyper::body::Body,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
        let query = Query::parse(&parts.uri);
        let call = Call { parts, query, body, parsed: OnceLock::new() };
        let path = call.parts.uri.path();
        match Route::parse(path).and_then(|route| route.verb(&call.parts.method, &call.query).map(|verb| (route, verb)))
        {
            Ok((route, verb)) => self.with_faults(&call, &route, verb).await,
            Err(error) => {
                self.core.log.count("", path, error.code);
                Ok(reply::error(&error))
            }
        }
    }

    async fn with_faults(&self, call: &Call, route: &Route, verb: &'static str) -> Result<Reply, Closed> {
        let name = target_name(call, route, verb);
        let (resource, subresource) = match route {
            Route::Objects { kind, subresource, .. } => (kind.plural, subresource.as_str()),
            Route::Other(path) => (path.as_str(), ""),
        };
        let facts = RequestFacts { verb, resource, name: &name, subresource };
        let mut end_after = None;
        let mut after = None;
        for effect in self.faults.consult(&facts) {
            match effect {
                Effect::Latency { millis } => tokio::time::sleep(Duration::from_millis(millis)).await,
                Effect::EndWatch { after, abrupt: false } => end_after = Some((after, End::Regular)),
                Effect::EndWatch { after, abrupt: true } => end_after = Some((after, End::Abrupt)),
                Effect::FailWatch { after, code } => {
                    let status = fault_error(code, None, None, None).to_status().to_string().into();
                    end_after = Some((after, End::Error(status)));
                }
                Effect::LoseAnswer | Effect::FailAfterEffect { .. } => after = Some(effect),
                Effect::LoseRequest => {
                    self.core.log.count(verb, resource, 0);
                    return Err(Closed);
                }
                Effect::HtmlPage { code } => {
                    self.core.log.count(verb, resource, code);
                    return Ok(reply::html(code));
                }
                Effect::Status { code, reason, message, retry_after } => {
                    self.core.log.count(verb, resource, code);
                    return Ok(reply::error(&fault_error(code, reason.as_deref(), message, retry_after)));
                }
            }
        }
        let reply = self.dispatch(call, route, verb, end_after);
        let (counted, outcome) = match after {
            Some(Effect::FailAfterEffect { code }) => (code, Ok(reply::error(&fault_error(code, None, None, None)))),
            Some(_) => (0, Err(Closed)),
            None => (reply.status().as_u16(), Ok(reply)),
        };
        self.core.log.count(verb, resource, counted);
        outcome
    }

    fn dispatch(&self, call: &Call, route: &Route, verb: &'static str, end_after: Option<(u64, End)>) -> Reply {
        let outcome = match route {
            Route::Other(path) => Ok(other(path)),
            Route::Objects { kind, namespace, name, subresource } => match verb {
                "watch" => self.watch(call, kind, namespace, end_after),
                "list" => self.list(call, kind, namespace),
                "get" => self.get(call, kind, namespace, name),
                _ => self.write(call, verb, Write::new(kind, namespace, name, subresource)),
            },
        };
        outcome.unwrap_or_else(|error| reply::error(&error))
    }

    fn get(&self, call: &Call, kind: &'static Kind, namespace: &str, name: &str) -> Result<Reply, ApiError> {
        let version = call.query.text("resourceVersion");
        let view = self.faults.view(kind, &version);
        let asked = crate::store::parse_version(&version)?;
        let current = view.as_ref().map_or_else(|| self.core.lock().version, |view| view.version);
        if let Some(asked) = asked.filter(|asked| *asked > current) {
            return Err(ApiError::too_large(asked, current));
        }
        let stored = self.core.get(kind, namespace, name, view.as_deref())?;
        match columns(call, kind) {
            Some(columns) => Ok(reply::json_value(200, &table::single(columns, &stored))),
            None => Ok(reply::object(200, &stored)),
        }
    }

    fn list(&self, call: &Call, kind: &'static Kind, namespace: &str) -> Result<Reply, ApiError> {
        let options = list_options(&call.query, namespace)?;
        let view = self.faults.view(kind, &options.resource_version);
        let list = self.core.list(kind, &options, view.as_deref())?;
        match columns(call, kind) {
            Some(columns) => Ok(reply::json_value(200, &table::list(columns, &list, &reply::list_metadata(&list)))),
            None => Ok(reply::list(&list)),
        }
    }

    fn watch(
        &self,
        call: &Call,
        kind: &'static Kind,
        namespace: &str,
        end_after: Option<(u64, End)>,
    ) -> Result<Reply, ApiError> {
        let options = list_options(&call.query, namespace)?;
        let view = self.faults.view(kind, &options.resource_version);
        let watch = Watch::open(&self.core, kind, &options, view.as_deref())?;
        let timeout = call.query.number("timeoutSeconds").filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let interval = self.core.options.bookmark_interval;
        Ok(stream::reply(Stream::new(watch, kind, &self.faults, timeout, interval, columns(call, kind), end_after)))
    }

    fn write(&self, call: &Call, verb: &'static str, write: Write) -> Result<Reply, ApiError> {
        if call.query.has("dryRun") {
            return Err(ApiError::not_implemented("dry runs"));
        }
        let write = Write { strict: call.query.text("fieldValidation") == "Strict", ..write };
        let mut name = write.name.clone();
        let outcome = self.carry_out(call, verb, &write, &mut name);
        self.core.log.write(WriteEntry {
            verb,
            resource: write.kind.plural,
            namespace: write.namespace,
            name,
            subresource: write.subresource,
            user_agent: call.header(header::USER_AGENT).to_owned(),
            content_type: call.header(header::CONTENT_TYPE).to_owned(),
            body: call.value().clone().unwrap_or_default(),
            status: outcome.as_ref().map_or_else(|error| error.code, |reply| reply.status().as_u16()),
        });
        outcome
    }

    fn carry_out(&self, call: &Call, verb: &str, write: &Write, name: &mut String) -> Result<Reply, ApiError> {
        match verb {
            "create" => {
                let stored = self.core.create(write, call.value().clone()?)?;
                name.clone_from(&stored.name);
                Ok(reply::object(201, &stored))
            }
            "update" => {
                let stored = self.core.update(write, call.value().clone()?)?;
                Ok(reply::object(200, &stored))
            }
            "patch" => {
                let patch = Patch::parse(call.header(header::CONTENT_TYPE), &call.body)?;
                self.core.patch(write, &patch).map(|stored| reply::object(200, &stored))
            }
            _ => {
                let (stored, gone) = self.core.delete(write, &call.value().clone()?)?;
                if !gone || write.kind.returns_deleted {
                    return Ok(reply::object(200, &stored));
                }
                let mut details = details(&stored.name, write.kind.group, write.kind.plural);
                crate::value::set(&mut details, "/uid", crate::value::text(&stored.value(), "/metadata/uid"));
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
                Ok(reply::json_value(200, &status))
            }
        }
    }
}

fn other(path: &str) -> Reply {
    match path {
        "/healthz" | "/livez" | "/readyz" => reply::plain(200, "ok"),
        _ => match discovery::answer(path) {
            Some(value) => reply::json_value(200, &value),
            None => reply::plain(404, "404 page not found\n"),
        },
    }
}

fn target_name(call: &Call, route: &Route, verb: &str) -> String {
    match route {
        Route::Objects { .. } if verb == "create" => {
            let body = call.value().as_ref();
            body.map(|body| crate::value::text(body, "/metadata/name").to_owned()).unwrap_or_default()
        }
        Route::Objects { name, .. } => name.clone(),
        Route::Other(_) => String::new(),
    }
}

fn list_options(query: &Query, namespace: &str) -> Result<ListOptions, ApiError> {
    let limit = query.text("limit");
    let refuse = |_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{limit}\": invalid syntax"));
    let number = if limit.is_empty() { 0 } else { limit.parse::<i64>().map_err(refuse)? };
    Ok(ListOptions {
        namespace: namespace.to_owned(),
        label_selector: query.text("labelSelector"),
        field_selector: query.text("fieldSelector"),
        // A negative limit means no limit.
        limit: usize::try_from(number).unwrap_or_default(),
        continue_token: query.text("continue"),
        resource_version: query.text("resourceVersion"),
        resource_version_match: query.text("resourceVersionMatch"),
        allow_bookmarks: query.flag("allowWatchBookmarks"),
        send_initial_events: query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents")),
    })
}

/// The columns of the table that kubectl requests, if this kind has them; otherwise kubectl prints names and ages
/// itself.
fn columns(call: &Call, kind: &Kind) -> Option<&'static [Column]> {
    let accept = call.header(header::ACCEPT);
    let first = accept.split(',').next().unwrap_or_default();
    let asked = first.contains("as=Table") && first.contains("v=v1;") && first.contains("json");
    if asked { table::columns(kind) } else { None }
}

fn fault_error(code: u16, reason: Option<&str>, message: Option<String>, retry_after: Option<u64>) -> ApiError {
    let usual = match code {
        410 => "Expired".to_owned(),
        422 => "Invalid".to_owned(),
        500 => "InternalError".to_owned(),
        504 => "Timeout".to_owned(),
        _ => StatusCode::from_u16(code)
            .ok()
            .and_then(|code| code.canonical_reason())
            .unwrap_or_default()
            .replace(' ', ""),
    };
    let message = message.unwrap_or_else(|| format!("a fault answers {code}"));
    let mut error = ApiError::new(code, reason.unwrap_or(&usual), message);
    error.retry_after = retry_after;
    if let Some(seconds) = retry_after {
        error.details = Some(Box::new(json!({"retryAfterSeconds": seconds})));
    }
    error
}
