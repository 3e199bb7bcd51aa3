//! When calls are sent, and how often one is sent again.
//!
//! AWS counts the calls of an account and region in a few budgets; the [`Family`]s here follow them. Each family has a
//! [`Lane`]: a token bucket, a bound on calls at once, and a queue in which work that a user waits for goes before
//! refreshing. When AWS answers that it wants fewer calls, the whole family holds still; then one call goes as a probe,
//! and only after it succeeded go the others. So a family under throttling sends no more than one call per pause,
//! however many callers wait and however often they would try.

mod lane;
mod pressure;
mod repeat;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, timeout_at};

use self::lane::{End, Lane};
use super::error::ErrorKind;
use super::operation::{Operation, Service};
use super::{Answer, ApiError};
use crate::client::metrics::Metrics;

pub(crate) use self::lane::Pace;

/// How often an operation is sent at most.
const ATTEMPTS: u32 = 3;
/// The first pause after no answer; each further one doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// For an operation with all its attempts and pauses. A page is an operation of its own here.
const DEADLINE: Duration = Duration::from_secs(45);
/// While a throttling has outlasted so many probes, an operation is not sent twice: its caller comes again anyhow.
const PROBES_BEFORE_GIVING_UP: u32 = 3;

/// Calls that share a budget of AWS. Both kinds of balancers share theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Ec2Read,
    Ec2Write,
    ElbRead,
    ElbWrite,
}

impl Family {
    pub(crate) const ALL: [Self; 4] = [Self::Ec2Read, Self::Ec2Write, Self::ElbRead, Self::ElbWrite];

    /// Where an operation belongs.
    pub(crate) fn of(operation: Operation) -> Self {
        match (operation.service, operation.is_mutating()) {
            (Service::Elb | Service::ElbV2, false) => Self::ElbRead,
            (Service::Elb | Service::ElbV2, true) => Self::ElbWrite,
            (Service::Ec2 | Service::Sts, false) => Self::Ec2Read,
            (Service::Ec2 | Service::Sts, true) => Self::Ec2Write,
        }
    }

    /// Its label in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ec2Read => "ec2-read",
            Self::Ec2Write => "ec2-write",
            Self::ElbRead => "elb-read",
            Self::ElbWrite => "elb-write",
        }
    }

    /// Below what AWS gives an account and region, since others share that: EC2 publishes 20 paged reads and 5 writes a
    /// second, Elastic Load Balancing publishes nothing.
    fn pace(self) -> Pace {
        match self {
            Self::Ec2Read => Pace { per_second: 15.0, burst: 60.0, at_once: 10 },
            Self::Ec2Write => Pace { per_second: 5.0, burst: 40.0, at_once: 8 },
            Self::ElbRead => Pace { per_second: 10.0, burst: 40.0, at_once: 8 },
            Self::ElbWrite => Pace { per_second: 4.0, burst: 20.0, at_once: 5 },
        }
    }
}

/// Who goes first when calls must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Priority {
    /// Somebody waits for it: Services, new nodes.
    User,
    /// Refreshing what is known.
    Refresh,
}

tokio::task_local! {
    static PRIORITY: Priority;
}

/// Runs calls as refreshing. Holds for the calls of this future, not for tasks that it starts.
pub(crate) async fn refreshing<T>(calls: impl Future<Output = T>) -> T {
    PRIORITY.scope(Priority::Refresh, calls).await
}

/// The pace of all calls of a process. One per account and region; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Pacing {
    lanes: Arc<[Lane; 4]>,
    metrics: Metrics,
    attempts: u32,
    rng: Arc<Mutex<StdRng>>,
}

impl Pacing {
    /// At the usual pace.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self::seeded(metrics, rand::random())
    }

    /// The same with repeatable pauses.
    pub(crate) fn seeded(metrics: Metrics, seed: u64) -> Self {
        let lane = |family: Family| Lane::new(family, family.pace(), seed, metrics.clone());
        let lanes = Arc::new(Family::ALL.map(lane));
        Self { lanes, metrics, attempts: ATTEMPTS, rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))) }
    }

    /// As fast as it goes.
    #[cfg(test)]
    pub(crate) fn unlimited(metrics: Metrics) -> Self {
        let pace = Pace { per_second: 1e6, burst: 1e6, at_once: 1_000 };
        let lanes = Family::ALL.map(|family| Lane::new(family, pace, 1, metrics.clone()));
        Self { lanes: Arc::new(lanes), ..Self::seeded(metrics, 1) }
    }

    /// The same, and nothing is sent twice.
    #[cfg(test)]
    pub(crate) fn impatient(metrics: Metrics) -> Self {
        Self { attempts: 1, ..Self::unlimited(metrics) }
    }

    /// Metrics of the calls.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Sends an operation when it is its turn, and again as far as that is safe. Dropping the future takes it out of the
    /// queue; what was sent is not called back.
    pub(crate) async fn run<T, F, Fut>(&self, operation: Operation, mut send: F) -> Answer<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Answer<T>>,
    {
        let lane = self.lane(operation);
        let priority = PRIORITY.try_with(|priority| *priority).unwrap_or(Priority::User);
        let deadline = Instant::now() + DEADLINE;
        let mut attempt = 1;
        loop {
            let asked = Instant::now();
            let Ok(turn) = timeout_at(deadline, lane.enter(priority)).await else {
                return Err(self.held_back(operation, lane));
            };
            self.metrics.waited(Family::of(operation), asked.elapsed());
            let answer = match timeout_at(deadline, send()).await {
                Ok(answer) => answer,
                Err(_) => Err(ApiError::of_kind(operation, ErrorKind::NoAnswer, "none in time")),
            };
            turn.end(End::of(&answer));
            self.metrics.attempt(operation, &answer);
            let error = match answer {
                Err(error) => error,
                Ok(answer) => return Ok(answer),
            };
            if attempt == self.attempts || !self.again(lane, &error) {
                return Err(with_delay(error, lane));
            }
            let pause = self.pause(&error, attempt);
            if Instant::now() + pause >= deadline {
                return Err(with_delay(error, lane));
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    fn lane(&self, operation: Operation) -> &Lane {
        let [ec2_read, ec2_write, elb_read, elb_write] = &*self.lanes;
        match Family::of(operation) {
            Family::Ec2Read => ec2_read,
            Family::Ec2Write => ec2_write,
            Family::ElbRead => elb_read,
            Family::ElbWrite => elb_write,
        }
    }

    /// Whether the operation may be sent again after this.
    fn again(&self, lane: &Lane, error: &ApiError) -> bool {
        match error.kind {
            ErrorKind::Throttled { .. } => lane.failed_probes() < PROBES_BEFORE_GIVING_UP,
            ErrorKind::NotSent => true,
            ErrorKind::NoAnswer => repeat::is_safe(error.operation),
            ErrorKind::Refused | ErrorKind::Credentials | ErrorKind::Incomplete | ErrorKind::Malformed => false,
        }
    }

    /// How long to wait by itself; throttling is waited for in the lane, together.
    fn pause(&self, error: &ApiError, attempt: u32) -> Duration {
        if matches!(error.kind, ErrorKind::Throttled { .. }) {
            return Duration::ZERO;
        }
        let longest = FIRST_PAUSE.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST_PAUSE);
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        longest.mul_f64(rng.random_range(0.5..=1.0))
    }

    fn held_back(&self, operation: Operation, lane: &Lane) -> ApiError {
        self.metrics.held_back(operation);
        let kind = ErrorKind::Throttled { after: lane.pause_left() };
        ApiError::of_kind(operation, kind, "not sent: calls of this kind are held back")
    }
}

/// A throttled operation tells its caller when the family goes on.
fn with_delay(mut error: ApiError, lane: &Lane) -> ApiError {
    if let ErrorKind::Throttled { after } = &mut error.kind {
        *after = (*after).max(lane.pause_left());
    }
    error
}

#[cfg(test)]
mod tests;
