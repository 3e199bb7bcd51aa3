//! Writes as data, and waiting for their operations.
//!
//! Every write creates an operation, which may fail at its end. This module waits for all operations, with one rate
//! limit for the process: a wait call returns when the operation ends, or after about two minutes, and is then
//! repeated. A failed wait call says nothing about the operation, so it is repeated, too.

use std::time::Duration;

use ccm_kit::call::{ErrorKind, Failure};
use ccm_kit::http::{Query, null};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::failure::names_policy;
use super::operation::{OPERATION_WAIT, ORGANIZATION_POLICY, Operation, Verb};
use super::resource::{Collection, ResourceId, Scope};
use super::session::Message;
use super::{ApiError, Client, absence};

/// The time limit of a write; its operation continues.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The pause before a failed wait call is repeated; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
const DONE: &str = "DONE";

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

/// A Compute Engine operation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Pending {
    name: String,
    self_link: String,
    status: String,
    #[serde(deserialize_with = "null")]
    error: Errors,
    http_error_status_code: Option<u16>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Errors {
    errors: Vec<OperationError>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct OperationError {
    code: String,
    message: String,
}

impl Pending {
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

impl Client {
    /// Sends a write and returns after its operation has ended. Deleting an object that does not exist is a success.
    ///
    /// # Errors
    ///
    /// The write was refused, its operation failed, or it did not end in time and continues.
    pub(crate) async fn write(&self, write: &Write) -> Result<(), ApiError> {
        let start = Instant::now();
        let done = self.carried_out(write).await;
        let done = match done {
            Err(error) if write.operation.is_deletion() && absence(&error, &write.name) => Ok(()),
            done => done,
        };
        self.metrics.request(write.operation, &write.scope, done.is_ok(), start.elapsed());
        done
    }

    async fn carried_out(&self, write: &Write) -> Result<(), ApiError> {
        let operation = write.operation;
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
        let send = || async { self.session.send(&message).await?.json::<Pending>() };
        let pending = self.caller.call(operation, send).await?;
        self.ended(write, pending).await
    }

    /// Waits until an operation has ended.
    async fn ended(&self, write: &Write, mut pending: Pending) -> Result<(), ApiError> {
        let (operation, limit) = (write.operation, Instant::now() + self.write_limit);
        let mut pause = FIRST_PAUSE;
        loop {
            if pending.status == DONE {
                return pending.failure().map_or(Ok(()), |failure| Err(ApiError::new(operation, failure)));
            }
            let why = match self.waited(write, &pending).await {
                Ok(answer) => {
                    pause = FIRST_PAUSE;
                    pending = answer;
                    continue_reason(limit)
                }
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, %write, "the operation is looked at again");
                    tokio::time::sleep_until(limit.min(Instant::now() + pause)).await;
                    pause = LONGEST_PAUSE.min(pause.saturating_mul(2));
                    continue_reason(limit)
                }
                Err(error) => {
                    Some(format!("what became of operation {} is not known: {}", pending.name, error.message))
                }
            };
            if let Some(why) = why {
                return Err(ApiError::of_kind(operation, ErrorKind::NoAnswer, why));
            }
        }
    }

    async fn waited(&self, write: &Write, pending: &Pending) -> Result<Pending, ApiError> {
        // Project and scope come from the operation, not from the configuration.
        let id =
            ResourceId::parse(&pending.self_link).filter(|id| id.project.is_some()).unwrap_or_else(|| ResourceId {
                project: Some(self.links.project_of(write.operation.collection).to_owned()),
                scope: write.scope.clone(),
                collection: Collection::Operations.as_str().to_owned(),
                name: pending.name.clone(),
            });
        let url = self.url(&format!("{id}/wait"));
        let message = Message { method: OPERATION_WAIT.verb.method(), url, body: None, is_long: true };
        let send = || async { self.session.send(&message).await?.json::<Pending>() };
        self.waiting.call(OPERATION_WAIT, send).await
    }
}

/// The reason to stop waiting, if the limit has passed.
fn continue_reason(limit: Instant) -> Option<String> {
    (Instant::now() >= limit)
        .then(|| "the operation has not ended in time and goes on; it is looked at again".to_owned())
}

fn is_passing(error: &ApiError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NoAnswer | ErrorKind::NotSent | ErrorKind::Throttled { .. } | ErrorKind::Credentials
    )
}
