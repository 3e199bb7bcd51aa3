//! What load balancers and routes must know of the instances of nodes.
//!
//! Upstream lists the whole account and keeps that for ten minutes, unless a node asks for something that is not in it, such
//! as a Fargate node: then each Service lists again (`pkg/providers/v1/aws.go`, `getInstancesByIDs`). Here only the missing
//! instances are asked for, joined with what others ask at the same time, and what is not there is remembered for some seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ccm_kit::{Batcher, Limits};
use tokio::time::Instant;

use crate::client::ec2::Instance;
use crate::client::{Answer, Api};
use crate::node::identity::InstanceId;
use crate::node::instances::describe::{IDS_AT_ONCE, Instances, Seen};

#[cfg(all(test, feature = "sdk"))]
mod tests;

/// How long an instance may be remembered.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(600);
/// How long "there is no such instance" is remembered: EC2 shows new ones within seconds.
const MISS_KEPT: Duration = Duration::from_secs(5);

/// An instance, reduced to what load balancers and routes read. Tags are left out on purpose: decisions about what belongs
/// to the cluster need them fresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: InstanceId,
    /// As EC2 spells it; empty when EC2 left it out.
    pub(crate) state: String,
    pub(crate) zone: String,
    pub(crate) vpc: String,
    /// IDs, in EC2's order.
    pub(crate) security_groups: Vec<String>,
    /// The interface with device index 0.
    pub(crate) primary_interface: Option<String>,
    /// How many interfaces are attached.
    pub(crate) interfaces: usize,
    /// Of the primary interface, where EC2 tells; else of the instance.
    pub(crate) source_dest_check: Option<bool>,
}

impl Member {
    /// What is needed of an instance as EC2 tells it.
    pub(crate) fn of(id: InstanceId, instance: &Instance) -> Self {
        let primary = instance.interfaces.iter().find(|interface| interface.device_index == Some(0));
        Self {
            id,
            state: instance.state.clone().unwrap_or_default(),
            zone: instance.zone.clone(),
            vpc: instance.vpc.clone(),
            security_groups: instance.security_groups.clone(),
            primary_interface: primary.map(|interface| interface.id.clone()),
            interfaces: instance.interfaces.iter().filter(|interface| interface.device_index.is_some()).count(),
            source_dest_check: primary.and_then(|interface| interface.source_dest_check).or(instance.source_dest_check),
        }
    }

    /// Whether the instance will never run again: it can be no target.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(&*self.state, "shutting-down" | "terminated")
    }
}

/// Instances by ID, remembered; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fleet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    batcher: Batcher<Instances>,
    known: Mutex<BTreeMap<InstanceId, Known>>,
}

/// What was last seen of an ID; no member: there was none.
#[derive(Debug, Clone)]
struct Known {
    // Before the question was asked.
    asked: Instant,
    member: Option<Arc<Member>>,
}

impl Known {
    fn is_fresh(&self, max_age: Duration, not_before: Option<Instant>) -> bool {
        let kept = if self.member.is_some() { max_age.min(MAX_AGE) } else { max_age.min(MISS_KEPT) };
        self.asked.elapsed() < kept && not_before.is_none_or(|not_before| self.asked >= not_before)
    }
}

impl Fleet {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        let batcher = Batcher::new(Instances(api), Limits::of(IDS_AT_ONCE));
        Self(Arc::new(Inner { batcher, known: Mutex::default() }))
    }

    /// The instances among the IDs that exist, seen at most `max_age` (and never more than [`MAX_AGE`]) ago and not before
    /// `not_before`, the time of the own last write to one of them.
    ///
    /// # Errors
    ///
    /// EC2 could not be asked about some of them.
    pub(crate) async fn get(
        &self,
        ids: &BTreeSet<InstanceId>,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Answer<BTreeMap<InstanceId, Arc<Member>>> {
        let mut members = BTreeMap::new();
        let mut missing = Vec::new();
        {
            let known = self.known();
            for id in ids {
                match known.get(id).filter(|known| known.is_fresh(max_age, not_before)) {
                    Some(Known { member: Some(member), .. }) => drop(members.insert(id.clone(), member.clone())),
                    Some(Known { member: None, .. }) => {}
                    None => missing.push(id.clone()),
                }
            }
        }
        if missing.is_empty() {
            return Ok(members);
        }
        let asked = Instant::now();
        let answers = self.0.batcher.ask(&(), missing).await;
        let mut known = self.known();
        known.retain(|_, known| known.is_fresh(MAX_AGE, None));
        let mut failed = None;
        for (id, answer) in answers {
            let member = match answer {
                Ok(Some(Seen::Instance(instance))) => Some(Arc::new(Member::of(id.clone(), &instance))),
                Ok(Some(Seen::Denied) | None) => None,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            members.extend(member.clone().map(|member| (id.clone(), member)));
            known.insert(id, Known { asked, member });
        }
        failed.map_or(Ok(members), Err)
    }

    /// Forgets what is known of an instance, because it was changed.
    pub(crate) fn forget(&self, id: &InstanceId) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Known>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
