//! One bad object or Service fails alone.

use std::time::Duration;

use ccm_cloudsim::azure::MachineSeed;
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::pace::{ensured, haste};
use super::*;

async fn three(more: &str) -> (Scene, [&'static str; 3]) {
    let mut scene = Scene::new(more, 2).await;
    let names = ["web0", "web1", "web2"];
    for (number, name) in (0_u16..).zip(names) {
        scene.service(name, &[], port(80 + number));
    }
    (scene, names)
}

/// Whether the operation fails at once or later.
async fn refused_for_one_address(fault: Fault) {
    let (mut scene, names) = three(BY_ADDRESS).await;
    scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.put").window(0, 1));
    let mark = scene.mark();
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web1"], "{errors:?}");
    assert!(errors["web1"].contains("is not allowed"), "{errors:?}");
    assert!(!scene.ip("web0").is_empty() && !scene.ip("web2").is_empty());
    assert_eq!(scene.writes(mark)["loadBalancers.put"], 2);
    let mark = scene.mark();
    scene.call(&["web1"], ServiceAction::Ensure).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "what is refused is not sent again");
    scene.service("web1", &[], port(90));
    scene.ensure(&["web1"]).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_names_one_address_leaves_the_others_in_the_same_call() {
    let message = "Public IP address kubernetes-a0000000211112222333344444444444 is not allowed".to_owned();
    refused_for_one_address(Fault::Code {
        status: 400,
        code: "InvalidResourceReference".into(),
        message: message.clone(),
    })
    .await;
    refused_for_one_address(Fault::Operation { status: 400, code: "InvalidResourceReference".into(), message }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_late_publishes_no_new_address() {
    let mut scene = Scene::new("", 1).await;
    let fault = Fault::Operation { status: 500, code: "InternalServerError".into(), message: "outage".into() };
    scene.bed.cloud.fault(Rule::every(fault.clone()).on("network", "loadBalancers.put").window(0, 2));
    scene.service("web", &[], port(80));
    for _ in 0..2 {
        let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
        assert!(error.contains("outage"), "{error}");
        let balancer = scene.object("loadBalancers", "kubernetes");
        assert_eq!(balancer["properties"]["provisioningState"], "Failed");
        assert_eq!(items(&balancer, "frontendIPConfigurations").len(), 1, "it shows what may not be there");
        assert_eq!(scene.ip("web"), "");
    }
    scene.ensure(&["web"]).await;
    let ip = scene.ip("web");
    assert!(!ip.is_empty());
    scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.put").window(0, 1));
    scene.service("web", &[], port(81));
    scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err();
    assert_eq!(scene.ip("web"), ip, "what is published stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_cannot_be_made_fails_its_service_alone() {
    let (mut scene, names) = three(BY_ADDRESS).await;
    let message = "Cannot create more than 1 public IP addresses.".to_owned();
    let fault = Fault::Code { status: 400, code: "PublicIPCountLimitReached".into(), message };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "publicIPAddresses.put").window(1, 1));
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    assert_eq!(errors(&names, &answers).len(), 1);
    let balancer = scene.object("loadBalancers", "kubernetes");
    assert_eq!(items(&balancer, "frontendIPConfigurations").len(), 2);
    scene.ensure(&names).await;
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes"), "frontendIPConfigurations").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_join_a_new_load_balancer_while_another_one_has_no_first_address() {
    for is_set in [true, false] {
        let mut scene = Scene::new("", if is_set { 2 } else { 0 }).await;
        refuse_addresses(&scene, "publicIPAddresses/");
        if !is_set {
            scene.nodes = ["vm0", "vm1"].map(|name| machine_node(&scene, name)).into();
            scene.bed.cluster.set_nodes(scene.nodes.clone());
        }
        scene.service("inside", &[("azure-load-balancer-internal", "true")], port(81));
        scene.service("web", &[], port(80));
        let answers = scene.call(&["inside", "web"], ServiceAction::Ensure).await;
        let errors = errors(&["inside", "web"], &answers);
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["web"], "{errors:?}");
        let pools = items(&scene.object("loadBalancers", "kubernetes-internal"), "backendAddressPools");
        assert_eq!(items(&pools[0], "backendIPConfigurations").len(), 2);
        scene.bed.is_clean();
    }
}

/// Azure makes no public IP address whose name contains this.
fn refuse_addresses(scene: &Scene, of: &str) {
    let message = "Cannot create more than 1 public IP addresses.".to_owned();
    let fault = Fault::Code { status: 400, code: "PublicIPCountLimitReached".into(), message };
    let rule = Rule { params: Some(of.to_owned()), ..Rule::every(fault) };
    scene.bed.cloud.fault(rule.on("network", "publicIPAddresses.put"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_behind_the_first_ten_join_while_another_load_balancer_has_no_address() {
    let mut scene = Scene::new("", 10).await;
    let names = ["inside", "web"];
    scene.service("inside", &[("azure-load-balancer-internal", "true")], port(81));
    scene.ensure(&["inside"]).await;
    scene.nodes.extend(nodes_of_set(&scene, "pool2", 2));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.service("web", &[], port(80));
    refuse_addresses(&scene, "publicIPAddresses/");
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web"], "{errors:?}");
    let pools = items(&scene.object("loadBalancers", "kubernetes-internal"), "backendAddressPools");
    assert_eq!(items(&pools[0], "backendIPConfigurations").len(), 12);
    let mark = scene.mark();
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    assert_eq!(scene.writes(mark), [("publicIPAddresses.put".to_owned(), 1)].into());
    assert_eq!(answers[0].again, None, "nobody else can join now");
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_join_while_the_first_service_with_ipv6_has_no_address() {
    for (more, names) in [("", &["web", "dual"][..]), ("", &["dual"]), (BY_ADDRESS, &["dual"])] {
        let mut scene = Scene::dual(more, 2).await;
        let last = scene.nodes.pop().unwrap();
        scene.service("web", &[], port(80));
        scene.ensure(&["web"]).await;
        scene.nodes.push(last);
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        scene.spec("dual", &[], json!({"ports": port(81), "ipFamilies": ["IPv4", "IPv6"]}));
        refuse_addresses(&scene, "-IPv6");
        let answers = scene.call(names, ServiceAction::Ensure).await;
        let errors = errors(names, &answers);
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["dual"], "{errors:?}");
        assert!(errors["dual"].contains("Cannot create more"), "{errors:?}");
        let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
        assert_eq!(pools.len(), 1, "{more}: {pools:?}");
        assert_eq!(items(&pools[0], "loadBalancerBackendAddresses").len(), 2, "{more} {names:?}");
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_pool_of_addresses_has_members_if_the_first_service_has_no_address() {
    let (mut scene, names) = three(BY_ADDRESS).await;
    refuse_addresses(&scene, "a00000001");
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web0"], "{errors:?}");
    let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
    assert_eq!(items(&pools[0], "loadBalancerBackendAddresses").len(), 2);
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_of_their_own_join_and_leave() {
    let mut scene = Scene::new("", 0).await;
    scene.nodes = ["vm0", "vm1"].map(|name| machine_node(&scene, name)).into();
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let members = |scene: &Scene| {
        let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
        items(&pools[0], "backendIPConfigurations").len()
    };
    assert_eq!(members(&scene), 2);
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.bed.calls(mark).len(), 3, "the interfaces are known: {:?}", scene.bed.calls(mark));
    scene.nodes.pop();
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(members(&scene), 1);
    scene.delete(&["web"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    scene.bed.is_clean();
}

/// A machine whose primary interface, `{name}-far`, is in another resource group than itself, beside its secondary one.
fn machine_with_far_interface(scene: &Scene, name: &str, address: &str) -> NodeRef {
    let group = GROUP.replace("/rg/", "/net-rg/");
    let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet");
    let configuration = json!({"name": "c", "properties": {"privateIPAddress": address,
        "privateIPAllocationMethod": "Static", "subnet": {"id": subnet}}});
    let far = format!("{group}/Microsoft.Network/networkInterfaces/{name}-far");
    let near = format!("{GROUP}/Microsoft.Network/networkInterfaces/{name}-nic");
    let interfaces =
        json!([{"id": near, "properties": {"primary": false}}, {"id": far, "properties": {"primary": true}}]);
    let id = scene.bed.cloud.world(|world| {
        world.put(&far, json!({"properties": {"ipConfigurations": [configuration]}}));
        let fields = json!({"properties": {"networkProfile": {"networkInterfaces": interfaces}}});
        world.machine(&MachineSeed { name, fields, ..MachineSeed::default() })
    });
    Node { name: name.into(), provider_id: Some(format!("azure://{id}").into()), ..Node::default() }.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_interface_of_a_machine_joins_and_leaves_wherever_it_is() {
    let mut scene = Scene::new("", 0).await;
    scene.nodes = vec![
        machine_with_far_interface(&scene, "vm0", "10.240.0.200"),
        machine_with_far_interface(&scene, "vm1", "10.240.0.201"),
    ];
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let members = |scene: &Scene| -> Vec<String> {
        let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
        let ids = items(&pools[0], "backendIPConfigurations");
        ids.iter().map(|it| it["id"].as_str().unwrap().split('/').nth_back(2).unwrap().to_owned()).collect()
    };
    assert_eq!(members(&scene), ["vm0-far", "vm1-far"]);
    assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new());
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.bed.calls(mark).len(), 3, "the interfaces are known: {:?}", scene.bed.calls(mark));
    scene.restart().await;
    scene.nodes.pop();
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(members(&scene), ["vm0-far"]);
    // A list that cannot be read is no evidence that an interface does not exist.
    scene.restart().await;
    scene.nodes.push(machine_with_far_interface(&scene, "vm2", "10.240.0.202"));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    let denied = Rule::every(Fault::Deny).on("network", "networkInterfaces.list");
    scene.bed.cloud.fault(denied);
    let error = scene.settle(&["web"], ServiceAction::UpdateHosts).await.unwrap_err().to_string();
    assert!(error.contains("the members of the load balancer"), "{error}");
    scene.bed.cloud.faults(Faults::clear);
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(members(&scene), ["vm0-far", "vm2-far"]);
    scene.delete(&["web"]).await;
    scene.bed.is_clean();
}

/// Roles of the field lack it: OpenShift's does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_read_operations_the_objects_show_the_ends_of_writes() {
    let (denied, operation) = (vec!["operations.get".to_owned()], Duration::from_millis(300));
    let mut scene = Scene::with(Options { denied, operation, ..Options::default() }, "", 0).await;
    let nodes = ["vm0", "vm1"].map(|name| machine_node(&scene, name));
    let members = |scene: &Scene| {
        let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
        items(&pools[0], "backendIPConfigurations").len()
    };
    let life = async {
        scene.service("web", &[], port(80));
        for count in [2, 1, 2] {
            scene.nodes = nodes[..count].to_vec();
            scene.bed.cluster.set_nodes(scene.nodes.clone());
            scene.ensure(&["web"]).await;
            assert_eq!(members(&scene), count);
        }
        scene.delete(&["web"]).await;
        scene.service("api", &[], port(81));
        scene.ensure(&["api"]).await;
        assert_ne!(scene.ip("api"), "");
    };
    tokio::time::timeout(Duration::from_secs(120), life).await.expect("the writes end");
    let events = scene.bed.cluster.take_events();
    let right = "ccm lacks Microsoft.Network/locations/operations/read: ";
    assert_eq!(events.iter().filter(|event| event.contains(right)).count(), 1, "{events:?}");
    scene.bed.is_clean();
}

#[tokio::test]
async fn without_the_right_to_read_operations_a_load_balancer_that_is_deleted_during_its_write_is_made_again() {
    let denied = vec!["operations.get".to_owned()];
    let mut scene = Scene::with(Options { denied, ..Options::default() }, BY_ADDRESS, 1).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    scene.service("web", &[], port(81));
    let put = || "loadBalancers.put".to_owned();
    scene.bed.cloud.change(|options| options.operations = [(put(), 3_600_000)].into());
    let mark = scene.mark();
    let others = async {
        while !scene.writes(mark).contains_key(&put()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        scene.bed.cloud.change(|options| options.operations.clear());
        let balancer = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes");
        scene.bed.cloud.world(|world| world.remove(&balancer));
    };
    let life = tokio::time::timeout(Duration::from_secs(300), futures::future::join(ensured(&scene, &["web"]), others));
    tokio::select! {
        ended = life => drop(ended.expect("it is made again")),
        never = haste(&scene.bed.cloud) => match never {},
    }
    let rules = items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules");
    assert_eq!((rules.len(), &rules[0]["properties"]["frontendPort"]), (1, &json!(81)));
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_of_a_flexible_set_names_the_pool_until_the_load_balancer_goes() {
    let mut scene = Scene::new("", 0).await;
    let seed = SetSeed { name: "flex", flexible: true, instances: 2, ..SetSeed::default() };
    let set = scene.bed.cloud.world(|world| world.scale_set(&seed));
    let node = |number: usize| -> NodeRef {
        let id = format!("azure://{GROUP}/Microsoft.Compute/virtualMachines/flex_{number}");
        Node { name: format!("flex00000{number}").into(), provider_id: Some(id.into()), ..Node::default() }.into()
    };
    scene.nodes = vec![node(0), node(1)];
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    let model = |scene: &Scene| {
        let at = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/\
                  ipConfigurations/0/properties";
        scene.bed.cloud.object(&set).pointer(at).cloned().unwrap()
    };
    let before = model(&scene);
    scene.service("web", &[], port(80));
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    let writes = scene.writes(mark);
    assert_eq!((writes["virtualMachineScaleSets.put"], writes["networkInterfaces.put"]), (1, 2), "{writes:?}");
    assert_eq!(model(&scene)["loadBalancerBackendAddressPools"].as_array().unwrap().len(), 1);
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.bed.calls(mark).len(), 3, "{:?}", scene.bed.calls(mark));
    scene.delete(&["web"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    let mut after = model(&scene);
    after.as_object_mut().unwrap().remove("loadBalancerBackendAddressPools");
    assert_eq!(after, before, "the rest of the model is as it was");
    // Soon again, and two load balancers together.
    scene.service("web", &[], port(80));
    scene.service("internal", &[("azure-load-balancer-internal", "true")], port(80));
    scene.ensure(&["web", "internal"]).await;
    scene.delete(&["web", "internal"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_set_of_another_resource_group_is_not_written() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let pool = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes/backendAddressPools/{CLUSTER}");
    let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet");
    let interface = json!({"name": "nic", "properties": {"primary": true, "ipConfigurations": [{"name": "c",
        "properties": {"subnet": {"id": subnet}, "loadBalancerBackendAddressPools": [{"id": pool}]}}]}});
    let network = json!({"networkInterfaceConfigurations": [interface]});
    let set = scene.bed.cloud.world(|world| {
        let seed = SetSeed { name: "theirs", group: "other", subnet: &subnet, ..SetSeed::default() };
        let set = world.scale_set(&seed);
        world.alter(&set, json!({"properties": {"virtualMachineProfile": {"networkProfile": network}}}));
        set
    });
    let mark = scene.mark();
    let error = scene.settle(&["web"], ServiceAction::Delete).await.unwrap_err().to_string();
    assert!(error.contains("in use by virtual machine scale set") && error.contains("theirs"), "{error}");
    assert_eq!(scene.writes(mark).get("virtualMachineScaleSets.put"), None);
    scene.bed.cloud.world(|world| world.remove(&set));
    scene.delete(&["web"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_security_group_whose_write_fails_late_when_services_go_is_written_again() {
    for code in ["CanceledAndSupersededDueToAnotherOperation", "InternalServerError"] {
        let (mut scene, names) = three(BY_ADDRESS).await;
        scene.service("web0", &[("azure-disable-load-balancer-nsg-rule", "true")], port(80));
        scene.ensure(&names).await;
        let status = if code.starts_with("Canceled") { 409 } else { 500 };
        let fault = Fault::Operation { status, code: code.to_owned(), message: "outage".to_owned() };
        scene.bed.cloud.fault(Rule::every(fault).on("network", "networkSecurityGroups.put").window(0, 1));
        let mut left = names.to_vec();
        for _ in 0..20 {
            let answers = scene.call(&left, ServiceAction::Delete).await;
            let errors = errors(&left, &answers);
            // Nobody's deletion ends before.
            let group = scene.object("networkSecurityGroups", "nsg");
            let is_right = group["properties"]["provisioningState"] == "Succeeded";
            assert!(is_right || errors.len() == left.len(), "{code}: {errors:?}");
            left.retain(|name| errors.contains_key(*name));
            if left.is_empty() {
                break;
            }
        }
        assert_eq!(left, [""; 0]);
        let group = scene.object("networkSecurityGroups", "nsg");
        assert_eq!(group["properties"]["provisioningState"], "Succeeded", "{code}");
        assert!(items(&group, "securityRules").is_empty());
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_cannot_be_read_are_an_error_and_are_not_forgotten() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    let fault = Fault::Code { status: 403, code: "AuthorizationFailed".into(), message: "no".into() };
    scene.bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSetVMs.list").window(0, 1));
    let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
    assert!(error.contains("virtualMachineScaleSets/virtualMachines/read"), "{error}");
    scene.ensure(&["web"]).await;
    let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
    assert_eq!(items(&pools[0], "backendIPConfigurations").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_azure_names_is_kept_and_only_the_surplus_fails() {
    let mut options = Options::default();
    options.limits.rules_per_interface = 4;
    let mut scene = Scene::with(options, "", 1).await;
    scene.service("web0", &[], port(80));
    scene.ensure(&["web0"]).await;
    let names = ["web0", "web1", "web2", "web3"];
    for (number, name) in (81_u16..).zip(&names[1..]) {
        scene.service(name, &[], port(number));
    }
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web3"], "{errors:?}");
    assert!(errors["web3"].contains("would have 4 rules") && errors["web3"].contains("allows 3"), "{errors:?}");
    let mark = scene.mark();
    scene.call(&names, ServiceAction::Ensure).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "no more of it is sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ninth_private_link_of_a_load_balancer_fails_alone() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let names: Vec<String> = (0..9).map(|number| format!("web{number}")).collect();
    for (number, name) in (80_u16..).zip(&names) {
        let annotations = [("azure-load-balancer-internal", "true"), ("azure-pls-create", "true")];
        scene.service(name, &annotations, port(number));
    }
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web8"], "{errors:?}");
    assert!(errors["web8"].contains("9 private link services, and Azure allows 8"), "{errors:?}");
    assert_eq!(scene.objects("privateLinkServices").len(), 8);
    scene.bed.is_clean();
}

/// The instances of a set, and the nodes on them.
fn nodes_of_set(scene: &Scene, name: &'static str, instances: usize) -> Vec<NodeRef> {
    let set = scene.bed.uniform(name, instances);
    let node = |number: usize| -> NodeRef {
        let id = Some(format!("azure://{set}/virtualMachines/{number}").into());
        Node { name: format!("{name}{number:06}").into(), provider_id: id, ..Node::default() }.into()
    };
    (0..instances).map(node).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_cannot_be_written_do_not_hold_up_those_behind_them() {
    let mut scene = Scene::new("", 1).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    scene.nodes.extend(nodes_of_set(&scene, "locked", 105));
    scene.nodes.extend(nodes_of_set(&scene, "next", 3));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    let fault = Fault::Code { status: 409, code: "ScopeLocked".into(), message: "because of locks".into() };
    let rule = Rule { params: Some("virtualMachineScaleSets/locked/".to_owned()), ..Rule::every(fault) };
    scene.bed.cloud.fault(rule.on("compute", "virtualMachineScaleSetVMs.put"));
    for _ in 0..2 {
        let answers = scene.call(&["web"], ServiceAction::UpdateHosts).await;
        assert!(answers[0].result.is_err());
    }
    let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
    let members = items(&pools[0], "backendIPConfigurations");
    let next = members.iter().filter(|it| it["id"].as_str().unwrap().contains("/next/")).count();
    assert_eq!(next, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_that_cannot_be_written_do_not_hold_up_those_behind_them() {
    let mut scene = Scene::new(several::SEVERAL, 2).await;
    let names: Vec<String> = (0..9).map(|number| format!("web{number}")).collect();
    for (number, name) in (80_u16..).zip(&names) {
        let spec =
            json!({"ports": port(number), "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000 + number});
        scene.spec(name, &[("azure-load-balancer-configurations", CLUSTER)], spec);
    }
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let first = scene.nodes.pop().unwrap();
    scene.ensure(&names).await;
    scene.nodes.push(first);
    scene.bed.cluster.set_services(scene.services.values().cloned());
    for number in 0..8 {
        let fault = Fault::Code { status: 400, code: "Refused".into(), message: "no".into() };
        let rule = Rule { params: Some(format!("backendAddressPools/default-web{number}")), ..Rule::every(fault) };
        scene.bed.cloud.fault(rule.on("network", "backendAddressPools.put"));
    }
    for _ in 0..2 {
        scene.call(&names, ServiceAction::UpdateHosts).await;
    }
    let pools = items(&scene.object("loadBalancers", CLUSTER), "backendAddressPools");
    let last = pools.iter().find(|pool| pool["name"] == "default-web8").unwrap();
    assert_eq!(items(last, "loadBalancerBackendAddresses").len(), 2);
}
