//! What cases have in the form of Compute Engine.

use crate::calls::{Got, Step};
use serde_json::{Value, json};

/// The parameters of a call in path and query, except the project, as they are written in a query.
pub(crate) fn parameters(step: &Step) -> Vec<(&str, &str)> {
    step.target.split('&').filter_map(|pair| pair.split_once('=')).collect()
}

/// A step as JSON for another program.
pub(crate) fn written(step: &Step) -> Value {
    let Step { call, body, saves, wrong, .. } = step;
    json!({"method": call, "parameters": parameters(step), "body": body, "saves": saves, "wrong": wrong})
}

/// An answer: its problem is the status and the reason.
pub(crate) fn got(status: u16, json: Value) -> Got {
    let reason = json.pointer("/error/errors/0/reason").and_then(Value::as_str).unwrap_or_default();
    let problem = if (status, reason) == (200, "") { String::new() } else { format!("{status} {reason}") };
    Got { problem, json }
}
