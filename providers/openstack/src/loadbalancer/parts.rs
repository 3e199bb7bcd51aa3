//! Listeners and pools of balancers that have not changed since they were recorded as matching.
//!
//! Adding or removing a node affects only members. While a balancer shows the recorded update time (see
//! [`super::applied`]), its listeners and pools are those that were read then, and only the members are read.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ccm_kit::lock;

use super::observed::Balancer;
use crate::client::octavia::{ACTIVE, Listener, LoadBalancer, Pool};

/// By balancer ID: the update time, and the parts at that time.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<BTreeMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    updated_at: String,
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
}

impl Parts {
    /// Keeps a balancer that was read whole, or changed as planned since; `lb` is its last seen state.
    pub(super) fn keep(&self, lb: &LoadBalancer, balancer: &Balancer) {
        if balancer.is_unread || lb.updated_at.is_empty() {
            return;
        }
        let (listeners, mut pools) = (balancer.listeners.clone(), balancer.pools.clone());
        // There may be thousands of members.
        pools.iter_mut().for_each(|pool| pool.members = Vec::new());
        lock(&self.0).insert(lb.id.clone(), Kept { updated_at: lb.updated_at.clone(), listeners, pools });
    }

    /// The listeners and pools, if the balancer has not changed.
    pub(super) fn of(&self, lb: &LoadBalancer) -> Option<(Vec<Listener>, Vec<Pool>)> {
        let kept = lock(&self.0);
        let kept = kept.get(&lb.id).filter(|kept| kept.updated_at == lb.updated_at)?;
        (lb.provisioning_status == ACTIVE).then(|| (kept.listeners.clone(), kept.pools.clone()))
    }

    /// Drops a balancer that is deleted, or whose change failed.
    pub(super) fn forget(&self, balancer: &str) {
        lock(&self.0).remove(balancer);
    }
}
