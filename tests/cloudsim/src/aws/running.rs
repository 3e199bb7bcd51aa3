//! A running simulated AWS.

use super::endpoint::{Endpoint, Inside};
use super::world::Dump;
use super::{Options, World};
use crate::core::clock::Clock;
use crate::core::faults::{Faults, Rule};
use crate::core::ledger::Ledger;
use crate::core::lock;
use crate::core::server::{Runtime, Server};
use std::io;
use std::sync::{Arc, Mutex};

/// A simulated AWS that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Aws {
    endpoint: Arc<Endpoint>,
    clock: Clock,
    server: Server,
    // Last: the servers stop before their thread.
    _runtime: Runtime,
}

impl Aws {
    /// Starts it.
    ///
    /// # Errors
    /// A port is taken, or no thread can be made.
    pub fn start(options: Options) -> io::Result<Self> {
        let runtime = Runtime::start("cloudsim-aws")?;
        let port = options.port;
        let inside = Inside::new(Arc::new(options));
        let clock = inside.world.clock.clone();
        let endpoint = Arc::new(Endpoint { inside: Mutex::new(inside) });
        let server = runtime.serve(port, endpoint.clone())?;
        Ok(Aws { endpoint, clock, server, _runtime: runtime })
    }

    /// URL of the endpoint of all services.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The virtual clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Looks into the world or changes it, between two calls. What is due by now has happened.
    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        let mut inside = lock(&self.endpoint.inside);
        inside.world.settle();
        look(&mut inside.world)
    }

    /// Adds a fault rule behind the others.
    pub fn fault(&self, rule: Rule) {
        lock(&self.endpoint.inside).faults.add(rule);
    }

    /// Looks at the fault rules or changes them.
    pub fn faults<T>(&self, look: impl FnOnce(&mut Faults) -> T) -> T {
        look(&mut lock(&self.endpoint.inside).faults)
    }

    /// Reads the ledger of calls or clears it.
    pub fn ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut lock(&self.endpoint.inside).ledger)
    }

    /// A mark in the ledger: the number of the last call so far.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.ledger(|ledger| ledger.mark())
    }

    /// The whole state as JSON: stable, sorted.
    ///
    /// # Errors
    /// Never for states made through the API; those of serde otherwise.
    pub fn dump(&self) -> serde_json::Result<String> {
        self.world(|world| serde_json::to_string_pretty(&world.dump()))
    }

    /// Takes over a dumped state.
    ///
    /// # Errors
    /// The text is no dump.
    pub fn load(&self, dump: &str) -> serde_json::Result<()> {
        let dump: Dump = serde_json::from_str(dump)?;
        self.world(|world| world.load(dump));
        Ok(())
    }
}
