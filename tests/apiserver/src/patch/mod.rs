//! The four patch formats. Each turns the current object into the wanted one; storing it is the store's business.

mod json;
mod merge;
mod schema;
mod strategic;
#[cfg(test)]
mod tests;

use crate::error::ApiError;
use crate::kind::Kind;
use serde_json::Value;

/// A patch in one of the formats of the API.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// `application/merge-patch+json` (RFC 7396).
    Merge(Value),
    /// `application/strategic-merge-patch+json`.
    Strategic(Value),
    /// `application/json-patch+json` (RFC 6902).
    Json(Value),
    /// `application/apply-patch+yaml`: merged in by list keys and created when missing. Field ownership is not kept, so
    /// an apply that leaves out a field does not remove it.
    Apply(Value),
}

impl Patch {
    /// Reads a patch of the format that the content type names.
    pub(crate) fn parse(content_type: &str, body: &[u8]) -> Result<Patch, ApiError> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        let json = || {
            serde_json::from_slice::<Value>(body)
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
        };
        match media {
            "application/merge-patch+json" => Ok(Patch::Merge(json()?)),
            "application/strategic-merge-patch+json" => Ok(Patch::Strategic(json()?)),
            "application/json-patch+json" => Ok(Patch::Json(json()?)),
            "application/apply-patch+yaml" => match serde_json::from_slice(body) {
                Ok(value) => Ok(Patch::Apply(value)),
                Err(_) => Ok(Patch::Apply(yaml(body)?)),
            },
            _ => Err(ApiError::unsupported_patch()),
        }
    }

    /// The patch as sent.
    pub(crate) fn body(&self) -> &Value {
        let (Patch::Merge(body) | Patch::Strategic(body) | Patch::Json(body) | Patch::Apply(body)) = self;
        body
    }

    /// The object that `current` becomes.
    pub(crate) fn apply(&self, kind: &Kind, current: &Value) -> Result<Value, ApiError> {
        let mut wanted = current.clone();
        match self {
            Patch::Merge(patch) => merge::apply(&mut wanted, patch),
            Patch::Strategic(patch) => strategic::apply(kind, &mut wanted, patch, false)?,
            Patch::Json(patch) => json::apply(&mut wanted, patch)?,
            Patch::Apply(patch) => {
                let mut patch = patch.clone();
                // Left-over bookkeeping that an apply must not carry.
                crate::value::remove(&mut patch, &["metadata", "managedFields"]);
                strategic::apply(kind, &mut wanted, &patch, true)?;
            }
        }
        if !wanted.is_object() {
            return Err(ApiError::bad_request("the patched document is not an object"));
        }
        Ok(wanted)
    }
}

/// Reads a YAML body.
pub(crate) fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    serde_saphyr::from_str(text).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))
}
