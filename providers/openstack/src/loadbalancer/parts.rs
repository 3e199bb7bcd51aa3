//! Listeners and pools of balancers that have not changed since they were recorded as matching.
//!
//! Adding or removing a node affects only members. While a balancer shows the recorded update time (see
//! [`super::applied`]), its listeners and pools are those that were read then, and only the members are read.
//!
//! The time is in seconds, and a change of nodes ends without another read of them: until they were read later than that,
//! an ensure reads them again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::observed::Balancer;
use crate::client::octavia::{ACTIVE, Listener, LoadBalancer, Pool};

/// After this time, no other change can have the same update time.
const PASSED: Duration = Duration::from_secs(2);

/// By balancer ID: the update time, and the parts at that time.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<BTreeMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    updated_at: String,
    /// When this time was first seen.
    since: Instant,
    /// Whether the parts may be older than the update time: they were not read after it had passed.
    may_be_older: bool,
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
}

impl Parts {
    /// Keeps a balancer that was read whole (`is_read`), or changed as planned since; `lb` is its last seen state.
    pub(super) fn keep(&self, lb: &LoadBalancer, balancer: &Balancer, is_read: bool, now: Instant) {
        if balancer.is_unread || lb.updated_at.is_empty() {
            return;
        }
        let (listeners, mut pools) = (balancer.listeners.clone(), balancer.pools.clone());
        // There may be thousands of members.
        pools.iter_mut().for_each(|pool| pool.members = Vec::new());
        let mut all = self.0.lock();
        let before = all.get(&lb.id).filter(|kept| kept.updated_at == lb.updated_at);
        let since = before.map_or(now, |kept| kept.since);
        let has_passed = is_read && now.saturating_duration_since(since) >= PASSED;
        let may_be_older = before.is_none_or(|kept| kept.may_be_older) && !has_passed;
        let updated_at = lb.updated_at.clone();
        all.insert(lb.id.clone(), Kept { updated_at, since, may_be_older, listeners, pools });
    }

    /// The listeners and pools, if the balancer has not changed.
    pub(super) fn of(&self, lb: &LoadBalancer) -> Option<(Vec<Listener>, Vec<Pool>)> {
        let kept = self.0.lock();
        let kept = kept.get(&lb.id).filter(|kept| kept.updated_at == lb.updated_at)?;
        (lb.provisioning_status == ACTIVE).then(|| (kept.listeners.clone(), kept.pools.clone()))
    }

    /// Whether this process has not read the parts since the update time had passed.
    pub(super) fn may_be_older(&self, lb: &LoadBalancer) -> bool {
        self.0.lock().get(&lb.id).is_some_and(|kept| kept.updated_at == lb.updated_at && kept.may_be_older)
    }

    /// Drops a balancer that is deleted, or whose change failed.
    pub(super) fn forget(&self, balancer: &str) {
        self.0.lock().remove(balancer);
    }
}
