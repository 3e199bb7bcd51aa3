//! The gate for all writes to the API server and to the cloud.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ccm_provider::{Plan, ProviderError, ServiceAnswer};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::client::{self, ApiError, Call, Client};
use crate::leader::Leadership;
use crate::metrics::{Def, IntCounterVec, Metrics};
use crate::panics::panic_text;
use crate::priority::Priority;

/// Maximum API writes in flight. More do not help: about 20 keep an API server busy.
const IN_FLIGHT: usize = 32;
/// Of these, to objects in namespaces: a webhook on Services that does not answer must not hold up new nodes.
const IN_NAMESPACES: usize = 24;
/// Of these, to the objects of one namespace: a webhook that does not answer for it must not hold all of them.
const IN_NAMESPACE: usize = 16;
/// The maximum number of plans of a dry run that are remembered, so that they are not repeated.
const SHOWN_AT_MOST: usize = 20_000;

/// The time after which a write that was dropped in flight has taken effect in the cloud, or never does. Until then
/// neither another write to the same objects nor another process may follow it.
pub const SETTLE: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Whether a time limit dropped a write of this work.
    static DROPPED: Cell<bool>;
}

/// Whether a time limit dropped a write of this work.
pub(crate) fn has_dropped() -> bool {
    DROPPED.try_with(Cell::get).unwrap_or(false)
}

/// Runs work that may write to the cloud. If a time limit dropped a write, ends when that write has settled.
pub async fn settled<R>(work: impl Future<Output = R>) -> R {
    let (result, dropped) = DROPPED.scope(Cell::new(false), async { (work.await, DROPPED.with(Cell::get)) }).await;
    if dropped {
        tokio::time::sleep(SETTLE).await;
    }
    result
}

/// Checks before each write that this process leads and that this is no dry run, limits the writes in flight, and
/// counts them.
#[derive(Debug, Clone)]
pub struct Gate {
    client: Client,
    leadership: Leadership,
    dry_run: bool,
    in_flight: Arc<Priority>,
    in_namespaces: Arc<Semaphore>,
    in_namespace: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
    // The last plan of each subject, so that a dry run logs each plan once. Bounded: see `show`.
    shown: Arc<Mutex<HashMap<String, Plan>>>,
    // Collects the plans instead of logging them.
    collected: Option<Arc<Mutex<Vec<Plan>>>>,
    metrics: Metrics,
}

/// The reason why a write was not sent, or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GateError {
    /// This process does not hold the lease (any more). Nothing was written.
    #[error("not written: this process does not lead")]
    NotLeading,
    /// The process is shutting down and leaves the write to the next leader. Nothing was written.
    #[error("not written: this process is shutting down, and the next leader writes it")]
    Ending,
    /// The write waited so long that the lease may end before it does. Nothing was written.
    #[error("not written: the lease may end before the write does")]
    Late,
    /// `--dry-run`. Nothing was written.
    #[error("not written: --dry-run")]
    DryRun,
    /// The API server refused or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl GateError {
    /// The API server's answer, if that is what failed.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    /// Whether another client wrote in between.
    pub fn is_conflict(&self) -> bool {
        self.api().is_some_and(ApiError::is_conflict)
    }

    /// Whether the object has another UID than the one that a patch specified.
    pub fn is_other_object(&self) -> bool {
        matches!(self.api(), Some(ApiError::Status { code: 422, message, .. }) if message.contains("metadata.uid"))
    }

    /// Whether the write did not reach the API server: this is a dry run, or another process leads.
    pub fn is_closed(&self) -> bool {
        self.api().is_none() && !matches!(self, Self::Late)
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.api().is_some_and(ApiError::is_not_found)
    }
}

impl Gate {
    /// A gate for writes of `leadership`.
    pub fn new(client: Client, leadership: Leadership, dry_run: bool, metrics: Metrics) -> Self {
        Self {
            client,
            leadership,
            dry_run,
            in_flight: Arc::new(Priority::new(IN_FLIGHT)),
            in_namespaces: Arc::new(Semaphore::new(IN_NAMESPACES)),
            in_namespace: Arc::default(),
            shown: Arc::default(),
            collected: None,
            metrics,
        }
    }

    /// A gate that refuses every write and collects the shown plans, for commands.
    pub fn collecting(client: Client, leadership: Leadership, metrics: Metrics) -> Self {
        Self { collected: Some(Arc::default()), ..Self::new(client, leadership, true, metrics) }
    }

    /// The plans of a collecting gate, in the order of their subjects.
    pub fn collected(&self) -> Vec<Plan> {
        let Some(collected) = &self.collected else { return Vec::new() };
        let mut plans = std::mem::take(&mut *collected.lock());
        plans.sort_by(|a, b| a.subject.cmp(&b.subject));
        plans
    }

    /// The same gate for writes under a second lease.
    #[must_use]
    pub fn under(&self, leadership: Leadership) -> Self {
        Self { leadership, ..self.clone() }
    }

    /// The same gate, with the same limit of writes in flight, for the identity of this client.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// Whether plans are only shown.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// In a dry run: how many plans are due, and how many writes they have.
    pub fn withheld(&self) -> (usize, usize) {
        let shown = self.shown.lock();
        let steps = || shown.values().map(|plan| plan.steps.len());
        (steps().filter(|count| *count > 0).count(), steps().sum())
    }

    /// The client, for reads.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn may(&self) -> Result<(), GateError> {
        match (self.dry_run, self.leadership.may_write()) {
            (true, _) => Err(GateError::DryRun),
            (_, false) => Err(GateError::NotLeading),
            (false, true) => Ok(()),
        }
    }

    fn open(&self, target: &str) -> Result<(), GateError> {
        let may = self.may();
        if may.is_err() {
            self.metrics.gate_refused(target, if self.dry_run { "dry-run" } else { "not-leading" });
        }
        may
    }

    /// Logs a plan and its findings: at INFO in a dry run, once until the plan changes; else at DEBUG.
    pub fn show(&self, plan: &Plan) {
        if let Some(collected) = &self.collected {
            if !plan.is_silent() {
                collected.lock().push(plan.clone());
            }
            return;
        }
        if plan.is_silent() {
            if self.dry_run {
                // A plan that reappears later is logged again.
                self.shown.lock().remove(&plan.subject);
            }
            return;
        }
        for step in &plan.steps {
            self.metrics.plan_step(step.verb.as_str(), &step.kind, self.dry_run);
        }
        self.metrics.plans().planned(plan);
        if !self.dry_run {
            log_plan(plan, |number, of, what| tracing::debug!(subject = %plan.subject, "Plan {number}/{of}: {what}"));
            return;
        }
        let mut shown = self.shown.lock();
        if shown.len() >= SHOWN_AT_MOST {
            shown.clear();
        }
        if shown.get(&plan.subject) == Some(plan) {
            return;
        }
        shown.insert(plan.subject.clone(), plan.clone());
        log_plan(plan, |number, of, what| {
            tracing::info!(subject = %plan.subject, "Plan (dry run, nothing is written) {number}/{of}: {what}");
        });
    }

    /// Writes to the API server.
    pub async fn write(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        self.open("api")?;
        let turn = async {
            let place = self.place_in_namespace(&call.path).await;
            (place, self.in_flight.turn(call.urgency).await)
        };
        let (_place, turn) = if call.yields { self.until_ending(turn).await? } else { turn.await };
        let _turn = turn.ok_or(GateError::NotLeading)?;
        // This wait and the one that the server requests may be long: check again before each attempt.
        let is_late = || call.within_lease && self.leadership.left().is_some_and(|left| left < call.deadline);
        let may = || self.open("api").and_then(|()| if is_late() { Err(GateError::Late) } else { Ok(()) });
        let pause = |wait| match call.yields {
            true => self.until_ending(tokio::time::sleep(wait)).boxed(),
            false => client::sleep(wait),
        };
        // On the heap only while it is in flight: thousands of writes may wait for their turn.
        Box::pin(self.client.send_while(call, may, &pause)).await
    }

    /// `None` for objects without a namespace.
    async fn place_in_namespace(&self, path: &str) -> Option<[OwnedSemaphorePermit; 2]> {
        let namespace = path.split_once("/namespaces/")?.1.split('/').next()?;
        let places = {
            let mut all = self.in_namespace.lock();
            // Permits keep theirs.
            all.retain(|_, places| Arc::strong_count(places) > 1);
            let new = || Arc::new(Semaphore::new(IN_NAMESPACE));
            all.entry(namespace.to_owned()).or_insert_with(new).clone()
        };
        Some([places.acquire_owned().await.ok()?, self.in_namespaces.clone().acquire_owned().await.ok()?])
    }

    /// Waits, unless a shutdown has begun.
    async fn until_ending<R>(&self, wait: impl Future<Output = R>) -> Result<R, GateError> {
        self.leadership.until_ended(wait).await.ok_or(GateError::Ending)
    }

    /// Waits until no urgent write is left, at most until then.
    pub(crate) async fn until_calm(&self, until: Instant) {
        self.in_flight.none_urgent(until).await;
    }

    /// Writes an event. It is not counted with the writes.
    pub(crate) async fn write_event(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        self.may()?;
        self.client.send_while(call, || self.may(), &client::sleep).await
    }

    /// Writes an event about the lease itself, without a check for leadership: "stopped leading" is sent after the
    /// loss.
    pub(crate) async fn write_lease_event(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        if self.dry_run {
            return Err(GateError::DryRun);
        }
        Ok(self.client.send(call).await?)
    }

    /// Runs a write to the cloud. It may consist of many steps, and the process may be suspended between two of them.
    /// So the lease is checked by the local clock at each poll; the write is dropped when the lease has expired.
    pub async fn cloud<R>(&self, write: impl Future<Output = R>) -> Result<R, GateError> {
        let mut write = pin!(write);
        let fenced = std::future::poll_fn(|cx| match self.open("cloud") {
            Ok(()) => write.as_mut().poll(cx).map(Ok),
            Err(refused) => Poll::Ready(Err(refused)),
        });
        tokio::select! {
            biased;
            () = self.leadership.lost() => Err(GateError::NotLeading),
            answer = fenced => answer,
        }
    }

    /// Runs a write of `count` items to the cloud, and always returns one answer for each. A call that takes too long,
    /// panics or returns another number of answers has failed for all.
    pub async fn cloud_each<A: ItemAnswer>(
        &self,
        call: &str,
        limit: Duration,
        count: usize,
        write: impl Future<Output = Vec<A>>,
    ) -> Result<Vec<A>, GateError> {
        let began = Instant::now();
        let write = tokio::time::timeout(limit, AssertUnwindSafe(write).catch_unwind());
        let failure = match self.cloud(write).await? {
            Ok(Ok(answers)) if answers.len() == count => Ok(answers),
            Ok(Ok(answers)) => {
                Err(ProviderError::bug(format!("{call}: the provider gave {} answers for {count}", answers.len())))
            }
            Ok(Err(panic)) => {
                self.metrics.panicked("provider");
                Err(ProviderError::bug(format!("the provider panicked: {}", panic_text(&*panic))))
            }
            Err(_) => Err(ProviderError::deadline(call, limit)),
        };
        let answers = failure.unwrap_or_else(|error| (0..count).map(|_| A::failed(error.clone())).collect());
        let errors = || answers.iter().filter_map(A::error);
        self.metrics.provider_call(call, errors().min_by_key(|error| error.is_in_progress()), began.elapsed());
        if errors().any(ProviderError::is_deadline) {
            // Outside of `settled`, nothing waits for it.
            let _ = DROPPED.try_with(|dropped| dropped.set(true));
        }
        Ok(answers)
    }
}

/// The provider's answer for one item.
pub trait ItemAnswer: Sized {
    /// The answer for an item if the call failed for all items.
    fn failed(error: ProviderError) -> Self;
    /// The error of this item, if it failed.
    fn error(&self) -> Option<&ProviderError>;
}

impl<R> ItemAnswer for Result<R, ProviderError> {
    fn failed(error: ProviderError) -> Self {
        Err(error)
    }

    fn error(&self) -> Option<&ProviderError> {
        self.as_ref().err()
    }
}

impl ItemAnswer for ServiceAnswer {
    fn failed(error: ProviderError) -> Self {
        Err(error).into()
    }

    fn error(&self) -> Option<&ProviderError> {
        self.result.as_ref().err()
    }
}

/// A plan as entries of a log, one for each step and finding: an entry is one line.
/// Formats nothing by itself: thousands of plans may be shown at a level that is not logged.
fn log_plan(plan: &Plan, entry: impl Fn(usize, usize, &dyn Display)) {
    let (steps, of) = (plan.steps.len(), plan.steps.len() + plan.findings.len());
    for (at, step) in plan.steps.iter().enumerate() {
        entry(at + 1, of, step);
    }
    for (at, finding) in plan.findings.iter().enumerate() {
        entry(steps + at + 1, of, &format_args!("note: {finding}"));
    }
}

crate::metrics! {
    pub(crate) struct GateMetrics {
        steps: IntCounterVec = Def::counter(
            "ccm_plan_steps_total", &["verb", "kind", "dry_run"],
            "Steps planned, by verb, kind of object, and whether it was a dry run.",
        );
        refusals: IntCounterVec = Def::counter("ccm_guard_refusals_total", &["guard"], "Steps that a guard refused, by guard.");
        refused: IntCounterVec = Def::counter(
            "ccm_gate_refusals_total", &["target", "reason"], "Writes that the gate refused, by target and reason.",
        );
    }
}

impl Metrics {
    fn plan_step(&self, verb: &str, kind: &str, dry_run: bool) {
        let dry_run = if dry_run { "true" } else { "false" };
        self.part::<GateMetrics>().steps.with_label_values(&[verb, kind, dry_run]).inc();
    }

    /// Counts a step that a guard refused.
    pub fn guard_refused(&self, guard: &str) {
        self.part::<GateMetrics>().refusals.with_label_values(&[guard]).inc();
    }

    fn gate_refused(&self, target: &str, reason: &str) {
        self.part::<GateMetrics>().refused.with_label_values(&[target, reason]).inc();
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::ErrorClass;
    use tokio::sync::oneshot;

    use super::*;
    use crate::client::Urgency;
    use crate::clock::SystemClock;

    fn gate() -> (Gate, Leadership) {
        let (metrics, leadership) = (Metrics::new(), Leadership::new(Arc::new(SystemClock)));
        (
            Gate::new(Client::without_server("no server", metrics.clone()), leadership.clone(), false, metrics),
            leadership,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn each_thing_has_an_answer_whatever_the_provider_does() {
        let (gate, leadership) = gate();
        leadership.lead(None);
        let limit = Duration::from_secs(5);
        let good =
            gate.cloud_each("Do", limit, 2, async { vec![Ok(1), Err(ProviderError::unknown("x"))] }).await.unwrap();
        assert!(matches!(&good[..], [Ok(1), Err(_)]));
        let classes = |answers: Result<Vec<Result<(), ProviderError>>, GateError>| -> Vec<(ErrorClass, String)> {
            answers.unwrap().into_iter().map(|answer| answer.unwrap_err()).map(|e| (e.class(), e.to_string())).collect()
        };
        let few = classes(gate.cloud_each("Do", limit, 2, async { vec![Ok(())] }).await);
        assert_eq!(few, vec![(ErrorClass::Bug, "Do: the provider gave 1 answers for 2".to_owned()); 2]);
        let panicked = classes(gate.cloud_each("Do", limit, 1, async { panic!("thirteen") }).await);
        assert_eq!(panicked, [(ErrorClass::Bug, "the provider panicked: thirteen".to_owned())]);
        let late = classes(gate.cloud_each("Do", limit, 1, std::future::pending()).await);
        assert_eq!(late, [(ErrorClass::Transient { after: None }, "Do did not answer within 5s".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_whose_write_a_time_limit_dropped_ends_when_it_has_settled() {
        let (gate, leadership) = gate();
        leadership.lead(None);
        let limit = Duration::from_secs(5);
        let took = async |call: futures::future::BoxFuture<'static, Vec<Result<(), ProviderError>>>| {
            let began = Instant::now();
            settled(gate.cloud_each("Do", limit, 1, call)).await.unwrap();
            began.elapsed()
        };
        assert_eq!(took(std::future::pending().boxed()).await, limit + SETTLE);
        // The provider's own limit.
        let inner = async { vec![Err(ProviderError::deadline("Create", Duration::from_secs(1)).wrap("rule 1"))] };
        assert_eq!(took(inner.boxed()).await, SETTLE);
        assert_eq!(took(async { vec![Err(ProviderError::unknown("refused"))] }.boxed()).await, Duration::ZERO);
    }

    #[tokio::test]
    async fn without_the_lease_nothing_is_asked_of_the_cloud() {
        let (gate, _) = gate();
        let call = async { unreachable!("not polled") };
        let answer: Result<Vec<Result<(), _>>, _> = gate.cloud_each("Do", Duration::from_secs(5), 1, call).await;
        assert!(matches!(answer, Err(GateError::NotLeading)));
    }

    #[tokio::test]
    async fn writes_of_one_namespace_leave_places_to_others_and_those_of_all_to_nodes() {
        let (gate, _) = gate();
        let place = |path: &'static str| gate.place_in_namespace(path).now_or_never();
        let of_a = || place("/api/v1/namespaces/a/services/s/status");
        let held: Vec<_> = (0..IN_NAMESPACE).map(|_| of_a().unwrap().unwrap()).collect();
        assert!(of_a().is_none(), "it waits");
        assert!(place("/api/v1/namespaces/b").unwrap().is_some());
        assert!(place("/api/v1/nodes/n").unwrap().is_none(), "it needs none");
        let of_others: Vec<_> = (0..IN_NAMESPACES - IN_NAMESPACE)
            .map(|_| place("/api/v1/namespaces/b/services/s/status").unwrap().unwrap())
            .collect();
        assert!(place("/api/v1/namespaces/c").is_none(), "it waits");
        // Each of those in their places is in flight, too.
        let normal = || gate.in_flight.turn(Urgency::Normal).now_or_never().unwrap();
        let turns: Vec<_> = (0..held.len() + of_others.len()).map(|_| normal()).collect();
        assert!(gate.in_flight.turn(Urgency::Urgent).now_or_never().is_some(), "a write to a node");
        drop((held, of_others, turns));
        assert!(of_a().unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_turn_comes_too_late_to_end_within_the_lease_is_not_sent() {
        for (waits, late) in [(4, false), (6, true)] {
            let (gate, leadership) = gate();
            leadership.lead(Some(Duration::from_secs(15)));
            let turn = || gate.in_flight.turn(Urgency::Normal).now_or_never().unwrap();
            let turns: Vec<_> = (0..IN_FLIGHT).map(|_| turn()).collect();
            let call = Call::get("/x").within(Duration::from_secs(10));
            let call = Call { within_lease: true, ..call };
            let end = async {
                tokio::time::sleep(Duration::from_secs(waits)).await;
                drop(turns);
            };
            let (written, ()) = tokio::join!(gate.write(&call), end);
            assert_eq!(matches!(written, Err(GateError::Late)), late, "{written:?}");
        }
    }

    /// The result of a write of two steps when this much time passes between them and the election does not notice.
    async fn two_steps(frozen_for: Duration) -> (bool, Vec<u32>) {
        let (gate, leadership) = gate();
        leadership.lead(Some(Duration::from_secs(15)));
        let (answer, answered) = oneshot::channel();
        let done = Mutex::new(Vec::new());
        let write = gate.cloud(async {
            done.lock().push(1);
            answered.await.unwrap();
            done.lock().push(2);
        });
        let frozen = async {
            tokio::time::advance(frozen_for).await;
            answer.send(()).ok();
        };
        let (written, ()) = tokio::join!(write, frozen);
        assert!(matches!(written, Ok(()) | Err(GateError::NotLeading)), "{written:?}");
        (written.is_ok(), done.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_whose_lease_ran_out_since_the_last_one_is_not_done() {
        assert_eq!(two_steps(Duration::from_secs(14)).await, (true, vec![1, 2]));
        assert_eq!(two_steps(Duration::from_secs(16)).await, (false, vec![1]));
    }
}
