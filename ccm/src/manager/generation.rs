//! A generation: the controllers with one provider. A configuration change of the provider ends it and starts the next.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_controllers::service::Owners;
use ccm_controllers::{NotStarted, Shared, Unmanaged, persistent_volume};
use ccm_provider::{CloudProvider, LeaderToken, ProviderContext, duration};
use ccm_runtime::client::ConnectError;
use ccm_runtime::config_maps::ApiConfigMaps;
use ccm_runtime::gate::SETTLE;
use ccm_runtime::panics::panic_text;
use ccm_runtime::store::Informers;
use ccm_runtime::{InstanceView, Leadership};
use futures::FutureExt;
use rand::Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::reload::{self, Reload};
use super::{Manager, first_pass, instances, program_metrics};
use crate::controllers::{Configured, Controller, Refused, Start};
use crate::exit::Failure;
use crate::options::Chosen;
use crate::options::migration::Lease;
use crate::providers::Loaded;

/// The time limit for the provider's initialization.
const INITIALIZE: Duration = Duration::from_secs(120);
/// The time limit for work in flight after a signal or before the next generation. What is dropped then settles for
/// [`SETTLE`] before the lease is given back; pods are killed after 30 seconds by default.
const DRAIN: Duration = Duration::from_secs(18);
/// The time limit for the controllers to drop that work.
const DROP: Duration = Duration::from_secs(1);

/// Ends with its leaderships, which are derived from those of the leases.
pub(super) struct Generation {
    provider: Arc<dyn CloudProvider>,
    shared: Shared,
    /// The leadership of the controllers of the second lease.
    second: Option<Leadership>,
    running: JoinSet<&'static str>,
    /// Name and label of the started controllers.
    pub(super) started: Vec<(&'static str, &'static str)>,
    /// The time at which work in flight is dropped.
    deadline: Option<Instant>,
    /// The time at which it was dropped.
    dropped: Option<Instant>,
}

/// The reason for the end of a generation.
pub(super) enum Ended<'r> {
    /// Its controllers could not be started.
    NotStarted(Failure),
    /// A controller ended.
    Failed(Failure),
    /// The next provider takes over.
    Changed(&'r mut Reload, Loaded),
}

impl Generation {
    /// The leaderships of the controllers of each lease.
    pub(super) fn leaderships(&self) -> impl Iterator<Item = &Leadership> {
        [&self.shared.leadership].into_iter().chain(&self.second)
    }

    /// Waits until work in flight has ended, or drops it and waits until it has settled. No new work may start.
    pub(super) async fn drained(&mut self) {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + DRAIN);
        let drained = async |running: &mut JoinSet<_>| while running.join_next().await.is_some() {};
        if tokio::time::timeout_at(deadline, drained(&mut self.running)).await.is_err() {
            tracing::warn!("work in flight did not end within {}s and is dropped", DRAIN.as_secs());
            let dropped = *self.dropped.insert(Instant::now());
            self.leaderships().for_each(Leadership::lose);
            if tokio::time::timeout_at(dropped + DROP, drained(&mut self.running)).await.is_err() {
                self.running.shutdown().await;
            }
        }
        if let Some(dropped) = self.dropped {
            tokio::time::sleep_until(dropped + SETTLE).await;
        }
    }
}

impl Manager {
    /// The next generation, with the current provider. It is not running yet.
    pub(super) fn generation(&self) -> Generation {
        let (provider, leadership) = (self.provider(), part(&self.leadership));
        let schemes = self.options.schemes(&*provider);
        let view =
            instances(&*provider).map(|instances| InstanceView::new(instances, schemes.clone(), self.metrics.clone()));
        let shared = Shared {
            gate: self.gate.under(leadership.clone()),
            nodes: self.nodes.clone(),
            services: self.services.clone(),
            view,
            leadership,
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            cluster: self.options.cluster_name.as_str().into(),
            schemes,
            unmanaged: Unmanaged::of(&*provider),
            owners: Owners::default(),
        };
        Generation {
            provider,
            shared,
            second: None,
            running: JoinSet::new(),
            started: Vec::new(),
            deadline: None,
            dropped: None,
        }
    }

    /// Initializes the provider, before any controller starts.
    pub(super) async fn initialize(&self, generation: &Generation) -> Result<(), Failure> {
        let Generation { provider, shared, .. } = generation;
        let config_maps = ApiConfigMaps::new(shared.gate.clone());
        let config_maps = match self.options.clients.use_service_account_credentials {
            true => config_maps.with_accounts(self.clock.clone()),
            false => config_maps,
        };
        let context = ProviderContext::new(
            shared.cluster.clone(),
            shared.nodes.clone(),
            shared.services.clone(),
            Arc::new(self.recorder.for_component(provider.event_component())),
            self.clock.clone(),
            match self.options.dry_run {
                true => Arc::new(NeverWrites(shared.leadership.clone())),
                false => Arc::new(shared.leadership.clone()),
            },
            Arc::new(config_maps),
        );
        let initialized = AssertUnwindSafe(provider.initialize(context)).catch_unwind();
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
        if let Some(user) = provider.informer_user() {
            let informers = Informers { nodes: shared.nodes.clone(), services: shared.services.clone() };
            user.set_informers(Arc::new(informers)).await;
        }
        Ok(())
    }

    /// Starts the controllers of the main lease, then those of the second one, and monitors them.
    pub(super) async fn work<'r>(
        &mut self,
        generation: &mut Generation,
        second: Option<&Leadership>,
        mut reload: Option<&'r mut Reload>,
    ) -> Ended<'r> {
        generation.second = second.map(part);
        if let Err(failure) = self.start(None, generation).await {
            return Ended::NotStarted(failure);
        }
        if let Some(reload) = &mut reload {
            reload.done();
        }
        let _first_pass = self.options.dry_run.then(|| {
            let (nodes, services) = (self.nodes.clone(), self.services.clone());
            let synced = async move {
                nodes.synced().await;
                services.synced().await;
            };
            AbortOnDropHandle::new(tokio::spawn(first_pass::report(self.gate.clone(), self.metrics.clone(), synced)))
        });
        let mut changed = pin!(reload::changed(reload));
        if let (Some(second), Some(lease)) = (second, generation.second.clone()) {
            let leading = tokio::select! {
                biased;
                leading = second.leading() => leading,
                failure = died(&mut generation.running) => return Ended::Failed(failure),
                (reload, next) = &mut changed => return Ended::Changed(reload, next),
            };
            if leading && let Err(failure) = self.start(Some(&lease), generation).await {
                return Ended::Failed(failure);
            }
        }
        tokio::select! {
            biased;
            failure = died(&mut generation.running) => Ended::Failed(failure),
            (reload, next) = changed => Ended::Changed(reload, next),
        }
    }

    fn lease_of(&self, controller: &Controller) -> Lease {
        let migration = self.options.migration.as_ref();
        let lease = migration.map_or(Lease::Main, |migration| migration.lease_of(controller.name, controller.aliases));
        // A dry run holds no lease, and shows the work under both leases.
        if lease == Lease::Migration && self.options.dry_run { Lease::Main } else { lease }
    }

    /// Starts the controllers that run under this lease; `None` is the main one.
    async fn start(&mut self, lease: Option<&Leadership>, generation: &mut Generation) -> Result<(), Failure> {
        let mut shared = generation.shared.clone();
        if let Some(lease) = lease {
            (shared.gate, shared.leadership) = (shared.gate.under(lease.clone()), lease.clone());
        }
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
            if let Err(NotStarted(reason)) = (controller.applies)(&*generation.provider) {
                tracing::warn!("Skipping {:?}: {reason}", controller.name);
                continue;
            }
            let optional = controller.name == persistent_volume::NAME;
            let client = match self.clients.for_controller(controller.client_name, optional).await {
                Ok(client) => client,
                // Roles of other programs do not allow its service account: skip it, so that the others can run.
                Err(ConnectError::Account { error, account }) if error.is_forbidden() && optional => {
                    let (name, fix) = (controller.name, "apply the roles of this release");
                    tracing::warn!("Skipping {name:?}: its account {account} is out of reach: {error}; {fix}");
                    continue;
                }
                Err(error) => return Err(Failure::fatal(error.to_string())),
            };
            let shared = Shared { gate: shared.gate.with_client(client), ..shared.clone() };
            if self.start_one(&controller, &configured, shared, generation)? {
                self.pause().await;
            }
        }
        Ok(())
    }

    /// Returns whether the controller was started.
    fn start_one(
        &self,
        controller: &Controller,
        configured: &Configured,
        shared: Shared,
        generation: &mut Generation,
    ) -> Result<bool, Failure> {
        let (name, label) = (controller.name, controller.label);
        let (provider, values) = (&generation.provider, &self.options.values);
        let start = Start { shared, provider, values, recorder: &self.recorder, client: self.gate.client() };
        match (configured.start)(&start) {
            Ok(controller) => {
                tracing::info!("Started {name:?}");
                self.health.add_running(name);
                let metrics = self.metrics.clone();
                program_metrics::running(&metrics, label, true);
                generation.started.push((name, label));
                generation.running.spawn(async move {
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
}

/// Leadership of a generation, derived from this lease.
fn part(lease: &Leadership) -> Leadership {
    let part = lease.part();
    part.lead(None);
    part
}

/// The leader token of a provider in a dry run: it is active but must not write.
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

/// Waits for a controller that ends unexpectedly. A restart is better than a process that looks healthy but does not
/// do its work.
async fn died(running: &mut JoinSet<&'static str>) -> Failure {
    match running.join_next().await {
        Some(Ok(name)) => Failure::fatal(format!("the controller {name:?} ended")),
        Some(Err(error)) => Failure::fatal(format!("a controller ended: {error}")),
        // No controller runs: wait for the signal.
        None => futures::future::pending().await,
    }
}
