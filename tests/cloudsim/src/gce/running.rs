//! A running simulated Compute Engine.

use super::metadata::{Metadata, Service};
use super::model::Model;
use super::options::Options;
use super::places::PATH;
use super::world::World;
use super::{kinds, places};
use crate::core::rest::Problem;
use crate::core::routes;
use crate::core::running::{Running, Setup};
use serde_json::Value;
use std::io;
use std::sync::Arc;

/// A simulated Compute Engine that listens on loopback until it is dropped.
pub type Gce = Running<World>;

impl Running<World> {
    /// Starts the simulation.
    pub fn start(options: Options) -> io::Result<Self> {
        let model = if options.check { Model::shared()? } else { None };
        let Options { port, admin_port, ledger_entries, .. } = options;
        let setup = Setup { name: "cloudsim-gce", port, admin_port, ledger_entries };
        Running::serve(World::new(options, model), &setup)
    }

    /// The token endpoint for service accounts with a key.
    pub fn token_url(&self) -> String {
        format!("{}/token", self.root())
    }

    /// A new token of an account.
    pub fn token(&self) -> String {
        self.world(|world| world.token("test@example.com").0)
    }

    /// Starts the metadata server of an instance, identified by its path, on this port or any free one.
    pub fn metadata(&self, instance: &str, port: u16) -> io::Result<Metadata> {
        if self.world(|world| world.store.get(instance).is_none()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no instance {instance}")));
        }
        let service = Service { endpoint: self.endpoint.clone(), instance: instance.to_owned() };
        Ok(Metadata { server: self.runtime.spawner().serve(port, Arc::new(service))? })
    }

    /// Executes a call with all permissions: without token, latency, faults and ledger, and with an immediately visible
    /// effect. For changes by clients other than the caller under test. The path begins with `projects/`.
    pub fn by_hand(&self, method: &str, path: &str, body: &Value) -> Result<Value, Problem> {
        self.world(|world| {
            let rights = (std::mem::take(&mut world.options.denied), std::mem::take(&mut world.options.read_only));
            let answer = routes::by_hand(world, method, &format!("{PATH}{path}"), body);
            (world.options.denied, world.options.read_only) = rights;
            answer
        })
    }

    /// All objects of a collection (`forwardingRules`, `backendServices`, …) in all scopes as the API shows them,
    /// without lag; by path.
    pub fn objects(&self, collection: &str) -> Vec<Value> {
        self.world(|world| {
            let shown = world.store.all(collection).filter_map(|(key, row)| {
                let kind = kinds::of(&places::Spot::parse(key)?)?;
                Some(Value::Object(kinds::shown(world, kind, key, row)))
            });
            shown.collect()
        })
    }

    /// Invalidates all tokens: the next calls get 401.
    pub fn expire_tokens(&self) {
        self.world(|world| world.tokens.expire());
    }
}
