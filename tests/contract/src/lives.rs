//! Random sequences of changes of Services ("lives"), by seed, in a simulated cloud that throttles, lags, loses answers
//! and breaks connections.
//!
//! During the faults any call may fail, but objects of other owners never change. After the faults, all Services reach
//! their desired state within a few rounds, a further round writes nothing, the result equals that of a fresh start,
//! and the deletion of all Services leaves none of their objects.
//!
//! A failure prints its seed. `CCM_<CLOUD>_SEEDS=7` runs that seed alone, `CCM_<CLOUD>_SEEDS=100-200` a range.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ccm_provider::{
    LoadBalancer, LoadBalancerExt as _, LoadBalancerStatus, NodeRef, ProviderError, Service, ServiceAction,
    ServiceAnswer,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::crash::same;
use crate::{Outage, Simulation};

/// Maximum number of rounds over all Services until they converge.
const ROUNDS: usize = 8;
/// Number of events per life.
const EVENTS: usize = 12;

/// A simulated cloud for these tests. All randomness comes from the given `rng`, so that a seed reproduces a life.
#[async_trait]
pub trait LivingCloud: Sized + Send + Sync + 'static {
    /// `--cluster-name`
    const CLUSTER: &'static str;
    /// The number of lives that run at the same time: more for a cloud that is waited for most of the time.
    const AT_ONCE: usize = 8;

    /// Creates a cloud with objects of other owners that use the same shared objects. `seed` is for the cloud's own
    /// randomness.
    async fn start(seed: u64, rng: &mut StdRng) -> Self;

    /// The random choices at the start, for the log of a failed life.
    fn description(&self) -> String;

    /// The simulated cloud.
    fn simulation(&self) -> &dyn Simulation;

    /// The load balancers of a new process, which is the leader and has empty caches.
    async fn process(&self) -> Arc<dyn LoadBalancer>;

    /// The nodes.
    fn nodes(&mut self) -> &mut Vec<NodeRef>;

    /// Adds a node on a new instance. `number` is unique.
    fn add_node(&mut self, number: usize);

    /// Removes the instance of a node.
    fn remove_instance(&mut self, node: &NodeRef);

    /// A Service of this name with random settings. `kind` is one of two kinds of load balancers; a Service cannot
    /// change its kind. A cloud with one kind ignores it. Settings that a balancer keeps when their annotation is
    /// removed must always be set.
    fn service(&mut self, rng: &mut StdRng, name: &str, kind: bool) -> Service;

    /// The kind that a Service requests.
    fn kind(&self, _service: &Service) -> bool {
        false
    }

    /// Starts delayed and stale reads. Returns whether a process may cache stale answers for longer.
    fn rough(&mut self, _rng: &mut StdRng) -> bool {
        false
    }

    /// Injects faults that only this cloud has, in addition to [`Simulation::random_faults`].
    fn disrupt(&mut self, rng: &mut StdRng) -> String;

    /// Ends delayed and stale reads; all other faults have ended before.
    fn calm(&mut self) {}

    /// Changes a part of one of the provider's balancers outside of the provider. `balancers` are the default names of
    /// the Services' balancers.
    fn change_by_hand(&mut self, rng: &mut StdRng, balancers: &[String]) -> String;

    /// Called after an operation failed with this error: waits for the provider's background work and returns true, or
    /// returns false if there is none and the operation has ended.
    async fn wait(&self, _error: &ProviderError) -> bool {
        false
    }

    /// All objects that may have been created for Services, a line each.
    fn contents(&self) -> Vec<String>;

    /// Whether such an object belongs to another owner.
    fn is_theirs(line: &str) -> bool;

    /// Removes from a line whatever depends on the order of events.
    fn plain(line: String) -> String {
        line
    }

    /// All objects of other owners, a line each.
    fn foreign(&self) -> Vec<String> {
        self.contents().into_iter().filter(|line| Self::is_theirs(line)).collect()
    }
}

/// Defines the two tests of the lives in a cloud: one for `$seeds`, and one in the long lane for `$of_the_day` seeds
/// that change daily. The environment variable selects other seeds.
#[macro_export]
macro_rules! lives {
    ($cloud:ident, $variable:literal, $seeds:expr, $of_the_day:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn random_lives_reach_the_desired_state_and_leave_nothing() {
            $crate::lives::live::<$cloud>($crate::lives::seeds($variable, $seeds)).await;
        }

        mod long_lane {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn random_lives_of_the_day_reach_the_desired_state_and_leave_nothing() {
                $crate::lives::live_of_the_day::<super::$cloud>($variable, $of_the_day).await;
            }
        }
    };
}

/// A Service in the cluster, as the controller sees it.
struct Living {
    service: Service,
    /// The kind of the created balancer; `None` before its creation.
    made: Option<bool>,
    /// Whether the user deleted it.
    deleted: bool,
    /// The annotations that the provider recorded; they survive the user's changes.
    noted: BTreeMap<String, String>,
}

impl Living {
    fn new(service: Service) -> Self {
        Self { service, made: None, deleted: false, noted: BTreeMap::new() }
    }

    fn replace(&mut self, mut service: Service) {
        service.status = std::mem::take(&mut self.service.status);
        service.metadata.annotations.extend(self.noted.clone());
        self.service = service;
    }

    /// The Service as the user created it, without changes by the controller.
    fn as_new(&self) -> Service {
        let mut service = self.service.clone();
        service.status.load_balancer = LoadBalancerStatus::default();
        service.metadata.annotations.retain(|key, _| !self.noted.contains_key(key));
        service
    }

    fn note(&mut self, key: String, value: Option<String>) {
        match value {
            Some(value) => {
                self.service.metadata.annotations.insert(key.clone(), value.clone());
                self.noted.insert(key, value);
            }
            None => {
                self.service.metadata.annotations.remove(&key);
                self.noted.remove(&key);
            }
        }
    }
}

struct Life<C> {
    rng: StdRng,
    cloud: C,
    process: Arc<dyn LoadBalancer>,
    services: BTreeMap<String, Living>,
    generation: usize,
    /// The number of nodes created so far.
    made: usize,
    foreign: Vec<String>,
    /// The log, printed on a failure.
    log: Vec<String>,
}

/// Runs the lives of these seeds, [`LivingCloud::AT_ONCE`] at a time. Panics if one fails, since this is the body of a test.
#[allow(clippy::panic)]
pub async fn live<C: LivingCloud>(seeds: impl IntoIterator<Item = u64>) {
    // A failed life has printed the reason.
    let finished =
        |life: Result<(), tokio::task::JoinError>| assert!(life.is_ok(), "a life failed; see its seed above");
    let mut lives = tokio::task::JoinSet::new();
    for seed in seeds {
        if lives.len() >= C::AT_ONCE
            && let Some(life) = lives.join_next().await
        {
            finished(life);
        }
        lives.spawn(async move {
            let mut life = Life::<C>::start(seed).await;
            if let Err(what) = life.run().await {
                panic!("seed {seed}:\n{}\n{what}", life.log.join("\n"));
            }
        });
    }
    while let Some(life) = lives.join_next().await {
        finished(life);
    }
}

/// Runs this many lives with seeds of the current day, and prints how to repeat them with the variable.
pub async fn live_of_the_day<C: LivingCloud>(variable: &str, count: u64) {
    let day = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() / 86_400);
    let (first, last) = (day * count, (day + 1) * count - 1);
    // Bypasses the test harness, which shows only the output of failed tests.
    let _ = std::io::stderr().write_all(format!("\n{variable}={first}-{last}\n").as_bytes());
    live::<C>(first..=last).await;
}

/// The seeds in the environment variable, or `usual`: a number, or `first-last`. Panics on any other text.
#[allow(clippy::panic)]
pub fn seeds(variable: &str, usual: std::ops::RangeInclusive<u64>) -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var(variable) else { return usual };
    let number = |text: &str| {
        text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{variable}={text}: want a number or first-last"))
    };
    match text.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(&text)..=number(&text),
    }
}

impl<C: LivingCloud> Life<C> {
    async fn start(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut cloud = C::start(seed, &mut rng).await;
        let mut made = cloud.nodes().len();
        while made < 3 {
            made += 1;
            cloud.add_node(made);
        }
        let (process, foreign, log) = (cloud.process().await, cloud.foreign(), vec![cloud.description()]);
        Self { rng, cloud, process, services: BTreeMap::new(), generation: 0, made, foreign, log }
    }

    fn say(&mut self, what: &str) {
        self.log.push(format!("{} {what}", self.cloud.simulation().now().strftime("%H:%M:%S")));
    }

    fn step(&self, time: Duration) {
        self.cloud.simulation().step(time);
    }

    /// The objects of the provider.
    fn shape(&self) -> Vec<String> {
        let ours = self.cloud.contents().into_iter().filter(|line| !C::is_theirs(line));
        let mut lines: Vec<String> = ours.map(C::plain).collect();
        lines.sort();
        lines
    }

    /// Injects random faults now and then; they replace the earlier ones.
    fn disrupt(&mut self) {
        self.cloud.simulation().disrupt(Outage::None);
        let faults = match self.rng.random_range(0..18) {
            0..=4 => return,
            5..=14 => self.cloud.simulation().random_faults(&mut self.rng),
            _ => self.cloud.disrupt(&mut self.rng),
        };
        self.say(&format!("  faults: {faults}"));
    }

    fn pick(&mut self) -> Option<String> {
        let at = self.rng.random_range(0..self.services.len().max(1));
        self.services.keys().nth(at).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.services.keys().cloned().collect()
    }

    fn set_service(&mut self, name: &str, service: Service) {
        if let Some(living) = self.services.get_mut(name) {
            living.replace(service);
        }
    }

    /// One sync by the service controller.
    async fn sync(&mut self, name: &str) -> Result<(), ProviderError> {
        match self.services.get(name) {
            Some(living) if living.deleted => self.delete(name).await,
            Some(_) => self.ensure(name).await,
            None => Ok(()),
        }
    }

    /// One call, repeated until the answer is final. Like the controller, it records the provider's annotations on the
    /// Service.
    async fn call(&mut self, name: &str, action: ServiceAction) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let Some(living) = self.services.get_mut(name) else { return Ok(None) };
        loop {
            let answer = self.process.reconcile_one(C::CLUSTER, &living.service, self.cloud.nodes(), action).await;
            let ServiceAnswer { result, notes, .. } = answer;
            notes.annotations.into_iter().for_each(|(key, value)| living.note(key, value));
            match result {
                Err(error) if self.cloud.wait(&error).await => {}
                result => {
                    self.say(&format!(
                        "  {action:?} {name}: {:?}",
                        result.as_ref().map(drop).map_err(ToString::to_string)
                    ));
                    return result;
                }
            }
        }
    }

    async fn ensure(&mut self, name: &str) -> Result<(), ProviderError> {
        let status = self.call(name, ServiceAction::Ensure).await?.unwrap_or_default();
        if let Some(living) = self.services.get_mut(name) {
            if !status.ingress.is_empty() {
                living.made.get_or_insert(self.cloud.kind(&living.service));
            }
            living.service.status.load_balancer = status;
        }
        Ok(())
    }

    /// Like the controller: checks whether a balancer exists, deletes it, and removes the finalizer.
    async fn delete(&mut self, name: &str) -> Result<(), ProviderError> {
        let Some(service) = self.services.get(name).map(|living| living.service.clone()) else { return Ok(()) };
        if self.process.get(C::CLUSTER, &service).await?.is_some() {
            self.call(name, ServiceAction::Delete).await?;
        }
        self.services.remove(name);
        Ok(())
    }

    async fn event(&mut self) -> Result<(), String> {
        self.disrupt();
        match self.rng.random_range(0..100) {
            0..=39 => self.change_a_service().await,
            40..=54 => {
                if let Some(name) = self.pick() {
                    self.say(&format!("{name} is deleted"));
                    if let Some(living) = self.services.get_mut(&name) {
                        living.deleted = true;
                    }
                    let _ = self.delete(&name).await;
                }
            }
            55..=69 => self.change_nodes().await,
            70..=79 => {
                self.say("a new process");
                // The new process becomes the leader after the lease of the previous one has expired.
                self.step(Duration::from_secs(15));
                self.restart().await;
            }
            80..=84 => {
                let balancers: Vec<String> =
                    self.services.values().map(|living| living.service.default_load_balancer_name()).collect();
                let what = self.cloud.change_by_hand(&mut self.rng, &balancers);
                self.say(&format!("by hand: {what}"));
            }
            _ => {
                if let Some(name) = self.pick() {
                    self.say(&format!("{name} again"));
                    let _ = self.sync(&name).await;
                }
            }
        }
        let pause = [0, 0, 1, 2, 10, 60].get(self.rng.random_range(0..6)).copied().unwrap_or_default();
        self.step(Duration::from_secs(pause));
        same(&self.cloud.foreign(), &self.foreign, "what belongs to others changed")
    }

    async fn change_a_service(&mut self) {
        let name = ["a", "b", "c", "d"].get(self.rng.random_range(0..4)).copied().unwrap_or_default();
        let living = self.services.iter().find(|(key, _)| key.starts_with(name));
        match living.map(|(key, living)| (key.clone(), living.deleted, living.service.clone())) {
            Some((_, true, _)) => {}
            Some((key, false, service)) => {
                // Sometimes the user requests the other kind.
                let kind = self.cloud.kind(&service);
                let shown = !service.status.load_balancer.ingress.is_empty();
                let kind = if shown && self.rng.random_bool(0.08) { !kind } else { kind };
                let service = self.cloud.service(&mut self.rng, &key, kind);
                self.say(&format!("{key} {}", settings(&service)));
                self.set_service(&key, service);
                let _ = self.sync(&key).await;
            }
            None => {
                self.generation += 1;
                let key = format!("{name}{}", self.generation);
                let kind = self.rng.random_bool(0.5);
                let service = self.cloud.service(&mut self.rng, &key, kind);
                self.say(&format!("new {key} {}", settings(&service)));
                self.services.insert(key.clone(), Living::new(service));
                let _ = self.sync(&key).await;
            }
        }
    }

    async fn change_nodes(&mut self) {
        if self.cloud.nodes().len() < 3 || self.rng.random_bool(0.5) {
            self.made += 1;
            self.cloud.add_node(self.made);
        } else {
            let gone = self.cloud.nodes().remove(0);
            if self.rng.random_bool(0.5) {
                self.cloud.remove_instance(&gone);
            }
        }
        let count = self.cloud.nodes().len();
        self.say(&format!("nodes: {count}"));
        for name in self.names() {
            if self.services.get(&name).is_some_and(|living| !living.deleted) {
                let _ = self.call(&name, ServiceAction::UpdateHosts).await;
            }
        }
    }

    /// Starts a new process, whose first calls succeed.
    async fn restart(&mut self) {
        self.cloud.simulation().disrupt(Outage::None);
        self.process = self.cloud.process().await;
    }

    /// Syncs until no call fails and nothing is written.
    async fn settle(&mut self, how: &str) -> Result<(), String> {
        self.say(how);
        self.cloud.simulation().disrupt(Outage::None);
        self.cloud.calm();
        self.step(Duration::from_secs(600));
        // A change of the kind is rejected permanently; the user reverts it.
        for name in self.names() {
            let Some(living) = self.services.get(&name) else { continue };
            if let Some(made) = living.made.filter(|made| *made != self.cloud.kind(&living.service)) {
                let service = self.cloud.service(&mut self.rng, &name, made);
                self.set_service(&name, service);
            }
        }
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                // A process remembers for an hour what was refused for good; a new one does not.
                self.restart().await;
            }
            let (mark, mut failed) = (self.cloud.simulation().mark(), false);
            for name in self.names() {
                if let Err(error) = self.sync(&name).await {
                    failed = true;
                    self.step(error.retry_after().unwrap_or_default().max(Duration::from_secs(30)));
                }
            }
            if !failed && self.cloud.simulation().writes(mark).is_empty() {
                self.say(&format!("settled after rounds: {round}"));
                return Ok(());
            }
        }
        Err(format!("not settled after {ROUNDS} rounds"))
    }

    async fn run(&mut self) -> Result<(), String> {
        let start = self.shape();
        let stale = self.cloud.rough(&mut self.rng);
        self.say(&format!("stale reads: {stale}"));
        // The network has existed for a while.
        self.step(Duration::from_secs(60));
        for _ in 0..EVENTS {
            self.event().await?;
        }
        if stale || self.rng.random_bool(0.5) {
            self.restart().await;
        }
        self.settle("calm").await?;
        let reached = self.shape();
        let mark = self.cloud.simulation().mark();
        self.restart().await;
        for name in self.names() {
            self.sync(&name).await.map_err(|error| format!("a new process fails: {error}"))?;
        }
        let writes = self.cloud.simulation().writes(mark);
        if !writes.is_empty() {
            return Err(format!("a new process writes: {writes:?}"));
        }
        let kept: Vec<Service> = self.services.values().map(Living::as_new).collect();
        self.services.values_mut().for_each(|living| living.deleted = true);
        self.settle("all are deleted").await?;
        same(&self.shape(), &start, "something was left behind")?;
        for service in kept {
            let name = service.metadata.name.to_string();
            self.services.insert(name, Living::new(service));
        }
        self.settle("the same Services from nothing").await?;
        same(&reached, &self.shape(), "the result depends on the history")?;
        same(&self.cloud.foreign(), &self.foreign, "what belongs to others changed")
    }
}

fn settings(service: &Service) -> String {
    format!("{:?}, ports: {}", service.metadata.annotations, service.spec.ports.len())
}
