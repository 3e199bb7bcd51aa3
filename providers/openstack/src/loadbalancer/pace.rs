//! The time that changes of a load balancer take, learned from the attempts that came too early and from the others.
//! Pure.
//!
//! Each load balancer has its own times: a change with ten ports takes several times as long as one with a single port.
//! Two times are kept: one after which a change had ended, and an earlier one after which it had not. A change that is
//! late enough moves the first towards the second, by less each time. A change that is too early is refused and sets
//! both. Hardly any change is refused where all take the same time, and one or two in ten where they differ by a factor
//! of two. Refusals cost calls; waiting for the longest time would cost time at each change.
//!
//! * No change of the load balancer was seen: the first attempt is made after a part of the time of its creation, but
//!   not before the shortest time of other load balancers. Each further attempt is made at twice the previous time.
//! * A change that takes much longer than all others is an exception; two in a row mean a slower cloud.
//! * To notice a cloud that became faster, some reads are made at the earlier time. A read that is too early costs less
//!   than a change that is too early.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The first attempt or read when nothing is known yet: some drivers finish at once.
const EARLY: Duration = Duration::from_millis(30);
/// The second one, and the first read of a load balancer that is being deleted.
pub(super) const FIRST: Duration = Duration::from_millis(400);
/// A creation that took longer than this started a virtual machine, which changes do not need.
const WITH_MACHINE: Duration = Duration::from_secs(15);
/// The first attempt at a change, and the first read of a new load balancer, are made after this part of the time of a
/// creation.
const PART: f64 = 0.4;
/// The longest wait for a change without an attempt or a read.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest pause between attempts at a change that takes longer than known.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The shortest pause between attempts.
const LEAST: Duration = Duration::from_millis(60);
/// The usual time is at this part of the interval between the time at which a change had not ended and the one at which
/// it had. It is nearer to the later one: a late attempt costs time once, an early one costs a call.
const BETWEEN: f64 = 0.67;
/// A change that was late enough moves the usual time towards the time that was too early by this part of the distance.
const CLOSER: f64 = 0.2;
/// A change that ended before the time that was too early shows a faster cloud: this part of its time is now too early.
const FASTER: f64 = 0.3;
/// A change that takes longer than the usual time by this factor is an exception.
const EXCEPTION: f64 = 2.5;
/// One in this many reads is made a little before the time that was too early.
const PROBE: u32 = 4;
const BEFORE: f64 = 0.95;
/// The first pause after an attempt at the usual time that was too early, as a part of that time. Each further pause is
/// twice as long.
const LATER: f64 = 0.2;

/// The times that changes of each load balancer take, by its ID.
#[derive(Debug, Default)]
pub(super) struct Pace {
    balancers: BTreeMap<String, Balancer>,
    /// The last creation: the number of listeners, and the time it took.
    creation: Option<(usize, Duration)>,
    /// The number of reads that checked a change for the first time.
    looks: u32,
}

#[derive(Debug, Default)]
struct Balancer {
    learned: Option<Learned>,
    /// Whether the last change was an exception.
    was_late: bool,
    /// The time of its creation, unless a virtual machine was started for it.
    creation: Option<Duration>,
    /// The last change, until it is known to have ended.
    change: Option<Change>,
}

/// The times that changes of a load balancer take.
#[derive(Debug, Clone, Copy)]
struct Learned {
    /// After this time a change had not ended.
    too_early: Duration,
    /// After this time a change has probably ended.
    usual: Duration,
}

impl Learned {
    /// The times for a change that had not ended after `not_ended` and had ended after `ended`.
    fn between(not_ended: Duration, ended: Duration) -> Learned {
        let usual = not_ended + ended.saturating_sub(not_ended).mul_f64(BETWEEN);
        Learned { too_early: not_ended, usual: usual.max(Duration::from_millis(1)) }
    }
}

/// A change that may not have ended.
#[derive(Debug, Clone, Copy)]
struct Change {
    since: Instant,
    /// It had not ended after this time.
    not_ended: Duration,
    /// The number of times that this was seen.
    seen: u32,
    /// Whether another program may have started it.
    is_foreign: bool,
}

impl Pace {
    /// The time for the next change of a load balancer, if an earlier one may not have ended.
    pub(super) fn next_change(&self, id: &str) -> Option<Instant> {
        let balancer = self.balancers.get(id)?;
        let change = balancer.change?;
        Some(change.since + if change.seen == 0 { self.usual(balancer) } else { balancer.again(change) })
    }

    /// The time to read whether a change has ended, if one may not have.
    pub(super) fn next_look(&mut self, id: &str) -> Option<Instant> {
        let balancer = self.balancers.get(id)?;
        let change = balancer.change?;
        self.looks = self.looks.wrapping_add(u32::from(change.seen == 0));
        let is_probe = change.seen == 0 && self.looks.is_multiple_of(PROBE);
        match balancer.learned {
            Some(Learned { too_early, .. }) if is_probe && !too_early.is_zero() => {
                Some(change.since + too_early.mul_f64(BEFORE))
            }
            _ => self.next_change(id),
        }
    }

    /// The time of the first read of a load balancer that is created with this many listeners, and whose request took
    /// `answered_in`. Later reads follow after [`pause`]. The time of a creation is between constant and proportional
    /// to the listeners.
    pub(super) fn first_look(&self, listeners: usize, answered_in: Duration) -> Duration {
        let part =
            |(of_last, took): (usize, Duration)| took.mul_f64(PART * (listeners + 1) as f64 / (of_last + 1) as f64);
        self.creation.map_or(answered_in, part).clamp(EARLY, LONGEST_PAUSE)
    }

    /// The same for a load balancer that is being deleted.
    pub(super) fn first_look_at_deletion(&self) -> Duration {
        if self.creation.is_none() { EARLY } else { FIRST }
    }

    /// Records that a load balancer with `listeners` listeners was created in this time.
    pub(super) fn created(&mut self, id: &str, listeners: usize, took: Duration) {
        self.creation = Some((listeners, took));
        self.of(id).creation = Some(took).filter(|took| *took < WITH_MACHINE);
    }

    /// Records that a change was accepted: the previous one has ended.
    pub(super) fn sent(&mut self, id: &str, now: Instant) {
        self.ended(id, now);
        self.of(id).change = Some(Change { since: now, not_ended: Duration::ZERO, seen: 0, is_foreign: false });
    }

    /// Records that a change has not ended: another one was refused, or a read has shown it.
    pub(super) fn not_ended(&mut self, id: &str, now: Instant) {
        let foreign = Change { since: now, not_ended: Duration::ZERO, seen: 0, is_foreign: true };
        let change = self.of(id).change.get_or_insert(foreign);
        change.not_ended = now - change.since;
        change.seen += 1;
    }

    /// Records that the last change has ended.
    pub(super) fn ended(&mut self, id: &str, now: Instant) {
        if let Some(balancer) = self.balancers.get_mut(id)
            && let Some(Change { since, not_ended, is_foreign: false, .. }) = balancer.change.take()
        {
            balancer.learn(not_ended, now - since);
        }
    }

    /// Removes a load balancer that was deleted.
    pub(super) fn forget(&mut self, id: &str) {
        self.balancers.remove(id);
    }

    fn of(&mut self, id: &str) -> &mut Balancer {
        self.balancers.entry(id.to_owned()).or_default()
    }

    /// The time after which a change has probably ended.
    fn usual(&self, balancer: &Balancer) -> Duration {
        let usual_of = |balancer: &Balancer| balancer.learned.map(|learned| learned.usual);
        let of_others = || self.balancers.values().filter_map(usual_of).min();
        let guess = || of_others().max(balancer.creation.map(|took| took.mul_f64(PART)));
        usual_of(balancer).or_else(guess).unwrap_or(EARLY).min(LONGEST)
    }
}

impl Balancer {
    /// The time after which a change that was seen not to have ended has probably ended.
    fn again(&self, change: Change) -> Duration {
        let so_far = change.not_ended;
        let until = |known: Option<Duration>| {
            let left = known?.min(LONGEST).saturating_sub(so_far);
            Some(left).filter(|left| *left >= LEAST)
        };
        let pause = match self.learned {
            Some(Learned { usual, .. }) => until(Some(usual)).unwrap_or_else(|| {
                (so_far.mul_f64(LATER) * 2_u32.pow(change.seen.clamp(1, 8) - 1)).clamp(LEAST, LONGEST_PAUSE)
            }),
            None => {
                let twice = so_far.clamp(FIRST, LONGEST_PAUSE);
                until(self.creation).map_or(twice, |left| left.min(twice))
            }
        };
        so_far + pause
    }

    /// Learns from a change that had not ended after `not_ended` and had ended after `ended`.
    fn learn(&mut self, not_ended: Duration, ended: Duration) {
        let Some(Learned { too_early, usual }) = self.learned else {
            // Nothing was sent or read for a long time.
            let is_vague = not_ended.is_zero() && ended > LONGEST;
            self.learned = (!is_vague).then(|| Learned::between(not_ended, ended));
            return;
        };
        let is_exception = not_ended > usual.mul_f64(EXCEPTION);
        if not_ended < usual {
            let too_early = not_ended.max(if ended < too_early { ended.mul_f64(FASTER) } else { too_early });
            self.learned = Some(Learned { too_early, usual: usual - usual.saturating_sub(too_early).mul_f64(CLOSER) });
        } else if !is_exception || self.was_late {
            self.learned = Some(Learned::between(not_ended, ended));
        }
        self.was_late = is_exception;
    }
}

/// The pause before the next read of a load balancer that has been created or deleted for this long so far.
pub(super) fn pause(so_far: Duration) -> Duration {
    so_far.mul_f64(0.35).clamp(FIRST / 2, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of changes of one load balancer, and of the reads after the last one.
    struct Cost {
        refused: usize,
        looks: usize,
        seconds: f64,
    }

    /// Makes `count` changes, of which each takes `takes` seconds.
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
                pace.not_ended("lb", now);
            }
            pace.sent("lb", now);
            began = now;
        }
        while let Some(due) = pace.next_look("lb") {
            (now, cost.looks) = (now.max(due), cost.looks + 1);
            match (now - began).as_secs_f64() >= takes(count - 1) {
                true => pace.ended("lb", now),
                false => pace.not_ended("lb", now),
            }
        }
        cost.seconds = (now - start).as_secs_f64();
        cost
    }

    fn usual(pace: &Pace) -> Duration {
        pace.usual(pace.balancers.get("lb").unwrap_or(&Balancer::default()))
    }

    fn made_in(seconds: f64) -> Pace {
        let mut pace = Pace::default();
        pace.created("lb", 1, Duration::from_secs_f64(seconds));
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
            // A creation with a virtual machine is no measure for changes.
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
        let before = usual(&pace);
        changes(&mut pace, 1, |_| 25.0);
        assert_eq!(usual(&pace), before);
        changes(&mut pace, 10, |change| if change == 4 { 25.0 } else { 5.0 });
        assert!(usual(&pace) < Duration::from_millis(5500), "{:?}", usual(&pace));
        changes(&mut pace, 4, |_| 25.0);
        assert!(usual(&pace) > Duration::from_secs(20), "{:?}", usual(&pace));
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
        assert!(usual(&pace) < Duration::from_millis(1200), "{:?}", usual(&pace));
        // The same where each load balancer gets one change at a time.
        changes(&mut pace, 10, |_| 5.0);
        for _ in 0..40 {
            changes(&mut pace, 1, |_| 1.0);
        }
        assert!(usual(&pace) < Duration::from_millis(1700), "{:?}", usual(&pace));
    }

    #[test]
    fn a_cloud_that_becomes_a_little_faster_is_followed() {
        let mut pace = made_in(5.0);
        for seconds in [5.0, 4.0, 3.0] {
            for _ in 0..6 {
                changes(&mut pace, 10, |_| seconds);
            }
            assert!(usual(&pace).as_secs_f64() < seconds * 1.1, "{seconds}: {:?}", usual(&pace));
        }
    }

    #[test]
    fn the_times_of_small_balancers_hardly_matter_to_a_large_one() {
        for creation in [Duration::from_secs(5), Duration::from_secs(90)] {
            let mut pace = Pace::default();
            for small in ["a", "b", "c"] {
                let now = Instant::now();
                pace.sent(small, now);
                pace.ended(small, now + Duration::from_millis(600));
            }
            pace.created("lb", 1, creation);
            let first = changes(&mut pace, 10, |_| 2.4);
            assert!(first.refused <= 4 && first.seconds < 30.0, "{} and {} s", first.refused, first.seconds);
            pace.sent("a", Instant::now());
            assert!(pace.usual(&pace.balancers["a"]) < Duration::from_millis(700));
        }
    }

    #[test]
    fn a_creation_is_looked_at_when_it_may_have_ended() {
        let mut pace = Pace::default();
        // The first creation, one like it, a larger one, and a small one after it.
        for (listeners, takes, most) in [(1, 2.0, 6), (1, 2.0, 5), (10, 5.0, 3), (10, 5.0, 5), (1, 2.0, 6)] {
            let (mut now, mut looks) = (pace.first_look(listeners, Duration::from_secs_f64(takes / 4.0)), 1);
            while now.as_secs_f64() < takes {
                (now, looks) = (now + pause(now), looks + 1);
            }
            assert!(looks <= most && now.as_secs_f64() < takes * 1.35, "{listeners}: {looks} looks, {now:?}");
            pace.created("lb", listeners, now);
        }
        // A virtual machine boots for a minute.
        pace.created("lb", 1, Duration::from_secs(90));
        assert_eq!(pace.first_look(10, Duration::ZERO), LONGEST_PAUSE);
    }

    #[test]
    fn no_wait_is_blind_for_longer_than_a_minute() {
        let mut pace = Pace::default();
        changes(&mut pace, 3, |_| 290.0);
        pace.sent("lb", Instant::now());
        assert_eq!(usual(&pace), LONGEST);
        // A process that died between two changes is no measurement.
        let mut pace = Pace::default();
        let now = Instant::now();
        pace.sent("lb", now);
        pace.sent("lb", now + Duration::from_secs(600));
        assert_eq!(usual(&pace), EARLY);
    }
}
