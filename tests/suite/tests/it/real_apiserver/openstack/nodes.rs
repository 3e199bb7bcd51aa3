//! Nodes and routes.

use super::*;

ccm_test_openstack::cases! { [crate::real_apiserver::openstack]
    both:
        a_node_gets_everything_of_its_server_and_goes_with_it,
        routes_lead_to_the_pods_of_each_node;
    simulated:
        the_default_name_of_the_cluster_is_a_warning_at_the_start;
}

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";

async fn a_node_gets_everything_of_its_server_and_goes_with_it(world: &World) {
    let rig = &world.rig;
    let (first, second) = tokio::join!(world.machine(1), world.machine(2));
    let manager = world.manager("", ARGS);
    for machine in [&first, &second] {
        let node = world.rig.initialized(&machine.name).await;
        assert_eq!(node.provider_id(), format!("openstack:///{}", machine.server));
        assert_eq!(node.label("topology.kubernetes.io/region"), "RegionOne");
        assert_eq!(node.label("topology.kubernetes.io/zone"), "zone-1");
        assert_eq!(node.label("node.kubernetes.io/instance-type"), "small");
        assert_eq!(node.addresses(), [format!("InternalIP={}", machine.address)]);
        assert_eq!(node.taints(), [""; 0]);
        assert_eq!(rig.count_events(&machine.name, "Synced").await, 1);
    }

    // The program does not look up a node that is Ready.
    for machine in [&first, &second] {
        rig.set_ready(&machine.name, "Unknown").await;
    }
    world.cloud.shut_off(&second.server).await;
    let tainted = async |rig: &Rig| rig.node(&second.name).await.filter(|node| node.taints() == [SHUTDOWN]);
    let tainted = rig.until(LONG, "the taint of a server that is shut off", tainted).await;
    assert_eq!(rig.node(&first.name).await.unwrap().taints(), [""; 0], "its server runs");

    world.cloud.delete_server(&first.server).await;
    if world.cloud.simulation().is_some() {
        // Clouds list new servers late: a node younger than a minute stays. On the real services the minute has passed.
        let asked = manager.calls("server_get").await;
        world.until("more looks", async || manager.calls("server_get").await >= asked + 4).await;
        assert!(rig.node(&first.name).await.is_some());
    } else {
        let gone = async |rig: &Rig| rig.node(&first.name).await.is_none().then_some(());
        rig.until(LONG, "the node of a server that is gone is gone", gone).await;
        assert!(rig.until_event(&first.name, "DeletingNode").await.starts_with("Normal"));
    }
    assert_eq!(rig.node(&second.name).await.unwrap().version(), tainted.version(), "kept, and not written again");
    assert_eq!(manager.writes().await, BTreeMap::new());
    manager.stop().await;
}

/// The router's routes as `range via address`.
async fn routes(world: &World) -> Vec<String> {
    let router = world.cloud.get(&format!("/v2.0/routers/{}", world.cloud.place().router)).await;
    let text = |route: &Value| {
        let [range, hop] = ["destination", "nexthop"].map(|key| route[key].as_str().unwrap());
        format!("{range} via {hop}")
    };
    let mut routes: Vec<String> = router["router"]["routes"].as_array().unwrap().iter().map(text).collect();
    routes.sort();
    routes
}

/// The allowed address pairs of the port of a server.
async fn pairs(world: &World, server: &str) -> Vec<String> {
    let ports = world.cloud.list(&format!("/v2.0/ports?device_id={server}")).await;
    let pairs = ports[0]["allowed_address_pairs"].as_array().unwrap();
    pairs.iter().map(|pair| pair["ip_address"].as_str().unwrap().to_owned()).collect()
}

async fn routes_lead_to_the_pods_of_each_node(world: &World) {
    let rig = &world.rig;
    let more = format!("[Route]\nrouter-id = {}\n", world.cloud.place().router);
    let args = ["--cluster-cidr=10.88.0.0/16", "--route-reconciliation-period=500ms"];
    // A foreign route, outside the pod range.
    let theirs = json!({"router": {"routes": [{"destination": "192.0.2.0/24", "nexthop": "10.50.0.250"}]}});
    world.cloud.write("PUT", &format!("/v2.0/routers/{}", world.cloud.place().router), theirs).await;
    let theirs = "192.0.2.0/24 via 10.50.0.250";

    let (first, second) = tokio::join!(world.machine(1), world.machine(2));
    let manager = world.manager(&more, &args);
    let [one, two] = [(1, &first), (2, &second)].map(|(n, of)| format!("10.88.{n}.0/24 via {}", of.address));
    let all = [&one, &two, theirs];
    world.until("both routes", async || routes(world).await == all).await;
    for (machine, range) in [(&first, "10.88.1.0/24"), (&second, "10.88.2.0/24")] {
        assert_eq!(pairs(world, &machine.server).await, [range]);
        let ready = |node: &Object| node.condition("NetworkUnavailable").is_some_and(|it| it["status"] == "False");
        rig.until(LONG, "the condition", async |rig| rig.node(&machine.name).await.filter(ready)).await;
    }
    manager.stop().await;

    let manager = world.manager(&more, &args);
    world.until("a few looks", async || manager.calls("router_get").await >= 2).await;
    assert_eq!(manager.writes().await, BTreeMap::new(), "a restart writes nothing");

    rig.delete("nodes", "", &second.name).await;
    world.until("the route of the node that is gone is gone", async || routes(world).await == [&one, theirs]).await;
    assert_eq!(pairs(world, &second.server).await, [""; 0]);
    assert_eq!(pairs(world, &first.server).await, ["10.88.1.0/24"]);
    manager.stop().await;
}

/// Other clusters of the project may have it, and load balancers of the same names.
async fn the_default_name_of_the_cluster_is_a_warning_at_the_start(world: &World) {
    const OFF: &str = "[LoadBalancer]\nenabled = false\n";
    let risk = "--cluster-name is the default, which other clusters of the project may have";
    for (number, (more, name, expected)) in (1..).zip([("", "kubernetes", 1), ("", "mine", 0), (OFF, "kubernetes", 0)])
    {
        let machine = world.machine(number).await;
        let name = format!("--cluster-name={name}");
        let manager = world.manager(more, &[ARGS, &[&*name]].concat());
        world.rig.initialized(&machine.name).await;
        let output = manager.process.output();
        let warnings = output.lines().filter(|line| line.starts_with('W') && line.contains(risk));
        assert_eq!(warnings.count(), expected, "{name} {more}: {output}");
        manager.stop().await;
    }
}
