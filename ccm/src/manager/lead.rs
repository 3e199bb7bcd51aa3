//! Leading: initializes the provider once, starts the controllers of each lease, and ends them in order.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use ccm_controllers::{NotStarted, Shared, persistent_volume};
use ccm_provider::{LeaderToken, ProviderContext, duration};
use ccm_runtime::client::{Call, ConnectError};
use ccm_runtime::config_maps::ApiConfigMaps;
use ccm_runtime::election::{ElectionConfig, Ended};
use ccm_runtime::panics::panic_text;
use ccm_runtime::store::Informers;
use ccm_runtime::{Leadership, State};
use futures::FutureExt;
use futures::future::{BoxFuture, Fuse, FusedFuture};
use rand::Rng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Manager, program_metrics};
use crate::controllers::{Configured, Controller, Refused, Start};
use crate::exit::Failure;
use crate::options::Chosen;
use crate::options::migration::Lease;

/// How long to wait for a healthy API server once this process leads.
const API_SERVER_WAIT: Duration = Duration::from_secs(10);
/// How long the provider may take to initialize itself.
const INITIALIZE: Duration = Duration::from_secs(120);
/// How long work in flight may take to end after a signal.
const DRAIN: Duration = Duration::from_secs(20);

/// The running elections. Losing either lease ends the process.
pub(super) struct Elections {
    main: Fuse<BoxFuture<'static, Ended>>,
    /// For the controllers that a leader migration moves; held only beside the main lease.
    migration: Fuse<BoxFuture<'static, Ended>>,
    release: CancellationToken,
}

impl Elections {
    /// Both leases are released once `release` is cancelled.
    pub(super) fn new(main: BoxFuture<'static, Ended>, release: CancellationToken) -> Self {
        Self { main: main.fuse(), migration: Fuse::terminated(), release }
    }

    /// Waits until a lease is lost; returns the message.
    async fn lost(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = &mut self.main => "leaderelection lost",
            _ = &mut self.migration => "migration leaderelection lost",
        }
    }

    /// Releases the leases that are still held. Returns a message if one was lost.
    pub(super) async fn end(&mut self) -> Option<&'static str> {
        self.release.cancel();
        if !self.migration.is_terminated() && (&mut self.migration).await == Ended::Lost {
            return Some("migration leaderelection lost");
        }
        let lost = !self.main.is_terminated() && (&mut self.main).await == Ended::Lost;
        lost.then_some("leaderelection lost")
    }
}

impl Manager {
    /// Waits for leadership, then leads until a signal (`None`) or the loss of a lease (the message). When it returns,
    /// all controllers have ended.
    pub(super) async fn lead_until(
        &mut self,
        stop: &CancellationToken,
        elections: &mut Elections,
    ) -> Result<Option<&'static str>, Failure> {
        let leadership = self.leadership.clone();
        tokio::select! {
            biased;
            leading = leadership.leading() => if !leading {
                return Ok(None);
            },
            () = stop.cancelled() => return Ok(None),
            lost = elections.lost() => return Ok(Some(lost)),
        }
        tokio::select! {
            biased;
            prepared = self.prepare() => prepared?,
            () = stop.cancelled() => return Ok(None),
            lost = elections.lost() => return Ok(Some(lost)),
        }
        let second = self.migrate(elections);
        let mut running = JoinSet::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            lost = elections.lost() => return Ok(Some(lost)),
            ended = self.work(&mut running, second.as_ref()) => return match ended {
                // The work ended because a lease was lost; the election is about to return.
                Err(_) if !leadership.may_write() || second.as_ref().is_some_and(|s| s.state() == State::Lost) => {
                    Ok(Some(elections.lost().await))
                }
                Err(failure) => Err(failure),
            },
        }
        leadership.drain();
        if let Some(second) = &second {
            second.drain();
        }
        let drained = async { while running.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            ended = tokio::time::timeout(DRAIN, drained) => if ended.is_err() {
                tracing::warn!("what was in flight did not end within {}s and is dropped", DRAIN.as_secs());
                running.shutdown().await;
            },
            lost = elections.lost() => return Ok(Some(lost)),
        }
        Ok(None)
    }

    /// Starts the election for the second lease, if there is a migration. The main lease is held.
    fn migrate(&mut self, elections: &mut Elections) -> Option<Leadership> {
        let (migration, main) = (self.options.migration.as_ref()?, self.options.election.clone()?);
        let config = ElectionConfig { name: migration.lease_name.clone(), ..main };
        let leadership = self.leadership.second();
        let election =
            self.elect_for(config, leadership.clone(), "migration leaderelection lost", elections.release.clone());
        elections.migration = election.fuse();
        Some(leadership)
    }

    fn lease_of(&self, controller: &Controller) -> Lease {
        let migration = self.options.migration.as_ref();
        let lease = migration.map_or(Lease::Main, |migration| migration.lease_of(controller.name, controller.aliases));
        // A dry run holds no lease, and shows what would be done under either.
        if lease == Lease::Migration && self.options.dry_run { Lease::Main } else { lease }
    }

    /// Runs before any controller, once per process: waits for a healthy API server and initializes the provider.
    async fn prepare(&self) -> Result<(), Failure> {
        self.wait_for_api_server().await?;
        let context = ProviderContext::new(
            self.shared.cluster.clone(),
            self.shared.nodes.clone(),
            self.shared.services.clone(),
            std::sync::Arc::new(self.recorder.for_component("cloud-controller-manager")),
            self.clock.clone(),
            match self.options.dry_run {
                true => std::sync::Arc::new(NeverWrites(self.leadership.clone())),
                false => std::sync::Arc::new(self.leadership.clone()),
            },
            std::sync::Arc::new(ApiConfigMaps::new(self.shared.gate.clone())),
        );
        let initialized = AssertUnwindSafe(self.provider.initialize(context)).catch_unwind();
        match tokio::time::timeout(INITIALIZE, initialized).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                return Err(Failure::fatal(format!("the cloud provider could not be initialized: {error}")));
            }
            Ok(Err(panic)) => {
                self.metrics.panicked("provider");
                let text = panic_text(&*panic);
                return Err(Failure::fatal(format!("the cloud provider panicked while it was initialized: {text}")));
            }
            Err(_) => {
                let text = "the cloud provider did not initialize itself within";
                return Err(Failure::fatal(format!("{text} {}", duration::format(INITIALIZE))));
            }
        }
        if let Some(user) = self.provider.informer_user() {
            let informers = Informers { nodes: self.shared.nodes.clone(), services: self.shared.services.clone() };
            user.set_informers(std::sync::Arc::new(informers)).await;
        }
        Ok(())
    }

    /// Starts the controllers of the main lease, then those of the second one, and monitors them. It ends only with a
    /// failure.
    async fn work(
        &mut self,
        running: &mut JoinSet<&'static str>,
        second: Option<&Leadership>,
    ) -> Result<Infallible, Failure> {
        self.start(None, running).await?;
        if let Some(second) = second {
            tokio::select! {
                leading = second.leading() => if leading {
                    self.start(Some(second), running).await?;
                },
                failure = died(running) => return Err(failure),
            }
        }
        Err(died(running).await)
    }

    /// Starts the controllers that run under this lease; `None` is the main one.
    async fn start(&mut self, lease: Option<&Leadership>, running: &mut JoinSet<&'static str>) -> Result<(), Failure> {
        let shared = match lease {
            None => self.shared.clone(),
            Some(lease) => {
                Shared { gate: self.shared.gate.under(lease.clone()), leadership: lease.clone(), ..self.shared.clone() }
            }
        };
        for Chosen { controller, on, configured } in self.options.controllers.clone() {
            let runs = match (self.lease_of(&controller), lease) {
                (Lease::Main, None) | (Lease::Migration, Some(_)) => true,
                (Lease::NotOurs, None) => {
                    tracing::info!("{:?} is left to another component by the leader migration", controller.name);
                    false
                }
                _ => false,
            };
            if !runs {
                continue;
            }
            if !on {
                tracing::warn!("{:?} is disabled", controller.name);
                continue;
            }
            if let Err(NotStarted(reason)) = (controller.applies)(&*self.provider) {
                tracing::warn!("Skipping {:?}: {reason}", controller.name);
                continue;
            }
            let client = match self.clients.for_controller(controller.client_name).await {
                Ok(client) => client,
                // Roles of older releases do not allow its service account: skip it, the others can run.
                Err(ConnectError::Account { error, account })
                    if error.is_forbidden() && controller.name == persistent_volume::NAME =>
                {
                    let (name, fix) = (controller.name, "apply the roles of this release");
                    tracing::warn!("Skipping {name:?}: its account {account} is out of reach: {error}; {fix}");
                    continue;
                }
                Err(error) => return Err(Failure::fatal(error.to_string())),
            };
            let shared = Shared { gate: shared.gate.with_client(client), ..shared.clone() };
            if self.start_one(&controller, &configured, shared, running)? {
                self.pause().await;
            }
        }
        Ok(())
    }

    /// Returns whether it was started.
    fn start_one(
        &self,
        controller: &Controller,
        configured: &Configured,
        shared: Shared,
        running: &mut JoinSet<&'static str>,
    ) -> Result<bool, Failure> {
        let (name, label) = (controller.name, controller.label);
        let start = Start { shared, provider: &self.provider, values: &self.options.values, recorder: &self.recorder };
        match (configured.start)(&start) {
            Ok(controller) => {
                tracing::info!("Started {name:?}");
                self.health.add_running(name);
                let metrics = self.metrics.clone();
                program_metrics::running(&metrics, label, true);
                running.spawn(async move {
                    controller.await;
                    program_metrics::running(&metrics, label, false);
                    name
                });
                Ok(true)
            }
            Err(Refused::NotStarted(reason)) => {
                tracing::warn!("Skipping {name:?}: {reason}");
                Ok(false)
            }
            Err(Refused::Fatal(reason)) => Err(Failure::fatal(reason)),
        }
    }

    /// `--controller-start-interval`
    async fn pause(&mut self) {
        let interval = self.options.start_interval;
        if !interval.is_zero() {
            tokio::time::sleep(interval.mul_f64(self.rng.random_range(1.0..2.0))).await;
        }
    }

    async fn wait_for_api_server(&self) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + API_SERVER_WAIT;
        loop {
            let call = Call::get("/healthz").within(Duration::from_secs(5));
            let Err(error) = self.client.send(&call).await else { return Ok(()) };
            if tokio::time::Instant::now() >= deadline {
                return Err(Failure::fatal(format!("failed to wait for apiserver being healthy: {error}")));
            }
            tracing::warn!(%error, "the API server is not healthy yet");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// The leader token of a provider in a dry run: it works, but must not write.
struct NeverWrites(Leadership);

#[async_trait]
impl LeaderToken for NeverWrites {
    fn is_leading(&self) -> bool {
        false
    }

    async fn lost(&self) {
        self.0.ended().await;
    }
}

/// Waits for a controller that ends by itself. A restart is better than a process that looks healthy but does not do
/// its work.
async fn died(running: &mut JoinSet<&'static str>) -> Failure {
    match running.join_next().await {
        Some(Ok(name)) => Failure::fatal(format!("the controller {name:?} ended")),
        Some(Err(error)) => Failure::fatal(format!("a controller ended: {error}")),
        // No controller runs: wait for the signal.
        None => futures::future::pending().await,
    }
}
