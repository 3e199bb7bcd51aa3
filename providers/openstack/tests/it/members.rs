//! Changes of members and health monitors.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::ServiceAction;
use serde_json::{Value, json};

use crate::scene::{Scene, annotation, forget, id, service, set, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        monitors_come_change_and_go,
        members_lose_the_health_check_port_with_the_local_policy;
    simulated:
        a_monitor_keeps_its_name_when_the_port_in_front_goes,
        nodes_come_and_go,
        members_and_their_monitor_change_together,
        a_monitor_of_kube_proxy_goes_before_its_members_lose_the_port,
        members_that_an_earlier_program_left_with_a_health_check_port_lose_it,
        a_member_keeps_its_name_with_serial_calls,
        the_members_of_a_udp_port_behind_a_listener_of_http_follow_the_nodes,
        a_node_selector_chooses_the_members,
        a_pool_that_only_names_its_listener_is_that_of_the_listener,
        a_pool_of_a_policy_is_not_taken_for_that_of_the_listener;
}

async fn monitors_come_change_and_go(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    set(&mut web, "enable-health-monitor", "true");
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_healthmonitor_create 1");
    let monitor = scene.monitors().await.remove(0);
    assert_eq!(
        (&monitor["type"], &monitor["name"]),
        (&json!("TCP"), &json!("monitor_0_kube_service_kubernetes_shop_web"))
    );
    for (key, field, default, value) in [
        ("health-monitor-delay", "delay", 5, 7),
        ("health-monitor-timeout", "timeout", 3, 4),
        ("health-monitor-max-retries", "max_retries", 1, 2),
        ("health-monitor-max-retries-down", "max_retries_down", 3, 4),
    ] {
        assert_eq!(scene.monitors().await[0][field], default);
        set(&mut web, key, &value.to_string());
        assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_healthmonitor_update 1", "{key}");
        assert_eq!(scene.monitors().await[0][field], value);
    }
    scene.is_steady(&mut web).await;
    // The health check of kube-proxy uses HTTP.
    web.spec.external_traffic_policy = "Local".to_owned();
    web.spec.health_check_node_port = 32000;
    assert_eq!(
        scene.writes_to_ensure(&mut web).await,
        "loadbalancer_healthmonitor_create 1, loadbalancer_healthmonitor_delete 1, loadbalancer_members_update 1"
    );
    assert_eq!(scene.monitors().await[0]["type"], "HTTP");
    scene.is_steady(&mut web).await;
    set(&mut web, "enable-health-monitor", "false");
    scene.ensure(&mut web).await;
    assert_eq!(scene.monitors().await, Vec::<Value>::new());
    scene.is_steady(&mut web).await;
}

/// A monitor would continue to check kube-proxy, which does not answer on that port anymore.
async fn members_lose_the_health_check_port_with_the_local_policy(scene: &mut Scene) {
    for serial in [false, true] {
        scene.configure(&format!("[LoadBalancer]\nprovider-requires-serial-api-calls = {serial}\n")).await;
        let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
        let mut web = service("web", &[(80, 30080)], spec);
        set(&mut web, "enable-health-monitor", "true");
        scene.ensure(&mut web).await;
        assert!(scene.whole_members().await.iter().all(|member| member["monitor_port"] == 32000));
        (web.spec.external_traffic_policy, web.spec.health_check_node_port) = ("Cluster".to_owned(), 0);
        scene.ensure(&mut web).await;
        assert_eq!(scene.monitors().await[0]["type"], "TCP");
        let members = scene.whole_members().await;
        assert!(members.len() == 3 && members.iter().all(|member| member["monitor_port"].is_null()), "{members:#?}");
        scene.is_steady(&mut web).await;
        scene.delete(&mut web).await;
    }
}

/// A monitor without its members' port, or with that of another one, takes all of them out of service.
async fn members_and_their_monitor_change_together(scene: &mut Scene) {
    for serial in [false, true] {
        let serial = format!("provider-requires-serial-api-calls = {serial}");
        scene.configure(&format!("[LoadBalancer]\ncreate-monitor = true\n{serial}\n")).await;
        let mut web = web();
        for (policy, port, kind) in [("Local", 32000, "HTTP"), ("Cluster", 0, "TCP")] {
            if policy == "Local" {
                scene.ensure(&mut web).await;
            }
            let before = scene.monitors().await[0]["type"].clone();
            (web.spec.external_traffic_policy, web.spec.health_check_node_port) = (policy.to_owned(), port);
            let fault = Fault::Code { status: 500, code: String::new(), message: "down".to_owned() };
            let rule = Rule { mutating: Some(true), ..Rule::every(fault).on("load-balancer", "loadbalancer_member*") };
            scene.simulation().fault(rule);
            scene.refused(&mut web).await;
            scene.simulation().faults(Faults::clear);
            // kube-proxy does not answer any more.
            let left = if policy == "Local" { vec![before] } else { Vec::new() };
            let types: Vec<Value> = scene.monitors().await.iter().map(|monitor| monitor["type"].clone()).collect();
            assert_eq!(types, left, "{policy}");
            scene.ensure(&mut web).await;
            let wanted = if port == 0 { Value::Null } else { json!(port) };
            assert!(scene.whole_members().await.iter().all(|member| member["monitor_port"] == wanted), "{policy}");
            assert_eq!(scene.monitors().await[0]["type"], kind);
            scene.is_steady(&mut web).await;
        }
        scene.delete(&mut web).await;
    }
}

/// It would ask the application for `/healthz`.
async fn a_monitor_of_kube_proxy_goes_before_its_members_lose_the_port(scene: &mut Scene) {
    let asks_kube_proxy = async |scene: &Scene| {
        let monitors = scene.monitors().await;
        let of_http = monitors.iter().filter(|monitor| monitor["type"] == "HTTP");
        let pools: Vec<String> = of_http.map(|monitor| id(&monitor["pools"][0]).to_owned()).collect();
        for pool in &pools {
            let members = scene.list(&format!("/v2.0/lbaas/pools/{pool}/members")).await;
            assert!(members.iter().all(|member| member["monitor_port"] == 32000), "{members:#?}");
        }
        pools.len()
    };
    for serial in [false, true] {
        scene.configure(&format!("[LoadBalancer]\nprovider-requires-serial-api-calls = {serial}\n")).await;
        for is_off in [true, false] {
            let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
            let mut web = service("web", &[(80, 30080), (443, 30443)], spec);
            set(&mut web, "enable-health-monitor", "true");
            scene.ensure(&mut web).await;
            assert_eq!(asks_kube_proxy(scene).await, 2);
            let before = web.clone();
            match is_off {
                true => set(&mut web, "enable-health-monitor", "false"),
                false => {
                    (web.spec.external_traffic_policy, web.spec.health_check_node_port) = ("Cluster".to_owned(), 0);
                }
            }
            for mut wanted in [web.clone(), before] {
                forget(&mut wanted);
                while !scene.work_until(&mut wanted, ServiceAction::Ensure, 1).await {
                    scene.settle().await;
                    asks_kube_proxy(scene).await;
                }
            }
            assert_eq!(asks_kube_proxy(scene).await, 2);
            let fault = Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_healthmonitor_delete");
            scene.simulation().fault(fault);
            scene.refused(&mut web).await;
            assert_eq!(asks_kube_proxy(scene).await, 2);
            scene.simulation().faults(Faults::clear);
            scene.delete(&mut web).await;
        }
    }
}

async fn members_that_an_earlier_program_left_with_a_health_check_port_lose_it(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let lb = id(&scene.balancer().await).to_owned();
    // The Go program keeps the record.
    for is_recorded in [false, true] {
        for member in scene.whole_members().await {
            scene.simulation().world(|world| world.row_mut("member", id(&member)).unwrap().set("monitor_port", 32000));
        }
        match is_recorded {
            true => scene.simulation().world(|world| {
                world.row_mut("loadbalancer", &lb).unwrap().set("updated_at", "2036-01-01T00:00:00");
            }),
            false => forget(&mut web),
        }
        scene.restart().await;
        scene.ensure(&mut web).await;
        let members = scene.whole_members().await;
        assert!(members.len() == 3 && members.iter().all(|member| member["monitor_port"].is_null()), "{members:#?}");
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!(calls.of("loadbalancer_member_list"), 0, "{calls:?}");
    }
}

async fn a_monitor_keeps_its_name_when_the_port_in_front_goes(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    web.spec.ports.remove(0);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_delete 1, loadbalancer_pool_delete 1");
    let name = |index: u8| json!(format!("monitor_{index}_kube_service_kubernetes_shop_web"));
    assert_eq!(scene.monitors().await[0]["name"], name(1));
    scene.is_steady(&mut web).await;
    // Any other name is corrected.
    let path = format!("/v2.0/lbaas/healthmonitors/{}", id(&scene.monitors().await[0]));
    scene.write("PUT", &path, json!({"healthmonitor": {"name": "by-hand"}})).await;
    forget(&mut web);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_healthmonitor_update 1");
    assert_eq!(scene.monitors().await[0]["name"], name(0));
    // The pool also keeps the name of its original port, until it gets another one.
    assert_eq!(scene.pool().await["name"], "pool_1_kube_service_kubernetes_shop_web");
    let path = format!("/v2.0/lbaas/pools/{}", id(&scene.pool().await));
    scene.write("PUT", &path, json!({"pool": {"name": "by-hand"}})).await;
    forget(&mut web);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_pool_update 1");
    assert_eq!(scene.pool().await["name"], "pool_0_kube_service_kubernetes_shop_web");
    scene.is_steady(&mut web).await;
}

async fn nodes_come_and_go(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    let gone = scene.nodes.remove(1);
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.writes(), "loadbalancer_members_update 2");
    assert_eq!(scene.members().await, ["node-1 30080", "node-1 30443", "node-3 30080", "node-3 30443"]);
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.writes(), "");
    scene.is_steady(&mut web).await;
    scene.nodes.push(gone);
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 6);
    scene.nodes.clear();
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 0);
    scene.is_steady(&mut web).await;
    let mut other = service("other", &[(80, 30080)], json!({}));
    let error = scene.refused(&mut other).await;
    assert!(error.starts_with("there are no available nodes for LoadBalancer service shop/other"), "{error}");
}

/// The Go program compares addresses and ports: a change would take it out of service.
async fn a_member_keeps_its_name_with_serial_calls(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    scene.configure("[LoadBalancer]\nprovider-requires-serial-api-calls = true\n").await;
    scene.is_steady(&mut web).await;
    let mut node = (*scene.nodes[0]).clone();
    node.name = "renamed".into();
    scene.nodes[0] = node.into();
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.writes(), "");
    scene.is_steady(&mut web).await;
    let new = scene.node("node-4").await;
    let address = new.addresses[0].address.clone();
    scene.nodes[2] = new;
    let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
    assert_eq!(calls.writes(), "loadbalancer_member_create 1, loadbalancer_member_delete 1");
    let new = format!("member_node-4_{address}_30080 30080");
    assert_eq!(scene.members().await, [new, "node-1 30080".to_owned(), "node-2 30080".to_owned()]);
    scene.is_steady(&mut web).await;
}

/// As with the Go program, `x-forwarded-for` makes listeners of HTTP of all ports.
async fn the_members_of_a_udp_port_behind_a_listener_of_http_follow_the_nodes(scene: &mut Scene) {
    let mut web = web();
    web.spec.ports[0].protocol = "UDP".to_owned();
    set(&mut web, "x-forwarded-for", "true");
    scene.ensure(&mut web).await;
    for is_wrong in [false, true] {
        if is_wrong {
            set(&mut web, "class", "nowhere");
        }
        scene.nodes.pop();
        web.spec.ports[0].node_port += 1;
        let _ = scene.process.work(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap();
        let members = scene.whole_members().await;
        assert_eq!(members.len(), scene.nodes.len());
        assert!(members.iter().all(|member| member["protocol_port"] == web.spec.ports[0].node_port), "{members:#?}");
    }
    // The listener of another port is none of it.
    let mut dns = service("dns", &[(53, 30053), (53, 30054)], json!({}));
    dns.spec.ports[1].protocol = "UDP".to_owned();
    scene.ensure(&mut dns).await;
    let listeners = scene.listeners().await;
    let of_udp = listeners.iter().find(|listener| listener["protocol"] == "UDP").unwrap();
    scene.write("DELETE", &format!("/v2.0/lbaas/listeners/{}", id(of_udp)), Value::Null).await;
    scene.settle().await;
    scene.restart().await;
    forget(&mut dns);
    let answer = scene.process.work(&mut dns, &scene.nodes, ServiceAction::UpdateHosts).await;
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("does not contain required listener for port 53 and protocol UDP"), "{error}");
}

async fn a_node_selector_chooses_the_members(scene: &mut Scene) {
    let mut node = (*scene.nodes[2]).clone();
    node.labels = [("edge".to_owned(), "yes".to_owned())].into_iter().collect();
    scene.nodes[2] = node.into();
    let mut web = web();
    scene.ensure(&mut web).await;
    set(&mut web, "node-selector", "edge=yes");
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_members_update 1");
    assert_eq!(scene.members().await, ["node-3 30080"]);
    scene.is_steady(&mut web).await;
}

/// Not every API of Octavia's kind shows `default_pool_id`. The Go program does not read it.
async fn a_pool_that_only_names_its_listener_is_that_of_the_listener(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    let (lb, listener) = (id(&scene.balancer().await).to_owned(), id(&scene.listeners().await[0]).to_owned());
    let pool = json!({"name": "of-a-policy", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "loadbalancer_id": lb});
    let pool = scene.make("/v2.0/lbaas/pools", "pool", pool).await;
    let forget_pools = |scene: &Scene| {
        scene.simulation().world(|world| {
            world.row_mut("pool", &pool).unwrap().set("listeners", json!([{"id": listener}]));
            let listeners: Vec<String> = world.table("listener").values().map(|row| row.id().to_owned()).collect();
            listeners.iter().for_each(|id| world.row_mut("listener", id).unwrap().set("default_pool_id", Value::Null));
        });
    };
    forget_pools(scene);
    forget(&mut web);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    scene.nodes.pop();
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 4);
    forget(&mut web);
    web.spec.ports.pop();
    scene.ensure(&mut web).await;
    let mut names: Vec<String> = scene.pools().await.iter().map(|pool| pool["name"].to_string()).collect();
    names.sort();
    assert_eq!(names, ["\"of-a-policy\"", "\"pool_0_kube_service_kubernetes_shop_web\""]);
}

/// Octavia also lists a listener at the pools to which its policies redirect.
async fn a_pool_of_a_policy_is_not_taken_for_that_of_the_listener(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let pool = json!({"name": "of-a-policy", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "loadbalancer_id": annotation(&web, "load-balancer-id")});
    let pool = scene.make("/v2.0/lbaas/pools", "pool", pool).await;
    let listener = scene.listener().await;
    scene.simulation().world(|world| {
        let default = listener["default_pool_id"].as_str().unwrap().to_owned();
        let (first, later) = (world.row("pool", &default).unwrap().seq, world.row("pool", &pool).unwrap().seq);
        world.row_mut("pool", &default).unwrap().seq = later;
        let row = world.row_mut("pool", &pool).unwrap();
        row.seq = first;
        row.set("listeners", json!([{"id": listener["id"]}]));
    });
    scene.nodes.pop();
    forget(&mut web);
    scene.ensure(&mut web).await;
    let members = scene.list(&format!("/v2.0/lbaas/pools/{pool}/members")).await;
    assert_eq!((members.len(), scene.members().await.len()), (0, 2));
    web.spec.ports[0].port = 81;
    scene.ensure(&mut web).await;
    assert!(scene.pools().await.iter().any(|other| id(other) == pool), "the user's pool stays");
    assert_eq!(scene.listeners().await.len(), 1);
}
