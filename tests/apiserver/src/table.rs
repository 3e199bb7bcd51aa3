//! Tables.
use crate::kind::Kind;
use crate::store::{List, Stored};
use crate::watch::WatchEvent;
use serde_json::{Value, json};
pub(crate) fn event(_kind: &Kind, _event: &WatchEvent, _headed: bool) -> Value {
    json!({})
}
pub(crate) fn single(_kind: &Kind, _stored: &Stored) -> Value {
    json!({})
}
pub(crate) fn list(_list: &List, _metadata: &Value) -> Value {
    json!({})
}
