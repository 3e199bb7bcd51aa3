//! A running simulated Azure.

use super::ids::Id;
use super::model::Model;
use super::options::Options;
use super::world::World;
use crate::core::rest::Problem;
use crate::core::routes;
use crate::core::running::{Running, Setup};
use serde_json::Value;
use std::io;

/// A simulated Azure that listens on loopback until it is dropped.
pub type Azure = Running<World>;

impl Running<World> {
    /// Starts the simulation.
    pub fn start(options: Options) -> io::Result<Self> {
        let model = if options.check { Model::shared()? } else { None };
        let Options { port, admin_port, ledger_entries, .. } = options;
        let setup = Setup { name: "cloudsim-azure", port, admin_port, ledger_entries };
        Running::serve(World::new(options, model), &setup)
    }

    /// A new token of the application `client` in the tenant of the subscriptions.
    pub fn token(&self) -> String {
        self.world(|world| {
            let tenant = world.identities.tenant.clone();
            world.token("client", &tenant).0
        })
    }

    /// Executes a call with all rights: without token, latency, faults and ledger, and with an immediately visible
    /// effect. For changes by clients other than the caller under test. The path is that of the API, without a version.
    pub fn by_hand(&self, method: &str, path: &str, body: &Value) -> Result<Value, Problem> {
        self.world(|world| {
            world.action = "";
            routes::by_hand(world, method, path, body)
        })
    }

    /// A resource as the API shows it, without lag; null if it does not exist.
    pub fn object(&self, id: &str) -> Value {
        self.world(|world| world.shown_now(id).unwrap_or_default())
    }

    /// All resources of a type (`Microsoft.Network/loadBalancers`) as the API shows them, without lag.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        self.world(|world| world.store.of_kind(&kind.to_lowercase()).map(|row| world.shown(row)).collect())
    }

    /// The operations that later ones superseded, one line each.
    pub fn superseded(&self) -> Vec<String> {
        self.world(|world| world.operations.superseded.clone())
    }

    /// Invalidates all tokens: the next calls get 401.
    pub fn expire_tokens(&self) {
        self.world(World::expire_tokens);
    }

    /// Lets writes on a resource be answered as busy (429 `RetryableError`) until the time of the virtual clock.
    pub fn busy(&self, id: &str, until: jiff::Timestamp) {
        let key = Id::parse(id).map_or_else(|| id.to_lowercase(), |id| id.key());
        self.world(|world| world.busy.insert(key, until));
    }
}
