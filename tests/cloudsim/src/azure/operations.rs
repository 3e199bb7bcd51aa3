//! Asynchronous operations: every write begins one, which ends later, fails, or is superseded by a later one.

use super::errors;
use super::ids::Id;
use super::json::{default, set, text};
use super::kinds::{self, Kind, Ref};
use super::pools;
use super::store::Row;
use super::world::World;
use crate::core::clock::later;
use crate::core::rest::{Call, Problem, Reply};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The parameters of the URL of an operation beside the version.
const SIGNATURE: &str = "c=c&h=h&s=s&t=t";

/// The error of an operation that another one superseded, and its detail.
const CANCELED: &str = "Operation was canceled.";
const SUPERSEDED: &str = "CanceledAndSupersededDueToAnotherOperation";

/// The number of operations that are kept.
const KEPT: usize = 20_000;

/// An operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `PutLoadBalancerOperation`.
    pub name: String,
    /// The resource.
    pub target: Id,
    /// The part of it that was written, if it was only one.
    part: Option<Id>,
    pub status: Status,
    /// The error of a failed or canceled operation.
    pub error: Value,
    /// The HTTP status of the error.
    error_status: u16,
    began: Timestamp,
    ends: Timestamp,
    deletes: bool,
    failure: Option<Problem>,
    /// References that the resource dropped; they hold until the end.
    released: Vec<Ref>,
    /// The subscription, provider and location in its URL.
    place: (String, String, String),
}

/// The status of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    InProgress,
    Succeeded,
    Failed,
    Canceled,
}

impl Status {
    fn text(self) -> &'static str {
        match self {
            Status::InProgress => "InProgress",
            Status::Succeeded => "Succeeded",
            Status::Failed => "Failed",
            Status::Canceled => "Canceled",
        }
    }
}

/// All operations.
#[derive(Debug, Default)]
pub struct Operations {
    all: BTreeMap<String, Operation>,
    order: VecDeque<String>,
    due: BTreeSet<(Timestamp, u64, String)>,
    /// The running operation of each lane.
    lanes: BTreeMap<String, String>,
    /// One line for each operation that a later one superseded.
    pub superseded: Vec<String>,
}

impl Operations {
    /// An operation by ID.
    pub fn get(&self, id: &str) -> Option<&Operation> {
        self.all.get(&id.to_lowercase())
    }

    /// Whether an operation is running on a resource or a part of it.
    pub fn running(&self, key: &str) -> bool {
        self.lanes.contains_key(key)
    }

    /// The operation wrote only a part of its resource.
    pub(super) fn of_part(&mut self, id: &str, part: Id) {
        if let Some(operation) = self.all.get_mut(id) {
            operation.part = Some(part);
        }
    }

    fn add(&mut self, id: &str, number: u64, operation: Operation) {
        self.lanes.insert(operation.target.key(), id.to_owned());
        self.due.insert((operation.ends, number, id.to_owned()));
        self.all.insert(id.to_owned(), operation);
        self.order.push_back(id.to_owned());
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    /// The end of the next operation.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(ends, ..)| *ends)
    }
}

/// The error of an operation that fails. One that was superseded is canceled.
pub(super) fn failure(status: u16, code: &str, message: &str) -> Problem {
    match code {
        SUPERSEDED => Problem { details: superseded(message), ..Problem::new(status, "Canceled", CANCELED) },
        _ => Problem::new(status, code, message),
    }
}

fn superseded(message: &str) -> Value {
    json!([{"code": SUPERSEDED, "message": message}])
}

/// What a write does.
pub(super) struct Write<'a> {
    pub(super) kind: &'static Kind,
    /// The resource that changes.
    pub(super) id: &'a Id,
    /// The name of the operation.
    pub(super) name: String,
    /// The new fields; `None`: it is deleted.
    pub(super) fields: Option<Value>,
}

fn has_succeeded(row: &Row) -> bool {
    text(&row.fields, "/properties/provisioningState") == "Succeeded"
}

impl World {
    /// Begins the operation of a write. The new fields are visible at once, with the state Updating.
    pub(super) fn begin_operation(&mut self, write: Write<'_>) -> String {
        let Write { kind, id, name, fields } = write;
        let (now, key) = (self.now(), id.key());
        let old = self.store.get(&key).cloned();
        let location = old.as_ref().map(|row| row.fields.clone()).or_else(|| fields.clone()).unwrap_or_default();
        let location = text(&location, "/location").to_lowercase().replace(' ', "");
        let location = if location.is_empty() { "eastus".to_owned() } else { location };
        let operation = self.uuid();
        let superseded = self.supersede(&key, &name, &operation);
        let ends = self.ends(id);
        let shown = match self.options.lag.of(kind.resource) {
            lag if lag.is_zero() || self.action.is_empty() => now,
            lag => later(ends, lag),
        };
        let before = old.as_ref().map(|row| (kind.rules.refs)(id, &row.fields)).unwrap_or_default();
        let after = fields.as_ref().map(|fields| (kind.rules.refs)(id, fields)).unwrap_or_default();
        let mut released: Vec<Ref> = before.iter().filter(|one| !after.contains(one)).cloned().collect();
        let added: Vec<Ref> = after.iter().filter(|one| !before.contains(one)).cloned().collect();
        for reference in &added {
            self.store.refer(reference);
        }
        released.extend(superseded.into_iter().filter(|one| !after.contains(one)));
        let deletes = fields.is_none();
        self.show_goal(kind, old.map_or_else(|| (id.clone(), false), |row| (row.id, true)), &name, fields, shown);
        if !deletes {
            self.couple(&key, added.iter());
        }
        let place = (id.subscription.clone(), id.namespace.clone(), location);
        let failure = self.failing.take();
        let begun = Operation {
            name,
            target: id.clone(),
            part: None,
            status: Status::InProgress,
            error: Value::Null,
            error_status: 0,
            began: now,
            ends,
            deletes,
            failure,
            released,
            place,
        };
        let number = self.number();
        self.operations.add(&operation, number, begun);
        if ends <= now {
            self.end_operations();
        }
        operation
    }

    /// Stores the new fields of a resource with the state Updating, or marks it as being deleted.
    fn show_goal(
        &mut self,
        kind: &'static Kind,
        (id, exists): (Id, bool),
        operation: &str,
        fields: Option<Value>,
        shown: Timestamp,
    ) {
        let (now, key) = (self.now(), id.key());
        if let Some(mut fields) = fields {
            // Microsoft.Network has no state Creating for most of its types.
            let state = match exists {
                true if self.options.succeeds_at_once && kind.resource == "loadBalancers" => "Succeeded",
                false if kind.merges => "Creating",
                _ => "Updating",
            };
            set(&mut fields, "/properties/provisioningState", state);
            set(&mut fields, "/_operation", operation);
            let etag = self.etag(&key);
            set(&mut fields, "/etag", etag);
            self.store.put(Row { id, kind: kind.kind.to_owned(), fields }, now, shown);
        } else if let Some(row) = self.store.get_mut(&key) {
            set(&mut row.fields, "/properties/provisioningState", "Deleting");
            set(&mut row.fields, "/_operation", operation);
        }
    }

    /// Cancels the running operation on a resource; returns the references that it would have dropped.
    fn supersede(&mut self, key: &str, name: &str, by: &str) -> Vec<Ref> {
        let Some(running) = self.operations.lanes.remove(key) else { return Vec::new() };
        let compute = key.contains("/providers/microsoft.compute/");
        let Some(old) = self.operations.all.get_mut(&running) else { return Vec::new() };
        let (code, message, detail) = if compute {
            (
                "OperationPreempted",
                "Operation execution has been preempted by a more recent operation.".to_owned(),
                None,
            )
        } else {
            let text =
                format!("Operation {} ({running}) was canceled and superseded by operation {name} ({by}).", old.name);
            self.operations.superseded.push(text.clone());
            ("Canceled", CANCELED.to_owned(), Some(text))
        };
        if compute {
            self.operations.superseded.push(format!("{} ({running}): {message}", old.name));
        }
        let details = detail.map(|text| superseded(&text));
        old.error = json!({"code": code, "message": message, "details": details.unwrap_or_else(|| json!([]))});
        old.error_status = 409;
        old.status = Status::Canceled;
        old.deletes = false;
        std::mem::take(&mut old.released)
    }

    /// The end of the operation of the current call.
    fn ends(&self, id: &Id) -> Timestamp {
        if self.action.is_empty() {
            return self.now();
        }
        later(self.now(), self.options.operation_of(self.action, id.name()))
    }

    /// Ends the operations that are due.
    pub(super) fn end_operations(&mut self) {
        let now = self.now();
        while self.operations.next().is_some_and(|ends| ends <= now) {
            let Some((.., id)) = self.operations.due.pop_first() else { return };
            if self.operations.all.get(&id).is_some_and(|operation| operation.status == Status::InProgress) {
                self.end_operation(&id);
            }
        }
    }

    fn end_operation(&mut self, operation: &str) {
        let Some(running) = self.operations.all.get_mut(operation) else { return };
        let key = running.target.key();
        let released = std::mem::take(&mut running.released);
        running.status = match &running.failure {
            None => Status::Succeeded,
            Some(failure) if failure.code == "Canceled" => Status::Canceled,
            Some(_) => Status::Failed,
        };
        if let Some(failure) = &running.failure {
            running.error = errors::body(failure);
            running.error_status = failure.status;
        }
        let (deletes, failed) = (running.deletes, running.failure.is_some());
        self.operations.lanes.remove(&key);
        for reference in &released {
            self.store.release(reference);
        }
        if !(deletes && failed) {
            self.couple(&key, released.iter());
        }
        if deletes && !failed {
            let resource = self.store.get(&key).and_then(|row| kinds::of(&row.kind)).map_or("", |kind| kind.resource);
            let lag = self.options.lag.of(resource);
            let now = self.now();
            self.store.remove(&key, now, later(now, lag));
            return;
        }
        if deletes && let Some(row) = self.store.get(&key).cloned() {
            // The deletion failed: its references hold again.
            let refs = kinds::of(&row.kind).map(|kind| (kind.rules.refs)(&row.id, &row.fields)).unwrap_or_default();
            refs.iter().for_each(|reference| self.store.refer(reference));
        }
        let is_as_shown = !failed && self.store.get(&key).is_some_and(has_succeeded);
        let etag = (self.options.etag_on_end && !is_as_shown).then(|| self.etag(&key));
        if let Some(row) = self.store.get_mut(&key) {
            set(&mut row.fields, "/properties/provisioningState", if failed { "Failed" } else { "Succeeded" });
            if let Some(etag) = etag {
                set(&mut row.fields, "/etag", etag);
            }
        }
    }

    /// Changes the ETags of the resources that references gained or lost.
    fn couple<'a>(&mut self, own: &str, references: impl Iterator<Item = &'a Ref>) {
        if !self.options.coupled {
            return;
        }
        let targets: BTreeSet<String> = references.filter_map(|one| owner(&one.target)).collect();
        for target in targets.into_iter().filter(|target| target != own) {
            self.touch(&target);
        }
    }

    /// Gives a resource a new ETag.
    pub fn touch(&mut self, key: &str) {
        let etag = self.etag(key);
        if let Some(row) = self.store.get_mut(key) {
            set(&mut row.fields, "/etag", etag);
        }
    }
}

/// The key of the resource whose ETag covers a part of it. A network does not change with its subnets' members.
fn owner(key: &str) -> Option<String> {
    let id = Id::parse(key)?;
    (id.parts.first().is_some_and(|(kind, _)| kind != "virtualnetworks")).then(|| id.root().key())
}

/// The headers that lead to an operation: `Azure-AsyncOperation`, `Location` and `Retry-After`.
pub(super) fn headers(world: &World, operation: &str, locates: bool) -> Vec<(&'static str, String)> {
    let Some(running) = world.operations.get(operation) else { return Vec::new() };
    let (subscription, provider, location) = &running.place;
    let compute = provider.ends_with("Compute");
    let version = if compute { "2025-04-01" } else { "2025-05-01" };
    let base = format!("{}/subscriptions/{subscription}/providers/{provider}/locations/{location}", world.link());
    // Callers must use the URL as it is: the other parameters are a signature.
    let query = format!("api-version={version}&{SIGNATURE}");
    let mut headers = Vec::new();
    if world.options.async_operation {
        headers.push(("azure-asyncoperation", format!("{base}/operations/{operation}?{query}")));
        headers.push(("azure-asyncnotification", "Enabled".to_owned()));
    }
    if locates {
        let location = match compute {
            true => format!("{base}/operations/{operation}?{query}&monitor=true"),
            false => format!("{base}/operationResults/{operation}?{query}"),
        };
        headers.push(("location", location));
    }
    if world.options.retry_after > 0 {
        headers.push(("retry-after", world.options.retry_after.to_string()));
    }
    headers
}

fn known<'a>(world: &'a World, call: &Call) -> Result<&'a Operation, Problem> {
    if ["c", "h", "s", "t"].iter().any(|name| call.get(name).is_none()) {
        let text = "The URL of the operation lacks parameters that the header Azure-AsyncOperation or Location had.";
        return Err(Problem::violation(400, "InvalidOperationUrl", text));
    }
    let id = call.ids.last().map(String::as_str).unwrap_or_default();
    let gone = || Problem::new(404, "NotFound", format!("The operation id '{id}' could not be found."));
    world.operations.get(id).ok_or_else(gone)
}

/// `GET …/operations/{id}`: the status of an operation.
pub(super) fn status(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    if call.get("monitor") == Some("true") {
        return result(world, call);
    }
    let operation = known(world, call)?;
    let mut body = json!({"status": operation.status.text()});
    if operation.place.1.ends_with("Compute") {
        set(&mut body, "/name", call.ids.last().cloned().unwrap_or_default());
        set(&mut body, "/startTime", operation.began.to_string());
        if operation.status != Status::InProgress {
            set(&mut body, "/endTime", operation.ends.to_string());
        }
    }
    if !operation.error.is_null() {
        set(&mut body, "/error", operation.error.clone());
    }
    let mut reply = Reply::json(200, &body);
    if operation.status == Status::InProgress && world.options.retry_after > 0 {
        reply.headers.push(("retry-after", world.options.retry_after.to_string()));
    }
    Ok(reply)
}

/// `GET …/operationResults/{id}`: 202 until the end, then the answer to the write.
pub(super) fn result(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = call.ids.last().cloned().unwrap_or_default();
    let operation = known(world, call)?.clone();
    match operation.status {
        Status::InProgress => {
            let headers = headers(world, &id, true).into_iter().filter(|(name, _)| !name.starts_with("azure-"));
            Ok(Reply { headers: headers.collect(), ..Reply::empty(202) })
        }
        Status::Succeeded if operation.deletes => Ok(Reply::empty(204)),
        Status::Succeeded => {
            let shown = world.shown_now(&operation.target.key());
            let shown = match operation.part {
                Some(part) => shown.and_then(|shown| pools::in_answer(&shown, part.name())),
                None => shown,
            };
            Ok(shown.map_or_else(|| Reply::empty(204), |shown| Reply::json(200, &shown)))
        }
        Status::Failed | Status::Canceled => {
            let mut error = json!({"error": operation.error});
            default(&mut error, "/error/details", json!([]));
            Ok(Reply::json(operation.error_status, &error))
        }
    }
}
