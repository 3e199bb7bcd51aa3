//! Creates, updates, patches and deletes.

use super::Core;
use super::state::{State, Stored};
use crate::admission::{self, Context};
use crate::clock::seconds;
use crate::error::{ApiError, Cause};
use crate::kind::{KINDS, Kind};
use crate::patch::Patch;
use crate::schema;
use crate::store::read::parse_scope;
use crate::value::{at, copy, list, remove, set, set_default, text};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Which object a write is about.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) dry_run: bool,
    /// Unknown members are an error (`fieldValidation=Strict`).
    pub(crate) strict: bool,
}

impl Write {
    pub(crate) fn new(kind: &'static Kind, namespace: &str, name: &str) -> Write {
        Write {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            dry_run: false,
            strict: false,
        }
    }
}

/// Conditions of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version of the object.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads a `DeleteOptions` body.
    pub(crate) fn from_value(body: &Value) -> DeleteOptions {
        let read = |field: &str| at(body, &["preconditions", field]).and_then(Value::as_str).map(str::to_owned);
        DeleteOptions { uid: read("uid"), resource_version: read("resourceVersion") }
    }

    pub(super) fn to_value(&self) -> Value {
        let mut preconditions = Map::new();
        for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            preconditions.extend(value.as_ref().map(|value| (field.to_owned(), value.as_str().into())));
        }
        if preconditions.is_empty() { Value::Null } else { json!({"preconditions": preconditions}) }
    }
}

/// Members of the metadata that belong to the server.
const SYSTEM: [&str; 5] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

impl Core {
    fn now(&self) -> String {
        seconds(self.options.clock.now())
    }

    /// Makes an object.
    pub(crate) fn create(&self, write: &Write, mut object: Value) -> Result<Arc<Stored>, ApiError> {
        let kind = write.kind;
        decode(write, &mut object, false)?;
        identify(write, &mut object)?;
        if !text(&object, &["metadata", "resourceVersion"]).is_empty() {
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let mut state = self.lock();
        check_namespace(&state, write, &object)?;
        name(&mut state, kind, &mut object)?;
        let now = self.now();
        for field in SYSTEM.iter().chain(&["managedFields", "selfLink", "resourceVersion"]) {
            remove(&mut object, &["metadata", field]);
        }
        set(&mut object, &["metadata", "uid"], state.ids.uid());
        set(&mut object, &["metadata", "creationTimestamp"], now.clone());
        let object_name = text(&object, &["metadata", "name"]).to_owned();
        if let Some(present) = state.find(kind, &write.namespace, &object_name) {
            let mut error = ApiError::already_exists(kind, &object_name);
            if at(&present.value(), &["metadata", "deletionTimestamp"]).is_some() {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        let before = write.dry_run.then(|| state.allocations.clone());
        let mut context = self.context(&mut state, kind, &now);
        admission::create(&mut context, &mut object).map_err(|error| error.after_decoding(kind, false))?;
        Ok(store(&mut state, kind, object, before))
    }

    fn context<'a>(&self, state: &'a mut State, kind: &'static Kind, now: &'a str) -> Context<'a> {
        Context { kind, allocations: &mut state.allocations, dual_stack: self.options.dual_stack, now }
    }

    /// Replaces an object or its status; the flag says whether it was made instead.
    pub(crate) fn update(&self, write: &Write, mut object: Value) -> Result<(Arc<Stored>, bool), ApiError> {
        let kind = write.kind;
        decode(write, &mut object, false)?;
        if text(&object, &["metadata", "name"]).is_empty() && object.is_object() {
            let name = &write.name;
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        identify(write, &mut object)?;
        let mut state = self.lock();
        let Some(current) = state.find(kind, &write.namespace, &write.name) else {
            drop(state);
            return self.create_on_update(write, object);
        };
        let old = current.value();
        let (uid, found) = (text(&object, &["metadata", "uid"]), text(&old, &["metadata", "uid"]));
        if !uid.is_empty() && uid != found {
            return Err(ApiError::other_uid(kind, &write.namespace, &write.name, uid, found));
        }
        let version = text(&object, &["metadata", "resourceVersion"]);
        if version.is_empty() && !kind.unconditional_update {
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(ApiError::invalid(kind, &write.name, &[cause]));
        }
        if !version.is_empty() && version != current.version.to_string() {
            return Err(ApiError::modified(kind, &write.name));
        }
        let outcome = self.replace(&mut state, write, &current, &old, object);
        outcome.map(|stored| (stored, false)).map_err(|error| error.after_decoding(kind, false))
    }

    fn create_on_update(&self, write: &Write, mut object: Value) -> Result<(Arc<Stored>, bool), ApiError> {
        if !write.kind.create_on_update {
            return Err(ApiError::not_found(write.kind, &write.name));
        }
        let uid = text(&object, &["metadata", "uid"]);
        if !uid.is_empty() {
            return Err(ApiError::other_uid(write.kind, &write.namespace, &write.name, uid, ""));
        }
        remove(&mut object, &["metadata", "resourceVersion"]);
        self.create(write, object).map(|stored| (stored, true))
    }

    /// Patches an object or its status; the flag says whether an apply made it.
    pub(crate) fn patch(&self, write: &Write, patch: &Patch) -> Result<(Arc<Stored>, bool), ApiError> {
        let kind = write.kind;
        let mut state = self.lock();
        let Some(current) = state.find(kind, &write.namespace, &write.name) else {
            drop(state);
            return match patch {
                Patch::Apply(body) if write.subresource.is_empty() => {
                    let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version()});
                    crate::value::object(&mut object).extend(body.as_object().cloned().unwrap_or_default());
                    self.create(write, object).map(|stored| (stored, true))
                }
                _ => Err(ApiError::not_found(kind, &write.name)),
            };
        };
        let old = current.value();
        let mut wanted = patch.apply(kind, &old)?;
        decode(write, &mut wanted, true)?;
        let version = text(&wanted, &["metadata", "resourceVersion"]);
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(ApiError::new(500, "", format!("strconv.ParseUint: parsing \"{version}\": invalid syntax")));
        }
        if version != current.version.to_string() {
            // Only a patch that names a version gets here with another one; taking the version out is no condition.
            if !text(&wanted, &["metadata", "resourceVersion"]).is_empty() {
                return Err(ApiError::modified(kind, &write.name));
            }
        }
        if let Some(uid) = at(&wanted, &["metadata", "uid"]).filter(|uid| Some(*uid) != at(&old, &["metadata", "uid"]))
        {
            let cause = Cause::invalid("metadata.uid", uid, "field is immutable");
            return Err(ApiError::invalid(kind, &write.name, &[cause]));
        }
        // A patch cannot move an object: what it says about type and namespace is not even looked at.
        remove(&mut wanted, &["kind"]);
        remove(&mut wanted, &["apiVersion"]);
        remove(&mut wanted, &["metadata", "namespace"]);
        identify(write, &mut wanted)?;
        let outcome = self.replace(&mut state, write, &current, &old, wanted);
        outcome.map(|stored| (stored, false)).map_err(|error| error.after_decoding(kind, true))
    }

    /// The common end of updates and patches, `version` already checked.
    fn replace(
        &self,
        state: &mut State,
        write: &Write,
        current: &Arc<Stored>,
        old: &Value,
        mut object: Value,
    ) -> Result<Arc<Stored>, ApiError> {
        let kind = write.kind;
        let going = at(&object, &["metadata", "deletionTimestamp"]);
        if let Some(time) = going.filter(|_| at(old, &["metadata", "deletionTimestamp"]).is_none()) {
            let cause = Cause::invalid("metadata.deletionTimestamp", time, "field is immutable");
            return Err(ApiError::invalid(kind, &write.name, &[cause]));
        }
        for field in SYSTEM.iter().chain(&["resourceVersion", "generateName"]) {
            copy(&mut object, old, &["metadata", field]);
        }
        remove(&mut object, &["metadata", "managedFields"]);
        remove(&mut object, &["metadata", "selfLink"]);
        let before = write.dry_run.then(|| state.allocations.clone());
        let now = self.now();
        let mut context = self.context(state, kind, &now);
        if write.subresource == "status" {
            // All but metadata and status stays as it was.
            if let (Value::Object(new), Value::Object(old)) = (&mut object, old) {
                new.retain(|member, _| old.contains_key(member) || matches!(member.as_str(), "metadata" | "status"));
                let kept = old.iter().filter(|(member, _)| !matches!(member.as_str(), "metadata" | "status"));
                new.extend(kept.map(|(member, value)| (member.clone(), value.clone())));
            }
            admission::update_status(&context, old, &mut object)?;
        } else {
            if kind.status {
                copy(&mut object, old, &["status"]);
            }
            if kind.plural == "namespaces" {
                copy(&mut object, old, &["spec"]);
            }
            admission::update(&mut context, old, &mut object)?;
        }
        let going = at(&object, &["metadata", "deletionTimestamp"]).is_some();
        if going && list(&object, &["metadata", "finalizers"]).is_empty() && !write.dry_run {
            return Ok(take(state, kind, object));
        }
        // Both carry the old version and the type, so equal means that nothing changed.
        if object == *old {
            return Ok(Arc::clone(current));
        }
        Ok(store(state, kind, object, before))
    }

    /// Deletes an object; the flag says whether it is gone (and not just marked).
    pub(crate) fn delete(&self, write: &Write, options: &DeleteOptions) -> Result<(Arc<Stored>, bool), ApiError> {
        let mut state = self.lock();
        self.delete_in(&mut state, write, options)
    }

    fn delete_in(
        &self,
        state: &mut State,
        write: &Write,
        options: &DeleteOptions,
    ) -> Result<(Arc<Stored>, bool), ApiError> {
        let kind = write.kind;
        let Some(current) = state.find(kind, &write.namespace, &write.name) else {
            return Err(ApiError::not_found(kind, &write.name));
        };
        let mut object = current.value();
        check_preconditions(kind, &current, &object, options)?;
        if kind.plural == "namespaces" && ["default", "kube-system", "kube-public"].contains(&write.name.as_str()) {
            return Err(ApiError::forbidden(kind, &write.name, "this namespace may not be deleted"));
        }
        if write.dry_run {
            return Ok((current, true));
        }
        if kind.plural == "namespaces" {
            return Ok(self.delete_namespace(state, object));
        }
        if kind.plural == "persistentvolumes" && text(&object, &["status", "phase"]) != "Bound" {
            // What the protection controller of a whole cluster does, at once.
            let mut finalizers = list(&object, &["metadata", "finalizers"]).to_vec();
            finalizers.retain(|one| one != admission::PV_PROTECTION);
            match finalizers.is_empty() {
                true => remove(&mut object, &["metadata", "finalizers"]).map_or((), drop),
                false => set(&mut object, &["metadata", "finalizers"], finalizers),
            }
        }
        if list(&object, &["metadata", "finalizers"]).is_empty() {
            return Ok((take(state, kind, object), true));
        }
        if at(&object, &["metadata", "deletionTimestamp"]).is_some() {
            return Ok((current, false));
        }
        set(&mut object, &["metadata", "deletionTimestamp"], self.now());
        set(&mut object, &["metadata", "deletionGracePeriodSeconds"], 0);
        Ok((state.put(kind, object), false))
    }

    /// Marks a namespace as going away, then does at once what the namespace controller of a whole cluster does.
    fn delete_namespace(&self, state: &mut State, mut object: Value) -> (Arc<Stored>, bool) {
        let name = text(&object, &["metadata", "name"]).to_owned();
        set_default(&mut object, &["metadata", "deletionTimestamp"], self.now());
        set(&mut object, &["status", "phase"], "Terminating");
        let marked = state.put(namespaces(), object);
        self.empty_namespace(state, &name);
        finish_namespace(state, &name);
        (marked, false)
    }

    fn empty_namespace(&self, state: &mut State, namespace: &str) {
        for kind in KINDS.iter().filter(|kind| kind.namespaced) {
            let names: Vec<String> = state
                .of(kind)
                .objects
                .values()
                .filter(|stored| stored.namespace == namespace)
                .map(|stored| stored.name.clone())
                .collect();
            for name in names {
                // The lock is held, so nothing can be missing and no condition was set.
                let _gone = self.delete_in(state, &Write::new(kind, namespace, &name), &DeleteOptions::default());
            }
        }
    }

    /// Deletes what the selectors select. Returns the last states.
    pub(crate) fn delete_collection(
        &self,
        write: &Write,
        labels: &str,
        fields: &str,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, ApiError> {
        let scope = parse_scope(write.kind, &write.namespace, labels, fields)?;
        let mut state = self.lock();
        let chosen: Vec<Arc<Stored>> =
            state.of(write.kind).objects.values().filter(|stored| stored.matches(&scope)).map(Arc::clone).collect();
        let mut gone = Vec::new();
        for stored in chosen {
            let one = Write { namespace: stored.namespace.clone(), name: stored.name.clone(), ..write.clone() };
            gone.push(self.delete_in(&mut state, &one, options)?.0);
        }
        Ok(gone)
    }
}

/// What decoding into the typed object does to a body.
fn decode(write: &Write, object: &mut Value, patch: bool) -> Result<(), ApiError> {
    schema::check(write.kind, object, write.strict).map_err(|error| error.after_decoding(write.kind, patch))
}

/// Checks type, namespace and name of a body against the URL, and fills in what the body leaves out.
fn identify(write: &Write, object: &mut Value) -> Result<(), ApiError> {
    let kind = write.kind;
    let (found_kind, found_version) = (text(object, &["kind"]), text(object, &["apiVersion"]));
    if !object.is_object() {
        return Err(ApiError::bad_request("the body of the request is not an object"));
    }
    if !found_version.is_empty() && found_version != kind.api_version() {
        let expected = kind.api_version();
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({expected})"
        )));
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        let (version, wanted) = (kind.version, kind.kind);
        return Err(ApiError::bad_request(format!(
            "{found_kind} in version \"{version}\" cannot be handled as a {wanted}: converting ({version}.{found_kind}) to \
             (core.{wanted}): unknown conversion"
        )));
    }
    let namespace = text(object, &["metadata", "namespace"]);
    if !namespace.is_empty() && namespace != write.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let name = text(object, &["metadata", "name"]);
    if !write.name.is_empty() && name != write.name && !name.is_empty() {
        let wanted = &write.name;
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    if !write.namespace.is_empty() {
        set(object, &["metadata", "namespace"], write.namespace.clone());
    }
    if !write.name.is_empty() {
        set(object, &["metadata", "name"], write.name.clone());
    }
    set(object, &["kind"], kind.kind);
    set(object, &["apiVersion"], kind.api_version());
    Ok(())
}

fn check_namespace(state: &State, write: &Write, object: &Value) -> Result<(), ApiError> {
    if !write.kind.namespaced {
        return Ok(());
    }
    let Some(namespace) = state.find(namespaces(), "", &write.namespace) else {
        return Err(ApiError::not_found(namespaces(), &write.namespace));
    };
    if at(&namespace.value(), &["metadata", "deletionTimestamp"]).is_some() {
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", write.namespace);
        return Err(ApiError::forbidden(write.kind, text(object, &["metadata", "name"]), &why));
    }
    Ok(())
}

/// Makes a name from `generateName` when there is none.
fn name(state: &mut State, kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    if !text(object, &["metadata", "name"]).is_empty() {
        return Ok(());
    }
    let base = text(object, &["metadata", "generateName"]).to_owned();
    if base.is_empty() {
        return Err(ApiError::invalid(
            kind,
            "",
            &[Cause::required("metadata.name", "name or generateName is required")],
        ));
    }
    // Room for the suffix in a label's 63 characters.
    let base: String = base.chars().take(58).collect();
    let name = format!("{base}{}", state.ids.suffix());
    set(object, &["metadata", "name"], name);
    Ok(())
}

fn check_preconditions(kind: &Kind, current: &Stored, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let name = &current.name;
    let uid = text(object, &["metadata", "uid"]);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::precondition(kind, name, &why));
    }
    let version = current.version.to_string();
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        );
        return Err(ApiError::precondition(kind, name, &why));
    }
    Ok(())
}

/// Stores a version, or only shows it when `before` holds the allocations to go back to.
fn store(state: &mut State, kind: &'static Kind, object: Value, before: Option<admission::Allocations>) -> Arc<Stored> {
    match before {
        None => state.put(kind, object),
        Some(before) => {
            state.allocations = before;
            Arc::new(Stored::new(kind, object, state.version))
        }
    }
}

fn take(state: &mut State, kind: &'static Kind, object: Value) -> Arc<Stored> {
    admission::removed(kind, &mut state.allocations, &object);
    let namespace = text(&object, &["metadata", "namespace"]).to_owned();
    let taken = state.take(kind, object);
    finish_namespace(state, &namespace);
    taken
}

fn namespaces() -> &'static Kind {
    let [namespaces, ..] = &KINDS;
    namespaces
}

/// Removes a namespace that is going away and has become empty.
fn finish_namespace(state: &mut State, name: &str) {
    let Some(namespace) = state.find(namespaces(), "", name) else { return };
    let object = namespace.value();
    let going = at(&object, &["metadata", "deletionTimestamp"]).is_some();
    let used = || {
        KINDS.iter().any(|kind| {
            let first = state.of(kind).objects.range(format!("{name}/")..).next();
            first.is_some_and(|(_, stored)| stored.namespace == name)
        })
    };
    if going && list(&object, &["metadata", "finalizers"]).is_empty() && !used() {
        state.take(namespaces(), object);
    }
}
