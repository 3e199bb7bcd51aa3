//! Checks the instances of the nodes: their identification, tags and VPC. Reads first, then pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_kit::inspect::migration::{IDS, NAMES, in_order};
use ccm_provider::{Check, Claims, NodeRef};

use crate::client::ec2::{Instance, SecurityGroup};
use crate::client::{ApiError, FILTER_VALUES, Query};
use crate::inspect::Inspector;
use crate::loadbalancer::plan::security_groups::nodes::group_of;
use crate::node::identity::{self, BadProviderId, InstanceId, Machine, ProviderId, Wanted};
use crate::node::instances::describe::{Instances, LIVE_STATES, Seen};
use crate::ownership::CLUSTER_PREFIX;

const TAGS: &str = "instance-tags";
const VPC: &str = "node-vpc";
const GROUPS: &str = "node-security-groups";

/// The instances of the nodes, and their security groups.
#[derive(Debug, Default)]
pub(super) struct NodeInstances {
    pub(super) by_id: BTreeMap<InstanceId, Seen>,
    by_name: BTreeMap<String, Vec<Arc<Instance>>>,
    pub(super) groups: BTreeMap<String, SecurityGroup>,
}

impl NodeInstances {
    pub(super) fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let by_id = self.by_id.values().filter_map(|seen| match seen {
            Seen::Instance(instance) => Some(instance),
            Seen::Denied => None,
        });
        by_id.chain(self.by_name.values().flatten())
    }
}

pub(super) async fn read(aws: &Inspector, claims: &Claims) -> Result<NodeInstances, ApiError> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for node in &claims.nodes {
        match identity::wanted(node, aws.settings.own.as_ref()) {
            Wanted::Machine(Machine::Ec2(id)) => drop(ids.insert(id)),
            Wanted::Name(name) => drop(names.insert(name)),
            Wanted::Machine(Machine::Fargate(_)) | Wanted::Never(_) => {}
        }
    }
    let mut read = NodeInstances::default();
    for (_, answer) in Instances(aws.api.clone()).by_ids(&ids).await {
        read.by_id.extend(answer?);
    }
    let names: Vec<String> = names.into_iter().collect();
    for some in names.chunks(FILTER_VALUES) {
        // Including instances without the cluster's tag, which a check reports.
        let query = Query::by("private-dns-name", some).and("instance-state-name", LIVE_STATES);
        for instance in aws.api.instances(&query).await? {
            read.by_name.entry(instance.private_dns_name.clone()).or_default().push(Arc::new(instance));
        }
    }
    let ids: BTreeSet<String> = read.instances().flat_map(|instance| &instance.security_groups).cloned().collect();
    let ids: Vec<String> = ids.into_iter().collect();
    for some in ids.chunks(FILTER_VALUES) {
        read.groups.extend(aws.groups(some).await?);
    }
    Ok(read)
}

pub(super) fn checks(aws: &Inspector, claims: &Claims, read: &NodeInstances) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut good = 0_usize;
    for node in &claims.nodes {
        let before = checks.len();
        if let Some(instance) = identified(aws, node, read, &mut checks) {
            found.entry(&instance.id).or_default().push(&node.name);
            checks.extend(of_instance(aws, node, instance, read));
        }
        good += usize::from(checks.len() == before);
    }
    for (instance, nodes) in found.iter().filter(|(_, nodes)| nodes.len() > 1) {
        let text = format!("several nodes have instance {instance}: {}", nodes.join(", "));
        let fix = "delete the surplus Node objects: an instance of several nodes gets no routes";
        checks.push(Check::error(IDS, format!("node {}", nodes.join(", ")), text, fix));
    }
    checks.extend(in_order(good, claims.nodes.len()));
    checks
}

/// The instance of a node; adds a check if there is none.
fn identified<'a>(
    aws: &Inspector,
    node: &NodeRef,
    read: &'a NodeInstances,
    checks: &mut Vec<Check>,
) -> Option<&'a Arc<Instance>> {
    let subject = format!("node {}", node.name);
    let wanted = identity::wanted(node, aws.settings.own.as_ref());
    let found = match &wanted {
        Wanted::Never(BadProviderId::Foreign(id)) => {
            checks.push(Check::good(
                IDS,
                subject,
                format!("{id} belongs to another cloud: the node is left unchanged"),
            ));
            return None;
        }
        Wanted::Never(error) => {
            let fix = "delete the Node and let the kubelet register it again, with the right --provider-id or none";
            checks.push(Check::error(IDS, subject, error.to_string(), fix));
            return None;
        }
        Wanted::Machine(Machine::Fargate(_)) => return None,
        Wanted::Machine(Machine::Ec2(id)) => match read.by_id.get(id) {
            Some(Seen::Instance(instance)) => Some(instance),
            Some(Seen::Denied) | None => {
                let text = format!("EC2 shows no instance {id}: a node that is not Ready would be deleted");
                let fix = "check that region and credentials are those of the cluster; delete a node whose machine no longer exists";
                checks.push(Check::error(IDS, subject, text, fix));
                return None;
            }
        },
        Wanted::Name(name) => match read.by_name.get(name).map(Vec::as_slice) {
            Some([instance]) => Some(instance),
            Some([_, _, ..]) => {
                let text = "several live instances have its name as their private DNS name, and it has no provider ID";
                checks.push(Check::error(NAMES, subject, text, "start the kubelet with --provider-id"));
                return None;
            }
            _ => {
                let text = "it has no provider ID, and no live instance has its name as private DNS name or ID: it would stay \
                            uninitialized, or be deleted when it is not Ready and has the form of such a name";
                let fix = "start the kubelet with --provider-id=aws:///<zone>/<instance ID>, or name nodes after their instances";
                checks.push(Check::error(NAMES, subject, text, fix));
                return None;
            }
        },
    }?;
    checks.extend(naming(node, found));
    Some(found)
}

/// Whether provider ID, name and instance match.
fn naming(node: &NodeRef, instance: &Instance) -> Option<Check> {
    let subject = format!("node {}", node.name);
    let by_resource = node.name.split('.').next() == Some(&instance.id);
    if *node.name == *instance.private_dns_name || by_resource {
        let id = node.provider_id.as_deref()?;
        let written = zone_of(id)?;
        return (written != instance.zone).then(|| {
            let text = format!("{id} names zone {written}, but the instance is in {}", instance.zone);
            Check::warning(
                IDS,
                subject,
                text,
                "the zone in it has no effect; it is corrected when the node registers again",
            )
        });
    }
    // The node of an instance with resource-based naming can be named by address.
    let address = instance.private_ip.as_deref().map(|address| format!("ip-{}", address.replace('.', "-")));
    let by_address = address.as_deref() == node.name.split('.').next();
    let names_another = (identity::is_ec2_dns_name(&node.name) && !by_address)
        || node.name.split('.').next().and_then(InstanceId::parse).is_some_and(|id| id.as_str() != instance.id);
    Some(if names_another {
        let (id, real) = (&instance.id, &instance.private_dns_name);
        let text = format!("its provider ID names instance {id}, whose private DNS name is {real}");
        let fix = "delete the Node and let the kubelet register it again with its own provider ID";
        Check::error(IDS, subject, text, fix)
    } else {
        // Without the names, so that those of a whole cluster are one finding.
        let text = "its name is not the private DNS name of its instance: it is found by its provider ID, which a node that \
                    registers again does not have";
        let fix =
            "start the kubelet with --provider-id=aws:///<zone>/<instance ID>, or name nodes after their instances";
        Check::warning(NAMES, subject, text, fix)
    })
}

/// The zone in `aws:///<zone>/<instance>`, if any.
fn zone_of(id: &str) -> Option<&str> {
    ProviderId::parse(id).ok()?;
    let mut parts = id.split_once("://")?.1.rsplit('/');
    parts.next()?;
    parts.next().filter(|zone| !zone.is_empty())
}

fn of_instance(aws: &Inspector, node: &NodeRef, instance: &Instance, read: &NodeInstances) -> Vec<Check> {
    let subject = format!("node {}", node.name);
    let ownership = &aws.settings.ownership;
    let mut checks = Vec::new();
    if let Some(key) = ownership.cluster_key().filter(|_| !ownership.is_member(&instance.tags)) {
        let text = format!("instance {} lacks the tag {key}", instance.id);
        let fix = format!("aws ec2 create-tags --resources {} --tags Key={key},Value=owned", instance.id);
        checks.push(match node.provider_id {
            Some(_) => {
                let text = format!(
                    "{text}: load balancers send it nothing, and policies that require the tag deny its routes and tags"
                );
                Check::warning(TAGS, &subject, text, fix)
            }
            None => Check::error(
                TAGS,
                &subject,
                format!("{text}, and without a provider ID the instance is found only by this tag"),
                fix,
            ),
        });
    }
    let clusters: Vec<&str> = instance.tags.keys().filter_map(|key| key.strip_prefix(CLUSTER_PREFIX)).collect();
    if clusters.len() > 1 {
        let text = format!("instance {} is tagged for several clusters: {}", instance.id, clusters.join(", "));
        let fix = format!(
            "leave one tag {CLUSTER_PREFIX}<ID> on it; this program cannot find its own cluster ID on such an instance"
        );
        checks.push(Check::warning(TAGS, &subject, text, fix));
    }
    if instance.vpc != aws.settings.vpc {
        let text =
            format!("instance {} is in VPC {}, but the cluster's is {}", instance.id, instance.vpc, aws.settings.vpc);
        let fix = "set VPC in section [Global] of the cloud config to that of the nodes; load balancers and routes reach one VPC only";
        checks.push(Check::error(VPC, &subject, text, fix));
    }
    if !aws.env().node_groups_untouched {
        checks.extend(security_groups(aws, node, instance, read));
    }
    checks
}

fn security_groups(aws: &Inspector, node: &NodeRef, instance: &Instance, read: &NodeInstances) -> Option<Check> {
    let subject = format!("node {}", node.name);
    let cluster_tag = aws.cluster_tag();
    match group_of(&instance.id, &instance.security_groups, &read.groups, aws.env()) {
        Err(error) => Some(Check::error(
            GROUPS,
            subject,
            error.to_string(),
            format!("leave {cluster_tag} = owned on exactly one of them"),
        )),
        Ok(None) => {
            let text = format!("instance {} has no security group: no load balancer reaches it", instance.id);
            Some(Check::error(
                GROUPS,
                subject,
                text,
                format!("give it a security group with the tag {cluster_tag} = owned"),
            ))
        }
        Ok(Some(id)) => {
            let tags = read.groups.get(id).map(|group| &group.tags)?;
            let missing = !aws.settings.ownership.is_member(tags);
            missing.then(|| {
                let text = format!("security group {id} gets the rules of load balancers, and lacks the tag {cluster_tag}: rules are opened in \
                                    it, but not closed, and policies that require the tag deny both");
                Check::warning(GROUPS, subject, text, format!("tag it {cluster_tag} = owned"))
            })
        }
    }
}
