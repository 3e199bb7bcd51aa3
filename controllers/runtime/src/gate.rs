//! The one way to write: to the API server and to the cloud.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ccm_provider::{Plan, ProviderError};

use crate::client::{ApiError, Call, Client};
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::priority::Priority;

/// API writes in flight at once. More buy nothing: about 20 keep an API server busy.
const IN_FLIGHT: usize = 32;
/// Plans of a dry run that are remembered, so as not to repeat them.
const SHOWN_AT_MOST: usize = 20_000;

/// Checks before each write that this process leads, is no dry run and does not hurry; counts it.
#[derive(Debug, Clone)]
pub struct Gate {
    client: Client,
    leadership: Leadership,
    dry_run: bool,
    in_flight: Arc<Priority>,
    // The last plan of each subject, so that a dry run says each thing once. Bounded: see `show`.
    shown: Arc<Mutex<HashMap<String, Plan>>>,
    // Where plans go instead of the log.
    collected: Option<Arc<Mutex<Vec<Plan>>>>,
    metrics: Metrics,
}

/// Why a write was not done, or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GateError {
    /// The lease is not ours (any more). Nothing was written.
    #[error("not written: this process does not lead")]
    NotLeading,
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

    /// Somebody else wrote in between.
    pub fn is_conflict(&self) -> bool {
        self.api().is_some_and(ApiError::is_conflict)
    }

    /// The object does not exist.
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
            shown: Arc::default(),
            collected: None,
            metrics,
        }
    }

    /// A gate through which nothing goes, and which keeps the plans that it is shown: for commands.
    pub fn collecting(client: Client, leadership: Leadership, metrics: Metrics) -> Self {
        Self { collected: Some(Arc::default()), ..Self::new(client, leadership, true, metrics) }
    }

    /// The plans that were shown to a collecting gate, in the order of their subjects.
    pub fn collected(&self) -> Vec<Plan> {
        let Some(collected) = &self.collected else { return Vec::new() };
        let mut plans = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
        plans.sort_by(|a, b| a.subject.cmp(&b.subject));
        plans
    }

    /// The same gate for writes under a second lease.
    #[must_use]
    pub fn under(&self, leadership: Leadership) -> Self {
        Self { leadership, ..self.clone() }
    }

    /// The same gate, with the same bound of writes in flight, for the identity of this client.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// Whether plans are only shown.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
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

    /// Shows a plan, and what was only noticed: at INFO in a dry run, each once until it changes, at DEBUG otherwise.
    pub fn show(&self, plan: &Plan) {
        if let Some(collected) = &self.collected {
            if !plan.is_silent() {
                collected.lock().unwrap_or_else(PoisonError::into_inner).push(plan.clone());
            }
            return;
        }
        if plan.is_silent() {
            if self.dry_run {
                // What comes up again later is news again.
                self.shown.lock().unwrap_or_else(PoisonError::into_inner).remove(&plan.subject);
            }
            return;
        }
        for step in &plan.steps {
            self.metrics.plan_step(step.verb.as_str(), &step.kind, self.dry_run);
        }
        self.metrics.plans().note(&*plan.subject, &plan.to_string());
        if !self.dry_run {
            tell(plan, |number, of, what| tracing::debug!(subject = %plan.subject, "Plan {number}/{of}: {what}"));
            return;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() >= SHOWN_AT_MOST {
            shown.clear();
        }
        if shown.get(&plan.subject) == Some(plan) {
            return;
        }
        shown.insert(plan.subject.clone(), plan.clone());
        tell(plan, |number, of, what| {
            tracing::info!(subject = %plan.subject, "Plan (dry run, nothing is written) {number}/{of}: {what}");
        });
    }

    /// Writes to the API server.
    pub async fn write(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        self.open("api")?;
        let _turn = self.in_flight.urgent().await.ok_or(GateError::NotLeading)?;
        self.send(call).await
    }

    /// Writes to the API server what can wait for [`Gate::write`], for a limited time.
    pub async fn write_later(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        self.open("api")?;
        let _turn = self.in_flight.patient().await.ok_or(GateError::NotLeading)?;
        self.send(call).await
    }

    async fn send(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        // The wait may have been long, and so may be that for a server that said "later": look again before each attempt.
        self.client.send_while(call, || self.open("api")).await
    }

    /// Writes an event. It is not counted with the writes and lets them pass, for a limited time.
    pub(crate) async fn write_event(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        self.may()?;
        self.in_flight.none_urgent(Priority::patience()).await;
        self.client.send_while(call, || self.may()).await
    }

    /// Writes an event about the lease itself: that this process leads no more is told by a process that leads no more.
    pub(crate) async fn write_lease_event(&self, call: &Call<'_>) -> Result<Bytes, GateError> {
        if self.dry_run {
            return Err(GateError::DryRun);
        }
        Ok(self.client.send(call).await?)
    }

    /// Lets a write to the cloud through. Dropped at once when the lease is lost: another process may write by then.
    pub async fn cloud<R>(&self, write: impl Future<Output = R>) -> Result<R, GateError> {
        self.open("cloud")?;
        tokio::select! {
            biased;
            () = self.leadership.lost() => Err(GateError::NotLeading),
            answer = write => Ok(answer),
        }
    }

    /// A read of the cloud that takes too long is an error of its own.
    pub async fn cloud_read<R>(
        call: &str,
        limit: Duration,
        read: impl Future<Output = Result<R, ProviderError>>,
    ) -> Result<R, ProviderError> {
        tokio::time::timeout(limit, read).await.unwrap_or_else(|_| Err(ProviderError::deadline(call, limit)))
    }
}

/// A plan as entries of a log, one for each step and finding: an entry is one line.
fn tell(plan: &Plan, entry: impl Fn(usize, usize, String)) {
    let steps = plan.steps.iter().map(ToString::to_string);
    let findings = plan.findings.iter().map(|finding| format!("note: {finding}"));
    let of = plan.steps.len() + plan.findings.len();
    for (at, what) in steps.chain(findings).enumerate() {
        entry(at + 1, of, what);
    }
}
