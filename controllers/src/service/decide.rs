//! The needs of a Service, and the nodes that are hosts of its load balancer. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_provider::{Change, Node, NodeRef, Plan, Service, Step, Verb};

/// Names in an event are limited to this many nodes.
const NAMES_AT_MOST: usize = 20;

/// Whether two states of an object that needs a load balancer differ in a field that affects the load balancer. Source:
/// `needsUpdate` of upstream's service controller.
pub(super) fn differs(old: &Service, new: &Service) -> bool {
    let (a, b) = (&old.spec, &new.spec);
    a.load_balancer_source_ranges != b.load_balancer_source_ranges
        || a.ports != b.ports
        || a.session_affinity != b.session_affinity
        || a.session_affinity_config != b.session_affinity_config
        || a.load_balancer_ip != b.load_balancer_ip
        || a.external_ips != b.external_ips
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.uid != new.metadata.uid
        || a.external_traffic_policy != b.external_traffic_policy
        || a.health_check_node_port != b.health_check_node_port
        || a.ip_families.len() != b.ip_families.len()
}

/// Whether the object is being deleted.
pub fn is_leaving(service: &Service) -> bool {
    service.metadata.deletion_timestamp.is_some()
}

/// The nodes that are hosts of load balancers.
pub(super) fn candidates(nodes: Vec<NodeRef>) -> Vec<NodeRef> {
    nodes.into_iter().filter(|node| node.left_out_of_balancers().is_none()).collect()
}

/// Whether a change of a node may change the hosts of a load balancer. Most updates are heartbeats of the kubelet, and
/// require no look at each Service. (A new autoscaler taint alone does not either.)
pub(super) fn node_matters(old: &Node, new: &Node) -> bool {
    old.is_excluded_from_balancers() != new.is_excluded_from_balancers()
        || old.provider_id != new.provider_id
        || may_be_another_backend(old, new)
}

/// Whether a field changed that [`ccm_provider::LoadBalancer::backend`] may depend on.
fn may_be_another_backend(old: &Node, new: &Node) -> bool {
    old.labels != new.labels || old.annotations != new.annotations || old.addresses != new.addresses
}

/// The first step of a plan that may take a host away; `None` if every host stays.
pub(super) fn removal(plan: &Plan) -> Option<&Step> {
    let words = |text: &Option<String>| -> BTreeSet<String> {
        let text = text.as_deref().unwrap_or_default();
        text.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let keeps = |change: &Change| words(&change.before).is_subset(&words(&change.after));
    plan.steps.iter().find(|step| match step.verb {
        Verb::Create | Verb::Attach => false,
        Verb::Update => !step.changes.iter().all(keeps),
        Verb::Delete | Verb::Detach => true,
    })
}

/// Whether two lists contain the same hosts, with the same backends.
pub(super) fn same_hosts<'n>(
    old: &'n [NodeRef],
    new: &'n [NodeRef],
    backend: impl Fn(&'n Node) -> Option<Cow<'n, str>>,
) -> bool {
    let set =
        |nodes: &'n [NodeRef]| -> BTreeSet<_> { nodes.iter().map(|node| (identity(node), backend(node))).collect() };
    old.len() == new.len() && set(old) == set(new)
}

/// The hosts of both lists.
pub(super) fn union(old: &Arc<[NodeRef]>, new: &Arc<[NodeRef]>) -> Arc<[NodeRef]> {
    let known: BTreeSet<_> = new.iter().map(identity).collect();
    let only_old: Vec<_> = old.iter().filter(|host| !known.contains(&identity(host))).cloned().collect();
    if only_old.is_empty() { new.clone() } else { new.iter().cloned().chain(only_old).collect() }
}

pub(super) fn identity(host: &NodeRef) -> (&str, &str) {
    (host.name.as_str(), host.provider_id_or_empty())
}

/// `[a b <3 more>]`
pub(super) fn host_names(nodes: &[NodeRef]) -> String {
    let mut names: Vec<&str> = nodes.iter().take(NAMES_AT_MOST).map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    let mut text = names.join(" ");
    if let Some(more) = nodes.len().checked_sub(NAMES_AT_MOST).filter(|more| *more > 0) {
        text.push_str(&format!(" <{more} more>"));
    }
    format!("[{text}]")
}
