//! The queue of one call budget.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::LONGEST_REQUESTED;
use super::pressure::Pressure;
use super::{CallError, CallMetrics, ErrorKind, Priority};

/// The pause after the first throttled call; doubles with each failed probe.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Short, so that calls resume within 5 s of the end of throttling; a probe costs one call.
const LONGEST_PAUSE: Duration = Duration::from_millis(4_500);
/// The longest time that refreshing waits behind calls of users.
const PATIENCE: Duration = Duration::from_secs(10);
/// The share of the pace that remains under the highest pressure.
const LEAST_PACE: f64 = 0.1;

/// The pace of calls of a budget.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Calls per second.
    pub per_second: f64,
    /// Calls that may be sent without delay after a quiet time.
    pub burst: f64,
    /// Maximum number of calls in flight.
    pub at_once: usize,
}

/// The outcome of an attempt, as far as the pace depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The cloud answered, perhaps with an error.
    Answered,
    Throttled(Option<Duration>),
    /// The outcome does not show whether the cloud throttles.
    Unknown,
}

impl End {
    pub(super) fn of<T, O>(answer: &Result<T, CallError<O>>) -> Self {
        match answer.as_ref().map_err(|error| error.kind) {
            Err(ErrorKind::Throttled { after }) => Self::Throttled(after),
            Err(ErrorKind::NotSent | ErrorKind::NoAnswer | ErrorKind::Malformed) => Self::Unknown,
            Err(ErrorKind::Credentials | ErrorKind::Refused | ErrorKind::Incomplete | ErrorKind::NotLeading)
            | Ok(_) => Self::Answered,
        }
    }
}

/// The queue and the state of one budget.
#[derive(Debug)]
pub(super) struct Lane {
    budget: &'static str,
    metrics: CallMetrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    rng: StdRng,
    tokens: f64,
    refilled: Instant,
    under_way: usize,
    /// The current limit of concurrent calls: low after throttling, one more with each success.
    limit: usize,
    hold: Option<Hold>,
    pressure: Pressure,
    waiting: BTreeMap<Place, Waiter>,
    next: u64,
}

/// Calls are on hold because the cloud throttles.
#[derive(Debug)]
struct Hold {
    until: Instant,
    failed_probes: u32,
    probing: bool,
}

type Place = (Priority, u64);

#[derive(Debug)]
struct Waiter {
    since: Instant,
    wake: Arc<Notify>,
}

/// The next step of a waiter.
enum Next {
    Go { probe: bool },
    At(Instant),
    Wait,
}

/// A place in the queue, released on drop.
struct Waiting<'a> {
    lane: &'a Lane,
    place: Place,
    wake: Arc<Notify>,
}

/// The permission to send one call. If dropped without [`Turn::end`], it counts as a call without an answer.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    lane: &'a Lane,
    probe: bool,
    ended: bool,
}

impl Lane {
    pub(super) fn new(budget: &'static str, pace: Pace, seed: u64, metrics: CallMetrics) -> Self {
        let now = Instant::now();
        let state = State {
            pace,
            rng: StdRng::seed_from_u64(seed),
            tokens: pace.burst,
            refilled: now,
            under_way: 0,
            limit: pace.at_once,
            hold: None,
            pressure: Pressure::new(now),
            waiting: BTreeMap::new(),
            next: 0,
        };
        Self { budget, metrics, state: Mutex::new(state) }
    }

    /// Waits for the permission to send one call.
    pub(super) async fn enter(&self, priority: Priority) -> Turn<'_> {
        let waiting = self.queue(priority);
        loop {
            let next = self.lock().next(waiting.place, Instant::now());
            match next {
                Next::Go { probe } => return Turn { lane: self, probe, ended: false },
                Next::Wait => waiting.wake.notified().await,
                Next::At(when) => {
                    // A call of a user may take precedence meanwhile.
                    tokio::select! {
                        () = tokio::time::sleep_until(when) => {}
                        () = waiting.wake.notified() => {}
                    }
                }
            }
        }
    }

    fn queue(&self, priority: Priority) -> Waiting<'_> {
        let mut state = self.lock();
        let place = (priority, state.next);
        state.next += 1;
        let wake = Arc::new(Notify::new());
        state.waiting.insert(place, Waiter { since: Instant::now(), wake: wake.clone() });
        Waiting { lane: self, place, wake }
    }

    /// The number of throttled probes since the hold began.
    pub(super) fn failed_probes(&self) -> u32 {
        self.lock().hold.as_ref().map_or(0, |hold| hold.failed_probes)
    }

    /// The remaining time of the hold.
    pub(super) fn pause_left(&self) -> Option<Duration> {
        self.lock().hold.as_ref().map(|hold| hold.until.saturating_duration_since(Instant::now()))
    }

    fn end(&self, probe: bool, end: End) {
        let mut state = self.lock();
        state.end(probe, end, Instant::now());
        self.metrics.budget(self.budget, state.hold.is_some(), state.pressure.share());
        state.wake_first(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// The next in the queue: calls of users first, unless a refresh has waited too long.
    fn first(&self, now: Instant) -> Option<Place> {
        let refresh = self.waiting.range((Priority::Refresh, 0)..).next();
        let impatient = refresh.filter(|(_, waiter)| now.saturating_duration_since(waiter.since) >= PATIENCE);
        impatient.map(|(place, _)| *place).or_else(|| self.waiting.keys().next().copied())
    }

    fn wake_first(&self, now: Instant) {
        if let Some(waiter) = self.first(now).and_then(|first| self.waiting.get(&first)) {
            waiter.wake.notify_one();
        }
    }

    fn next(&mut self, place: Place, now: Instant) -> Next {
        if self.first(now) != Some(place) {
            self.wake_first(now);
            return Next::Wait;
        }
        if self.under_way >= self.limit {
            return Next::Wait;
        }
        let probe = match &mut self.hold {
            Some(hold) if hold.probing => return Next::Wait,
            Some(hold) if now < hold.until => return Next::At(hold.until),
            Some(hold) => {
                hold.probing = true;
                true
            }
            None => false,
        };
        let rate = self.refill(now);
        if !probe && self.tokens < 1.0 {
            let missing = Duration::from_secs_f64((1.0 - self.tokens) / rate);
            return Next::At(now + missing.max(Duration::from_millis(1)));
        }
        self.tokens = (self.tokens - 1.0).max(0.0);
        self.under_way += 1;
        self.pressure.call(now);
        Next::Go { probe }
    }

    /// Refills the token bucket. Returns the current pace, in calls per second.
    fn refill(&mut self, now: Instant) -> f64 {
        let rate = self.pace.per_second * (1.0 - self.pressure.share()).max(LEAST_PACE);
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(self.pace.burst);
        self.refilled = now;
        rate
    }

    fn end(&mut self, probe: bool, end: End, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        match end {
            End::Throttled(requested) => {
                self.pressure.throttled();
                self.hold_back(probe, requested, now);
            }
            End::Answered if probe => {
                self.hold = None;
                self.limit = 2.min(self.pace.at_once);
            }
            End::Answered if self.hold.is_none() => self.limit = (self.limit + 1).min(self.pace.at_once),
            End::Answered => {}
            // A probe without a result: the next probe may be sent after the same pause.
            End::Unknown if probe => {
                let failed = self.hold.as_ref().map_or(0, |hold| hold.failed_probes);
                let until = now + self.pause(failed);
                self.hold = Some(Hold { until, failed_probes: failed, probing: false });
            }
            End::Unknown => {}
        }
    }

    fn hold_back(&mut self, probe: bool, requested: Option<Duration>, now: Instant) {
        let requested = now + requested.unwrap_or_default().min(LONGEST_REQUESTED);
        match &mut self.hold {
            // Sent before the hold began: no new information.
            Some(hold) if !probe => hold.until = hold.until.max(requested),
            held => {
                let failed_probes = held.as_ref().map_or(0, |hold| hold.failed_probes + 1);
                let until = (now + self.pause(failed_probes)).max(requested);
                self.hold = Some(Hold { until, failed_probes, probing: false });
            }
        }
    }

    fn pause(&mut self, failed_probes: u32) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << failed_probes.min(8)).min(LONGEST_PAUSE);
        longest.mul_f64(self.rng.random_range(0.8..=1.0))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.waiting.remove(&self.place);
        state.wake_first(Instant::now());
    }
}

impl Turn<'_> {
    /// The call ended.
    pub(super) fn end(mut self, end: End) {
        self.ended = true;
        self.lane.end(self.probe, end);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.lane.end(self.probe, End::Unknown);
        }
    }
}
