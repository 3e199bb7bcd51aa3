//! A running simulated AWS.

use super::admin::Admin;
use super::imds::{Imds, ImdsOptions, Metadata};
use super::model::Models;
use super::world::Dump;
use super::{ApiError, Call, Options, Service, World, Xml};
use crate::core::clock::Clock;
use crate::core::endpoint::{Endpoint, Inside};
use crate::core::faults::{Faults, Rule};
use crate::core::ledger::Ledger;
use crate::core::lock;
use crate::core::server::{Answer, Handler as _, Request, Runtime, Server, Spawner};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

/// A simulated AWS that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Aws {
    endpoint: Arc<Endpoint<World>>,
    clock: Clock,
    server: Server,
    admin: Server,
    // Last: the servers stop before their thread.
    runtime: Runtime,
}

impl Aws {
    /// Starts it.
    ///
    /// # Errors
    /// A port is taken, no thread can be made, or calls are to be checked against models that can't be read.
    pub fn start(options: Options) -> io::Result<Self> {
        let runtime = Runtime::start("cloudsim-aws")?;
        let (port, admin_port) = (options.port, options.admin_port);
        let models = if options.validate { Models::shared()? } else { None };
        let options = Arc::new(options);
        let mut world = World::new(options.clone());
        world.models = models;
        let clock = world.clock.clone();
        let inside = Inside::new(world, options.seed, options.ledger_entries, &options.throttle);
        let endpoint = Arc::new(Endpoint { inside: Mutex::new(inside) });
        let spawner = runtime.spawner();
        let server = spawner.serve(port, endpoint.clone())?;
        let admin = Admin {
            endpoint: endpoint.clone(),
            url: server.url(),
            spawner: spawner.clone(),
            imds: Mutex::new(BTreeMap::new()),
        };
        let admin = spawner.serve(admin_port, Arc::new(admin))?;
        Ok(Aws { endpoint, clock, server, admin, runtime })
    }

    /// URL of the endpoint of all services.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Answers a request as the endpoint would, without a socket: for callers in the same process whose time stands still.
    pub async fn answer(&self, request: Request) -> Answer {
        self.endpoint.clone().answer(request).await
    }

    /// URL of the admin API (see the module `admin`).
    pub fn admin_url(&self) -> String {
        self.admin.url()
    }

    /// Starts the metadata service of an instance.
    pub fn imds(&self, instance: &str, options: ImdsOptions) -> io::Result<Imds> {
        start_imds(&self.runtime.spawner(), &self.endpoint, instance, options)
    }

    /// An empty account that behaves the same; faults, ledger and violations are forgotten.
    pub fn reset(&self) {
        reset(&mut lock(&self.endpoint.inside));
    }

    /// Changes how it behaves from now on: latency, throttles, lags, quotas, delays, page sizes.
    pub fn change(&self, change: impl FnOnce(&mut Options)) {
        change_options(&mut lock(&self.endpoint.inside), change);
    }

    /// The virtual clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Looks into the world or changes it, between two calls. What is due by now has happened.
    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        let mut inside = lock(&self.endpoint.inside);
        inside.cloud.settle();
        look(&mut inside.cloud)
    }

    /// Carries out a call as somebody else's: without signature, latency, faults and ledger. For what happens in the account
    /// besides the caller under test.
    pub fn by_hand(&self, service: Service, action: &str, form: &str) -> Result<String, ApiError> {
        let call = Call::direct(service, action, form)?;
        self.world(|world| super::handle(world, &call)).map(Xml::into_string)
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

    /// What so far did not follow the vendor's models, in requests and in answers, one line each; tests assert that there is
    /// nothing. Always empty where the models are not installed (see [`super::model`]).
    pub fn violations(&self) -> Vec<String> {
        lock(&self.endpoint.inside).violations.clone()
    }

    /// The same, and forgets them: for tests that send what is wrong on purpose.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.endpoint.inside).violations)
    }

    /// Waits until no caller waits for an answer: see [`Runtime::settled`].
    pub async fn settled(&self) {
        self.runtime.settled().await;
    }

    /// A mark in the ledger: the number of the last call so far.
    pub fn mark(&self) -> u64 {
        self.ledger(|ledger| ledger.mark())
    }

    /// The whole state as JSON: stable, sorted.
    pub fn dump(&self) -> serde_json::Result<String> {
        self.world(|world| serde_json::to_string_pretty(&world.dump()))
    }

    /// Takes over a dumped state.
    pub fn load(&self, dump: &str) -> serde_json::Result<()> {
        let dump: Dump = serde_json::from_str(dump)?;
        self.world(|world| world.load(dump));
        Ok(())
    }
}

impl Drop for Aws {
    fn drop(&mut self) {
        self.ledger(|ledger| ledger.write_calls());
    }
}

/// Starts the metadata service of an instance.
pub(super) fn start_imds(
    spawner: &Spawner,
    endpoint: &Arc<Endpoint<World>>,
    instance: &str,
    options: ImdsOptions,
) -> io::Result<Imds> {
    if !lock(&endpoint.inside).cloud.ec2.instances.contains_key(instance) {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no instance {instance}")));
    }
    let port = options.port;
    let metadata = Metadata {
        endpoint: endpoint.clone(),
        instance: instance.to_owned(),
        options,
        tokens: Mutex::new(BTreeMap::new()),
        credentials: Mutex::new(None),
    };
    Ok(Imds { server: spawner.serve(port, Arc::new(metadata))? })
}

/// See [`Aws::reset`].
pub(super) fn reset(inside: &mut Inside<World>) {
    inside.cloud = inside.cloud.emptied();
    let options = inside.cloud.options.clone();
    inside.faults = Faults::new(options.seed);
    inside.ledger.clear();
    inside.set_throttle(&options.throttle);
    inside.violations.clear();
}

/// See [`Aws::change`]. The account, the region, the clock's mode and the ports stay what they were.
pub(super) fn change_options(inside: &mut Inside<World>, change: impl FnOnce(&mut Options)) {
    let mut options = inside.cloud.options.as_ref().clone();
    let buckets = options.throttle.clone();
    change(&mut options);
    if options.throttle != buckets {
        inside.set_throttle(&options.throttle);
    }
    // What is not checked is listed among the violations, which tests read.
    let models = if options.validate { Models::shared() } else { Ok(None) };
    inside.cloud.models = models.unwrap_or_else(|error| {
        inside.violations.push(error.to_string());
        None
    });
    inside.cloud.options = Arc::new(options);
}
