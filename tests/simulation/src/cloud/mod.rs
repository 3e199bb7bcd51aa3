//! A model cloud: instances, load balancers and routes in memory, with the behavior of a real one.
//!
//! Every change is a separate write with a delay before and after it, so that a process can die between any two.
//! Deliberate faults of the cloud are in [`Mishaps`]; a wrong call is a violation.

pub mod balancers;
pub mod instances;
pub mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{CloudProvider, ErrorClass, InstancesV2, LoadBalancer, ProviderError, Routes};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::life::{Life, Permit, Target};
use crate::trace::{Invariant, Trace};

pub use balancers::{Balancer, SIZE};
pub use instances::{Instance, Power};
pub use routes::{FOREIGN_ROUTE, RouteRow};

/// The scheme of the provider IDs of this cloud.
pub const SCHEME: &str = "sim";

/// The properties of the cloud.
#[derive(Debug, Clone)]
pub struct Traits {
    /// Whether an instance that does not exist is only missing from its answers.
    pub unlisted: bool,
    /// The maximum delay until a new instance is visible; the grace period that the cloud declares.
    pub grace: Duration,
    /// Whether an instance that is not found by name counts as absent.
    pub absent_by_name: bool,
    /// Whether routes are listed with the addresses of their node.
    pub route_addresses: bool,
    /// Whether Services share cloud objects.
    pub shared: bool,
    /// Maximum duration of one call or write.
    pub latency: Duration,
}

/// Faults of the cloud. Numbers count down, times expire.
#[derive(Debug, Default)]
pub struct Mishaps {
    /// The end of throttling, whether only writes are throttled, and the retry delay of the error, if any.
    pub throttled: Option<(Duration, bool, Option<Duration>)>,
    /// The end of failing lookups, and whether all nodes or every second instance fail.
    pub lookups_fail: Option<(Duration, bool)>,
    /// Number of calls that panic.
    pub panics: u32,
    /// Number of calls with too few or too many answers.
    pub miscounts: u32,
    /// Number of slow calls, and their duration.
    pub stuck: Option<(u32, Duration)>,
    /// Number of writes that fail without effect.
    pub fail_writes: u32,
    /// Number of writes that fail after their effect.
    pub lose_answers: u32,
    /// Number of lookups that fail because of an incomplete list.
    pub partial_lists: u32,
    /// The end of stale route lists, and the routes in these lists.
    pub stale_routes: Option<(Duration, BTreeMap<String, RouteRow>)>,
    /// Number of route creations that fail with a conflict.
    pub conflicts: u32,
    /// Number of ensures that request a retry.
    pub come_back: u32,
}

/// A call, for counting.
#[derive(Debug, Clone)]
pub struct CallRecord {
    /// The time at which the call began.
    pub at: Duration,
    /// The process that made the call.
    pub by: String,
    /// The name of the call.
    pub call: &'static str,
}

/// A change, for the ledger.
#[derive(Debug, Clone)]
pub struct WriteRecord {
    /// The time at which the change took effect.
    pub at: Duration,
    /// The process that made the change.
    pub by: String,
    /// A description of the change.
    pub what: String,
}

/// The state of the cloud.
#[derive(Debug, Default)]
pub struct State {
    /// The instances by ID.
    pub instances: BTreeMap<String, Instance>,
    /// The balancers by name.
    pub balancers: BTreeMap<String, Balancer>,
    /// The routes by name.
    pub routes: BTreeMap<String, RouteRow>,
    /// The current faults.
    pub mishaps: Mishaps,
    /// Every call.
    pub calls: Vec<CallRecord>,
    /// The times of the lookups without a usable answer: a panic, a call that hangs, or a wrong number of answers.
    pub failed_lookups: Vec<Duration>,
    /// Every change by a manager.
    pub writes: Vec<WriteRecord>,
    /// The time of the last report to a process that a node is gone, unless a later answer differs.
    pub reported_gone: BTreeMap<(String, String), Duration>,
    /// The hosts that a process last requested for a balancer, whether that succeeded or not.
    asked_hosts: BTreeMap<(String, String), BTreeSet<String>>,
    next: u32,
}

/// The state of the cluster that the model checks when a balancer loses its last host.
pub trait Witness: Send + Sync + std::fmt::Debug {
    /// The reason why this host may be removed, if any.
    fn may_leave(&self, state: &State, host: &str, provider_id: &str) -> Option<String>;
    /// Whether a node is or was excluded from balancers by label.
    fn any_excluded(&self) -> bool;
    /// Whether this process may write now; otherwise the reason.
    fn may_write(&self, life: &Life) -> Result<(), String>;
}

/// The cloud.
#[derive(Debug)]
pub struct Cloud {
    /// The properties of the cloud.
    pub traits: Traits,
    pub(crate) trace: Arc<Trace>,
    state: Mutex<State>,
    rng: Mutex<StdRng>,
    witness: Arc<dyn Witness>,
}

impl Cloud {
    /// A cloud with one foreign balancer and two foreign routes.
    pub fn new(traits: Traits, trace: Arc<Trace>, seed: u64, witness: Arc<dyn Witness>) -> Arc<Self> {
        let mut state = State::default();
        let foreign = Balancer { owner: "somebody-else".into(), ..Balancer::default() };
        state.balancers.insert("theirs".into(), foreign);
        state.routes.extend(routes::foreign());
        let (state, rng) = (Mutex::new(state), Mutex::new(StdRng::seed_from_u64(seed)));
        Arc::new(Self { traits, trace, state, rng, witness })
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn dice<R>(&self, roll: impl FnOnce(&mut StdRng) -> R) -> R {
        roll(&mut self.rng.lock())
    }

    /// The provider of one process.
    pub fn provider(self: &Arc<Self>, life: &Arc<Life>) -> Arc<dyn CloudProvider> {
        Arc::new(Provider(Handle { cloud: self.clone(), life: life.clone() }))
    }

    /// Ends all faults.
    pub fn calm(&self) {
        self.lock().mishaps = Mishaps::default();
    }
}

/// The cloud as used by one process.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    cloud: Arc<Cloud>,
    life: Arc<Life>,
}

impl Handle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.cloud.lock()
    }

    /// Never returns if the process is dead.
    async fn alive(&self) {
        if self.life.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// The beginning of every call: records it, adds latency, and may fail.
    async fn begin(&self, call: &'static str, writes: bool) -> Result<(), ProviderError> {
        self.alive().await;
        if self.life.hang().await {
            return Err(ProviderError::unknown("the connection was lost"));
        }
        let at = self.cloud.trace.now();
        let (stuck, panics) = {
            let mut state = self.lock();
            state.calls.push(CallRecord { at, by: self.life.name.clone(), call });
            let mishaps = &mut state.mishaps;
            let stuck = mishaps.stuck.as_mut().filter(|(left, _)| *left > 0).map(|(left, time)| {
                *left -= 1;
                *time
            });
            let panics = mishaps.panics > 0;
            mishaps.panics = mishaps.panics.saturating_sub(1);
            if call == "lookup" && (panics || stuck.is_some()) {
                state.failed_lookups.push(at);
            }
            (stuck, panics)
        };
        self.pause().await;
        if let Some(time) = stuck {
            self.cloud.trace.say(format_args!("{} {call} is stuck for {}s", self.life, time.as_secs()));
            tokio::time::sleep(time).await;
            self.alive().await;
        }
        assert!(!panics, "{PANIC}: {call}");
        self.throttle(call, writes)
    }

    fn throttle(&self, call: &str, writes: bool) -> Result<(), ProviderError> {
        let now = self.cloud.trace.now();
        match self.lock().mishaps.throttled {
            Some((until, only_writes, after)) if now < until && (writes || !only_writes) => {
                Err(ProviderError::new(ErrorClass::Throttled { after }, format!("{call}: too many requests")))
            }
            _ => Ok(()),
        }
    }

    async fn pause(&self) {
        let most = u64::try_from(self.cloud.traits.latency.as_millis()).unwrap_or(1).max(2);
        let millis = self.cloud.dice(|rng| rng.random_range(1..most));
        tokio::time::sleep(Duration::from_millis(millis)).await;
        self.alive().await;
    }

    /// Makes one change. `change` returns a description, or `None` if there is nothing to do.
    async fn write(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut State) -> Option<String>,
    ) -> Result<(), ProviderError> {
        self.pause().await;
        if self.life.hang().await {
            return Err(ProviderError::unknown("the connection was lost"));
        }
        self.throttle(call, true)?;
        let permit = self.life.permit(Target::Cloud);
        if permit == Permit::Dead {
            self.cloud.trace.say(format_args!("{} dies before {call}", self.life));
            std::future::pending::<()>().await;
        }
        let lost = {
            let mut state = self.lock();
            if state.mishaps.fail_writes > 0 {
                state.mishaps.fail_writes -= 1;
                self.cloud.trace.say(format_args!("{} {call} fails", self.life));
                return Err(ProviderError::unknown(format!("{call}: internal error")));
            }
            let Some(what) = change(&mut state) else { return Ok(()) };
            let at = self.cloud.trace.now();
            state.writes.push(WriteRecord { at, by: self.life.name.clone(), what: what.clone() });
            let lost = state.mishaps.lose_answers > 0;
            state.mishaps.lose_answers = state.mishaps.lose_answers.saturating_sub(1);
            let note = if lost { ", the answer is lost" } else { "" };
            self.cloud.trace.say(format_args!("{} cloud: {what}{note}", self.life));
            lost
        };
        if permit == Permit::LastWrite {
            self.cloud.trace.say(format_args!("{} dies after {call}", self.life));
            self.life.die();
            std::future::pending::<()>().await;
        }
        match lost {
            true => Err(ProviderError::new(ErrorClass::Transient { after: None }, format!("{call}: connection reset"))),
            false => Ok(()),
        }
    }

    /// Called before a write: checks that the process may write.
    fn check_leader(&self, call: &str) {
        if let Err(why) = self.cloud.witness.may_write(&self.life) {
            self.cloud.trace.violated(Invariant::OneWriter, format_args!("{} calls {call}: {why}", self.life));
        }
    }

    fn violated(&self, invariant: Invariant, details: &str) {
        self.cloud.trace.violated(invariant, format_args!("{} {details}", self.life));
    }
}

/// The prefix of injected panics.
pub const PANIC: &str = "simulated panic";

struct Provider(Handle);

#[async_trait]
impl CloudProvider for Provider {
    fn name(&self) -> &str {
        SCHEME
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.0.clone()))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.0.clone()))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(self.0.clone()))
    }
}

/// A set of names in one line.
fn names(set: &BTreeSet<String>) -> String {
    set.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}
