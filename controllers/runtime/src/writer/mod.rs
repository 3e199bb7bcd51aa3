//! The writers of nodes and Services: what the bodies look like, whom they are meant for, what a conflict means, and what the
//! stores know at once.
//!
//! All are strategic-merge patches, each with no more than what it changes, and bound to the object that was decided on: by
//! its version where a list is written whole, else by its UID. Source of the bodies: `kubernetes/cloud-provider`
//! `node/helpers/{address,labels,taints}.go`, `service/helpers/helper.go` and `controllers/route/route_controller.go`.

pub mod node;
pub mod service;
pub mod taint;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use node::{NodePatch, NodeWriter};
use serde_json::{Map, Value};
pub use service::{ConditionChanges, ServicePatch, ServiceWriter};

use crate::client::Call;
use crate::gate::{Gate, GateError};
use crate::store::{Kept, Store};

/// Tries of a write that meets conflicts, and the pause between them: what somebody else wrote must reach the store first.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Writes a change of one object, decided again on what the store shows after each conflict. The object that was written over,
/// with the answer; `None` when nothing is to be written, or when the object is gone or another one has its name.
async fn write<T: Kept>(
    gate: &Gate,
    store: &Store<T>,
    mut object: Arc<T>,
    uid: impl Fn(&T) -> &str + Send,
    mut decide: impl FnMut(&Arc<T>) -> Option<Call<'static>> + Send,
) -> Result<Option<(Arc<T>, Bytes)>, GateError> {
    for attempt in 1.. {
        let Some(call) = decide(&object) else { break };
        match gate.write(&call).await {
            Ok(answer) => return Ok(Some((object, answer))),
            Err(error) if error.is_not_found() || error.is_other_object() => break,
            Err(error) if error.is_conflict() && attempt < TRIES => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
        match store.get(&object.key()) {
            Some(current) if uid(&current) == uid(&object) => object = current,
            _ => break,
        }
    }
    Ok(None)
}

/// A body of those of its parts that are not empty.
fn body(metadata: Map<String, Value>, spec: Map<String, Value>, status: Map<String, Value>) -> Value {
    let parts = [("metadata", metadata), ("spec", spec), ("status", status)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    Value::Object(parts.map(|(name, part)| (name.to_owned(), part.into())).collect())
}
