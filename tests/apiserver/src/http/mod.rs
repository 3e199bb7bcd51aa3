//! HTTP requests to store calls, with faults in between.

mod reply;
mod route;
mod stream;

pub use reply::{Body, Closed};

use crate::discovery;
use crate::error::ApiError;
use crate::faults::{Effect, FaultCommand, Faults, RequestFacts};
use crate::kind::Kind;
use crate::log::WriteEntry;
use crate::patch::{self, Patch};
use crate::store::{Core, DeleteOptions, ListOptions, Write};
use crate::table;
use crate::watch::{Watch, WatchOptions};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::BodyExt;
use reply::Reply;
use route::{Query, Route};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Answers requests. Usable without a socket, for clients that take any service and for paused time.
#[derive(Debug, Clone)]
pub struct Handler {
    core: Arc<Core>,
    faults: Faults,
}

/// A request, taken apart.
struct Call {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    query: Query,
    body: Bytes,
    /// The body, read once for the faults, the log and the write.
    parsed: OnceLock<Result<Value, ApiError>>,
}

impl Call {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON, or as YAML; null when there is none.
    fn value(&self) -> Result<Value, ApiError> {
        self.peek().clone()
    }

    /// [`Call::value`] without a copy.
    fn peek(&self) -> &Result<Value, ApiError> {
        self.parsed.get_or_init(|| self.parse())
    }

    fn parse(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let media = self.header(header::CONTENT_TYPE);
        if media.contains("yaml") {
            return patch::yaml(&self.body);
        }
        // The default of a plain HTTP client that sets nothing, and of kubectl for a delete without options.
        if !(media.is_empty() || media.contains("json") || media.contains("x-www-form-urlencoded")) {
            let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Err(ApiError::unsupported_media(accepted));
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

    /// Answers one request.
    ///
    /// # Errors
    /// [`Closed`] when a fault closes the connection instead of answering.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Body>, Closed>
    where
        B: hyper::body::Body,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
        let query = Query::parse(&parts.uri);
        let call =
            Call { method: parts.method, uri: parts.uri, headers: parts.headers, query, body, parsed: OnceLock::new() };
        let wanted = self.core.options.token.as_ref().map(|token| format!("Bearer {token}"));
        if wanted.is_some_and(|wanted| call.header(header::AUTHORIZATION) != wanted) {
            self.core.log.count("", call.uri.path(), 401);
            return Ok(reply::error(&ApiError::new(401, "Unauthorized", "Unauthorized")));
        }
        if call.uri.path() == "/faults" {
            return Ok(self.control(&call));
        }
        let Ok(route) = Route::parse(call.uri.path()) else {
            self.core.log.count("", call.uri.path(), 404);
            return Ok(reply::error(&ApiError::no_resource()));
        };
        match route.verb(&call.method, &call.query) {
            Ok(verb) => self.with_faults(&call, &route, verb).await,
            Err(error) => Ok(reply::error(&error)),
        }
    }

    async fn with_faults(&self, call: &Call, route: &Route, verb: &'static str) -> Result<Reply, Closed> {
        let name = target_name(call, route, verb);
        let (resource, namespace, subresource) = match route {
            Route::Collection { kind, namespace } => (kind.plural, namespace.as_str(), ""),
            Route::Object { kind, namespace, subresource, .. } => {
                (kind.plural, namespace.as_str(), subresource.as_str())
            }
            Route::Other(path) => (path.as_str(), "", ""),
        };
        let user_agent = call.header(header::USER_AGENT);
        let facts = RequestFacts { verb, resource, namespace, name: &name, subresource, user_agent };
        let mut end_after = None;
        let mut after = None;
        for effect in self.faults.consult(&facts) {
            match effect {
                Effect::Latency { millis } => tokio::time::sleep(Duration::from_millis(millis)).await,
                Effect::EndWatch { after, abrupt } => end_after = Some((after, abrupt)),
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

    fn dispatch(&self, call: &Call, route: &Route, verb: &'static str, end_after: Option<(u64, bool)>) -> Reply {
        let outcome = match route {
            Route::Other(path) => Ok(self.other(path)),
            Route::Collection { kind, namespace } => match verb {
                "watch" => self.watch(call, kind, namespace, end_after),
                "list" => self.list(call, kind, namespace),
                _ => self.write(call, verb, &Write::new(kind, namespace, "")),
            },
            Route::Object { kind, namespace, name, subresource } => match verb {
                "get" => self.get(call, kind, namespace, name),
                _ => {
                    let write = Write { subresource: subresource.clone(), ..Write::new(kind, namespace, name) };
                    self.write(call, verb, &write)
                }
            },
        };
        outcome.unwrap_or_else(|error| reply::error(&error))
    }

    fn other(&self, path: &str) -> Reply {
        match path {
            "/healthz" | "/livez" | "/readyz" => reply::plain(200, "ok"),
            _ => match discovery::answer(path, &self.core.options) {
                Some(value) => reply::json_value(200, &value),
                None => reply::plain(404, "404 page not found\n"),
            },
        }
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
        if wants_table(call) {
            return Ok(reply::json_value(200, &table::single(kind, &stored)));
        }
        Ok(reply::object(200, &stored))
    }

    fn list(&self, call: &Call, kind: &'static Kind, namespace: &str) -> Result<Reply, ApiError> {
        let query = &call.query;
        let options = ListOptions {
            namespace: namespace.to_owned(),
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            limit: limit(query)?,
            continue_token: query.text("continue"),
            resource_version: query.text("resourceVersion"),
            resource_version_match: query.text("resourceVersionMatch"),
        };
        if query.has("sendInitialEvents") {
            return Err(ApiError::invalid_initial_events());
        }
        let view = self.faults.view(kind, &options.resource_version);
        let list = self.core.list(kind, &options, view.as_deref())?;
        if wants_table(call) {
            return Ok(reply::json_value(200, &table::list(&list, &reply::list_metadata(&list))));
        }
        Ok(reply::list(list))
    }

    fn watch(
        &self,
        call: &Call,
        kind: &'static Kind,
        namespace: &str,
        end_after: Option<(u64, bool)>,
    ) -> Result<Reply, ApiError> {
        let query = &call.query;
        let options = WatchOptions {
            namespace: namespace.to_owned(),
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            resource_version: query.text("resourceVersion"),
            resource_version_match: query.text("resourceVersionMatch"),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents")),
        };
        let view = self.faults.view(kind, &options.resource_version);
        let watch = Watch::open(&self.core, kind, &options, view.as_deref())?;
        let shape = stream::Shape {
            timeout: query.number("timeoutSeconds").filter(|seconds| *seconds > 0).map(Duration::from_secs),
            bookmark_interval: self.core.options.bookmark_interval,
            batch: self.core.options.watch_batch,
            as_table: wants_table(call),
            end_after,
        };
        Ok(stream::reply(watch, kind, &self.faults, shape))
    }

    fn write(&self, call: &Call, verb: &'static str, write: &Write) -> Result<Reply, ApiError> {
        let strict = call.query.text("fieldValidation") == "Strict";
        let write = Write { dry_run: call.query.has("dryRun"), strict, ..write.clone() };
        let mut name = write.name.clone();
        let outcome = self.carry_out(call, verb, &write, &mut name);
        self.core.log.write(WriteEntry {
            verb,
            resource: write.kind.plural,
            namespace: write.namespace.clone(),
            name,
            subresource: write.subresource.clone(),
            user_agent: call.header(header::USER_AGENT).to_owned(),
            content_type: call.header(header::CONTENT_TYPE).to_owned(),
            body: if self.core.options.log_bodies { logged_body(call) } else { Value::Null },
            status: outcome.as_ref().map_or_else(|error| error.code, |reply| reply.status().as_u16()),
        });
        outcome
    }

    fn carry_out(&self, call: &Call, verb: &str, write: &Write, name: &mut String) -> Result<Reply, ApiError> {
        let code = |made| if made { 201 } else { 200 };
        match verb {
            "create" => {
                let stored = self.core.create(write, call.value()?)?;
                name.clone_from(&stored.name);
                Ok(reply::object(201, &stored))
            }
            "update" => {
                let (stored, made) = self.core.update(write, call.value()?)?;
                Ok(reply::object(code(made), &stored))
            }
            "patch" => {
                let patch = Patch::parse(call.header(header::CONTENT_TYPE), &call.body)?;
                if let Patch::Apply(body) = &patch {
                    check_apply(call, body)?;
                }
                let (stored, made) = self.core.patch(write, &patch)?;
                Ok(reply::object(code(made), &stored))
            }
            "delete" => {
                let (stored, gone) = self.core.delete(write, &delete_options(call)?)?;
                if !gone || write.kind.returns_deleted {
                    return Ok(reply::object(200, &stored));
                }
                let mut details = json!({"name": stored.name, "kind": write.kind.plural});
                crate::value::copy(&mut details, &json!({"group": write.kind.group}), &["group"]);
                if write.kind.group.is_empty() {
                    crate::value::remove(&mut details, &["group"]);
                }
                let uid = crate::value::text(&stored.value(), &["metadata", "uid"]).to_owned();
                crate::value::set(&mut details, &["uid"], uid);
                Ok(reply::json_value(
                    200,
                    &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
                ))
            }
            _ => {
                let (labels, fields) = (call.query.text("labelSelector"), call.query.text("fieldSelector"));
                let items = self.core.delete_collection(write, &labels, &fields, &delete_options(call)?)?;
                let version = self.core.lock().version;
                let kind = write.kind;
                let list = crate::store::List { kind, version, continue_token: String::new(), remaining: None, items };
                Ok(reply::list(list))
            }
        }
    }

    /// The switches over HTTP: GET shows what is on, POST takes a command or a list of them.
    fn control(&self, call: &Call) -> Reply {
        if call.method == Method::GET {
            let active: Vec<Value> = self
                .faults
                .list()
                .into_iter()
                .map(|(id, fault, fired)| json!({"id": id, "fault": fault, "fired": fired}))
                .collect();
            return reply::json_value(200, &Value::Array(active));
        }
        let commands = call.value().map(|body| match body {
            Value::Array(commands) => commands,
            one => vec![one],
        });
        let commands: Result<Vec<FaultCommand>, String> =
            commands.map_err(|error| error.message).and_then(|commands| {
                commands.into_iter().map(|one| serde_json::from_value(one).map_err(|error| error.to_string())).collect()
            });
        match commands {
            Ok(commands) => {
                let ids: Vec<_> = commands.into_iter().map(|command| self.faults.apply(command)).collect();
                reply::json_value(200, &json!(ids))
            }
            Err(why) => reply::error(&ApiError::bad_request(why)),
        }
    }
}

fn target_name(call: &Call, route: &Route, verb: &str) -> String {
    match route {
        Route::Object { name, .. } => name.clone(),
        Route::Collection { .. } if verb == "create" => {
            let body = call.peek().as_ref();
            body.map(|body| crate::value::text(body, &["metadata", "name"]).to_owned()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn logged_body(call: &Call) -> Value {
    call.value().or_else(|_| patch::yaml(&call.body)).unwrap_or_default()
}

fn delete_options(call: &Call) -> Result<DeleteOptions, ApiError> {
    call.value().map(|body| DeleteOptions::from_value(&body))
}

/// What an apply must say beyond other patches.
fn check_apply(call: &Call, body: &Value) -> Result<(), ApiError> {
    if call.query.text("fieldManager").is_empty() {
        return Err(ApiError::no_field_manager());
    }
    let (version, kind) = (crate::value::text(body, &["apiVersion"]), crate::value::text(body, &["kind"]));
    if version.is_empty() || kind.is_empty() {
        return Err(ApiError::bad_request(format!("invalid object type: {version}/, Kind={kind}")));
    }
    Ok(())
}

fn limit(query: &Query) -> Result<usize, ApiError> {
    let text = query.text("limit");
    if text.is_empty() {
        return Ok(0);
    }
    let why = || ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
    // A negative limit is no limit.
    text.parse::<i64>().map(|limit| usize::try_from(limit).unwrap_or_default()).map_err(|_| why())
}

fn wants_table(call: &Call) -> bool {
    let accept = call.header(header::ACCEPT);
    let first = accept.split(',').next().unwrap_or_default();
    first.contains("as=Table") && first.contains("v=v1;") && first.contains("json")
}

fn fault_error(code: u16, reason: Option<&str>, message: Option<String>, retry_after: Option<u64>) -> ApiError {
    let usual = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let message = message.unwrap_or_else(|| format!("a fault answers {code}"));
    let mut error = ApiError::new(code, reason.unwrap_or(usual), message);
    error.retry_after = retry_after;
    if let Some(seconds) = retry_after {
        error.details = Some(Box::new(json!({"retryAfterSeconds": seconds})));
    }
    error
}
