//! Hundreds of Services in one call, some of which are bad: the others get their addresses in the same call.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

const SEVERAL: &str = "loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations:\n\
                       - name: kubernetes\n  primaryVMSet: pool\n- name: second\n  primaryVMSet: other\n";

/// Services whose public IP addresses exist, so that the pace of Azure's writes plays no part.
fn crowd(scene: &mut Scene, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("web{number:03}")).collect();
    for name in &names {
        scene.service(name, &[], port(80));
        let ip = public_ip_of(scene, name);
        let tags = json!({"k8s-azure-service": format!("default/{name}"), "k8s-azure-cluster-name": CLUSTER});
        let more = json!({"location": "eastus", "zones": ["1", "2", "3"], "tags": tags});
        scene.bed.cloud.world(|world| world.public_ip("sub", "rg", &ip, more));
    }
    names
}

fn public_ip_of(scene: &Scene, name: &str) -> String {
    let base = scene.services[name].default_load_balancer_name();
    format!("{CLUSTER}-{base}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_services_only_the_bad_ones_fail_and_the_others_have_addresses_in_the_same_call() {
    only_the_bad_ones_fail(40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_machines_leave_all_services_their_addresses_in_the_same_call() {
    bad_machines(40).await;
}

mod long_lane {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_five_hundred_services_only_the_bad_ones_fail_and_the_others_have_addresses_in_the_same_call() {
        only_the_bad_ones_fail(500).await;
    }

    /// As many as an interface has rules.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bad_machines_leave_nearly_three_hundred_services_their_addresses_in_the_same_call() {
        bad_machines(290).await;
    }
}

async fn only_the_bad_ones_fail(count: usize) {
    let options = Options { quotas: [("publicIPAddresses".to_owned(), 2000)].into(), ..Options::default() };
    let mut scene = Scene::with(options, SEVERAL, 3).await;
    // The security group has a place for one rule.
    let rule = |number: i64| {
        json!({"name": format!("theirs-{number}"), "properties": {
            "priority": 1000 + number, "protocol": "Tcp", "access": "Allow", "direction": "Inbound",
            "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationPortRange": "22",
            "destinationAddressPrefix": "*",
        }})
    };
    let rules: Vec<Value> = (0..999).map(rule).collect();
    let group = format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg");
    scene.bed.cloud.world(|world| world.alter(&group, json!({"properties": {"securityRules": rules}})));
    let names = crowd(&mut scene, count);
    let (odd, inner) = (&*names[count - 2], &*names[count - 1]);
    scene.service(odd, &[], port(81));
    let subnet = [("azure-load-balancer-internal", "true"), ("azure-load-balancer-internal-subnet", "attic")];
    scene.service(inner, &subnet, port(80));
    let ip = public_ip_of(&scene, "web007");
    let message = format!("Public IP address {GROUP}/Microsoft.Network/publicIPAddresses/{ip} is not allowed here.");
    let fault = Fault::Code { status: 400, code: "PublicIPAddressNotAllowed".into(), message };
    scene.bed.cloud.fault(Rule { params: Some(ip), ..Rule::every(fault).on("network", "loadBalancers.put") });
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();

    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let mut errors = errors(&names, &answers);
    // On a busy machine, the operation on the security group outlasts the call. The load
    // balancers have been written in it.
    let is_waiting = |name: &&str| {
        answers[names.iter().position(|other| other == name).unwrap()]
            .result
            .as_ref()
            .is_err_and(ProviderError::is_in_progress)
    };
    let waiting: Vec<&str> = names.iter().copied().filter(is_waiting).collect();
    errors.retain(|name, _| !waiting.contains(&&**name));
    let mark = scene.mark();
    scene.settle(&waiting, ServiceAction::Ensure).await.unwrap();
    assert!(!scene.writes(mark).contains_key("loadBalancers.put"), "{:?}", scene.writes(mark));
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web007", odd, inner], "{errors:#?}");
    let texts = [
        ("web007", "is not allowed here"),
        ("web007", "kubernetes-a0000000811112222333344444444444"),
        (odd, "(1001 > 1000); use fewer different ports"),
        (inner, "the subnet attic of the virtual network vnet does not exist; create it"),
        (inner, "azure-load-balancer-internal-subnet"),
    ];
    for (name, text) in texts {
        assert!(errors[name].contains(text), "{text}: {}", errors[name]);
    }
    assert_eq!(names.iter().filter(|name| !scene.ip(name).is_empty()).count(), count - 2, "also that without a rule");
    let rules = |name: &str| items(&scene.object("loadBalancers", name), "loadBalancingRules").len();
    assert_eq!(rules("kubernetes") + rules("second"), count - 2);
    scene.bed.is_clean();
}

async fn bad_machines(count: usize) {
    let mut scene = Scene::new("", 3).await;
    let names = crowd(&mut scene, count);
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let instance = scene.nodes[1].provider_id_or_empty().trim_start_matches("azure://").to_owned();
    scene.nodes.push(machine_node(&scene, "vm0"));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    let interface = format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic");
    scene.bed.cloud.world(|world| {
        world.state(&instance, "Deleting");
        world.state(&interface, "Failed");
    });
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    assert_eq!(errors(&names, &answers), BTreeMap::new());
    assert!(names.iter().all(|name| !scene.ip(name).is_empty()));
    let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
    assert_eq!(items(&pools[0], "backendIPConfigurations").len(), 2, "the others are members");
    let events = scene.bed.cluster.take_events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("vm0") && events[0].contains("state Failed; repair it"), "{events:?}");
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_member_that_has_failed_is_repaired_or_named() {
    for is_instance in [true, false] {
        let mut scene = Scene::new("", 2).await;
        scene.nodes.push(machine_node(&scene, "vm0"));
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        scene.service("web0", &[], port(80));
        scene.ensure(&["web0"]).await;
        let (id, action) = match is_instance {
            true => {
                let id = scene.nodes[0].provider_id_or_empty().trim_start_matches("azure://").to_owned();
                (id, ("compute", "virtualMachineScaleSetVMs.put"))
            }
            false => {
                let id = format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic");
                (id, ("network", "networkInterfaces.put"))
            }
        };
        scene.bed.cloud.world(|world| world.state(&id, "Failed"));
        scene.service("web1", &[], port(81));
        scene.ensure(&["web0", "web1"]).await;
        assert_eq!(scene.bed.cloud.object(&id)["properties"]["provisioningState"], "Succeeded");
        // What cannot be repaired is named.
        let mark = scene.mark();
        scene.restart().await;
        let message = "disk is gone".to_owned();
        let fault = Fault::Operation { status: 409, code: "ConflictingUserInput".into(), message };
        scene.bed.cloud.fault(Rule::every(fault).on(action.0, action.1));
        scene.bed.cloud.world(|world| world.state(&id, "Failed"));
        scene.service("web2", &[], port(82));
        let error = scene.settle(&["web2"], ServiceAction::Ensure).await.unwrap_err().to_string();
        let name = id.rsplit('/').next().unwrap();
        assert!(error.contains(name) && error.contains("not in Succeeded state"), "{error}");
        scene.settle(&["web2"], ServiceAction::Ensure).await.unwrap_err();
        assert_eq!(scene.writes(mark)[action.1], 1, "it is not tried again at once");
        scene.bed.cloud.faults(Faults::clear);
        crate::bed::pass(31).await;
        scene.ensure(&["web2"]).await;
        assert_eq!(scene.bed.cloud.object(&id)["properties"]["provisioningState"], "Succeeded");
    }
}
