//! The instances behind a load balancer, from the Node objects alone. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::Node;
use serde::{Deserialize, Serialize};

use crate::client::resource::{ResourceId, region_of};
use crate::node::identity::{self, BadProviderId, Wanted, short};
use crate::node::zones::zone_of;

/// The label with the subnetwork of a node outside the cluster's subnetwork.
const SUBNET_LABEL: &str = "cloud.google.com/gke-node-pool-subnet";

/// An instance. Ordered by zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) zone: String,
    pub(crate) name: String,
}

impl Host {
    /// The instance that a URL names.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        // Target pools may hold partial URLs with a leading slash.
        let id = ResourceId::parse(url.trim_start_matches('/'))?;
        let zone = id.scope.zone_name()?.to_owned();
        (id.collection == "instances").then_some(Self { zone, name: id.name })
    }
}

/// The nodes behind a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hosts {
    /// By instance: the subnetwork in the label of the node, if any.
    pub(crate) known: BTreeMap<Host, Option<String>>,
    /// The instance names of nodes with an unknown zone: such instances are neither added nor removed.
    pub(crate) unplaced: BTreeSet<String>,
    /// The instances of nodes in other regions, which the load balancers of this one cannot have.
    pub(crate) elsewhere: BTreeSet<Host>,
}

impl Hosts {
    pub(crate) fn of<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        let mut hosts = Self::default();
        for node in nodes {
            let (zone, name) = place(node);
            match zone {
                Some(zone) => {
                    let subnet = node.labels.get(SUBNET_LABEL).filter(|subnet| !subnet.is_empty());
                    hosts
                        .known
                        .insert(Host { zone: zone.to_owned(), name: name.to_owned() }, subnet.map(str::to_owned));
                }
                None => drop(hosts.unplaced.insert(name.to_owned())),
            }
        }
        hosts
    }

    /// Without the hosts of other regions, which are remembered. A zone of another form is in none.
    #[must_use]
    pub(crate) fn in_region(mut self, region: &str) -> Self {
        let others = self.known.extract_if(.., |host, _| region_of(&host.zone) != Some(region));
        self.elsewhere.extend(others.map(|(host, _)| host));
        self
    }

    /// All hosts with a known zone.
    pub(crate) fn all(&self) -> BTreeSet<Host> {
        self.known.keys().cloned().collect()
    }

    /// Whether the subnetwork of the cluster selects among them.
    pub(crate) fn are_selected(&self) -> bool {
        self.known.values().any(Option::is_some)
    }

    /// The hosts in the subnetwork of the cluster, if it is known.
    pub(crate) fn in_subnet(&self, subnet: Option<&str>) -> BTreeSet<Host> {
        let fits = |label: &Option<String>| match (subnet, label) {
            (Some(subnet), Some(label)) => subnet == label,
            _ => true,
        };
        self.known.iter().filter(|(_, label)| fits(label)).map(|(host, _)| host.clone()).collect()
    }
}

/// The zone of a node, if known, and the name of its instance: from its provider ID, else from its label and name.
fn place(node: &Node) -> (Option<String>, String) {
    let zone = zone_of(node).filter(|zone| !zone.is_empty());
    match identity::wanted(node) {
        Wanted::Instance(id) => (Some(id.zone), id.name),
        Wanted::Name(name) => (zone, name),
        // The instance is unknown, so nothing is done about it.
        Wanted::Never(_) => (None, short(node.name.as_str()).to_owned()),
    }
}

/// The properties of a node that matter to load balancers, as a string to compare. A node of another cloud is no host:
/// with only such nodes, the load balancer would be empty.
pub(crate) fn backend(node: &Node) -> Option<String> {
    if let Wanted::Never(BadProviderId::Foreign(_)) = identity::wanted(node) {
        return None;
    }
    let (zone, name) = place(node);
    let subnet = node.labels.get(SUBNET_LABEL).unwrap_or_default();
    Some(format!("{}/{name} {subnet}", zone.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(json: serde_json::Value) -> Node {
        serde_json::from_value(json).unwrap()
    }

    fn host(zone: &str, name: &str) -> Host {
        Host { zone: zone.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_node_with_a_long_name_is_the_instance_of_the_short_one() {
        let nodes = [
            node(serde_json::json!({"name": "n1.c.p.internal", "providerId": "gce://p/z/n1.c.p.internal"})),
            node(serde_json::json!({"name": "n2.c.p.internal", "labels": {"topology.kubernetes.io/zone": "z"}})),
        ];
        let hosts = Hosts::of(&nodes);
        assert_eq!(hosts.all(), [host("z", "n1"), host("z", "n2")].into());
    }

    #[test]
    fn a_node_without_a_zone_is_kept_where_it_is() {
        let nodes = [
            node(serde_json::json!({"name": "n1"})),
            node(serde_json::json!({"name": "n2", "providerId": "aws:///z/i-1"})),
            node(serde_json::json!({"name": "n3", "providerId": "gce://p//n3"})),
        ];
        let hosts = Hosts::of(&nodes);
        assert!(hosts.known.is_empty());
        assert_eq!(hosts.unplaced, ["n1", "n2", "n3"].map(str::to_owned).into());
    }

    #[test]
    fn nodes_of_another_subnetwork_are_left_out() {
        let nodes = ["", "sub", "other"].map(|subnet| {
            let labels = serde_json::json!({"cloud.google.com/gke-node-pool-subnet": subnet});
            node(serde_json::json!({"name": subnet, "providerId": format!("gce://p/z/n-{subnet}"), "labels": labels}))
        });
        let hosts = Hosts::of(&nodes);
        assert_eq!(hosts.in_subnet(Some("sub")), [host("z", "n-"), host("z", "n-sub")].into());
        assert_eq!(hosts.in_subnet(None).len(), 3);
        assert_eq!(hosts.all().len(), 3);
        assert!(backend(&nodes[2]) != backend(&nodes[1]));
    }

    #[test]
    fn nodes_of_other_regions_are_no_hosts() {
        let zones = ["us-central1-b", "us-central1-f", "us-east1-b", "rack", "europe-west1-us-central1"];
        let nodes = zones.map(|zone| node(serde_json::json!({"name": "n", "providerId": format!("gce://p/{zone}/n")})));
        let hosts = Hosts::of(&nodes).in_region("us-central1");
        assert_eq!(hosts.all(), [host("us-central1-b", "n"), host("us-central1-f", "n")].into());
        assert_eq!(hosts.elsewhere.len(), 3);
    }

    #[test]
    fn urls_of_instances_are_read_in_all_spellings() {
        for url in [
            "/zones/z/instances/n",
            "zones/z/instances/n",
            "projects/p/zones/z/instances/n",
            "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/n",
        ] {
            assert_eq!(Host::of_url(url), Some(host("z", "n")), "{url}");
        }
        assert_eq!(Host::of_url("zones/z/disks/n"), None);
        assert_eq!(Host::of_url("n"), None);
    }
}
