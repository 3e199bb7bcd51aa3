//! A running simulated cloud.

use super::admin::Admin;
use super::clock::Clock;
use super::endpoint::{Cloud, Endpoint, Inside};
use super::faults::{Faults, Rule};
use super::ledger::Ledger;
use super::lock;
use super::server::{Answer, Handler as _, Request, Runtime, Server};
use std::io;
use std::sync::{Arc, Mutex};

/// A simulated cloud that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Running<C: Cloud> {
    pub(crate) endpoint: Arc<Endpoint<C>>,
    clock: Clock,
    server: Server,
    admin: Server,
    // Last: the servers stop before their thread.
    pub(crate) runtime: Runtime,
}

/// What it takes to run a cloud.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Of the thread.
    pub(crate) name: &'static str,
    /// 0 takes any free one.
    pub(crate) port: u16,
    pub(crate) admin_port: u16,
    /// Seed of the fault injector.
    pub(crate) seed: u64,
    /// How many calls the ledger keeps.
    pub(crate) ledger_entries: usize,
}

impl<C: Cloud> Running<C> {
    pub(crate) fn serve(cloud: C, setup: &Setup) -> io::Result<Self> {
        let runtime = Runtime::start(setup.name)?;
        let clock = cloud.clock().clone();
        let inside = Mutex::new(Inside::new(cloud, setup.seed, setup.ledger_entries));
        let endpoint = Arc::new(Endpoint { inside });
        let server = runtime.spawner().serve(setup.port, endpoint.clone())?;
        lock(&endpoint.inside).cloud.listens(server.url());
        let admin = Admin { endpoint: endpoint.clone(), url: server.url() };
        let admin = runtime.spawner().serve(setup.admin_port, Arc::new(admin))?;
        Ok(Running { endpoint, clock, server, admin, runtime })
    }

    /// The URL that callers are to have. Of Compute Engine, it is the base of the Compute API, with a slash at its end.
    pub fn url(&self) -> String {
        format!("{}{}", self.root(), C::PATH)
    }

    /// The URL of the endpoint of all services, without a path.
    pub fn root(&self) -> String {
        self.server.url()
    }

    /// URL of the admin API: clock, faults, ledger, options and violations.
    pub fn admin_url(&self) -> String {
        self.admin.url()
    }

    /// Answers a request as the endpoint would, without a socket: for callers in the same process whose time stands still.
    pub async fn answer(&self, request: Request) -> Answer {
        self.endpoint.clone().answer(request).await
    }

    /// Changes how it behaves from now on; the account, the region, the clock's mode and the ports stay what they were.
    pub fn change(&self, change: impl FnOnce(&mut C::Options)) {
        lock(&self.endpoint.inside).change(change);
    }

    /// The virtual clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Looks into the world or changes it, between two calls. What is due by now has happened.
    pub fn world<T>(&self, look: impl FnOnce(&mut C) -> T) -> T {
        let mut inside = lock(&self.endpoint.inside);
        inside.cloud.settle();
        look(&mut inside.cloud)
    }

    /// Adds a fault rule behind the others.
    pub fn fault(&self, rule: Rule) {
        self.faults(|faults| faults.add(rule));
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
    pub fn mark(&self) -> u64 {
        self.ledger(|ledger| ledger.mark())
    }

    /// The actions of the writes after a mark, in order.
    pub fn writes(&self, mark: u64) -> Vec<String> {
        self.ledger(|ledger| ledger.mutating(mark).map(|entry| entry.action.clone()).collect())
    }

    /// Waits until no caller waits for an answer: see [`Runtime::settled`].
    pub async fn settled(&self) {
        self.runtime.settled().await;
    }

    /// What callers sent that does not follow the vendor's API, and what the simulation answered that does not, one line each;
    /// tests assert that there is nothing. What is held against a model or a description needs these on this machine.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.endpoint.inside).violations.clone()
    }

    /// The same, and forgets them: for tests that send what is wrong on purpose.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.endpoint.inside).violations)
    }
}

impl<C: Cloud> Drop for Running<C> {
    fn drop(&mut self) {
        self.ledger(|ledger| ledger.write_calls());
    }
}
