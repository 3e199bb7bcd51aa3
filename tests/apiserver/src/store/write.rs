//! Creates, updates, patches and deletes.

use super::Core;
use super::state::{State, Stored};
use crate::admission::{self, Context};
use crate::clock::seconds;
use crate::error::{ApiError, Cause};
use crate::kind::{KINDS, Kind};
use crate::patch::Patch;
use crate::schema;
use crate::value::{at, copy, list, remove, set, text};
use serde_json::Value;
use std::sync::Arc;

/// The target of a write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Unknown fields are an error (`fieldValidation=Strict`).
    pub(crate) strict: bool,
}

impl Write {
    pub(crate) fn new(kind: &'static Kind, namespace: &str, name: &str, subresource: &str) -> Write {
        let (namespace, name, subresource) = (namespace.to_owned(), name.to_owned(), subresource.to_owned());
        Write { kind, namespace, name, subresource, strict: false }
    }
}

/// Metadata fields that the server sets.
const SYSTEM: [&str; 5] = [
    "/metadata/uid",
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
    "/metadata/deletionGracePeriodSeconds",
    "/metadata/generation",
];
/// Metadata fields that are never stored.
const IGNORED: [&str; 3] = ["/metadata/managedFields", "/metadata/selfLink", "/metadata/generateName"];

impl Core {
    fn now(&self) -> String {
        seconds(self.options.clock.now())
    }

    /// Creates an object.
    pub(crate) fn create(&self, write: &Write, mut object: Value) -> Result<Arc<Stored>, ApiError> {
        let kind = write.kind;
        decode(write, &mut object, false)?;
        identify(write, &mut object)?;
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let object_name = text(&object, "/metadata/name").to_owned();
        if object_name.is_empty() && !text(&object, "/metadata/generateName").is_empty() {
            return Err(ApiError::not_implemented("generated names"));
        }
        if object_name.is_empty() {
            let cause = Cause::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(kind, "", &[cause]));
        }
        let mut state = self.lock();
        if kind.namespaced && state.find(namespaces(), "", &write.namespace).is_none() {
            return Err(ApiError::not_found(namespaces(), &write.namespace));
        }
        for field in SYSTEM.iter().chain(&IGNORED).chain(&["/metadata/resourceVersion"]) {
            remove(&mut object, field);
        }
        set(&mut object, "/metadata/uid", state.ids.uid());
        set(&mut object, "/metadata/creationTimestamp", self.now());
        if let Some(present) = state.find(kind, &write.namespace, &object_name) {
            let mut error = ApiError::already_exists(kind, &object_name);
            if at(&present.value(), "/metadata/deletionTimestamp").is_some() {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        let context = &mut self.context(&mut state, kind);
        admission::create(context, &mut object).map_err(|error| error.after_decoding(kind, false))?;
        Ok(state.put(kind, object))
    }

    fn context<'a>(&self, state: &'a mut State, kind: &'static Kind) -> Context<'a> {
        Context { kind, allocations: &mut state.allocations, dual_stack: self.options.dual_stack }
    }

    /// Replaces an object or its status.
    pub(crate) fn update(&self, write: &Write, mut object: Value) -> Result<Arc<Stored>, ApiError> {
        let kind = write.kind;
        decode(write, &mut object, false)?;
        if text(&object, "/metadata/name").is_empty() && object.is_object() {
            let name = &write.name;
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        identify(write, &mut object)?;
        let mut state = self.lock();
        let current = state.find(kind, &write.namespace, &write.name);
        let current = current.ok_or_else(|| match kind.create_on_update {
            true => ApiError::not_implemented("PUT for objects that do not exist"),
            false => ApiError::not_found(kind, &write.name),
        })?;
        let old = current.value();
        let (uid, found) = (text(&object, "/metadata/uid"), text(&old, "/metadata/uid"));
        if !uid.is_empty() && uid != found {
            return Err(ApiError::other_uid(kind, &write.name, uid, found));
        }
        let version = text(&object, "/metadata/resourceVersion");
        if version.is_empty() && kind.plural == "leases" {
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(ApiError::invalid(kind, &write.name, &[cause]));
        }
        if !version.is_empty() && version != current.version.to_string() {
            return Err(ApiError::modified(kind, &write.name));
        }
        self.replace(&mut state, write, &current, &old, object).map_err(|error| error.after_decoding(kind, false))
    }

    /// Patches an object or its status.
    pub(crate) fn patch(&self, write: &Write, patch: &Patch) -> Result<Arc<Stored>, ApiError> {
        let kind = write.kind;
        let mut state = self.lock();
        let current = state.find(kind, &write.namespace, &write.name);
        let current = current.ok_or_else(|| ApiError::not_found(kind, &write.name))?;
        let old = current.value();
        let mut wanted = patch.apply(kind, &old)?;
        decode(write, &mut wanted, true)?;
        let version = text(&wanted, "/metadata/resourceVersion");
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(ApiError::new(500, "", format!("strconv.ParseUint: parsing \"{version}\": invalid syntax")));
        }
        // Only a patch that sets the version makes it a precondition; one that removes it does not.
        if !version.is_empty() && version != current.version.to_string() {
            return Err(ApiError::modified(kind, &write.name));
        }
        if let Some(uid) = at(&wanted, "/metadata/uid").filter(|uid| Some(*uid) != at(&old, "/metadata/uid")) {
            return Err(immutable(write, "metadata.uid", uid));
        }
        // A patch cannot move an object: type and namespace are ignored.
        for field in ["/kind", "/apiVersion", "/metadata/namespace"] {
            remove(&mut wanted, field);
        }
        identify(write, &mut wanted)?;
        self.replace(&mut state, write, &current, &old, wanted).map_err(|error| error.after_decoding(kind, true))
    }

    /// The common part of updates and patches, after the check of `version`.
    fn replace(
        &self,
        state: &mut State,
        write: &Write,
        current: &Arc<Stored>,
        old: &Value,
        mut object: Value,
    ) -> Result<Arc<Stored>, ApiError> {
        let kind = write.kind;
        let going = at(&object, "/metadata/deletionTimestamp");
        if let Some(time) = going.filter(|_| at(old, "/metadata/deletionTimestamp").is_none()) {
            return Err(immutable(write, "metadata.deletionTimestamp", time));
        }
        for field in SYSTEM.iter().chain(&["/metadata/resourceVersion"]) {
            copy(&mut object, old, field);
        }
        for field in IGNORED {
            remove(&mut object, field);
        }
        let status = write.subresource == "status";
        if status {
            // Everything except metadata and status stays unchanged.
            if let (Value::Object(new), Value::Object(old)) = (&mut object, old) {
                new.retain(|member, _| old.contains_key(member) || matches!(member.as_str(), "metadata" | "status"));
                let kept = old.iter().filter(|(member, _)| !matches!(member.as_str(), "metadata" | "status"));
                new.extend(kept.map(|(member, value)| (member.clone(), value.clone())));
            }
        } else if kind.status {
            copy(&mut object, old, "/status");
        }
        if kind.plural == "namespaces" {
            copy(&mut object, old, "/spec");
        }
        admission::update(&mut self.context(state, kind), old, &mut object, status)?;
        let going = at(&object, "/metadata/deletionTimestamp").is_some();
        if going && list(&object, "/metadata/finalizers").is_empty() {
            return Ok(take(state, kind, object));
        }
        // Both have the old version and the type, so equality means that nothing changed.
        if object == *old {
            return Ok(Arc::clone(current));
        }
        Ok(state.put(kind, object))
    }

    /// Deletes an object with a `DeleteOptions` body; the flag is true if it is deleted and not only waiting for
    /// finalizers.
    pub(crate) fn delete(&self, write: &Write, body: &Value) -> Result<(Arc<Stored>, bool), ApiError> {
        let kind = write.kind;
        if kind.plural == "namespaces" {
            return Err(ApiError::not_implemented("the deletion of namespaces"));
        }
        let mut state = self.lock();
        let current = state.find(kind, &write.namespace, &write.name);
        let current = current.ok_or_else(|| ApiError::not_found(kind, &write.name))?;
        let mut object = current.value();
        check_preconditions(kind, &current, &object, body)?;
        if list(&object, "/metadata/finalizers").is_empty() {
            return Ok((take(&mut state, kind, object), true));
        }
        if at(&object, "/metadata/deletionTimestamp").is_some() {
            return Ok((current, false));
        }
        set(&mut object, "/metadata/deletionTimestamp", self.now());
        set(&mut object, "/metadata/deletionGracePeriodSeconds", 0);
        Ok((state.put(kind, object), false))
    }
}

/// The effect of decoding a body into Go's types.
fn decode(write: &Write, object: &mut Value, patch: bool) -> Result<(), ApiError> {
    schema::check(write.kind, object, write.strict).map_err(|error| error.after_decoding(write.kind, patch))
}

/// Checks type, namespace and name of a body for consistency with the URL, and sets missing ones.
fn identify(write: &Write, object: &mut Value) -> Result<(), ApiError> {
    let (wanted, version, url) = (write.kind.kind, write.kind.api_version(), &write.name);
    let (kind, given) = (text(object, "/kind"), text(object, "/apiVersion"));
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let why = if !object.is_object() {
        "the body of the request is not an object".to_owned()
    } else if !given.is_empty() && given != version {
        format!("the API version in the data ({given}) does not match the expected API version ({version})")
    } else if !kind.is_empty() && kind != wanted {
        format!(
            "{kind} in version \"v1\" cannot be handled as a {wanted}: converting (v1.{kind}) to (core.{wanted}): \
             unknown conversion"
        )
    } else if !namespace.is_empty() && namespace != write.namespace {
        "the namespace of the provided object does not match the namespace sent on the request".to_owned()
    } else if !url.is_empty() && !name.is_empty() && name != url {
        format!("the name of the object ({name}) does not match the name on the URL ({url})")
    } else {
        for (path, value) in [("/metadata/namespace", &write.namespace), ("/metadata/name", url)] {
            if !value.is_empty() {
                set(object, path, value.as_str());
            }
        }
        set(object, "/kind", wanted);
        set(object, "/apiVersion", version);
        return Ok(());
    };
    Err(ApiError::bad_request(why))
}

/// Checks the `preconditions` of a `DeleteOptions` body.
fn check_preconditions(kind: &Kind, current: &Stored, object: &Value, body: &Value) -> Result<(), ApiError> {
    let (uid, version) = (text(object, "/metadata/uid"), text(object, "/metadata/resourceVersion"));
    for (what, path, found, change) in [
        ("UID", "/preconditions/uid", uid, "deleted and then recreated"),
        ("ResourceVersion", "/preconditions/resourceVersion", version, "modified"),
    ] {
        if let Some(wanted) = at(body, path).and_then(Value::as_str).filter(|wanted| *wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been {change}"
            );
            return Err(ApiError::precondition(kind, &current.name, &why));
        }
    }
    Ok(())
}

fn immutable(write: &Write, field: &str, value: &Value) -> ApiError {
    ApiError::invalid(write.kind, &write.name, &[Cause::invalid(field, value, "field is immutable")])
}

fn take(state: &mut State, kind: &'static Kind, object: Value) -> Arc<Stored> {
    if kind.plural == "services" {
        state.allocations.release(&object);
    }
    state.take(kind, object)
}

fn namespaces() -> &'static Kind {
    let [namespaces, ..] = &KINDS;
    namespaces
}
