//! New load balancers, and no further writes once they exist.

use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::{Service, ServiceAction};
use serde_json::json;

use crate::scene::{INTERNAL, LBS, Scene, annotation, forget, id, service, set, texts, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_balancer_is_made_by_one_call,
        second_sync_writes_nothing_with_local_traffic_and_monitors,
        source_ranges_are_normalized_and_can_be_removed,
        places_come_from_annotations_classes_and_configuration,
        a_port_of_the_user_becomes_the_address,
        serial_mode_makes_the_same_step_by_step,
        a_cloud_change_is_noticed_by_its_time;
    simulated:
        ten_ports_are_made_by_one_call,
        of_a_port_with_two_addresses_that_of_the_service_is_taken,
        members_are_in_their_own_subnet_behind_a_port_of_the_user,
        a_subnet_beside_a_port_of_the_user_is_that_of_the_members,
        five_services_cost_few_reads_after_a_restart,
        an_internal_balancer_has_no_floating_ip,
        ports_without_node_port_have_no_members,
        nodes_without_a_fitting_address_are_left_out,
        the_status_shows_host_names_where_asked,
        tags_of_the_user_are_added,
        a_service_whose_name_does_not_fit_gets_no_balancer,
        an_ipv6_service_in_a_network_without_ipv4_subnet_needs_no_external_network,
        an_ipv6_service_in_a_network_of_both_families_gets_the_floating_ip_of_its_ipv4_address,
        a_selector_that_no_node_matches_makes_pools_without_members,
        zero_failures_are_the_default_of_octavia,
        an_empty_method_is_the_configured_one,
        what_octavia_would_refuse_leaves_no_port,
        what_octavia_refuses_is_named_with_its_annotation,
        what_is_wrong_in_a_service_is_named;
}

async fn a_balancer_is_made_by_one_call(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!(calls.writes(), "floating_ip_create 1, loadbalancer_create 1");
    let lb = scene.balancer().await;
    assert_eq!((&lb["name"], &lb["tags"]), (&json!("kube_service_kubernetes_shop_web"), &json!([lb["name"]])));
    assert_eq!(lb["description"], "Kubernetes external service shop/web from cluster kubernetes");
    assert_eq!((lb["provider"].clone(), lb["vip_subnet_id"].clone()), (json!("amphora"), json!(scene.place().subnet)));
    let listeners = scene.listeners().await;
    assert_eq!(listeners.len(), 2);
    assert_eq!(listeners[1]["name"], "listener_1_kube_service_kubernetes_shop_web");
    assert_eq!(listeners[1]["allowed_cidrs"], json!(["0.0.0.0/0"]));
    assert_eq!(scene.pools().await[1]["name"], "pool_1_kube_service_kubernetes_shop_web");
    let members = scene.members().await;
    assert_eq!(members[..3], ["node-1 30080", "node-1 30443", "node-2 30080"]);
    assert_eq!(members.len(), 6);
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"] == *scene.place().subnet));
    let ips = scene.floating_ips().await;
    assert_eq!((ips.len(), &ips[0]["port_id"]), (1, &lb["vip_port_id"]));
    let description = "Floating IP for Kubernetes external service shop/web from cluster kubernetes";
    assert_eq!(
        (ips[0]["description"].as_str().unwrap(), ips[0]["floating_ip_address"].as_str()),
        (description, Some(&*address))
    );
    assert_eq!(annotation(&web, "load-balancer-id"), Some(id(&lb)));
    assert_eq!(annotation(&web, "load-balancer-address"), Some(&*address));
    scene.is_steady(&mut web).await;
    scene.restart().await;
    let (calls, again) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!((calls.writes(), again), (String::new(), address));
    assert!(calls.total() <= 4, "{calls:?}");
    assert_eq!(scene.events(), Vec::<String>::new());
}

async fn ten_ports_are_made_by_one_call(scene: &mut Scene) {
    let ports: Vec<(i32, i32)> = (0..10).map(|n| (8000 + n, 31000 + n)).collect();
    let mut web = service("web", &ports, json!({}));
    let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!(calls.writes(), "floating_ip_create 1, loadbalancer_create 1");
    scene.is_steady(&mut web).await;
    let node = scene.node("node-4").await;
    scene.nodes.push(node);
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.writes(), "loadbalancer_members_update 10");
    assert_eq!(scene.members().await.len(), 40);
    scene.is_steady(&mut web).await;
}

async fn second_sync_writes_nothing_with_local_traffic_and_monitors(scene: &mut Scene) {
    let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000, "sessionAffinity": "ClientIP", "ports": [
        {"name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "nodePort": 30054, "protocol": "TCP"}]});
    let mut web = service("web", &[], spec);
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    let monitors = scene.monitors().await;
    assert!(
        monitors.iter().all(|monitor| monitor["type"] == "HTTP" && monitor["url_path"] == "/healthz"),
        "{monitors:?}"
    );
    assert!(scene.whole_members().await.iter().all(|member| member["monitor_port"] == 32000));
    scene.is_steady(&mut web).await;
    web.spec.health_check_node_port = 32001;
    scene.ensure(&mut web).await;
    assert!(scene.whole_members().await.iter().all(|member| member["monitor_port"] == 32001));
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn five_services_cost_few_reads_after_a_restart(scene: &mut Scene) {
    let mut all: Vec<Service> = (0..5).map(|n| service(&format!("web-{n}"), &[(80, 30080)], json!({}))).collect();
    for web in &mut all {
        scene.ensure(web).await;
    }
    scene.restart().await;
    let before = scene.process.calls();
    futures::future::join_all(all.iter_mut().map(|web| scene.ensure(web))).await;
    let calls = scene.process.calls() - before;
    assert_eq!(calls.writes(), "");
    assert!(calls.total() <= 15, "{calls:?}");
}

async fn an_internal_balancer_has_no_floating_ip(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!((calls.writes(), calls.of("network_list")), ("loadbalancer_create 1".to_owned(), 0));
    assert!(address.starts_with("10.50.0."), "{address}");
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn ports_without_node_port_have_no_members(scene: &mut Scene) {
    let mut web = service("web", &[(80, 0)], json!({"allocateLoadBalancerNodePorts": false}));
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    scene.ensure(&mut web).await;
    let events = scene.events();
    assert!(
        events.iter().any(|event| event.contains("nothing is behind the ports without node ports (80)")),
        "{events:?}"
    );
    assert_eq!(scene.members().await, Vec::<String>::new());
    assert_eq!(scene.groups().await[0]["security_group_rules"], json!([]));
    scene.is_steady(&mut web).await;
}

async fn nodes_without_a_fitting_address_are_left_out(scene: &mut Scene) {
    let mut node = (*scene.nodes[1]).clone();
    node.addresses = [].into();
    scene.nodes[1] = node.into();
    let mut web = web();
    scene.ensure(&mut web).await;
    assert_eq!(scene.members().await, ["node-1 30080", "node-3 30080"]);
    assert!(scene.events()[0].contains("node-2"));
    scene.is_steady(&mut web).await;
    assert_eq!(scene.events(), Vec::<String>::new());
}

async fn source_ranges_are_normalized_and_can_be_removed(scene: &mut Scene) {
    let mut web = web();
    web.spec.load_balancer_source_ranges = Some(vec!["192.168.32.1/24".to_owned()]);
    scene.ensure(&mut web).await;
    assert_eq!(scene.listener().await["allowed_cidrs"], json!(["192.168.32.0/24"]));
    scene.is_steady(&mut web).await;
    web.spec.load_balancer_source_ranges = None;
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_update 1");
    assert_eq!(scene.listener().await["allowed_cidrs"], json!(["0.0.0.0/0"]));
    web.spec.load_balancer_source_ranges = Some(vec!["2001:db8::/32".to_owned()]);
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert!(error.starts_with("spec.loadBalancerSourceRanges 2001:db8::/32: not a range of IPv4"), "{error}");
    assert_eq!(calls.writes(), "");
    web.spec.load_balancer_source_ranges = None;
    set(&mut web, "service.beta.kubernetes.io/load-balancer-source-ranges", "10.0.0.0/8,2001:db8::/32");
    let error = scene.refused(&mut web).await;
    let start = "service.beta.kubernetes.io/load-balancer-source-ranges 2001:db8::/32: not a range of IPv4";
    assert!(error.starts_with(start), "{error}");
}

async fn places_come_from_annotations_classes_and_configuration(scene: &mut Scene) {
    let (network, subnet) = (scene.place().network.clone(), scene.place().subnet.clone());
    scene
        .configure(&format!(
            "[LoadBalancer]\nnetwork-id = {network}\n[LoadBalancerClass \"dmz\"]\nsubnet-id = {subnet}\nmember-subnet-id = {subnet}\n"
        ))
        .await;
    let mut plain = service("plain", &[(80, 30080)], json!({}));
    let (calls, _) = scene.counted(scene.ensure(&mut plain)).await;
    assert_eq!(calls.of("port_list"), 0, "{calls:?}");
    // Octavia reaches an address without a subnet.
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"].is_null()));
    scene.is_steady(&mut plain).await;
    let mut classy = service("classy", &[(80, 30080)], json!({}));
    set(&mut classy, "class", "dmz");
    set(&mut classy, "subnet-id", "not-used");
    scene.ensure(&mut classy).await;
    let members = scene.whole_members().await;
    assert_eq!(members.iter().filter(|member| member["subnet_id"] == *subnet).count(), 3);
    set(&mut classy, "class", "DMZ");
    let error = scene.refused(&mut classy).await;
    assert!(error.contains("invalid loadbalancer class \"DMZ\""), "{error}");
    scene.configure("").await;
    let mut annotated = service("annotated", &[(80, 30080)], json!({}));
    set(&mut annotated, "subnet-id", &subnet);
    scene.ensure(&mut annotated).await;
    let lb = scene.list(&format!("{LBS}?name=kube_service_kubernetes_shop_annotated")).await.remove(0);
    assert_eq!(lb["vip_subnet_id"], *subnet);
}

async fn a_port_of_the_user_becomes_the_address(scene: &mut Scene) {
    let port = scene.cloud.port("").await;
    let mut web = web();
    set(&mut web, "port-id", id(&port));
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    assert_eq!((&lb["vip_port_id"], &lb["vip_address"]), (&port["id"], &port["fixed_ips"][0]["ip_address"]));
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(scene.balancers().await.len(), 0);
    scene.get(&format!("/v2.0/ports/{}", id(&port))).await;
}

/// Octavia takes none itself if a port has several.
async fn of_a_port_with_two_addresses_that_of_the_service_is_taken(scene: &mut Scene) {
    let (network, project, subnet) =
        (scene.place().network.clone(), scene.place().project.clone(), scene.place().subnet.clone());
    let (port, fixed) = scene.simulation().world(|world| {
        let v6 = world.subnet(&SubnetSeed { network: &network, cidr: "fd00:50::/64", ..SubnetSeed::default() });
        let port = world.port(&project, &[&subnet, &v6], json!({})).unwrap();
        let fixed = world.row("port", &port).unwrap().list("fixed_ips").to_vec();
        (port, fixed)
    });
    for (fixed, family) in fixed.iter().zip(["IPv4", "IPv6"]) {
        let address = fixed["ip_address"].as_str().unwrap();
        let mut web = service("web", &[(80, 30080)], json!({"ipFamilies": [family], "loadBalancerIP": address}));
        set(&mut web, "port-id", &port);
        set(&mut web, INTERNAL, if family == "IPv4" { "true" } else { "false" });
        assert_eq!(scene.ensure(&mut web).await, address);
        assert_eq!(scene.balancer().await["vip_subnet_id"], fixed["subnet_id"]);
        scene.is_steady(&mut web).await;
        scene.delete(&mut web).await;
    }
}

/// Also later: a batch update of members replaces the subnets of existing ones.
async fn members_are_in_their_own_subnet_behind_a_port_of_the_user(scene: &mut Scene) {
    let network = scene.place().network.clone();
    let project = scene.place().project.clone();
    let port = scene.simulation().world(|world| {
        let seed = SubnetSeed { network: &network, cidr: "10.77.0.0/24", ..SubnetSeed::default() };
        let subnet = world.subnet(&seed);
        world.port(&project, &[&subnet], json!({})).unwrap()
    });
    let mut web = web();
    set(&mut web, "port-id", &port);
    set(&mut web, INTERNAL, "true");
    assert!(scene.ensure(&mut web).await.starts_with("10.77."));
    for change in ["none", "a node less", "a restart and a node more"] {
        match change {
            "none" => {}
            "a node less" => drop(scene.nodes.pop()),
            _ => {
                scene.restart().await;
                let node = scene.node("node-4").await;
                scene.nodes.push(node);
            }
        }
        scene.update_hosts(&mut web).await;
        let members = scene.whole_members().await;
        assert_eq!(members.len(), scene.nodes.len());
        assert!(members.iter().all(|member| member["subnet_id"] == *scene.place().subnet), "{change}: {members:#?}");
        scene.is_steady(&mut web).await;
    }
    scene.delete(&mut web).await;
}

async fn a_subnet_beside_a_port_of_the_user_is_that_of_the_members(scene: &mut Scene) {
    let (network, project) = (scene.place().network.clone(), scene.place().project.clone());
    let port = scene.simulation().world(|world| {
        let vip = world.network(&project, "vip", json!({}));
        let subnet = world.subnet(&SubnetSeed { network: &vip, cidr: "10.77.0.0/24", ..SubnetSeed::default() });
        world.port(&project, &[&subnet], json!({})).unwrap()
    });
    let mut web = web();
    let subnet = scene.place().subnet.clone();
    for (key, value) in [("port-id", &*port), (INTERNAL, "true"), ("network-id", &network), ("subnet-id", &subnet)] {
        set(&mut web, key, value);
    }
    assert!(scene.ensure(&mut web).await.starts_with("10.77."));
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"] == *subnet));
    scene.restart().await;
    scene.is_steady(&mut web).await;
    assert_eq!(scene.events(), [""; 0]);
    scene.delete(&mut web).await;
}

async fn the_status_shows_host_names_where_asked(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nenable-ingress-hostname = true\n").await;
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    set(&mut web, "proxy-protocol", "true");
    let published = scene.ensure(&mut web).await;
    let address = scene.balancer().await["vip_address"].as_str().unwrap().to_owned();
    assert_eq!(published, format!("{address}.nip.io"));
    set(&mut web, "enable-ingress-hostname", "false");
    let status = scene.try_ensure(&mut web).await.unwrap().unwrap();
    assert_eq!((&*status.ingress[0].ip, status.ingress[0].ip_mode.as_deref()), (&*address, Some("Proxy")));
    set(&mut web, "hostname", "web.example.com");
    let status = scene.try_ensure(&mut web).await.unwrap().unwrap();
    assert_eq!((&*status.ingress[0].ip, &*status.ingress[0].hostname), ("", "web.example.com"));
}

async fn serial_mode_makes_the_same_step_by_step(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nprovider-requires-serial-api-calls = true\ncreate-monitor = true\n").await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let address = scene.nodes[0].addresses[0].address.to_string();
    assert_eq!(scene.members().await[0], format!("member_node-1_{address}_30080 30080"));
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"] == *scene.place().subnet));
    assert_eq!(scene.monitors().await.len(), 1);
    scene.is_steady(&mut web).await;
    scene.nodes.remove(0);
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.writes(), "loadbalancer_member_delete 1");
    scene.is_steady(&mut web).await;
}

async fn tags_of_the_user_are_added(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "load-balancer-tags", "cost-1");
    scene.ensure(&mut web).await;
    for (key, value) in [("load-balancer-tags", "cost-1,cost-2"), ("listener-tags", "l"), ("pool-tags", "p")] {
        set(&mut web, key, value);
    }
    let writes = scene.writes_to_ensure(&mut web).await;
    assert!(writes.starts_with("loadbalancer_listener_update 1, loadbalancer_pool_update 1"), "{writes}");
    let name = "kube_service_kubernetes_shop_web";
    assert_eq!(texts(&scene.balancer().await["tags"]), ["cost-1", "cost-2", name]);
    assert_eq!(texts(&scene.listener().await["tags"]), [name, "l"]);
    assert_eq!(texts(&scene.pool().await["tags"]), ["p"]);
    scene.is_steady(&mut web).await;
}

/// The parts of a balancer are not read while its update time is as recorded; a change by hand changes that time.
async fn a_cloud_change_is_noticed_by_its_time(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    match scene.cloud.simulation() {
        Some(simulation) => simulation.clock().step(std::time::Duration::from_secs(2)),
        None => {
            // The time is in seconds.
            let seen = scene.balancer().await["updated_at"].clone();
            let path = format!("{LBS}/{}", id(&scene.balancer().await));
            while scene.balancer().await["updated_at"] == seen {
                scene.write("PUT", &path, json!({"loadbalancer": {"admin_state_up": true}})).await;
            }
            scene.ensure(&mut web).await;
        }
    }
    let listener = format!("/v2.0/lbaas/listeners/{}", id(&scene.listener().await));
    let seen = scene.balancer().await["updated_at"].clone();
    while scene.balancer().await["updated_at"] == seen {
        scene.write("PUT", &listener, json!({"listener": {"connection_limit": 7}})).await;
    }
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_update 1");
    forget(&mut web);
    scene.is_steady(&mut web).await;
}

async fn what_is_wrong_in_a_service_is_named(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "timeout-client-data", "soon");
    scene.ensure(&mut web).await;
    let expected =
        "LoadBalancerConfiguration: loadbalancer.openstack.org/timeout-client-data \"soon\": not a whole number";
    let events = scene.events();
    assert!(events.len() == 1 && events[0].starts_with(expected), "{events:?}");
    forget(&mut web);
    scene.ensure(&mut web).await;
    assert_eq!(scene.events(), Vec::<String>::new(), "an event is for news");
    set(&mut web, "enable-health-monitor", "true");
    set(&mut web, "health-monitor-timeout", "9");
    scene.ensure(&mut web).await;
    let expected = "LoadBalancerConfiguration: loadbalancer.openstack.org/health-monitor-timeout \"9\": health checks may take \
                    9 s, and one is made each 5 s; write 5 or less";
    assert_eq!(scene.events(), [expected]);

    let nowhere = "0badbad0-1111-4222-8333-444455556666";
    for key in ["network-id", "subnet-id", "port-id", "floating-network-id"] {
        let mut lost = service(key, &[(80, 30080)], json!({}));
        set(&mut lost, key, nowhere);
        let error = scene.refused(&mut lost).await;
        let fix = format!("correct {key}, in the annotation loadbalancer.openstack.org/{key} or in cloud.conf: ");
        assert!(error.starts_with(&fix) && error.contains(nowhere), "{error}");
    }
}

async fn a_selector_that_no_node_matches_makes_pools_without_members(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "node-selector", "edge=yes");
    scene.ensure(&mut web).await;
    assert_eq!((scene.pools().await.len(), scene.members().await.len()), (1, 0));
    assert_eq!(scene.balancer().await["vip_subnet_id"], *scene.place().subnet);
    scene.is_steady(&mut web).await;
    unset(&mut web, "node-selector");
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_members_update 1");
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"] == *scene.place().subnet));
}

async fn zero_failures_are_the_default_of_octavia(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "enable-health-monitor", "true");
    set(&mut web, "health-monitor-max-retries-down", "0");
    scene.ensure(&mut web).await;
    assert_eq!(scene.monitors().await[0]["max_retries_down"], 3);
    scene.is_steady(&mut web).await;
}

async fn an_empty_method_is_the_configured_one(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nlb-method = LEAST_CONNECTIONS\n").await;
    let mut web = web();
    set(&mut web, "lb-method", "");
    scene.ensure(&mut web).await;
    assert_eq!(scene.pool().await["lb_algorithm"], "LEAST_CONNECTIONS");
    scene.is_steady(&mut web).await;
}

async fn what_octavia_would_refuse_leaves_no_port(scene: &mut Scene) {
    let both = json!({"ports": [
        {"name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "nodePort": 30054, "protocol": "TCP"}]});
    let before = scene.list("/v2.0/ports").await.len();
    for (key, value, expected) in [
        ("x-forwarded-for", "true", "makes listeners of HTTP of all ports, and the port 53 is there twice"),
        ("proxy-protocol", "v2", "the port 53 is of UDP, which has no PROXY protocol"),
    ] {
        let mut dns = service("dns", &[], both.clone());
        set(&mut dns, key, value);
        let (calls, error) = scene.counted(scene.refused(&mut dns)).await;
        assert!(error.starts_with(&format!("loadbalancer.openstack.org/{key} \"{value}\": {expected}")), "{error}");
        assert_eq!((calls.total(), scene.list("/v2.0/ports").await.len()), (0, before));
        unset(&mut dns, key);
        scene.ensure(&mut dns).await;
        scene.delete(&mut dns).await;
    }
}

async fn what_octavia_refuses_is_named_with_its_annotation(scene: &mut Scene) {
    let mut present = web();
    set(&mut present, "enable-health-monitor", "true");
    scene.ensure(&mut present).await;
    for (key, value) in [
        ("connection-limit", "-5"),
        ("timeout-client-data", "-1"),
        ("timeout-member-connect", "-1"),
        ("timeout-member-data", "-1"),
        ("timeout-tcp-inspect", "-1"),
        ("lb-method", "NO_SUCH"),
        ("health-monitor-delay", "-1"),
        ("health-monitor-timeout", "-1"),
        ("health-monitor-max-retries", "11"),
        ("health-monitor-max-retries-down", "11"),
    ] {
        // On creation, and on update.
        let mut new = service("new", &[(80, 30081)], json!({}));
        set(&mut new, "enable-health-monitor", "true");
        for (is_there, service) in [(false, &mut new), (true, &mut present)] {
            if is_there && key == "lb-method" {
                continue;
            }
            set(service, key, value);
            let error = scene.refused(service).await;
            let fix =
                format!("correct the annotation loadbalancer.openstack.org/{key}, or its default in cloud.conf: ");
            assert!(error.starts_with(&fix) && error.contains(&format!("'{value}'")), "{error}");
            unset(service, key);
        }
        scene.delete(&mut new).await;
    }
    scene.delete(&mut present).await;
    scene.is_empty().await;
    let _ = scene.simulation().take_violations();
}

/// Cut names of two Services may be the same.
async fn a_service_whose_name_does_not_fit_gets_no_balancer(scene: &mut Scene) {
    let long = scene.process_of(&"c".repeat(235)).await;
    let mut fits = service("w", &[(80, 30080)], json!({}));
    long.work(&mut fits, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    for (name, lb) in [("web-aa", None), ("web-bb", None), ("web-cc", annotation(&fits, "load-balancer-id"))] {
        let mut web = service(name, &[(81, 30081)], json!({}));
        if let Some(lb) = lb {
            set(&mut web, "load-balancer-id", lb);
        }
        let error = long.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap_err().to_string();
        assert!(error.contains("260 bytes"), "{error}");
        long.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap();
    }
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 1));
    long.work(&mut fits, &scene.nodes, ServiceAction::Delete).await.unwrap();
}

/// Octavia takes an IPv4 subnet of the network first.
async fn an_ipv6_service_in_a_network_of_both_families_gets_the_floating_ip_of_its_ipv4_address(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080)], json!({"ipFamilies": ["IPv6"]}));
    set(&mut web, "network-id", &scene.place().network);
    let published = scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap().unwrap();
    let ips = scene.floating_ips().await;
    assert_eq!((ips.len(), ips[0]["floating_ip_address"].as_str()), (1, Some(&*published.ingress[0].ip)));
    let events = scene.events();
    assert!(!events.iter().any(|event| event.contains("FloatingIP") || event.contains("ForcedInternal")), "{events:?}");
    scene.is_steady(&mut web).await;
}

/// Octavia takes its IPv6 subnet, and such an address needs no floating IP.
async fn an_ipv6_service_in_a_network_without_ipv4_subnet_needs_no_external_network(scene: &mut Scene) {
    let project = scene.place().project.clone();
    let network = scene.simulation().world(|world| {
        let network = world.network(&project, "six", json!({}));
        world.subnet(&SubnetSeed { network: &network, cidr: "2001:db8:6::/64", ..SubnetSeed::default() });
        network
    });
    let mut web = service("web", &[(80, 30080)], json!({"ipFamilies": ["IPv6"]}));
    set(&mut web, "network-id", &network);
    set(&mut web, "floating-subnet", "no-such");
    let published = scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap().unwrap();
    assert!(published.ingress[0].ip.starts_with("2001:db8:6:"), "{published:?}");
    let events = scene.events();
    assert!(
        !events.iter().any(|event| event.contains("external network") || event.contains("ForcedInternal")),
        "{events:?}"
    );
    scene.is_steady(&mut web).await;
}
