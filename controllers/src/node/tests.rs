//! Initialization, addresses and labels: table tests and property tests.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::well_known::{
    ANNOTATION_PROVIDED_NODE_IP, LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA, LABEL_REGION, LABEL_REGION_BETA,
    LABEL_ZONE, LABEL_ZONE_BETA, TAINT_UNINITIALIZED,
};
use ccm_provider::{AddressType, InstanceMetadata, Node, NodeAddress, Taint};
use proptest::prelude::*;

use super::decide::{Initialization, addresses, initialize, label_fixes};

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), value: "".into(), effect: effect.into(), time_added: None }
}

/// `InternalIP=10.0.0.1 Hostname=h`
fn list(text: &str) -> Vec<NodeAddress> {
    let one = |word: &str| {
        let (kind, address) = word.split_once('=').unwrap();
        NodeAddress::new(AddressType::from(kind), address)
    };
    text.split_whitespace().map(one).collect()
}

fn print(list: &[NodeAddress]) -> String {
    list.iter().map(|a| format!("{}={}", a.kind.as_str(), a.address)).collect::<Vec<_>>().join(" ")
}

/// A new node.
fn new_node() -> Node {
    Node { name: "n".into(), taints: [taint(TAINT_UNINITIALIZED, "NoSchedule")].into(), ..Node::default() }
}

fn with_labels(labels: &[(&str, &str)]) -> Node {
    Node { labels: labels.iter().copied().collect(), ..new_node() }
}

fn metadata() -> InstanceMetadata {
    InstanceMetadata { provider_id: "fake://n".into(), ..InstanceMetadata::default() }
}

fn additional(labels: &[(&str, &str)]) -> InstanceMetadata {
    let additional_labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    InstanceMetadata { additional_labels, ..metadata() }
}

fn labels_of(init: &Initialization) -> Vec<String> {
    init.patch.labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

#[test]
fn type_zone_and_region_are_set_in_both_spellings_and_overwrite() {
    let cloud = InstanceMetadata { instance_type: "t".into(), zone: "z".into(), region: "r".into(), ..metadata() };
    let node = with_labels(&[(LABEL_ZONE, "old"), (LABEL_REGION, "r"), ("own", "1")]);
    let init = initialize(&node, &cloud, true).unwrap();
    let mut wanted = vec![
        format!("{LABEL_INSTANCE_TYPE_BETA}=t"),
        format!("{LABEL_REGION_BETA}=r"),
        format!("{LABEL_ZONE_BETA}=z"),
        format!("{LABEL_INSTANCE_TYPE}=t"),
        // The stable region label is right already.
        format!("{LABEL_ZONE}=z"),
    ];
    wanted.sort();
    assert_eq!(labels_of(&init), wanted);
}

#[test]
fn an_additional_label_never_overwrites_one_of_the_node() {
    let node = with_labels(&[("a", "mine"), ("b", "same")]);
    let init = initialize(&node, &additional(&[("a", "theirs"), ("b", "same"), ("c", "new")]), true).unwrap();
    assert_eq!(labels_of(&init), ["c=new"]);
    assert_eq!(init.left_out, ["label a=theirs of the cloud is left out: the node has a=mine"]);
}

#[test]
fn a_provided_ip_that_the_cloud_does_not_know_keeps_the_taint() {
    let check = |provided: &str, cloud: &str, wanted: Result<(), &str>| {
        let annotations = [(ANNOTATION_PROVIDED_NODE_IP, provided)].into_iter().collect();
        let node = Node { annotations, ..new_node() };
        let cloud = InstanceMetadata { node_addresses: list(cloud), ..metadata() };
        let got = initialize(&node, &cloud, true).map(drop);
        match wanted {
            Ok(()) => assert_eq!(got, Ok(()), "{provided}"),
            Err(end) => {
                let text = got.unwrap_err();
                let start =
                    "failed to get node modifiers from cloud provider: provided node ip for node \"n\" is not valid: ";
                assert_eq!(text, format!("{start}{end}"), "{provided}");
            }
        }
    };
    let cloud = "InternalIP=10.0.0.1 InternalIP=2001:db8::1";
    let unknown = "failed to get node address from cloud provider that matches ip: 10.0.0.2";
    check("10.0.0.1", cloud, Ok(()));
    check("10.0.0.1,2001:db8::1", cloud, Ok(()));
    check("010.0.0.01", cloud, Ok(()));
    check("10.0.0.2", cloud, Err(unknown));
    check("10.0.0.2", "", Err(unknown));
    check("", cloud, Err("failed to parse node IP \"\": could not parse \"\""));
}

#[track_caller]
fn check_addresses(present: &str, provided: Option<&str>, cloud: &str, wanted: Option<&str>) {
    let node = Node {
        addresses: list(present).into(),
        annotations: provided.map(|ip| (ANNOTATION_PROVIDED_NODE_IP, ip)).into_iter().collect(),
        ..new_node()
    };
    let got = addresses(&node, &list(cloud)).unwrap().map(|list| print(&list));
    assert_eq!(got.as_deref(), wanted);
}

#[test]
fn a_provided_ip_keeps_itself_of_its_type_and_all_of_the_other_types() {
    check_addresses(
        "Hostname=h",
        Some("10.0.0.1"),
        "InternalIP=10.0.0.1 InternalIP=10.0.0.9 ExternalIP=1.2.3.4",
        Some("InternalIP=10.0.0.1 ExternalIP=1.2.3.4 Hostname=h"),
    );
}

#[test]
fn host_names_of_the_node_stay_at_the_end_unless_the_cloud_gives_one() {
    let present = "Hostname=a InternalIP=10.0.0.1 Hostname=b";
    check_addresses(present, None, "InternalIP=10.0.0.2", Some("InternalIP=10.0.0.2 Hostname=a Hostname=b"));
    check_addresses(present, None, "Hostname=c InternalIP=10.0.0.1", Some("Hostname=c InternalIP=10.0.0.1"));
}

#[test]
fn addresses_are_never_wiped_by_an_empty_answer() {
    check_addresses("InternalIP=10.0.0.1", None, "", None);
    // Not even if the annotation matches no address now.
    check_addresses("InternalIP=10.0.0.1", Some("10.0.0.1"), "", None);
}

#[test]
fn equal_addresses_are_no_change_also_of_a_dual_stack_node() {
    let dual = "InternalIP=10.0.0.1 InternalIP=2001:db8::1 Hostname=h";
    check_addresses(dual, None, "InternalIP=10.0.0.1 InternalIP=2001:db8::1", None);
    check_addresses(dual, None, "Hostname=h InternalIP=10.0.0.1 InternalIP=2001:db8::1", None);
}

#[test]
fn the_stable_label_follows_the_beta_label_and_never_the_other_way() {
    let check = |labels: &[(&str, &str)], wanted: &[(&str, &str)]| {
        let got = label_fixes(&with_labels(labels));
        assert_eq!(got.iter().map(|(k, v)| (*k, v.as_str())).collect::<Vec<_>>(), wanted, "{labels:?}");
    };
    check(&[(LABEL_ZONE_BETA, "a"), (LABEL_ZONE, "b")], &[(LABEL_ZONE, "a")]);
    check(&[(LABEL_ZONE_BETA, "a")], &[(LABEL_ZONE, "a")]);
    check(&[(LABEL_ZONE_BETA, "a"), (LABEL_ZONE, "a")], &[]);
    check(&[(LABEL_ZONE, "b")], &[]);
    check(
        &[(LABEL_REGION_BETA, "r"), (LABEL_INSTANCE_TYPE_BETA, "t")],
        &[(LABEL_INSTANCE_TYPE, "t"), (LABEL_REGION, "r")],
    );
    check(&[], &[]);
}

/// The model of the API server: a node after these writes.
fn apply(node: &Node, init: &Initialization) -> Node {
    let mut labels: BTreeMap<String, String> =
        node.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    labels.extend(init.patch.labels.clone());
    Node {
        labels: labels.into_iter().collect(),
        provider_id: init.patch.provider_id.as_deref().map(Into::into).or_else(|| node.provider_id.clone()),
        taints: init.patch.taints.clone().unwrap().into(),
        ..node.clone()
    }
}

const KEYS: [&str; 9] = [
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    "example.com/rack",
    "a.k8s.io/x",
    "plain",
];

fn label() -> impl Strategy<Value = (String, String)> {
    (prop::sample::select(&KEYS[..]), "[a-c]?").prop_map(|(key, value)| (key.to_owned(), value))
}

fn address() -> impl Strategy<Value = NodeAddress> {
    let kind = prop::sample::select(vec!["InternalIP", "ExternalIP", "Hostname", "InternalDNS"]);
    let value = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "2001:db8::1", "h"]);
    (kind, value).prop_map(|(kind, value)| NodeAddress::new(AddressType::from(kind), value))
}

prop_compose! {
    fn any_taint()(
        key in prop::sample::select(vec![TAINT_UNINITIALIZED, "a", "b"]),
        effect in prop::sample::select(vec!["NoSchedule", "NoExecute"]),
        value in "[x]?",
    ) -> Taint {
        Taint { value: value.as_str().into(), ..taint(key, effect) }
    }
}

prop_compose! {
    fn any_node()(
        labels in prop::collection::vec(label(), 0..6),
        taints in prop::collection::vec(any_taint(), 0..5),
        present in prop::collection::vec(address(), 0..5),
        id in prop::option::of(Just("fake://own")),
        provided in prop::option::of(prop::sample::select(vec!["10.0.0.1", "2001:db8::1,10.0.0.1", "", "nonsense"])),
    ) -> Node {
        Node {
            labels: labels.into_iter().collect(),
            taints: taints.into(),
            addresses: present.into(),
            provider_id: id.map(Into::into),
            annotations: provided.map(|ip| (ANNOTATION_PROVIDED_NODE_IP, ip)).into_iter().collect(),
            ..new_node()
        }
    }
}

prop_compose! {
    fn any_metadata()(
        id in "(fake://n)?",
        kind in "[ab]?",
        zone in "[ab]?",
        region in "[ab]?",
        additional in prop::collection::vec(label(), 0..6),
        node_addresses in prop::collection::vec(address(), 0..5),
    ) -> InstanceMetadata {
        InstanceMetadata {
            provider_id: id,
            instance_type: kind,
            zone,
            region,
            additional_labels: additional.into_iter().collect(),
            node_addresses,
        }
    }
}

proptest! {
    #[test]
    fn a_second_initialization_has_nothing_to_write(node in any_node(), cloud in any_metadata(), needed: bool) {
        let Ok(init) = initialize(&node, &cloud, needed) else { return Ok(()) };
        let done = apply(&node, &init);
        let again = initialize(&done, &cloud, needed).unwrap();
        prop_assert_eq!(&again.patch.labels, &BTreeMap::new());
        prop_assert_eq!(&again.patch.provider_id, &None);
        prop_assert_eq!(again.patch.taints.as_deref(), Some(&*done.taints));
        prop_assert!(!done.has_taint(TAINT_UNINITIALIZED));
    }

    /// One write removes the taint and sets the rest, so there is no state in between. A second write sets the
    /// addresses; if the process dies before it, the next pass makes the same write.
    #[test]
    fn after_a_crash_between_the_writes_the_same_addresses_are_written(node in any_node(), cloud in any_metadata()) {
        let Ok(init) = initialize(&node, &cloud, false) else { return Ok(()) };
        let before = addresses(&node, &cloud.node_addresses);
        prop_assert_eq!(before, addresses(&apply(&node, &init), &cloud.node_addresses));
    }

    #[test]
    fn only_what_the_cloud_reports_changes_and_nothing_of_others_is_removed(node in any_node(), cloud in any_metadata()) {
        let Ok(init) = initialize(&node, &cloud, false) else { return Ok(()) };
        let done = apply(&node, &init);
        let kept: Vec<&Taint> = node.taints.iter().filter(|t| &*t.key != TAINT_UNINITIALIZED).collect();
        prop_assert_eq!(done.taints.iter().collect::<Vec<_>>(), kept);
        let fixed: BTreeSet<&str> = KEYS[..6].iter().copied().collect();
        for (key, value) in node.labels.iter() {
            prop_assert!(done.labels.contains_key(key));
            prop_assert!(fixed.contains(key) || done.labels.get(key) == Some(value), "{key} was overwritten");
        }
        for key in init.patch.labels.keys() {
            prop_assert!(key != "a.k8s.io/x", "a reserved label was set");
        }
        if node.provider_id.is_some() {
            prop_assert_eq!(&done.provider_id, &node.provider_id);
        }
    }

    #[test]
    fn addresses_once_written_are_not_written_again(node in any_node(), cloud in any_metadata()) {
        let Ok(Some(wanted)) = addresses(&node, &cloud.node_addresses) else { return Ok(()) };
        let written = Node { addresses: wanted.into(), ..node };
        prop_assert_eq!(addresses(&written, &cloud.node_addresses), Ok(None));
    }

    /// Only the order within one type matters.
    #[test]
    fn the_order_of_the_clouds_types_makes_no_difference(cloud in prop::collection::vec(address(), 1..6)) {
        let node = new_node();
        let Ok(Some(wanted)) = addresses(&node, &cloud) else { return Ok(()) };
        let written = Node { addresses: wanted.into(), ..node };
        let mut sorted = cloud;
        sorted.sort_by(|a, b| a.kind.cmp(&b.kind));
        prop_assert_eq!(addresses(&written, &sorted), Ok(None));
    }

    #[test]
    fn label_fixes_leave_nothing_to_fix(node in any_node()) {
        let fixes = label_fixes(&node);
        let mut labels: BTreeMap<String, String> =
            node.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        for (key, value) in fixes {
            prop_assert!([LABEL_ZONE, LABEL_REGION, LABEL_INSTANCE_TYPE].contains(&key));
            labels.insert(key.to_owned(), value);
        }
        prop_assert_eq!(label_fixes(&Node { labels: labels.into_iter().collect(), ..node }), BTreeMap::new());
    }
}
