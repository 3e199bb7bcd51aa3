//! Changes of Services.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use serde_json::{Value, json};

use crate::scene::{Scene, forget, id, service, set, texts, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        the_proxy_protocol_replaces_the_pool_alone,
        x_forwarded_for_replaces_the_listener,
        an_unknown_lb_method_is_an_event_and_the_rest_goes_on,
        ports_come_go_and_change_protocol,
        what_was_changed_by_hand_is_put_right;
    simulated:
        each_field_of_a_listener_follows_its_annotation,
        session_affinity_changes_the_pool,
        a_port_is_served_until_its_successor_is,
        a_port_without_a_successor_goes_whatever_becomes_of_the_others,
        at_a_full_quota_the_former_port_goes_first,
        a_refused_protocol_takes_nothing_away,
        a_listener_goes_when_octavia_refuses_its_successor_only_for_it,
        a_change_in_the_second_of_our_own_is_noticed,
        a_change_between_our_own_is_noticed,
        an_update_of_nodes_is_no_end_of_a_change_that_failed,
        a_listener_deleted_by_hand_leaves_no_pool,
        foreign_tags_of_a_listener_stay;
}

async fn each_field_of_a_listener_follows_its_annotation(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    for (key, field, value, default) in [
        ("connection-limit", "connection_limit", 100, -1),
        ("timeout-client-data", "timeout_client_data", 60_000, 50_000),
        ("timeout-member-connect", "timeout_member_connect", 6_000, 5_000),
        ("timeout-member-data", "timeout_member_data", 70_000, 50_000),
        ("timeout-tcp-inspect", "timeout_tcp_inspect", 10, 0),
    ] {
        assert_eq!(scene.listener().await[field], default, "{field}");
        set(&mut web, key, &value.to_string());
        assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_update 1", "{key}");
        assert_eq!(scene.listener().await[field], value, "{field}");
        set(&mut web, key, "no number");
        assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_update 1", "{key}");
        assert_eq!(scene.listener().await[field], default, "{field}");
        unset(&mut web, key);
    }
    scene.is_steady(&mut web).await;
}

/// The creations and deletions of listeners since a mark.
fn on_listeners(scene: &Scene, mark: u64) -> Vec<String> {
    scene.simulation().ledger(|ledger| {
        let actions = ledger.since(mark).filter_map(|entry| entry.action.strip_prefix("loadbalancer_listener_"));
        actions.filter(|verb| ["create", "delete"].contains(verb)).map(str::to_owned).collect()
    })
}

async fn a_port_is_served_until_its_successor_is(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    web.spec.ports = service("web", &[(8080, 30080)], json!({})).spec.ports;
    for action in ["loadbalancer_listener_create", "loadbalancer_members_update"] {
        let fault = Fault::Code { status: 500, code: String::new(), message: "down".to_owned() };
        scene.simulation().fault(Rule::every(fault).on("load-balancer", action));
        scene.refused(&mut web).await;
        scene.simulation().faults(Faults::clear);
        let left = (scene.listener().await["protocol_port"].clone(), scene.members().await.len());
        assert_eq!(left, (json!(80), 3), "{action}");
    }
    scene.ensure(&mut web).await;
    assert_eq!((&scene.listener().await["protocol_port"], scene.pools().await.len()), (&json!(8080), 1));
    scene.is_steady(&mut web).await;
    web.spec.ports = service("web", &[(9090, 30080)], json!({})).spec.ports;
    let mark = scene.simulation().mark();
    scene.ensure(&mut web).await;
    assert_eq!(on_listeners(scene, mark), ["create", "delete"]);
}

async fn a_port_without_a_successor_goes_whatever_becomes_of_the_others(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    scene.nodes.pop();
    web.spec.ports.remove(0);
    scene.simulation().fault(Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_members_update"));
    scene.refused(&mut web).await;
    assert_eq!((scene.listeners().await.len(), &scene.listener().await["protocol_port"]), (1, &json!(443)));
    scene.simulation().faults(Faults::clear);
    scene.ensure(&mut web).await;
    scene.is_steady(&mut web).await;
}

async fn at_a_full_quota_the_former_port_goes_first(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    web.spec.ports = service("web", &[(8080, 30080)], json!({})).spec.ports;
    let message = "Quota has been met for resources: Listener".to_owned();
    let quota = Fault::Code { status: 403, code: String::new(), message };
    scene.simulation().fault(Rule::every(quota).on("load-balancer", "loadbalancer_listener_create"));
    scene.refused(&mut web).await;
    assert_eq!(scene.listener().await["protocol_port"], 80);
    scene.simulation().faults(Faults::clear);
    let mark = scene.simulation().mark();
    scene.ensure(&mut web).await;
    assert_eq!(on_listeners(scene, mark), ["delete", "create"]);
    scene.is_steady(&mut web).await;
}

async fn an_update_of_nodes_is_no_end_of_a_change_that_failed(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    set(&mut web, "connection-limit", "100");
    scene.simulation().fault(Rule::writes_from(1, Fault::Deny));
    scene.refused(&mut web).await;
    scene.simulation().faults(Faults::clear);
    let node = scene.node("node-4").await;
    scene.nodes.push(node);
    scene.update_hosts(&mut web).await;
    scene.ensure(&mut web).await;
    assert_eq!((scene.members().await.len(), &scene.listener().await["connection_limit"]), (4, &json!(100)));
}

async fn a_listener_deleted_by_hand_leaves_no_pool(scene: &mut Scene) {
    for cascade in [true, false] {
        scene.configure(&format!("[LoadBalancer]\ncreate-monitor = true\ncascade-delete = {cascade}\n")).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        let path = format!("/v2.0/lbaas/listeners/{}", id(&scene.listener().await));
        scene.write("DELETE", &path, Value::Null).await;
        forget(&mut web);
        scene.ensure(&mut web).await;
        assert_eq!((scene.listeners().await.len(), scene.pools().await.len(), scene.members().await.len()), (1, 1, 3));
        scene.is_steady(&mut web).await;
        let path = format!("/v2.0/lbaas/listeners/{}", id(&scene.listener().await));
        scene.write("DELETE", &path, Value::Null).await;
        scene.delete(&mut web).await;
        scene.is_empty().await;
    }
}

async fn the_proxy_protocol_replaces_the_pool_alone(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "proxy-protocol", "v1");
    scene.ensure(&mut web).await;
    let (listener, pool) = (scene.listener().await, scene.pool().await);
    assert_eq!(pool["protocol"], "PROXY");
    set(&mut web, "proxy-protocol", "v2");
    scene.ensure(&mut web).await;
    assert_eq!(scene.listener().await["id"], listener["id"]);
    let now = scene.pool().await;
    assert_eq!((&now["protocol"], now["id"] == pool["id"]), (&json!("PROXYV2"), false));
    assert_eq!(scene.members().await.len(), 3);
    scene.is_steady(&mut web).await;
    set(&mut web, "x-forwarded-for", "true");
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert!(error.contains("cannot be used together"), "{error}");
    assert_eq!(calls.writes(), "");
}

async fn x_forwarded_for_replaces_the_listener(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    set(&mut web, "x-forwarded-for", "true");
    scene.ensure(&mut web).await;
    let listeners = scene.listeners().await;
    assert_eq!((listeners.len(), &listeners[0]["protocol"]), (1, &json!("HTTP")));
    assert_eq!(listeners[0]["insert_headers"], json!({"X-Forwarded-For": "true"}));
    assert_eq!((scene.pools().await.len(), &scene.pool().await["protocol"]), (1, &json!("HTTP")));
    assert_eq!((scene.members().await.len(), scene.monitors().await.len()), (3, 1));
    scene.is_steady(&mut web).await;
    unset(&mut web, "x-forwarded-for");
    scene.ensure(&mut web).await;
    assert_eq!(scene.listener().await["protocol"], "TCP");
    scene.is_steady(&mut web).await;
}

/// What serves goes on, and its members follow the nodes.
async fn a_refused_protocol_takes_nothing_away(scene: &mut Scene) {
    let refused = || Fault::Code { status: 501, code: String::new(), message: "as the test says".to_owned() };
    for (key, action) in
        [("proxy-protocol", "loadbalancer_pool_create"), ("x-forwarded-for", "loadbalancer_listener_create")]
    {
        let mut web = web();
        set(&mut web, "connection-limit", "7");
        let address = scene.ensure(&mut web).await;
        let listener = id(&scene.listener().await).to_owned();
        scene.simulation().world(|world| {
            let row = world.row_mut("listener", &listener).unwrap();
            row.set("description", "mine");
            row.set("admin_state_up", false);
            row.set("tls_ciphers", "TLS_AES_256_GCM_SHA384");
            row.set("tls_versions", json!(["TLSv1.3"]));
        });
        let before = scene.listener().await;
        set(&mut web, key, "true");
        // A driver is asked after everything else.
        let is_listener = action.contains("listener");
        scene.simulation().fault(Rule::every(refused()).on("load-balancer", action).window(is_listener.into(), 1));
        let gone = scene.nodes.pop().unwrap();
        scene.refused(&mut web).await;
        for nodes in [2, 3] {
            let listener = scene.listener().await;
            assert_eq!(listener["id"] == before["id"], !is_listener, "{action}");
            for field in [
                "name",
                "tags",
                "connection_limit",
                "timeout_client_data",
                "allowed_cidrs",
                "description",
                "admin_state_up",
                "tls_ciphers",
                "tls_versions",
            ] {
                assert_eq!(listener[field], before[field], "{key} {action}: {field}");
            }
            let pool = listener["default_pool_id"].as_str().unwrap_or_default();
            let members = scene.list(&format!("/v2.0/lbaas/pools/{pool}/members")).await;
            assert_eq!(members.len(), nodes, "{key} {action}");
            if nodes == 2 {
                scene.nodes.push(gone.clone());
                scene.update_hosts(&mut web).await;
            }
        }
        scene.simulation().faults(Faults::clear);
        unset(&mut web, key);
        assert_eq!(scene.ensure(&mut web).await, address);
        assert_eq!((scene.listeners().await.len(), scene.pools().await.len(), scene.members().await.len()), (1, 1, 3));
        scene.is_steady(&mut web).await;
        scene.delete(&mut web).await;
        scene.is_empty().await;
    }
}

/// Octavia checks rights and body before the port, and the quota, too: the deletion makes room.
async fn a_listener_goes_when_octavia_refuses_its_successor_only_for_it(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let before = scene.listener().await;
    for (status, message) in [(403, "Policy does not allow this request"), (400, "x")] {
        set(&mut web, "x-forwarded-for", "true");
        let fault = Fault::Code { status, code: String::new(), message: message.to_owned() };
        scene.simulation().fault(Rule::every(fault).on("load-balancer", "loadbalancer_listener_create"));
        let mark = scene.simulation().mark();
        let error = scene.refused(&mut web).await;
        assert!(error.contains(message), "{error}");
        assert_eq!((scene.listener().await, on_listeners(scene, mark)), (before.clone(), vec!["create".to_owned()]));
        scene.simulation().faults(Faults::clear);
        unset(&mut web, "x-forwarded-for");
        assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    }
    let message = "Quota has been met for resources: Listener".to_owned();
    let full = Fault::Code { status: 403, code: String::new(), message };
    for is_on in ["true", "false"] {
        set(&mut web, "x-forwarded-for", is_on);
        if is_on == "false" {
            let full = Rule::every(full.clone()).on("load-balancer", "loadbalancer_listener_create");
            scene.simulation().fault(full.window(0, 1));
        }
        let mark = scene.simulation().mark();
        scene.ensure(&mut web).await;
        assert_eq!(on_listeners(scene, mark), ["create", "delete", "create"]);
        scene.is_steady(&mut web).await;
    }
}

/// Octavia's times are in seconds.
async fn a_change_in_the_second_of_our_own_is_noticed(scene: &mut Scene) {
    let mut web = web();
    let listener = loop {
        set(&mut web, "connection-limit", "5");
        scene.ensure(&mut web).await;
        unset(&mut web, "connection-limit");
        scene.ensure(&mut web).await;
        let before = scene.balancer().await["updated_at"].clone();
        let listener = format!("/v2.0/lbaas/listeners/{}", id(&scene.listener().await));
        scene.write("PUT", &listener, json!({"listener": {"connection_limit": 7}})).await;
        if scene.balancer().await["updated_at"] == before {
            break listener;
        }
    };
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_update 1");
    assert_eq!(scene.get(&listener).await["listener"]["connection_limit"], -1);
    // Once the parts were read later than that, the time is enough.
    scene.process.cluster.advance(std::time::Duration::from_secs(3));
    for lists in [1, 0] {
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!((calls.of("loadbalancer_listener_list"), calls.writes()), (lists, String::new()));
    }
}

async fn a_change_between_our_own_is_noticed(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    scene.simulation().clock().step(std::time::Duration::from_secs(5));
    scene.nodes.pop();
    let listener = format!("/v2.0/lbaas/listeners/{}", id(&scene.listener().await));
    let body = json!({"listener": {"connection_limit": 7}});
    let mark = scene.simulation().mark();
    let another = async {
        let has_begun = || {
            scene
                .simulation()
                .ledger(|ledger| ledger.since(mark).any(|entry| entry.action == "loadbalancer_members_update"))
        };
        while !has_begun() {
            tokio::task::yield_now().await;
        }
        while scene.send(ccm_test_openstack::Who::Tenant, "PUT", &listener, Some(&body)).await.0 != 200 {}
    };
    let hosts = scene.process.work(&mut web, &scene.nodes, ccm_provider::ServiceAction::UpdateHosts);
    let (hosts, ()) = tokio::join!(hosts, another);
    hosts.unwrap();
    scene.settle().await;
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 4);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_listener_update 1");
}

async fn session_affinity_changes_the_pool(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    for (affinity, expected) in [("ClientIP", json!("SOURCE_IP")), ("None", Value::Null)] {
        web.spec.session_affinity = affinity.to_owned();
        assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_pool_update 1");
        assert_eq!(scene.pool().await["session_persistence"]["type"], expected);
        scene.is_steady(&mut web).await;
    }
}

async fn an_unknown_lb_method_is_an_event_and_the_rest_goes_on(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    set(&mut web, "lb-method", "LEAST_CONNECTIONS");
    assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_pool_update 1");
    assert_eq!(scene.pool().await["lb_algorithm"], "LEAST_CONNECTIONS");
    scene.is_steady(&mut web).await;
    scene.events();
    set(&mut web, "lb-method", "NO_SUCH");
    set(&mut web, "connection-limit", "5");
    scene.nodes.pop();
    scene.ensure(&mut web).await;
    assert_eq!(scene.pool().await["lb_algorithm"], "LEAST_CONNECTIONS");
    assert_eq!((&scene.listener().await["connection_limit"], scene.members().await.len()), (&json!(5), 2));
    let is_reported = |events: &[String]| events.iter().any(|event| event.starts_with("LoadBalancerLbMethodUnknown: "));
    let events = scene.events();
    assert!(is_reported(&events), "{events:?}");
    // The driver knows this one, and refuses it in a change: 501.
    set(&mut web, "lb-method", "SOURCE_IP_PORT");
    scene.nodes.pop();
    scene.ensure(&mut web).await;
    assert_eq!((&scene.pool().await["lb_algorithm"], scene.members().await.len()), (&json!("LEAST_CONNECTIONS"), 1));
    let events = scene.events();
    assert!(is_reported(&events), "{events:?}");
    // The simulation counts requests that Octavia refuses.
    if let Some(simulation) = scene.cloud.simulation() {
        let _ = simulation.take_violations();
    }
}

async fn ports_come_go_and_change_protocol(scene: &mut Scene) {
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    let first = scene.listener().await;
    web.spec.ports = service("web", &[(80, 30080), (8080, 30808)], json!({})).spec.ports;
    scene.ensure(&mut web).await;
    let ports: Vec<Value> = scene.listeners().await.iter().map(|listener| listener["protocol_port"].clone()).collect();
    assert_eq!(ports, [80, 8080]);
    assert_eq!((scene.pools().await.len(), scene.monitors().await.len(), scene.members().await.len()), (2, 2, 6));
    assert_eq!(scene.listener().await["id"], first["id"]);
    scene.is_steady(&mut web).await;
    web.spec.ports[0].node_port = 30081;
    scene.ensure(&mut web).await;
    assert_eq!(scene.members().await[..2], ["node-1 30081", "node-1 30808"]);
    web.spec.ports[1].protocol = "UDP".to_owned();
    scene.ensure(&mut web).await;
    let listeners = scene.listeners().await;
    assert_eq!((listeners.len(), &listeners[1]["protocol"]), (2, &json!("UDP")));
    assert!(scene.monitors().await.iter().any(|monitor| monitor["type"] == "UDP-CONNECT"));
    scene.is_steady(&mut web).await;
    web.spec.ports.remove(0);
    scene.ensure(&mut web).await;
    assert_eq!((scene.listeners().await.len(), scene.pools().await.len(), scene.monitors().await.len()), (1, 1, 1));
    scene.is_steady(&mut web).await;
}

async fn foreign_tags_of_a_listener_stay(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let path = format!("/v2.0/lbaas/listeners/{}", id(&scene.listener().await));
    scene.write("PUT", &path, json!({"listener": {"tags": ["cost", "kube_service_kubernetes_shop_web"]}})).await;
    forget(&mut web);
    set(&mut web, "listener-tags", "more");
    scene.ensure(&mut web).await;
    assert_eq!(texts(&scene.listener().await["tags"]), ["cost", "kube_service_kubernetes_shop_web", "more"]);
    scene.is_steady(&mut web).await;
}

async fn what_was_changed_by_hand_is_put_right(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    let lb = format!("/v2.0/lbaas/loadbalancers/{}", id(&scene.balancer().await));
    let pool = format!("/v2.0/lbaas/pools/{}", id(&scene.pool().await));
    let listener = scene.listener().await;
    scene.write("PUT", &lb, json!({"loadbalancer": {"tags": ["other"]}})).await;
    let limit = json!({"listener": {"connection_limit": 1, "allowed_cidrs": ["10.0.0.0/8"], "tags": []}});
    scene.write("PUT", &format!("/v2.0/lbaas/listeners/{}", id(&listener)), limit).await;
    let member = json!({"members": [{"address": "10.50.0.200", "protocol_port": 1, "name": "x"}]});
    scene.write("PUT", &format!("{pool}/members"), member).await;
    scene.write("PUT", &pool, json!({"pool": {"lb_algorithm": "SOURCE_IP"}})).await;
    let monitor = scene.monitors().await.remove(0);
    scene.write("DELETE", &format!("/v2.0/lbaas/healthmonitors/{}", id(&monitor)), Value::Null).await;
    let foreign = json!({"name": "foreign", "protocol": "TCP", "protocol_port": 9, "loadbalancer_id": id(&scene.balancer().await),
        "tags": ["kube_service_other_shop_web"]});
    scene.make("/v2.0/lbaas/listeners", "listener", foreign).await;
    forget(&mut web);
    scene.ensure(&mut web).await;
    assert_eq!(texts(&scene.balancer().await["tags"]), ["kube_service_kubernetes_shop_web", "other"]);
    assert_eq!(scene.members().await.len(), 3);
    assert_eq!(scene.monitors().await.len(), 1);
    let listeners = scene.listeners().await;
    assert_eq!(listeners.len(), 2, "a listener of another Service stays");
    assert_eq!(
        (&listeners[1]["connection_limit"], &listeners[1]["allowed_cidrs"]),
        (&json!(-1), &json!(["0.0.0.0/0"]))
    );
    assert_eq!(scene.pool().await["lb_algorithm"], "ROUND_ROBIN");
    scene.is_steady(&mut web).await;
    let pool = scene.pool().await;
    scene.write("DELETE", &format!("/v2.0/lbaas/pools/{}", id(&pool)), Value::Null).await;
    forget(&mut web);
    scene.ensure(&mut web).await;
    assert_eq!(scene.members().await.len(), 3);
    scene.is_steady(&mut web).await;
}
