//! Nodes whose name no machine has.
//!
//! A name that the cloud never knew is no evidence that a machine is gone: the Node may be spelled differently from its
//! machine. Such a Node is kept, and the error names the machines that come close. Only the absence of a name that was
//! found before ([`FoundNames`]) is evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ccm_provider::well_known::ANNOTATION_PROVIDED_NODE_IP;
use ccm_provider::{AddressType, Node, NodeAddress, ProviderError};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Names are looked up again within minutes while their nodes exist.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most machines that an error names.
const MOST: usize = 3;

/// The names for which a machine was found in the last day.
#[derive(Debug, Default)]
pub struct FoundNames(Mutex<BTreeMap<String, Instant>>);

impl FoundNames {
    /// Records names for which a machine was found.
    pub fn add<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let (mut found, now) = (self.0.lock(), Instant::now());
        found.retain(|_, at| at.elapsed() < KEPT);
        found.extend(names.into_iter().map(|name| (name.to_owned(), now)));
    }

    /// Whether a machine was found for this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.lock().get(name).is_some_and(|at| at.elapsed() < KEPT)
    }
}

/// A machine of the cloud.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// How users find it: its zone, its ID.
    pub place: String,
    /// Its addresses in the networks of nodes.
    pub addresses: Vec<IpAddr>,
}

/// The error for a node that has no machine by name. `looked_for` says what was looked for and where, `remedy` what
/// users can do. `machines` are those of the cluster's surroundings, or the reason why they could not be read.
pub fn no_machine(node: &Node, looked_for: &str, machines: Result<&[Machine], String>, remedy: &str) -> ProviderError {
    let close = match machines {
        Err(why) => format!("machines with a similar name could not be read: {why}"),
        Ok(machines) => match near_misses(node, machines) {
            near if near.is_empty() => "no machine has a similar name or the address of the Node".to_owned(),
            near => near.join("; "),
        },
    };
    ProviderError::InstanceNotFound
        .wrap(format!("{looked_for}, which is not evidence that its machine is gone; {close}; {remedy}"))
}

/// The machines that a node may mean, each with what connects them; sorted, those with the node's address first.
fn near_misses(node: &Node, machines: &[Machine]) -> Vec<String> {
    let addresses = addresses(node);
    let near = |machine: &Machine| {
        let address = machine.addresses.iter().find(|address| addresses.contains(address));
        let (rank, why) = match (address, similarity(&node.name, &machine.name)) {
            (Some(address), _) => (0, format!("has the address {address} of the Node")),
            (None, Some(difference)) => (1, format!("differs in {difference} only")),
            (None, None) => return None,
        };
        Some((rank, format!("{} ({}) {why}", machine.name, machine.place)))
    };
    let near: BTreeSet<(u8, String)> = machines.iter().filter_map(near).collect();
    near.into_iter().map(|(_, text)| text).take(MOST).collect()
}

fn addresses(node: &Node) -> BTreeSet<IpAddr> {
    let internal = node.addresses.iter().filter(|address| address.kind == AddressType::InternalIp);
    let provided = node.annotations.get(ANNOTATION_PROVIDED_NODE_IP).unwrap_or_default();
    let provided = provided.split(',').filter_map(|ip| ip.trim().parse().ok());
    internal.filter_map(NodeAddress::ip).chain(provided).collect()
}

/// The difference between two names that may mean the same machine.
fn similarity(node: &str, machine: &str) -> Option<&'static str> {
    let bare = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    match () {
        () if machine.is_empty() => None,
        () if node.eq_ignore_ascii_case(machine) => Some("case"),
        () if first(node) == first(machine) => Some("the domain"),
        () if bare(node) == bare(machine) || bare(&first(node)) == bare(&first(machine)) => Some("dots and dashes"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, address: &str) -> Machine {
        Machine { name: name.to_owned(), place: "zone a".to_owned(), addresses: address.parse().into_iter().collect() }
    }

    fn node(name: &str, address: &str) -> Node {
        let address = (!address.is_empty()).then(|| NodeAddress::new(AddressType::InternalIp, address));
        Node { name: name.into(), addresses: address.into_iter().collect(), ..Node::default() }
    }

    #[test]
    fn names_that_differ_in_case_domain_or_punctuation_come_close() {
        for (node, machine, expected) in [
            ("worker-2", "Worker-2", Some("case")),
            ("md-0-v1-26-3-x", "md-0-v1.26.3-x", Some("dots and dashes")),
            ("md-0-v1.26.3-x", "md-0-v1-26-3-x", Some("dots and dashes")),
            ("worker_2.example.com", "worker-2", Some("dots and dashes")),
            ("worker-2.example.com", "worker-2", Some("the domain")),
            ("worker-2", "worker-2.c.p.internal", Some("the domain")),
            ("worker-2", "worker-3", None),
            ("worker-2", "", None),
        ] {
            assert_eq!(similarity(node, machine), expected, "{node} {machine}");
        }
    }

    #[test]
    fn the_machine_with_the_address_of_the_node_comes_first() {
        let machines = [machine("Worker-2", "10.0.0.9"), machine("node-2", "10.0.0.2"), machine("node-3", "10.0.0.3")];
        let error = no_machine(&node("worker-2", "10.0.0.2"), "no x is named y", Ok(&machines), "rename it");
        assert!(error.is_instance_not_found());
        let text = error.to_string();
        let near = "node-2 (zone a) has the address 10.0.0.2 of the Node; Worker-2 (zone a) differs in case only";
        assert!(text.starts_with("no x is named y") && text.contains(near) && text.contains("rename it"), "{text}");
        assert!(!text.contains("node-3"), "{text}");
        let text = no_machine(&node("a", ""), "x", Ok(&machines), "y").to_string();
        assert!(text.contains("no machine has a similar name"), "{text}");
        let text = no_machine(&node("a", ""), "x", Err("denied".to_owned()), "y").to_string();
        assert!(text.contains("could not be read: denied"), "{text}");
    }

    #[test]
    fn the_address_that_a_kubelet_was_given_counts_too() {
        let mut node = node("worker-2", "");
        node.annotations = [(ANNOTATION_PROVIDED_NODE_IP, "fd00::2,10.0.0.2")].into_iter().collect();
        assert_eq!(near_misses(&node, &[machine("node-2", "10.0.0.2")]).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_found_name_is_remembered_for_a_day() {
        let found = FoundNames::default();
        found.add(["a"]);
        assert!(found.contains("a") && !found.contains("b"));
        tokio::time::advance(KEPT).await;
        assert!(!found.contains("a"));
        found.add(["b"]);
        assert_eq!(found.0.lock().len(), 1, "old names are dropped");
    }
}
