//! Assembles the parts and shuts them down: stores, election, controllers.

mod first_pass;
mod generation;
mod lead;
mod ports;
mod program_metrics;
mod reload;
mod signals;

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Clock, CloudProvider, InstancesV2, LegacyInstances, Node, OneByOne, Service, Subject};
use ccm_runtime::client::ConnectOptions;
use ccm_runtime::clock::JitteryClock;
use ccm_runtime::election::{Election, ElectionConfig, Ended};
use ccm_runtime::events::Recorder;
use ccm_runtime::panics::panic_text;
use ccm_runtime::store::{Cached, FieldFilter, Reflector};
use ccm_runtime::{Client, Gate, Leadership, Metrics, Store};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clients::{self, Clients};
use crate::exit::Failure;
use crate::options::Options;
use crate::providers::{Configuration, Loaded};
use crate::serve::{Health, Probe};
use lead::Elections;
pub(crate) use ports::Ports;
pub(crate) use program_metrics::ProgramMetrics;
use reload::Reload;
pub(crate) use reload::ReloadMetrics;

/// The time limit for the release of the lease.
const RELEASE: Duration = Duration::from_secs(10);
/// The time after its expiry during which a lease does not make the process unhealthy.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);
/// The time limit for the subsequent delivery of events.
const FLUSH: Duration = Duration::from_secs(2);
/// The same for the events of the controllers, which are written only while the lease is held.
const FLUSH_LEADING: Duration = Duration::from_secs(1);

/// The connection according to the flags.
pub(crate) async fn connect(options: &Options, metrics: &Metrics) -> Result<Client, Failure> {
    let connect = ConnectOptions {
        kubeconfig: options.kubeconfig.clone(),
        master: options.master.clone(),
        user_agent: clients::user_agent("cloud-controller-manager"),
        access: options.access.clone(),
    };
    Client::connect(&connect, metrics.clone()).await.map_err(|error| Failure::error(error.to_string()))
}

/// Runs the manager until a signal or a lost lease.
pub(crate) async fn run(
    options: Options,
    loaded: Loaded,
    configuration: Configuration,
    client: Client,
    metrics: Metrics,
    ports: Ports,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let signals = tokio::spawn(signals::watch(stop.clone()));
    let mut manager = Manager::new(options, loaded.provider.clone(), client, metrics).reloading(loaded, configuration);
    manager.serve(ports);
    let ended = manager.run(stop).await;
    signals.abort();
    ended
}

/// Clock and seed of a run. With both fixed, a run in paused time is reproducible.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The seed of all jitter.
    pub seed: u64,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { clock: Arc::new(JitteryClock), seed: rand::random() }
    }
}

/// One cloud-controller-manager.
pub struct Manager {
    options: Options,
    /// The current provider; webhooks use it too.
    providers: watch::Sender<Arc<dyn CloudProvider>>,
    reload: Option<Reload>,
    client: Client,
    clients: Clients,
    clock: Arc<dyn Clock>,
    leadership: Leadership,
    gate: Gate,
    nodes: Arc<Store<Node>>,
    services: Arc<Store<Service>>,
    recorder: Recorder,
    health: Health,
    metrics: Metrics,
    background: JoinSet<String>,
    rng: StdRng,
}

opaque_debug!(Manager, this, "provider" = &this.provider().name());

impl Manager {
    /// Creates all parts; must be called within a runtime. Does not read or write yet.
    pub fn new(options: Options, provider: Arc<dyn CloudProvider>, client: Client, metrics: Metrics) -> Self {
        Self::within(Surroundings::default(), options, provider, client, metrics)
    }

    /// The same with the caller's clock and seed.
    pub fn within(
        surroundings: Surroundings,
        mut options: Options,
        provider: Arc<dyn CloudProvider>,
        client: Client,
        metrics: Metrics,
    ) -> Self {
        let Surroundings { clock, seed } = surroundings;
        // A dry run writes nothing: it needs no lease, and must not take it from the leader.
        options.election = options.election.filter(|_| !options.dry_run);
        let mut rng = StdRng::seed_from_u64(seed);
        let leadership = Leadership::new(clock.clone());
        leadership.export(&metrics);
        program_metrics::set(&metrics, &options);
        let clients = Clients::new(client, &options.clients, options.dry_run, clock.clone());
        let client = clients.general();
        let gate = Gate::new(client.clone(), leadership.clone(), options.dry_run, metrics.clone());
        let nodes = Store::new(FieldFilter::of_nodes(&*provider));
        let services = Store::new(FieldFilter::default());
        let health = health(&options, &leadership, &nodes, &services);
        let (recorder, delivery) = Recorder::new(gate.clone(), clock.clone(), metrics.clone(), rng.random());
        let mut manager = Self {
            options,
            providers: watch::Sender::new(provider.clone()),
            reload: None,
            client,
            clients,
            clock,
            leadership,
            gate,
            nodes,
            services,
            recorder,
            health,
            metrics,
            background: JoinSet::new(),
            rng,
        };
        manager.use_provider(provider);
        manager.keep_running("the delivery of events", delivery.run());
        manager
    }

    /// The same, with configuration changes taking effect at run time if the provider requests that. `loaded` is the
    /// provider and configuration that the manager was created with.
    #[must_use]
    pub fn reloading(mut self, loaded: Loaded, configuration: Configuration) -> Self {
        if configuration.is_watched() {
            let events = Arc::new(self.recorder.for_component("cloud-controller-manager"));
            let subject = self.options.election.as_ref().map(|election| Subject {
                kind: "Lease",
                api_version: "coordination.k8s.io/v1",
                namespace: election.namespace.as_str().into(),
                name: election.name.as_str().into(),
                uid: "".into(),
                resource_version: "".into(),
            });
            self.reload = Some(Reload::new(configuration, loaded.config, events, subject, &self.metrics));
        }
        self
    }

    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.providers.borrow().clone()
    }

    fn use_provider(&self, provider: Arc<dyn CloudProvider>) {
        self.metrics.include("provider", provider.metrics().unwrap_or_default());
        self.providers.send_replace(provider);
    }

    /// The checks of `/healthz`, `/livez` and `/readyz`.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Runs until `stop`, a lost lease, or a failure.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Failure> {
        tracing::info!("Version: v{}, provider {}", env!("CARGO_PKG_VERSION"), self.provider().name());
        if self.options.dry_run {
            tracing::info!(
                "--dry-run: nothing is written, neither to the cluster nor to the cloud; this process takes part in no election \
                 and may run beside a leader"
            );
        }
        // Standbys watch too, so that a new leader starts with warm stores.
        self.watch(self.nodes.clone());
        self.watch(self.services.clone());
        let release = CancellationToken::new();
        let mut elections = Elections::new(self.elect(release.clone()), release);
        let mut background = std::mem::take(&mut self.background);
        let outcome = self.lead_beside(&mut background, &stop, &mut elections).await;
        // Drained, lost, or never leading: no controller writes any more, and another process may take the lease.
        self.leadership.drain();
        if self.leadership.may_write() {
            self.recorder.flush(FLUSH_LEADING).await;
        }
        let late = match self.options.gates.release_lease_on_exit {
            true => tokio::time::timeout(RELEASE, elections.end()).await.unwrap_or(Some("leaderelection lost")),
            false => None,
        };
        // The event of the lease.
        let left = self.recorder.flush(FLUSH).await;
        if left > 0 {
            tracing::warn!(left, "some events could not be delivered");
        }
        match outcome?.or(late) {
            Some(lost) => Err(Failure::error(lost)),
            None => Ok(()),
        }
    }

    /// Leads until a signal, the loss of a lease, or the end of a background task: a process must not renew its lease
    /// if it receives no changes.
    async fn lead_beside(
        &mut self,
        background: &mut JoinSet<String>,
        stop: &CancellationToken,
        elections: &mut Elections,
    ) -> Result<Option<&'static str>, Failure> {
        let halt = stop.child_token();
        let mut leading = std::pin::pin!(self.lead_until(&halt, elections));
        tokio::select! {
            biased;
            outcome = &mut leading => outcome,
            Some(ended) = background.join_next() => {
                let why = ended.unwrap_or_else(|error| error.to_string());
                tracing::error!("{why}: ending work in flight");
                halt.cancel();
                leading.await.and(Err(Failure::error(why)))
            }
        }
    }

    /// Runs an essential task: its end or panic ends the process.
    fn keep_running(&mut self, what: impl Display + Send + 'static, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) => format!("{what} ended"),
                Err(panic) => format!("{what} panicked: {}", panic_text(&*panic)),
            }
        });
    }

    fn watch<T: Cached>(&mut self, store: Arc<Store<T>>) {
        let client = self.clients.named("shared-informers");
        let reflector = Reflector::new(store.clone(), client, self.rng.random());
        self.keep_running(format!("the watch of {}", T::NAME), reflector.run());
        let period = self.options.min_resync;
        if !period.is_zero() {
            let mut rng = StdRng::seed_from_u64(self.rng.random());
            self.keep_running(format!("the resync of {}", T::NAME), async move {
                loop {
                    tokio::time::sleep(period.mul_f64(rng.random_range(1.0..2.0))).await;
                    store.resync();
                }
            });
        }
    }

    /// The election for the main lease.
    fn elect(&mut self, release: CancellationToken) -> BoxFuture<'static, Ended> {
        match self.options.election.clone() {
            Some(config) => self.elect_for(config, self.leadership.clone(), "leaderelection lost", release),
            None => {
                self.leadership.lead(None);
                Box::pin(async move {
                    release.cancelled().await;
                    Ended::Released
                })
            }
        }
    }

    fn elect_for(
        &mut self,
        config: ElectionConfig,
        leadership: Leadership,
        lost_message: &'static str,
        release: CancellationToken,
    ) -> BoxFuture<'static, Ended> {
        let election = Election {
            config,
            client: self.clients.named("leader-election"),
            leadership,
            events: Arc::new(self.recorder.for_component("cloud-controller-manager")),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            release,
            seed: self.rng.random(),
            lost_message,
        };
        // A dropped manager must not continue to renew its lease.
        let running = AbortOnDropHandle::new(tokio::spawn(election.run()));
        Box::pin(async move { running.await.unwrap_or(Ended::Lost) })
    }
}

/// A store without recent updates is not ready. `/healthz` ignores that, because it is often used as liveness probe:
/// while the API server is unreachable, a restart does not help. Stores of optional resources do not count.
fn health(
    options: &Options,
    leadership: &Leadership,
    nodes: &Arc<Store<Node>>,
    services: &Arc<Store<Service>>,
) -> Health {
    let health = Health::new();
    let stores = (nodes.clone(), services.clone());
    health.add("informer-sync", &[Probe::Readyz], move || stores.0.check_current().and(stores.1.check_current()));
    let stores = (nodes.clone(), services.clone());
    let alive = move || stores.0.check_alive().and(stores.1.check_alive());
    health.add("informers", &[Probe::Healthz, Probe::Livez], alive);
    if options.election.is_some() {
        let leadership = leadership.clone();
        health.add("leaderElection", &[Probe::Healthz, Probe::Livez], move || match leadership.overdue() {
            Some(late) if late > LEASE_TOLERANCE => {
                Err(format!("failed election to renew leadership on lease: it ended {}s ago", late.as_secs()))
            }
            _ => Ok(()),
        });
    }
    health
}

/// The provider's instances, with the older interface adapted.
pub(crate) fn instances(provider: &dyn CloudProvider) -> Option<Arc<dyn InstancesV2>> {
    provider.instances().or_else(|| {
        let legacy = LegacyInstances::new(provider.name(), provider.legacy_instances()?, provider.zones());
        Some(Arc::new(OneByOne::new(legacy, 20)))
    })
}
