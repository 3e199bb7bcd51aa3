//! One run: scheduled steps, then the end of all faults, then convergence.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::check;
use crate::life::CrashPoint;
use crate::managers::{Exit, Managers, RESTART};
use crate::profile::Profile;
use crate::steps::Action;
use crate::trace::{Invariant, Violation};
use crate::world::{World, text};

/// The time limit for convergence after all faults have ended: the longest back-off of a Service (5 minutes), a refresh
/// of addresses (5 minutes), and the work itself.
pub const BOUND: Duration = Duration::from_secs(660);
/// The time without writes after convergence; in total longer than the refresh of addresses and the life of a watch.
const QUIET: Duration = Duration::from_secs(265);
/// The time in which a process may still see stale data: the longest pause of a failed watch. Its actions on stale data
/// must have no effect.
const CAUGHT_UP: Duration = Duration::from_secs(65);
/// The period in which calls to the cloud are counted after that. Earlier calls may be retries of since-repaired
/// failures.
const COUNTED: Duration = Duration::from_secs(60);
/// The maximum delay of an event: it is sent up to 12 times, 10 seconds apart. It may also be about a call to the cloud
/// that began long ago and only now exceeded its deadline of 2 minutes.
const LATE_EVENTS: Duration = Duration::from_secs(250);
/// The time for which a restarted process is watched for writes.
const RESTARTED: Duration = Duration::from_secs(60);
/// The interval between convergence checks.
const LOOK: Duration = Duration::from_secs(10);
/// Number of trace lines in the report of a failure.
const SHOWN: usize = 60;

/// A run in progress.
#[derive(Debug)]
pub struct Simulation {
    /// The cluster and the cloud.
    pub world: Arc<World>,
    /// The parameters.
    pub profile: Profile,
    /// The processes.
    pub managers: Managers,
    /// A crash for the next process that starts.
    pub next_crash: Option<CrashPoint>,
    exits: mpsc::UnboundedReceiver<Exit>,
    pub(crate) agenda: BTreeMap<(Duration, u64), Action>,
    pub(crate) rng: StdRng,
    pub(crate) cidrs: u32,
    pub(crate) joined: usize,
    sequence: u64,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The digest of all trace lines: equal for equal runs.
    pub digest: u64,
    /// The time until convergence.
    pub settled: Duration,
    /// The number of processes that were started.
    pub lives: usize,
    /// The number of writes to nodes and Services.
    pub api_writes: usize,
    /// The number of changes in the cloud.
    pub cloud_writes: usize,
    /// The number of writes of the first process, until it died or to the end.
    pub first_writes: u64,
    /// The simulated time.
    pub simulated: Duration,
    /// The trace.
    pub lines: Vec<String>,
}

/// A run that broke an invariant.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The parameters.
    pub profile: String,
    /// The violation.
    pub violation: Violation,
    /// The command to reproduce it.
    pub replay: String,
    /// The trace.
    pub lines: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.lines.len().saturating_sub(SHOWN);
        writeln!(f, "\n{}\n… {skipped} earlier lines", self.profile)?;
        for line in self.lines.iter().skip(skipped) {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "violated {}\nreplay with: {}", self.violation, self.replay)
    }
}

impl Simulation {
    fn new(profile: Profile) -> Self {
        let world = World::new(&profile);
        let (managers, exits) = Managers::new(world.clone(), &profile);
        Self {
            world,
            managers,
            next_crash: None,
            exits,
            agenda: BTreeMap::new(),
            rng: StdRng::seed_from_u64(profile.seed.wrapping_mul(0x9e37_79b9)),
            cidrs: 0,
            joined: 0,
            sequence: 0,
            profile,
        }
    }

    /// A random time in milliseconds.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(least..=most))
    }

    fn within(&mut self, range: Range<Duration>) -> Duration {
        self.rng.random_range(range)
    }

    /// Schedules a step.
    pub(crate) fn after(&mut self, delay: Duration, action: Action) {
        self.sequence += 1;
        self.agenda.insert((self.world.trace.now() + delay, self.sequence), action);
    }

    /// Advances the time and runs the due steps.
    async fn pass(&mut self, time: Duration) {
        let end = self.world.trace.now() + time;
        loop {
            let next = self.agenda.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= end);
            let until = next.map_or(end, |(at, _)| at);
            tokio::select! {
                biased;
                exit = self.exits.recv() => self.exited(&exit.unwrap()),
                () = tokio::time::sleep_until(self.world.began + until) => match next {
                    None => return,
                    Some(key) => {
                        if let Some(action) = self.agenda.remove(&key) {
                            self.act(action);
                        }
                    }
                },
            }
        }
    }

    fn exited(&mut self, exit: &Exit) {
        self.managers.ended(exit.slot);
        let wait = self.within(RESTART);
        self.after(wait, Action::Start(exit.slot));
    }

    fn failed(&self) -> bool {
        self.world.trace.first_violation().is_some()
    }

    /// From the end of the faults to the end of the run. Returns the time until convergence.
    async fn settle(&mut self) -> Duration {
        self.calm();
        if !check::has_candidate(&self.world) {
            self.joined += 1;
            self.act(Action::Join(format!("n{}", self.joined)));
        }
        let began = self.world.trace.now();
        let settled = loop {
            self.pass(LOOK).await;
            self.tidy();
            let took = self.world.trace.now() - began;
            if self.failed() {
                return took;
            }
            // Users and kubelets have finished their pending actions.
            let waiting = self.agenda.values().find(|action| !matches!(action, Action::Forget(_)));
            let waiting = waiting.map(|action| format!("{action:?} comes later"));
            let Some(lacking) = waiting.or_else(|| check::lacking(self)) else { break took };
            if took > BOUND {
                self.world.trace.violated(Invariant::Convergence, format_args!("after {took:?}: {lacking}"));
                return took;
            }
        };
        self.say(format_args!("settled after {settled:?}"));
        self.quiet().await;
        settled
    }

    /// An administrator deletes nodes whose state is unknown: they have no provider ID, their machine is gone, and an
    /// unknown name is not evidence in this cloud.
    fn tidy(&mut self) {
        if self.profile.traits.absent_by_name {
            return;
        }
        for node in self.world.store.objects("nodes").unwrap_or_default() {
            let name = text(&node, "/metadata/name");
            if text(&node, "/spec/providerID").is_empty() && self.world.cloud().lock().is_gone(name, "") {
                self.world.delete("nodes", name);
            }
        }
    }

    /// Checks that after convergence neither the old process nor a new one writes anything.
    async fn quiet(&mut self) {
        self.pass(CAUGHT_UP).await;
        let since = self.world.trace.now();
        self.pass(QUIET).await;
        check::nothing_written(&self.world, since, since + LATE_EVENTS);
        let counted = self.world.trace.now();
        self.pass(COUNTED).await;
        check::nothing_written(&self.world, counted, counted);
        check::calls_at_rest(&self.world, counted);
        check::queues_are_empty(self);
        for slot in 0..self.managers.len() {
            self.act(Action::Kill(slot));
        }
        self.pass(Duration::from_secs(1)).await;
        let since = self.world.trace.now();
        self.pass(RESTARTED).await;
        check::nothing_written(&self.world, since, Duration::MAX);
        if let Some(lacking) = check::lacking(self) {
            self.world.trace.violated(Invariant::Quiet, format_args!("after a restart: {lacking}"));
        }
    }

    fn end(self, settled: Duration, first_writes: u64, replay: String) -> Result<Summary, Box<Failure>> {
        check::calls_in_all(&self.world);
        let lines = self.world.trace.lines();
        if let Some(violation) = self.world.trace.first_violation() {
            return Err(Box::new(Failure { profile: format!("{:?}", self.profile), violation, replay, lines }));
        }
        let inner = self.world.lock();
        Ok(Summary {
            digest: self.world.trace.digest(),
            settled,
            lives: lines.iter().filter(|line| line.ends_with(" starts") && line.contains(" m")).count(),
            api_writes: inner.effects.iter().filter(|effect| !effect.event).count(),
            cloud_writes: self.world.cloud().lock().writes.len(),
            first_writes,
            simulated: self.world.trace.now(),
            lines,
        })
    }
}

fn in_simulated_time<T>(run: impl Future<Output = T>) -> T {
    crate::panics::quiet();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run)
}

/// Runs the schedule of a seed.
pub fn run(seed: u64) -> Result<Summary, Box<Failure>> {
    in_simulated_time(async {
        let mut simulation = Simulation::new(Profile::of(seed));
        simulation.create_foreign();
        let _watch = crate::panics::watch(simulation.world.trace.clone());
        for slot in 0..simulation.managers.len() {
            let start = simulation.between(0, 5000);
            simulation.after(start, Action::Start(slot));
        }
        for _ in 0..simulation.profile.nodes {
            simulation.joined += 1;
            let (at, name) = (simulation.between(0, 10_000), format!("n{}", simulation.joined));
            simulation.after(at, Action::Join(name));
        }
        simulation.after(Duration::from_secs(1), Action::CreateService("svc".into()));
        simulation.after(Duration::from_secs(2), Action::Anything);
        simulation.pass(simulation.profile.chaos).await;
        let settled = if simulation.failed() { Duration::ZERO } else { simulation.settle().await };
        let replay = format!("CCM_SIM_SEED={seed} cargo test -p ccm-test-simulation --test it seeds -- --nocapture");
        simulation.end(settled, 0, replay)
    })
}

/// Runs a script without faults; the first process dies at `crash`.
pub fn play(
    script: &[(u64, Action)],
    length: Duration,
    crash: Option<CrashPoint>,
    replay: String,
) -> Result<Summary, Box<Failure>> {
    in_simulated_time(async {
        let mut simulation = Simulation::new(Profile::calm(false));
        simulation.create_foreign();
        let _watch = crate::panics::watch(simulation.world.trace.clone());
        simulation.next_crash = crash;
        simulation.act(Action::Start(0));
        let first = simulation.managers.get(0).map(|running| running.life.clone());
        for (at, action) in script {
            simulation.after(Duration::from_millis(*at), action.clone());
        }
        simulation.pass(length).await;
        let settled = if simulation.failed() { Duration::ZERO } else { simulation.settle().await };
        let writes = first.map_or(0, |life| life.writes());
        simulation.end(settled, writes, replay)
    })
}
