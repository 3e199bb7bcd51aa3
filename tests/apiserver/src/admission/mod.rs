//! Defaulting and validation that are visible to our controllers or to users of kubectl.

mod metadata;
mod misc;
mod node;
mod service;
mod shape;

use crate::error::{ApiError, Cause};
use crate::kind::Kind;
use serde_json::Value;

pub(crate) use service::Allocations;

/// The state that admission may read and change.
pub(crate) struct Context<'a> {
    pub(crate) kind: &'static Kind,
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) dual_stack: bool,
}

/// Defaults and validates a new object whose metadata is already set.
pub(crate) fn create(context: &mut Context<'_>, object: &mut Value) -> Result<(), ApiError> {
    crate::value::strip_nulls(object);
    match context.kind.plural {
        "nodes" => node::default_new(object),
        "services" => service::default_new(context, object),
        "namespaces" => misc::default_namespace(object),
        "persistentvolumes" => misc::default_volume(object, true),
        _ => {}
    }
    shape::normalize(context.kind, object)?;
    ApiError::check(context.kind, object, &validate(context.kind, object))?;
    if context.kind.plural == "services" {
        service::allocate(context, object, None)?;
    }
    Ok(())
}

/// Defaults and validates an update of the object, which already contains the old status, or of its status, which
/// already contains the old values of everything except status and metadata.
pub(crate) fn update(context: &mut Context<'_>, old: &Value, new: &mut Value, status: bool) -> Result<(), ApiError> {
    let kind = context.kind;
    crate::value::strip_nulls(new);
    match (kind.plural, status) {
        ("nodes", false) => node::default_old(new),
        ("services", false) => service::default_changed(context, old, new),
        ("services", true) => service::default_status(new),
        ("persistentvolumes", false) => misc::default_volume(new, false),
        _ => {}
    }
    shape::normalize(kind, new)?;
    let mut causes = if status { metadata::validate(kind, new) } else { validate(kind, new) };
    causes.extend(metadata::added_finalizers(old, new));
    match (kind.plural, status) {
        ("nodes", false) => causes.extend(node::validate_change(old, new)),
        ("nodes", true) => causes.extend(node::validate(new)),
        ("services", false) => causes.extend(service::validate_change(old, new)),
        ("services", true) => causes.extend(service::validate_status(new)),
        _ => {}
    }
    ApiError::check(kind, new, &causes)?;
    if kind.plural == "services" && !status {
        service::allocate(context, new, Some(old))?;
    }
    Ok(())
}

/// The validation errors of an object without its context.
fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::validate(kind, object);
    match kind.plural {
        "nodes" => causes.extend(node::validate(object)),
        "services" => causes.extend(service::validate(object)),
        "events" => causes.extend(misc::validate_event(object)),
        "leases" => causes.extend(misc::validate_lease(object)),
        _ => {}
    }
    causes
}

/// The object of a bookmark: only the type's empty shape.
pub(crate) fn empty_shape(kind: &'static Kind) -> Value {
    let mut object = serde_json::json!({"metadata": {}});
    // An empty object cannot be rejected.
    shape::normalize(kind, &mut object).unwrap_or_default();
    object
}
