//! Load balancers from creation to deletion.

use ccm_test_openstack::{id, texts};

use super::*;

ccm_test_openstack::cases! { [crate::real_apiserver::openstack]
    both:
        a_balancer_follows_its_service_and_its_nodes_and_leaves_nothing,
        a_shared_balancer_stays_until_its_last_service_goes,
        a_killed_program_leaves_one_balancer_and_one_floating_ip;
    simulated:
}

const MANAGED: &str = "[LoadBalancer]\nmanage-security-groups = true\n";

/// The members for some nodes at some node ports, and the rules that allow their traffic.
fn wanted(nodes: usize, node_ports: &[u64]) -> (Vec<String>, Vec<String>) {
    let members = (1..=nodes).flat_map(|node| node_ports.iter().map(move |port| format!("node-{node} {port}")));
    let mut members: Vec<String> = members.collect();
    let mut rules: Vec<String> = node_ports.iter().map(|port| format!("tcp {port} 10.50.0.0/24")).collect();
    members.sort();
    rules.sort();
    (members, rules)
}

/// Waits until a Service has the members and rules of [`wanted`], on this many ports of servers.
async fn until_served(world: &World, nodes: usize, ports: &[u16]) {
    let mut node_ports = Vec::new();
    for port in ports {
        node_ports.push(world.node_port("web", *port).await);
    }
    let (members, rules) = wanted(nodes, &node_ports);
    world
        .until(&format!("{nodes} nodes at the ports {ports:?}"), async || {
            let cloud = &world.cloud;
            let group = cloud.groups().await;
            let [group] = group.as_slice() else { return false };
            let guarded = cloud.list(&format!("/v2.0/ports?security_groups={}", id(group))).await.len();
            guarded == nodes && cloud.members().await == members && cloud.rules().await == rules
        })
        .await;
    // After the last write.
    world.cloud.settle().await;
}

async fn a_balancer_follows_its_service_and_its_nodes_and_leaves_nothing(world: &World) {
    let rig = &world.rig;
    let (manager, _machines) = world.with_nodes(2, MANAGED).await;
    rig.create(service("web", &[], &[80])).await;
    let address = world.rig.address("web").await;
    let (lb, ip) = (world.cloud.balancer().await, world.cloud.floating_ips().await.remove(0));
    assert_eq!((&ip["floating_ip_address"], &ip["port_id"]), (&json!(address), &lb["vip_port_id"]));
    assert_eq!(lb["name"], "kube_service_kubernetes_default_web");
    assert_eq!(world.annotation("web", "load-balancer-id").await, lb["id"]);
    assert_eq!(world.annotation("web", "load-balancer-address").await, address);
    until_served(world, 2, &[80]).await;
    manager.is_steady("web").await;

    let lists = async || manager.calls("loadbalancer_list").await + manager.calls("loadbalancer_pool_list").await;
    let before = lists().await;
    world.machine(3).await;
    until_served(world, 3, &[80]).await;
    assert_eq!(lists().await, before, "the balancer is found by the annotation, and its parts are known");
    rig.delete("nodes", "", "node-3").await;
    until_served(world, 2, &[80]).await;

    rig.patch_service("web", json!({"spec": {"ports": tcp_ports(&[80, 443])}})).await;
    until_served(world, 2, &[80, 443]).await;
    let ports =
        |listeners: &[Value]| listeners.iter().filter_map(|it| it["protocol_port"].as_u64()).collect::<Vec<_>>();
    assert_eq!(ports(&world.cloud.listeners().await), [80, 443]);
    manager.is_steady("web").await;
    manager.stop().await;

    let manager = world.manager(MANAGED, ARGS);
    manager.until_ensured(1).await;
    manager.is_steady("web").await;
    assert_eq!(manager.writes().await, BTreeMap::new(), "a restart writes nothing");
    assert_eq!(world.rig.address("web").await, address);

    rig.patch_service("web", json!({"spec": {"ports": tcp_ports(&[443])}})).await;
    until_served(world, 2, &[443]).await;
    assert_eq!(ports(&world.cloud.listeners().await), [443]);
    assert_eq!(rig.count_events("web", "SyncLoadBalancerFailed").await, 0);
    world.rig.delete_service("web").await;
    world.cloud.is_empty().await;
    manager.stop().await;
}

async fn a_shared_balancer_stays_until_its_last_service_goes(world: &World) {
    let (manager, _machines) = world.with_nodes(1, "").await;
    world.rig.create(service("web", &[], &[80])).await;
    let address = world.rig.address("web").await;
    let balancer = world.annotation("web", "load-balancer-id").await;
    world.rig.create(service("api", &[("load-balancer-id", balancer.as_str().unwrap())], &[8080])).await;
    assert_eq!(world.rig.address("api").await, address);
    assert_eq!(world.cloud.listeners().await.len(), 2);
    for name in ["web", "api"] {
        manager.is_steady(name).await;
    }
    // The Service that created the load balancer is deleted first.
    world.rig.delete_service("web").await;
    let lb = world.cloud.balancer().await;
    assert_eq!((&lb["id"], texts(&lb["tags"])), (&balancer, vec!["kube_service_kubernetes_default_api"]));
    assert_eq!(world.cloud.listener().await["protocol_port"], 8080);
    assert_eq!((world.cloud.listeners().await.len(), world.cloud.floating_ips().await.len()), (1, 1));
    assert_eq!(world.rig.address("api").await, address);
    manager.is_steady("api").await;
    world.rig.delete_service("api").await;
    manager.stop().await;
}

/// The program is killed when the load balancer exists; the next process when the floating IP exists.
async fn a_killed_program_leaves_one_balancer_and_one_floating_ip(world: &World) {
    let (mut manager, _machines) = world.with_nodes(1, "").await;
    world.slow(Duration::from_secs(1));
    world.rig.create(service("web", &[], &[80, 443])).await;
    world.until("a balancer", async || !world.cloud.balancers().await.is_empty()).await;
    manager.process.kill();
    assert_eq!(world.cloud.balancer().await["provisioning_status"], "PENDING_CREATE");
    let made = world.cloud.balancer().await["id"].clone();

    let mut manager = world.manager("", ARGS);
    world.until("a floating IP", async || !world.cloud.floating_ips().await.is_empty()).await;
    manager.process.kill();
    let manager = world.manager("", ARGS);
    let address = world.rig.address("web").await;
    let (lb, ips) = (world.cloud.balancer().await, world.cloud.floating_ips().await);
    assert_eq!(lb["id"], made);
    assert_eq!(ips.len(), 1, "{ips:?}");
    assert_eq!((&ips[0]["floating_ip_address"], &ips[0]["port_id"]), (&json!(address), &lb["vip_port_id"]));
    assert_eq!(world.cloud.listeners().await.len(), 2);
    manager.is_steady("web").await;
    world.rig.delete_service("web").await;
    manager.stop().await;
}
