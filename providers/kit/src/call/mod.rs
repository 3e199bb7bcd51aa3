//! Calls of a cloud's API: pace, retries, and the meaning of failures.
//!
//! A cloud implements [`Operation`]; a [`Caller`] sends its operations. There is one caller per account and region,
//! shared by all parts of a provider ([`Caller::for_another_account`]).
//!
//! * **Pace.** Clouds count calls in a few budgets, usually one for reads and one for writes per service. Each
//!   [`Budget`] has a token bucket, a limit of concurrent calls, and a queue in which calls that a user waits for
//!   precede refreshes. When the cloud throttles a call, all calls of the budget pause; then one is sent as a probe,
//!   and the others resume only after it succeeds. A throttled budget therefore costs one call per pause.
//! * **Retries.** An operation is retried if the first attempt had no effect, and after a lost answer if it is
//!   [repeatable](Operation::is_repeatable).
//! * **Lease.** A write is sent only while this process is the leader; see [`Caller::lend`].
//! * **Pages.** [`Caller::pages`] returns the complete list or an error.
//! * **Errors.** [`CallError`] describes the failure, its meaning for the core, and the remediation for the user.

mod error;
mod lane;
mod metrics;
mod pressure;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ccm_provider::LeaderToken;
#[doc(hidden)]
pub use ccm_provider::metric::Def;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, timeout_at};

pub use self::error::{CallError, Cause, ErrorKind, Failure, Meaning};
pub use self::lane::Pace;
use self::lane::{End, Lane};

pub use self::metrics::{BUCKETS, CallDefs, CallMetrics, Observer};

const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// The deadline of an operation with all its attempts and pauses, unless the caller sets another. Each page of a list
/// is a separate operation.
const DEADLINE: Duration = Duration::from_secs(45);
/// After this number of throttled probes in a row, an operation is not retried: its caller retries anyway.
const PROBES_BEFORE_GIVING_UP: u32 = 3;
/// A longer list is treated as endless.
pub const MAX_PAGES: usize = 1_000;

/// An operation of a cloud's API.
pub trait Operation: Copy + Debug + Send + Sync + 'static {
    /// The name of the cloud in messages: `AWS`.
    const CLOUD: &'static str;

    /// The service, as in metrics and logs: `EC2`.
    fn service(&self) -> &'static str;
    /// Its name: `DescribeInstances`.
    fn name(&self) -> &'static str;
    /// The budget to which the cloud counts it.
    fn budget(&self) -> Budget;
    /// The required permission, as the cloud spells it: `ec2:DescribeInstances`. Messages begin with it.
    fn permission(&self) -> String;
    /// Whether it changes anything in the cloud.
    fn is_mutating(&self) -> bool;
    /// Whether it is sent only while this process is the leader: all writes, unless the request is a dry run.
    fn needs_lease(&self) -> bool {
        self.is_mutating()
    }
    /// Whether repeating the request has no further effect: all reads, and writes that state the desired result. Not a
    /// write that creates another object when repeated, or fails because of the first request.
    fn is_repeatable(&self) -> bool {
        !self.is_mutating()
    }

    /// The meaning of an error code. `code` is empty if the answer had none.
    fn meaning(code: &str, status: Option<u16>) -> Meaning;
    /// The remediation for the user, as the end of a sentence; replaces the general text for this meaning.
    fn remediation(_meaning: Meaning, _code: &str) -> Option<&'static str> {
        None
    }
    /// The missing right that the message of an answer names: it may be another than that of the operation itself.
    fn lacking(_message: &str) -> Option<String> {
        None
    }
    /// The message of an answer without secrets and without parts that vary.
    fn redact(message: &str) -> &str {
        message
    }
}

/// A group of operations that a cloud counts together.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Its metric label: `ec2-read`. Operations with the same name share the budget.
    pub name: &'static str,
    /// The pace, below the cloud's limit, because other programs share that limit.
    pub pace: Pace,
}

/// The attempts of an operation, and the pauses between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retries {
    /// Maximum number of attempts.
    pub attempts: u32,
    /// The first pause after no answer.
    pub first_pause: Duration,
    /// The factor by which each further pause is longer.
    pub factor: f64,
    /// Each pause is multiplied by a random number between these two.
    pub spread: (f64, f64),
    /// After this time no answer is final. A read that many share ends after a minute ([`crate::Cached`]), and with it the
    /// error of the cloud would be lost.
    pub within: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        let first_pause = Duration::from_millis(200);
        Self { attempts: 3, first_pause, factor: 2.0, spread: (0.5, 1.0), within: Duration::from_secs(3600) }
    }
}

/// The priority of waiting calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Priority {
    /// A user waits for the call: Services, new nodes.
    User,
    /// The call refreshes known data.
    Refresh,
}

tokio::task_local! {
    static PRIORITY: Priority;
}

/// Runs the calls of this future, but not of tasks that it spawns, with a lower priority than calls that a user waits
/// for.
pub async fn refreshing<T>(calls: impl Future<Output = T>) -> T {
    PRIORITY.scope(Priority::Refresh, calls).await
}

/// The leader token, once the core has provided it.
#[derive(Default)]
struct Lease(OnceLock<Arc<dyn LeaderToken>>);

impl Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease")
    }
}

/// Sends operations. Clones share the budgets and the lease.
#[derive(Debug, Clone)]
pub struct Caller<O> {
    lanes: Arc<Mutex<BTreeMap<&'static str, Arc<Lane>>>>,
    lease: Arc<Lease>,
    metrics: CallMetrics,
    observer: Arc<dyn Observer<O>>,
    rng: Arc<Mutex<StdRng>>,
    seed: u64,
    retries: Retries,
    deadline: Duration,
    unlimited: bool,
}

impl<O: Operation> Caller<O> {
    /// A caller with full budgets and without a lease.
    pub fn new(metrics: CallMetrics, observer: Arc<dyn Observer<O>>) -> Self {
        Self::seeded(metrics, observer, rand::random())
    }

    /// Like [`Caller::new`], with reproducible pauses.
    pub fn seeded(metrics: CallMetrics, observer: Arc<dyn Observer<O>>, seed: u64) -> Self {
        Self {
            lanes: Arc::default(),
            lease: Arc::default(),
            metrics,
            observer,
            rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
            seed,
            retries: Retries::default(),
            deadline: DEADLINE,
            unlimited: false,
        }
    }

    /// Removes the limits of the pace, for tests.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self { unlimited: true, ..self }
    }

    /// Sets the deadline of an operation with all its attempts and pauses.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets the retries of all operations.
    #[must_use]
    pub fn retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// Disables retries, for tests.
    #[must_use]
    pub fn once(self) -> Self {
        self.retries(Retries { attempts: 1, ..Retries::default() })
    }

    /// A caller for another account, with budgets of its own; it shares everything else.
    #[must_use]
    pub fn for_another_account(&self) -> Self {
        Self { lanes: Arc::default(), ..self.clone() }
    }

    /// Allows writes while `leader` says that this process is the leader. Only the first token is used.
    pub fn lend(&self, leader: Arc<dyn LeaderToken>) {
        let _ = self.lease.0.set(leader);
    }

    /// Sends an operation. Dropping the future removes it from the queue, but does not cancel a request that was
    /// already sent.
    ///
    /// # Errors
    ///
    /// The operation failed, was not sent in time, or is a write while this process is not the leader.
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

    /// Reads all pages of a list. `send` requests the page for a token; `take` returns its entries and the next token.
    ///
    /// # Errors
    ///
    /// A page failed, or the list is endless. A partial list is never returned.
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
        let read = async move {
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
        };
        let all = read.await;
        self.observer.operation(operation, all.is_ok(), start.elapsed());
        all
    }

    async fn attempts<T, F, Fut>(&self, operation: O, send: F) -> Result<T, CallError<O>>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let lane = self.lane(operation.budget());
        let priority = PRIORITY.try_with(|priority| *priority).unwrap_or(Priority::User);
        let began = Instant::now();
        let deadline = began + self.deadline;
        let last_retry = deadline.min(began + self.retries.within);
        let mut attempt = 1;
        loop {
            let queued = Instant::now();
            let Ok(turn) = timeout_at(deadline, lane.enter(priority)).await else {
                return Err(self.held_back(operation, &lane));
            };
            self.metrics.waited(operation.budget().name, queued.elapsed());
            // The wait may have been long: check immediately before the request.
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
            if attempt >= self.retries.attempts || !may_retry(&lane, &error) {
                return Err(with_delay(error, &lane));
            }
            let pause = self.pause(&error, attempt);
            // A throttled operation pauses with its budget.
            let end = if pause.is_zero() { deadline } else { last_retry };
            if Instant::now() + pause >= end {
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
        let mut lanes = self.lanes.lock();
        let new = || Arc::new(Lane::new(budget.name, pace, self.seed, self.metrics.clone()));
        lanes.entry(budget.name).or_insert_with(new).clone()
    }

    /// The pause of this operation only; a throttled budget pauses as a whole.
    fn pause(&self, error: &CallError<O>, attempt: u32) -> Duration {
        if matches!(error.kind, ErrorKind::Throttled { .. }) {
            return Duration::ZERO;
        }
        let Retries { first_pause, factor, spread: (least, most), .. } = self.retries;
        let growth = factor.powi(i32::try_from(attempt - 1).unwrap_or(i32::MAX));
        let spread = self.rng.lock().random_range(least..=most);
        let seconds = first_pause.as_secs_f64() * growth * spread;
        Duration::from_secs_f64(seconds.min(LONGEST_PAUSE.as_secs_f64()))
    }

    fn held_back(&self, operation: O, lane: &Lane) -> CallError<O> {
        self.metrics.held_back(operation);
        let kind = ErrorKind::Throttled { after: lane.pause_left() };
        CallError::of_kind(operation, kind, "not sent: calls of this kind are held back")
    }
}

/// Whether the operation may be retried after this error.
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

/// Adds the remaining pause of the budget to the error of a throttled operation.
fn with_delay<O>(mut error: CallError<O>, lane: &Lane) -> CallError<O> {
    if let ErrorKind::Throttled { after } = &mut error.kind {
        *after = (*after).max(lane.pause_left());
    }
    error
}
