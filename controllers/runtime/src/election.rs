//! Leader election over a Lease, with client-go's visible behavior.
//!
//! Three rules keep two processes from leading at once, whatever the wall clocks show:
//!
//! 1. A holder counts its lease from *before* the request that renewed it, on its own monotonic clock.
//! 2. A candidate counts a foreign lease from *after* it saw the record change, on its own monotonic clock, for the
//!    duration written in that record. The times in the record are for humans.
//! 3. Every write of the Lease carries the `resourceVersion` of the object it was decided on.
//!
//! Differences from upstream (`client-go/tools/leaderelection`): a standby watches the Lease if its role permits that,
//! so it takes a released one at once; a holder that sees another holder stops at once and not after the renew
//! deadline; a holder never counts its lease as held for longer than others do; and a request without an answer is
//! followed by one over another connection, since a dead one would end the leader.

mod lease;
mod standby;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_provider::{Clock, EventSink, EventType, Subject, duration};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_util::sync::CancellationToken;

use crate::client::{ApiError, Call, Client};
use crate::leader::{Leadership, State};
use crate::metrics::{Def, IntCounterVec, IntGaugeVec, Metrics};
use lease::{Lease, Leases};
use standby::Watch;

/// Up to this multiple of the retry period is added to it, so that candidates do not retry at the same time.
const JITTER: f64 = 1.2;
/// A failure that repeats is logged again after this time.
const REPEAT_LOG: Duration = Duration::from_secs(60);

/// The Lease, the identity of this process, and the times (`--leader-elect-*`).
#[derive(Debug, Clone)]
pub struct ElectionConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique name of this process, see [`identity`].
    pub identity: String,
    /// The time that other candidates wait for a silent holder.
    pub lease_duration: Duration,
    /// The time for which the holder tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry_period: Duration,
}

impl ElectionConfig {
    /// All errors, with client-go's texts.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let checks = [
            (self.lease_duration > self.renew_deadline, "leaseDuration must be greater than renewDeadline"),
            (
                self.renew_deadline.as_secs_f64() > JITTER * self.retry_period.as_secs_f64(),
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            (!self.lease_duration.is_zero(), "leaseDuration must be greater than zero"),
            (!self.renew_deadline.is_zero(), "renewDeadline must be greater than zero"),
            (!self.retry_period.is_zero(), "retryPeriod must be greater than zero"),
            (!self.identity.is_empty(), "Lock identity is empty"),
            (!self.name.is_empty(), "resourceName is required"),
            (!self.namespace.is_empty(), "resourceNamespace is required"),
        ];
        let wrong: Vec<String> =
            checks.into_iter().filter(|(good, _)| !good).map(|(_, text)| text.to_owned()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// A request must leave time for a second one before the renew deadline.
    fn request_deadline(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

/// `<hostname>_<uuid>`: a restarted process is another candidate, even on the same host.
pub fn identity(hostname: &str) -> String {
    format!("{hostname}_{}", uuid::Uuid::new_v4())
}

/// A Lease as another replica reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The holder; empty if the Lease was released.
    pub holder: String,
    /// The validity after a renewal, as written by the holder.
    pub duration: Option<Duration>,
    /// The time of the last renewal, by the clock of the holder.
    pub renewed: Option<jiff::Timestamp>,
}

/// Reads the Lease of this name; `None` if it does not exist. For display only: an election never trusts other clocks.
pub async fn look(client: &Client, namespace: &str, name: &str) -> Result<Option<Seen>, ApiError> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let lease = match client.read(&Call::get(path)).await.map(Lease::from_value) {
        Ok(Some(lease)) => lease,
        Ok(None) => return Err(ApiError::Decode("it is not a Lease with a resourceVersion".into())),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = lease.record();
    Ok(Some(Seen { holder: record.holder.to_owned(), duration: record.duration, renewed: lease.renewed() }))
}

/// The end of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The process was shut down before it led. The Lease was not changed.
    NeverLed,
    /// The lease is lost: another process may lead by now. The process should exit with status 1.
    Lost,
    /// The process led, all writers have ended, and it has released the lease (or tried to).
    Released,
}

/// The inputs of an election.
pub struct Election {
    /// The Lease and the times; must be valid.
    pub config: ElectionConfig,
    /// The client, with the user agent of the election and without a rate limit.
    pub client: Client,
    /// Notified of acquisition, renewal and loss. While it drains, renewal continues until `release` is cancelled.
    pub leadership: Leadership,
    /// Receives the events on the Lease.
    pub events: Arc<dyn EventSink>,
    /// The monotonic part decides; the wall clock is only written into the Lease.
    pub clock: Arc<dyn Clock>,
    /// `leader_election_*`
    pub metrics: Metrics,
    /// Cancelled by the caller once **all writers have ended** and events are flushed: then the lease is released.
    pub release: CancellationToken,
    /// Seed of the jitter.
    pub seed: u64,
    /// Log message for a lost lease; upstream has `leaderelection lost` and, for the second lease of a leader
    /// migration, `migration leaderelection lost`.
    pub lost_message: &'static str,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Election {
    /// Waits for the lease, then keeps it until it is lost or released.
    ///
    /// [`Leadership`] is `Lost` before this returns [`Ended::Lost`], and also before a lease is released. To
    /// distinguish the two, wait for this future, not for the state.
    pub async fn run(self) -> Ended {
        let leases = Leases::new(&self.client, &self.config);
        let rng = StdRng::seed_from_u64(self.seed);
        self.metrics.leader(&self.config.namespace, &self.config.name, false);
        let mut candidate = Candidate {
            parts: self,
            leases,
            rng,
            observed: None,
            leader: String::new(),
            watch: Watch::default(),
            complaint: None,
        };
        match candidate.acquire().await {
            Some(held) => candidate.keep(held).await,
            None => Ended::NeverLed,
        }
    }
}

/// The Lease as this process last wrote it.
struct Held {
    lease: Lease,
    /// The earliest time at which others may take it.
    until: Instant,
}

/// The record at its last observed change.
struct Observed {
    lease: Lease,
    /// The time of that change, on the local clock.
    at: Instant,
}

/// The outcome of one attempt.
enum Attempt {
    Held(Held),
    /// Another process holds the lease.
    Foreign,
    Failed(&'static str, ApiError),
}

struct Candidate {
    parts: Election,
    leases: Leases,
    rng: StdRng,
    observed: Option<Observed>,
    /// The holder that was last logged.
    leader: String,
    watch: Watch,
    complaint: Option<(String, Instant)>,
}

impl Candidate {
    fn now(&self) -> Instant {
        self.parts.clock.now()
    }

    /// Tries to acquire the lease until it succeeds. `None` on shutdown.
    async fn acquire(&mut self) -> Option<Held> {
        tracing::info!("attempting to acquire leader lease {}...", self.leases.label());
        loop {
            if self.unwanted() {
                return None;
            }
            // Not cancelled by a shutdown: the result of the request must be known.
            match self.attempt().await {
                Attempt::Held(held) => return self.acquired(held).await,
                Attempt::Foreign => {}
                Attempt::Failed(verb, error) => self.complain(verb, &error),
            }
            let pause = self.parts.config.retry_period.mul_f64(1.0 + JITTER * self.rng.random::<f64>());
            self.stand_by(pause).await;
        }
    }

    fn unwanted(&self) -> bool {
        self.parts.release.is_cancelled()
            || matches!(self.parts.leadership.state(), State::Draining { .. } | State::Lost)
    }

    async fn acquired(&mut self, held: Held) -> Option<Held> {
        self.watch = Watch::default();
        self.complaint = None;
        tracing::info!("successfully acquired lease {}", self.leases.label());
        if self.unwanted() {
            self.give_back(held).await;
            return None;
        }
        self.parts.metrics.leader(&self.parts.config.namespace, &self.parts.config.name, true);
        self.lead(&held);
        self.emit_event(&held.lease, "became leader");
        Some(held)
    }

    fn lead(&self, held: &Held) {
        let left = held.until.saturating_duration_since(self.now());
        if !left.is_zero() {
            self.parts.leadership.lead(Some(left));
        }
    }

    /// Reads the lease and takes it if it is free.
    async fn attempt(&mut self) -> Attempt {
        // The second round is for a Lease that another process created in between.
        for _ in 0..2 {
            match self.leases.get().await {
                Ok(lease) => {
                    self.observe(lease.clone());
                    if !self.may_take() {
                        return Attempt::Foreign;
                    }
                    return self.put(&lease).await;
                }
                Err(error) if error.is_not_found() => match self.create().await {
                    Attempt::Failed(_, error) if error.is_conflict() => {}
                    attempt => return attempt,
                },
                Err(error) => return Attempt::Failed("get", error),
            }
        }
        Attempt::Foreign
    }

    async fn create(&mut self) -> Attempt {
        let sent = self.now();
        let answer = self.leases.create(self.parts.clock.wall()).await;
        self.written("create", sent, answer)
    }

    async fn put(&mut self, lease: &Lease) -> Attempt {
        let body = lease.taken(&self.parts.config, self.parts.clock.wall());
        let sent = self.now();
        let answer = self.leases.put(&body).await;
        self.written("update", sent, answer)
    }

    fn written(&mut self, verb: &'static str, sent: Instant, answer: Result<Lease, ApiError>) -> Attempt {
        match answer {
            Ok(lease) => {
                self.observe(lease.clone());
                Attempt::Held(Held { lease, until: sent + self.parts.config.lease_duration })
            }
            Err(error) => Attempt::Failed(verb, error),
        }
    }

    /// Records the read Lease, and the time of its last change.
    fn observe(&mut self, lease: Lease) {
        let holder = lease.record().holder;
        if holder != self.leader && !holder.is_empty() {
            tracing::info!(identity = holder, lease = self.leases.label(), "new leader elected");
            self.leader = holder.to_owned();
        }
        let at = match &self.observed {
            Some(observed) if observed.lease.same_record(&lease) => observed.at,
            _ => self.now(),
        };
        self.observed = Some(Observed { lease, at });
    }

    /// The time at which the observed lease may be taken; `None`: at once.
    fn foreign_until(&self) -> Option<Instant> {
        let Observed { lease, at } = self.observed.as_ref()?;
        let record = lease.record();
        let free = record.holder.is_empty() || record.holder == self.parts.config.identity;
        // No known program writes a record without a duration: use the lease duration of this process.
        (!free).then(|| *at + record.duration.unwrap_or(self.parts.config.lease_duration))
    }

    fn may_take(&self) -> bool {
        self.foreign_until().is_none_or(|until| until <= self.now())
    }

    /// Renews until the lease is lost or released.
    async fn keep(&mut self, mut held: Held) -> Ended {
        let release = self.parts.release.clone();
        loop {
            let round = tokio::select! {
                biased;
                () = release.cancelled() => None,
                renewed = self.next_renewal(&held) => Some(renewed),
            };
            match round {
                None => {
                    // Close the local gate first: once the request is sent, another process may write.
                    self.stopped(&held);
                    self.give_back(held).await;
                    return Ended::Released;
                }
                Some(Ok(renewed)) => {
                    held = renewed;
                    self.lead(&held);
                }
                Some(Err(why)) => return self.lost(&held, &why),
            }
        }
    }

    /// Waits for the time, then renews within the renew deadline, and never after the time when others may take the
    /// lease.
    async fn next_renewal(&mut self, held: &Held) -> Result<Held, String> {
        let retry = self.parts.config.retry_period;
        self.sleep_until((self.now() + retry).min(held.until)).await;
        let give_up = (self.now() + self.parts.config.renew_deadline).min(held.until);
        let mut last = String::from("there was no time to renew it");
        while self.now() < give_up {
            let left = give_up.saturating_duration_since(self.now());
            match tokio::time::timeout(left, self.renew(held)).await {
                Ok(Attempt::Held(renewed)) if renewed.until > self.now() => {
                    self.complaint = None;
                    return Ok(renewed);
                }
                Ok(Attempt::Held(_)) => last = String::from("renewing took longer than the lease lasts"),
                Ok(Attempt::Foreign) => return Err(format!("{} holds it now", self.leader)),
                Ok(Attempt::Failed(verb, error)) => {
                    self.complain(verb, &error);
                    last = error.to_string();
                }
                Err(_) => last = String::from("the API server did not answer"),
            }
            self.sleep_until((self.now() + retry).min(give_up)).await;
        }
        let deadline = duration::format(self.parts.config.renew_deadline);
        Err(format!("not renewed within the renew deadline of {deadline}: {last}"))
    }

    /// One attempt with the last seen object and, if that fails, with a newly read one.
    async fn renew(&mut self, held: &Held) -> Attempt {
        if let attempt @ Attempt::Held(_) = self.put(&held.lease).await {
            return attempt;
        }
        self.parts.metrics.leader_slow_path(&self.parts.config.name);
        let lease = match self.leases.get().await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return self.create().await,
            Err(error) => return Attempt::Failed("get", error),
        };
        self.observe(lease.clone());
        let (record, ours) = (lease.record(), held.lease.record());
        // A lease with an empty holder (set by an administrator) is taken again, if no process led in between.
        let emptied = record.holder.is_empty() && record.transitions == ours.transitions;
        if record.holder != self.parts.config.identity && !emptied {
            if record.holder.is_empty() {
                self.leader = String::from("no holder (another process released it)");
            }
            return Attempt::Foreign;
        }
        self.put(&lease).await
    }

    fn lost(&self, held: &Held, why: &str) -> Ended {
        self.stopped(held);
        tracing::error!(lease = self.leases.label(), reason = why, "{}", self.parts.lost_message);
        Ended::Lost
    }

    fn stopped(&self, held: &Held) {
        self.parts.leadership.lose();
        self.parts.metrics.leader(&self.parts.config.namespace, &self.parts.config.name, false);
        self.emit_event(&held.lease, "stopped leading");
    }

    /// Empties the holder, so that another process does not have to wait.
    async fn give_back(&mut self, mut held: Held) {
        let limit = self.parts.config.request_deadline();
        let result = tokio::time::timeout(limit, async {
            loop {
                let Err(error) = self.leases.put(&held.lease.released(self.parts.clock.wall())).await else { return };
                self.complain("update", &error);
                match self.leases.get().await {
                    Ok(lease) if lease.record().holder == self.parts.config.identity => held.lease = lease,
                    Ok(_) => return,
                    Err(error) => self.complain("get", &error),
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        match result.await {
            Ok(()) => tracing::info!(lease = self.leases.label(), "released the lease"),
            Err(_) => tracing::warn!(lease = self.leases.label(), "the lease could not be released and has to run out"),
        }
    }

    async fn sleep_until(&self, moment: Instant) {
        tokio::time::sleep(moment.saturating_duration_since(self.now())).await;
    }

    fn emit_event(&self, lease: &Lease, what: &str) {
        let config = &self.parts.config;
        let subject = Subject {
            kind: "Lease",
            api_version: "coordination.k8s.io/v1",
            namespace: config.namespace.as_str().into(),
            name: config.name.as_str().into(),
            uid: lease.uid().into(),
            resource_version: lease.version().into(),
        };
        let message = format!("{} {what}", config.identity);
        self.parts.events.event(&subject, EventType::Normal, "LeaderElection", &message);
    }

    /// Logs a failure once, and again only after a while: attempts are made every two seconds.
    fn complain(&mut self, verb: &str, error: &ApiError) {
        // Losing a race is normal.
        if error.is_conflict() {
            tracing::debug!(lease = self.leases.label(), verb, "another process wrote the lease first");
            return;
        }
        let text = self.leases.explain(verb, error);
        let now = self.now();
        if self.complaint.as_ref().is_some_and(|(last, at)| *last == text && now < *at + REPEAT_LOG) {
            return;
        }
        tracing::error!(lease = self.leases.label(), "{text}");
        self.complaint = Some((text, now));
    }
}

const NAME: &[&str] = &["name"];

crate::metrics! {
    pub(crate) struct ElectionMetrics {
        leader: IntGaugeVec = Def::gauge(
            "leader_election_master_status", NAME,
            "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
        );
        of_lease: IntGaugeVec = Def::gauge(
            "ccm_leader", &["lease"],
            "1 if this process holds the lease NAMESPACE/NAME, 0 if not. leader_election_master_status has only the name.",
        );
        slow_path: IntCounterVec = Def::counter(
            "leader_election_slowpath_total", NAME,
            "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
        );
    }
}

impl Metrics {
    /// Records whether this process holds the lease.
    pub fn leader(&self, namespace: &str, name: &str, leading: bool) {
        let part = self.part::<ElectionMetrics>();
        part.leader.with_label_values(&[name]).set(leading.into());
        part.of_lease.with_label_values(&[&*format!("{namespace}/{name}")]).set(leading.into());
    }

    /// Counts a renewal that failed with the last seen object, so that the lease was read again.
    fn leader_slow_path(&self, lease: &str) {
        self.part::<ElectionMetrics>().slow_path.with_label_values(&[lease]).inc();
    }
}
