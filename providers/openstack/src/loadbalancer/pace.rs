//! How long changes of balancers take in this cloud, learned from what was too early and what was not. Pure.
//!
//! The time lies between two bounds. While they are far apart, the next change is sent at a time between them; once they are
//! close, a little after the upper one. So a cloud costs a few refusals when the process is young, and hardly any later.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The first look at a balancer that is made or deleted comes after this time.
const FIRST_LOOK: Duration = Duration::from_millis(400);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The look that shows a driver that is done at once.
pub(super) const EARLY_LOOK: Duration = Duration::from_millis(30);
/// What a change is believed to take where it is not done at once, before the first one has ended.
const USUAL: Duration = Duration::from_millis(500);
/// A change that takes longer is not waited for blindly.
const LONGEST: Duration = Duration::from_secs(3);
/// The least pause after a refusal.
const LEAST: Duration = Duration::from_millis(60);
/// Bounds in this ratio are close.
const CLOSE: f64 = 1.12;
/// Where the next attempt is between bounds that are not.
const BETWEEN: f64 = 0.5;
/// So much after the upper bound is safe: changes do not all take the same time.
const MARGIN: f64 = 1.04;
/// How fast the upper bound follows a cloud that becomes faster.
const EASE: f64 = 0.98;

/// How long changes take, and which balancers are at work.
#[derive(Debug)]
pub(super) struct Pace {
    /// At this time changes were still at work.
    lower: Duration,
    /// At this time changes had ended.
    upper: Duration,
    /// Whether the upper bound was seen.
    is_measured: bool,
    /// Whether a look has shown that changes are not done at once, or that they are.
    pub(super) is_known: bool,
    busy_since: BTreeMap<String, Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        let (lower, upper) = (Duration::ZERO, USUAL);
        Self { lower, upper, is_measured: false, is_known: false, busy_since: BTreeMap::new() }
    }
}

impl Pace {
    /// After this time the next change of a balancer is sent.
    pub(super) fn usual(&self) -> Duration {
        let is_close = self.upper <= self.lower.mul_f64(CLOSE);
        let usual = match (self.is_measured, is_close) {
            (false, _) => self.upper,
            (true, true) => self.upper.mul_f64(MARGIN),
            (true, false) => self.lower + (self.upper - self.lower).mul_f64(BETWEEN),
        };
        usual.min(LONGEST)
    }

    /// When the last change of a balancer was taken, if it may not have ended.
    pub(super) fn busy_since(&self, balancer: &str) -> Option<Instant> {
        self.busy_since.get(balancer).copied()
    }

    /// A change was taken: the one before it has ended.
    pub(super) fn sent(&mut self, balancer: &str, now: Instant) {
        if let Some(since) = self.busy_since.insert(balancer.to_owned(), now) {
            self.had_ended(now - since);
        }
    }

    /// A change was refused, because the one before it has not ended: the time until the next attempt.
    pub(super) fn conflict(&mut self, balancer: &str, conflicts: u32, now: Instant) -> Duration {
        if let Some(since) = self.busy_since(balancer) {
            self.was_at_work(now - since);
        }
        let more = 1.2_f64.powi(i32::try_from(conflicts).unwrap_or(i32::MAX));
        (self.lower.min(LONGEST) / 8).max(LEAST).mul_f64(more).min(LONGEST_PAUSE)
    }

    /// The time until the first look at a change, or at a creation or deletion, whose time says nothing about changes.
    pub(super) fn first_look(&self, is_change: bool) -> Duration {
        match (self.is_known, is_change) {
            (false, _) => EARLY_LOOK,
            (true, true) => self.usual(),
            (true, false) => self.usual().min(FIRST_LOOK),
        }
    }

    /// The balancer was still at work at a look, the first or a later one: the time until the next one.
    pub(super) fn next_look(&mut self, balancer: &str, looks: u32, pause: Duration, now: Instant) -> Duration {
        let is_first = !std::mem::replace(&mut self.is_known, true);
        let since = self.busy_since(balancer);
        if let Some(since) = since {
            self.was_at_work(now - since);
        }
        match (since, is_first) {
            (Some(since), true) => self.usual().saturating_sub(now - since).max(LEAST),
            (None, true) => FIRST_LOOK,
            (Some(_), false) if looks == 0 => (pause / 4).max(LEAST),
            _ => pause.mul_f64(1.2).min(LONGEST_PAUSE),
        }
    }

    /// The balancer was active, or gone, at a look.
    pub(super) fn ended(&mut self, balancer: &str, now: Instant) {
        if let Some(since) = self.busy_since.remove(balancer) {
            self.had_ended(now - since);
        }
        if !self.is_known {
            (self.is_known, self.is_measured, self.upper) = (true, true, EARLY_LOOK);
        }
    }

    /// The balancer goes; how long that takes says nothing about changes.
    pub(super) fn forget(&mut self, balancer: &str) {
        self.busy_since.remove(balancer);
    }

    fn had_ended(&mut self, after: Duration) {
        let is_close = self.upper <= self.lower.mul_f64(CLOSE);
        if !self.is_measured || after < self.upper {
            self.upper = after.max(Duration::from_millis(1));
        } else if is_close {
            self.upper = self.upper.mul_f64(EASE);
        }
        self.is_measured = true;
        self.lower = self.lower.min(self.upper.mul_f64(0.9));
    }

    fn was_at_work(&mut self, after: Duration) {
        self.lower = self.lower.max(after);
        if self.upper < self.lower {
            (self.upper, self.is_measured) = (self.lower.mul_f64(CLOSE), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to a cloud whose changes take so long: the time of all, and how many refusals.
    fn writes(pace: &mut Pace, count: u32, takes: impl Fn(u32) -> Duration) -> (Duration, u32) {
        pace.is_known = true;
        let start = Instant::now();
        let (mut now, mut refused) = (start, 0);
        for write in 0..count {
            if let Some(since) = pace.busy_since("lb") {
                now = now.max(since + pace.usual());
                let mut conflicts = 0;
                while now - since < takes(write) {
                    conflicts += 1;
                    now += pace.conflict("lb", conflicts, now);
                }
                refused += conflicts;
            }
            pace.sent("lb", now);
        }
        pace.forget("lb");
        (now - start, refused)
    }

    #[test]
    fn a_cloud_is_known_after_a_few_refusals() {
        for millis in [5, 100, 450, 900, 2500] {
            let takes = Duration::from_millis(millis);
            let mut pace = Pace::default();
            let (_, refused) = writes(&mut pace, 10, |_| takes);
            assert!(refused <= 12, "{millis} ms: {refused}");
            // Times of one cloud differ by a tenth.
            let (time, refused) = writes(&mut pace, 10, |write| takes.mul_f64(1.0 + f64::from(write % 2) / 10.0));
            assert!(refused <= 3, "{millis} ms: {refused} later");
            assert!(
                time < takes.mul_f64(9.0 * 1.5) + Duration::from_millis(200),
                "{millis} ms: {time:?} for ten writes"
            );
        }
    }

    #[test]
    fn a_cloud_that_becomes_slower_or_faster_is_followed() {
        let mut pace = Pace::default();
        writes(&mut pace, 10, |_| Duration::from_millis(400));
        let (_, refused) = writes(&mut pace, 20, |_| Duration::from_millis(1200));
        assert!(refused <= 10, "{refused}");
        writes(&mut pace, 60, |_| Duration::from_millis(400));
        assert!(pace.usual() < Duration::from_millis(900), "{:?}", pace.usual());
    }
}
