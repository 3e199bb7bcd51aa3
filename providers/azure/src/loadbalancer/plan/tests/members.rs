//! The members of pools.

use super::*;

fn with_interfaces() -> World {
    let mut world = World::new();
    world.env.pools = PoolKind::Interfaces;
    let network = json!({"networkInterfaceConfigurations": [{"name": "nic", "properties": {"primary": true,
        "ipConfigurations": [{"name": "c", "properties": {"primary": true, "privateIPAddressVersion": "IPv4"}}]}}]});
    for number in 1..=4 {
        let id = format!("{SET}/virtualMachines/{number}");
        let instance = json!({"id": id, "location": "westus", "etag": "1", "properties": {
            "provisioningState": "Succeeded", "networkProfileConfiguration": network}});
        world.observed.interfaces.instances.insert(id.to_lowercase(), instance);
    }
    let model =
        json!({"id": SET, "location": "westus", "properties": {"virtualMachineProfile": {"networkProfile": network}}});
    world.observed.interfaces.models.insert(SET.to_lowercase(), model);
    world
}

fn members(world: &World) -> Vec<String> {
    let pools = json::items(world.balancer("kubernetes"), "backendAddressPools");
    let list = json::items(&pools[0], "backendIPConfigurations").iter();
    list.map(|it| json::text(it, &["id"]).split("/virtualmachines/").nth(1).unwrap()[..1].to_owned()).collect()
}

#[test]
fn instances_join_with_one_write_of_the_model_and_the_model_first() {
    let mut world = with_interfaces();
    world.service("web", &[], json!({})).settle(&[]);
    let of_members = world.writes.iter().filter(|write| write.contains("ScaleSet")).cloned().collect::<Vec<_>>();
    assert_eq!(of_members, ["attach ScaleSet set", "attach ScaleSetInstance set/1", "attach ScaleSetInstance set/2"]);
    assert_eq!(members(&world), ["1", "2"]);
    world.nodes.push(node(3));
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(world.writes, ["attach ScaleSetInstance set/3"]);
    world.settle(&["web"]);
    let last: Vec<&str> = world.writes.iter().map(|write| write.split(' ').nth(1).unwrap()).collect();
    assert_eq!(
        last,
        [
            "SecurityGroup",
            "ScaleSet",
            "ScaleSetInstance",
            "ScaleSetInstance",
            "ScaleSetInstance",
            "LoadBalancer",
            "PublicIPAddress"
        ]
    );
    assert!(world.observed.balancers.is_empty());
}

#[test]
fn a_node_that_is_excluded_leaves_but_the_last_one_does_not() {
    let mut world = with_interfaces();
    world.service("web", &[], json!({})).settle(&[]);
    let exclude = |world: &mut World, place: usize| {
        let mut node = (*world.nodes[place]).clone();
        node.labels = [("kubernetes.azure.com/managed", "false")].into_iter().collect();
        world.nodes[place] = node.into();
    };
    exclude(&mut world, 0);
    world.settle(&[]);
    assert_eq!(members(&world), ["2"]);
    exclude(&mut world, 1);
    world.settle(&[]);
    assert_eq!(members(&world), ["2"], "the pool is not emptied");
}

#[test]
fn stopped_and_unknown_machines_are_left_out() {
    let mut world = with_interfaces();
    let stopped = format!("{SET}/virtualMachines/1").to_lowercase();
    let view = json!({"properties": {"instanceView": {"statuses": [{"code": "PowerState/deallocated"}]}}});
    json::overlay(world.observed.interfaces.instances.get_mut(&stopped).unwrap(), &view);
    world.nodes.push(node(9));
    world.service("web", &[], json!({})).settle(&[]);
    assert_eq!(members(&world), ["2"]);
}

#[test]
fn the_model_of_a_set_behind_another_load_balancer_stays() {
    let mut world = with_interfaces();
    let mine = ArmId::new("s", "rg", "Microsoft.Network/loadBalancers", "mylb").child("backendAddressPools", "pool");
    let join = |interface: &mut Value| {
        interface["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
            json!([{"id": mine.as_str()}]);
    };
    let first = format!("{SET}/virtualMachines/1").to_lowercase();
    let interfaces = &mut world.observed.interfaces;
    let profile = &mut interfaces.instances.get_mut(&first).unwrap()["properties"]["networkProfileConfiguration"];
    join(&mut profile["networkInterfaceConfigurations"][0]);
    let model = interfaces.models.get_mut(&SET.to_lowercase()).unwrap();
    let profile = &mut model["properties"]["virtualMachineProfile"]["networkProfile"];
    join(&mut profile["networkInterfaceConfigurations"][0]);
    world.service("web", &[], json!({})).settle(&[]);
    assert_eq!(members(&world), ["2"]);
    assert_eq!(world.count("attach ScaleSet set"), 0, "{:?}", world.writes);
}

#[test]
fn an_instance_that_is_being_deleted_is_not_written() {
    let mut world = with_interfaces();
    world.nodes.push(node(3));
    world.service("web", &[], json!({})).settle(&[]);
    let last = format!("{SET}/virtualMachines/3").to_lowercase();
    let instance = world.observed.interfaces.instances.get_mut(&last).unwrap();
    json::overlay(instance, &json!({"properties": {"provisioningState": "Deleting"}}));
    let exclude = [("kubernetes.azure.com/managed", "false")].into_iter().collect();
    world.nodes[2] = Arc::new(Node { labels: exclude, ..(*world.nodes[2]).clone() });
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn a_set_that_cannot_be_read_keeps_only_its_own_nodes_waiting() {
    let mut world = with_interfaces();
    let mut other = (*node(9)).clone();
    let set = SET.replace("/set", "/other");
    other.provider_id = Some(format!("azure://{set}/virtualMachines/1").into());
    world.nodes.push(other.into());
    world.observed.interfaces.unread = [(set.to_lowercase(), ProviderError::unknown("no answer"))].into();
    let errors = world.service("web", &[], json!({})).pass(&[]);
    assert!(errors["web"].contains("the members of the load balancer: no answer"), "{errors:?}");
    assert_eq!(members(&world), ["1", "2"]);
}

#[test]
fn interfaces_of_machines_join_too() {
    let mut world = with_interfaces();
    let machine = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/vm";
    let nic = ArmId::new("s", "rg", "Microsoft.Network/networkInterfaces", "vm-nic");
    let interface = json!({"id": nic.as_str(), "unknown": 1, "properties": {"primary": true,
        "virtualMachine": {"id": machine}, "ipConfigurations": [{"name": "c", "properties": {"x": 1}}]}});
    world.observed.interfaces.interfaces.insert(nic.folded(), interface);
    world.observed.interfaces.owners.insert(nic.folded(), machine.to_lowercase());
    world.nodes = vec![Arc::new(Node {
        name: "vm".into(),
        provider_id: Some(format!("azure://{machine}").into()),
        ..Node::default()
    })];
    world.service("web", &[], json!({})).settle(&[]);
    assert_eq!(world.count("attach NetworkInterface vm-nic"), 1);
    let after = &world.observed.interfaces.interfaces[&nic.folded()];
    assert_eq!(
        (&after["unknown"], &after["properties"]["ipConfigurations"][0]["properties"]["x"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn an_interface_without_a_machine_is_named_and_stops_nobody() {
    let mut world = with_interfaces();
    world.service("web", &[], json!({})).settle(&[]);
    let nic = ArmId::new("s", "rg", "Microsoft.Network/networkInterfaces", "lonely");
    let pools = json::items_mut(world.balancer_mut("kubernetes"), "backendAddressPools");
    let configuration = json!({"id": format!("{nic}/ipConfigurations/c")});
    pools[0]["properties"]["backendIPConfigurations"].as_array_mut().unwrap().push(configuration);
    world.observed.interfaces.owners.insert(nic.folded(), String::new());
    world.nodes.push(node(3));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    let finding = &plan.findings[0];
    assert!(finding.key == "LoadBalancerMemberSkipped" && finding.message.contains("lonely"), "{finding:?}");
    assert_eq!(world.pass(&[]), BTreeMap::new());
    assert_eq!(world.writes, ["attach ScaleSetInstance set/3"]);
}

#[test]
fn an_edge_zone_is_in_all_new_objects_and_the_model() {
    let mut world = with_interfaces();
    world.env.extended_location = Some(("edge1".into(), "EdgeZone".into()));
    world.observed.zones.clear();
    let link = [("azure-load-balancer-internal", "true"), ("azure-pls-create", "true")];
    world.service("web", &[], json!({})).service("inner", &link, port(81));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    let model = plan.steps.iter().find_map(|step| match &step.write {
        Write::Model(change) => change.body(),
        _ => None,
    });
    world.settle(&[]);
    let links = world.observed.links.values().filter_map(Seen::present).flatten().cloned();
    let mut all: Vec<Value> = links.chain(world.addresses().into_iter().cloned()).chain(model).collect();
    all.extend(world.observed.balancers.iter().map(|it| Value::clone(it)));
    assert_eq!(all.len(), 5);
    for object in all {
        assert_eq!(object["extendedLocation"], json!({"name": "edge1", "type": "EdgeZone"}), "{object:#}");
        assert!(object.get("zones").is_none(), "{object:#}");
    }
    let frontend = &json::items(world.balancer("kubernetes-internal"), "frontendIPConfigurations")[0];
    assert!(frontend.get("zones").is_none(), "{frontend:#}");
}

#[test]
fn machines_of_more_than_150_availability_sets_are_left_out_before_anything_is_sent() {
    let mut world = with_interfaces();
    world.nodes.clear();
    let group = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute";
    for number in 0..153 {
        let vm = format!("{group}/virtualMachines/vm{number:03}");
        // Two are in the same set, and one is of a flexible scale set.
        let set = match number {
            0 | 151 => format!("{group}/availabilitySets/own"),
            152 => format!("{group}/virtualMachineScaleSets/flexible"),
            _ => String::new(),
        };
        let nic = ArmId::new("s", "rg", "Microsoft.Network/networkInterfaces", &format!("nic{number:03}"));
        let interface = json!({"id": nic.as_str(), "properties": {"primary": true, "virtualMachine": {"id": vm},
            "ipConfigurations": [{"name": "c", "properties": {}}]}});
        let interfaces = &mut world.observed.interfaces;
        interfaces.interfaces.insert(nic.folded(), interface);
        interfaces.owners.insert(nic.folded(), vm.to_lowercase());
        interfaces.sets.insert(vm.to_lowercase(), set);
        let provider_id = Some(format!("azure://{vm}").into());
        world.nodes.push(Arc::new(Node { name: format!("vm{number:03}").into(), provider_id, ..Node::default() }));
    }
    world.service("web", &[], json!({}));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    let findings: Vec<&str> = plan.findings.iter().map(|finding| &*finding.message).collect();
    assert!(findings.iter().any(|text| text.contains("150") && text.contains("no place for vm150;")), "{findings:?}");
    // A call changes 10 or 100.
    for _ in 0..2 {
        assert_eq!(world.pass(&[]), BTreeMap::new());
    }
    world.settle(&[]);
    let pools = json::items(world.balancer("kubernetes"), "backendAddressPools");
    assert_eq!(json::items(&pools[0], "backendIPConfigurations").len(), 152);
}

#[test]
fn one_call_changes_a_slice_of_many_members() {
    let mut world = with_interfaces();
    let template = world.observed.interfaces.instances.values().next().unwrap().clone();
    world.nodes.clear();
    for number in 1..=150 {
        let id = format!("{SET}/virtualMachines/{number}");
        let mut instance = template.clone();
        instance["id"] = json!(id);
        world.observed.interfaces.instances.insert(id.to_lowercase(), instance);
        world.nodes.push(node(number));
    }
    world.service("web", &[], json!({}));
    for slice in [10, 100, 40] {
        assert_eq!(world.pass(&[]), BTreeMap::new());
        assert_eq!(world.count("attach ScaleSetInstance"), slice, "a small one while Services wait for an address");
    }
}

#[test]
fn pools_whose_members_others_manage_are_left_alone() {
    let mut world = with_interfaces();
    world.env.preconfigured.external = true;
    world.service("web", &[], json!({})).settle(&[]);
    assert_eq!(world.status("web").len(), 1);
    world.nodes.remove(0);
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn without_floating_ip_the_members_that_others_manage_are_the_destinations() {
    let mut world = World::new();
    world.env.preconfigured.external = true;
    world.service("web", &[("azure-disable-load-balancer-floating-ip", "true")], json!({})).settle(&[]);
    let destinations = |world: &World| world.rules()[0]["properties"].clone();
    assert_eq!(destinations(&world)["destinationAddressPrefixes"], json!(["10.0.0.1", "10.0.0.2"]));
    let pool = &mut json::items_mut(world.balancer_mut("kubernetes"), "backendAddressPools")[0];
    json::items_mut(pool, "loadBalancerBackendAddresses").pop();
    world.settle(&[]);
    assert_eq!(destinations(&world)["destinationAddressPrefix"], "10.0.0.1");
}

#[test]
fn addresses_of_gone_nodes_leave_the_pool_and_others_keep_what_is_set() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let pool = json::items_mut(world.balancer_mut("kubernetes"), "backendAddressPools");
    pool[0]["properties"]["loadBalancerBackendAddresses"][1]["properties"]["adminState"] = json!("Down");
    let kept = pool[0]["properties"]["loadBalancerBackendAddresses"][1].clone();
    world.nodes.remove(0);
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(world.writes, ["attach LoadBalancer kubernetes"]);
    let pools = json::items(world.balancer("kubernetes"), "backendAddressPools");
    assert_eq!(json::items(&pools[0], "loadBalancerBackendAddresses"), [kept]);
    world.nodes.clear();
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(world.writes, [] as [String; 0], "the pool is not emptied");
}

#[test]
fn a_node_without_an_address_of_the_family_is_no_member() {
    let mut world = World::new();
    world.nodes = vec![Arc::new(Node {
        name: "v4".into(),
        provider_id: Some(format!("azure://{SET}/virtualMachines/1").into()),
        addresses: [NodeAddress::new(AddressType::InternalIp, "10.0.0.1")].into(),
        ..Node::default()
    })];
    world.service("web", &[], json!({"ipFamilies": ["IPv4", "IPv6"]})).settle(&[]);
    let pools = json::items(world.balancer("kubernetes"), "backendAddressPools");
    let of = |name: &str| json::items(json::named(pools, name).unwrap(), "loadBalancerBackendAddresses").len();
    assert_eq!((of("kubernetes"), of("kubernetes-IPv6")), (1, 0));
}

#[test]
fn a_pool_of_interfaces_becomes_one_of_addresses_by_one_call() {
    let mut world = with_interfaces();
    world.service("web", &[], json!({})).settle(&[]);
    world.env.pools = PoolKind::Addresses;
    assert_eq!(world.pass(&[]), BTreeMap::new());
    assert_eq!(world.writes, ["update LoadBalancer kubernetes"]);
    world.settle(&[]);
    let writes = ["detach ScaleSet set", "attach LoadBalancer kubernetes"];
    assert_eq!(world.writes, writes, "the model no longer names the pool, and the other node joins");
    world.env.pools = PoolKind::Interfaces;
    if let Some(pool) = json::items_mut(world.balancer_mut("kubernetes"), "backendAddressPools").first_mut() {
        pool["properties"]["virtualNetwork"] = json!({"id": "net"});
    }
    assert!(world.pass(&[])["web"].contains("\"nodeIP\""));
}
