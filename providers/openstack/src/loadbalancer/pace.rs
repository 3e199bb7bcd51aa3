//! How long changes of balancers take in this cloud, learned from what was too early and what was not. Pure.
//!
//! Two times are kept: one after which a change had ended, and an earlier one after which it was still at work. A change that
//! comes late enough moves the first towards the second, by less each time. One that comes too early is refused, and sets both.
//! So hardly any is refused where changes take the same time, and one or two in ten where they differ by twice. That costs
//! calls; to wait for the longest would cost time at each change.
//!
//! * Nothing known: a creation of a few seconds takes about as long as a change. Without one, each attempt comes at twice the
//!   time of the one before it.
//! * A change that takes much longer than all others is an exception; two in a row are a slower cloud.
//! * A cloud that became faster shows itself to a look now and then at the earlier time. A look that is too early costs less than
//!   a change that is.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The first look at something of which nothing is known: some drivers are done at once.
const EARLY: Duration = Duration::from_millis(30);
/// The second one, and the first one at a balancer that is made or deleted.
const FIRST: Duration = Duration::from_millis(400);
/// A balancer that took longer than this was made with a machine, which changes do not need.
const WITH_MACHINE: Duration = Duration::from_secs(15);
/// A change that takes longer is not waited for blindly.
const LONGEST: Duration = Duration::from_secs(60);
/// The most between attempts at a change that takes longer than known.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The least between attempts.
const LEAST: Duration = Duration::from_millis(60);
/// Between the time at which a change was at work and the one at which it had ended, the next one comes at this part. Nearer to
/// the later one: time is lost for one change, and a refusal is a call.
const BETWEEN: f64 = 0.67;
/// A change that was late enough moves the time towards the one that was too early by this part of their distance.
const CLOSER: f64 = 0.2;
/// A change that had ended before the time that was too early shows a faster cloud: too early is now this part of what it took.
const FASTER: f64 = 0.3;
/// Longer than the time by this factor is an exception.
const EXCEPTION: f64 = 2.5;
/// Of so many looks, one comes a little before the time that was too early.
const PROBE: u32 = 4;
const BEFORE: f64 = 0.95;
/// The first pause after an attempt at the usual time that was too early, as a part of that time. Each further one is twice as
/// long.
const LATER: f64 = 0.15;

/// How long changes take, and which balancers are at work.
#[derive(Debug, Default)]
pub(super) struct Pace {
    learned: Option<Learned>,
    /// Whether the last change was an exception.
    was_late: bool,
    /// How long the last creation took.
    creation: Option<Duration>,
    /// Looks at changes.
    looks: u32,
    busy: BTreeMap<String, Busy>,
}

/// How long changes take.
#[derive(Debug, Clone, Copy)]
struct Learned {
    /// After this time a change was at work.
    too_early: Duration,
    /// After this time a change has probably ended.
    usual: Duration,
}

impl Learned {
    /// A change was at work after the one time and had ended after the other.
    fn between(at_work: Duration, ended: Duration) -> Learned {
        let usual = at_work + ended.saturating_sub(at_work).mul_f64(BETWEEN);
        Learned { too_early: at_work, usual: usual.max(Duration::from_millis(1)) }
    }
}

/// A change that may not have ended.
#[derive(Debug, Clone, Copy)]
struct Busy {
    since: Instant,
    /// It was at work after this time.
    at_work: Duration,
    /// How often that was seen.
    seen: u32,
    /// Another program may have begun it.
    is_foreign: bool,
}

impl Pace {
    /// When the next change of a balancer is sent, if an earlier one may be at work.
    pub(super) fn next_change(&self, balancer: &str) -> Option<Instant> {
        let busy = self.busy.get(balancer)?;
        Some(busy.since + if busy.seen == 0 { self.usual() } else { self.again(*busy) })
    }

    /// When to look whether a change has ended, if one may be at work.
    pub(super) fn next_look(&mut self, balancer: &str) -> Option<Instant> {
        let busy = *self.busy.get(balancer)?;
        self.looks = self.looks.wrapping_add(u32::from(busy.seen == 0));
        let is_probe = busy.seen == 0 && self.looks.is_multiple_of(PROBE);
        match self.learned {
            Some(Learned { too_early, .. }) if is_probe && !too_early.is_zero() => {
                Some(busy.since + too_early.mul_f64(BEFORE))
            }
            _ => self.next_change(balancer),
        }
    }

    /// The first look at a balancer that is made or deleted comes after this time, later ones after [`longer`] ones.
    pub(super) fn first_look(&self) -> Duration {
        if self.learned.is_none() && self.creation.is_none() { EARLY } else { FIRST }
    }

    /// A balancer was made in this time.
    pub(super) fn created(&mut self, took: Duration) {
        self.creation = Some(took);
    }

    /// A change was taken: the one before it has ended.
    pub(super) fn sent(&mut self, balancer: &str, now: Instant) {
        self.ended(balancer, now);
        let new = Busy { since: now, at_work: Duration::ZERO, seen: 0, is_foreign: false };
        self.busy.insert(balancer.to_owned(), new);
    }

    /// A change was at work: another one was refused, or a look has shown it.
    pub(super) fn at_work(&mut self, balancer: &str, now: Instant) {
        let new = Busy { since: now, at_work: Duration::ZERO, seen: 0, is_foreign: true };
        let busy = self.busy.entry(balancer.to_owned()).or_insert(new);
        busy.at_work = now - busy.since;
        busy.seen += 1;
    }

    /// The last change has ended.
    pub(super) fn ended(&mut self, balancer: &str, now: Instant) {
        if let Some(Busy { since, at_work, is_foreign: false, .. }) = self.busy.remove(balancer) {
            self.learn(at_work, now - since);
        }
    }

    /// The balancer goes; how long that takes says nothing about changes.
    pub(super) fn forget(&mut self, balancer: &str) {
        self.busy.remove(balancer);
    }

    /// After this time a change is believed to have ended.
    fn usual(&self) -> Duration {
        self.learned.map(|learned| learned.usual).or_else(|| Some(self.hint()? / 3)).unwrap_or(EARLY).min(LONGEST)
    }

    /// The same for a change that was at work at that time.
    fn again(&self, busy: Busy) -> Duration {
        let so_far = busy.at_work;
        let known = self.learned.map(|learned| learned.usual).or_else(|| self.hint());
        let pause = match known.map(|known| known.min(LONGEST).saturating_sub(so_far)) {
            Some(left) if left >= LEAST => left,
            Some(_) => (so_far.mul_f64(LATER) * 2_u32.pow(busy.seen.clamp(1, 8) - 1)).clamp(LEAST, LONGEST_PAUSE),
            None => so_far.clamp(FIRST, LONGEST_PAUSE),
        };
        so_far + pause
    }

    /// What a change takes at most, while no change has shown it.
    fn hint(&self) -> Option<Duration> {
        self.creation.filter(|took| *took < WITH_MACHINE)
    }

    /// A change was at work after the one time and had ended after the other.
    fn learn(&mut self, at_work: Duration, ended: Duration) {
        let Some(Learned { too_early, usual }) = self.learned else {
            // Nobody looked for long.
            let is_vague = at_work.is_zero() && ended > LONGEST;
            self.learned = (!is_vague).then(|| Learned::between(at_work, ended));
            return;
        };
        let is_exception = at_work > usual.mul_f64(EXCEPTION);
        if at_work < usual {
            let too_early = at_work.max(if ended < too_early { ended.mul_f64(FASTER) } else { too_early });
            self.learned = Some(Learned { too_early, usual: usual - usual.saturating_sub(too_early).mul_f64(CLOSER) });
        } else if !is_exception || self.was_late {
            self.learned = Some(Learned::between(at_work, ended));
        }
        self.was_late = is_exception;
    }
}

/// The pause after this one between looks at a balancer that is made or deleted.
pub(super) fn longer(pause: Duration) -> Duration {
    pause.max(FIRST / 2).mul_f64(1.3).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What changes of one balancer, and the look at the end, cost.
    struct Cost {
        refused: usize,
        looks: usize,
        seconds: f64,
    }

    /// Changes of which each takes so many seconds.
    fn changes(pace: &mut Pace, count: u32, takes: impl Fn(u32) -> f64) -> Cost {
        let start = Instant::now();
        let (mut now, mut began, mut cost) = (start, start, Cost { refused: 0, looks: 0, seconds: 0.0 });
        for change in 0..count {
            while let Some(due) = pace.next_change("lb").filter(|_| change > 0) {
                now = now.max(due);
                if (now - began).as_secs_f64() >= takes(change - 1) {
                    break;
                }
                cost.refused += 1;
                pace.at_work("lb", now);
            }
            pace.sent("lb", now);
            began = now;
        }
        while let Some(due) = pace.next_look("lb") {
            (now, cost.looks) = (now.max(due), cost.looks + 1);
            match (now - began).as_secs_f64() >= takes(count - 1) {
                true => pace.ended("lb", now),
                false => pace.at_work("lb", now),
            }
        }
        cost.seconds = (now - start).as_secs_f64();
        cost
    }

    fn made_in(seconds: f64) -> Pace {
        let mut pace = Pace::default();
        pace.created(Duration::from_secs_f64(seconds));
        pace
    }

    #[test]
    fn a_creation_says_how_long_changes_take() {
        for seconds in [0.3, 1.0, 2.0, 5.0, 12.0] {
            let mut pace = made_in(seconds * 1.15);
            let first = changes(&mut pace, 10, |_| seconds);
            assert!(first.refused <= 3 && first.looks == 1, "{seconds}: {} and {}", first.refused, first.looks);
            assert!(first.seconds < seconds * 11.2, "{seconds}: {} s", first.seconds);
            let later = changes(&mut pace, 10, |_| seconds);
            assert!(later.refused <= 1 && later.seconds < seconds * 11.2, "{seconds}: {} s", later.seconds);
        }
    }

    #[test]
    fn a_cloud_is_learned_from_a_few_refusals() {
        for seconds in [0.01, 0.3, 1.0, 2.0, 5.0, 20.0, 60.0] {
            // A creation with a machine says nothing.
            let mut pace = made_in(90.0);
            let first = changes(&mut pace, 10, |_| seconds);
            assert!(first.refused <= 12, "{seconds}: {}", first.refused);
            assert!(first.seconds < seconds * 12.0 + 1.0, "{seconds}: {} s", first.seconds);
            let later = changes(&mut pace, 10, |_| seconds);
            assert!(later.refused <= 1 && later.looks <= 2, "{seconds}: {} and {}", later.refused, later.looks);
            assert!(later.seconds < seconds * 11.2 + 0.5, "{seconds}: {} s", later.seconds);
        }
    }

    #[test]
    fn changes_that_differ_a_little_are_hardly_refused() {
        let mut pace = Pace::default();
        let takes = |change: u32| 5.0 + f64::from(change * 7 % 5) / 10.0;
        changes(&mut pace, 20, takes);
        let series: Vec<Cost> = (0..10).map(|_| changes(&mut pace, 10, takes)).collect();
        let refused: usize = series.iter().map(|cost| cost.refused).sum();
        let seconds: f64 = series.iter().map(|cost| cost.seconds).sum();
        assert!(refused <= 5, "{refused}");
        assert!(seconds < 10.0 * 52.0 * 1.1, "{seconds}");
    }

    #[test]
    fn changes_that_take_up_to_twice_as_long_are_refused_now_and_then() {
        let takes = |change: u32| 1.2 + f64::from(change * 7 % 11) / 8.0;
        let mut pace = made_in(2.5);
        let series: Vec<Cost> = (0..10).map(|_| changes(&mut pace, 10, takes)).collect();
        let refused: usize = series.iter().map(|cost| cost.refused + cost.looks).sum();
        let seconds: f64 = series.iter().map(|cost| cost.seconds).sum();
        assert!(refused <= 25, "{refused}");
        // 18.4 s if each change were noticed at once.
        assert!(seconds < 10.0 * 27.0, "{seconds}");
    }

    #[test]
    fn an_exception_changes_nothing_and_two_are_a_slower_cloud() {
        let mut pace = made_in(5.0);
        changes(&mut pace, 10, |_| 5.0);
        let usual = pace.usual();
        changes(&mut pace, 1, |_| 25.0);
        assert_eq!(pace.usual(), usual);
        changes(&mut pace, 10, |change| if change == 4 { 25.0 } else { 5.0 });
        assert!(pace.usual() < Duration::from_millis(5500), "{:?}", pace.usual());
        changes(&mut pace, 4, |_| 25.0);
        assert!(pace.usual() > Duration::from_secs(20), "{:?}", pace.usual());
        let later = changes(&mut pace, 10, |_| 25.0);
        assert!(later.refused <= 1 && later.seconds < 25.0 * 11.2, "{} and {}", later.refused, later.seconds);
    }

    #[test]
    fn a_cloud_that_becomes_faster_is_followed() {
        let mut pace = made_in(5.0);
        changes(&mut pace, 10, |_| 5.0);
        for _ in 0..12 {
            changes(&mut pace, 10, |_| 1.0);
        }
        assert!(pace.usual() < Duration::from_millis(1200), "{:?}", pace.usual());
        // Also where each balancer has one change at a time.
        changes(&mut pace, 10, |_| 5.0);
        for _ in 0..40 {
            changes(&mut pace, 1, |_| 1.0);
        }
        assert!(pace.usual() < Duration::from_millis(1700), "{:?}", pace.usual());
    }

    #[test]
    fn a_cloud_that_becomes_a_little_faster_is_followed() {
        let mut pace = made_in(5.0);
        for seconds in [5.0, 4.0, 3.0] {
            for _ in 0..6 {
                changes(&mut pace, 10, |_| seconds);
            }
            assert!(pace.usual().as_secs_f64() < seconds * 1.1, "{seconds}: {:?}", pace.usual());
        }
    }

    #[test]
    fn no_wait_is_blind_for_longer_than_a_minute() {
        let mut pace = Pace::default();
        changes(&mut pace, 3, |_| 290.0);
        pace.sent("lb", Instant::now());
        assert_eq!(pace.usual(), LONGEST);
        // A process that died between two changes is no measurement.
        let mut pace = Pace::default();
        let now = Instant::now();
        pace.sent("lb", now);
        pace.sent("lb", now + Duration::from_secs(600));
        assert_eq!(pace.usual(), EARLY);
    }
}
