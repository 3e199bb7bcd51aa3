//! Calls of a cloud's API: when an operation is sent, how often, and what its failure means.
//!
//! A cloud implements [`Operation`]; a [`Caller`] sends its operations. There is one caller for an account and region, so
//! that all parts of a provider share it.
//!
//! * **Pace.** Clouds count calls in a few budgets, mostly one for the reads and one for the writes of a service. Each
//!   [`Budget`] has a token bucket, a bound on calls at once, and a queue in which work that a user waits for goes before
//!   refreshing. When the cloud asks for fewer calls, all calls of the budget pause; then one goes as a probe, and the
//!   others follow only after it succeeded. So a throttled budget costs one call per pause, however many callers wait.
//! * **Retries.** An operation is sent again when nothing was done, and after a lost answer if it is
//!   [repeatable](Operation::is_repeatable).
//! * **Lease.** A write is sent only while this process leads; see [`Caller::lend`].
//! * **Pages.** [`Caller::pages`] returns all of a list or an error.
//! * **Errors.** [`CallError`] says what happened, what that means to the core, and what the user can do.

mod error;
mod lane;
mod metrics;
mod pressure;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ccm_provider::LeaderToken;
#[doc(hidden)]
pub use ccm_provider::metric::Def;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, timeout_at};

pub use self::error::{CallError, Cause, ErrorKind, Failure, Meaning};
pub use self::lane::Pace;
use self::lane::{End, Lane};

pub use self::metrics::{BUCKETS, CallDefs, CallMetrics, Observer};
use crate::lock::lock;

/// How often an operation is sent at most.
const ATTEMPTS: u32 = 3;
/// The first pause after no answer; each further one doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// For an operation with all its attempts and pauses, unless the caller has another one. A page is an operation of its own
/// here.
const DEADLINE: Duration = Duration::from_secs(45);
/// After so many throttled probes in a row, an operation is not sent twice: its caller retries anyway.
const PROBES_BEFORE_GIVING_UP: u32 = 3;
/// A longer list is considered endless.
pub const MAX_PAGES: usize = 1_000;

/// An operation of a cloud's API.
pub trait Operation: Copy + Debug + Send + Sync + 'static {
    /// The name of the cloud in messages: `AWS`.
    const CLOUD: &'static str;

    /// The service, as metrics and logs name it: `EC2`.
    fn service(&self) -> &'static str;
    /// Its name: `DescribeInstances`.
    fn name(&self) -> &'static str;
    /// The budget in which the cloud counts it.
    fn budget(&self) -> Budget;
    /// The permission that it needs, in the cloud's words: `ec2:DescribeInstances`. Messages begin with it.
    fn permission(&self) -> String;
    /// Whether it changes anything.
    fn is_mutating(&self) -> bool;
    /// Whether it is sent only while this process leads: all writes, unless the request is a dry run.
    fn needs_lease(&self) -> bool {
        self.is_mutating()
    }
    /// Whether a second request does no more than the first: all reads, and writes that state the desired result. Not a
    /// write whose second request creates another object, or fails because of what the first one did.
    fn is_repeatable(&self) -> bool {
        !self.is_mutating()
    }

    /// What an error code means. `code` is empty when the answer had none.
    fn meaning(code: &str, status: Option<u16>) -> Meaning;
    /// What the user can do about an error, as the end of a sentence; replaces the general text for this meaning.
    fn remediation(_meaning: Meaning, _code: &str) -> Option<&'static str> {
        None
    }
    /// The message of an answer without secrets, and without parts that differ each time.
    fn redact(message: &str) -> &str {
        message
    }
}

/// Operations that a cloud counts together.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Its label in metrics: `ec2-read`. Operations with the same name share the budget.
    pub name: &'static str,
    /// The pace, below the limit of the cloud: other programs share that.
    pub pace: Pace,
}

/// The order of calls that must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Priority {
    /// A user waits for it: Services, new nodes.
    User,
    /// Refreshing what is known.
    Refresh,
}

tokio::task_local! {
    static PRIORITY: Priority;
}

/// Runs the calls of this future, but not of tasks that it starts, behind those for which a user waits.
pub async fn refreshing<T>(calls: impl Future<Output = T>) -> T {
    PRIORITY.scope(Priority::Refresh, calls).await
}

/// The leader token, once the core has lent it.
#[derive(Default)]
struct Lease(OnceLock<Arc<dyn LeaderToken>>);

impl Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease")
    }
}

/// Sends operations. Clones share budgets and lease.
#[derive(Debug, Clone)]
pub struct Caller<O> {
    lanes: Arc<Mutex<BTreeMap<&'static str, Arc<Lane>>>>,
    lease: Arc<Lease>,
    metrics: CallMetrics,
    observer: Arc<dyn Observer<O>>,
    rng: Arc<Mutex<StdRng>>,
    seed: u64,
    attempts: u32,
    deadline: Duration,
    unlimited: bool,
}

impl<O: Operation> Caller<O> {
    /// With budgets that are full, and without a lease.
    pub fn new(metrics: CallMetrics, observer: Arc<dyn Observer<O>>) -> Self {
        Self::seeded(metrics, observer, rand::random())
    }

    /// The same with reproducible pauses.
    pub fn seeded(metrics: CallMetrics, observer: Arc<dyn Observer<O>>, seed: u64) -> Self {
        Self {
            lanes: Arc::default(),
            lease: Arc::default(),
            metrics,
            observer,
            rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
            seed,
            attempts: ATTEMPTS,
            deadline: DEADLINE,
            unlimited: false,
        }
    }

    /// Without limits of the pace, for tests.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self { unlimited: true, ..self }
    }

    /// With another limit for an operation with all its attempts and pauses.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Without retries, for tests.
    #[must_use]
    pub fn once(self) -> Self {
        Self { attempts: 1, ..self }
    }

    /// Allows writes while this token says that the process leads. Only the first token counts.
    pub fn lend(&self, leader: Arc<dyn LeaderToken>) {
        let _ = self.lease.0.set(leader);
    }

    /// Sends an operation. Dropping the future removes it from the queue; a request that was sent is not called back.
    ///
    /// # Errors
    ///
    /// The operation failed, was not sent in time, or is a write of a process that does not lead.
    pub async fn call<T, F, Fut>(&self, operation: O, send: F) -> Result<T, CallError<O>>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let start = Instant::now();
        let answer = self.attempts(operation, send).await;
        self.observer.operation(operation, answer.is_ok(), start.elapsed());
        answer
    }

    /// Reads all pages of a list. `send` requests the page after a token; `take` returns its entries and the next token.
    ///
    /// # Errors
    ///
    /// A page failed, or the pages do not end. A partial list is never returned.
    pub async fn pages<T, P, F, Fut>(
        &self,
        operation: O,
        send: F,
        take: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, CallError<O>>
    where
        F: Fn(Option<String>) -> Fut,
        Fut: Future<Output = Result<P, Failure>>,
    {
        let start = Instant::now();
        let all = self.all_pages(operation, send, take).await;
        self.observer.operation(operation, all.is_ok(), start.elapsed());
        all
    }

    async fn all_pages<T, P, F, Fut>(
        &self,
        operation: O,
        send: F,
        take: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, CallError<O>>
    where
        F: Fn(Option<String>) -> Fut,
        Fut: Future<Output = Result<P, Failure>>,
    {
        let incomplete = |why: &str| CallError::of_kind(operation, ErrorKind::Incomplete, why);
        let (mut all, mut token, mut seen) = (Vec::new(), None::<String>, HashSet::new());
        for _ in 0..MAX_PAGES {
            let page = self.attempts(operation, || send(token.clone())).await?;
            let (mut entries, next) = take(page);
            all.append(&mut entries);
            let Some(next) = next.filter(|next| !next.is_empty()) else { return Ok(all) };
            if !seen.insert(next.clone()) {
                return Err(incomplete("a page leads back to one that was read before"));
            }
            token = Some(next);
        }
        Err(incomplete(&format!("more than {MAX_PAGES} pages")))
    }

    async fn attempts<T, F, Fut>(&self, operation: O, send: F) -> Result<T, CallError<O>>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let lane = self.lane(operation.budget());
        let priority = PRIORITY.try_with(|priority| *priority).unwrap_or(Priority::User);
        let deadline = Instant::now() + self.deadline;
        let mut attempt = 1;
        loop {
            let queued = Instant::now();
            let Ok(turn) = timeout_at(deadline, lane.enter(priority)).await else {
                return Err(self.held_back(operation, &lane));
            };
            self.metrics.waited(operation.budget().name, queued.elapsed());
            // The wait may have been long: check right before the request.
            if operation.needs_lease() && !self.is_leading() {
                return Err(CallError::of_kind(operation, ErrorKind::NotLeading, "this process does not lead"));
            }
            let answer = match timeout_at(deadline, send()).await {
                Ok(answer) => answer.map_err(|failure| CallError::new(operation, failure)),
                Err(_) => Err(CallError::of_kind(operation, ErrorKind::NoAnswer, "none in time")),
            };
            turn.end(End::of(&answer));
            let outcome = answer.as_ref().map_or_else(CallError::outcome, |_| "ok");
            self.metrics.attempt(operation, outcome);
            self.observer.attempt(operation, outcome);
            let error = match answer {
                Err(error) => error,
                Ok(answer) => return Ok(answer),
            };
            if attempt == self.attempts || !may_retry(&lane, &error) {
                return Err(with_delay(error, &lane));
            }
            let pause = self.pause(&error, attempt);
            if Instant::now() + pause >= deadline {
                return Err(with_delay(error, &lane));
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    fn is_leading(&self) -> bool {
        self.lease.0.get().is_some_and(|leader| leader.is_leading())
    }

    fn lane(&self, budget: Budget) -> Arc<Lane> {
        let pace = if self.unlimited { Pace { per_second: 1e6, burst: 1e6, at_once: 1_000 } } else { budget.pace };
        let mut lanes = lock(&self.lanes);
        let new = || Arc::new(Lane::new(budget.name, pace, self.seed, self.metrics.clone()));
        lanes.entry(budget.name).or_insert_with(new).clone()
    }

    /// The pause of this operation alone; a throttled budget pauses as a whole.
    fn pause(&self, error: &CallError<O>, attempt: u32) -> Duration {
        if matches!(error.kind, ErrorKind::Throttled { .. }) {
            return Duration::ZERO;
        }
        let longest = FIRST_PAUSE.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST_PAUSE);
        let mut rng = lock(&self.rng);
        longest.mul_f64(rng.random_range(0.5..=1.0))
    }

    fn held_back(&self, operation: O, lane: &Lane) -> CallError<O> {
        self.metrics.held_back(operation);
        let kind = ErrorKind::Throttled { after: lane.pause_left() };
        CallError::of_kind(operation, kind, "not sent: calls of this kind are held back")
    }
}

/// Whether the operation may be sent again after this error.
fn may_retry<O: Operation>(lane: &Lane, error: &CallError<O>) -> bool {
    match error.kind {
        ErrorKind::Throttled { .. } => lane.failed_probes() < PROBES_BEFORE_GIVING_UP,
        ErrorKind::NotSent => true,
        ErrorKind::NoAnswer => error.operation.is_repeatable(),
        ErrorKind::Refused
        | ErrorKind::Credentials
        | ErrorKind::Incomplete
        | ErrorKind::Malformed
        | ErrorKind::NotLeading => false,
    }
}

/// Adds to the error of a throttled operation when its budget goes on.
fn with_delay<O>(mut error: CallError<O>, lane: &Lane) -> CallError<O> {
    if let ErrorKind::Throttled { after } = &mut error.kind {
        *after = (*after).max(lane.pause_left());
    }
    error
}
