//! The wall clock without its jumps forward.

use std::time::{Duration, Instant, SystemTime};

/// A jump that lasts for this time is a correction: the clock was behind when the process started, or the machine was
/// suspended.
const LASTS: Duration = Duration::from_secs(600);
/// The drift of the two clocks during that time.
const DRIFT: Duration = Duration::from_secs(5);

/// A wall clock that jumps must not make nodes appear older than they are.
#[derive(Debug)]
pub(super) struct Steady {
    base: (Instant, SystemTime),
    /// Since when the wall clock is ahead, and by how much.
    ahead: Option<(Instant, Duration)>,
}

impl Steady {
    pub(super) fn new(now: Instant, wall: SystemTime) -> Self {
        Self { base: (now, wall), ahead: None }
    }

    /// The time, for these readings of both clocks.
    pub(super) fn at(&mut self, now: Instant, wall: SystemTime) -> SystemTime {
        let steady = self.base.1 + now.saturating_duration_since(self.base.0);
        let jump = wall.duration_since(steady).ok().filter(|jump| *jump > DRIFT);
        self.ahead = jump.map(|jump| match self.ahead {
            Some((since, before)) if jump.abs_diff(before) <= DRIFT => (since, before),
            _ => (now, jump),
        });
        if self.ahead.is_some_and(|(since, _)| now.saturating_duration_since(since) >= LASTS) {
            *self = Self::new(now, wall);
            return wall;
        }
        steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// By how many minutes the time is ahead, each minute, for a wall clock that is ahead by these.
    fn ahead(wall_by: &[u32]) -> Vec<u64> {
        let (start, epoch) = (Instant::now(), SystemTime::UNIX_EPOCH);
        let mut steady = Steady::new(start, epoch);
        let by = |(minute, by): (u32, &u32)| {
            let time = steady.at(start + MINUTE * minute, epoch + MINUTE * (minute + by));
            time.duration_since(epoch + MINUTE * minute).unwrap().as_secs() / 60
        };
        (0..).zip(wall_by).map(by).collect()
    }

    #[test]
    fn a_jump_forward_does_not_count() {
        assert_eq!(ahead(&[0, 0, 180, 0, 0, 0]), [0; 6]);
        assert_eq!(ahead(&[0, 180, 180, 180, 180, 180, 180, 180, 180, 180, 0, 180, 0]), [0; 13]);
        let moving: Vec<u32> = (0..30).collect();
        assert_eq!(ahead(&moving), [0; 30], "it is not the same jump");
    }

    #[test]
    fn a_clock_that_was_behind_at_the_start_counts_ten_minutes_after_its_correction() {
        let corrected = [[0].as_slice(), &[180; 14]].concat();
        let expected = [[0; 11].as_slice(), &[180; 4]].concat();
        assert_eq!(ahead(&corrected), expected);
    }
}
