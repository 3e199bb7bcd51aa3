//! The instance data that load balancers and routes need.
//!
//! Upstream caches a list of the whole account for ten minutes, unless a node's instance is missing from it, such
//! as a Fargate node: then each Service lists again (`pkg/providers/v1/aws.go`, `getInstancesByIDs`). Here only missing
//! instances are looked up, and nonexistent ones are cached for some seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::{Bulk, Interrupted, Known, Limits};

use crate::client::ec2::Instance;
use crate::client::{Answer, Api, ApiError, Tags};
use crate::node::identity::InstanceId;
use crate::node::instances::describe::{self, IDS_AT_ONCE, Instances, Seen};
use crate::ownership::is_of_cluster;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

/// Cache lifetime of an instance.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(600);
/// Cache lifetime of a nonexistent instance: EC2 shows new ones within seconds.
const MISS_KEPT: Duration = Duration::from_secs(5);

/// An instance, reduced to the fields that load balancers and routes read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Whether the instance will never run again, so that it cannot be a target.
    pub(crate) is_leaving: bool,
    /// Whether the instance is stopped or stopping: AWS refuses it as a target until it runs.
    pub(crate) is_stopped: bool,
    /// The tags that name a cluster.
    pub(crate) clusters: Tags,
    /// IDs, in EC2's order.
    pub(crate) security_groups: Vec<String>,
    pub(crate) primary_interface: Option<String>,
    pub(crate) interfaces: usize,
    /// Of the primary interface, if EC2 returns it; else of the instance.
    pub(crate) source_dest_check: Option<bool>,
}

impl Member {
    pub(crate) fn of(instance: &Instance) -> Self {
        let clusters = instance.tags.iter().filter(|(key, _)| is_of_cluster(key));
        let primary = instance.interfaces.iter().find(|interface| interface.device_index == Some(0));
        Self {
            is_leaving: matches!(instance.state.as_deref(), Some("shutting-down" | "terminated")),
            is_stopped: matches!(instance.state.as_deref(), Some("stopping" | "stopped")),
            clusters: clusters.map(|(key, value)| (key.clone(), value.clone())).collect(),
            security_groups: instance.security_groups.clone(),
            primary_interface: primary.map(|interface| interface.id.clone()),
            interfaces: instance.interfaces.iter().filter(|interface| interface.device_index.is_some()).count(),
            source_dest_check: primary.and_then(|interface| interface.source_dest_check).or(instance.source_dest_check),
        }
    }
}

/// Instances by ID, cached for at most [`MAX_AGE`]; cheap to clone.
pub(crate) type Fleet = Known<Members>;

#[derive(Debug)]
pub(crate) struct Members(Instances);

#[async_trait]
impl Bulk for Members {
    type Item = InstanceId;
    type Answer = Arc<Member>;
    type Error = ApiError;

    async fn call(&self, ids: &[InstanceId]) -> Answer<BTreeMap<InstanceId, Arc<Member>>> {
        let seen = self.0.seen(ids).await?.into_iter();
        let member = |(id, seen): (InstanceId, Seen)| match seen {
            Seen::Instance(instance) => Some((id, Arc::new(Member::of(&instance)))),
            Seen::Denied => None,
        };
        Ok(seen.filter_map(member).collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        describe::interrupted(how)
    }
}

pub(crate) fn new(api: Arc<dyn Api>) -> Fleet {
    Known::new(Members(Instances(api)), Limits::of(IDS_AT_ONCE), MAX_AGE, MISS_KEPT)
}
