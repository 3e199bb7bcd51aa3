//! A running simulated AWS.

use super::imds::{Imds, ImdsOptions, Metadata};
use super::model::Models;
use super::world::Dump;
use super::{ApiError, Call, Options, Service, World, Xml};
use crate::core::running::{Running, Setup};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// A simulated AWS that listens on loopback until it is dropped.
pub type Aws = Running<World>;

impl Running<World> {
    /// Starts the simulation.
    pub fn start(options: Options) -> io::Result<Self> {
        let models = if options.validate { Models::shared()? } else { None };
        let Options { port, admin_port, ledger_entries, .. } = options;
        let setup = Setup { name: "cloudsim-aws", port, admin_port, ledger_entries };
        let mut world = World::new(Arc::new(options));
        world.models = models;
        Running::serve(world, &setup)
    }

    /// Starts the metadata service of an instance.
    pub fn imds(&self, instance: &str, options: ImdsOptions) -> io::Result<Imds> {
        if !self.world(|world| world.ec2.instances.contains_key(instance)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no instance {instance}")));
        }
        let port = options.port;
        let metadata = Metadata {
            endpoint: self.endpoint.clone(),
            instance: instance.to_owned(),
            options,
            tokens: Mutex::new(BTreeMap::new()),
            credentials: Mutex::new(None),
        };
        Ok(Imds { server: self.runtime.spawner().serve(port, Arc::new(metadata))? })
    }

    /// Executes a call of another client: without signature, latency, faults and ledger. For changes in the account
    /// that are not made by the caller under test.
    pub fn by_hand(&self, service: Service, action: &str, form: &str) -> Result<String, ApiError> {
        let call = Call::direct(service, action, form)?;
        self.world(|world| super::handle(world, &call)).map(Xml::into_string)
    }

    /// The whole state as sorted, stable JSON.
    pub fn dump(&self) -> serde_json::Result<String> {
        self.world(|world| serde_json::to_string_pretty(&world.dump()))
    }

    /// Loads a dumped state.
    pub fn load(&self, dump: &str) -> serde_json::Result<()> {
        let dump: Dump = serde_json::from_str(dump)?;
        self.world(|world| world.load(dump));
        Ok(())
    }
}
