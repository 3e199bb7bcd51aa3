//! The objects, and direct access to them without HTTP.

mod read;
mod state;
mod write;

pub(crate) use read::{List, ListOptions, Snapshot, parse_version, too_old};
pub(crate) use state::{Record, Scope, State, Stored};
pub(crate) use write::Write;

use crate::error::ApiError;
use crate::kind::Kind;
use crate::log::{RequestLog, WriteEntry};
use crate::options::Options;
use crate::patch::Patch;
use crate::watch::Watch;
use serde_json::{Value, json};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// The user agent of in-process writes in the log.
pub const IN_PROCESS: &str = "in-process";

/// The shared state of the store, its handles and the HTTP server.
#[derive(Debug)]
pub(crate) struct Core {
    state: Mutex<State>,
    pub(crate) options: Options,
    pub(crate) log: RequestLog,
}

impl Core {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Direct access to the objects: the code of the HTTP server, without HTTP and without faults.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) core: Arc<Core>,
}

/// The kind with this plural name, or the error for an unknown resource.
fn kind(resource: &str) -> Result<&'static Kind, ApiError> {
    Kind::by_plural(resource).ok_or_else(ApiError::no_resource)
}

impl Store {
    /// A store with only the four system namespaces.
    pub fn new(options: Options) -> Store {
        let random = || uuid::Uuid::new_v4().as_u64_pair().0;
        let state = Mutex::new(State::new(options.history, options.seed.unwrap_or_else(random)));
        let store = Store { core: Arc::new(Core { state, options, log: RequestLog::default() }) };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let made = store.create("namespaces", "", json!({"metadata": {"name": name}}));
            debug_assert!(made.is_ok(), "{made:?}");
        }
        store.core.log.clear();
        store
    }

    /// The log of requests.
    pub fn log(&self) -> &RequestLog {
        &self.core.log
    }

    /// The newest resourceVersion.
    pub fn version(&self) -> u64 {
        self.core.lock().version
    }

    /// Creates an object. `namespace` is empty for cluster-scoped kinds.
    pub fn create(&self, resource: &str, namespace: &str, object: Value) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, "", "");
        self.logged("create", &write, object.clone(), |core| core.create(&write, object))
    }

    /// The current object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
        self.core.get(kind(resource)?, namespace, name, None).map(|stored| stored.value())
    }

    /// All objects of a kind, in key order.
    pub fn objects(&self, resource: &str) -> Result<Vec<Value>, ApiError> {
        let list = self.core.list(kind(resource)?, &ListOptions::default(), None)?;
        Ok(list.items.iter().map(|stored| stored.value()).collect())
    }

    /// Patches an object.
    pub fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Patch) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, name, "");
        self.logged("patch", &write, patch.body().clone(), |core| core.patch(&write, patch))
    }

    /// Patches an object through its status subresource.
    pub fn patch_status(&self, resource: &str, namespace: &str, name: &str, patch: &Patch) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, name, "status");
        self.logged("patch", &write, patch.body().clone(), |core| core.patch(&write, patch))
    }

    /// Deletes an object, or sets its `deletionTimestamp` if it has finalizers. Returns its last state.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let write = Write::new(kind(resource)?, namespace, name, "");
        let act = |core: &Core| core.delete(&write, &Value::Null).map(|(stored, _)| stored);
        self.logged("delete", &write, Value::Null, act)
    }

    /// Opens a watch on all objects of a kind; it starts with the existing ones.
    pub fn watch(&self, resource: &str) -> Result<Watch, ApiError> {
        Watch::open(&self.core, kind(resource)?, &ListOptions::default(), None)
    }

    /// Drops the history of a kind up to now: older watches and continue tokens get 410.
    pub fn compact(&self, resource: &str) -> Result<(), ApiError> {
        self.core.lock().compact(kind(resource)?);
        Ok(())
    }

    /// Returns to an older version, as if etcd were restored from a snapshot. Open watches keep their version, which is
    /// now in the future.
    pub fn restore(&self, version: u64) {
        self.core.lock().restore(version);
    }

    fn logged(
        &self,
        verb: &'static str,
        write: &Write,
        body: Value,
        act: impl FnOnce(&Core) -> Result<Arc<Stored>, ApiError>,
    ) -> Result<Value, ApiError> {
        let outcome = act(&self.core);
        self.core.log.write(WriteEntry {
            verb,
            resource: write.kind.plural,
            namespace: write.namespace.clone(),
            name: outcome.as_ref().map_or(&write.name, |stored| &stored.name).clone(),
            subresource: write.subresource.clone(),
            user_agent: IN_PROCESS.to_owned(),
            content_type: String::new(),
            body,
            status: outcome.as_ref().err().map_or(200, |error| error.code),
        });
        outcome.map(|stored| stored.value())
    }
}
