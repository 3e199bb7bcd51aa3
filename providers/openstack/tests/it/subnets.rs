//! The subnets of members.

use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::well_known::{LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED};
use ccm_provider::{AddressType, Node, NodeAddress, NodeRef, Service, ServiceAction, Taint};
use serde_json::{Value, json};

use crate::scene::{FIPS, LBS, Scene, forget, id, service, set, uid, web};

ccm_test_openstack::cases! { [crate::scene]
    both: ;
    simulated:
        members_on_a_balancer_of_the_user_are_in_the_subnet_of_the_nodes,
        members_on_a_balancer_of_the_user_stay_in_their_subnet,
        the_group_lets_in_the_subnets_of_members_that_stay,
        the_group_lets_in_the_former_subnet_until_no_member_is_in_it,
        the_group_lets_in_the_subnets_of_members_behind_a_listener_of_http,
        members_stay_in_their_subnet_without_the_class_that_named_it,
        nodes_that_load_balancers_leave_out_give_no_subnet,
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

/// A node whose name is the first one, in this subnet.
fn first_node(scene: &Scene, subnet: &str) -> Node {
    let server = uid("a-first");
    let address = scene.simulation().world(|world| {
        let project = world.row("subnet", subnet).unwrap().text("project_id").to_owned();
        let port = world.port(&project, &[subnet], json!({"device_id": server})).unwrap();
        world.row("port", &port).unwrap().list("fixed_ips")[0]["ip_address"].as_str().unwrap().to_owned()
    });
    let addresses = [NodeAddress::new(AddressType::InternalIp, &*address)].into();
    let provider_id = Some(format!("openstack:///{server}").into());
    Node { name: "a-first".into(), provider_id, addresses, ..Node::default() }
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

/// A configured subnet is that of the members of the next change of nodes.
async fn the_group_lets_in_the_former_subnet_until_no_member_is_in_it(scene: &mut Scene) {
    let (former, other) = (scene.place().subnet.clone(), subnet(scene, "10.51.0.0/24"));
    let managed = "[LoadBalancer]\nmanage-security-groups = true\n";
    let (of_former, of_other) = ("tcp 30080 10.50.0.0/24", "tcp 30080 10.51.0.0/24");
    for key in ["annotation", "member-subnet-id", "subnet-id"] {
        scene.configure(managed).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        scene.is_steady(&mut web).await;
        match key {
            "annotation" => set(&mut web, "member-subnet-id", &other),
            key => scene.configure(&format!("{managed}{key} = {other}\n")).await,
        }
        // Also when the balancer is as recorded, so that its members are not read.
        for step in ["the change", "nothing", "a host update", "a restart"] {
            match step {
                "a host update" => scene.update_hosts(&mut web).await,
                "a restart" => scene.restart().await,
                _ => {}
            }
            scene.ensure(&mut web).await;
            assert_eq!(scene.rules().await, [of_former, of_other], "{key}: {step}");
            assert_eq!(subnets(scene).await, vec![&*former; scene.nodes.len()]);
        }
        scene.is_steady(&mut web).await;
        let node = scene.node(&format!("new-{key}")).await;
        scene.nodes.push(node);
        scene.update_hosts(&mut web).await;
        assert_eq!(subnets(scene).await, vec![&*other; scene.nodes.len()]);
        scene.ensure(&mut web).await;
        assert_eq!(scene.rules().await, [of_other], "{key}");
        scene.is_steady(&mut web).await;
        // A rule that no member needs goes, without another read of the members than that for which it is the reason.
        let group = id(&scene.groups().await[0]).to_owned();
        let rule = json!({"security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
            "port_range_min": 30080, "port_range_max": 30080, "remote_ip_prefix": "10.99.0.0/24"});
        scene.make("/v2.0/security-group-rules", "security_group_rule", rule).await;
        for reads in [1, 0] {
            let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
            assert_eq!((calls.of("loadbalancer_member_list"), scene.rules().await.len()), (reads, 1), "{calls:?}");
        }
        scene.delete(&mut web).await;
    }
}

async fn the_group_lets_in_the_subnets_of_members_behind_a_listener_of_http(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let (lb, dmz) = in_a_dmz(scene).await;
    let mut web = web();
    web.spec.ports[0].protocol = "UDP".to_owned();
    set(&mut web, "load-balancer-id", &lb);
    set(&mut web, "x-forwarded-for", "true");
    scene.ensure(&mut web).await;
    scene.simulation().world(|world| {
        let ids: Vec<String> = world.table("member").values().map(|row| row.id().to_owned()).collect();
        ids.iter().for_each(|id| world.row_mut("member", id).unwrap().set("subnet_id", &*dmz));
    });
    forget(&mut web);
    scene.restart().await;
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, ["udp 30080 10.50.0.0/24", "udp 30080 10.51.0.0/24"]);
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

/// A control plane of kubeadm in a subnet of its own would decide for ever where the address of the Service is.
async fn nodes_that_load_balancers_leave_out_give_no_subnet(scene: &mut Scene) {
    let other = subnet(scene, "10.51.0.0/24");
    let node = first_node(scene, &other);
    let workers = std::mem::take(&mut scene.nodes);
    let taint =
        Taint { key: TAINT_TO_BE_DELETED.into(), value: "".into(), effect: "NoSchedule".into(), time_added: None };
    let excluded = [(LABEL_EXCLUDE_BALANCERS, ""), ("edge", "yes")].into_iter().collect();
    for left_out in [
        Node { labels: excluded, ..node.clone() },
        Node { taints: [taint].into(), ..node.clone() },
        Node { deleting: true, ..node.clone() },
    ] {
        let mut web = web();
        scene.nodes = vec![NodeRef::new(left_out)];
        for selector in [None, Some("edge=yes")] {
            if let Some(selector) = selector {
                set(&mut web, "node-selector", selector);
            }
            let refused = scene.refused(&mut web).await;
            assert!(refused.contains("there are no available nodes for LoadBalancer service"), "{refused}");
        }
        scene.nodes.extend(workers.iter().cloned());
        scene.events();
        scene.ensure(&mut web).await;
        assert_eq!(scene.balancer().await["vip_subnet_id"], *scene.place().subnet);
        let events = scene.events();
        let text = "no node that can be a member has these labels";
        assert!(events.iter().any(|event| event.contains(text)), "{events:?}");
        scene.delete(&mut web).await;
    }
}
