//! Reads instances from EC2: by ID, by private DNS name, and all of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_kit::Interrupted;

use crate::client::ec2::Instance;
use crate::client::operation::{Operation, Service};
use crate::client::{Answer, Api, ApiError, FILTER_VALUES, Query, Tags};
use crate::node::identity::InstanceId;
use crate::ownership::Ownership;

/// Most IDs in one call. The same as upstream; EC2 may accept more.
pub(crate) const IDS_AT_ONCE: usize = 500;
/// Codes of a call that names an instance unknown to EC2.
const NOT_FOUND: &[&str] = &["InvalidInstanceID.NotFound"];
/// All states except `terminated`: a former instance with the same address may have had the name.
pub(crate) const LIVE_STATES: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

pub(crate) const DESCRIBE_INSTANCES: Operation = Operation::new(Service::Ec2, "DescribeInstances");

/// EC2's answer for an ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The instance exists, or existed a short while ago: see its state.
    Instance(Arc<Instance>),
    /// EC2 reported that the ID does not exist.
    Denied,
}

/// Instances by ID. An ID that is neither an instance nor denied was missing from the answer.
///
/// Reads by ID first. One unknown ID makes EC2 refuse the whole call and name it: then the other IDs are read again.
/// If that fails too, reads by filter, where unknown IDs are simply absent.
#[derive(Debug, Clone)]
pub(crate) struct Instances(pub(crate) Arc<dyn Api>);

impl Instances {
    /// At most [`IDS_AT_ONCE`] in one call, and one answer per call; the calls run concurrently.
    pub(crate) async fn by_ids(
        &self,
        ids: &BTreeSet<InstanceId>,
    ) -> Vec<(Vec<InstanceId>, Answer<BTreeMap<InstanceId, Seen>>)> {
        let ids: Vec<InstanceId> = ids.iter().cloned().collect();
        let calls = ids.chunks(IDS_AT_ONCE).map(|some| async move { (some.to_vec(), self.seen(some).await) });
        futures::future::join_all(calls).await
    }

    async fn asked(&self, query: &Query) -> Answer<BTreeMap<InstanceId, Seen>> {
        let found = self.0.instances(query).await?;
        let by_id = |instance: Instance| Some((InstanceId::parse(&instance.id)?, Seen::Instance(Arc::new(instance))));
        Ok(found.into_iter().filter_map(by_id).collect())
    }

    /// Live instances by their private DNS names, of the cluster and others; several per name if EC2 has several. Without a
    /// cluster ID, those of the VPC: the networks of several VPCs may be the same.
    pub(crate) async fn by_names(
        &self,
        names: &BTreeSet<String>,
        ownership: &Ownership,
        vpc: &str,
    ) -> Answer<Vec<Arc<Instance>>> {
        let of_vpc = ownership.cluster_key().is_none().then_some(vpc);
        let names: Vec<&String> = names.iter().collect();
        let calls = names.chunks(FILTER_VALUES).map(|some| async move {
            let query = Query::by("private-dns-name", some.iter().copied()).and("instance-state-name", LIVE_STATES);
            let query = of_vpc.iter().fold(query, |query, vpc| query.and("vpc-id", [*vpc]));
            self.0.instances(&query).await
        });
        let answers = futures::future::try_join_all(calls).await?;
        Ok(answers.into_iter().flatten().map(Arc::new).collect())
    }

    /// All instances with the cluster's tag, 1,000 per page; without a cluster ID, all of the VPC. Tags are left out:
    /// nothing reads them afterwards.
    pub(crate) async fn of_cluster(&self, ownership: &Ownership, vpc: &str) -> Answer<Vec<Arc<Instance>>> {
        let Some((marked, legacy)) = ownership.marked(&Query::all()) else {
            return Ok(self.0.instances(&Query::by("vpc-id", [vpc])).await?.into_iter().map(untagged).collect());
        };
        let (marked, legacy) = futures::future::try_join(self.0.instances(&marked), async {
            if ownership.legacy { self.0.instances(&legacy).await } else { Ok(Vec::new()) }
        })
        .await?;
        let by_id: BTreeMap<String, Arc<Instance>> =
            marked.into_iter().chain(legacy).map(|instance| (instance.id.clone(), untagged(instance))).collect();
        Ok(by_id.into_values().collect())
    }

    /// One call for all IDs, and further calls only if an ID is unknown.
    pub(crate) async fn seen(&self, ids: &[InstanceId]) -> Answer<BTreeMap<InstanceId, Seen>> {
        let error = match self.asked(&Query::ids(ids.iter().map(InstanceId::as_str))).await {
            Ok(seen) => return Ok(seen),
            Err(error) if error.is(NOT_FOUND) => error,
            Err(error) => return Err(error),
        };
        let denied: BTreeSet<InstanceId> = named(&error).filter(|id| ids.contains(id)).collect();
        let rest: Vec<&str> = ids.iter().filter(|id| !denied.contains(*id)).map(InstanceId::as_str).collect();
        let mut seen = match rest.is_empty() {
            true => BTreeMap::new(),
            false if denied.is_empty() => self.asked(&Query::by("instance-id", rest)).await?,
            false => match self.asked(&Query::ids(rest.iter().copied())).await {
                Err(error) if error.is(NOT_FOUND) => self.asked(&Query::by("instance-id", rest)).await?,
                answer => answer?,
            },
        };
        seen.extend(denied.into_iter().map(|id| (id, Seen::Denied)));
        Ok(seen)
    }
}

fn untagged(instance: Instance) -> Arc<Instance> {
    Arc::new(Instance { tags: Tags::default(), ..instance })
}

pub(crate) fn interrupted(how: Interrupted) -> ApiError {
    ApiError::interrupted(DESCRIBE_INSTANCES, how)
}

/// The IDs in `The instance IDs 'i-…, i-…' do not exist`.
fn named(error: &ApiError) -> impl Iterator<Item = InstanceId> {
    error.message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter_map(InstanceId::parse)
}
