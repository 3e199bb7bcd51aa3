//! A case is a list of calls with their expected status; the answers of two clouds can be compared call by call.

use super::client::Client;
use crate::http::Answer;
use crate::values::{Values, fill, named, plain, save};
use serde_json::Value;
use std::collections::BTreeSet;

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

/// A call and the expected answer.
#[derive(Debug)]
pub(crate) struct Step {
    /// The call: `service METHOD /path?query`; `{name}` is replaced by a value.
    what: String,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
    status: u16,
    is: Vec<(&'static str, String)>,
    saves: Vec<(&'static str, &'static str)>,
    /// Whether the call intentionally violates the API.
    pub(crate) wrong: bool,
}

/// A new case.
pub(crate) fn case(name: &'static str) -> Case {
    Case { name, steps: Vec::new() }
}

impl Case {
    /// Adds a call without a body, and the expected status.
    pub(crate) fn call(mut self, what: &str, status: u16) -> Self {
        let (headers, is, saves) = (Vec::new(), Vec::new(), Vec::new());
        self.steps.push(Step { what: what.to_owned(), headers, body: String::new(), status, is, saves, wrong: false });
        self
    }

    /// Adds a call with a body.
    pub(crate) fn send(self, what: &str, body: &Value, status: u16) -> Self {
        let mut case = self.call(what, status);
        case.last().body = body.to_string();
        case
    }

    /// Adds a call that violates the API.
    pub(crate) fn wrong(self, what: &str, body: &Value, status: u16) -> Self {
        let mut case = self.send(what, body, status);
        if body.is_null() {
            case.last().body = String::new();
        }
        case.last().wrong = true;
        case
    }

    /// Waits until a load balancer has no pending change.
    pub(crate) fn wait(self, balancer: &str) -> Self {
        self.call(&format!("wait {balancer}"), 0)
    }

    fn last(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a step")
    }

    /// Adds a header to the last call.
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.last().headers.push((name, value));
        self
    }

    /// Expects this value at a pointer of the last answer; `{name}` is replaced by a value.
    pub(crate) fn is(mut self, pointer: &'static str, text: &str) -> Self {
        self.last().is.push((pointer, text.to_owned()));
        self
    }

    /// Saves the value at a pointer.
    pub(crate) fn save(mut self, name: &'static str, pointer: &'static str) -> Self {
        self.last().saves.push((name, pointer));
        self
    }

    /// Runs the case, with a pause between two reads of a load balancer. Returns the answers, and a line for each
    /// difference from the expected ones.
    pub(crate) fn run(
        &self,
        client: &Client,
        values: &mut Values,
        pause: &dyn Fn(),
        mut after: impl FnMut(&Step) -> Vec<String>,
    ) -> (Vec<Answer>, Vec<String>) {
        let (mut answers, mut found) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let what = fill(&step.what, values);
            let answer = match what.strip_prefix("wait ") {
                Some(balancer) => wait(client, balancer, pause),
                None => client.call(&what, &step.headers, &fill(&step.body, values)),
            };
            let mut say = |text: String| found.push(named(&format!("{}: {}: {text}", self.name, step.what), values));
            if answer.status != step.status && step.status != 0 {
                say(format!("{} instead of {}: {}", answer.status, step.status, answer.text));
            }
            for (pointer, wanted) in &step.is {
                let wanted = fill(wanted, values);
                let is = answer.json.pointer(pointer).map(plain).unwrap_or("absent".to_owned());
                if is != wanted {
                    say(format!("{pointer} is {is}, not {wanted}"));
                }
            }
            for line in after(step) {
                say(line);
            }
            save(&step.saves, &answer.json, values);
            answers.push(answer);
        }
        (answers, found)
    }
}

fn wait(client: &Client, balancer: &str, pause: &dyn Fn()) -> Answer {
    for _ in 0..300 {
        let answer = client.call(&format!("load-balancer GET /loadbalancers/{balancer}"), &[], "");
        let status = answer.json.pointer("/loadbalancer/provisioning_status").map(plain).unwrap_or_default();
        if !status.starts_with("PENDING") {
            return answer;
        }
        pause();
    }
    panic!("load balancer {balancer} does not get ready");
}

/// The structure of an answer: its fields, each with the type of its value.
fn shape(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| shape(value, &format!("{path}.{name}"), into)),
        Value::Array(items) => items.iter().for_each(|item| shape(item, &format!("{path}[]"), into)),
        Value::Null => {
            into.insert(format!("{path} null"));
        }
        Value::Bool(_) => {
            into.insert(format!("{path} bool"));
        }
        Value::Number(_) => {
            into.insert(format!("{path} number"));
        }
        Value::String(_) => {
            into.insert(format!("{path} string"));
        }
    }
}

/// The differences between the answers of a real cloud and of the simulation, a line each.
pub(crate) fn compare(case: &Case, real: (&[Answer], &Values), simulated: (&[Answer], &Values)) -> Vec<String> {
    let mut found = Vec::new();
    for ((step, real_answer), answer) in case.steps.iter().zip(real.0).zip(simulated.0) {
        let mut say = |text: String| found.push(format!("{}: {}: {text}", case.name, step.what));
        if real_answer.status != answer.status {
            say(format!("status {}, simulated {}", real_answer.status, answer.status));
        }
        if step.status >= 400 {
            let (theirs, ours) = (named(&message(real_answer), real.1), named(&message(answer), simulated.1));
            if theirs != ours {
                say(format!("says {theirs:?}, simulated {ours:?}"));
            }
        }
        let (mut theirs, mut ours) = (BTreeSet::new(), BTreeSet::new());
        shape(&real_answer.json, "", &mut theirs);
        shape(&answer.json, "", &mut ours);
        theirs.difference(&ours).for_each(|path| say(format!("has{path}")));
        ours.difference(&theirs).for_each(|path| say(format!("lacks{path}")));
        let kind = |answer: &Answer| answer.headers.get("content-type").cloned().unwrap_or_default();
        let (theirs, ours) = (kind(real_answer), kind(answer));
        let media = |kind: &str| kind.split(';').next().unwrap_or_default().to_owned();
        if !real_answer.text.is_empty() && media(&theirs) != media(&ours) {
            say(format!("is {theirs:?}, simulated {ours:?}"));
        }
    }
    found
}

/// The code and the text of an error, in any of the services' formats.
fn message(answer: &Answer) -> String {
    let at = |pointer: &str| answer.json.pointer(pointer).map(plain);
    let neutron =
        at("/NeutronError/message").map(|text| format!("{} {text}", at("/NeutronError/type").unwrap_or_default()));
    let others = [
        "/faultstring",
        "/error/message",
        "/description",
        "/badRequest/message",
        "/itemNotFound/message",
        "/computeFault/message",
        "/forbidden/message",
    ];
    neutron.or_else(|| others.iter().find_map(|pointer| at(pointer))).unwrap_or_else(|| answer.text.clone())
}
