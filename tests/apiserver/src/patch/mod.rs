//! The two supported patch formats. Each converts the current object to the desired one; the store stores it.

mod strategic;

use crate::error::ApiError;
use crate::kind::Kind;
use crate::value::object;
use serde_json::Value;

/// A patch in one of the formats of the API.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// `application/merge-patch+json` (RFC 7396).
    Merge(Value),
    /// `application/strategic-merge-patch+json`.
    Strategic(Value),
}

impl Patch {
    /// Parses a patch in the format of the content type.
    pub(crate) fn parse(content_type: &str, body: &[u8]) -> Result<Patch, ApiError> {
        let format = match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Patch::Merge,
            "application/strategic-merge-patch+json" => Patch::Strategic,
            _ => return Err(ApiError::unsupported_patch()),
        };
        let body = serde_json::from_slice(body);
        body.map(format).map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
    }

    /// The patch itself.
    pub(crate) fn body(&self) -> &Value {
        let (Patch::Merge(body) | Patch::Strategic(body)) = self;
        body
    }

    /// Applies the patch to `current`.
    pub(crate) fn apply(&self, kind: &Kind, current: &Value) -> Result<Value, ApiError> {
        let mut wanted = current.clone();
        match self {
            Patch::Merge(patch) => merge(&mut wanted, patch),
            Patch::Strategic(patch) => strategic::apply(kind, &mut wanted, patch)?,
        }
        if wanted.is_object() {
            Ok(wanted)
        } else {
            Err(ApiError::bad_request("the patched document is not an object"))
        }
    }
}

/// Objects merge, null deletes, all other values replace.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let target = object(target);
    for (key, change) in changes {
        if change.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
}
