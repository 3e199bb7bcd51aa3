//! The HTTP endpoint of a cloud with JSON over REST: admits, delays, fails and books calls around the routes.

use super::clock::Clock;
use super::faults::{Fault, Faults, Seen};
use super::latency::Latency;
use super::ledger::{Entry, Ledger};
use super::lock;
use super::rest::{Call, Lost, Problem, Reply, Route, find};
use super::server::{Answer, Handler, Request};
use super::throttle::{BucketSpec, Throttle};
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How much of a call's parameters the ledger keeps, bytes.
const SUMMARY: usize = 400;

/// What a cloud adds to the endpoint.
pub trait Cloud: Send + Sized + 'static {
    /// Its routes.
    fn routes() -> &'static [Route<Self>];
    /// Lets everything happen that is due, and returns the time.
    fn settle(&mut self) -> Timestamp;
    /// Latency of its calls.
    fn latency(&self) -> &Latency;
    /// Who calls, for the ledger, and whether the call may go on.
    ///
    /// # Errors
    /// The caller is not known (any more).
    fn authenticate(&mut self, call: &Call) -> Result<String, Problem>;
    /// Carries a call out: a read perhaps on an older state.
    ///
    /// # Errors
    /// As the service answers them.
    fn run(&mut self, route: &Route<Self>, call: &Call) -> Result<Reply, Problem> {
        (route.run)(self, call)
    }
    /// What no route takes: the service that answers, and how.
    fn lost(&self, request: &Request, lost: Lost) -> (&'static str, Reply);
    /// An injected error, or one of a throttle.
    fn injected(&mut self, call: &Call, fault: &Fault) -> Reply;
    /// Its clock.
    fn clock(&self) -> &Clock;
    /// Until when a call is to be held back that came at a time; asked again whenever that time has come.
    fn held(&self, _call: &Call, _arrived: Timestamp) -> Option<Timestamp> {
        None
    }
    /// An error in the form of a service.
    fn render(&self, service: &str, problem: &Problem) -> Reply;
    /// Headers that each answer has.
    fn finish(&mut self, call: &Call, reply: &mut Reply);
    /// Parameters for the ledger and for faults, without secrets.
    fn params(&self, call: &Call) -> String;
}

/// Everything behind the endpoint.
#[derive(Debug)]
pub struct Inside<C> {
    pub cloud: C,
    pub faults: Faults,
    /// Calls so far.
    pub ledger: Ledger,
    /// What callers did wrong, one line each.
    pub violations: Vec<String>,
    throttle: Throttle,
}

impl<C: Cloud> Inside<C> {
    /// A cloud with nothing in its ledger.
    pub fn new(cloud: C, seed: u64, ledger_entries: usize, throttle: &[BucketSpec]) -> Self {
        Inside {
            cloud,
            faults: Faults::new(seed),
            ledger: Ledger::new(ledger_entries),
            violations: Vec::new(),
            throttle: Throttle::new(throttle),
        }
    }

    /// Replaces the throttles.
    pub fn set_throttle(&mut self, throttle: &[BucketSpec]) {
        self.throttle = Throttle::new(throttle);
    }
}

/// The endpoint.
#[derive(Debug)]
pub struct Endpoint<C> {
    pub inside: Mutex<Inside<C>>,
}

/// A call on its way.
struct Admitted<C: 'static> {
    route: &'static Route<C>,
    call: Call,
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
            let answer = self.finish(*admitted);
            pause(half).await;
            answer
        })
    }
}

impl<C: Cloud> Endpoint<C> {
    /// Finds the route of a request and what is to go wrong; what no route takes is answered at once.
    fn admit(&self, request: &Request) -> Result<Box<Admitted<C>>, Reply> {
        let mut inside = lock(&self.inside);
        let inside = &mut *inside;
        let mut entry = Entry {
            at: inside.cloud.settle(),
            user_agent: header(request, "user-agent"),
            bytes_in: u64::try_from(request.body().len()).unwrap_or(u64::MAX),
            ..Entry::default()
        };
        let (route, call) = match find(C::routes(), request) {
            Ok(found) => found,
            Err(lost) => {
                let (service, reply) = inside.cloud.lost(request, lost);
                let what = format!("{} {}", request.method(), request.uri());
                inside.violations.push(format!("{service}: no route takes {what}"));
                entry = Entry { service: service.to_owned(), params: what, status: reply.status, ..entry };
                inside.ledger.record(Entry { code: Some("lost".to_owned()), ..entry });
                return Err(reply);
            }
        };
        let params = inside.cloud.params(&call);
        entry.service = call.service.to_owned();
        entry.action = call.action.to_owned();
        entry.mutating = call.mutating;
        entry.continued = call.get("marker").or(call.get("pageToken")).is_some();
        let fault = if inside.throttle.admit(call.service, call.action, call.mutating, entry.at) {
            let Call { service, action, mutating, .. } = call;
            inside.faults.strike(Seen { service, action, mutating, params: &params })
        } else {
            Some(Fault::Throttle)
        };
        entry.fault = fault.as_ref().map(Fault::name);
        entry.params = cut(params);
        let latency = inside.cloud.latency().of(call.action, call.mutating);
        Ok(Box::new(Admitted { route, call, entry, latency, fault }))
    }

    /// Waits for as long as the cloud holds a call back. A clock that stands still is moved: nobody else would, in a test that
    /// waits for the answer.
    async fn hold(&self, admitted: &Admitted<C>) {
        loop {
            let left = {
                let inside = lock(&self.inside);
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
            // In parts, since others may move the clock.
            tokio::time::sleep(left.clamp(Duration::from_millis(1), Duration::from_millis(20))).await;
        }
    }

    /// Carries the call out, unless it is to fail, and books it.
    fn finish(&self, admitted: Admitted<C>) -> Answer {
        let Admitted { route, call, mut entry, fault, .. } = admitted;
        let mut inside = lock(&self.inside);
        let inside = &mut *inside;
        inside.cloud.settle();
        let mut reply = match &fault {
            Some(Fault::ResetBefore) => {
                inside.ledger.record(entry);
                return Answer::Reset;
            }
            Some(fault) if !fault.applies_effect() => {
                let reply = inside.cloud.injected(&call, fault);
                entry.code = Some(fault.name());
                reply
            }
            _ => carry_out(inside, route, &call, &mut entry),
        };
        inside.cloud.finish(&call, &mut reply);
        if fault == Some(Fault::UnknownElements) {
            add_unknown(&mut reply);
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

fn carry_out<C: Cloud>(inside: &mut Inside<C>, route: &Route<C>, call: &Call, entry: &mut Entry) -> Reply {
    let outcome = match inside.cloud.authenticate(call) {
        Ok(caller) => {
            entry.access_key = caller;
            inside.cloud.run(route, call)
        }
        Err(problem) => Err(problem),
    };
    let what = || format!("{}:{} {}", call.service, call.action, call.path);
    match outcome {
        Ok(reply) => {
            entry.applied = reply.status < 400;
            inside.violations.extend(reply.violation.as_ref().map(|text| format!("{}: {text}", what())));
            reply
        }
        Err(problem) => {
            if problem.violation {
                inside.violations.push(format!("{}: {} {}", what(), problem.status, problem.message));
            }
            let reply = inside.cloud.render(call.service, &problem);
            entry.code = Some(problem.code);
            reply
        }
    }
}

/// Adds a field that nobody knows to the outermost object.
fn add_unknown(reply: &mut Reply) {
    if reply.body.first() == Some(&b'{') {
        let tail = reply.body.split_off(1);
        let comma: &[u8] = if tail.first() == Some(&b'}') { b"" } else { b"," };
        reply.body = [b"{\"from_the_future\":[{\"flag\":true}]", comma, &tail].concat();
    }
}

fn cut(mut params: String) -> String {
    let end = (0..=SUMMARY.min(params.len())).rev().find(|end| params.is_char_boundary(*end)).unwrap_or(0);
    params.truncate(end);
    params
}

fn header(request: &Request, name: &str) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
