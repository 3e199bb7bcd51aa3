//! What is wrong with one Service, node or read concerns no other; and what the cloud refuses is not asked for again.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::node::ConditionStatus;
use ccm_provider::{Node, Service, ServiceAction};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::scene::{APPLIED, FIPS, GROUPS, INTERNAL, Scene, annotation, forget, id, service, set, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        two_nodes_with_one_address_are_one_member,
        a_creation_that_failed_unseen_is_made_again;
    simulated:
        the_members_follow_the_nodes_whatever_cannot_be_read,
        a_group_that_cannot_be_read_is_not_left_behind,
        a_refused_algorithm_does_not_fail_the_next_syncs,
        a_failed_creation_takes_its_floating_ip_with_it,
        the_members_follow_the_nodes_whatever_else_is_wrong,
        with_ovn_source_ranges_of_both_families_are_an_event,
        a_refused_setting_fails_alone_and_is_not_sent_again,
        a_refused_creation_is_not_sent_again_until_the_service_changes,
        a_balancer_that_cannot_be_read_fails_its_own_service_alone,
        a_subnet_that_cannot_be_read_fails_its_own_service_alone,
        a_service_that_names_an_unreadable_balancer_keeps_its_own,
        a_busy_balancer_costs_two_reads_and_its_deletion_says_why,
        a_change_of_nodes_writes_no_annotation,
        the_member_subnet_of_the_annotation_goes_before_that_of_the_class,
        a_creation_that_ends_in_error_leaves_nothing_without_cascade,
        a_changed_address_moves_to_a_free_floating_ip_or_is_reported,
        an_address_that_only_administrators_may_choose_is_to_be_reserved,
        settings_that_come_too_late_are_reported,
        health_monitors_are_those_of_the_project,
        the_health_monitors_of_a_balancer_are_one_list,
        a_health_monitor_that_cannot_be_read_concerns_its_service_alone,
        the_health_monitor_of_a_balancer_in_another_project_is_found;
}

async fn a_balancer_that_cannot_be_read_fails_its_own_service_alone(scene: &mut Scene) {
    let mut all: Vec<Service> = (0..4).map(|n| service(&format!("web-{n}"), &[(80, 30080)], json!({}))).collect();
    for web in &mut all {
        scene.ensure(web).await;
    }
    let last = annotation(&all[3], "load-balancer-id").unwrap().to_owned();
    let broken = || Rule {
        params: Some(format!("id={last}")),
        ..Rule::every(Fault::Html { status: 500 }).on("load-balancer", "loadbalancer_get")
    };
    let foreign = |scene: &Scene, project: &str| {
        scene.simulation().world(|world| world.row_mut("loadbalancer", &last).unwrap().set("project_id", project));
    };
    for case in ["blank", "foreign", "broken"] {
        all.iter_mut().for_each(forget);
        let id = if case == "blank" { "x y" } else { &last };
        set(&mut all[3], "load-balancer-id", id);
        match case {
            "foreign" => foreign(scene, "other"),
            // A list has it.
            "broken" => {
                foreign(scene, "other");
                scene.simulation().fault(broken());
            }
            _ => {}
        }
        scene.restart().await;
        let answers = join_all(all.iter_mut().map(|web| scene.try_ensure(web))).await;
        assert!(answers[..3].iter().all(Result::is_ok), "{case}: {answers:?}");
        let error = answers[3].as_ref().err().map(ToString::to_string);
        assert_eq!(error.is_some(), case != "blank", "{case}: {error:?}");
        assert!(error.is_none_or(|error| error.contains(&last) && error.contains("load-balancer-id")), "{case}");
        scene.simulation().faults(Faults::clear);
        let project = scene.place().project.clone();
        foreign(scene, &project);
    }
    // A blank around the ID is not part of it.
    set(&mut all[3], "load-balancer-id", &format!("{last}\n"));
    forget(&mut all[3]);
    assert_eq!(scene.writes_to_ensure(&mut all[3]).await, "");
}

/// Those of several Services are read together. What exists goes on without the subnet, except the rules from it.
async fn a_subnet_that_cannot_be_read_fails_its_own_service_alone(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let network = scene.place().network.clone();
    let subnet = |cidr| {
        scene.simulation().world(|world| world.subnet(&SubnetSeed { network: &network, cidr, ..SubnetSeed::default() }))
    };
    let (good, bad) = (subnet("10.51.0.0/24"), subnet("10.52.0.0/24"));
    let mut all: Vec<Service> = (0..4).map(|n| service(&format!("web-{n}"), &[(80, 30080 + n)], json!({}))).collect();
    for (web, subnet) in all.iter_mut().zip([&good, &good, &good, &bad]) {
        set(web, "member-subnet-id", subnet);
    }
    let denied = || Rule { params: Some(format!("id={bad}")), ..Rule::every(Fault::Deny).on("network", "subnet_get") };
    scene.simulation().fault(denied());
    let answers = join_all(all.iter_mut().map(|web| scene.try_ensure(web))).await;
    assert!(answers[..3].iter().all(Result::is_ok) && answers[3].is_err(), "{answers:?}");
    assert_eq!(scene.balancers().await.len(), 3);
    scene.simulation().faults(Faults::clear);
    scene.ensure(&mut all[3]).await;
    all.iter_mut().for_each(forget);
    scene.nodes.pop();
    scene.simulation().fault(denied());
    let answers = join_all(all.iter_mut().map(|web| scene.try_ensure(web))).await;
    assert!(answers[..3].iter().all(Result::is_ok) && answers[3].is_err(), "{answers:?}");
    assert_eq!(scene.members().await.len(), 4 * 2);
}

/// The members of the one that it has follow the nodes, and its annotation stays.
async fn a_service_that_names_an_unreadable_balancer_keeps_its_own(scene: &mut Scene) {
    let mut other = service("other", &[], json!({"ports": [{"port": 80, "protocol": "TCP"}]}));
    scene.ensure(&mut other).await;
    let theirs = annotation(&other, "load-balancer-id").unwrap().to_owned();
    scene.simulation().world(|world| world.row_mut("loadbalancer", &theirs).unwrap().set("project_id", "other"));
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    set(&mut web, "load-balancer-id", &theirs);
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        scene.restart().await;
        scene.nodes.pop();
        let answer = scene.process.work(&mut web, &scene.nodes, action).await;
        assert_eq!(answer.is_err(), action == ServiceAction::Ensure, "{answer:?}");
        assert_eq!(scene.members().await.len(), scene.nodes.len(), "{answer:?}");
        assert_eq!(annotation(&web, "load-balancer-id"), Some(&*theirs));
    }
    unset(&mut web, "load-balancer-id");
    assert_eq!(scene.ensure(&mut web).await, address);
}

async fn a_busy_balancer_costs_two_reads_and_its_deletion_says_why(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.cloud.set_status(id(&lb), "PENDING_UPDATE").await;
    forget(&mut web);
    let mut delays = Vec::new();
    for passed in [0, 60, 3600] {
        scene.process.cluster.advance(std::time::Duration::from_secs(passed));
        let (calls, answer) = scene.counted(scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure)).await;
        assert_eq!((calls.of("loadbalancer_get"), calls.of("floating_ip_list"), calls.total()), (1, 1, 2), "{calls:?}");
        delays.push(answer.unwrap_err().retry_after().unwrap().as_secs());
    }
    assert_eq!(delays, [5, 15, 60]);
    let events = scene.events();
    assert_eq!(events.iter().filter(|event| event.starts_with("LoadBalancerNotActive: ")).count(), 2, "{events:?}");
    scene.process.ask(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap_err();
    let events = scene.events();
    assert!(events.len() == 1 && events[0].contains("PENDING_UPDATE"), "{events:?}");
}

async fn a_change_of_nodes_writes_no_annotation(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let before = web.metadata.annotations.clone();
    scene.nodes.pop();
    scene.update_hosts(&mut web).await;
    assert_eq!(web.metadata.annotations, before);
    // The process knows it, and another one reads once more.
    scene.process.cluster.advance(std::time::Duration::from_secs(3));
    for lists in [1, 0] {
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!((calls.of("loadbalancer_pool_list"), calls.writes()), (lists, String::new()), "{calls:?}");
        assert_eq!(web.metadata.annotations, before);
    }
    scene.restart().await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    assert_eq!(web.metadata.annotations, before, "a restart writes nothing");
    scene.nodes.pop();
    scene.ensure(&mut web).await;
    assert_ne!(web.metadata.annotations[APPLIED], before[APPLIED], "with a change of the balancer");
}

async fn two_nodes_with_one_address_are_one_member(scene: &mut Scene) {
    let mut old = Node::clone(&scene.nodes[0]);
    old.name = "a-node-0".into();
    old.ready = Some(ConditionStatus::Unknown);
    scene.nodes.push(old.into());
    let mut web = web();
    scene.ensure(&mut web).await;
    assert_eq!(scene.members().await, ["node-1 30080", "node-2 30080", "node-3 30080"]);
    let events = scene.events();
    let names = |event: &&String| event.contains("a-node-0 and node-1 have the address");
    assert_eq!(events.iter().filter(names).count(), 1, "{events:?}");
    scene.is_steady(&mut web).await;
}

async fn the_member_subnet_of_the_annotation_goes_before_that_of_the_class(scene: &mut Scene) {
    let network = scene.place().network.clone();
    let subnet = |cidr| {
        scene.simulation().world(|world| world.subnet(&SubnetSeed { network: &network, cidr, ..SubnetSeed::default() }))
    };
    let (of_class, of_annotation) = (subnet("10.51.0.0/24"), subnet("10.52.0.0/24"));
    scene.configure(&format!("[LoadBalancerClass \"other\"]\nmember-subnet-id = {of_class}\n")).await;
    let mut web = web();
    set(&mut web, "class", "other");
    scene.ensure(&mut web).await;
    assert_eq!(scene.whole_members().await[0]["subnet_id"], of_class);
    let mut api = service("api", &[(80, 30080)], json!({}));
    set(&mut api, "class", "other");
    set(&mut api, "member-subnet-id", &of_annotation);
    scene.ensure(&mut api).await;
    let subnets: Vec<Value> = scene.whole_members().await.iter().map(|member| member["subnet_id"].clone()).collect();
    assert_eq!(subnets.iter().filter(|subnet| **subnet == of_annotation).count(), 3, "{subnets:?}");
}

async fn a_creation_that_ends_in_error_leaves_nothing_without_cascade(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\ncascade-delete = false\n").await;
    scene.simulation().fail_provisioning(1);
    let mut web = web();
    let error = scene.refused(&mut web).await;
    assert!(error.contains("its creation will be retried"), "{error}");
    scene.settle().await;
    scene.is_empty().await;
    scene.ensure(&mut web).await;
}

/// The driver gave up after the process that waited for it.
async fn a_creation_that_failed_unseen_is_made_again(scene: &mut Scene) {
    let mut web = web();
    assert!(!scene.work_until(&mut web, ServiceAction::Ensure, 1).await);
    scene.settle().await;
    let failed = scene.balancer().await;
    scene.cloud.set_status(id(&failed), "ERROR").await;
    let error = scene.refused(&mut web).await;
    assert!(error.contains("its creation will be retried"), "{error}");
    scene.is_empty().await;
    scene.ensure(&mut web).await;
    // From now on it has an address, which another balancer would not have.
    let lb = scene.balancer().await;
    scene.cloud.set_status(id(&lb), "ERROR").await;
    let error = scene.refused(&mut web).await;
    assert!(error.contains("it is not recreated by itself"), "{error}");
    assert_eq!(id(&scene.balancer().await), id(&lb));
}

/// A floating IP that the user reserved; returns its address.
async fn reserved(scene: &Scene) -> String {
    let body = json!({"floatingip": {"floating_network_id": scene.place().external, "description": "of the user"}});
    scene.write("POST", FIPS, body).await["floatingip"]["floating_ip_address"].as_str().unwrap().to_owned()
}

async fn a_changed_address_moves_to_a_free_floating_ip_or_is_reported(scene: &mut Scene) {
    let mut web = web();
    let before = scene.ensure(&mut web).await;
    web.spec.load_balancer_ip = "172.24.4.250".to_owned();
    assert_eq!(scene.ensure(&mut web).await, before);
    let events = scene.events();
    assert!(events.len() == 1 && events[0].contains("spec.loadBalancerIP 172.24.4.250 is not used"), "{events:?}");
    let mine = reserved(scene).await;
    web.spec.load_balancer_ip.clone_from(&mine);
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!((calls.writes(), &address), ("floating_ip_delete 1, floating_ip_update 2".to_owned(), &mine));
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), &left[0]["description"]), (1, &json!("of the user")));
    scene.is_steady(&mut web).await;
    // One that is bound elsewhere stays there.
    let mut api = service("api", &[(80, 30081)], json!({}));
    let second = scene.ensure(&mut api).await;
    api.spec.load_balancer_ip = mine;
    assert_eq!(scene.ensure(&mut api).await, second);
}

async fn an_address_that_only_administrators_may_choose_is_to_be_reserved(scene: &mut Scene) {
    let mut web = web();
    web.spec.load_balancer_ip = "172.24.4.250".to_owned();
    let error = scene.refused(&mut web).await;
    assert!(error.contains("172.24.4.250") && error.contains("reserve the floating IP first"), "{error}");
    assert!(!error.contains("grant the role"), "{error}");
}

async fn settings_that_come_too_late_are_reported(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    scene.ensure(&mut web).await;
    for (key, value) in [
        ("flavor-id", "0badbad0-1111-4222-8333-444455556666"),
        ("availability-zone", "other"),
        ("subnet-id", "0badbad0-1111-4222-8333-444455556667"),
        ("network-id", "0badbad0-1111-4222-8333-444455556668"),
        ("port-id", "0badbad0-1111-4222-8333-444455556669"),
    ] {
        set(&mut web, key, value);
        set(&mut web, "member-subnet-id", &scene.place().subnet.clone());
        scene.ensure(&mut web).await;
        let events = scene.events();
        let is_named = |event: &String| event.starts_with("LoadBalancerSettingNotApplied: ") && event.contains(value);
        assert!(events.len() == 1 && is_named(&events[0]) && events[0].contains(key), "{events:?}");
        unset(&mut web, key);
    }
    web.spec.load_balancer_ip = "10.50.0.250".to_owned();
    scene.ensure(&mut web).await;
    assert!(scene.events().iter().any(|event| event.contains("spec.loadBalancerIP 10.50.0.250")));
}

async fn health_monitors_are_those_of_the_project(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
    let mut all: Vec<Service> = (0..4).map(|n| service(&format!("web-{n}"), &[(80, 30080)], json!({}))).collect();
    for web in &mut all {
        scene.ensure(web).await;
        forget(web);
    }
    let mark = scene.simulation().mark();
    join_all(all.iter_mut().map(|web| scene.ensure(web))).await;
    let project = format!("project_id={}", scene.place().project);
    scene.simulation().ledger(|ledger| {
        let lists = ledger.since(mark).filter(|entry| entry.action == "loadbalancer_healthmonitor_list");
        let lists: Vec<_> = lists.collect();
        assert!(!lists.is_empty() && lists.iter().all(|entry| entry.params.contains(&project)));
    });
}

/// Octavia has no list of those of one balancer, and one read of each would be one for each port.
async fn the_health_monitors_of_a_balancer_are_one_list(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
    let mut web = service("web", &[(80, 30080), (81, 30081), (82, 30082), (83, 30083)], json!({}));
    scene.ensure(&mut web).await;
    assert_eq!(scene.monitors().await.len(), 4);
    scene.restart().await;
    forget(&mut web);
    let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!((calls.of("loadbalancer_healthmonitor_list"), calls.writes()), (1, String::new()), "{calls:?}");
}

/// An administrator may name such a balancer.
async fn the_health_monitor_of_a_balancer_in_another_project_is_found(scene: &mut Scene) {
    let project = scene.place().project.clone();
    scene.simulation().world(|world| drop(world.user("boss", "secret", &project, &["admin"])));
    scene.configure("username = boss\npassword = secret\n[LoadBalancer]\ncreate-monitor = true\n").await;
    let mut web = web();
    web.spec.external_traffic_policy = "Local".to_owned();
    web.spec.health_check_node_port = 32000;
    scene.ensure(&mut web).await;
    let monitor = id(&scene.monitors().await[0]).to_owned();
    scene.simulation().world(|world| world.row_mut("healthmonitor", &monitor).unwrap().set("project_id", "other"));
    forget(&mut web);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    let node = scene.node("node-4").await;
    scene.nodes.push(node);
    scene.update_hosts(&mut web).await;
    assert!(scene.whole_members().await.iter().all(|member| member["monitor_port"] == 32000));
}

/// What only an ensure needs cannot stop the members.
async fn the_members_follow_the_nodes_whatever_else_is_wrong(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    let group = scene.groups().await.remove(0);
    let good = web.clone();
    for (case, nodes) in
        ["sources", "class", "certificate", "sharing", "pattern", "proxy", "monitor", "no-ports", "groups"]
            .into_iter()
            .zip([2, 3].into_iter().cycle())
    {
        let mut web = good.clone();
        match case {
            "sources" => {
                web.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()]);
            }
            "class" => set(&mut web, "class", "no-such"),
            "certificate" => set(&mut web, "default-tls-container-ref", "x"),
            "sharing" => set(&mut web, "keep-floatingip", "perhaps"),
            "pattern" => set(&mut web, "floating-subnet", "~("),
            "proxy" => {
                set(&mut web, "proxy-protocol", "true");
                web.spec.ports[0].protocol = "UDP".to_owned();
            }
            "monitor" => set(&mut web, "x-forwarded-for", "perhaps"),
            "no-ports" => web.spec.ports.clear(),
            _ => drop(scene.make(GROUPS, "security_group", json!({"name": group["name"]})).await),
        }
        forget(&mut web);
        if nodes == 2 {
            drop(scene.nodes.pop());
        } else {
            scene.nodes.push(scene.node("node-3").await);
        }
        let answer = scene.process.work(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await;
        assert_eq!(scene.members().await.len(), nodes * 2, "{case}: {answer:?}");
        assert_eq!(answer.is_err(), ["proxy", "groups"].contains(&case), "{case}: {answer:?}");
        // The same for an ensure that is refused.
        if nodes == 2 {
            scene.nodes.push(scene.node("node-3").await);
        } else {
            drop(scene.nodes.pop());
        }
        web.status.load_balancer.ingress.push(Default::default());
        forget(&mut web);
        let answer = scene.try_ensure(&mut web).await;
        let goes_on = ["monitor", "sharing", "pattern"].contains(&case);
        assert_eq!(answer.is_err(), !goes_on, "{case}: {answer:?}");
        assert_eq!(scene.members().await.len(), (5 - nodes) * 2, "{case}: {answer:?}");
        if nodes == 2 {
            drop(scene.nodes.pop());
        } else {
            scene.nodes.push(scene.node("node-3").await);
        }
    }
}

async fn with_ovn_source_ranges_of_both_families_are_an_event(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nlb-provider = ovn\nlb-method = SOURCE_IP_PORT\n").await;
    let mut web = web();
    web.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()]);
    scene.ensure(&mut web).await;
    let events = scene.events();
    assert!(events.iter().any(|event| event.contains("fd00::/8: not a range of IPv4")), "{events:?}");
}

/// The settings are refused, and the rest of the Service goes on.
async fn a_refused_setting_fails_alone_and_is_not_sent_again(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    let refused =
        Fault::Code { status: 501, code: String::new(), message: "Provider 'x' does not support it".to_owned() };
    let on = |action: &str| Rule::every(refused.clone()).on("load-balancer", action);
    scene.simulation().fault(on("loadbalancer_listener_update"));
    set(&mut web, "connection-limit", "5");
    web.spec.session_affinity = "ClientIP".to_owned();
    scene.nodes.pop();
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert!(error.contains("does not support it"), "{error}");
    assert_eq!(calls.of("loadbalancer_listener_update"), 2, "{calls:?}");
    assert_eq!(
        (scene.members().await.len(), &scene.pool().await["session_persistence"]["type"]),
        (4, &json!("SOURCE_IP"))
    );
    // Its record on the Service has changed once.
    scene.refused(&mut web).await;
    let (calls, _) = scene.counted(scene.refused(&mut web)).await;
    assert_eq!(calls.of("loadbalancer_listener_update"), 0, "{calls:?}");
    set(&mut web, "connection-limit", "6");
    let (calls, _) = scene.counted(scene.refused(&mut web)).await;
    assert_eq!(calls.of("loadbalancer_listener_update"), 2, "{calls:?}");
    scene.simulation().faults(Faults::clear);
    set(&mut web, "connection-limit", "7");
    scene.ensure(&mut web).await;
    scene.is_steady(&mut web).await;
}

/// A refused creation leaves a port in Neutron.
async fn a_refused_creation_is_not_sent_again_until_the_service_changes(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "connection-limit", "-5");
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert_eq!(calls.of("loadbalancer_create"), 1, "{error}");
    for _ in 0..3 {
        let (calls, again) = scene.counted(scene.refused(&mut web)).await;
        assert_eq!((calls.of("loadbalancer_create"), &again), (0, &error));
    }
    set(&mut web, "connection-limit", "5");
    scene.ensure(&mut web).await;
    let _ = scene.simulation().take_violations();
}

/// Unread is not absent: the rest stays as it is, and the status is kept.
async fn the_members_follow_the_nodes_whatever_cannot_be_read(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\ncreate-monitor = true\n").await;
    let mut web = web();
    web.spec.external_traffic_policy = "Local".to_owned();
    web.spec.health_check_node_port = 32000;
    scene.ensure(&mut web).await;
    let before = (scene.floating_ips().await, scene.monitors().await, scene.rules().await);
    let status = scene.try_ensure(&mut web).await.unwrap().unwrap();
    web.status.load_balancer = status.clone();
    for (service, action) in [
        ("network", "floating_ip_list"),
        ("network", "security_group_list"),
        ("network", "port_list"),
        ("load-balancer", "version_list"),
        ("load-balancer", "loadbalancer_healthmonitor_*"),
    ] {
        for action_of_process in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
            scene.restart().await;
            forget(&mut web);
            if scene.nodes.len() == 3 {
                drop(scene.nodes.pop());
            } else {
                scene.nodes.push(scene.node("node-3").await);
            }
            scene.simulation().fault(Rule::every(Fault::Deny).on(service, action));
            let call = ccm_provider_contract::controller::work(
                &*scene.process.balancers,
                crate::scene::CLUSTER,
                &mut web,
                &scene.nodes,
                action_of_process,
            );
            let answer = call.await;
            let members = scene.whole_members().await;
            assert_eq!(members.len(), scene.nodes.len(), "{action} {action_of_process:?}: {answer:?}");
            assert!(members.iter().all(|member| member["monitor_port"] == 32000), "{action}: {members:?}");
            if action_of_process == ServiceAction::Ensure {
                let error = answer.result.as_ref().unwrap_err().to_string();
                assert!(error.contains("ccm lacks"), "{action}: {error}");
            }
            assert!(answer.status.is_none_or(|shown| shown == status), "{action} {action_of_process:?}");
            scene.simulation().faults(Faults::clear);
        }
    }
    scene.restart().await;
    scene.ensure(&mut web).await;
    assert_eq!((scene.floating_ips().await, scene.monitors().await, scene.rules().await), before);
    scene.is_steady(&mut web).await;
}

async fn a_health_monitor_that_cannot_be_read_concerns_its_service_alone(scene: &mut Scene) {
    let project = scene.place().project.clone();
    scene.simulation().world(|world| drop(world.user("boss", "secret", &project, &["admin"])));
    scene.configure("username = boss\npassword = secret\n[LoadBalancer]\ncreate-monitor = true\n").await;
    let (mut web, mut api) = (web(), service("api", &[(8080, 30808)], json!({})));
    scene.ensure(&mut web).await;
    let monitor = id(&scene.monitors().await[0]).to_owned();
    scene.ensure(&mut api).await;
    scene.simulation().world(|world| world.row_mut("healthmonitor", &monitor).unwrap().set("project_id", "other"));
    let rule = Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_healthmonitor_get");
    scene.simulation().fault(Rule { params: Some(format!("id={monitor}")), ..rule });
    for service in [&mut web, &mut api] {
        set(service, "connection-limit", "7");
    }
    let (of_web, of_api) = tokio::join!(scene.try_ensure(&mut web), scene.try_ensure(&mut api));
    of_web.unwrap_err();
    of_api.unwrap();
    let limits: Vec<Value> = scene.listeners().await.iter().map(|it| it["connection_limit"].clone()).collect();
    assert_eq!(limits, [-1, 7]);
}

async fn a_group_that_cannot_be_read_is_not_left_behind(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let mut web = web();
    scene.ensure(&mut web).await;
    scene.simulation().fault(Rule::every(Fault::Deny).on("network", "security_group_list"));
    let answer = scene.process.work(&mut web, &scene.nodes, ServiceAction::Delete).await;
    assert!(answer.unwrap_err().to_string().contains("ccm lacks"));
    scene.simulation().faults(Faults::clear);
    scene.delete(&mut web).await;
    scene.is_empty().await;
    // Without managed groups, the Go program does not need the right.
    scene.configure("").await;
    scene.ensure(&mut web).await;
    scene.simulation().fault(Rule::every(Fault::Deny).on("network", "security_group_list"));
    scene.delete(&mut web).await;
    scene.simulation().faults(Faults::clear);
    scene.is_empty().await;
}

async fn a_refused_algorithm_does_not_fail_the_next_syncs(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    set(&mut web, "lb-method", "SOURCE_IP_PORT");
    for _ in 0..3 {
        scene.ensure(&mut web).await;
    }
    let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!(calls.of("loadbalancer_pool_update"), 0, "{calls:?}");
    let events = scene.events();
    let is_reported = |event: &&String| event.starts_with("LoadBalancerLbMethodUnknown: ");
    assert!(events.iter().filter(is_reported).count() <= 2, "{events:?}");
    let _ = scene.simulation().take_violations();
}

/// The process ended before the Service had an address, and the balancer failed afterwards.
async fn a_failed_creation_takes_its_floating_ip_with_it(scene: &mut Scene) {
    let mut web = web();
    assert!(!scene.work_until(&mut web, ServiceAction::Ensure, 2).await);
    scene.settle().await;
    assert_eq!(scene.floating_ips().await.len(), 1);
    let failed = scene.balancer().await;
    scene.cloud.set_status(id(&failed), "ERROR").await;
    scene.refused(&mut web).await;
    scene.is_empty().await;
    scene.ensure(&mut web).await;
}
