//! The objects, and direct access to them without HTTP.

mod read;
mod state;
mod write;

pub use read::{List, ListOptions};
pub(crate) use read::{Snapshot, parse_scope, parse_version, too_old};
pub use state::Stored;
pub(crate) use state::{Change, Record, Scope, State, Stored as StoredObject};
pub use write::DeleteOptions;
pub(crate) use write::Write;

use crate::error::ApiError;
use crate::kind::Kind;
use crate::log::{RequestLog, WriteEntry};
use crate::options::Options;
use crate::patch::Patch;
use crate::watch::{Watch, WatchOptions};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The user agent under which in-process writes are logged.
pub const IN_PROCESS: &str = "in-process";

/// What the store, its handles and the HTTP server share.
#[derive(Debug)]
pub(crate) struct Core {
    state: Mutex<State>,
    pub(crate) options: Options,
    pub(crate) log: RequestLog,
}

impl Core {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the lock is a bug that its own test reports; the others should not drown in poison.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Direct access to the objects: the code that serves HTTP, without HTTP and without faults.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) core: Arc<Core>,
}

/// The kind with this plural name, or the error of an unknown resource.
fn kind(resource: &str) -> Result<&'static Kind, ApiError> {
    Kind::by_plural(resource).ok_or_else(ApiError::no_resource)
}

impl Store {
    /// A store with the four system namespaces and nothing else.
    #[must_use]
    pub fn new(options: Options) -> Store {
        let seed = options.seed.unwrap_or_else(|| {
            let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
            high ^ low
        });
        let state = Mutex::new(State::new(options.history, seed));
        let log = RequestLog::new(options.log_limit);
        let store = Store { core: Arc::new(Core { state, options, log }) };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let made = store.create("namespaces", "", json!({"metadata": {"name": name}}));
            debug_assert!(made.is_ok(), "{made:?}");
        }
        store.core.log.clear();
        store
    }

    /// The log of requests.
    #[must_use]
    pub fn log(&self) -> &RequestLog {
        &self.core.log
    }

    /// The newest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.core.lock().version
    }

    /// Makes an object. `namespace` is empty for cluster-scoped kinds.
    pub fn create(&self, resource: &str, namespace: &str, object: Value) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, "");
        self.logged("create", &write, object.clone(), |core| core.create(&write, object))
    }

    /// The object, as it is now.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let kind = kind(resource)?;
        self.core.get(kind, namespace, name, None).map(|stored| stored.value())
    }

    /// A list as HTTP would answer it.
    pub fn list(&self, resource: &str, options: &ListOptions) -> Result<List, ApiError> {
        self.core.list(kind(resource)?, options, None)
    }

    /// All objects of a kind, in key order.
    pub fn objects(&self, resource: &str) -> Result<Vec<Value>, ApiError> {
        Ok(self.list(resource, &ListOptions::default())?.items.iter().map(|stored| stored.value()).collect())
    }

    /// Replaces an object (its status excepted).
    pub fn update(&self, resource: &str, namespace: &str, object: Value) -> Result<Value, ApiError> {
        self.replace(resource, namespace, "", object)
    }

    /// Replaces the status (and the metadata that may be changed) of an object.
    pub fn update_status(&self, resource: &str, namespace: &str, object: Value) -> Result<Value, ApiError> {
        self.replace(resource, namespace, "status", object)
    }

    fn replace(&self, resource: &str, namespace: &str, subresource: &str, object: Value) -> Result<Value, ApiError> {
        let name = crate::value::text(&object, &["metadata", "name"]).to_owned();
        let write = Write { subresource: subresource.into(), ..Write::new(kind(resource)?, namespace, &name) };
        self.logged("update", &write, object.clone(), |core| core.update(&write, object).map(|(stored, _)| stored))
    }

    /// Patches an object.
    pub fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Patch) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, name);
        self.logged("patch", &write, patch.body().clone(), |core| core.patch(&write, patch).map(|(stored, _)| stored))
    }

    /// Patches an object through its status subresource.
    pub fn patch_status(&self, resource: &str, namespace: &str, name: &str, patch: &Patch) -> Result<Value, ApiError> {
        let write = Write { subresource: "status".into(), ..Write::new(kind(resource)?, namespace, name) };
        self.logged("patch", &write, patch.body().clone(), |core| core.patch(&write, patch).map(|(stored, _)| stored))
    }

    /// Deletes an object, or marks it as going away when it has finalizers. Returns its last state.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
        self.delete_with(resource, namespace, name, &DeleteOptions::default())
    }

    /// Deletes an object under preconditions.
    pub fn delete_with(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, name);
        self.logged("delete", &write, options.to_value(), |core| core.delete(&write, options).map(|(stored, _)| stored))
    }

    /// Opens a watch.
    pub fn watch(&self, resource: &str, options: &WatchOptions) -> Result<Watch, ApiError> {
        Watch::open(&self.core, kind(resource)?, options, None)
    }

    /// Forgets the history of a kind up to now: older watches and continue tokens get 410.
    pub fn compact(&self, resource: &str) -> Result<(), ApiError> {
        let kind = kind(resource)?;
        let mut state = self.core.lock();
        let version = state.version;
        state.compact(kind, version);
        Ok(())
    }

    /// Goes back to an older version, as when etcd is restored from a snapshot. Open watches stay where they are: in the
    /// future.
    pub fn restore(&self, version: u64) {
        self.core.lock().restore(version);
    }

    fn logged(
        &self,
        verb: &'static str,
        write: &Write,
        body: Value,
        act: impl FnOnce(&Core) -> Result<Arc<StoredObject>, ApiError>,
    ) -> Result<Value, ApiError> {
        let outcome = act(&self.core);
        let name = match &outcome {
            Ok(stored) => stored.name.clone(),
            Err(_) => write.name.clone(),
        };
        self.core.log.write(WriteEntry {
            verb,
            resource: write.kind.plural,
            namespace: write.namespace.clone(),
            name,
            subresource: write.subresource.clone(),
            user_agent: IN_PROCESS.to_owned(),
            content_type: String::new(),
            body: if self.core.options.log_bodies { body } else { Value::Null },
            status: outcome.as_ref().err().map_or(200, |error| error.code),
        });
        outcome.map(|stored| stored.value())
    }
}
