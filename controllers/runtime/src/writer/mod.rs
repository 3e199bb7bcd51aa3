//! The writers of nodes and Services: patch bodies, preconditions, conflicts, and updates of the stores.
//!
//! All writes are strategic-merge patches that contain only the changes. The precondition is the version if a whole
//! list is written, else the UID. Source of the bodies: `kubernetes/cloud-provider`
//! `node/helpers/{address,labels,taints}.go`, `service/helpers/helper.go` and `controllers/route/route_controller.go`.

pub mod node;
pub mod service;
pub mod taint;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use node::{Network, NodePatch, NodeWriter};
use serde_json::{Map, Value};
pub use service::{ConditionChanges, ServicePatch, ServiceWriter};

use crate::client::Call;
use crate::gate::{Gate, GateError};
use crate::store::{Cached, Store};

/// Attempts of a write that meets conflicts, and the pause between them: the other write must reach the store first.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Writes a change of one object, decided again on the state of the store after each conflict. Returns the previous
/// object and the answer; `None` if nothing is to be written, or if the object is gone or another one has its name.
async fn write<T: Cached>(
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

/// A body of the parts that are not empty.
fn body(metadata: Map<String, Value>, spec: Map<String, Value>, status: Map<String, Value>) -> Value {
    let parts = [("metadata", metadata), ("spec", spec), ("status", status)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    Value::Object(parts.map(|(name, part)| (name.to_owned(), part.into())).collect())
}
