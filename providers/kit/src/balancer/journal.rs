//! Recent writes of this process that reads may not show yet.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Cluster;

/// The visible effects of recent writes.
///
/// The API of a cloud may answer reads from servers and databases that lag behind its writes. A plan from such a read
/// would create an object twice, record a deleted one, or report a deletion as done that it did not see. So a cloud
/// records the effects of its writes, and makes no plan from an observation that hides one which matters for it. After
/// `lag` every read shows them. What the process that led before has written is not recorded: see
/// [`former`](Self::former).
#[derive(Debug)]
pub struct Journal<E> {
    cluster: Cluster,
    lag: Duration,
    written: Mutex<BTreeMap<E, Instant>>,
}

impl<E: Ord + Clone + fmt::Debug> Journal<E> {
    /// An empty journal of a cloud whose reads show each write after `lag`.
    pub fn new(cluster: Cluster, lag: Duration) -> Self {
        Self { cluster, lag, written: Mutex::default() }
    }

    /// Records that effects were, or may have been, written. Returns those that were not recorded before: only they may
    /// be [forgotten](Self::forget) if the cloud refuses the write, because the others are from an earlier write.
    pub fn wrote(&self, effects: impl IntoIterator<Item = E>) -> Vec<E> {
        let now = self.cluster.now();
        let mut written = self.written.lock();
        written.retain(|_, at| now.saturating_duration_since(*at) < self.lag);
        effects.into_iter().filter(|effect| written.insert(effect.clone(), now).is_none()).collect()
    }

    /// Forgets effects that were undone, refused or shown.
    pub fn forget(&self, is_gone: impl Fn(&E) -> bool) {
        self.written.lock().retain(|effect, _| !is_gone(effect));
    }

    /// The time until reads show what the process that led before has written; `None` if they do.
    pub fn former(&self) -> Option<Duration> {
        self.lag.checked_sub(self.cluster.leads_for()?).filter(|left| !left.is_zero())
    }

    /// The longest time until reads show all recorded effects that satisfy `is_hidden`; `None` if there are none.
    pub fn hidden(&self, is_hidden: impl Fn(&E) -> bool) -> Option<Duration> {
        let now = self.cluster.now();
        let written = self.written.lock();
        let hidden = written.iter().filter(|(effect, _)| is_hidden(effect));
        let left = hidden.filter_map(|(_, at)| self.lag.checked_sub(now.saturating_duration_since(*at)));
        left.filter(|left| !left.is_zero()).max()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LAG: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_hidden_until_it_is_forgotten_or_the_lag_is_over() {
        let journal = Journal::new(Cluster::default(), LAG);
        assert_eq!(journal.wrote(["web", "api"]), ["web", "api"]);
        advance(Duration::from_secs(2)).await;
        assert_eq!(journal.wrote(["web", "db"]), ["db"], "web is from an earlier write");
        assert_eq!(journal.hidden(|_| true), Some(LAG));
        assert_eq!(journal.hidden(|effect| *effect == "api"), Some(Duration::from_secs(3)));
        journal.forget(|effect| *effect == "db");
        assert_eq!(journal.hidden(|effect| *effect == "db"), None);
        advance(Duration::from_secs(3)).await;
        assert_eq!(journal.hidden(|effect| *effect == "api"), None);
        advance(Duration::from_secs(2)).await;
        assert_eq!(journal.hidden(|_| true), None);
        assert_eq!(journal.former(), None, "it does not lead");
    }
}
