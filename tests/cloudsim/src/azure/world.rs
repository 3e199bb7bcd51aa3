//! The state of a simulated Azure.

use super::ids::{Id, group_key};
use super::json::{at, each, list, remove, set, text};
use super::kinds::{self, Kind};
use super::login::{Caller, Identities};
use super::model::Model;
use super::operations::Operations;
use super::options::Options;
use super::store::{Row, Store};
use super::{errors, login, operations, routes};
use crate::core::clock::Clock;
use crate::core::endpoint::Simulated;
use crate::core::faults::Fault;
use crate::core::latency::Latency;
use crate::core::rest::{Call, Lost, Problem, Reply, Route};
use crate::core::routes::Rest;
use crate::core::server::Request;
use crate::core::throttle::BucketSpec;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Answers of at least this size in bytes are considered long.
const LONG: usize = 100_000;

/// State of the cloud.
#[derive(Debug)]
pub struct World {
    pub options: Options,
    pub clock: Clock,
    /// The URL of the endpoint, without a path.
    pub url: String,
    pub store: Store,
    pub operations: Operations,
    /// The applications and managed identities, and the tokens that they have.
    pub identities: Identities,
    /// The tenant of each subscription, by its ID in lower case.
    pub subscriptions: BTreeMap<String, String>,
    /// Resource groups by key: the name as created.
    pub groups: BTreeMap<String, String>,
    /// The time until which writes on a resource are answered as busy.
    pub(super) busy: BTreeMap<String, Timestamp>,
    /// The action of the current call; empty if there is none, so that changes take effect immediately.
    pub(super) action: &'static str,
    /// How the operation of the current call will fail.
    pub(super) failing: Option<Problem>,
    pub(super) caller: Caller,
    /// The key of the machine or instance to which the metadata service belongs.
    pub(super) metadata_of: String,
    /// The number of external addresses assigned so far.
    pub(super) external: u32,
    model: Option<Arc<Model>>,
    /// The actions with a long answer that was checked against the description.
    long_answers: BTreeSet<&'static str>,
    rng: StdRng,
    count: u64,
}

impl World {
    /// An empty cloud.
    pub(super) fn new(options: Options, model: Option<Arc<Model>>) -> Self {
        World {
            clock: Clock::new(options.clock),
            rng: StdRng::seed_from_u64(options.seed),
            options,
            url: String::new(),
            store: Store::default(),
            operations: Operations::default(),
            identities: Identities::default(),
            subscriptions: BTreeMap::new(),
            groups: BTreeMap::new(),
            busy: BTreeMap::new(),
            action: "",
            failing: None,
            caller: Caller::default(),
            metadata_of: String::new(),
            external: 0,
            model,
            long_answers: BTreeSet::new(),
            count: 0,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The scheme and host of links.
    pub(super) fn link(&self) -> &str {
        if self.options.public_url.is_empty() { &self.url } else { &self.options.public_url }
    }

    /// The next sequence number.
    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// A new UUID.
    pub(super) fn uuid(&mut self) -> String {
        let (high, low) = (self.rng.random::<u64>(), self.rng.random::<u64>());
        let text = format!("{high:016x}{low:016x}");
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        format!("{}-{}-4{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
    }

    /// A new ETag of a resource. Those of `Microsoft.Compute` count its changes.
    pub(super) fn etag(&mut self, key: &str) -> String {
        if !key.contains("/providers/microsoft.compute/") {
            return format!("W/\"{}\"", self.uuid());
        }
        let old = self.store.get(key).map(|row| text(&row.fields, "/etag").trim_matches('"')).unwrap_or_default();
        format!("\"{}\"", old.parse::<u64>().unwrap_or_default() + 1)
    }

    /// The type and ID of the resource or collection in the path of a call.
    pub(super) fn target(&self, call: &Call) -> Result<(&'static Kind, Id), Problem> {
        let wrong = || Problem::violation(404, "InvalidResourceType", "The resource type could not be found.");
        let id = Id::parse(&call.path).ok_or_else(wrong)?;
        let kind = kinds::of(&id.kind()).ok_or_else(wrong)?;
        self.known_subscription(&id.subscription)?;
        if self.groups.contains_key(&id.group_key()) { Ok((kind, id)) } else { Err(errors::no_group(&id.group)) }
    }

    /// Checks that a subscription exists.
    pub(super) fn known_subscription(&self, subscription: &str) -> Result<(), Problem> {
        if self.subscriptions.contains_key(&subscription.to_lowercase()) {
            return Ok(());
        }
        let text = format!("The subscription '{subscription}' could not be found.");
        Err(Problem::new(404, "SubscriptionNotFound", text))
    }

    /// Creates a resource group, unless it exists, and its subscription.
    pub fn group(&mut self, subscription: &str, name: &str) {
        let tenant = self.identities.tenant.clone();
        self.subscriptions.entry(subscription.to_lowercase()).or_insert(tenant);
        self.groups.entry(group_key(subscription, name)).or_insert_with(|| name.to_owned());
    }

    /// A resource as answers show it, regardless of lag.
    pub fn shown_now(&self, key: &str) -> Option<Value> {
        self.store.get(&key.to_lowercase()).map(|row| self.shown(row))
    }

    /// Creates or changes resources as answers show them, by ID. What answers do not show stays, as do addresses of
    /// machines.
    pub fn restore(&mut self, objects: &Value) {
        for (id, fields) in objects.as_object().into_iter().flatten() {
            let Some(kind) = Id::parse(id).and_then(|id| kinds::of(&id.kind())) else { continue };
            if self.store.get(&id.to_lowercase()).is_some() {
                self.alter(id, World::stripped(kind, fields.clone()));
            } else {
                self.put(id, fields.clone());
            }
        }
    }

    /// A resource as answers show it.
    pub(super) fn shown(&self, row: &Row) -> Value {
        let mut value = row.fields.clone();
        let Some(kind) = kinds::of(&row.kind) else { return value };
        let (etag, id) = (at(&value, "/etag").clone(), row.id.text());
        if let Value::Object(map) = &mut value {
            map.retain(|name, _| !name.starts_with('_'));
        }
        set(&mut value, "/name", row.id.name());
        set(&mut value, "/id", id.as_str());
        set(&mut value, "/type", kind.shown);
        for part in kind.parts {
            let shown = format!("{}/{part}", kind.shown);
            let state = text(&value, "/properties/provisioningState").to_owned();
            let state = if state.is_empty() { "Succeeded".to_owned() } else { state };
            for item in each(&mut value, &format!("/properties/{part}")) {
                let name = text(item, "/name").to_owned();
                set(item, "/id", format!("{id}/{part}/{name}"));
                set(item, "/etag", etag.clone());
                set(item, "/type", shown.as_str());
                set(item, "/properties/provisioningState", state.as_str());
            }
        }
        (kind.rules.show)(self, &row.id, &mut value);
        value
    }

    /// Removes from a body what answers have and writes ignore.
    pub(super) fn stripped(kind: &Kind, mut body: Value) -> Value {
        super::json::without_nulls(&mut body);
        for name in ["/id", "/name", "/type", "/etag", "/properties/provisioningState", "/properties/resourceGuid"] {
            remove(&mut body, name);
        }
        for pointer in kind.ignored {
            match pointer.split_once("/*") {
                Some((head, tail)) => each(&mut body, head).for_each(|item| drop(remove(item, tail))),
                None => drop(remove(&mut body, pointer)),
            }
        }
        for part in kind.parts {
            for item in each(&mut body, &format!("/properties/{part}")) {
                for name in ["/id", "/type", "/etag", "/properties/provisioningState"] {
                    remove(item, name);
                }
            }
        }
        body
    }

    /// Whether a resource, or a part of one, exists.
    pub(super) fn exists(&self, key: &str) -> bool {
        if self.store.get(key).is_some() {
            return true;
        }
        self.part(key).is_some()
    }

    /// A part of a resource: a frontend, pool or rule of a load balancer, …
    pub(super) fn part(&self, key: &str) -> Option<&Value> {
        let id = Id::parse(key)?;
        let (part, name) = id.parts.last()?;
        let row = self.store.get(&id.parent()?.key())?;
        let kind = kinds::of(&row.kind)?;
        let part = kind.parts.iter().find(|known| known.eq_ignore_ascii_case(part))?;
        let parts = list(&row.fields, &format!("/properties/{part}")).iter();
        parts.into_iter().find(|item| text(item, "/name").eq_ignore_ascii_case(name))
    }

    /// The provisioning state of the resource with this key, and the name of its last operation.
    pub(super) fn state_of(&self, key: &str) -> (&str, &str) {
        let row = self.store.get(key);
        let field = |name: &str| row.map(|row| text(&row.fields, name)).unwrap_or_default();
        (field("/properties/provisioningState"), field("/_operation"))
    }

    /// Makes a change outside of the API, which takes effect and becomes visible immediately.
    pub(super) fn besides<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let action = std::mem::take(&mut self.action);
        let result = act(self);
        self.action = action;
        result
    }
}

impl Simulated for World {
    type Options = Options;

    const SHOWS: &'static [&'static str] = &["/objects", "/superseded"];
    const INVALID: &'static str = "InvalidRequestFormat";
    const BROKEN: &'static str = "InternalServerError";

    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn throttle(options: &Options) -> &[BucketSpec] {
        &options.throttle
    }

    fn latency(&self) -> &Latency {
        &self.options.latency
    }

    fn listens(&mut self, url: String) {
        self.url = url;
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn settle(&mut self) -> Timestamp {
        let now = self.now();
        self.action = "";
        self.failing = None;
        self.end_operations();
        self.store.settle(now);
        now
    }

    fn show(&self, path: &str) -> Option<Value> {
        match path {
            "/superseded" => Some(json!(self.operations.superseded)),
            _ => Some(self.store.all().map(|row| (row.id.text(), self.shown(row))).collect()),
        }
    }
}

impl Rest for World {
    const CASELESS: bool = true;

    fn routes() -> &'static [Route<Self>] {
        routes::ROUTES
    }

    fn authenticate(&mut self, call: &Call) -> Result<String, Problem> {
        self.action = call.action;
        self.caller = Caller::default();
        if routes::is_open(call.service) {
            return Ok(String::new());
        }
        login::authorize(self, call)?;
        routes::check_version(self, call)?;
        if let Some(model) = self.model.clone().filter(|_| !self.options.stack) {
            model.check_request(call)?;
        }
        Ok(self.caller.client.clone())
    }

    fn lost(&self, request: &Request, lost: Lost) -> (&'static str, Reply) {
        routes::lost(request, lost)
    }

    fn injected(&mut self, call: &Call, fault: &Fault) -> Reply {
        match fault {
            Fault::Html { status } => {
                Reply { status: *status, body: page(*status), kind: "text/html", ..Reply::default() }
            }
            Fault::Code { status: 429, code, message } if code == "RetryableError" => {
                let text = if message.is_empty() { "The call can be retried in 14 seconds." } else { message };
                errors::render(&errors::busy("RetryableErrorDueToAnotherOperation", text, 14))
            }
            Fault::Code { status, code, message } if call.service == "login" => {
                login::render(&Problem::new(*status, code, message.as_str()))
            }
            Fault::Code { status, code, message } => errors::render(&Problem::new(*status, code, message.as_str())),
            Fault::Throttle => {
                let costly = routes::COSTLY.contains(&call.action);
                let seconds = self.options.throttle_after;
                errors::render(&errors::throttled(call.service, costly, call.mutating, seconds))
            }
            Fault::ExpiredCredentials => errors::render(&errors::unauthorized(true)),
            Fault::Deny => errors::render(&errors::forbidden("client", &routes::right(call), &call.path)),
            Fault::Operation { status, code, message } => {
                errors::render(&Problem::new(*status, code, message.as_str()))
            }
            _ => Reply::empty(500),
        }
    }

    fn will_fail(&mut self, call: &Call, fault: &Fault) -> bool {
        if let (true, Fault::Operation { status, code, message }) = (call.mutating, fault) {
            self.failing = Some(operations::failure(*status, code, message));
        }
        call.mutating
    }

    fn render(&self, service: &str, problem: &Problem) -> Reply {
        match service {
            "login" | "imds" => login::render(problem),
            _ => errors::render(problem),
        }
    }

    fn finish(&mut self, call: &Call, reply: &mut Reply, violations: &mut Vec<String>) {
        if reply.kind.is_empty() {
            reply.kind = "application/json; charset=utf-8";
        }
        if routes::is_open(call.service) {
            return;
        }
        let header = match call.method.as_str() {
            "GET" => "x-ms-ratelimit-remaining-subscription-global-reads",
            "DELETE" => "x-ms-ratelimit-remaining-subscription-global-deletes",
            _ => "x-ms-ratelimit-remaining-subscription-global-writes",
        };
        reply.headers.push((header, self.options.remaining.to_string()));
        if let Some(budgets) = routes::budgets(call.action) {
            reply.headers.push(("x-ms-ratelimit-remaining-resource", budgets.to_owned()));
        }
        self.options.retry_after_form.apply(reply, self.now());
        let request = self.uuid();
        reply.headers.push(("x-ms-request-id", request.clone()));
        reply.headers.push(("x-ms-correlation-request-id", request));
        // The same code creates all long answers of an action, so checking one of them is sufficient.
        let looked_at = reply.body.len() > LONG && !self.long_answers.insert(call.action);
        let good = reply.status < 300 && !looked_at;
        if let Some(model) = self.model.clone().filter(|_| good) {
            violations.extend(model.check_answer(call, reply.status, &reply.body));
        }
    }

    fn params(&self, call: &Call) -> String {
        let mut text = call.path.clone();
        for (name, value) in &call.query {
            text.push_str(&format!("&{name}={value}"));
        }
        // Token requests contain secrets.
        let body = if routes::is_open(call.service) { "" } else { std::str::from_utf8(&call.body).unwrap_or_default() };
        if body.is_empty() { text } else { format!("{text}&body={body}") }
    }
}

/// The error page of the frontend.
fn page(status: u16) -> Vec<u8> {
    format!(
        "<!DOCTYPE html PUBLIC \"-//W3C//DTD HTML 4.01//EN\">\n<HTML><HEAD><TITLE>Service Unavailable</TITLE></HEAD>\n<BODY><h2>Service Unavailable</h2>\n<hr><p>HTTP Error {status}. The service is unavailable.</p>\n</BODY></HTML>\n"
    )
    .into_bytes()
}
