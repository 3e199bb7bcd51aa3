//! The queue of one family of calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pressure::Pressure;
use super::{Family, Priority};
use crate::client::Answer;
use crate::client::error::ErrorKind;
use crate::client::metrics::Metrics;

/// The pause after the first throttled call; each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Short, so that all is well again within 5 s of the end of a throttling; a probe costs one call.
const LONGEST_PAUSE: Duration = Duration::from_millis(4_500);
/// A longer `Retry-After` is taken for a mistake.
const LONGEST_WISH: Duration = Duration::from_secs(300);
/// What only refreshes waits no longer than this behind work of users.
const PATIENCE: Duration = Duration::from_secs(10);
/// Under the heaviest pressure this share of the pace remains.
const LEAST_PACE: f64 = 0.1;

/// How fast calls of a family may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    /// Calls that may go without delay after a quiet time.
    pub(crate) burst: f64,
    /// Calls under way at the same time.
    pub(crate) at_once: usize,
}

/// How an attempt ended, as far as the lane minds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// AWS answered, be it with a refusal.
    Answered,
    Throttled(Option<Duration>),
    /// Nothing is known of AWS's mood.
    Unknown,
}

impl End {
    pub(super) fn of<T>(answer: &Answer<T>) -> Self {
        match answer.as_ref().map_err(|error| error.kind) {
            Err(ErrorKind::Throttled { after }) => Self::Throttled(after),
            Err(ErrorKind::NotSent | ErrorKind::NoAnswer | ErrorKind::Malformed) => Self::Unknown,
            Err(ErrorKind::Credentials | ErrorKind::Refused | ErrorKind::Incomplete) | Ok(_) => Self::Answered,
        }
    }
}

/// The queue and the state of one family.
#[derive(Debug)]
pub(super) struct Lane {
    family: Family,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    rng: StdRng,
    tokens: f64,
    refilled: Instant,
    under_way: usize,
    /// Calls at once for now: few after a throttling, then more with each success.
    limit: usize,
    hold: Option<Hold>,
    pressure: Pressure,
    waiting: BTreeMap<Place, Waiter>,
    next: u64,
}

/// Calls are held back because AWS asked for fewer.
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

/// What a waiter does next.
enum Next {
    Go { probe: bool },
    At(Instant),
    Wait,
}

/// A place in the queue, given up when dropped.
struct Waiting<'a> {
    lane: &'a Lane,
    place: Place,
    wake: Arc<Notify>,
}

/// The right to send one call. Dropped without [`Turn::end`] it counts as a call of which nothing is known.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    lane: &'a Lane,
    probe: bool,
    ended: bool,
}

impl Lane {
    pub(super) fn new(family: Family, pace: Pace, seed: u64, metrics: Metrics) -> Self {
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
        Self { family, metrics, state: Mutex::new(state) }
    }

    /// Waits for the right to send one call.
    pub(super) async fn enter(&self, priority: Priority) -> Turn<'_> {
        let waiting = self.queue(priority);
        loop {
            let next = self.lock().next(waiting.place, Instant::now());
            match next {
                Next::Go { probe } => return Turn { lane: self, probe, ended: false },
                Next::Wait => waiting.wake.notified().await,
                Next::At(when) => {
                    // A call of a user may come in between and go first.
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

    /// Probes that were throttled since calls are held back.
    pub(super) fn failed_probes(&self) -> u32 {
        self.lock().hold.as_ref().map_or(0, |hold| hold.failed_probes)
    }

    /// How long calls are still held back.
    pub(super) fn pause_left(&self) -> Option<Duration> {
        self.lock().hold.as_ref().map(|hold| hold.until.saturating_duration_since(Instant::now()))
    }

    fn end(&self, probe: bool, end: End) {
        let mut state = self.lock();
        state.end(probe, end, Instant::now());
        self.metrics.lane(self.family, state.hold.is_some(), state.pressure.share());
        state.wake_first(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Who goes first: users, unless what only refreshes has waited too long.
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

    /// Answers with the present pace, in calls a second.
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
            End::Throttled(desired) => {
                self.pressure.throttled();
                self.hold_back(probe, desired, now);
            }
            End::Answered if probe => {
                self.hold = None;
                self.limit = 2.min(self.pace.at_once);
            }
            End::Answered if self.hold.is_none() => self.limit = (self.limit + 1).min(self.pace.at_once),
            End::Answered => {}
            // A probe that says nothing: the next one may go after the same pause.
            End::Unknown if probe => {
                let failed = self.hold.as_ref().map_or(0, |hold| hold.failed_probes);
                let until = now + self.pause(failed);
                self.hold = Some(Hold { until, failed_probes: failed, probing: false });
            }
            End::Unknown => {}
        }
    }

    fn hold_back(&mut self, probe: bool, desired: Option<Duration>, now: Instant) {
        let desired = now + desired.unwrap_or_default().min(LONGEST_WISH);
        match &mut self.hold {
            // It was sent before the others learnt of the throttling: no news.
            Some(hold) if !probe => hold.until = hold.until.max(desired),
            held => {
                let failed_probes = held.as_ref().map_or(0, |hold| hold.failed_probes + 1);
                let until = (now + self.pause(failed_probes)).max(desired);
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
    /// The call came to an end.
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
