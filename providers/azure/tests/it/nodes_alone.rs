//! Nodes where Azure refuses a list, does not answer it, or takes long: single objects are read in its place.

use std::sync::Arc;

use ccm_cloudsim::azure::{MachineSeed, Options, SetSeed};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{AddressType, Aspects, Clock as _, CloudProvider, Lookup, Node, NodeAddress, NodeRef};
use ccm_provider_contract::lookups::{found, metadata};

use crate::balancers::pace::haste;
use crate::bed::{Bed, GROUP, node, pass};
use crate::nodes::{addresses, look_up, one};

const KINDS: [&str; 3] = ["InternalIP", "Hostname", "ExternalIP"];

/// The rights to list the interfaces and public IPs of a set: roles for the Go program grant those of an instance.
fn of_sets() -> Vec<String> {
    let set = "Microsoft.Compute/virtualMachineScaleSets";
    ["networkInterfaces/read", "publicIPAddresses/read"].map(|kind| format!("{set}/{kind}")).into()
}

fn kinds(answer: &Lookup) -> Vec<String> {
    addresses(&metadata(answer)).into_iter().map(|(kind, _)| kind.to_owned()).collect()
}

#[tokio::test]
async fn a_role_for_single_instances_gives_nodes_their_addresses() {
    let of_instance = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read".to_owned();
    let bed = Bed::start(Options { not_actions: of_sets(), ..Options::default() });
    let seed = SetSeed { name: "pool", instances: 3, zones: &["1"], public: true, ..SetSeed::default() };
    bed.cloud.world(|world| world.scale_set(&seed));
    let provider = bed.process("").await;
    let nodes = ["pool000000", "pool000001", "pool000002"].map(|name| node(name, ""));
    for answer in look_up(&provider, &nodes, Aspects::METADATA).await {
        assert_eq!(kinds(&answer), KINDS);
    }
    let mark = bed.cloud.mark();
    look_up(&provider, &nodes, Aspects::METADATA).await;
    assert_eq!(bed.calls(mark), Vec::<String>::new(), "within the age of the lists");
    // Without both, the permission of the list is the one to grant.
    bed.cloud.world(|world| world.options.not_actions.push(of_instance.clone()));
    let provider = bed.process("").await;
    let answer = one(&provider, &nodes[0]).await;
    let error = found(&answer).metadata.as_ref().unwrap_err().to_string();
    assert!(error.contains("lacks Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"), "{error}");
    // Once it is granted, it acts at once.
    bed.cloud.world(|world| world.options.not_actions.retain(|right| *right == of_instance));
    assert_eq!(kinds(&one(&provider, &nodes[0]).await), KINDS);
    bed.is_clean();
}

/// Looks nodes up as the core does, until all have their metadata. Returns how many look-ups it took.
async fn joined(provider: &Arc<dyn CloudProvider>, mut left: Vec<NodeRef>) -> usize {
    for number in 1.. {
        let mut wait = std::time::Duration::ZERO;
        let mut late = Vec::new();
        for (node, answer) in left.iter().zip(look_up(provider, &left, Aspects::METADATA).await) {
            match &found(&answer).metadata {
                Ok(_) => assert_eq!(kinds(&answer), KINDS),
                Err(error) => {
                    // The core has no event for it.
                    assert!(error.is_in_progress(), "{error}");
                    wait = wait.max(error.retry_after().unwrap());
                    late.push(node.clone());
                }
            }
        }
        if late.is_empty() {
            return number;
        }
        left = late;
        tokio::time::sleep(wait).await;
    }
    unreachable!()
}

#[tokio::test]
async fn with_a_role_for_single_instances_a_large_set_joins_and_each_instance_is_read_once() {
    let bed = Bed::start(Options { not_actions: of_sets(), ..Options::default() });
    let seed = SetSeed { name: "pool", instances: 250, zones: &["1"], public: true, ..SetSeed::default() };
    let set = bed.cloud.world(|world| world.scale_set(&seed));
    let provider = bed.process("").await;
    let of = |number: usize| node(&format!("n{number}"), &format!("azure://{set}/virtualMachines/{number}"));
    let mark = bed.cloud.mark();
    let look_ups = tokio::select! {
        look_ups = joined(&provider, (0..250).map(of).collect()) => look_ups,
        never = haste(&bed.cloud) => match never {},
    };
    assert!(look_ups <= 3, "{look_ups}");
    let count = |calls: &[String], action: &str| calls.iter().filter(|call| *call == action).count();
    let each = ["virtualMachineScaleSetInterfaces.listOfVM", "virtualMachineScaleSetPublicIPAddresses.get"];
    let calls = bed.calls(mark);
    assert_eq!(each.map(|action| count(&calls, action)), [250, 250]);
    // A node that joins later costs the list of instances and a call for each of its objects.
    bed.cloud.world(|world| world.scale_out(&set, 1));
    let mark = bed.cloud.mark();
    let look_ups = tokio::select! {
        look_ups = joined(&provider, vec![of(250)]) => look_ups,
        never = haste(&bed.cloud) => match never {},
    };
    let calls = bed.calls(mark);
    assert_eq!((look_ups, each.map(|action| count(&calls, action))), (1, [1, 1]), "{calls:?}");
    assert!(calls.len() <= 3, "{calls:?}");
    bed.is_clean();
}

#[tokio::test]
async fn with_a_role_for_single_instances_the_addresses_of_old_nodes_are_not_read_again_for_a_new_one() {
    let bed = Bed::start(Options { not_actions: of_sets(), ..Options::default() });
    let seed = SetSeed { name: "pool", instances: 3, zones: &["1"], public: true, ..SetSeed::default() };
    bed.cloud.world(|world| world.scale_set(&seed));
    let provider = bed.process("").await;
    let nodes = ["pool000000", "pool000001", "pool000002"].map(|name| node(name, ""));
    look_up(&provider, &nodes, Aspects::METADATA).await;
    pass(300).await;
    let [one, other, new] = nodes;
    let created = jiff::Timestamp::try_from(bed.cluster.wall()).ok();
    let new = NodeRef::new(Node { created, ..(*new).clone() });
    let mark = bed.cloud.mark();
    for answer in look_up(&provider, &[one, other, new], Aspects::ADDRESSES).await {
        assert_eq!(kinds(&answer), KINDS);
    }
    assert_eq!(bed.calls(mark), ["virtualMachineScaleSetVMs.list"]);
    bed.is_clean();
}

#[tokio::test]
async fn without_the_right_on_the_subscription_the_state_is_read_from_the_machine() {
    let denied = vec!["virtualMachines.listAll".to_owned()];
    let bed = Bed::start(Options { denied, ..Options::default() });
    let vm = bed.machine("vm");
    bed.cloud.world(|world| world.power(&vm, "deallocated"));
    let provider = bed.process("").await;
    let node = node("vm", &format!("azure://{vm}"));
    let answers = look_up(&provider, std::slice::from_ref(&node), Aspects::LIFECYCLE).await;
    assert!(found(&answers[0]).shutdown.clone().unwrap());
}

/// A subscription with thousands of machines has a list of many pages.
#[tokio::test]
async fn while_the_list_of_the_subscription_fails_or_hangs_the_machines_are_read_alone() {
    for fault in [
        Fault::Code { status: 500, code: "InternalServerError".to_owned(), message: String::new() },
        Fault::Html { status: 404 },
        Fault::Hang,
    ] {
        let name = fault.name();
        let bed = Bed::start(Options::default());
        let seed = MachineSeed { name: "vm", availability_set: "as", fault_domain: 1, ..MachineSeed::default() };
        let vm = bed.cloud.world(|world| world.machine(&seed));
        bed.cloud.world(|world| world.power(&vm, "deallocated"));
        bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachines.listAll"));
        let provider = bed.process("").await;
        let node = node("vm", &format!("azure://{vm}"));
        let answer = tokio::select! {
            answer = one(&provider, &node) => answer,
            never = haste(&bed.cloud) => match never {},
        };
        assert_eq!(metadata(&answer).zone, "1", "{name}");
        assert!(found(&answer).shutdown.clone().unwrap(), "{name}");
    }
}

/// The Go program reads public IPs only in the resource group of the cluster.
#[tokio::test]
async fn a_node_whose_public_ip_is_in_a_group_that_may_not_be_read_keeps_its_public_address() {
    let denied = vec!["Microsoft.Network/publicIPAddresses/read".to_owned()];
    let not_actions_in = [("other".to_owned(), denied.clone())].into();
    let bed = Bed::start(Options { not_actions_in, ..Options::default() });
    let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet");
    let machine = |name, group| {
        let seed = MachineSeed { name, group, subnet: &subnet, zone: "1", public: true, ..MachineSeed::default() };
        bed.cloud.world(|world| world.machine(&seed))
    };
    let far = machine("far", "other");
    let near = machine("near", "rg");
    let provider = bed.process("").await;
    let far = node("far", &format!("azure://{far}"));
    assert_eq!(kinds(&one(&provider, &far).await), KINDS[..2], "a new node has none");
    let present = ["fd00::1", "20.1.2.3"].map(|ip| NodeAddress::new(AddressType::ExternalIp, ip)).into();
    let old = NodeRef::new(Node { addresses: present, ..(*far).clone() });
    assert_eq!(addresses(&metadata(&one(&provider, &old).await))[2], ("ExternalIP", "20.1.2.3"));
    // The Go program needs the right in the group of the cluster.
    bed.cloud.world(|world| world.options.not_actions_in = [("rg".to_owned(), denied)].into());
    let near = one(&bed.process("").await, &node("near", &format!("azure://{near}"))).await;
    let error = found(&near).metadata.as_ref().unwrap_err().to_string();
    assert!(error.contains("lacks Microsoft.Network/publicIPAddresses/read"), "{error}");
    bed.is_clean();
}
