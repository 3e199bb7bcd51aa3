//! Puts the parts together and takes them apart again: stores, election, controllers, shutdown.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ccm_controllers::{NotStarted, Shared};
use ccm_provider::{Clock, CloudProvider, InstancesV2, LegacyInstances, OneByOne, ProviderContext, duration};
use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::election::{Election, Ended};
use ccm_runtime::events::Recorder;
use ccm_runtime::runner::panic_text;
use ccm_runtime::store::{Informers, Keep, Kept, Reflector};
use ccm_runtime::{Client, Gate, InstanceView, Leadership, Metrics, Store, SystemClock};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::controllers::Start;
use crate::exit::Failure;
use crate::options::Options;
use crate::serve;

/// How long the API server may take to be healthy once this process leads.
const API_SERVER_WAIT: Duration = Duration::from_secs(10);
/// How long the provider may take to initialize itself.
const INITIALIZE: Duration = Duration::from_secs(120);
/// How long what is in flight may take to end after a signal.
const DRAIN: Duration = Duration::from_secs(20);
/// How long giving the lease back may take.
const RELEASE: Duration = Duration::from_secs(10);
/// How long events may take to be delivered after that.
const FLUSH: Duration = Duration::from_secs(2);

/// Runs the manager over the connection that the flags ask for, until a signal or a lost lease.
pub async fn run(options: Options, provider: Arc<dyn CloudProvider>) -> Result<(), Failure> {
    let metrics = Metrics::new();
    let connect = ConnectOptions {
        kubeconfig: options.kubeconfig.clone(),
        master: options.master.clone(),
        user_agent: user_agent("cloud-controller-manager"),
    };
    let client = Client::connect(&connect, metrics.clone()).await.map_err(|e| Failure::error(e.to_string()))?;
    let stop = CancellationToken::new();
    let signals = tokio::spawn(signals(stop.clone()));
    let ended = Manager::new(options, provider, client, metrics).run(stop).await;
    signals.abort();
    ended
}

/// `ccm/v0.1.0 (linux/amd64) kubernetes/<name>`
fn user_agent(name: &str) -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("ccm/v{} ({}/{arch}) kubernetes/{name}", env!("CARGO_PKG_VERSION"), std::env::consts::OS)
}

/// The first SIGTERM or SIGINT drains, the second ends the process at once.
async fn signals(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        tracing::error!("signals cannot be received: the process ends without draining");
        return;
    };
    let mut next = async || {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    };
    let name = next().await;
    tracing::info!("{name}: ending what is in flight; a second signal ends the process at once");
    stop.cancel();
    let name = next().await;
    tracing::warn!("{name} again: ending at once");
    std::process::exit(1);
}

/// What a run depends on besides its inputs. With a fixed clock and seed, a run over paused time repeats itself.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Of every jitter.
    pub seed: u64,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), seed: rand::random() }
    }
}

/// One cloud-controller-manager.
pub struct Manager {
    options: Options,
    provider: Arc<dyn CloudProvider>,
    client: Client,
    clock: Arc<dyn Clock>,
    leadership: Leadership,
    shared: Shared,
    recorder: Recorder,
    metrics: Metrics,
    background: JoinSet<()>,
    rng: StdRng,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("provider", &self.provider.name()).finish_non_exhaustive()
    }
}

impl Manager {
    /// Makes all parts; must be called within a runtime. Nothing is read or written yet.
    pub fn new(options: Options, provider: Arc<dyn CloudProvider>, client: Client, metrics: Metrics) -> Self {
        Self::within(Surroundings::default(), options, provider, client, metrics)
    }

    /// The same under a clock and a seed of the caller's choice.
    pub fn within(
        surroundings: Surroundings,
        options: Options,
        provider: Arc<dyn CloudProvider>,
        client: Client,
        metrics: Metrics,
    ) -> Self {
        let Surroundings { clock, seed } = surroundings;
        let mut rng = StdRng::seed_from_u64(seed);
        let leadership = Leadership::new(clock.clone());
        let gate = Gate::new(client.clone(), leadership.clone(), options.dry_run, metrics.clone());
        let nodes = Store::new(Keep::new(provider.node_annotations()));
        let services = Store::new(Keep::default());
        let size = nodes.clone();
        let view = instances(&*provider)
            .map(|instances| InstanceView::new(instances, provider.name(), move || size.len(), metrics.clone()));
        let mut background = JoinSet::new();
        let (recorder, delivery) = Recorder::new(gate.clone(), clock.clone(), metrics.clone(), rng.random());
        background.spawn(delivery.run());
        let shared = Shared {
            gate,
            nodes,
            services,
            view,
            leadership: leadership.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            cluster: options.cluster_name.as_str().into(),
        };
        Self { options, provider, client, clock, leadership, shared, recorder, metrics, background, rng }
    }

    /// Runs until `stop`, a lost lease, or a failure.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Failure> {
        tracing::info!("Version: v{}, provider {}", env!("CARGO_PKG_VERSION"), self.provider.name());
        if self.options.dry_run {
            tracing::info!("--dry-run: nothing is written, neither to the cluster nor to the cloud");
        }
        self.serve().await?;
        // Standbys watch too, so that a new leader starts with warm stores.
        self.watch(self.shared.nodes.clone());
        self.watch(self.shared.services.clone());
        let release = CancellationToken::new();
        let mut election = self.elect(release.clone());
        let outcome = self.lead_until(&stop, &mut election).await;
        // Drained, lost, or never led: no controller writes any more, and the lease may go to another process.
        self.leadership.drain();
        release.cancel();
        let ended = match outcome {
            Ok(Some(ended)) => ended,
            _ => tokio::time::timeout(RELEASE, election).await.unwrap_or(Ended::Lost),
        };
        // The last events, that of the lease among them.
        let left = self.recorder.flush(FLUSH).await;
        if left > 0 {
            tracing::warn!(left, "some events could not be delivered");
        }
        outcome?;
        match ended {
            Ended::Lost => Err(Failure::error("leaderelection lost")),
            Ended::NeverLed | Ended::Released => Ok(()),
        }
    }

    /// Leads, once it may, until a signal (`None`) or the end of the election. When it returns, all controllers have ended.
    async fn lead_until(
        &mut self,
        stop: &CancellationToken,
        election: &mut BoxFuture<'static, Ended>,
    ) -> Result<Option<Ended>, Failure> {
        let leadership = self.leadership.clone();
        tokio::select! {
            biased;
            leading = leadership.leading() => if !leading {
                return Ok(None);
            },
            () = stop.cancelled() => return Ok(None),
            ended = &mut *election => return Ok(Some(ended)),
        }
        let mut controllers = tokio::select! {
            biased;
            controllers = self.lead() => controllers?,
            () = stop.cancelled() => return Ok(None),
            ended = &mut *election => return Ok(Some(ended)),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            ended = &mut *election => return Ok(Some(ended)),
            // A process that looks healthy and does not do its work is worse than one that is started anew.
            Some(ended) = controllers.join_next(), if !controllers.is_empty() => {
                let why = match ended {
                    Ok(name) => format!("the controller {name:?} ended"),
                    Err(error) => format!("a controller ended: {error}"),
                };
                if leadership.may_write() && !stop.is_cancelled() {
                    return Err(Failure::fatal(why));
                }
            }
        }
        leadership.drain();
        let drained = async { while controllers.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            ended = tokio::time::timeout(DRAIN, drained) => if ended.is_err() {
                tracing::warn!("what was in flight did not end within {}s and is dropped", DRAIN.as_secs());
                controllers.shutdown().await;
            },
            ended = &mut *election => return Ok(Some(ended)),
        }
        Ok(None)
    }

    async fn serve(&mut self) -> Result<(), Failure> {
        if self.options.secure_port == 0 {
            return Ok(());
        }
        let address = (self.options.bind_address, self.options.secure_port).into();
        let state = serve::State { metrics: self.metrics.clone() };
        let server = serve::bind(address, state).await.map_err(Failure::error)?;
        self.background.spawn(server);
        Ok(())
    }

    fn watch<T: Kept>(&mut self, store: Arc<Store<T>>) {
        let client = self.client.with_user_agent(&user_agent("shared-informers"));
        self.background.spawn(Reflector::new(store.clone(), client, self.rng.random()).run());
        let period = self.options.min_resync;
        if !period.is_zero() {
            let mut rng = StdRng::seed_from_u64(self.rng.random());
            self.background.spawn(async move {
                loop {
                    tokio::time::sleep(period.mul_f64(rng.random_range(1.0..2.0))).await;
                    store.resync();
                }
            });
        }
    }

    fn elect(&mut self, release: CancellationToken) -> BoxFuture<'static, Ended> {
        let Some(config) = self.options.election.clone() else {
            self.leadership.lead(None);
            return Box::pin(async move {
                release.cancelled().await;
                Ended::Released
            });
        };
        let election = Election {
            config,
            client: self.client.with_user_agent(&user_agent("leader-election")),
            leadership: self.leadership.clone(),
            events: Arc::new(self.recorder.for_component("cloud-controller-manager")),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            release,
            seed: self.rng.random(),
            lost_message: "leaderelection lost",
        };
        // A manager that is dropped must not go on renewing its lease.
        let running = AbortOnDropHandle::new(tokio::spawn(election.run()));
        Box::pin(async move { running.await.unwrap_or(Ended::Lost) })
    }

    /// Starts the controllers, now that this process leads.
    async fn lead(&mut self) -> Result<JoinSet<&'static str>, Failure> {
        self.wait_for_api_server().await?;
        let context = ProviderContext::new(
            self.shared.cluster.clone(),
            self.shared.nodes.clone(),
            self.shared.services.clone(),
            Arc::new(self.recorder.for_component("cloud-controller-manager")),
            self.clock.clone(),
            Arc::new(self.leadership.clone()),
        );
        let initialized = AssertUnwindSafe(self.provider.initialize(context)).catch_unwind();
        match tokio::time::timeout(INITIALIZE, initialized).await {
            Ok(Ok(())) => {}
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
            user.set_informers(Arc::new(informers)).await;
        }
        let mut running = JoinSet::new();
        for (controller, on) in &self.options.controllers {
            let (name, label) = (controller.name, controller.label);
            if !on {
                tracing::warn!("{name:?} is disabled");
                continue;
            }
            let start = Start {
                shared: self.shared.clone(),
                provider: &self.provider,
                options: &self.options,
                recorder: &self.recorder,
            };
            match (controller.start)(&start)? {
                Ok(controller) => {
                    tracing::info!("Started {name:?}");
                    let metrics = self.metrics.clone();
                    metrics.running(label, true);
                    running.spawn(async move {
                        controller.await;
                        metrics.running(label, false);
                        name
                    });
                }
                Err(NotStarted(reason)) => tracing::warn!("Skipping {name:?}: {reason}"),
            }
        }
        Ok(running)
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

/// The provider's instances, the older interface adapted.
fn instances(provider: &dyn CloudProvider) -> Option<Arc<dyn InstancesV2>> {
    provider.instances().or_else(|| {
        let legacy = LegacyInstances::new(provider.name(), provider.legacy_instances()?, provider.zones());
        Some(Arc::new(OneByOne::new(legacy, 20)))
    })
}
