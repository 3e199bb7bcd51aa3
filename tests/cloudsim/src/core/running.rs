//! A running simulated cloud.

use super::admin::Admin;
use super::clock::Clock;
#[cfg(feature = "contract")]
use super::contract::Watched;
use super::endpoint::{Cloud, Endpoint, Inside, Names};
use super::faults::{Faults, Rule};
use super::ledger::Ledger;
use super::server::{Answer, Handler as _, Request, Runtime, Server};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// A simulated cloud that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Running<C: Cloud> {
    pub(crate) endpoint: Arc<Endpoint<C>>,
    #[cfg(feature = "contract")]
    pub(super) watched: Arc<Mutex<Watched>>,
    clock: Clock,
    server: Server,
    admin: Server,
    // Last: the servers stop before their thread.
    pub(crate) runtime: Runtime,
}

/// The parameters for starting a cloud.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The name of the thread.
    pub(crate) name: &'static str,
    /// The port; 0 selects any free one.
    pub(crate) port: u16,
    pub(crate) admin_port: u16,
    /// The number of calls that the ledger keeps.
    pub(crate) ledger_entries: usize,
}

impl<C: Cloud> Running<C> {
    pub(crate) fn serve(cloud: C, setup: &Setup) -> io::Result<Self> {
        let runtime = Runtime::start(setup.name)?;
        let clock = cloud.clock().clone();
        let inside = Mutex::new(Inside::new(cloud, setup.ledger_entries));
        let endpoint = Arc::new(Endpoint { inside });
        let server = runtime.spawner().serve(setup.port, endpoint.clone())?;
        endpoint.inside.lock().cloud.listens(server.url());
        let admin = Admin { endpoint: endpoint.clone(), url: server.url() };
        let admin = runtime.spawner().serve(setup.admin_port, Arc::new(admin))?;
        Ok(Running {
            endpoint,
            #[cfg(feature = "contract")]
            watched: Arc::default(),
            clock,
            server,
            admin,
            runtime,
        })
    }

    /// The URL for callers. For Compute Engine, the base URL of the Compute API, with a trailing slash.
    pub fn url(&self) -> String {
        format!("{}{}", self.root(), C::PATH)
    }

    /// The URL of the endpoint of all services, without a path.
    pub fn root(&self) -> String {
        self.server.url()
    }

    /// The URL of the admin API: clock, faults, ledger, options and violations.
    pub fn admin_url(&self) -> String {
        self.admin.url()
    }

    /// Answers a request like the endpoint, without a socket: for callers in the same process whose time is stopped.
    pub async fn answer(&self, request: Request) -> Answer {
        self.endpoint.clone().answer(request).await
    }

    /// Changes the options. The account, the region, the clock's mode and the ports stay the same.
    pub fn change(&self, change: impl FnOnce(&mut C::Options)) {
        self.endpoint.inside.lock().change(change);
    }

    /// The virtual clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads or changes the state between two calls, after everything that is due.
    pub fn world<T>(&self, look: impl FnOnce(&mut C) -> T) -> T {
        let mut inside = self.endpoint.inside.lock();
        inside.cloud.settle();
        look(&mut inside.cloud)
    }

    /// Adds a fault rule after the others.
    pub fn fault(&self, rule: Rule) {
        self.faults(|faults| faults.add(rule));
    }

    /// Reads or changes the fault rules.
    pub fn faults<T>(&self, look: impl FnOnce(&mut Faults) -> T) -> T {
        look(&mut self.endpoint.inside.lock().faults)
    }

    /// Sets how the watch learns to which objects the parameters of a call refer: parameters have IDs, and tests know
    /// the names of objects.
    pub fn names(&self, names: impl Fn(&C, &str) -> String + Send + 'static) {
        self.endpoint.inside.lock().names = Some(Names(Box::new(names)));
    }

    /// Reads or clears the ledger of calls.
    pub fn ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.endpoint.inside.lock().ledger)
    }

    /// The current position in the ledger: the number of the last call.
    pub fn mark(&self) -> u64 {
        self.ledger(|ledger| ledger.mark())
    }

    /// The actions of the writes after a position, in order.
    pub fn writes(&self, mark: u64) -> Vec<String> {
        self.ledger(|ledger| ledger.mutating(mark).map(|entry| entry.action.clone()).collect())
    }

    /// Waits until no caller is waiting for an answer: see [`Runtime::settled`].
    pub async fn settled(&self) {
        self.runtime.settled().await;
    }

    /// The requests of callers and the answers of the simulation that violate the vendor's API, one line each; tests
    /// assert that there are none. Checks against a model or a description require its files on this machine.
    pub fn violations(&self) -> Vec<String> {
        self.endpoint.inside.lock().violations.clone()
    }

    /// Returns and clears the violations: for tests that intentionally send invalid requests.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.endpoint.inside.lock().violations)
    }
}

impl<C: Cloud> Drop for Running<C> {
    fn drop(&mut self) {
        self.ledger(|ledger| ledger.write_calls());
    }
}
