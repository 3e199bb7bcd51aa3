//! Operations that go on after the answer to a write.
//!
//! The answer names the operation by `Azure-AsyncOperation` or `Location`; without either, the object itself shows it by
//! its provisioning state. An answer of 201 or 202 is not the end.

use ccm_kit::call::Failure;
use ccm_kit::http::Answer;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::refusal;
use super::id::{ArmId, same};

/// A write whose operation goes on. As text, it is the name of an operation of the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// The name of the write in metrics.
    pub(super) request: String,
    /// The object.
    pub(crate) id: ArmId,
    pub(super) watch: Watch,
}

/// Where the operation is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Watch {
    /// The URL of `Azure-AsyncOperation`.
    Operation(String),
    /// The URL of `Location`.
    Location(String),
    /// The object.
    Object,
}

/// The state of an operation.
#[derive(Debug, Clone)]
pub(crate) enum State<E> {
    Running,
    /// It has succeeded, or is not known any more.
    Done,
    Failed(E),
}

impl Pending {
    /// The operation of a write's answer; `None` if it has ended with the answer.
    pub(super) fn of(request: &str, id: &ArmId, is_deletion: bool, answer: &Answer) -> Option<Self> {
        let header = |name: &str| answer.headers.get(name)?.to_str().ok().filter(|url| !url.is_empty());
        let watch = match (header("azure-asyncoperation"), header("location")) {
            (Some(url), _) => Watch::Operation(url.to_owned()),
            (None, Some(url)) if answer.status == StatusCode::ACCEPTED.as_u16() => Watch::Location(url.to_owned()),
            _ if answer.status == StatusCode::ACCEPTED.as_u16() => Watch::Object,
            _ => {
                let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let state = provisioning_state(&body).unwrap_or("Succeeded");
                if is_deletion || ["Succeeded", "Failed", "Canceled"].iter().any(|end| same(state, end)) {
                    return None;
                }
                Watch::Object
            }
        };
        Some(Self { request: request.to_owned(), id: id.clone(), watch })
    }

    /// Reads the text of a pending write.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl std::fmt::Display for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", json!(self))
    }
}

pub(super) fn provisioning_state(object: &Value) -> Option<&str> {
    object.pointer("/properties/provisioningState").and_then(Value::as_str)
}

/// The state in the answer for an operation.
pub(super) fn of_operation(body: &Value) -> Result<State<Failure>, Failure> {
    let status = body.get("status").and_then(Value::as_str);
    let Some(status) = status else { return Err(super::failure::unreadable("an operation without a status")) };
    Ok(ended(status, refusal(body)))
}

/// The state of an object. One whose write `is_new` may not be visible yet; later it is gone, and nothing goes on.
pub(super) fn of_object(object: Option<&Value>, is_deletion: bool, is_new: bool) -> State<Failure> {
    match (object.map(|object| provisioning_state(object).unwrap_or("Succeeded")), is_deletion) {
        (None, false) if is_new => State::Running,
        (None, _) => State::Done,
        (Some(state), true) if same(state, "Succeeded") => State::Running,
        (Some(state), _) => ended(state, None),
    }
}

fn ended(status: &str, error: Option<(String, String)>) -> State<Failure> {
    if same(status, "Succeeded") {
        return State::Done;
    }
    if !same(status, "Failed") && !same(status, "Canceled") {
        return State::Running;
    }
    let (code, message) = error.unwrap_or_else(|| (status.to_owned(), "the operation has not succeeded".to_owned()));
    State::Failed(Failure { code, message, ..Failure::default() })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &Value) -> Answer {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        Answer { status, headers, body: Bytes::from(body.to_string()) }
    }

    fn watch(status: u16, headers: &[(&'static str, &'static str)], state: &str, is_deletion: bool) -> Option<Watch> {
        let id = ArmId::new("s", "g", "Microsoft.Network/loadBalancers", "lb");
        let body = json!({"properties": {"provisioningState": state}});
        let pending = Pending::of("load_balancers_delete", &id, is_deletion, &answer(status, headers, &body))?;
        assert_eq!(Pending::parse(&pending.to_string()), Some(pending.clone()));
        Some(pending.watch)
    }

    #[test]
    fn the_operation_goes_before_the_location() {
        let (operation, location) = (("azure-asyncoperation", "https://a/op"), ("location", "https://a/loc"));
        let of_operation = Some(Watch::Operation("https://a/op".to_owned()));
        assert_eq!(watch(200, &[operation], "Updating", false), of_operation);
        assert_eq!(watch(202, &[location, operation], "", true), of_operation);
        assert_eq!(watch(202, &[location], "", true), Some(Watch::Location("https://a/loc".to_owned())));
        assert_eq!(watch(201, &[location], "Succeeded", false), None);
        assert_eq!(watch(202, &[], "", true), Some(Watch::Object));
        assert_eq!(watch(201, &[], "Updating", false), Some(Watch::Object));
        assert_eq!(watch(200, &[], "succeeded", false), None);
        assert_eq!(watch(204, &[], "", true), None);
    }

    #[test]
    fn a_failed_operation_keeps_its_error() {
        let error = json!({"code": "Canceled", "message": "m", "details": [
            {"code": "CanceledAndSupersededDueToAnotherOperation", "message": "Operation A was canceled"}
        ]});
        let State::Failed(failure) = of_operation(&json!({"status": "Canceled", "error": error})).unwrap() else {
            panic!("it has failed")
        };
        assert_eq!(failure.code, super::super::operation::SUPERSEDED);
        assert!(failure.message.contains("Operation A was canceled"), "{}", failure.message);
        assert!(matches!(of_operation(&json!({"status": "InProgress"})), Ok(State::Running)));
        assert!(matches!(of_operation(&json!({"status": "succeeded"})), Ok(State::Done)));
        assert!(of_operation(&json!({})).is_err());
    }

    #[test]
    fn an_object_shows_its_operation() {
        let of = |state: &str| json!({"properties": {"provisioningState": state}});
        for is_new in [true, false] {
            assert!(matches!(of_object(Some(&of("Updating")), false, is_new), State::Running));
            assert!(matches!(of_object(Some(&of("Succeeded")), false, is_new), State::Done));
            assert!(matches!(of_object(Some(&of("Failed")), false, is_new), State::Failed(_)));
            assert!(matches!(of_object(Some(&of("Succeeded")), true, is_new), State::Running));
            assert!(matches!(of_object(None, true, is_new), State::Done));
        }
        assert!(matches!(of_object(None, false, true), State::Running));
        assert!(matches!(of_object(None, false, false), State::Done), "it was deleted meanwhile");
    }
}
