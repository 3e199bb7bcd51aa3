//! A case is a list of API calls with their expected answers. The runner waits for the operations of writes.

use crate::values::{Values, fill, save};
use serde_json::{Value, json};

/// A case; it starts with the fixture.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Step {
    /// The method: `forwardingRules.insert`.
    pub(crate) method: &'static str,
    /// The parameters in path and query, except the project; `{name}` is replaced by a value, here and in the body.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) body: Value,
    status: u16,
    reason: &'static str,
    is: Vec<(&'static str, Value)>,
    pub(crate) saves: Vec<(&'static str, &'static str)>,
    /// Whether the call intentionally violates the API: an official client may refuse to send it.
    pub(crate) wrong: bool,
}

/// The answer that a client received; for a write, the finished operation.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) json: Value,
}

/// A new case.
pub(crate) fn case(name: &'static str) -> Case {
    Case { name, steps: Vec::new() }
}

impl Case {
    /// Adds a call that must succeed; the parameters are written as in a query.
    pub(crate) fn call(mut self, method: &'static str, parameters: &str) -> Self {
        let pairs = parameters.split('&').filter_map(|pair| pair.split_once('='));
        let parameters = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (is, saves) = (Vec::new(), Vec::new());
        let body = Value::Null;
        self.steps.push(Step { method, parameters, body, status: 200, reason: "", is, saves, wrong: false });
        self
    }

    /// Adds a call with a body that must succeed.
    pub(crate) fn send(self, method: &'static str, parameters: &str, body: Value) -> Self {
        let mut case = self.call(method, parameters);
        case.last().body = body;
        case
    }

    fn last(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a step")
    }

    /// Expects that the last call is rejected with this status and reason.
    pub(crate) fn fails(mut self, status: u16, reason: &'static str) -> Self {
        (self.last().status, self.last().reason) = (status, reason);
        self
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

    /// Returns a line for each difference between the expected and the received answers.
    pub(crate) fn judge(&self, got: &[Got]) -> Vec<String> {
        let mut found = Vec::new();
        let mut values = Values::new();
        if got.len() != self.steps.len() {
            found.push(format!("{}: {} answers to {} calls", self.name, got.len(), self.steps.len()));
        }
        for (number, (step, got)) in self.steps.iter().zip(got).enumerate() {
            let mut say = |text: String| found.push(format!("{}: {} {}: {text}", self.name, number + 1, step.method));
            let reason = got.json.pointer("/error/errors/0/reason").and_then(Value::as_str).unwrap_or_default();
            if (got.status, reason) != (step.status, step.reason) {
                let (shown, wanted): (String, _) = (got.json.to_string().chars().take(300).collect(), step.status);
                say(format!("{} {reason} instead of {wanted} {}: {shown}", got.status, step.reason));
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

impl Step {
    /// The step as JSON for another program.
    pub(crate) fn json(&self) -> Value {
        json!({
            "method": self.method, "parameters": self.parameters, "body": self.body, "saves": self.saves, "wrong": self.wrong,
        })
    }
}

/// A JSON value whose strings are filled in with the named values.
pub(crate) fn filled(value: &Value, values: &Values) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, values)),
        Value::Array(items) => items.iter().map(|item| filled(item, values)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), filled(value, values))).collect())
        }
        other => other.clone(),
    }
}
