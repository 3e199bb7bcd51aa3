//! The state that all services share.

use super::keystone::Identity;
use super::options::Options;
use super::{octavia, routes};
use crate::core::clock::{Clock, later};
use crate::core::endpoint::Simulated;
use crate::core::faults::Fault;
use crate::core::lag::Past;
use crate::core::latency::Latency;
use crate::core::rest::{Call, Lost, Problem, Reply, Route};
use crate::core::routes::Rest;
use crate::core::rows::{Row, Table};
use crate::core::server::Request;
use crate::core::throttle::BucketSpec;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The state of all services.
#[derive(Debug)]
pub struct World {
    pub options: Options,
    pub clock: Clock,
    /// The URL of the endpoint.
    pub url: String,
    /// Users, projects, tokens.
    pub identity: Identity,
    /// All other resources, by kind.
    pub tables: BTreeMap<&'static str, Table>,
    /// The allocated addresses by subnet ID.
    pub addresses: BTreeMap<String, Taken>,
    /// The caller of the current call.
    pub who: Who,
    /// The load balancers with a change in progress, by the end of that change.
    pub pending: BTreeMap<(Timestamp, u64), String>,
    /// Whether changes of load balancers never end.
    pub frozen: bool,
    /// The number of the next changes of load balancers that end in ERROR.
    pub failing: u32,
    /// Whether the change that the current call begins ends in ERROR.
    pub spoiled: bool,
    /// The load balancers with such a change.
    pub failing_balancers: BTreeSet<String>,
    /// The state before each recent write, oldest first; kept only for stale reads.
    past: Past<Before>,
    rng: StdRng,
    count: u64,
}

/// The part of an older state that reads see.
#[derive(Debug)]
struct Before {
    tables: BTreeMap<&'static str, Table>,
    pending: BTreeMap<(Timestamp, u64), String>,
    failing: u32,
}

/// The allocated addresses of a subnet.
#[derive(Debug, Default)]
pub struct Taken {
    /// All allocated addresses.
    pub all: BTreeSet<IpAddr>,
    /// The last automatically chosen address, as a number.
    pub last: u128,
}

/// A caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// The user ID.
    pub user: String,
    /// The project ID.
    pub project: String,
    /// Whether the user is an administrator.
    pub admin: bool,
}

impl World {
    /// An empty cloud.
    pub fn new(options: Options) -> Self {
        World {
            clock: Clock::new(options.clock),
            rng: StdRng::seed_from_u64(options.seed),
            options,
            url: String::new(),
            identity: Identity::default(),
            tables: BTreeMap::new(),
            addresses: BTreeMap::new(),
            who: Who::default(),
            pending: BTreeMap::new(),
            frozen: false,
            failing: 0,
            spoiled: false,
            failing_balancers: BTreeSet::new(),
            past: Past::default(),
            count: 0,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The virtual time in a format of `strftime`.
    pub fn stamp(&self, format: &str) -> String {
        self.now().strftime(format).to_string()
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

    /// A random UUID that no resource has: a loaded one may be of the same seed.
    pub fn uuid(&mut self) -> String {
        loop {
            let digits = self.hex(32);
            let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
            let id = format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32));
            if !self.tables.values().any(|table| table.contains_key(&id)) {
                return id;
            }
        }
    }

    /// The next sequence number.
    pub fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// The resources of a kind.
    pub fn table(&self, kind: &str) -> &Table {
        static NONE: Table = Table::new();
        self.tables.get(kind).unwrap_or(&NONE)
    }

    /// Adds a resource; the fields of `with` override those of `base`. Returns its ID: the one in the fields, or a new
    /// one.
    pub fn add(&mut self, kind: &'static str, base: Value, with: Map<String, Value>) -> String {
        let mut fields = if let Value::Object(fields) = base { fields } else { Map::new() };
        fields.extend(with);
        let id = match fields.get("id").and_then(Value::as_str) {
            Some(id) => id.to_owned(),
            None => self.uuid(),
        };
        fields.insert("id".to_owned(), json!(id));
        let row = Row { seq: self.number(), made: self.now(), fields };
        self.tables.entry(kind).or_default().insert(id.clone(), row);
        id
    }

    /// A resource of any project.
    pub fn row(&self, kind: &str, id: &str) -> Option<&Row> {
        self.table(kind).get(id)
    }

    /// A mutable resource of any project.
    pub fn row_mut(&mut self, kind: &'static str, id: &str) -> Option<&mut Row> {
        self.tables.entry(kind).or_default().get_mut(id)
    }

    /// Removes a resource.
    pub fn remove(&mut self, kind: &'static str, id: &str) -> Option<Row> {
        self.tables.entry(kind).or_default().remove(id)
    }

    /// A resource that the caller can see.
    pub fn seen(&self, kind: &str, id: &str) -> Option<&Row> {
        self.row(kind, id).filter(|row| self.sees(kind, row))
    }

    /// Whether the caller can see a resource: its own and shared ones, and ports of its networks, once they are visible to
    /// reads.
    pub fn sees(&self, kind: &str, row: &Row) -> bool {
        let open = row.is("shared") || row.is("router:external");
        let own = |row: &Row| row.text("project_id") == self.who.project;
        let in_own_network = || kind == "port" && self.row("network", row.text("network_id")).is_some_and(own);
        let visible = self.who.admin || open || own(row) || in_own_network();
        visible && self.options.lag.known(kind, row.made, self.now())
    }

    /// The resources of a kind that the caller can see, by ID.
    pub fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Row> {
        self.table(kind).values().filter(move |row| self.sees(kind, row))
    }

    /// Swaps the current state with an older one.
    fn swap(&mut self, before: &mut Before) {
        std::mem::swap(&mut self.tables, &mut before.tables);
        std::mem::swap(&mut self.pending, &mut before.pending);
        std::mem::swap(&mut self.failing, &mut before.failing);
    }

    /// Whether the caller's project has reached the quota of a kind.
    pub fn full(&self, kind: &str) -> bool {
        self.lacks_room(kind, 1)
    }

    /// Whether the quota of a kind is too small for more objects of the caller's project.
    pub fn lacks_room(&self, kind: &str, more: usize) -> bool {
        let mine = || self.table(kind).values().filter(|row| row.text("project_id") == self.who.project).count();
        self.options.quotas.get(kind).is_some_and(|most| more > 0 && mine() + more > *most)
    }
}

impl Simulated for World {
    type Options = Options;

    const SHOWS: &'static [&'static str] = &["/resources"];
    const INVALID: &'static str = "BadRequest";
    const BROKEN: &'static str = "Fault";

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
        while !self.frozen
            && let Some(entry) = self.pending.first_entry()
            && entry.key().0 <= now
        {
            let id = entry.remove();
            octavia::settle(self, &id);
        }
        now
    }

    /// All resources by kind.
    fn show(&self, _: &str) -> Option<Value> {
        Some(self.resources())
    }
}

impl Rest for World {
    fn routes() -> &'static [Route<Self>] {
        routes::ROUTES
    }

    fn authenticate(&mut self, call: &Call) -> Result<String, Problem> {
        self.who = Who::default();
        if routes::is_open(call.action) {
            return Ok(String::new());
        }
        self.who = self.identity.who(call.header("x-auth-token"), self.clock.now()).ok_or_else(unauthorized)?;
        Ok(self.who.user.clone())
    }

    fn run(&mut self, route: &Route<Self>, call: &Call) -> Result<Reply, Problem> {
        let (now, late) = (self.now(), self.options.stale_reads);
        self.past.forget(now, late);
        if call.service == "identity" || call.mutating {
            if call.service != "identity" && !late.is_zero() {
                let (tables, pending) = (self.tables.clone(), self.pending.clone());
                self.past.keep(now, Before { tables, pending, failing: self.failing });
            }
            let reply = (route.run)(self, call);
            self.spoiled = false;
            return reply;
        }
        let mut past = std::mem::take(&mut self.past);
        let reply = match past.shown() {
            Some(before) => {
                self.swap(before);
                self.settle();
                let reply = (route.run)(self, call);
                self.swap(before);
                reply
            }
            None => (route.run)(self, call),
        };
        self.past = past;
        reply
    }

    fn lost(&self, request: &Request, lost: Lost) -> (&'static str, Reply) {
        routes::lost(request, lost)
    }

    fn injected(&mut self, call: &Call, fault: &Fault) -> Reply {
        let retry = |mut reply: Reply| {
            reply.headers.push(("retry-after", self.options.retry_after.to_string()));
            reply
        };
        match fault {
            Fault::Html { status } => {
                let body = "<html>\r\n<head><title>Error</title></head>\r\n<body><center><h1>Error</h1></center></body>\r\n</html>\r\n";
                Reply { status: *status, body: body.into(), kind: "text/html", ..Reply::default() }
            }
            Fault::Code { status, code, message } => {
                let reply = self.render(call.service, &Problem::new(*status, code, message.as_str()));
                if matches!(status, 413 | 429 | 503) { retry(reply) } else { reply }
            }
            // unverified: rate limits are applied in front of the services, if there are any.
            Fault::Throttle => {
                let status = if call.service == "load-balancer" { 503 } else { 429 };
                retry(self.render(call.service, &Problem::new(status, "OverLimit", "This request was rate-limited.")))
            }
            Fault::ExpiredCredentials => self.render(call.service, &unauthorized()),
            Fault::Deny => self.render(call.service, &routes::denied(call)),
            _ => Reply::empty(500),
        }
    }

    /// The load balancer of the change shows ERROR afterwards.
    fn will_fail(&mut self, call: &Call, _: &Fault) -> bool {
        let is_late = call.service == "load-balancer" && call.mutating;
        self.spoiled = is_late;
        is_late
    }

    fn render(&self, service: &str, problem: &Problem) -> Reply {
        routes::render(service, problem, &self.url)
    }

    fn finish(&mut self, call: &Call, reply: &mut Reply, _violations: &mut Vec<String>) {
        let id = format!("req-{}", self.uuid());
        reply.headers.push(("x-openstack-request-id", id));
        if call.service == "compute" {
            super::nova::version_headers(self, call, reply);
        }
    }

    fn params(&self, call: &Call) -> String {
        let query: Vec<String> = call.query.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let ids = call.ids.iter().map(|id| format!("id={id}"));
        let text: String = ids.chain(query).collect::<Vec<String>>().join("&");
        // Logins contain secrets.
        let body = if call.service == "identity" { "" } else { std::str::from_utf8(&call.body).unwrap_or_default() };
        if body.is_empty() { text } else { format!("{text}&body={body}") }
    }
}

/// The error for a missing, invalid or expired token.
pub(super) fn unauthorized() -> Problem {
    Problem::new(401, "Unauthorized", "The request you have made requires authentication.")
}

/// The end of a period that begins now.
pub(super) fn ends(world: &World, after: Duration) -> Timestamp {
    later(world.now(), after)
}
