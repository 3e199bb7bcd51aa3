//! Connects a cloud with a JSON REST API to the endpoint: a route handles each call.

use super::endpoint::{Cloud, Simulated};
use super::faults::Fault;
use super::ledger::Entry;
use super::rest::{Call, Lost, Problem, Reply, Route, find};
use super::server::Request;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

/// The maximum length of a call's parameters in the ledger, in bytes.
const SUMMARY: usize = 400;

/// A cloud that is defined by routes.
pub trait Rest: Simulated {
    /// Whether paths are compared regardless of case.
    const CASELESS: bool = false;
    /// The routes of the cloud.
    fn routes() -> &'static [Route<Self>];
    /// Returns the caller, for the ledger, if the call is authorized.
    fn authenticate(&mut self, call: &Call) -> Result<String, Problem>;
    /// Executes a call; a read may see an older state.
    fn run(&mut self, route: &Route<Self>, call: &Call) -> Result<Reply, Problem> {
        (route.run)(self, call)
    }
    /// For a request without a matching route: the service that answers, and its answer.
    fn lost(&self, request: &Request, lost: Lost) -> (&'static str, Reply);
    /// The answer for an injected fault or a throttled call.
    fn injected(&mut self, call: &Call, fault: &Fault) -> Reply;
    /// See [`Cloud::will_fail`].
    fn will_fail(&mut self, _call: &Call, _fault: &Fault) -> bool {
        false
    }
    /// See [`Cloud::held`].
    fn held(&self, _call: &Call, _arrived: Timestamp) -> Option<Timestamp> {
        None
    }
    /// Renders an error in the format of a service.
    fn render(&self, service: &str, problem: &Problem) -> Reply;
    /// Adds the headers that every answer has.
    fn finish(&mut self, call: &Call, reply: &mut Reply, violations: &mut Vec<String>);
    /// The parameters for the ledger and for faults, without secrets.
    fn params(&self, call: &Call) -> String;
}

impl<C: Rest> Cloud for C {
    type Call = (&'static Route<C>, Call);

    fn read(
        &mut self,
        request: &Request,
        entry: &mut Entry,
        violations: &mut Vec<String>,
    ) -> Result<Self::Call, Reply> {
        let (route, call) = find(C::routes(), request, C::CASELESS).map_err(|lost| {
            let (service, reply) = self.lost(request, lost);
            entry.params = format!("{} {}", request.method(), request.uri());
            violations.push(format!("{service}: no route takes {}", entry.params));
            entry.service = service.to_owned();
            entry.code = Some("lost".to_owned());
            reply
        })?;
        entry.service = call.service.to_owned();
        entry.action = call.action.to_owned();
        entry.mutating = call.mutating;
        entry.continued = ["marker", "pageToken", "$skiptoken"].iter().any(|name| call.get(name).is_some());
        entry.params = cut(Rest::params(self, &call));
        Ok((route, call))
    }

    fn params(&self, (_, call): &Self::Call) -> String {
        Rest::params(self, call)
    }

    fn held(&self, (_, call): &Self::Call, arrived: Timestamp) -> Option<Timestamp> {
        Rest::held(self, call, arrived)
    }

    fn carry_out(&mut self, (route, call): &Self::Call, entry: &mut Entry, violations: &mut Vec<String>) -> Reply {
        let outcome = self.authenticate(call).and_then(|caller| {
            entry.access_key = caller;
            self.run(route, call)
        });
        let what = || format!("{}:{} {}", call.service, call.action, call.path);
        match outcome {
            Ok(reply) => {
                entry.applied = reply.status < 400;
                violations.extend(reply.violation.as_ref().map(|text| format!("{}: {text}", what())));
                reply
            }
            Err(problem) => {
                if problem.violation {
                    violations.push(format!("{}: {} {}", what(), problem.status, problem.message));
                }
                let reply = self.render(call.service, &problem);
                entry.code = Some(problem.code);
                reply
            }
        }
    }

    fn injected(&mut self, (_, call): &Self::Call, fault: &Fault, entry: &mut Entry) -> Reply {
        entry.code = Some(fault.name());
        Rest::injected(self, call, fault)
    }

    fn will_fail(&mut self, (_, call): &Self::Call, fault: &Fault) -> bool {
        Rest::will_fail(self, call, fault)
    }

    fn finish(&mut self, (_, call): &Self::Call, reply: &mut Reply, violations: &mut Vec<String>) {
        Rest::finish(self, call, reply, violations);
    }

    /// Adds an unknown field to the outermost object.
    fn add_unknown(reply: &mut Reply) {
        if reply.body.first() == Some(&b'{') {
            let tail = reply.body.split_off(1);
            let comma: &[u8] = if tail.first() == Some(&b'}') { b"" } else { b"," };
            reply.body = [b"{\"from_the_future\":[{\"flag\":true}]", comma, &tail].concat();
        }
    }
}

/// Executes a call directly, without the processing of the endpoint.
pub fn by_hand<C: Rest>(cloud: &mut C, method: &str, path: &str, body: &Value) -> Result<Value, Problem> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let wrong = |text: String| Problem::violation(400, "no call", text);
    let request = http::Request::builder().method(method).uri(path).body(body);
    let request = request.map_err(|error| wrong(error.to_string()))?;
    let (route, call) =
        find(C::routes(), &request, C::CASELESS).map_err(|lost| wrong(format!("{method} {path}: {lost:?}")))?;
    Ok(serde_json::from_slice(&(route.run)(cloud, &call)?.body).unwrap_or_default())
}

fn cut(mut params: String) -> String {
    let end = (0..=SUMMARY.min(params.len())).rev().find(|end| params.is_char_boundary(*end)).unwrap_or(0);
    params.truncate(end);
    params
}
