//! A case is a list of calls of a JSON API with their expected answers. Our own client and the vendor's official one
//! send them, and wait for the operations of writes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::values::{Values, filled, save};

/// A case; it starts with the fixture of its cloud.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Step {
    /// The group of operations in the official client, and the verb: `forwardingRules.insert`, `load_balancers.put`.
    pub(crate) call: &'static str,
    /// Its object, in the form of the cloud; `{name}` is replaced by a value, here and in the body.
    pub(crate) target: String,
    pub(crate) body: Value,
    problem: String,
    is: Vec<(&'static str, Value)>,
    pub(crate) saves: Vec<(&'static str, &'static str)>,
    /// Whether the call intentionally violates the API: an official client may refuse to send it.
    pub(crate) wrong: bool,
}

/// The answer that a client received; for a write, after its operation.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    /// Empty for a success.
    pub(crate) problem: String,
    pub(crate) json: Value,
}

/// A new case.
pub(crate) fn case(name: &'static str) -> Case {
    Case { name, steps: Vec::new() }
}

impl Case {
    /// Adds a call that must succeed.
    pub(crate) fn call(self, call: &'static str, target: &str) -> Self {
        self.send(call, target, Value::Null)
    }

    /// Adds a call with a body that must succeed.
    pub(crate) fn send(mut self, call: &'static str, target: &str, body: Value) -> Self {
        let (target, problem, is, saves) = (target.to_owned(), String::new(), Vec::new(), Vec::new());
        self.steps.push(Step { call, target, body, problem, is, saves, wrong: false });
        self
    }

    fn last(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a step")
    }

    /// Expects that the last call is refused with this code.
    pub(crate) fn refused(mut self, code: &str) -> Self {
        self.last().problem = code.to_owned();
        self
    }

    /// Expects that the last call is refused with this status and reason.
    pub(crate) fn fails(self, status: u16, reason: &str) -> Self {
        self.refused(&format!("{status} {reason}"))
    }

    /// Marks the last call as a violation of the API.
    pub(crate) fn wrong(mut self) -> Self {
        self.last().wrong = true;
        self
    }

    /// Expects this value at a pointer of the last answer; null: no value.
    pub(crate) fn is(mut self, pointer: &'static str, value: impl Into<Value>) -> Self {
        self.last().is.push((pointer, value.into()));
        self
    }

    /// Saves the value at a pointer of the last answer.
    pub(crate) fn save(mut self, name: &'static str, pointer: &'static str) -> Self {
        self.last().saves.push((name, pointer));
        self
    }

    /// A line for each difference between the expected and the received answers.
    pub(crate) fn judge(&self, got: &[Got]) -> Vec<String> {
        let (mut found, mut values) = (Vec::new(), Values::new());
        if got.len() != self.steps.len() {
            found.push(format!("{}: {} answers to {} calls", self.name, got.len(), self.steps.len()));
        }
        for (number, (step, got)) in self.steps.iter().zip(got).enumerate() {
            let mut say = |text: String| found.push(format!("{}: {} {}: {text}", self.name, number + 1, step.call));
            if got.problem != step.problem {
                let shown: String = got.json.to_string().chars().take(300).collect();
                say(format!("{:?} instead of {:?}: {shown}", got.problem, step.problem));
            }
            for (pointer, wanted) in &step.is {
                let wanted = filled(wanted, &values);
                let is = got.json.pointer(pointer).cloned().unwrap_or_default();
                if is != wanted {
                    say(format!("{pointer} is {is}, not {wanted}"));
                }
            }
            save(&step.saves, &got.json, &mut values);
        }
        found
    }
}

/// Sends cases with a script for the official client, in the Python environment of this folder; returns its answers.
pub(crate) fn drive<T: DeserializeOwned>(folder: &Path, script: &str, input: &Value) -> T {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(script);
    let mut python = Command::new(folder.join("bin/python"));
    let mut child = python.arg("-B").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python");
    child.stdin.take().expect("a pipe").write_all(input.to_string().as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).expect("answers")
}
