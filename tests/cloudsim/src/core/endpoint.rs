//! The HTTP endpoint of a cloud: throttles, delays, fails and records calls; the cloud executes them.

use super::clock::Clock;
use super::faults::{Fault, Faults, Seen};
use super::latency::Latency;
use super::ledger::{Entry, Ledger};
use super::rest::Reply;
use super::server::{Answer, Handler, Request};
use super::throttle::{BucketSpec, Throttle};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The part of a cloud that the endpoint needs.
pub trait Simulated: Send + Sized + 'static {
    /// The options of the cloud.
    type Options: Clone + Serialize + DeserializeOwned + Send;
    /// The path of its URL after the address.
    const PATH: &'static str = "";
    /// Additional paths of its admin API.
    const SHOWS: &'static [&'static str] = &[];
    /// The error code with status 400, for invalid calls.
    const INVALID: &'static str;
    /// The error code with status 500.
    const BROKEN: &'static str;
    fn options(&mut self) -> &mut Self::Options;
    fn throttle(options: &Self::Options) -> &[BucketSpec];
    /// The latency of its calls.
    fn latency(&self) -> &Latency;
    /// Applies changed options.
    fn changed(&mut self, _violations: &mut Vec<String>) {}
    /// Stores the URL of the endpoint.
    fn listens(&mut self, _url: String) {}
    fn clock(&self) -> &Clock;
    /// Executes everything that is due, and returns the time.
    fn settle(&mut self) -> Timestamp;
    /// The answer of the admin API at a path of [`Simulated::SHOWS`].
    fn show(&self, _path: &str) -> Option<Value> {
        None
    }
}

/// A cloud behind the endpoint.
pub trait Cloud: Simulated {
    /// A parsed call.
    type Call: Send + Sync;
    /// Parses a request and records it in the entry. A request that cannot be parsed is answered immediately.
    fn read(&mut self, request: &Request, entry: &mut Entry, violations: &mut Vec<String>)
    -> Result<Self::Call, Reply>;
    /// All parameters, for faults, without secrets.
    fn params(&self, call: &Self::Call) -> String;
    /// The time until which a call that arrived at `_arrived` is delayed; called again at that time.
    fn held(&self, _call: &Self::Call, _arrived: Timestamp) -> Option<Timestamp> {
        None
    }
    /// Executes a call, or records in the entry why not.
    fn carry_out(&mut self, call: &Self::Call, entry: &mut Entry, violations: &mut Vec<String>) -> Reply;
    /// The answer for an injected fault or a throttled call.
    fn injected(&mut self, call: &Self::Call, fault: &Fault, entry: &mut Entry) -> Reply;
    /// Lets the change that a call begins fail after the call was accepted. False if the answer to the call is an
    /// operation that fails: then [`Cloud::injected`] gives it.
    fn will_fail(&mut self, _call: &Self::Call, _fault: &Fault) -> bool {
        false
    }
    /// Adds the headers that every answer has.
    fn finish(&mut self, _call: &Self::Call, _reply: &mut Reply, _violations: &mut Vec<String>) {}
    /// Adds unknown elements to an answer.
    fn add_unknown(reply: &mut Reply);
}

/// The state behind the endpoint.
#[derive(Debug)]
pub struct Inside<C> {
    pub cloud: C,
    pub faults: Faults,
    /// The calls so far.
    pub ledger: Ledger,
    /// Violations of the API by callers, one line each.
    pub violations: Vec<String>,
    /// Names the objects that the parameters of a call refer to, for the watch.
    pub names: Option<Names<C>>,
    throttle: Throttle,
}

/// The names of the objects that the parameters of a call refer to.
pub struct Names<C>(pub NamesOf<C>);

type NamesOf<C> = Box<dyn Fn(&C, &str) -> String + Send>;

impl<C> std::fmt::Debug for Names<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Names")
    }
}

impl<C: Cloud> Inside<C> {
    /// A cloud with an empty ledger.
    pub fn new(mut cloud: C, ledger_entries: usize) -> Self {
        Inside {
            faults: Faults::default(),
            ledger: Ledger::new(ledger_entries),
            violations: Vec::new(),
            names: None,
            throttle: Throttle::new(C::throttle(cloud.options())),
            cloud,
        }
    }

    /// Changes the options. Token buckets whose options do not change keep their level.
    pub fn change(&mut self, change: impl FnOnce(&mut C::Options)) {
        let options = self.cloud.options();
        let before = C::throttle(options).to_vec();
        change(options);
        if C::throttle(options) != before {
            self.throttle = Throttle::new(C::throttle(options));
        }
        self.cloud.changed(&mut self.violations);
    }
}

/// The endpoint.
#[derive(Debug)]
pub struct Endpoint<C> {
    pub inside: Mutex<Inside<C>>,
}

/// A call in progress.
struct Admitted<C: Cloud> {
    call: C::Call,
    entry: Entry,
    latency: Duration,
    fault: Option<Fault>,
}

impl<C: Cloud> Handler for Endpoint<C> {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let admitted = match self.admit(&request) {
                Ok(admitted) => admitted,
                Err(reply) => return Answer::Reply(reply.response()),
            };
            let half = admitted.latency / 2;
            pause(half).await;
            if admitted.fault.as_ref().is_none_or(Fault::applies_effect) {
                self.hold(&admitted).await;
            }
            let hangs = admitted.fault == Some(Fault::Hang);
            let answer = self.finish(*admitted);
            if hangs {
                // The caller ends the connection.
                return std::future::pending().await;
            }
            pause(half).await;
            answer
        })
    }
}

impl<C: Cloud> Endpoint<C> {
    /// Parses a request and selects the fault for it.
    fn admit(&self, request: &Request) -> Result<Box<Admitted<C>>, Reply> {
        let mut inside = self.inside.lock();
        let inside = &mut *inside;
        let mut entry = Entry {
            at: inside.cloud.settle(),
            user_agent: header(request, "user-agent"),
            bytes_in: u64::try_from(request.body().len()).unwrap_or(u64::MAX),
            ..Entry::default()
        };
        let call = match inside.cloud.read(request, &mut entry, &mut inside.violations) {
            Ok(call) => call,
            Err(reply) => {
                entry.status = reply.status;
                inside.ledger.record(entry);
                return Err(reply);
            }
        };
        let Entry { service, action, mutating, .. } = &entry;
        let fault = if inside.throttle.admit(service, action, *mutating, entry.at) {
            let mut params = if inside.faults.reads_params() { inside.cloud.params(&call) } else { String::new() };
            if let Some(Names(names)) = inside.names.as_ref().filter(|_| inside.faults.is_watched()) {
                params += &names(&inside.cloud, &params);
            }
            let (mutating, continued) = (*mutating, entry.continued);
            inside.faults.strike(Seen { service, action, mutating, continued, params: &params })
        } else {
            Some(Fault::Throttle)
        };
        let latency = inside.cloud.latency().of(action, *mutating);
        entry.fault = fault.as_ref().map(Fault::name);
        Ok(Box::new(Admitted { call, entry, latency, fault }))
    }

    /// Waits while the cloud delays a call. Steps a stopped clock, because a test that waits for the answer cannot do
    /// so itself.
    async fn hold(&self, admitted: &Admitted<C>) {
        loop {
            let left = {
                let inside = self.inside.lock();
                let clock = inside.cloud.clock();
                let now = clock.now();
                let held = inside.cloud.held(&admitted.call, admitted.entry.at).filter(|until| *until > now);
                let Some(until) = held else { return };
                match clock.real_time_until(until) {
                    Some(left) => left,
                    None => {
                        clock.set(until);
                        continue;
                    }
                }
            };
            // In small intervals, because others may move the clock.
            tokio::time::sleep(left.clamp(Duration::from_millis(1), Duration::from_millis(20))).await;
        }
    }

    /// Executes the call, unless it must fail, and records it.
    fn finish(&self, admitted: Admitted<C>) -> Answer {
        let Admitted { call, mut entry, fault, .. } = admitted;
        let mut inside = self.inside.lock();
        let inside = &mut *inside;
        inside.cloud.settle();
        let mut reply = match &fault {
            Some(Fault::ResetBefore | Fault::Hang) => {
                inside.ledger.record(entry);
                return Answer::Reset;
            }
            Some(Fault::Status { status, body }) => {
                entry.code = fault.as_ref().map(Fault::name);
                Reply { status: *status, body: body.clone().into_bytes(), kind: "text/plain", ..Reply::default() }
            }
            Some(fault @ Fault::Operation { .. }) if inside.cloud.will_fail(&call, fault) => {
                inside.cloud.carry_out(&call, &mut entry, &mut inside.violations)
            }
            Some(fault) if !fault.applies_effect() => inside.cloud.injected(&call, fault, &mut entry),
            _ => inside.cloud.carry_out(&call, &mut entry, &mut inside.violations),
        };
        inside.cloud.finish(&call, &mut reply, &mut inside.violations);
        if fault == Some(Fault::UnknownElements) {
            C::add_unknown(&mut reply);
        }
        entry.items = reply.items;
        entry.status = if fault == Some(Fault::ResetAfter) { 0 } else { reply.status };
        let bytes = reply.body.len();
        let sent = match fault {
            Some(Fault::ResetAfter) => 0,
            Some(Fault::Truncate) => bytes / 2,
            _ => bytes,
        };
        entry.bytes_out = u64::try_from(sent).unwrap_or(u64::MAX);
        inside.ledger.record(entry);
        match fault {
            Some(Fault::ResetAfter) => Answer::Reset,
            Some(Fault::Truncate) => Answer::Cut(reply.response(), sent),
            _ => Answer::Reply(reply.response()),
        }
    }
}

fn header(request: &Request, name: &str) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
