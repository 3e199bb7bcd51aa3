//! Balancers as the Go program creates them: nothing is written when this program takes over.

use std::collections::BTreeSet;

use ccm_provider::Service;
use serde_json::{Value, json};

use crate::scene::{FIPS, GROUPS, LBS, Scene, annotation, id, service, set, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_balancer_of_the_go_program_is_left_as_it_is,
        a_shared_balancer_of_the_go_program_is_left_as_it_is,
        a_security_group_of_the_go_program_is_left_as_it_is;
    simulated:
        what_this_program_changes_is_still_found_by_the_go_program,
        a_floating_ip_of_a_balancer_that_the_go_program_renamed_is_still_ours;
}

const CONF: &str = "[LoadBalancer]\ncreate-monitor = true\n";

fn pool(scene: &Scene, name: &str, index: usize, node_port: i32) -> Value {
    let member = |node: &ccm_provider::NodeRef| {
        json!({"address": node.addresses[0].address, "protocol_port": node_port, "name": node.name.as_str(),
            "subnet_id": scene.place().subnet})
    };
    json!({
        "name": format!("pool_{index}_{name}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": scene.nodes.iter().map(member).collect::<Vec<Value>>(),
        "healthmonitor": {
            "name": format!("monitor_{index}_{name}"), "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1,
            "max_retries_down": 3,
        },
    })
}

fn listener(name: &str, index: usize, port: i32) -> Value {
    json!({
        "name": format!("listener_{index}_{name}"), "protocol": "TCP", "protocol_port": port, "connection_limit": -1,
        "tags": [name], "timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0, "allowed_cidrs": ["0.0.0.0/0"],
    })
}

/// Creates the objects and annotations of the Go program for a Service.
async fn made_by_go(scene: &Scene, cluster: &str, web: &mut Service) {
    let (namespace, own) = (&web.metadata.namespace, &web.metadata.name);
    let name = format!("kube_service_{cluster}_{namespace}_{own}");
    let listeners = web.spec.ports.iter().enumerate().map(|(index, port)| {
        let mut listener = listener(&name, index, port.port);
        listener["default_pool"] = pool(scene, &name, index, port.node_port);
        listener
    });
    let description = format!("Kubernetes external service {namespace}/{own} from cluster {cluster}");
    let body = json!({
        "name": name, "description": description, "provider": "amphora", "tags": [name],
        "vip_subnet_id": scene.place().subnet, "listeners": listeners.collect::<Vec<Value>>(),
    });
    let lb = scene.make(LBS, "loadbalancer", body).await;
    let lb = scene.get(&format!("{LBS}/{lb}")).await["loadbalancer"].clone();
    let body = json!({
        "floating_network_id": scene.place().external, "port_id": lb["vip_port_id"], "description": format!("Floating IP for {description}"),
    });
    let ip = scene.write("POST", FIPS, json!({ "floatingip": body })).await["floatingip"].clone();
    set(web, "load-balancer-id", id(&lb));
    set(web, "load-balancer-address", ip["floating_ip_address"].as_str().unwrap());
}

async fn a_balancer_of_the_go_program_is_left_as_it_is(scene: &mut Scene) {
    for serial in [false, true] {
        scene.configure(&format!("{CONF}provider-requires-serial-api-calls = {serial}\n")).await;
        let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
        made_by_go(scene, "kubernetes", &mut web).await;
        let address = annotation(&web, "load-balancer-address").unwrap().to_owned();
        let (calls, published) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!((calls.writes(), published), (String::new(), address));
        let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
        assert_eq!(calls.writes(), "");
        scene.is_steady(&mut web).await;
        scene.delete(&mut web).await;
        scene.is_empty().await;
    }
}

async fn a_shared_balancer_of_the_go_program_is_left_as_it_is(scene: &mut Scene) {
    scene.configure(CONF).await;
    let mut web = web();
    made_by_go(scene, "kubernetes", &mut web).await;
    let lb = annotation(&web, "load-balancer-id").unwrap().to_owned();
    let mut api = service("api", &[(8080, 30808)], json!({}));
    set(&mut api, "load-balancer-id", &lb);
    set(&mut api, "load-balancer-address", annotation(&web, "load-balancer-address").unwrap());
    let (owner, own) = ("kube_service_kubernetes_shop_web", "kube_service_kubernetes_shop_api");
    let mut body = listener(own, 0, 8080);
    body["loadbalancer_id"] = json!(lb);
    let listener = scene.make("/v2.0/lbaas/listeners", "listener", body).await;
    let mut body = pool(scene, own, 0, 30808);
    let (members, mut monitor) = (body["members"].take(), body["healthmonitor"].take());
    let fields = body.as_object_mut().unwrap();
    fields.retain(|_, value| !value.is_null());
    fields.insert("listener_id".to_owned(), json!(listener));
    let pool = scene.make("/v2.0/lbaas/pools", "pool", body).await;
    scene.write("PUT", &format!("/v2.0/lbaas/pools/{pool}/members"), json!({ "members": members })).await;
    // When nodes change, the Go program names the monitor after the balancer.
    monitor["name"] = json!(format!("monitor_0_{owner}"));
    monitor["pool_id"] = json!(pool);
    scene.make("/v2.0/lbaas/healthmonitors", "healthmonitor", monitor).await;
    scene.write("PUT", &format!("{LBS}/{lb}"), json!({"loadbalancer": {"tags": [owner, own]}})).await;
    for service in [&mut web, &mut api] {
        assert_eq!(scene.writes_to_ensure(service).await, "");
        scene.is_steady(service).await;
    }
    scene.delete(&mut web).await;
    assert_eq!((scene.listeners().await.len(), scene.floating_ips().await.len()), (1, 1));
    scene.delete(&mut api).await;
    scene.is_empty().await;
}

async fn a_security_group_of_the_go_program_is_left_as_it_is(scene: &mut Scene) {
    scene.configure(&format!("{CONF}manage-security-groups = true\n")).await;
    let mut web = web();
    made_by_go(scene, "kubernetes", &mut web).await;
    let group = json!({
        "name": format!("lb-sg-{}-shop-web", web.metadata.uid),
        "description": "Security Group for shop/web Service LoadBalancer in cluster kubernetes",
    });
    let group = scene.make(GROUPS, "security_group", group).await;
    for rule in scene.groups().await[0]["security_group_rules"].as_array().unwrap() {
        scene.write("DELETE", &format!("/v2.0/security-group-rules/{}", id(rule)), Value::Null).await;
    }
    let rule = json!({
        "security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 30080,
        "port_range_max": 30080, "remote_ip_prefix": "10.50.0.0/24",
    });
    scene.make("/v2.0/security-group-rules", "security_group_rule", rule).await;
    for node in &scene.nodes {
        let server = node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        let port = scene.list(&format!("/v2.0/ports?device_id={server}")).await.remove(0);
        let mut groups = port["security_groups"].as_array().unwrap().clone();
        groups.push(json!(group));
        scene.write("PUT", &format!("/v2.0/ports/{}", id(&port)), json!({"port": {"security_groups": groups}})).await;
    }
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

/// What the Go program finds its objects by: kind, name, description and tags.
async fn found(scene: &Scene) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for kind in [LBS, "/v2.0/lbaas/listeners", "/v2.0/lbaas/pools", "/v2.0/lbaas/healthmonitors", GROUPS] {
        for object in scene.list(kind).await {
            let description = object["description"].as_str().unwrap_or_default();
            found.insert(format!("{kind} {} {description:?} {}", object["name"].as_str().unwrap(), object["tags"]));
        }
    }
    for ip in scene.floating_ips().await {
        found.insert(format!("{} {}", ip["floating_ip_address"], ip["description"]));
    }
    found
}

/// The way back: after changes by this program, the Go program finds its objects, and those that came since have the names
/// that it gives.
async fn what_this_program_changes_is_still_found_by_the_go_program(scene: &mut Scene) {
    scene.configure(CONF).await;
    let mut web = web();
    made_by_go(scene, "kubernetes", &mut web).await;
    let (before, service, nodes) = (found(scene).await, web.clone(), scene.nodes.clone());
    let address = annotation(&web, "load-balancer-address").unwrap().to_owned();
    let mut more = web.spec.ports[0].clone();
    (more.name, more.port, more.node_port) = ("more".to_owned(), 9090, 32_767);
    web.spec.ports.push(more);
    web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    scene.nodes.pop();
    assert_eq!(scene.ensure(&mut web).await, address);
    let now = found(scene).await;
    assert_eq!(before.difference(&now).collect::<Vec<_>>(), Vec::<&String>::new());
    let name = "kube_service_kubernetes_shop_web";
    let new: Vec<&String> = now.difference(&before).collect();
    assert_eq!(new.len(), 3, "{new:?}");
    for kind in ["listener", "pool", "monitor"] {
        assert!(new.iter().any(|line| line.contains(&format!(" {kind}_1_{name} "))), "{new:?}");
    }
    web.spec = service.spec.clone();
    scene.nodes = nodes;
    assert_eq!(scene.ensure(&mut web).await, address);
    assert_eq!(found(scene).await, before);
    for key in ["load-balancer-id", "load-balancer-address"] {
        assert_eq!(annotation(&web, key), annotation(&service, key));
    }
    web.metadata.annotations.retain(|key, _| !service.metadata.annotations.contains_key(key));
    let left = ccm_provider_openstack::left_behind();
    assert_eq!(
        web.metadata.annotations.keys().collect::<Vec<_>>(),
        left.iter().map(|(key, _)| key).collect::<Vec<_>>()
    );
    web.metadata.annotations.clone_from(&service.metadata.annotations);
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

/// The Go program changes names and tags, but neither description.
async fn a_floating_ip_of_a_balancer_that_the_go_program_renamed_is_still_ours(scene: &mut Scene) {
    scene.configure(CONF).await;
    let mut web = web();
    made_by_go(scene, "kubernetes", &mut web).await;
    let old = "Kubernetes external service shop/web from cluster old";
    let lb = format!("{LBS}/{}", annotation(&web, "load-balancer-id").unwrap());
    scene.write("PUT", &lb, json!({"loadbalancer": {"description": old}})).await;
    let ip = format!("{FIPS}/{}", id(&scene.floating_ips().await[0]));
    scene.write("PUT", &ip, json!({"floatingip": {"description": format!("Floating IP for {old}")}})).await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    scene.delete(&mut web).await;
    scene.is_empty().await;
}
