//! The state of a simulated Compute Engine.

use super::instances::ByAddress;
use super::kinds::{self, Fields, Kind};
use super::model::Model;
use super::options::Options;
use super::places::{PATH, Scope, Spot, link};
use super::store::{Due, Store};
use super::tokens::Tokens;
use super::{errors, operations, permissions, routes};
use crate::core::clock::{Clock, later};
use crate::core::endpoint::Simulated;
use crate::core::faults::Fault;
use crate::core::latency::Latency;
use crate::core::rest::{Call, Lost, Problem, Reply, Route};
use crate::core::routes::Rest;
use crate::core::rows::Row;
use crate::core::server::Request;
use crate::core::throttle::BucketSpec;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// All objects by path: `projects/p/zones/z/instances/n`.
    pub store: Store,
    /// Valid tokens.
    pub tokens: Tokens,
    /// The account of the current call.
    pub who: String,
    /// The project numbers by project ID.
    pub projects: BTreeMap<String, u64>,
    /// The keys of operations by the `requestId` of the calls that began them.
    pub(super) requests: BTreeMap<String, String>,
    /// The methods with a long answer that was checked against the description.
    long_answers: BTreeSet<&'static str>,
    /// The keys of all operations, oldest first, each with its key in `requests`.
    pub(super) operations: VecDeque<(String, String)>,
    /// The number of external addresses assigned so far, by tier.
    pub(super) external: BTreeMap<String, u64>,
    /// The cached instances by address.
    pub(super) instances_by_address: RefCell<Option<ByAddress>>,
    model: Option<Arc<Model>>,
    /// The method of the current call; empty if there is none, so that changes take effect immediately.
    method: &'static str,
    /// The name of its object.
    target: String,
    /// The start of the current call: all its effects end at the same time.
    began: Timestamp,
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
            tokens: Tokens::default(),
            who: String::new(),
            projects: BTreeMap::new(),
            requests: BTreeMap::new(),
            operations: VecDeque::new(),
            long_answers: BTreeSet::new(),
            external: BTreeMap::new(),
            instances_by_address: RefCell::default(),
            model,
            method: "",
            target: String::new(),
            began: Timestamp::UNIX_EPOCH,
            count: 0,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A time in the format of the API.
    pub(super) fn stamp(&self, time: Timestamp) -> String {
        let pacific = later_by_hours(time, -8);
        pacific.strftime("%Y-%m-%dT%H:%M:%S.%3f-08:00").to_string()
    }

    /// Random hexadecimal digits.
    pub fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            text.push_str(&format!("{:016x}", self.rng.random::<u64>()));
        }
        text.truncate(digits);
        text
    }

    /// The next sequence number.
    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// A new ID.
    pub(super) fn number_id(&mut self) -> String {
        let number = self.number();
        (4_000_000_000_000_000_000 + number * 1_000_003 + u64::from(self.rng.random::<u16>())).to_string()
    }

    /// A new fingerprint: eight bytes in base64.
    pub(super) fn fingerprint(&mut self) -> String {
        let number = self.number();
        super::tokens::base64(&(self.rng.random::<u64>() ^ number).to_be_bytes())
    }

    /// The ID of a project, given its ID or its number.
    pub fn project_id(&self, project: &str) -> Option<String> {
        let found = self.projects.iter().find(|(id, number)| *id == project || number.to_string() == project);
        found.map(|(id, _)| id.clone())
    }

    /// Records the start of a call.
    fn begin(&mut self, call: &Call) {
        (self.method, self.began) = (call.action, self.now());
        // The name of the object is in the body of an insertion, and else in the path.
        let named = call.object().map(|body| super::verbs::text(&body, "name").to_owned()).unwrap_or_default();
        let path = call.path.strip_prefix(PATH).and_then(Spot::parse).map(|spot| spot.name).unwrap_or_default();
        self.target = if path.is_empty() { named } else { path };
    }

    /// The times at which a write of the current call takes effect and becomes visible.
    pub(super) fn due(&self, resource: &str) -> Due {
        if self.method.is_empty() {
            return self.at_once();
        }
        let now = self.began;
        let done = later(now, self.options.operation_of(self.method, &self.target));
        Due { now, done, shown: later(done, self.options.lag.of(resource)) }
    }

    /// The times of a change that takes effect and becomes visible immediately.
    pub(super) fn at_once(&self) -> Due {
        let now = self.now();
        Due { now, done: now, shown: now }
    }

    /// Checks that a name is available. It is not while the deletion of its object goes on.
    pub(super) fn free(&self, spot: &Spot) -> Result<(), Problem> {
        let key = spot.key();
        if self.store.get(&key).is_some() {
            return Err(errors::already_exists(&key));
        }
        if self.store.busy(&key, self.now()) { Err(errors::not_ready(&key)) } else { Ok(()) }
    }

    /// Checks that the quota of a project, or of its region, allows one more object of a kind.
    pub(super) fn within_quota(&self, kind: &Kind, spot: &Spot, fields: &Fields) -> Result<(), Problem> {
        let is_internal = |fields: &Fields| fields.get("addressType").is_some_and(|it| it == "INTERNAL");
        let metric = if is_internal(fields) { "INTERNAL_ADDRESSES" } else { kind.quota };
        let Some(limit) = self.options.quotas.get(metric) else { return Ok(()) };
        let same = |other: &Spot| {
            other.project == spot.project && other.scope == spot.scope && other.region() == spot.region()
        };
        let counts = |row: &Row| is_internal(&row.shown()) == is_internal(fields);
        let all = self.store.all(kind.collection).filter(|(_, row)| counts(row));
        let has = all.filter_map(|(key, _)| Spot::parse(key)).filter(same).count();
        if has < *limit { Ok(()) } else { Err(errors::quota(metric, *limit, spot.region())) }
    }

    /// Creates an object; adds the fields that the service sets.
    pub(super) fn create(&mut self, kind: &Kind, spot: &Spot, mut fields: Fields) {
        let key = spot.key();
        let now = self.now();
        let own = [
            ("kind", json!(format!("compute#{}", kind.one))),
            ("id", json!(self.number_id())),
            ("creationTimestamp", json!(self.stamp(now))),
            ("name", json!(spot.name)),
            ("selfLink", json!(link(&key))),
        ];
        fields.extend(own.map(|(name, value)| (name.to_owned(), value)));
        match spot.scope {
            Scope::Global => {}
            Scope::Region => drop(fields.insert("region".to_owned(), json!(link(&spot.location())))),
            Scope::Zone => drop(fields.insert("zone".to_owned(), json!(link(&spot.location())))),
        }
        fields.retain(|_, value| !value.is_null());
        let row = Row { seq: self.number(), made: now, fields };
        let due = self.due(kind.resource);
        self.store.put(&key, row, due);
    }

    /// Replaces the fields of an object; it gets a new fingerprint if it has one.
    pub(super) fn replace(&mut self, spot: &Spot, mut fields: Fields) {
        let key = spot.key();
        let Some(old) = self.store.get(&key) else { return };
        let (seq, made) = (old.seq, old.made);
        if old.fields.contains_key("fingerprint") {
            let fingerprint = self.fingerprint();
            fields.insert("fingerprint".to_owned(), json!(fingerprint));
        }
        fields.retain(|_, value| !value.is_null());
        let due = self.due(kinds::of(spot).map_or("", |kind| kind.resource));
        self.store.put(&key, Row { seq, made, fields }, due);
    }

    /// Makes a change outside of the API, which takes effect and becomes visible immediately.
    pub(super) fn besides<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let method = std::mem::take(&mut self.method);
        let result = act(self);
        self.method = method;
        result
    }
}

/// A time some hours earlier or later.
fn later_by_hours(time: Timestamp, hours: i64) -> Timestamp {
    time.checked_add(jiff::SignedDuration::from_hours(hours)).unwrap_or(time)
}

impl Simulated for World {
    type Options = Options;

    const PATH: &'static str = PATH;
    const SHOWS: &'static [&'static str] = &["/objects"];
    const INVALID: &'static str = "invalid";
    const BROKEN: &'static str = "backendError";

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
        self.store.settle(now);
        self.method = "";
        now
    }

    /// All objects by path.
    fn show(&self, _: &str) -> Option<Value> {
        let shown = |(key, row): (&str, &Row)| {
            let kind = kinds::of(&Spot::parse(key)?)?;
            Some((key.to_owned(), Value::Object(kinds::shown(self, kind, key, row))))
        };
        Some(self.store.every().filter_map(shown).collect())
    }
}

impl Rest for World {
    fn routes() -> &'static [Route<Self>] {
        routes::ROUTES
    }

    fn authenticate(&mut self, call: &Call) -> Result<String, Problem> {
        self.who = String::new();
        self.begin(call);
        if routes::is_open(call.action) {
            return Ok(String::new());
        }
        let token = call.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let who = self.tokens.account(token, self.clock.now());
        self.who = who.ok_or_else(|| errors::unauthorized(!token.is_empty()))?;
        if let Some(model) = self.model.clone() {
            model.check_request(call)?;
        }
        permissions::check(self, call)?;
        Ok(self.who.clone())
    }

    fn lost(&self, request: &Request, lost: Lost) -> (&'static str, Reply) {
        routes::lost(request, lost)
    }

    fn held(&self, call: &Call, arrived: Timestamp) -> Option<Timestamp> {
        operations::held(self, call, arrived)
    }

    fn injected(&mut self, call: &Call, fault: &Fault) -> Reply {
        match fault {
            Fault::Html { status } => {
                Reply { status: *status, body: page(*status), kind: "text/html; charset=UTF-8", ..Reply::default() }
            }
            Fault::Code { status, code, message } => errors::render(&Problem::new(*status, code, message.as_str())),
            Fault::Throttle => errors::render(&throttled(self.options.throttle_status, call.mutating)),
            Fault::ExpiredCredentials => errors::render(&errors::unauthorized(true)),
            Fault::Deny => errors::render(&permissions::denied(call)),
            Fault::Operation { status, code, message } => {
                self.begin(call);
                let (code, message) = (code.clone(), message.clone());
                operations::fail(self, call, operations::Failure { status: *status, code, message })
            }
            _ => Reply::empty(500),
        }
    }

    fn render(&self, service: &str, problem: &Problem) -> Reply {
        if service == "oauth2" { super::tokens::render(problem) } else { errors::render(problem) }
    }

    fn finish(&mut self, call: &Call, reply: &mut Reply, violations: &mut Vec<String>) {
        if reply.kind.is_empty() {
            reply.kind = "application/json; charset=UTF-8";
        }
        // The same code creates all long answers of a method, so checking one of them is sufficient.
        let looked_at = reply.body.len() > LONG && !self.long_answers.insert(call.action);
        if let Some(model) = self.model.clone().filter(|_| reply.status == 200 && !looked_at) {
            violations.extend(model.check_answer(call, &reply.body));
        }
        if let Some(fields) = call.get("fields").filter(|_| reply.status == 200) {
            super::fields::select(fields, reply);
        }
    }

    fn params(&self, call: &Call) -> String {
        let mut text = call.path.clone();
        for (name, value) in &call.query {
            text.push_str(&format!("&{name}={value}"));
        }
        // Token requests contain secrets.
        let secret = !matches!(call.service, "compute" | "cloudresourcemanager");
        let body = if secret { "" } else { std::str::from_utf8(&call.body).unwrap_or_default() };
        if body.is_empty() { text } else { format!("{text}&body={body}") }
    }
}

/// The answer to a throttled call.
fn throttled(status: u16, mutating: bool) -> Problem {
    let (group, what) = if mutating { ("ListGroup", "Queries") } else { ("ReadGroup", "Read requests") };
    let text = format!(
        "Quota exceeded for quota group '{group}' and limit '{what} per 100 seconds' of service 'compute.googleapis.com' for consumer 'project_number:123456'."
    );
    Problem::new(status, "rateLimitExceeded", text)
}

/// The error page of the frontend of Google's services when a backend fails.
fn page(status: u16) -> Vec<u8> {
    format!(
        "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>Error {status} (Server Error)!!1</title>\n  <p><b>{status}.</b> <ins>That’s an error.</ins>\n  <p>The server encountered a temporary error and could not complete your request.<p>Please try again in 30 seconds.  <ins>That’s all we know.</ins>\n"
    )
    .into_bytes()
}

/// The string in a field of a nested object; empty if missing.
pub(super) fn inner<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Sets a field of an object.
pub(super) fn set(value: &mut Value, name: &str, field: impl Into<Value>) {
    if let Value::Object(fields) = value {
        fields.insert(name.to_owned(), field.into());
    }
}
