//! A running simulated OpenStack.

use super::admin::Admin;
use super::metadata::{Metadata, Service};
use super::octavia::balancers::whole;
use super::{Options, Who, World};
use crate::core::clock::Clock;
use crate::core::endpoint::{Endpoint, Inside};
use crate::core::faults::{Faults, Rule};
use crate::core::ledger::Ledger;
use crate::core::lock;
use crate::core::rest::{Problem, find};
use crate::core::routes::Rest as _;
use crate::core::rows::Row;
use crate::core::server::{Answer, Handler as _, Request, Runtime, Server};
use bytes::Bytes;
use serde_json::Value;
use std::io;
use std::sync::{Arc, Mutex};

/// A simulated OpenStack that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct OpenStack {
    endpoint: Arc<Endpoint<World>>,
    clock: Clock,
    server: Server,
    admin: Server,
    // Last: the servers stop before their thread.
    runtime: Runtime,
}

impl OpenStack {
    /// Starts it.
    ///
    /// # Errors
    /// The port is taken, or no thread can be started.
    pub fn start(options: Options) -> io::Result<Self> {
        let runtime = Runtime::start("cloudsim-openstack")?;
        let (port, seed, entries, throttle) =
            (options.port, options.seed, options.ledger_entries, options.throttle.clone());
        let world = World::new(options);
        let clock = world.clock.clone();
        let inside = Mutex::new(Inside::new(world, seed, entries, &throttle));
        let endpoint = Arc::new(Endpoint { inside });
        let server = runtime.spawner().serve(port, endpoint.clone())?;
        lock(&endpoint.inside).cloud.url = server.url();
        let admin = runtime.spawner().serve(0, Arc::new(Admin { endpoint: endpoint.clone() }))?;
        Ok(OpenStack { endpoint, clock, server, admin, runtime })
    }

    /// URL of the endpoint of all services; each is at a path of its own.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// URL of the admin API: clock, faults, ledger and options.
    pub fn admin_url(&self) -> String {
        self.admin.url()
    }

    /// URL of Keystone, without a version.
    pub fn auth_url(&self) -> String {
        format!("{}/identity", self.url())
    }

    /// Answers a request like the endpoint but without a socket: for callers in the same process with a paused clock.
    pub async fn answer(&self, request: Request) -> Answer {
        self.endpoint.clone().answer(request).await
    }

    /// Starts the metadata service of a server, on any free port or on this one.
    ///
    /// # Errors
    /// There is no such server, or the port is taken.
    pub fn metadata(&self, server: &str, port: u16) -> io::Result<Metadata> {
        if self.world(|world| world.row("server", server).is_none()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no server {server}")));
        }
        let service = Service { endpoint: self.endpoint.clone(), server: server.to_owned() };
        Ok(Metadata { server: self.runtime.spawner().serve(port, Arc::new(service))? })
    }

    /// Changes the behaviour from now on, except the clock's mode and the port.
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

    /// Executes a call as an administrator of a project: without token, latency, faults and ledger. For changes by
    /// others than the caller under test.
    ///
    /// # Errors
    /// Those of the service, or no route matches the call.
    pub fn by_hand(&self, project: &str, method: &str, path: &str, body: &Value) -> Result<Value, Problem> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let wrong = |text: String| Problem::violation(400, "no call", text);
        let request = http::Request::builder().method(method).uri(path).body(body);
        let request = request.map_err(|error| wrong(error.to_string()))?;
        let (route, call) =
            find(World::routes(), &request).map_err(|lost| wrong(format!("{method} {path}: {lost:?}")))?;
        self.world(|world| {
            world.who = Who { user: String::new(), project: project.to_owned(), admin: true };
            let reply = (route.run)(world, &call)?;
            Ok(serde_json::from_slice(&reply.body).unwrap_or_default())
        })
    }

    /// All load balancers with all their parts, in the order of creation.
    pub fn balancers(&self) -> Vec<Value> {
        self.world(|world| {
            let mut rows: Vec<_> = world.table("loadbalancer").values().collect();
            rows.sort_by_key(|row| row.seq);
            rows.into_iter().map(|row| whole(world, row)).collect()
        })
    }

    /// All resources of a kind in the form of their service, in the order of creation: `floatingip`, `port`, `server`,
    /// …
    pub fn resources(&self, kind: &str) -> Vec<Value> {
        self.world(|world| {
            let mut rows: Vec<_> = world.table(kind).values().collect();
            rows.sort_by_key(|row| row.seq);
            rows.into_iter().map(Row::shown).map(Value::Object).collect()
        })
    }

    /// Invalidates all tokens: the next calls get 401.
    pub fn expire_tokens(&self) {
        self.world(|world| world.identity.expire_tokens());
    }

    /// Suspends or resumes the provisioning of load balancers.
    pub fn freeze_provisioning(&self, frozen: bool) {
        self.world(|world| world.frozen = frozen);
    }

    /// Lets the next changes of load balancers end in ERROR: a creation for the whole load balancer, a change for the
    /// changed part.
    pub fn fail_provisioning(&self, times: u32) {
        self.world(|world| world.failing = times);
    }

    /// Sets the provisioning status of a load balancer.
    pub fn set_balancer_status(&self, id: &str, status: &str) {
        self.world(|world| {
            if let Some(row) = world.row_mut("loadbalancer", id) {
                row.set("provisioning_status", status);
            }
        });
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

    /// Requests of callers that violate the APIs, one line each; tests assert that there are none.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.endpoint.inside).violations.clone()
    }

    /// The same, and clears them: for tests that send invalid requests on purpose.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.endpoint.inside).violations)
    }
}

impl Drop for OpenStack {
    fn drop(&mut self) {
        self.ledger(|ledger| ledger.write_calls());
    }
}

/// See [`OpenStack::change`].
pub(super) fn change_options(inside: &mut Inside<World>, change: impl FnOnce(&mut Options)) {
    let buckets = inside.cloud.options.throttle.clone();
    change(&mut inside.cloud.options);
    let new = inside.cloud.options.throttle.clone();
    if new != buckets {
        inside.set_throttle(&new);
    }
}
