//! Operations: every write begins one, which ends later.

use super::kinds::Fields;
use super::places::{PATH, Scope, Spot, link};
use super::world::{World, set};
use super::{errors, verbs};
use crate::core::clock::later;
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The number of operations that are kept.
const KEPT: usize = 20_000;

/// The error of a failed operation.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

/// Begins the operation of the current call, and answers with it.
pub(super) fn begin(world: &mut World, call: &Call, target: &Spot, verb: &str) -> Reply {
    let id = world.store.get(&target.key()).map(|row| row.text("id").to_owned()).filter(|id| !id.is_empty());
    start(world, call, target, verb, id, None)
}

/// Begins an operation that has no effect and fails.
pub(super) fn fail(world: &mut World, call: &Call, failure: Failure) -> Reply {
    let path = call.path.strip_prefix(PATH).unwrap_or_default();
    let Some(mut spot) = Spot::parse(path) else { return Reply::empty(500) };
    if let Some(project) = world.project_id(&spot.project) {
        spot.project = project;
    }
    if spot.name.is_empty() {
        spot.name = call.object().map(|body| verbs::text(&body, "name").to_owned()).unwrap_or_default();
    }
    let verb = call.action.rsplit('.').next().unwrap_or_default();
    start(world, call, &spot, verb, None, Some(failure))
}

fn start(
    world: &mut World,
    call: &Call,
    target: &Spot,
    verb: &str,
    target_id: Option<String>,
    failure: Option<Failure>,
) -> Reply {
    let now = world.now();
    let ends = world.due("").done;
    let name = format!("operation-{}-{}-{}-{}", now.as_millisecond(), world.hex(13), world.hex(8), world.hex(8));
    let spot = Spot { collection: "operations".to_owned(), name, ..target.clone() };
    let key = spot.key();
    let mut fields = json!({
        "kind": "compute#operation", "id": world.number_id(), "name": spot.name, "operationType": verb,
        "targetLink": link(&target.key()), "user": world.who, "insertTime": world.stamp(now), "startTime": world.stamp(now),
        "selfLink": link(&key), "_ends": ends.as_nanosecond().to_string(),
        "_begins": now.as_nanosecond().to_string(),
    });
    // A repeated call returns the same operation.
    let request = call.get("requestId").map(|id| {
        set(&mut fields, "clientOperationId", id);
        request(call, id)
    });
    if let Some(request) = &request {
        world.requests.insert(request.clone(), key.clone());
    }
    if let Some(id) = target_id {
        set(&mut fields, "targetId", id);
    }
    match spot.scope {
        Scope::Global => {}
        Scope::Region => set(&mut fields, "region", link(&spot.location())),
        Scope::Zone => set(&mut fields, "zone", link(&spot.location())),
    }
    if let Some(Failure { status, code, message }) = failure {
        set(&mut fields, "_error", json!({"errors": [{"code": code, "message": message}]}));
        set(&mut fields, "_status", status);
    }
    let Value::Object(fields) = fields else { return Reply::empty(500) };
    let row = Row { seq: world.number(), made: now, fields };
    world.store.put(&key, row, world.at_once());
    world.operations.push_back((key.clone(), request.unwrap_or_default()));
    if world.operations.len() > KEPT
        && let Some((oldest, request)) = world.operations.pop_front()
    {
        world.remove(&oldest);
        world.requests.remove(&request);
    }
    let shown = world.store.get(&key).map(|row| shown_operation(world, &key, row));
    Reply::json(200, &shown.unwrap_or_default())
}

fn request(call: &Call, id: &str) -> String {
    format!("{} {} {id}", call.method, call.path)
}

fn shown_operation(world: &World, key: &str, row: &Row) -> Fields {
    let mut fields = row.shown();
    show(world, key, &mut fields);
    fields
}

/// The operation that an earlier call with the same `requestId` began.
pub(super) fn replayed(world: &World, call: &Call, spot: &Spot) -> Option<Reply> {
    let key = world.requests.get(&request(call, call.get("requestId")?))?;
    let row = world.store.get(key).filter(|_| key.starts_with(&spot.location()))?;
    Some(Reply::json(200, &shown_operation(world, key, row)))
}

fn time(row: &Row, name: &str) -> Timestamp {
    let nanoseconds = row.text(name).parse().unwrap_or_default();
    Timestamp::from_nanosecond(nanoseconds).unwrap_or(Timestamp::MAX)
}

/// Adds the progress of an operation: PENDING for the first quarter of its duration, RUNNING until its end.
pub(super) fn show(world: &World, key: &str, fields: &mut Fields) {
    let Some(row) = world.store.get(key) else { return };
    let (now, begins, ends) = (world.now(), time(row, "_begins"), time(row, "_ends"));
    let quarter = later(begins, std::time::Duration::try_from(ends.duration_since(begins)).unwrap_or_default() / 4);
    let (status, progress) = match now {
        now if now >= ends => ("DONE", 100),
        now if now < quarter => ("PENDING", 0),
        _ => ("RUNNING", 0),
    };
    fields.insert("status".to_owned(), json!(status));
    fields.insert("progress".to_owned(), json!(progress));
    if status == "PENDING" {
        fields.remove("startTime");
    }
    if status != "DONE" {
        return;
    }
    fields.insert("endTime".to_owned(), json!(world.stamp(ends)));
    if let Some(error) = row.fields.get("_error") {
        let status = u16::try_from(row.number("_status")).unwrap_or_default();
        fields.insert("error".to_owned(), error.clone());
        fields.insert("httpErrorStatusCode".to_owned(), json!(status));
        fields.insert("httpErrorMessage".to_owned(), json!(errors::phrase(status)));
    }
}

/// `POST …/operations/{name}/wait`: the endpoint has delayed the call until the operation ended, or for the maximum
/// wait time.
pub(super) fn wait(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    verbs::get(world, call)
}

/// The time until which a call is delayed.
pub(super) fn held(world: &World, call: &Call, arrived: Timestamp) -> Option<Timestamp> {
    if !call.action.ends_with("Operations.wait") {
        return None;
    }
    let (_, spot) = verbs::at(world, call).ok()?;
    let ends = time(world.store.get(&spot.key())?, "_ends");
    Some(ends.min(later(arrived, world.options.wait)))
}
