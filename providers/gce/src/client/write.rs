//! Writes as data, and waiting for their operations.
//!
//! Every write creates an operation, which may fail at its end. This module waits for all operations, with one rate
//! limit for the process: a wait call returns when the operation ends, or after about two minutes, and is then
//! repeated. A failed wait call says nothing about the operation, so it is repeated, too.

use std::time::Duration;

use ccm_kit::call::{ErrorKind, Failure};
use ccm_kit::http::{Answer, Query};
use ccm_kit::models;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::failure::names_policy;
use super::operation::{OPERATION_WAIT, ORGANIZATION_POLICY, Operation, Verb};
use super::resource::{Collection, ResourceId, Scope};
use super::session::Message;
use super::{ApiError, Client, absence, unreadable};

/// The time limit of a write that is waited for; its operation continues.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The pause before a wait call is repeated; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
const DONE: &str = "DONE";
const OVERDUE: &str = "the operation has not ended in time and goes on; it is looked at again";

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    /// The verb and the kind of object; determines the project, the path and the metric.
    pub(crate) operation: Operation,
    pub(crate) scope: Scope,
    /// The name of the object; added to the body of an insertion.
    pub(crate) name: String,
    pub(crate) body: Option<Value>,
}

impl Write {
    /// A write without a body.
    pub(crate) fn new(operation: Operation, scope: Scope, name: impl Into<String>) -> Self {
        Self { operation, scope, name: name.into(), body: None }
    }

    #[must_use]
    pub(crate) fn body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }
}

/// `firewall_create global/firewalls/k8s-fw-x`
impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = ccm_kit::call::Operation::name(&self.operation);
        write!(f, "{operation} {}{}/{}", self.scope, self.operation.collection.as_str(), self.name)
    }
}

models! {
    /// A Compute Engine operation.
    #[serde(rename_all = "camelCase")]
    struct Pending {
        name: String,
        self_link: String,
        status: String,
        error: Errors,
        http_error_status_code: Option<u16>,
    }

    struct Errors {
        errors: Vec<OperationError>,
    }

    struct OperationError {
        code: String,
        message: String,
    }
}

impl Pending {
    /// The operation of an answer.
    fn read(answer: &Answer) -> Result<Self, Failure> {
        let read: Self = answer.json()?;
        match read.status.is_empty() || read.name.is_empty() {
            true => Err(unreadable("the answer is not an operation".to_owned())),
            false => Ok(read),
        }
    }

    /// The failure of the operation, if any.
    fn failure(&self) -> Option<Failure> {
        let status = self.http_error_status_code.filter(|status| *status >= 400);
        let Some(error) = self.error.errors.first() else {
            let code = status?.to_string();
            return Some(Failure { status, code, message: "the operation failed".to_owned(), ..Failure::default() });
        };
        let code = if names_policy(&error.message) { ORGANIZATION_POLICY } else { &*error.code };
        Some(Failure { status, code: code.to_owned(), message: error.message.clone(), ..Failure::default() })
    }
}

/// A write whose operation goes on.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) write: Write,
    pending: Pending,
    began: Instant,
}

impl Sent {
    /// The time since the write began.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Identifies the operation.
    pub(crate) fn key(&self) -> &str {
        if self.pending.self_link.is_empty() { &self.pending.name } else { &self.pending.self_link }
    }
}

impl Client {
    /// Sends a write and returns after its operation has ended. Deleting an object that does not exist is a success. One
    /// that does not end in time continues.
    pub(crate) async fn write(&self, write: &Write) -> Result<(), ApiError> {
        let limit = Instant::now() + self.write_limit;
        let Some(mut sent) = self.begin(write).await? else { return Ok(()) };
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = Instant::now();
            let Some(went_on) = self.look(&mut sent, true).await else { return self.ended(&sent) };
            match went_on {
                Ok(()) if Instant::now() >= limit => return Err(self.unknown(&sent, OVERDUE.to_owned())),
                Ok(()) => {}
                Err(error) if is_passing(&error) && Instant::now() < limit => {
                    tracing::warn!(%error, write = %sent.write, "the operation is looked at again");
                }
                Err(error) => {
                    let (name, message) = (&sent.pending.name, &error.message);
                    return Err(self.unknown(&sent, format!("what became of operation {name} is not known: {message}")));
                }
            }
            // When the API is overloaded, it answers at once that the operation goes on.
            tokio::time::sleep_until(limit.min(asked + pause)).await;
            pause = LONGEST_PAUSE.min(pause.saturating_mul(2));
        }
    }

    fn unknown(&self, sent: &Sent, why: String) -> ApiError {
        self.metrics.request(sent.write.operation, &sent.write.scope, false, sent.began.elapsed());
        ApiError::of_kind(sent.write.operation, ErrorKind::NoAnswer, why)
    }

    /// Sends a write; `None` if it is done already.
    pub(crate) async fn begin(&self, write: &Write) -> Result<Option<Sent>, ApiError> {
        let (operation, began) = (write.operation, Instant::now());
        let mut body = write.body.clone();
        if operation.verb == Verb::Insert
            && let Value::Object(fields) = body.get_or_insert_with(|| Value::Object(serde_json::Map::new()))
        {
            fields.insert("name".to_owned(), Value::String(write.name.clone()));
        }
        // A repeated request has the same ID: the API then answers with the operation of the first.
        let query = Query::default().with("requestId", &uuid::Uuid::new_v4().to_string());
        let path = format!("{}{query}", self.path(operation, &write.scope, &write.name));
        let message = Message { method: operation.verb.method(), url: self.url(&path), body, is_long: false };
        let send = || async { Pending::read(&self.session.send(&message).await?) };
        let sent = match self.caller.call(operation, send).await {
            Ok(pending) => Sent { write: write.clone(), pending, began },
            Err(error) => return self.done(write, began, Err(error)).map(|()| None),
        };
        match &*sent.pending.status {
            DONE => self.ended(&sent).map(|()| None),
            _ => Ok(Some(sent)),
        }
    }

    /// Waits for the operation of a write, for about two minutes at most. `None`: it has ended.
    pub(crate) async fn look(&self, sent: &mut Sent, waits: bool) -> Option<Result<(), ApiError>> {
        if sent.pending.status == DONE {
            return None;
        }
        match self.looked(&sent.write, &sent.pending, waits).await {
            Ok(answer) => sent.pending = answer,
            Err(error) => return Some(Err(error)),
        }
        (sent.pending.status != DONE).then_some(Ok(()))
    }

    /// The result of a write whose operation has ended.
    pub(crate) fn ended(&self, sent: &Sent) -> Result<(), ApiError> {
        let failure = sent.pending.failure();
        let result = failure.map_or(Ok(()), |failure| Err(ApiError::new(sent.write.operation, failure)));
        self.done(&sent.write, sent.began, result)
    }

    fn done(&self, write: &Write, began: Instant, result: Result<(), ApiError>) -> Result<(), ApiError> {
        let done = match result {
            Err(error) if write.operation.is_deletion() && absence(&error, &write.name) => Ok(()),
            done => done,
        };
        self.metrics.request(write.operation, &write.scope, done.is_ok(), began.elapsed());
        done
    }

    async fn looked(&self, write: &Write, pending: &Pending, waits: bool) -> Result<Pending, ApiError> {
        // Project and scope come from the operation, not from the configuration.
        let id =
            ResourceId::parse(&pending.self_link).filter(|id| id.project.is_some()).unwrap_or_else(|| ResourceId {
                project: Some(self.links.project_of(write.operation.collection).to_owned()),
                scope: write.scope.clone(),
                collection: Collection::Operations.as_str().to_owned(),
                name: pending.name.clone(),
            });
        let read = Message { method: Method::GET, url: self.url(&id.to_string()), body: None, is_long: false };
        let wait = Message {
            method: OPERATION_WAIT.verb.method(),
            url: self.url(&format!("{id}/wait")),
            body: None,
            is_long: true,
        };
        let send = || async {
            let answer = match self.session.send(if waits { &wait } else { &read }).await {
                Err(failure) if waits && is_of_proxy(&failure) => self.session.send(&read).await,
                answer => answer,
            };
            Pending::read(&answer?)
        };
        self.waiting.call(OPERATION_WAIT, send).await
    }
}

/// Whether a proxy has refused a call: some pass no POST without a body. The API names a reason.
fn is_of_proxy(failure: &Failure) -> bool {
    let is_refusal = |status: &u16| (400..500).contains(status) && *status != 429;
    let status = failure.status.filter(is_refusal);
    status.is_some_and(|status| failure.code.is_empty() || failure.code == status.to_string())
}

/// Whether a failed look says nothing about the operation.
pub(crate) fn is_passing(error: &ApiError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NoAnswer | ErrorKind::NotSent | ErrorKind::Throttled { .. } | ErrorKind::Credentials
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_in_an_operation_is_what_is_missing() {
        let error = serde_json::json!({"errors": [{"code": "QUOTA_EXCEEDED", "message": null}]});
        for (error, code) in [(serde_json::json!({"errors": null}), None), (error, Some("QUOTA_EXCEEDED"))] {
            let pending = serde_json::json!({
                "name": "o", "selfLink": null, "status": DONE, "error": error, "httpErrorStatusCode": null,
            });
            let pending: Pending = serde_json::from_value(pending).unwrap();
            assert_eq!(pending.failure().map(|failure| failure.code).as_deref(), code);
        }
    }
}
