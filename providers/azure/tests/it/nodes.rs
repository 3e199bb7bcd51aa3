//! Nodes: the machine of each, its metadata, and the evidence that it is gone.

use std::sync::Arc;

use ccm_cloudsim::azure::options::StatusOnly;
use ccm_cloudsim::azure::{MachineSeed, Options, SetSeed};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{Aspects, Clock as _, CloudProvider, EvidenceKind, InstanceMetadata, Lookup, Node, NodeRef};
use ccm_provider_contract::lookups::{found, metadata, unknown};

use crate::bed::{Bed, GROUP, node, pass};

pub(crate) async fn look_up(provider: &Arc<dyn CloudProvider>, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
    provider.instances().unwrap().lookup(nodes, aspects).await
}

pub(crate) async fn one(provider: &Arc<dyn CloudProvider>, node: &NodeRef) -> Lookup {
    look_up(provider, std::slice::from_ref(node), Aspects::ALL).await.pop().unwrap()
}

pub(crate) fn is_unlisted(lookup: &Lookup) -> bool {
    matches!(lookup, Lookup::Gone(evidence) if evidence.kind == EvidenceKind::Unlisted)
}

pub(crate) fn addresses(metadata: &InstanceMetadata) -> Vec<(&str, &str)> {
    metadata.node_addresses.iter().map(|address| (address.kind.as_str(), &*address.address)).collect()
}

#[tokio::test]
async fn an_instance_of_a_uniform_set_gets_its_metadata() {
    let bed = Bed::start(Options::default());
    let seed = SetSeed { name: "Pool", instances: 2, zones: &["1"], public: true, ..SetSeed::default() };
    bed.cloud.world(|world| world.scale_set(&seed));
    let provider = bed.process("").await;
    let metadata = metadata(&one(&provider, &node("pool000001", "")).await);
    let id = format!("azure://{GROUP}/Microsoft.Compute/virtualMachineScaleSets/Pool/virtualMachines/1");
    assert_eq!(metadata.provider_id, id);
    assert_eq!((&*metadata.zone, &*metadata.region), ("eastus-1", "eastus"));
    assert!(!metadata.instance_type.is_empty());
    let kinds: Vec<&str> = addresses(&metadata).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["InternalIP", "Hostname", "ExternalIP"]);
    assert_eq!(addresses(&metadata)[1], ("Hostname", "pool000001"));
    // The same machine by its ID, in another case.
    let by_id = one(&provider, &node("pool000001", &id.replace("resourceGroups/rg", "RESOURCEGROUPS/RG"))).await;
    assert_eq!(addresses(&self::metadata(&by_id)), addresses(&metadata));
    // The same by the name of the instance, as `managedBy` of disks has it.
    let named = id.replace("/virtualMachines/1", "/virtualMachines/pool_1");
    let by_name = self::metadata(&one(&provider, &node("pool000001", &named)).await);
    assert_eq!((addresses(&by_name), &*by_name.provider_id), (addresses(&metadata), &*named));
    bed.is_clean();
}

#[tokio::test]
async fn a_new_node_has_its_public_address_at_once() {
    let bed = Bed::start(Options::default());
    let seed = SetSeed { name: "pool", instances: 1, zones: &["1"], public: true, ..SetSeed::default() };
    let set = bed.cloud.world(|world| world.scale_set(&seed));
    let machine = |name| {
        let seed = MachineSeed { name, zone: "2", public: true, ..MachineSeed::default() };
        bed.cloud.world(|world| world.machine(&seed));
    };
    machine("vm0");
    let provider = bed.process("").await;
    let of = |names: [&str; 2]| names.map(|name| node(name, ""));
    look_up(&provider, &of(["pool000000", "vm0"]), Aspects::METADATA).await;
    bed.cloud.world(|world| world.scale_out(&set, 1));
    machine("vm1");
    pass(30).await;
    for answer in look_up(&provider, &of(["pool000001", "vm1"]), Aspects::METADATA).await {
        let metadata = metadata(&answer);
        let kinds: Vec<&str> = addresses(&metadata).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["InternalIP", "Hostname", "ExternalIP"]);
    }
    let mark = bed.cloud.mark();
    look_up(&provider, &of(["pool000001", "vm1"]), Aspects::METADATA).await;
    assert_eq!(bed.calls(mark), Vec::<String>::new());
    bed.is_clean();
}

#[tokio::test]
async fn a_machine_that_is_made_again_under_its_name_has_its_own_addresses() {
    for is_looked_up in [false, true] {
        let bed = Bed::start(Options::default());
        let machine = || {
            let seed = MachineSeed { name: "vm0", zone: "2", public: true, ..MachineSeed::default() };
            bed.cloud.world(|world| world.machine(&seed))
        };
        let id = machine();
        let provider = bed.process("").await;
        let external = |answer: &Lookup| addresses(&metadata(answer))[2].1.to_owned();
        let before = look_up(&provider, &[node("vm0", "")], Aspects::METADATA).await.pop().unwrap();
        let first = bed.address("vm0");
        bed.cloud.world(|world| {
            world.delete_machine(&id);
            world.remove(&format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic"));
            world.remove(&format!("{GROUP}/Microsoft.Network/publicIPAddresses/vm0-ip"));
            // Somebody else has its address by now.
            world.machine(&MachineSeed { name: "vm1", zone: "2", ..MachineSeed::default() });
        });
        pass(60).await;
        if is_looked_up {
            let old = node("vm0", &format!("azure://{id}"));
            assert!(is_unlisted(&look_up(&provider, &[old], Aspects::LIFECYCLE).await[0]));
        }
        machine();
        assert_ne!(bed.address("vm0"), first);
        pass(60).await;
        let mark = bed.cloud.mark();
        let created = jiff::Timestamp::try_from(bed.cluster.wall()).ok();
        // The kubelet may have set its provider ID.
        let own_id = if is_looked_up { "".to_owned() } else { format!("azure://{id}") };
        let young = NodeRef::new(Node { created, ..(*node("vm0", &own_id)).clone() });
        let answer = look_up(&provider, std::slice::from_ref(&young), Aspects::METADATA).await.pop().unwrap();
        assert_eq!(addresses(&metadata(&answer))[0], ("InternalIP", &*bed.address("vm0")));
        assert_ne!(external(&answer), external(&before));
        let calls = bed.calls(mark);
        assert!(calls.iter().all(|call| call.ends_with(".list")) && calls.len() <= 4, "{calls:?}");
        // Nodes that join with it share the lists.
        let mark = bed.cloud.mark();
        let second = NodeRef::new(Node { created, ..(*node("vm1", "")).clone() });
        assert!(matches!(look_up(&provider, &[young, second], Aspects::METADATA).await[1], Lookup::Found(_)));
        assert_eq!(bed.calls(mark), Vec::<String>::new());
        bed.is_clean();
    }
}

#[tokio::test]
async fn single_machines_and_members_of_sets_are_found_by_the_name_of_the_computer() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| {
        world.machine(&MachineSeed { name: "alone", zone: "2", public: true, dual: false, ..MachineSeed::default() });
        world.machine(&MachineSeed {
            name: "member",
            availability_set: "as",
            fault_domain: 1,
            ..MachineSeed::default()
        });
        world.scale_set(&SetSeed { name: "flex", flexible: true, instances: 1, zones: &["3"], ..SetSeed::default() });
        world.machine(&MachineSeed { name: "Vm-X", computer: "Node-X", zone: "1", ..MachineSeed::default() });
    });
    let provider = bed.process("").await;
    let nodes = ["alone", "member", "flex000000", "node-x"].map(|name| node(name, ""));
    let answers = look_up(&provider, &nodes, Aspects::ALL).await;
    let zones: Vec<String> = answers.iter().map(|answer| metadata(answer).zone).collect();
    assert_eq!(zones, ["eastus-2", "1", "eastus-3", "eastus-1"]);
    let alone = metadata(&answers[0]);
    assert_eq!(addresses(&alone)[0], ("InternalIP", &*bed.address("alone")));
    assert_eq!(addresses(&alone)[2].0, "ExternalIP");
    assert!(metadata(&answers[3]).provider_id.ends_with("/virtualMachines/Vm-X"));
    bed.is_clean();
}

#[tokio::test]
async fn a_new_member_of_an_availability_set_has_its_fault_domain() {
    for status_only in [StatusOnly::View, StatusOnly::WithoutDomain, StatusOnly::Refused] {
        let bed = Bed::start(Options { status_only, ..Options::default() });
        let machine = |name, group, fault_domain| {
            let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet");
            let seed = MachineSeed {
                name,
                group,
                subnet: &subnet,
                availability_set: "as",
                fault_domain,
                ..MachineSeed::default()
            };
            bed.cloud.world(|world| world.machine(&seed))
        };
        let a = machine("a", "rg", 0);
        let provider = bed.process("").await;
        let zone = async |node: NodeRef| metadata(&look_up(&provider, &[node], Aspects::METADATA).await[0]).zone;
        assert_eq!(zone(node("a", "")).await, "0");
        machine("b", "rg", 1);
        pass(10).await;
        let mark = bed.cloud.mark();
        assert_eq!(zone(node("b", "")).await, "1", "{status_only:?}");
        let alone = bed.calls(mark).iter().filter(|call| *call == "virtualMachines.get").count();
        assert_eq!(alone, usize::from(status_only != StatusOnly::View), "{status_only:?}");
        // The list of its group is newer than that of the states.
        machine("c", "other", 2);
        let labels = [("kubernetes.azure.com/resource-group", "other")].into_iter().collect();
        assert_eq!(zone(NodeRef::new(Node { labels, ..(*node("c", "")).clone() })).await, "2");
        // The power state needs no fault domain.
        let mark = bed.cloud.mark();
        look_up(&provider, &[node("a", &format!("azure://{a}"))], Aspects::LIFECYCLE).await;
        let alone = bed.calls(mark).iter().filter(|call| *call == "virtualMachines.get").count();
        assert_eq!(alone, usize::from(status_only == StatusOnly::Refused), "{status_only:?}");
        bed.is_clean();
    }
}

#[tokio::test]
async fn without_instance_views_a_member_of_a_set_without_zones_has_its_fault_domain() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| world.scale_set(&SetSeed { name: "pool", instances: 3, ..SetSeed::default() }));
    let provider = bed.process("listVmssVirtualMachinesWithoutInstanceView: true\n").await;
    let nodes = ["pool000001", "pool000002"].map(|name| node(name, ""));
    let answers = look_up(&provider, &nodes, Aspects::METADATA).await;
    let zones: Vec<String> = answers.iter().map(|answer| metadata(answer).zone).collect();
    assert_eq!(zones, ["1", "2"]);
    pass(30).await;
    let mark = bed.cloud.mark();
    look_up(&provider, &nodes, Aspects::LIFECYCLE).await;
    assert_eq!(bed.calls(mark).len(), 1, "without the views: {:?}", bed.calls(mark));
    bed.is_clean();
}

#[tokio::test]
async fn machines_are_read_in_one_list_for_each_set() {
    let bed = Bed::start(Options::default());
    for set in ["pool-a", "pool-b"] {
        bed.uniform(set, 40);
    }
    bed.machine("vm");
    let provider = bed.process("").await;
    let names = |set: &str| (0..30).map(|n| format!("{set}0000{:02}", to_base36(n))).collect::<Vec<_>>();
    let nodes: Vec<NodeRef> =
        ["pool-a", "pool-b"].iter().flat_map(|set| names(set)).map(|name| node(&name, "")).collect();
    let mark = bed.cloud.mark();
    let answers = look_up(&provider, &nodes, Aspects::METADATA).await;
    assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))), "{answers:?}");
    let mut calls = bed.calls(mark);
    calls.sort();
    let interfaces: Vec<&String> = calls.iter().filter(|call| call.contains("nterfaces")).collect();
    assert_eq!((interfaces.len(), calls.len()), (2, 5), "{calls:?}");
    // Nodes that join later are in the lists already.
    let mark = bed.cloud.mark();
    let later = look_up(&provider, &[node("pool-a00000y", "")], Aspects::METADATA).await;
    assert!(matches!(later[0], Lookup::Found(_)));
    assert_eq!(bed.calls(mark), Vec::<String>::new());
    bed.is_clean();
}

/// Two digits of base 36.
fn to_base36(number: usize) -> String {
    let digit = |n: usize| char::from_digit(u32::try_from(n).unwrap(), 36).unwrap();
    format!("{}{}", digit(number / 36), digit(number % 36))
}

#[tokio::test]
async fn a_new_node_makes_only_the_list_of_its_set_be_read_again() {
    let bed = Bed::start(Options::default());
    let sets: Vec<String> = (0..5).map(|n| bed.uniform(&format!("pool-{n}"), 2)).collect();
    let provider = bed.process("").await;
    let nodes: Vec<NodeRef> = (0..5).map(|n| node(&format!("pool-{n}000001"), "")).collect();
    look_up(&provider, &nodes, Aspects::METADATA).await;
    bed.cloud.world(|world| world.scale_out(&sets[3], 1));
    pass(30).await;
    let mark = bed.cloud.mark();
    let answers = look_up(&provider, &[node("pool-3000002", "")], Aspects::METADATA).await;
    assert!(matches!(answers[0], Lookup::Found(_)), "{answers:?}");
    let calls = bed.calls(mark);
    assert_eq!(calls.len(), 2, "one list of instances, one of interfaces: {calls:?}");
}

#[tokio::test]
async fn a_node_of_a_new_scale_set_or_machine_is_found_at_once() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 1);
    let provider = bed.process("").await;
    look_up(&provider, &[node("pool000000", "")], Aspects::METADATA).await;
    pass(30).await;
    bed.uniform("fresh", 1);
    bed.machine("single");
    for name in ["fresh000000", "single"] {
        let mark = bed.cloud.mark();
        let answers = look_up(&provider, &[node(name, "")], Aspects::METADATA).await;
        assert!(matches!(answers[0], Lookup::Found(_)), "{answers:?}");
        let calls = bed.calls(mark);
        assert!(calls.len() <= 4, "{calls:?}");
        pass(30).await;
    }
}

#[tokio::test]
async fn a_machine_that_is_in_no_complete_list_is_gone() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 2);
    let vm = bed.machine("vm");
    let instance = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0");
    let provider = bed.process("nodeInstanceNotFoundGracePeriodInSeconds: 300\n").await;
    let nodes = [node("pool000000", &format!("azure://{instance}")), node("vm", &format!("azure://{vm}"))];
    assert!(
        look_up(&provider, &nodes, Aspects::LIFECYCLE).await.iter().all(|answer| matches!(answer, Lookup::Found(_)))
    );
    bed.cloud.world(|world| {
        world.delete_machine(&instance);
        world.delete_machine(&vm);
    });
    let other = node("pool000001", &format!("azure://{}", instance.replace("/0", "/1")));
    let all = [&nodes[..], &[other]].concat();
    // The lists that are a moment old still show them.
    pass(21).await;
    let answers = look_up(&provider, &all, Aspects::LIFECYCLE).await;
    assert!(is_unlisted(&answers[0]) && is_unlisted(&answers[1]), "{answers:?}");
    assert!(matches!(answers[2], Lookup::Found(_)), "{answers:?}");
    let Lookup::Gone(evidence) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(evidence.grace.as_secs(), 300, "a younger node stays");
}

#[tokio::test]
async fn the_configured_grace_period_holds_for_a_node_without_a_provider_id() {
    let bed = Bed::start(Options::default());
    let vm = bed.machine("vm");
    let provider = bed.process("nodeInstanceNotFoundGracePeriodInSeconds: 300\n").await;
    let node = node("vm", "");
    assert!(matches!(one(&provider, &node).await, Lookup::Found(_)));
    bed.cloud.world(|world| world.delete_machine(&vm));
    pass(21).await;
    let Lookup::Gone(evidence) = one(&provider, &node).await else { panic!("not gone") };
    assert_eq!(evidence.grace.as_secs(), 300);
}

#[tokio::test]
async fn the_nodes_of_a_deleted_scale_set_are_gone() {
    let bed = Bed::start(Options::default());
    let set = bed.uniform("pool", 1);
    let provider = bed.process("").await;
    let node = node("pool000000", &format!("azure://{set}/virtualMachines/0"));
    bed.cloud.world(|world| {
        world.delete_machine(&format!("{set}/virtualMachines/0"));
        world.remove(&set);
    });
    let answer = one(&provider, &node).await;
    assert!(is_unlisted(&answer), "{answer:?}");
}

#[tokio::test]
async fn nothing_follows_from_a_failed_or_denied_list() {
    let bed = Bed::start(Options::default());
    let set = bed.uniform("pool", 1);
    let provider = bed.process("").await;
    let node = node("pool000000", &format!("azure://{set}/virtualMachines/9"));
    for fault in [
        Fault::Code { status: 500, code: "InternalServerError".to_owned(), message: String::new() },
        Fault::Html { status: 404 },
        Fault::Status { status: 404, body: String::new() },
        Fault::Deny,
    ] {
        let name = fault.name();
        bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSetVMs.list"));
        assert!(!unknown(&one(&provider, &node).await).is_empty(), "{name}");
        bed.cloud.faults(ccm_cloudsim::core::faults::Faults::clear);
        // A failure is the answer of all callers for a moment.
        pass(2).await;
    }
    assert!(is_unlisted(&one(&provider, &node).await));
}

#[tokio::test]
async fn the_group_of_the_cluster_is_never_gone() {
    let bed = Bed::start(Options::default());
    let set = bed.uniform("pool", 1);
    let provider = bed.process("").await;
    let node = node("pool000000", &format!("azure://{set}/virtualMachines/9"));
    for (code, is_gone) in [("ResourceGroupNotFound", false), ("ParentResourceNotFound", true)] {
        let fault = Fault::Code { status: 404, code: code.to_owned(), message: String::new() };
        bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSetVMs.list"));
        let answer = one(&provider, &node).await;
        assert_eq!(is_unlisted(&answer), is_gone, "{code}: {answer:?}");
        bed.cloud.faults(ccm_cloudsim::core::faults::Faults::clear);
        pass(30).await;
    }
    let named = self::node("pool000000", "");
    assert!(matches!(one(&provider, &named).await, Lookup::Found(_)));
    let fault = Fault::Code { status: 404, code: "ResourceGroupNotFound".to_owned(), message: String::new() };
    bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSets.list"));
    pass(700).await;
    let error = unknown(&one(&provider, &named).await);
    assert!(error.contains("check resourceGroup"), "{error}");
    let elsewhere = set.replace("/rg/", "/away/");
    let gone = self::node("n", &format!("azure://{elsewhere}/virtualMachines/0"));
    assert!(is_unlisted(&one(&provider, &gone).await), "another group may be");
}

#[tokio::test]
async fn a_machine_that_has_failed_costs_no_more_lists_than_another() {
    let bed = Bed::start(Options::default());
    let set = bed.uniform("pool", 2);
    let instance = format!("{set}/virtualMachines/0");
    bed.cloud.world(|world| world.state(&instance, "Failed"));
    let provider = bed.process("").await;
    let node = node("pool000000", &format!("azure://{instance}"));
    let mark = bed.cloud.mark();
    for _ in 0..12 {
        let answer = look_up(&provider, std::slice::from_ref(&node), Aspects::LIFECYCLE).await.pop().unwrap();
        assert!(matches!(answer, Lookup::Found(_)), "{answer:?}");
        pass(5).await;
    }
    let calls = bed.calls(mark);
    assert!(calls.len() <= 3, "{calls:?}");
    bed.cloud.world(|world| world.delete_machine(&instance));
    pass(16).await;
    assert!(is_unlisted(&look_up(&provider, &[node], Aspects::LIFECYCLE).await[0]));
}

#[tokio::test]
async fn single_machines_are_found_while_scale_sets_cannot_be_listed() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 1);
    bed.machine("vm");
    let nodes = ["vm", "pool000000", "nobody"].map(|name| node(name, ""));
    for fault in [Fault::Deny, Fault::Html { status: 404 }] {
        let name = fault.name();
        bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSets.list"));
        let provider = bed.process("").await;
        let answers = look_up(&provider, &nodes, Aspects::METADATA).await;
        assert!(matches!(answers[0], Lookup::Found(_)), "{name}: {answers:?}");
        for answer in &answers[1..] {
            assert!(unknown(answer).contains("Microsoft.Compute/virtualMachineScaleSets/read"), "{name}: {answer:?}");
        }
        bed.cloud.faults(ccm_cloudsim::core::faults::Faults::clear);
    }
    let provider = bed.process("").await;
    let answers = look_up(&provider, &nodes, Aspects::METADATA).await;
    assert!(matches!(answers[1], Lookup::Found(_)), "{answers:?}");
    // The same for a new scale set while machines cannot be listed.
    bed.cloud.fault(Rule::every(Fault::Deny).on("compute", "virtualMachines.list"));
    let provider = bed.process("").await;
    look_up(&provider, &nodes[1..2], Aspects::METADATA).await;
    pass(30).await;
    bed.uniform("fresh", 1);
    let answers = look_up(&provider, &["vm", "fresh000000"].map(|name| node(name, "")), Aspects::METADATA).await;
    assert!(unknown(&answers[0]).contains("Microsoft.Compute/virtualMachines/read"), "{answers:?}");
    assert!(matches!(answers[1], Lookup::Found(_)), "{answers:?}");
}

#[tokio::test]
async fn a_list_that_fails_is_read_once_in_a_look_up() {
    for more in ["vmType: standard\n", ""] {
        let bed = Bed::start(Options::default());
        bed.cloud.fault(Rule::every(Fault::Deny).on("compute", "virtualMachines.list"));
        let provider = bed.process(more).await;
        let mark = bed.cloud.mark();
        unknown(&one(&provider, &node("vm", "")).await);
        let lists = bed.calls(mark).iter().filter(|action| *action == "virtualMachines.list").count();
        assert_eq!(lists, 1, "{more:?}");
    }
}

#[tokio::test]
async fn a_stopped_machine_of_every_kind_is_seen() {
    let bed = Bed::start(Options::default());
    let set = bed.uniform("pool", 1);
    let vm = bed.machine("vm");
    let instance = format!("{set}/virtualMachines/0");
    let provider = bed.process("").await;
    let nodes = [node("pool000000", &format!("azure://{instance}")), node("vm", &format!("azure://{vm}"))];
    for (power, expected) in [("deallocated", true), ("stopping", false), ("running", false), ("stopped", true)] {
        bed.cloud.world(|world| {
            world.power(&instance, power);
            world.power(&vm, power);
        });
        let provider = bed.process("").await;
        let answers = look_up(&provider, &nodes, Aspects::LIFECYCLE).await;
        let stopped: Vec<bool> = answers.iter().map(|answer| found(answer).shutdown.clone().unwrap()).collect();
        assert_eq!(stopped, [expected, expected], "{power}");
    }
    drop(provider);
    bed.is_clean();
}

#[tokio::test]
async fn nodes_of_others_are_not_judged() {
    let bed = Bed::start(Options::default());
    let provider = bed.process("").await;
    let labeled = |provider_id: &str| {
        let labels = [("kubernetes.azure.com/managed", "False")].into_iter().collect();
        NodeRef::new(Node { labels, ..(*node("a", provider_id)).clone() })
    };
    let mark = bed.cloud.mark();
    let vm = format!("azure://{GROUP}/Microsoft.Compute/virtualMachines/none");
    for node in [node("a", "aws:///z/i-1"), labeled(""), labeled(&vm)] {
        assert!(matches!(one(&provider, &node).await, Lookup::Foreign), "{node:?}");
    }
    assert!(unknown(&one(&provider, &node("a", "azure://")).await).contains("names no virtual machine"));
    assert_eq!(bed.calls(mark), Vec::<String>::new());
    // A name that no machine ever had says nothing.
    let error = unknown(&one(&provider, &node("ab", "")).await);
    assert!(!error.is_empty());
}

#[tokio::test]
async fn a_single_machine_is_found_by_its_id_without_nodes_of_availability_sets() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 1);
    let vm = bed.machine("vm");
    let provider = bed.process("disableAvailabilitySetNodes: true\n").await;
    let answer = one(&provider, &node("vm", &format!("azure://{vm}"))).await;
    assert!(matches!(answer, Lookup::Found(_)), "{answer:?}");
}

#[tokio::test]
async fn machines_of_an_external_group_are_found_by_the_label() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| {
        let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet");
        world.machine(&MachineSeed {
            name: "far",
            group: "Other",
            subnet: &subnet,
            zone: "1",
            ..MachineSeed::default()
        });
    });
    let provider = bed.process("").await;
    let labels = [("kubernetes.azure.com/resource-group", "OTHER")].into_iter().collect();
    let node = NodeRef::new(Node { labels, ..(*node("far", "")).clone() });
    let id = metadata(&one(&provider, &node).await).provider_id;
    assert_eq!(id, "azure:///subscriptions/sub/resourceGroups/other/providers/Microsoft.Compute/virtualMachines/far");
    bed.is_clean();
}

#[tokio::test]
async fn a_large_cluster_that_joins_scans_each_set_a_few_times() {
    let bed = Bed::start(Options::default());
    let sets = 10;
    (0..sets).for_each(|set| drop(bed.uniform(&format!("pool-{set}"), 100)));
    let provider = bed.process("").await;
    let mark = bed.cloud.mark();
    // Five minutes, with nodes of all sets every six seconds.
    for window in 0..50 {
        let names =
            (0..sets).flat_map(|set| [2 * window, 2 * window + 1].map(|n| format!("pool-{set}0000{}", to_base36(n))));
        let nodes: Vec<NodeRef> = names.map(|name| node(&name, "")).collect();
        let answers = look_up(&provider, &nodes, Aspects::METADATA).await;
        assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))), "{answers:?}");
        pass(6).await;
    }
    let calls = bed.calls(mark);
    assert!(calls.len() <= 1 + 2 * sets, "{} calls", calls.len());
}

#[tokio::test]
async fn a_quiet_hour_of_nodes_costs_a_few_lists() {
    let bed = Bed::start(Options::default());
    let set = bed.uniform("pool", 50);
    let provider = bed.process("").await;
    let nodes: Vec<NodeRef> =
        (0..50).map(|n| node(&format!("n{n}"), &format!("azure://{set}/virtualMachines/{n}"))).collect();
    let mark = bed.cloud.mark();
    for _ in 0..12 {
        look_up(&provider, &nodes, Aspects::ADDRESSES).await;
        pass(300).await;
    }
    let calls = bed.calls(mark);
    assert!(calls.len() <= 2 * 7, "{calls:?}");
}

mod long_lane {
    use super::*;

    fn lists(bed: &Bed, mark: u64, action: &str) -> usize {
        bed.calls(mark).iter().filter(|call| *call == action).count()
    }

    /// The scans do not depend on the number of machines in a set.
    #[tokio::test]
    async fn nodes_that_join_within_five_minutes_cost_a_few_scans_of_their_sets() {
        let bed = Bed::start(Options { check: false, ..Options::default() });
        let sets: Vec<String> = (0..10).map(|n| bed.uniform(&format!("pool-{n}"), 50)).collect();
        let provider = bed.process("").await;
        let mark = bed.cloud.mark();
        for batch in 0..10 {
            let ids = sets.iter().flat_map(|set| {
                (0..5).map(move |number| format!("azure://{set}/virtualMachines/{}", 5 * batch + number))
            });
            let nodes: Vec<NodeRef> = ids.map(|id| node("n", &id)).collect();
            let answers = look_up(&provider, &nodes, Aspects::METADATA).await;
            assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))), "{answers:?}");
            pass(30).await;
        }
        let scans = lists(&bed, mark, "virtualMachineScaleSetVMs.list");
        assert_eq!(lists(&bed, mark, "virtualMachineScaleSetVMs.get") + lists(&bed, mark, "virtualMachines.get"), 0);
        assert!(scans <= 3 * sets.len(), "{scans}");
    }

    #[tokio::test]
    async fn one_new_node_of_fifty_sets_costs_the_lists_of_its_set() {
        let bed = Bed::start(Options { check: false, ..Options::default() });
        let sets: Vec<String> = (0..50).map(|n| bed.uniform(&format!("pool-{n}-"), 2)).collect();
        let provider = bed.process("").await;
        let nodes: Vec<NodeRef> = (0..50).map(|n| node(&format!("pool-{n}-000001"), "")).collect();
        look_up(&provider, &nodes, Aspects::METADATA).await;
        pass(30).await;
        bed.cloud.world(|world| world.scale_out(&sets[7], 1));
        let mark = bed.cloud.mark();
        let answers = look_up(&provider, &[node("pool-7-000002", "")], Aspects::METADATA).await;
        assert!(matches!(answers[0], Lookup::Found(_)), "{answers:?}");
        assert!(bed.calls(mark).len() <= 3, "{:?}", bed.calls(mark));
    }
}
