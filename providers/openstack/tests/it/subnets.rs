//! The subnets of members.

use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::{Service, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{FIPS, LBS, Scene, forget, id, service, set, web};

ccm_test_openstack::cases! { [crate::scene]
    both: ;
    simulated:
        members_on_a_balancer_of_the_user_are_in_the_subnet_of_the_nodes,
        members_on_a_balancer_of_the_user_stay_in_their_subnet,
        the_group_lets_in_the_subnets_of_members_that_stay,
        members_stay_in_their_subnet_without_the_class_that_named_it,
        an_address_that_turns_out_to_be_an_ipv6_one_gets_no_floating_ip;
}

/// Another subnet of the nodes' network, joined by its router; returns its ID.
fn subnet(scene: &Scene, cidr: &str) -> String {
    let (network, router) = (scene.place().network.clone(), scene.place().router.clone());
    let subnet = scene
        .simulation()
        .world(|world| world.subnet(&SubnetSeed { network: &network, cidr, ..SubnetSeed::default() }));
    scene.simulation().world(|world| {
        let fields = json!({"device_id": router, "device_owner": "network:router_interface"});
        let project = world.row("router", &router).unwrap().text("project_id").to_owned();
        world.port(&project, &[&subnet], fields).unwrap();
    });
    subnet
}

/// A balancer of the user with a floating IP, in a subnet without nodes.
async fn in_a_dmz(scene: &Scene) -> (String, String) {
    let dmz = subnet(scene, "10.51.0.0/24");
    let lb = scene.make(LBS, "loadbalancer", json!({"name": "by-hand", "vip_subnet_id": dmz})).await;
    let body = json!({"floating_network_id": scene.place().external, "port_id": scene.balancer().await["vip_port_id"]});
    scene.make(FIPS, "floatingip", body).await;
    (lb, dmz)
}

/// The subnets of all members.
async fn subnets(scene: &Scene) -> Vec<Value> {
    scene.whole_members().await.iter().map(|member| member["subnet_id"].clone()).collect()
}

async fn members_on_a_balancer_of_the_user_are_in_the_subnet_of_the_nodes(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let (lb, _) = in_a_dmz(scene).await;
    let mut web = web();
    set(&mut web, "load-balancer-id", &lb);
    let nodes = scene.place().subnet.clone();
    scene.ensure(&mut web).await;
    assert_eq!(subnets(scene).await, [&*nodes; 3]);
    assert!(scene.rules().await.iter().all(|rule| rule.contains("10.50.0.0/24")));
    scene.is_steady(&mut web).await;
    scene.nodes.pop();
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let node = scene.node(&format!("new-{action:?}").to_lowercase()).await;
        scene.nodes.push(node);
        scene.restart().await;
        scene.process.work(&mut web, &scene.nodes, action).await.unwrap();
        assert_eq!(subnets(scene).await, vec![&*nodes; scene.nodes.len()]);
    }
    scene.is_steady(&mut web).await;
}

/// The client that made them chose it: the Go program takes the subnet of its first node.
async fn members_on_a_balancer_of_the_user_stay_in_their_subnet(scene: &mut Scene) {
    let (lb, _) = in_a_dmz(scene).await;
    let other = subnet(scene, "10.52.0.0/24");
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    set(&mut web, "load-balancer-id", &lb);
    scene.ensure(&mut web).await;
    scene.simulation().world(|world| {
        let ids: Vec<String> = world.table("member").values().map(|row| row.id().to_owned()).collect();
        ids.iter().for_each(|id| world.row_mut("member", id).unwrap().set("subnet_id", &*other));
    });
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        scene.nodes.pop();
        forget(&mut web);
        scene.process.work(&mut web, &scene.nodes, action).await.unwrap();
        assert_eq!(subnets(scene).await, vec![&*other; scene.nodes.len() * 2], "{action:?}");
    }
}

/// Also while the balancer is as recorded, so that its members are not read.
async fn the_group_lets_in_the_subnets_of_members_that_stay(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let (lb, dmz) = in_a_dmz(scene).await;
    let mut web = web();
    set(&mut web, "load-balancer-id", &lb);
    scene.ensure(&mut web).await;
    scene.is_steady(&mut web).await;
    let (of_nodes, of_dmz) = ("tcp 30080 10.50.0.0/24", "tcp 30080 10.51.0.0/24");
    assert_eq!(scene.rules().await, [of_nodes]);
    // The Go program, or an older release, has put members into either subnet, or into none.
    for subnet in [json!(dmz), Value::Null] {
        scene.simulation().world(|world| {
            let ids: Vec<String> = world.table("member").values().map(|row| row.id().to_owned()).collect();
            ids.iter().for_each(|id| world.row_mut("member", id).unwrap().set("subnet_id", subnet.clone()));
        });
        let group = scene.groups().await.remove(0);
        for rule in group["security_group_rules"].as_array().unwrap() {
            scene.write("DELETE", &format!("/v2.0/security-group-rules/{}", id(rule)), Value::Null).await;
        }
        let rule = json!({"security_group_id": id(&group), "direction": "ingress", "ethertype": "IPv4",
            "protocol": "tcp", "port_range_min": 30080, "port_range_max": 30080, "remote_ip_prefix": "10.51.0.0/24"});
        scene.make("/v2.0/security-group-rules", "security_group_rule", rule).await;
        scene.restart().await;
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!(calls.of("loadbalancer_member_list"), 0, "{calls:?}");
        assert_eq!(scene.rules().await, [of_nodes, of_dmz], "the members are not read");
        forget(&mut web);
        scene.restart().await;
        scene.ensure(&mut web).await;
        assert_eq!(scene.rules().await, [of_nodes, of_dmz], "the members are read");
        assert_eq!(subnets(scene).await, vec![subnet; 3]);
        scene.is_steady(&mut web).await;
    }
    // A group that was deleted by hand gets all its rules at once.
    let group = id(&scene.groups().await.remove(0)).to_owned();
    for port in scene.list(&format!("/v2.0/ports?security_groups={group}")).await {
        let body = json!({"port": {"security_groups": []}});
        scene.write("PUT", &format!("/v2.0/ports/{}", id(&port)), body).await;
    }
    scene.write("DELETE", &format!("/v2.0/security-groups/{group}"), Value::Null).await;
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, [of_nodes, of_dmz]);
    // Only new members are left.
    scene.nodes = vec![scene.node("new").await];
    scene.update_hosts(&mut web).await;
    forget(&mut web);
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, [of_nodes]);
    scene.is_steady(&mut web).await;
}

async fn members_stay_in_their_subnet_without_the_class_that_named_it(scene: &mut Scene) {
    let of_class = subnet(scene, "10.51.0.0/24");
    let conf = format!("[LoadBalancerClass \"dmz\"]\nmember-subnet-id = {of_class}\n");
    for serial in [false, true] {
        let more = format!("[LoadBalancer]\nprovider-requires-serial-api-calls = {serial}\n");
        scene.configure(&format!("{conf}{more}")).await;
        let mut web = web();
        set(&mut web, "class", "dmz");
        scene.ensure(&mut web).await;
        assert_eq!(subnets(scene).await, [&*of_class; 3]);
        scene.configure(&more).await;
        let answers: [fn(&mut Service); 2] = [drop_status, add_status];
        for (action, status) in [ServiceAction::UpdateHosts, ServiceAction::Ensure].into_iter().zip(answers) {
            scene.nodes.remove(0);
            let node = scene.node(&format!("{serial}-{action:?}").to_lowercase()).await;
            scene.nodes.push(node);
            status(&mut web);
            let answer = scene.process.work(&mut web, &scene.nodes, action).await;
            assert_eq!(answer.is_err(), action == ServiceAction::Ensure, "{answer:?}");
            let names: Vec<String> = scene.nodes.iter().map(|node| node.name.to_string()).collect();
            let members = scene.members().await;
            assert!(
                members.len() == 3 && names.iter().all(|name| members.iter().any(|it| it.contains(name))),
                "{members:?}"
            );
            assert_eq!(subnets(scene).await, [&*of_class; 3], "{action:?}");
        }
        scene.delete(&mut web).await;
    }
}

fn drop_status(service: &mut Service) {
    service.status.load_balancer.ingress.clear();
}

fn add_status(service: &mut Service) {
    service.status.load_balancer.ingress.push(Default::default());
}

async fn an_address_that_turns_out_to_be_an_ipv6_one_gets_no_floating_ip(scene: &mut Scene) {
    let network = scene.place().network.clone();
    let v6 = scene
        .simulation()
        .world(|world| world.subnet(&SubnetSeed { network: &network, cidr: "fd00:50::/64", ..SubnetSeed::default() }));
    let mut web = service("web", &[(80, 30080)], json!({"ipFamilies": null}));
    set(&mut web, "subnet-id", &v6);
    set(&mut web, "member-subnet-id", &scene.place().subnet.clone());
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert!(address.starts_with("fd00:50:"), "{address}");
    assert_eq!(calls.of("floating_ip_create"), 0, "{calls:?}");
    scene.is_steady(&mut web).await;
}
