//! Deletions right after other writes.
//!
//! AWS may answer a read from before a write that it has acknowledged. A plan made from such an answer is mended by the next
//! one, save that a deletion has no next one: what it doesn't see is nobody's any more once the Service is gone. So a deletion
//! ends only with a look that began some time after this process last wrote for the Service. (A new process has waited longer
//! than that before it leads.)

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::desired::{Goal, Wish};
use super::observe::Observed;
use super::plan::LookAgain;
use super::wish::some;
use crate::cluster::Cluster;

/// After this long, reads show what was written.
pub(super) const SETTLED: Duration = Duration::from_secs(10);

/// When something was last written for each balancer, by name.
#[derive(Debug)]
pub(crate) struct Settling {
    cluster: Cluster,
    written: Mutex<BTreeMap<String, Instant>>,
}

impl Settling {
    /// Nothing was written yet.
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, written: Mutex::default() }
    }

    /// Something was written for a balancer that shall be.
    pub(crate) fn wrote(&self, balancer: &str) {
        if let Some(now) = self.now() {
            let mut written = self.written();
            written.retain(|_, at| now.saturating_duration_since(*at) < SETTLED);
            written.insert(balancer.to_owned(), now);
        }
    }

    /// How long reads may still not show all that was written for a balancer.
    pub(crate) fn left(&self, balancer: &str) -> Option<Duration> {
        let now = self.now()?;
        let at = self.written().get(balancer).copied()?;
        SETTLED.checked_sub(now.saturating_duration_since(at)).filter(|left| !left.is_zero())
    }

    /// Without a clock nobody leads yet, and nothing is written.
    fn now(&self) -> Option<Instant> {
        self.cluster.context().map(|context| context.clock.now())
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is answered when AWS does not show everything yet.
pub(crate) fn look_again(wish: &Wish, observed: &Observed, after: Duration) -> LookAgain {
    let reason = match &wish.goal {
        Goal::Gone => "AWS does not show yet what was just written for the load balancer".to_owned(),
        Goal::Classic(_) | Goal::Network(_) => {
            let unseen: Vec<&str> = observed.unseen.iter().map(String::as_str).collect();
            format!("EC2 does not show the instances {} of new nodes yet", some(&unseen))
        }
    };
    LookAgain { after, reason }
}
