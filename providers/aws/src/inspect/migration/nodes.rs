//! The instances of the nodes: how they are found, what marks them, where they are. One read, then pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::{Check, Claims, NodeRef};

use crate::client::ec2::{Instance, SecurityGroup};
use crate::client::{ApiError, FILTER_VALUES, Query};
use crate::inspect::{Inspector, group_for_balancers};
use crate::node::identity::{self, BadProviderId, InstanceId, Machine, ProviderId, Wanted};
use crate::node::instances::describe::{Instances, LIVE_STATES, Seen};
use crate::ownership::CLUSTER_PREFIX;

const IDS: &str = "provider-ids";
const NAMES: &str = "node-names";
const TAGS: &str = "instance-tags";
const VPC: &str = "node-vpc";
const GROUPS: &str = "node-security-groups";

/// What EC2 says about the nodes.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) by_id: BTreeMap<InstanceId, Seen>,
    by_name: BTreeMap<String, Vec<Arc<Instance>>>,
    /// The security groups of the instances.
    pub(super) groups: BTreeMap<String, SecurityGroup>,
}

impl Read {
    /// The instances of the nodes.
    pub(super) fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let by_id = self.by_id.values().filter_map(|seen| match seen {
            Seen::Instance(instance) => Some(instance),
            Seen::Denied => None,
        });
        by_id.chain(self.by_name.values().flatten())
    }
}

/// # Errors
///
/// EC2 could not be asked about some of them.
pub(super) async fn read(of: &Inspector, claims: &Claims) -> Result<Read, ApiError> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for node in &claims.nodes {
        match identity::wanted(node, of.settings.own.as_ref()) {
            Wanted::Machine(Machine::Ec2(id)) => drop(ids.insert(id)),
            Wanted::Name(name) => drop(names.insert(name)),
            Wanted::Machine(Machine::Fargate(_)) | Wanted::Never(_) => {}
        }
    }
    let mut read = Read::default();
    for (_, answer) in Instances(of.api.clone()).by_ids(&ids).await {
        read.by_id.extend(answer?);
    }
    let names: Vec<String> = names.into_iter().collect();
    for some in names.chunks(FILTER_VALUES) {
        // Without the cluster's mark too: that it lacks it is worth telling.
        let query = Query::by("private-dns-name", some).and("instance-state-name", LIVE_STATES);
        for instance in of.api.instances(&query).await? {
            read.by_name.entry(instance.private_dns_name.clone()).or_default().push(Arc::new(instance));
        }
    }
    let ids: BTreeSet<String> = read.instances().flat_map(|instance| &instance.security_groups).cloned().collect();
    let ids: Vec<String> = ids.into_iter().collect();
    for some in ids.chunks(FILTER_VALUES) {
        read.groups.extend(of.groups(some).await?);
    }
    Ok(read)
}

pub(super) fn checks(of: &Inspector, claims: &Claims, read: &Read) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut good = 0_usize;
    for node in &claims.nodes {
        let before = checks.len();
        if let Some(instance) = identified(of, node, read, &mut checks) {
            found.entry(&instance.id).or_default().push(&node.name);
            checks.extend(of_instance(of, node, instance, read));
        }
        good += usize::from(checks.len() == before);
    }
    for (instance, nodes) in found.iter().filter(|(_, nodes)| nodes.len() > 1) {
        let text = format!("several nodes have instance {instance}: {}", nodes.join(", "));
        let fix = "delete the Node objects that are left over: an instance of several nodes gets no routes";
        checks.push(Check::error(IDS, format!("node {}", nodes.join(", ")), text, fix));
    }
    if good > 0 {
        let text = format!("nodes without a finding, of {}: {good}", claims.nodes.len());
        checks.push(Check::good(IDS, "", text));
    }
    checks
}

/// The instance of a node; what stands in the way is told.
fn identified<'a>(
    of: &Inspector,
    node: &NodeRef,
    read: &'a Read,
    checks: &mut Vec<Check>,
) -> Option<&'a Arc<Instance>> {
    let subject = format!("node {}", node.name);
    let wanted = identity::wanted(node, of.settings.own.as_ref());
    let found = match &wanted {
        Wanted::Never(BadProviderId::Foreign(id)) => {
            checks.push(Check::good(IDS, subject, format!("{id} belongs to another cloud: the node is left alone")));
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
                let fix =
                    "see that region and credentials are those of the cluster; a node whose machine is gone may go";
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

/// Whether provider ID, name and instance fit together.
fn naming(node: &NodeRef, instance: &Instance) -> Option<Check> {
    let subject = format!("node {}", node.name);
    let by_resource = node.name.split('.').next() == Some(&instance.id);
    if *node.name == *instance.private_dns_name || by_resource {
        let id = node.provider_id.as_deref()?;
        let written = zone_of(id)?;
        return (written != instance.zone).then(|| {
            let text = format!("{id} names zone {written}, but the instance is in {}", instance.zone);
            Check::warning(IDS, subject, text, "nothing needs the zone in it; it goes when the node registers again")
        });
    }
    // An instance that is named by its ID can have a node that is named by its address.
    let address = instance.private_ip.as_deref().map(|address| format!("ip-{}", address.replace('.', "-")));
    let by_address = address.as_deref() == node.name.split('.').next();
    let names_another = (identity::is_ec2_dns_name(&node.name) && !by_address)
        || node.name.split('.').next().and_then(InstanceId::parse).is_some_and(|id| id.as_str() != instance.id);
    let real = &instance.private_dns_name;
    Some(if names_another {
        let text = format!("its provider ID names instance {}, whose private DNS name is {real}", instance.id);
        let fix = "delete the Node and let the kubelet register it again with its own provider ID";
        Check::error(IDS, subject, text, fix)
    } else {
        let text = format!(
            "its name is not the private DNS name of its instance ({real}): it is found by its provider ID, which a node that \
             registers again does not have"
        );
        let fix =
            "start the kubelet with --provider-id=aws:///<zone>/<instance ID>, or name nodes after their instances";
        Check::warning(NAMES, subject, text, fix)
    })
}

/// The zone in `aws:///<zone>/<instance>`, where there is one.
fn zone_of(id: &str) -> Option<&str> {
    ProviderId::parse(id).ok()?;
    let mut parts = id.split_once("://")?.1.rsplit('/');
    parts.next()?;
    parts.next().filter(|zone| !zone.is_empty())
}

fn of_instance(of: &Inspector, node: &NodeRef, instance: &Instance, read: &Read) -> Vec<Check> {
    let subject = format!("node {}", node.name);
    let ownership = &of.settings.ownership;
    let mut checks = Vec::new();
    if let Some(key) = ownership.cluster_key().filter(|_| !ownership.is_member(&instance.tags)) {
        let text = format!("instance {} lacks the tag {key}", instance.id);
        let fix = format!("aws ec2 create-tags --resources {} --tags Key={key},Value=owned", instance.id);
        checks.push(match node.provider_id {
            Some(_) => {
                let text = format!("{text}: policies that ask for it refuse its routes and tags");
                Check::warning(TAGS, &subject, text, fix)
            }
            None => {
                Check::error(TAGS, &subject, format!("{text}, and without a provider ID it is found only with it"), fix)
            }
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
    if instance.vpc != of.settings.vpc {
        let text =
            format!("instance {} is in VPC {}, but the cluster's is {}", instance.id, instance.vpc, of.settings.vpc);
        let fix = "set VPC in section [Global] of the cloud config to that of the nodes; load balancers and routes reach one VPC only";
        checks.push(Check::error(VPC, &subject, text, fix));
    }
    if !of.env().node_groups_untouched {
        checks.extend(security_groups(of, node, instance, read));
    }
    checks
}

fn security_groups(of: &Inspector, node: &NodeRef, instance: &Instance, read: &Read) -> Option<Check> {
    let subject = format!("node {}", node.name);
    let mark = of.mark();
    match group_for_balancers(instance, &node.name, &read.groups, of.env()) {
        Err(error) => Some(Check::error(
            GROUPS,
            subject,
            error.to_string(),
            format!("leave {mark} = owned on exactly one of them"),
        )),
        Ok(None) => {
            let text = format!("instance {} has no security group: no load balancer reaches it", instance.id);
            Some(Check::error(GROUPS, subject, text, format!("give it a security group with the tag {mark} = owned")))
        }
        Ok(Some(id)) => {
            let tags = read.groups.get(&id).map(|group| &group.tags)?;
            let missing = !of.settings.ownership.is_member(tags);
            missing.then(|| {
                let text = format!("security group {id} gets the rules of load balancers, and lacks the tag {mark}: rules are opened in \
                                    it, but not closed, and policies that ask for the tag refuse both");
                Check::warning(GROUPS, subject, text, format!("tag it {mark} = owned"))
            })
        }
    }
}
