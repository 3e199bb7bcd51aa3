//! Instances of nodes that do not exist.
//!
//! A call that names such an instance fails, so it is left out. It may come back with the same name, as those of managed
//! groups do: until then it is looked for again, at first soon.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::hosts::Host;

/// The first time until a missing instance is looked for again; doubled each time.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(300);
/// Instances of nodes that were deleted are forgotten.
const KEPT: Duration = Duration::from_secs(2 * LONGEST.as_secs());

/// The instances that were missing when they were last looked for.
#[derive(Debug, Default)]
pub(super) struct Missing(Mutex<BTreeMap<Host, Miss>>);

#[derive(Debug, Clone, Copy)]
struct Miss {
    at: Instant,
    pause: Duration,
}

impl Missing {
    /// Records that an instance does not exist.
    pub(super) fn add(&self, host: Host) {
        let mut missing = self.0.lock();
        missing.retain(|_, miss| miss.at.elapsed() < KEPT);
        let at = Instant::now();
        let miss = missing.entry(host).or_insert(Miss { at, pause: FIRST });
        if miss.at.elapsed() >= miss.pause {
            *miss = Miss { at, pause: LONGEST.min(miss.pause.saturating_mul(2)) };
        }
    }

    /// Records that instances exist.
    pub(super) fn seen<'h>(&self, hosts: impl IntoIterator<Item = &'h Host>) {
        let mut missing = self.0.lock();
        for host in hosts {
            missing.remove(host);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn contains(&self, host: &Host) -> bool {
        self.0.lock().contains_key(host)
    }

    /// Those of these hosts that it is time to look for.
    pub(super) fn due(&self, hosts: &BTreeSet<&Host>) -> Vec<Host> {
        let missing = self.0.lock();
        let is_due = |(host, miss): &(&Host, &Miss)| miss.at.elapsed() >= miss.pause && hosts.contains(host);
        missing.iter().filter(is_due).map(|(host, _)| host.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host { zone: "z".to_owned(), name: name.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_instance_is_looked_for_ever_less_often_and_forgotten_when_it_is_seen() {
        let (missing, n1, n2) = (Missing::default(), host("n1"), host("n2"));
        let hosts = BTreeSet::from([&n1, &n2]);
        missing.add(n1.clone());
        assert!(missing.contains(&n1) && !missing.contains(&n2));
        for seconds in [30, 60, 120, 240, 300, 300] {
            missing.add(n1.clone());
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(missing.due(&hosts), [] as [Host; 0]);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(missing.due(&hosts), std::slice::from_ref(&n1));
            missing.add(n1.clone());
        }
        missing.seen([&n1, &n2]);
        assert!(!missing.contains(&n1) && missing.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn instances_that_nobody_asks_for_are_forgotten() {
        let missing = Missing::default();
        missing.add(host("n1"));
        tokio::time::advance(KEPT).await;
        missing.add(host("n2"));
        assert!(!missing.contains(&host("n1")));
    }
}
