//! Defaulting and validation, as far as our controllers or a person with kubectl can see it.

mod metadata;
mod misc;
mod node;
mod service;
mod shape;

use crate::error::{ApiError, Cause};
use crate::kind::Kind;
use serde_json::Value;

pub(crate) use metadata::{added_finalizers, validate_metadata};
pub(crate) use misc::PV_PROTECTION;
pub(crate) use service::Allocations;

/// What admission may look at and hand out.
pub(crate) struct Context<'a> {
    pub(crate) kind: &'static Kind,
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) dual_stack: bool,
    pub(crate) now: &'a str,
}

/// Defaults and checks a new object whose metadata is already filled in.
pub(crate) fn create(context: &mut Context<'_>, object: &mut Value) -> Result<(), ApiError> {
    crate::value::strip_nulls(object);
    match context.kind.plural {
        "nodes" => node::default_new(object),
        "services" => service::default_new(context, object),
        "namespaces" => misc::default_namespace(object),
        "secrets" => misc::default_secret(object),
        "persistentvolumes" => misc::default_volume(object, context.now),
        _ => {}
    }
    shape::normalize(context.kind, object)?;
    let mut causes = validate_metadata(context.kind, object);
    match context.kind.plural {
        "nodes" => causes.extend(node::validate(object)),
        "services" => causes.extend(service::validate(object)),
        "events" => causes.extend(misc::validate_event(object)),
        "leases" => causes.extend(misc::validate_lease(object)),
        _ => {}
    }
    refuse(context.kind, object, &causes)?;
    if context.kind.plural == "services" {
        service::allocate(context, object, None)?;
    }
    Ok(())
}

/// Defaults and checks a change of the object proper; its status is already the old one.
pub(crate) fn update(context: &mut Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    crate::value::strip_nulls(new);
    match context.kind.plural {
        "nodes" => node::default_old(new),
        "services" => service::default_changed(context, old, new),
        "secrets" => misc::default_secret(new),
        "persistentvolumes" => misc::default_volume_spec(new),
        _ => {}
    }
    shape::normalize(context.kind, new)?;
    let mut causes = validate_metadata(context.kind, new);
    causes.extend(added_finalizers(old, new));
    match context.kind.plural {
        "nodes" => causes.extend(node::validate(new).into_iter().chain(node::validate_change(old, new))),
        "services" => causes.extend(service::validate(new).into_iter().chain(service::validate_change(old, new))),
        "events" => causes.extend(misc::validate_event(new)),
        "leases" => causes.extend(misc::validate_lease(new)),
        "secrets" | "configmaps" => causes.extend(misc::validate_immutable(context.kind, old, new)),
        _ => {}
    }
    refuse(context.kind, new, &causes)?;
    if context.kind.plural == "services" {
        service::allocate(context, new, Some(old))?;
    }
    Ok(())
}

/// Defaults and checks a change through the status subresource; the spec is already the old one.
pub(crate) fn update_status(context: &Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    crate::value::strip_nulls(new);
    if context.kind.plural == "services" {
        service::default_status(new);
    }
    shape::normalize(context.kind, new)?;
    let mut causes = validate_metadata(context.kind, new);
    causes.extend(added_finalizers(old, new));
    match context.kind.plural {
        "nodes" => causes.extend(node::validate(new)),
        "services" => causes.extend(service::validate_status(new)),
        _ => {}
    }
    refuse(context.kind, new, &causes)
}

/// Gives back what a removed object held.
pub(crate) fn removed(kind: &Kind, allocations: &mut Allocations, object: &Value) {
    if kind.plural == "services" {
        allocations.release(object);
    }
}

/// The object of a bookmark: nothing but the type's empty shape.
pub(crate) fn empty_shape(kind: &'static Kind) -> Value {
    let mut object = serde_json::json!({"metadata": {}});
    // The shape of an empty object has nothing that could be refused.
    shape::normalize(kind, &mut object).unwrap_or_default();
    object
}

fn refuse(kind: &Kind, object: &Value, causes: &[Cause]) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(kind, crate::value::text(object, &["metadata", "name"]), causes))
}
