//! A running simulated Compute Engine.

use super::admin::Admin;
use super::metadata::{Metadata, Service};
use super::model::Model;
use super::options::Options;
use super::places::PATH;
use super::world::World;
use super::{kinds, places};
use crate::core::clock::Clock;
use crate::core::endpoint::{Endpoint, Inside};
use crate::core::faults::{Faults, Rule};
use crate::core::ledger::Ledger;
use crate::core::lock;
use crate::core::rest::{Problem, find};
use crate::core::routes::Rest as _;
use crate::core::server::{Answer, Handler as _, Request, Runtime, Server};
use bytes::Bytes;
use serde_json::Value;
use std::io;
use std::sync::{Arc, Mutex};

/// A simulated Compute Engine that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Gce {
    endpoint: Arc<Endpoint<World>>,
    clock: Clock,
    server: Server,
    admin: Server,
    // Last: the servers stop before their thread.
    runtime: Runtime,
}

impl Gce {
    /// Starts it.
    ///
    /// # Errors
    /// A port is taken, no thread can be started, or with `CI=true` Google's description of the API is missing.
    pub fn start(options: Options) -> io::Result<Self> {
        let model = if options.check { Model::shared()? } else { None };
        let runtime = Runtime::start("cloudsim-gce")?;
        let (port, admin_port, seed, entries, throttle) =
            (options.port, options.admin_port, options.seed, options.ledger_entries, options.throttle.clone());
        let world = World::new(options, model);
        let clock = world.clock.clone();
        let inside = Mutex::new(Inside::new(world, seed, entries, &throttle));
        let endpoint = Arc::new(Endpoint { inside });
        let server = runtime.spawner().serve(port, endpoint.clone())?;
        lock(&endpoint.inside).cloud.url = server.url();
        let admin = runtime.spawner().serve(admin_port, Arc::new(Admin { endpoint: endpoint.clone() }))?;
        Ok(Gce { endpoint, clock, server, admin, runtime })
    }

    /// The base of the Compute API, with a trailing slash, for `api-endpoint`.
    pub fn url(&self) -> String {
        format!("{}{PATH}", self.root())
    }

    /// The URL of the endpoint of all services, without a path.
    pub fn root(&self) -> String {
        self.server.url()
    }

    /// The token endpoint for service accounts with a key.
    pub fn token_url(&self) -> String {
        format!("{}/token", self.root())
    }

    /// The token endpoint that exchanges tokens of other identity providers, like the Security Token Service.
    pub fn exchange_url(&self) -> String {
        format!("{}/v1/token", self.root())
    }

    /// The token endpoint for service account impersonation.
    pub fn impersonation_url(&self, account: &str) -> String {
        format!("{}/v1/projects/-/serviceAccounts/{account}:generateAccessToken", self.root())
    }

    /// The URL of a token source, for `token-url`.
    pub fn alternate_token_url(&self) -> String {
        format!("{}/alternate-token", self.root())
    }

    /// URL of the admin API: clock, faults, ledger, options and violations.
    pub fn admin_url(&self) -> String {
        self.admin.url()
    }

    /// A new token of an account.
    pub fn token(&self) -> String {
        self.world(|world| world.token("test@example.com").0)
    }

    /// Answers a request like the endpoint but without a socket: for callers in the same process with a paused clock.
    pub async fn answer(&self, request: Request) -> Answer {
        self.endpoint.clone().answer(request).await
    }

    /// Starts the metadata server of an instance, by its path, on any free port or on this one.
    ///
    /// # Errors
    /// There is no such instance, or the port is taken.
    pub fn metadata(&self, instance: &str, port: u16) -> io::Result<Metadata> {
        if self.world(|world| world.store.get(instance).is_none()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no instance {instance}")));
        }
        let service = Service { endpoint: self.endpoint.clone(), instance: instance.to_owned() };
        Ok(Metadata { server: self.runtime.spawner().serve(port, Arc::new(service))? })
    }

    /// Changes the behaviour from now on, except the clock's mode and the ports.
    pub fn change(&self, change: impl FnOnce(&mut Options)) {
        change_options(&mut lock(&self.endpoint.inside), change);
    }

    /// The virtual clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads or changes the state between two calls. Everything due by now has happened.
    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        let mut inside = lock(&self.endpoint.inside);
        inside.cloud.settle();
        look(&mut inside.cloud)
    }

    /// Executes a call with all permissions: without token, latency, faults and ledger, and with an effect that is
    /// visible at once. For changes by others than the caller under test. The path begins with `projects/`.
    ///
    /// # Errors
    /// Those of the API, or no route matches the call.
    pub fn by_hand(&self, method: &str, path: &str, body: &Value) -> Result<Value, Problem> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let wrong = |text: String| Problem::violation(400, "no call", text);
        let request = http::Request::builder().method(method).uri(format!("{PATH}{path}")).body(body);
        let request = request.map_err(|error| wrong(error.to_string()))?;
        let (route, call) =
            find(World::routes(), &request).map_err(|lost| wrong(format!("{method} {path}: {lost:?}")))?;
        self.world(|world| {
            let rights = (std::mem::take(&mut world.options.denied), std::mem::take(&mut world.options.read_only));
            let reply = (route.run)(world, &call);
            (world.options.denied, world.options.read_only) = rights;
            Ok(serde_json::from_slice(&reply?.body).unwrap_or_default())
        })
    }

    /// All objects of a collection (`forwardingRules`, `backendServices`, …) in all places as the API shows them,
    /// without the delay of late reads; by path.
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

    /// Adds a fault rule after the others.
    pub fn fault(&self, rule: Rule) {
        self.faults(|faults| faults.add(rule));
    }

    /// Reads or changes the fault rules.
    pub fn faults<T>(&self, look: impl FnOnce(&mut Faults) -> T) -> T {
        look(&mut lock(&self.endpoint.inside).faults)
    }

    /// Reads the ledger of calls or clears it.
    pub fn ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut lock(&self.endpoint.inside).ledger)
    }

    /// Waits until no caller is waiting for an answer: see [`Runtime::settled`].
    pub async fn settled(&self) {
        self.runtime.settled().await;
    }

    /// A mark in the ledger: the number of the last call so far.
    pub fn mark(&self) -> u64 {
        self.ledger(|ledger| ledger.mark())
    }

    /// Requests of callers and answers of the simulation that violate the API, one line each; tests assert that there
    /// are none.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.endpoint.inside).violations.clone()
    }

    /// The same, and clears them: for tests that send invalid requests on purpose.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.endpoint.inside).violations)
    }
}

impl Drop for Gce {
    fn drop(&mut self) {
        self.ledger(|ledger| ledger.write_calls());
    }
}

/// See [`Gce::change`].
pub(super) fn change_options(inside: &mut Inside<World>, change: impl FnOnce(&mut Options)) {
    let buckets = inside.cloud.options.throttle.clone();
    change(&mut inside.cloud.options);
    let new = inside.cloud.options.throttle.clone();
    if new != buckets {
        inside.set_throttle(&new);
    }
}
