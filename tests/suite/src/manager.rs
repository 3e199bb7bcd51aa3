//! A manager within the process of the test.

use ccm::Failure;
use ccm::manager::{Manager, Surroundings};
use ccm::options::Options;
use ccm::providers::Configuration;
use ccm::serve::{Health, Probe};
use ccm_provider::{CloudConfig, CloudProvider, FlagValues, ProviderFactory, Registry};
use ccm_runtime::clock::SimulatedClock;
use ccm_runtime::{Client, Metrics};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Network;

/// A running manager; killed when dropped.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<Result<(), Failure>>,
    stop: CancellationToken,
    line: Network,
    metrics: Metrics,
    health: Health,
    clock: Option<Arc<SimulatedClock>>,
}

/// The environment of a manager of a rig.
pub(crate) struct Environment {
    pub(crate) client: Client,
    pub(crate) line: Network,
    pub(crate) metrics: Metrics,
    /// The clock; `None` for the machine's clock.
    pub(crate) clock: Option<Arc<SimulatedClock>>,
    pub(crate) seed: u64,
}

/// Options from arguments, without the program's name.
pub(crate) fn options(args: &[String]) -> Options {
    Options::from_args(args).unwrap_or_else(|failure| panic!("{}: {args:?}", failure.message))
}

/// The fake provider with the file in the options.
pub(crate) async fn provider(options: &Options) -> Arc<dyn CloudProvider> {
    let path = &options.cloud_config;
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let config = CloudConfig { path: path.into(), text };
    ccm_provider_fake::Factory
        .build(Some(config), &FlagValues::default())
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

impl Running {
    pub(crate) async fn start(args: &[String], environment: Environment) -> Self {
        let provider = provider(&options(args)).await;
        Self::with(args, provider, environment)
    }

    pub(crate) fn with(args: &[String], provider: Arc<dyn CloudProvider>, environment: Environment) -> Self {
        Self::run(options(args), provider, environment)
    }

    /// Options of a program with this provider and its controllers.
    pub(crate) async fn of(args: &[String], factory: Arc<dyn ProviderFactory>, environment: Environment) -> Self {
        let mut registry = Registry::new();
        registry.register(factory).unwrap();
        let failed = |failure: Failure| -> ! { panic!("{}", failure.message) };
        let options = Options::with_providers(&registry, args).unwrap_or_else(|failure| failed(failure));
        let configuration = Configuration::of(&registry, &options, &environment.client);
        let configuration = configuration.unwrap_or_else(|failure| failed(failure));
        let loaded = configuration.load().await.unwrap_or_else(|failure| failed(failure));
        let provider = loaded.provider.clone();
        Self::run_as(options, provider, environment, |manager| manager.reloading(loaded, configuration))
    }

    fn run(options: Options, provider: Arc<dyn CloudProvider>, environment: Environment) -> Self {
        Self::run_as(options, provider, environment, |manager| manager)
    }

    fn run_as(
        options: Options,
        provider: Arc<dyn CloudProvider>,
        environment: Environment,
        change: impl FnOnce(Manager) -> Manager,
    ) -> Self {
        let Environment { client, line, metrics, clock, seed } = environment;
        let stop = CancellationToken::new();
        let mut surroundings = Surroundings { seed, ..Surroundings::default() };
        if let Some(clock) = &clock {
            surroundings.clock = clock.clone();
        }
        let manager = change(Manager::within(surroundings, options, provider, client, metrics.clone()));
        let health = manager.health().clone();
        let task = tokio::spawn(manager.run(stop.clone()));
        Self { task, stop, line, metrics, health, clock }
    }

    /// Moves the wall clock of only this manager forward or back.
    pub fn jump(&self, seconds: i64) {
        self.clock.as_ref().expect("a simulated clock").jump(seconds);
    }

    /// Like SIGTERM: finishes work in flight and releases the lease.
    pub async fn stop(mut self) -> Result<(), Failure> {
        self.stop.cancel();
        (&mut self.task).await.expect("the manager panicked")
    }

    /// Requests a stop without waiting.
    pub fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Like SIGKILL: it stops at once, and none of its requests reaches the API server.
    pub fn kill(self) {}

    /// Disconnects only this manager from the API server, or reconnects it.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.line.set_down(cut_off);
    }

    /// Makes the node watch task panic at its next read.
    pub fn panic_in_watches(&self) {
        self.line.panic_in_watches();
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) -> Result<(), Failure> {
        (&mut self.task).await.expect("the manager panicked")
    }

    /// Whether it is still running.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// A sample of its metrics; see [`Metrics::sample`].
    pub fn metric(&self, line_start: &str) -> Option<f64> {
        self.metrics.sample(line_start)
    }

    /// The result of a health check; panics if there is no check with this name.
    pub fn health(&self, probe: Probe, check: &str) -> Result<(), String> {
        self.health.single(probe, check).unwrap_or_else(|| panic!("no check {check}"))
    }

    /// The last plan for a subject, such as `node a`.
    pub fn plan(&self, subject: &str) -> Option<String> {
        let last = self.metrics.plans().list().into_iter();
        last.filter(|plan| plan.subject == subject).map(|plan| plan.text).next()
    }

    /// The subjects of the syncs whose last try failed.
    pub fn failing(&self) -> Vec<String> {
        let mut last = self.metrics.failures().list();
        last.retain(|entry| entry.failure.as_ref().is_some_and(|failure| !failure.settled));
        last.into_iter().map(|entry| entry.subject).collect()
    }

    /// All of its metrics, as scraped.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.line.set_down(true);
        self.task.abort();
    }
}
