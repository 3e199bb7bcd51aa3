//! Managed security groups.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Node, Service, ServiceAction};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::scene::{GROUPS, LBS, Scene, annotation, forget, id, service, set, web};

const MANAGED: &str = "[LoadBalancer]\nmanage-security-groups = true\n";

ccm_test_openstack::cases! { [crate::scene]
    both:
        the_group_lets_the_members_subnet_in_and_is_on_every_port,
        the_port_of_a_node_that_leaves_loses_the_group,
        what_was_changed_by_hand_is_put_right;
    simulated:
        rules_follow_the_ports_of_the_service,
        a_node_without_a_provider_id_fails_alone,
        a_node_of_another_cloud_is_a_member_and_has_no_ports_here,
        where_no_group_is_managed_the_right_to_list_them_is_not_needed,
        the_rules_wait_for_the_subnet_that_octavia_chooses,
        tags_of_old_releases_go_with_the_group,
        once_switched_off_groups_go_and_are_not_looked_for_again,
        once_switched_off_the_group_of_a_balancer_deleted_by_hand_goes_too,
        groups_of_services_that_restart_together_are_read_together,
        two_groups_of_one_name_are_an_error,
        an_update_of_nodes_asks_for_what_was_deleted_by_hand,
        with_ovn_clients_reach_the_nodes_and_an_update_of_nodes_keeps_the_rules,
        a_rule_that_is_gone_already_does_not_keep_ports_from_the_group,
        a_port_that_another_writer_changes_keeps_both_groups,
        a_new_node_of_a_refused_service_gets_the_group,
        access_opens_before_members_and_monitors_need_it_and_closes_after_them,
        the_rule_of_a_node_port_stays_until_the_members_have_the_next_one,
        clients_that_are_shut_out_do_not_wait_for_a_refused_port;
}

/// The number of ports with the group.
async fn ports(scene: &Scene) -> usize {
    let group = scene.groups().await.remove(0);
    scene.list(&format!("/v2.0/ports?security_groups={}", id(&group))).await.len()
}

async fn managed(scene: &mut Scene) -> Service {
    scene.configure(MANAGED).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    web
}

async fn the_group_lets_the_members_subnet_in_and_is_on_every_port(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let group = scene.groups().await.remove(0);
    assert_eq!(group["name"], format!("lb-sg-{}-shop-web", web.metadata.uid));
    assert_eq!(group["description"], "Security Group for shop/web Service LoadBalancer in cluster kubernetes");
    assert_eq!((scene.rules().await, ports(scene).await), (vec!["tcp 30080 10.50.0.0/24".to_owned()], 3));
    scene.is_steady(&mut web).await;
    scene.restart().await;
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn the_rules_wait_for_the_subnet_that_octavia_chooses(scene: &mut Scene) {
    let (network, port) = (scene.place().network.clone(), scene.cloud.port("").await);
    for (conf, port) in [(format!("network-id = {network}\n"), None), (String::new(), Some(id(&port)))] {
        scene.configure(&format!("{MANAGED}{conf}")).await;
        let mut web = web();
        if let Some(port) = port {
            set(&mut web, "port-id", port);
        }
        scene.ensure(&mut web).await;
        assert_eq!((scene.rules().await, ports(scene).await), (vec!["tcp 30080 10.50.0.0/24".to_owned()], 3));
        scene.is_steady(&mut web).await;
        let gone = scene.nodes.remove(0);
        scene.update_hosts(&mut web).await;
        scene.nodes.push(gone);
        scene.update_hosts(&mut web).await;
        let subnets: Vec<Value> = scene.whole_members().await.iter().map(|it| it["subnet_id"].clone()).collect();
        assert!(subnets.len() == 3 && subnets.iter().all(|subnet| *subnet == subnets[0]), "{subnets:?}");
        scene.delete(&mut web).await;
        assert_eq!((scene.groups().await.len(), scene.balancers().await.len()), (0, 0));
    }
}

/// Old releases of the Go program also tagged the ports.
async fn tags_of_old_releases_go_with_the_group(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let group = id(&scene.groups().await[0]).to_owned();
    let all = scene.list(&format!("/v2.0/ports?security_groups={group}")).await;
    for port in &all {
        scene.write("PUT", &format!("/v2.0/ports/{}/tags", id(port)), json!({"tags": ["theirs", group]})).await;
    }
    scene.delete(&mut web).await;
    assert_eq!(scene.groups().await, Vec::<Value>::new());
    for port in &all {
        assert_eq!(scene.get(&format!("/v2.0/ports/{}", id(port))).await["port"]["tags"], json!(["theirs"]));
    }
}

async fn rules_follow_the_ports_of_the_service(scene: &mut Scene) {
    let mut web = managed(scene).await;
    web.spec.ports = service("web", &[(80, 30080), (53, 30053)], json!({})).spec.ports;
    web.spec.ports[1].protocol = "UDP".to_owned();
    web.spec.external_traffic_policy = "Local".to_owned();
    web.spec.health_check_node_port = 32000;
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, ["tcp 30080 10.50.0.0/24", "tcp 32000 10.50.0.0/24", "udp 30053 10.50.0.0/24"]);
    web.spec.ports.remove(0);
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, ["tcp 32000 10.50.0.0/24", "udp 30053 10.50.0.0/24"]);
    scene.is_steady(&mut web).await;
}

async fn the_port_of_a_node_that_leaves_loses_the_group(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let gone = scene.nodes.remove(0);
    scene.update_hosts(&mut web).await;
    assert_eq!((ports(scene).await, scene.rules().await.len()), (2, 1));
    scene.nodes.push(gone);
    scene.update_hosts(&mut web).await;
    assert_eq!(ports(scene).await, 3);
    scene.is_steady(&mut web).await;
}

async fn what_was_changed_by_hand_is_put_right(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let group = scene.groups().await.remove(0);
    let rule = json!({"security_group_id": id(&group), "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4"});
    scene.make("/v2.0/security-group-rules", "security_group_rule", rule).await;
    let port = scene.list(&format!("/v2.0/ports?security_groups={}", id(&group))).await.remove(0);
    let path = format!("/v2.0/ports/{}", id(&port));
    scene.write("PUT", &path, json!({"port": {"security_groups": []}})).await;
    forget(&mut web);
    scene.ensure(&mut web).await;
    assert_eq!((scene.rules().await.len(), ports(scene).await), (1, 3));
    scene.is_steady(&mut web).await;
}

async fn once_switched_off_groups_go_and_are_not_looked_for_again(scene: &mut Scene) {
    let mut web = managed(scene).await;
    scene.configure("").await;
    scene.ensure(&mut web).await;
    assert_eq!(scene.groups().await, Vec::<Value>::new());
    // Soon after a change, everything is read once more.
    scene.process.cluster.advance(std::time::Duration::from_secs(3));
    for lists in [1, 0] {
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!(calls.of("security_group_list"), lists, "{calls:?}");
    }
    scene.is_steady(&mut web).await;
}

async fn once_switched_off_the_group_of_a_balancer_deleted_by_hand_goes_too(scene: &mut Scene) {
    let mut web = managed(scene).await;
    scene.configure("").await;
    scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&scene.balancer().await)), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    scene.ensure(&mut web).await;
    assert_eq!((scene.groups().await.len(), scene.balancers().await.len()), (0, 1));
    scene.is_steady(&mut web).await;
    // A new Service has none.
    let mut new = service("new", &[(80, 30081)], json!({}));
    let before = scene.process.calls();
    while scene.process.ask(&mut new, &scene.nodes, ServiceAction::Ensure).await.is_err() {}
    assert_eq!((scene.process.calls() - before).of("security_group_list"), 1, "once it has a balancer");
}

async fn groups_of_services_that_restart_together_are_read_together(scene: &mut Scene) {
    scene.configure(MANAGED).await;
    let mut all: Vec<Service> = (0..6).map(|n| service(&format!("web-{n}"), &[(80, 30080 + n)], json!({}))).collect();
    for web in &mut all {
        scene.ensure(web).await;
    }
    scene.restart().await;
    let work = join_all(all.iter_mut().map(|web| scene.ensure(web)));
    let (calls, _) = scene.counted(work).await;
    assert_eq!(calls.writes(), "");
    // Services that request it slightly later cause one more list.
    assert!(calls.of("security_group_list") <= 2 && calls.of("subnet_get") <= 2, "{calls:?}");
    assert!(calls.of("port_list") <= 4, "{calls:?}");
}

async fn two_groups_of_one_name_are_an_error(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let group = scene.groups().await.remove(0);
    scene.make(GROUPS, "security_group", json!({"name": group["name"]})).await;
    forget(&mut web);
    let error = scene.refused(&mut web).await;
    assert!(error.contains("2 security groups have the name"), "{error}");
    let ports = scene.list(&format!("/v2.0/ports?security_groups={}", id(&group))).await;
    assert_eq!(ports.len(), 3);
}

async fn with_ovn_clients_reach_the_nodes_and_an_update_of_nodes_keeps_the_rules(scene: &mut Scene) {
    scene.configure(&format!("{MANAGED}lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n")).await;
    let mut web = web();
    web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()]);
    scene.ensure(&mut web).await;
    let expected = ["tcp 30080 192.0.2.0/24", "tcp 30080 198.51.100.0/24"];
    assert_eq!(scene.rules().await, expected);
    assert_eq!(scene.events(), Vec::<String>::new());
    scene.nodes.remove(0);
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.of("security_group_rule_create") + calls.of("security_group_rule_delete"), 0, "{calls:?}");
    assert_eq!((scene.rules().await, ports(scene).await), (expected.map(str::to_owned).to_vec(), 2));
    scene.is_steady(&mut web).await;
}

async fn a_rule_that_is_gone_already_does_not_keep_ports_from_the_group(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let node = scene.node("node-4").await;
    scene.nodes.push(node);
    web.spec.ports[0].node_port = 30081;
    let fault = Fault::Code { status: 404, code: "SecurityGroupRuleNotFound".to_owned(), message: "gone".to_owned() };
    scene.simulation().fault(Rule::every(fault).on("network", "security_group_rule_delete").window(0, 1));
    scene.ensure(&mut web).await;
    assert_eq!(ports(scene).await, 4);
}

async fn a_port_that_another_writer_changes_keeps_both_groups(scene: &mut Scene) {
    scene.configure(MANAGED).await;
    let theirs = scene.make(GROUPS, "security_group", json!({"name": "theirs"})).await;
    let mut web = web();
    set(&mut web, crate::scene::INTERNAL, "true");
    scene.ensure(&mut web).await;
    // The process has cached the ports of the servers.
    let all = scene.list("/v2.0/ports?device_owner=compute:nova").await;
    for port in &all {
        let body = json!({"port": {"security_groups": [theirs]}});
        scene.write("PUT", &format!("/v2.0/ports/{}", id(port)), body).await;
    }
    forget(&mut web);
    let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
    assert!(calls.of("port_get") >= 3, "refused with 412 and read again: {calls:?}");
    for port in scene.list("/v2.0/ports?device_owner=compute:nova").await {
        let groups = port["security_groups"].as_array().unwrap().clone();
        assert!(groups.len() == 2 && groups.contains(&json!(theirs)), "{port}");
    }
}

async fn a_node_without_a_provider_id_fails_alone(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let (mut new, other) = (Node::clone(&*scene.node("node-4").await), scene.node("node-5").await);
    new.provider_id = None;
    scene.nodes.extend([new.into(), other]);
    web.spec.ports[0].node_port = 30081;
    let error = scene.refused(&mut web).await;
    assert!(error.contains("node node-4 has no provider ID yet"), "{error}");
    assert_eq!((ports(scene).await, scene.rules().await.len(), scene.members().await.len()), (4, 1, 5));
    scene.nodes[3] = scene.node("node-4").await;
    scene.ensure(&mut web).await;
    assert_eq!(ports(scene).await, 5);
    scene.is_steady(&mut web).await;
}

async fn a_node_of_another_cloud_is_a_member_and_has_no_ports_here(scene: &mut Scene) {
    let mut web = managed(scene).await;
    let mut other = Node::clone(&*scene.node("node-4").await);
    other.provider_id = Some("metal3://one".into());
    scene.nodes.push(other.into());
    scene.update_hosts(&mut web).await;
    web.spec.ports[0].node_port = 30081;
    scene.ensure(&mut web).await;
    assert_eq!((ports(scene).await, scene.members().await.len()), (3, 4));
    scene.is_steady(&mut web).await;
}

async fn where_no_group_is_managed_the_right_to_list_them_is_not_needed(scene: &mut Scene) {
    scene.simulation().fault(Rule::every(Fault::Deny).on("network", "security_group_list"));
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    assert_eq!(scene.floating_ips().await[0]["floating_ip_address"], *address);
    scene.is_steady(&mut web).await;
    web.spec.ports[0].node_port = 30081;
    scene.ensure(&mut web).await;
    scene.delete(&mut web).await;
    scene.simulation().faults(Faults::clear);
    scene.is_empty().await;
}

/// An ensure, which follows a failed update of nodes, makes it again.
async fn an_update_of_nodes_asks_for_what_was_deleted_by_hand(scene: &mut Scene) {
    scene.configure(&format!("{MANAGED}create-monitor = true\n")).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    for what in ["monitor", "group"] {
        // Octavia's times are in seconds.
        scene.simulation().clock().step(std::time::Duration::from_secs(5));
        let expected = match what {
            "monitor" => {
                let path = format!("/v2.0/lbaas/healthmonitors/{}", id(&scene.monitors().await[0]));
                scene.write("DELETE", &path, Value::Null).await;
                "the health monitor of TCP 80 does not exist"
            }
            _ => {
                let group = scene.groups().await.remove(0);
                for port in scene.list(&format!("/v2.0/ports?security_groups={}", id(&group))).await {
                    let path = format!("/v2.0/ports/{}", id(&port));
                    scene.write("PUT", &path, json!({"port": {"security_groups": []}})).await;
                }
                scene.write("DELETE", &format!("{GROUPS}/{}", id(&group)), Value::Null).await;
                "the security group lb-sg-"
            }
        };
        scene.nodes.pop();
        let error = scene.process.work(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(scene.members().await.len(), scene.nodes.len());
        scene.ensure(&mut web).await;
        assert_eq!((scene.monitors().await.len(), ports(scene).await), (1, scene.nodes.len()));
        scene.update_hosts(&mut web).await;
        scene.is_steady(&mut web).await;
    }
}

/// The node may join while the process restarts: then no host update follows.
async fn a_new_node_of_a_refused_service_gets_the_group(scene: &mut Scene) {
    let good = managed(scene).await;
    let theirs = json!({"name": "mine", "protocol": "TCP", "protocol_port": 9, "tags": ["terraform"],
        "loadbalancer_id": annotation(&good, "load-balancer-id")});
    scene.make("/v2.0/lbaas/listeners", "listener", theirs).await;
    let (mut taken, mut sources) = (good.clone(), good.clone());
    taken.spec.ports = service("web", &[(80, 30080), (9, 30009)], json!({})).spec.ports;
    // The configuration is another one now, and the members are IPv4 addresses.
    sources.spec.load_balancer_source_ranges = Some(vec!["fd00::/8".to_owned()]);
    let ovn = format!("{MANAGED}lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n");
    for (mut web, conf, problem) in [
        (taken, MANAGED, "the listener port 9 already exists"),
        (sources, &*ovn, "no source of traffic is of the IP family"),
    ] {
        if conf == ovn {
            let lb = annotation(&web, "load-balancer-id").unwrap().to_owned();
            scene.simulation().world(|world| world.row_mut("loadbalancer", &lb).unwrap().set("provider", "ovn"));
        }
        scene.configure(conf).await;
        let node = scene.node(&format!("new-{}", scene.nodes.len())).await;
        scene.nodes.push(node);
        let error = scene.refused(&mut web).await;
        assert!(error.contains(problem), "{error}");
        assert_eq!((scene.members().await.len(), ports(scene).await), (scene.nodes.len(), scene.nodes.len()));
    }
}

/// The kinds of writes that were made since, in their order.
fn written(scene: &Scene, mark: u64) -> Vec<String> {
    scene.simulation().ledger(|ledger| {
        let mut actions: Vec<String> =
            ledger.mutating(mark).filter(|entry| entry.applied).map(|entry| entry.action.clone()).collect();
        actions.dedup();
        actions
    })
}

async fn access_opens_before_members_and_monitors_need_it_and_closes_after_them(scene: &mut Scene) {
    scene.configure(&format!("{MANAGED}create-monitor = true\n")).await;
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    let (members, port) = ("loadbalancer_members_update", "port_update");
    let (opens, closes) = ("security_group_rule_create", "security_group_rule_delete");
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let node = scene.node(&format!("new-{action:?}").to_lowercase()).await;
        scene.nodes.push(node);
        let mark = scene.simulation().mark();
        scene.process.work(&mut web, &scene.nodes, action).await.unwrap();
        assert_eq!(written(scene, mark), [port, members], "{action:?}");
        scene.nodes.remove(0);
        let mark = scene.simulation().mark();
        scene.process.work(&mut web, &scene.nodes, action).await.unwrap();
        assert_eq!(written(scene, mark), [members, port], "{action:?}");
    }
    let mark = scene.simulation().mark();
    web.spec.external_traffic_policy = "Local".to_owned();
    web.spec.health_check_node_port = 32000;
    scene.ensure(&mut web).await;
    let local = written(scene, mark);
    assert!(local[0] == opens && local[1..].iter().all(|action| action.starts_with("loadbalancer_")), "{local:?}");
    (web.spec.ports[0].node_port, web.spec.ports[1].node_port) = (30081, 30444);
    let mark = scene.simulation().mark();
    scene.ensure(&mut web).await;
    assert_eq!(written(scene, mark), [opens, members, closes]);
    scene.is_steady(&mut web).await;
}

async fn the_rule_of_a_node_port_stays_until_the_members_have_the_next_one(scene: &mut Scene) {
    let mut web = managed(scene).await;
    web.spec.ports[0].node_port = 30081;
    let (old, new) = ("tcp 30080 10.50.0.0/24", "tcp 30081 10.50.0.0/24");
    scene.simulation().fault(Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_members_update"));
    scene.refused(&mut web).await;
    assert_eq!(
        (scene.rules().await, &*scene.members().await[0]),
        (vec![old.to_owned(), new.to_owned()], "node-1 30080")
    );
    scene.simulation().faults(Faults::clear);
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, [new]);
    scene.is_steady(&mut web).await;
}

async fn clients_that_are_shut_out_do_not_wait_for_a_refused_port(scene: &mut Scene) {
    scene.configure(&format!("{MANAGED}lb-provider = ovn\nlb-method = SOURCE_IP_PORT\n")).await;
    let mut web = web();
    web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()]);
    scene.ensure(&mut web).await;
    web.spec.ports = service("web", &[(80, 30080), (8080, 30081)], json!({})).spec.ports;
    web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    scene.simulation().fault(Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_listener_create"));
    scene.refused(&mut web).await;
    assert_eq!(scene.rules().await, ["tcp 30080 192.0.2.0/24", "tcp 30081 192.0.2.0/24"]);
}
