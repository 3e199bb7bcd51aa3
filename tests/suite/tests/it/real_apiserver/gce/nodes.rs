//! Nodes and routes.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_everything_of_its_instance_and_goes_with_it() {
    let Some(world) = World::start().await else { return };
    let rig = &world.rig;
    let ((first, one), (_, two)) = (world.machine(1).await, world.machine(2).await);
    let manager = world.manager("", ARGS);
    for (number, name) in [(1, &one), (2, &two)] {
        let node = world.rig.initialized(name).await;
        assert_eq!(node.provider_id(), format!("gce://{PROJECT}/{}/{name}", zone(number)));
        assert_eq!(node.label("topology.kubernetes.io/region"), REGION);
        assert_eq!(node.label("topology.kubernetes.io/zone"), zone(number));
        assert_eq!(node.label("node.kubernetes.io/instance-type"), "e2-standard-2");
        assert!(node.addresses().iter().any(|address| address.starts_with("InternalIP=10.50.0.")));
        assert_eq!(node.taints(), [""; 0]);
        assert_eq!(rig.count_events(name, "Synced").await, 1);
    }

    for name in [&one, &two] {
        rig.set_ready(name, "Unknown").await;
    }
    world.gce.world(|gce| gce.delete_instance(&first));
    // Reads may be late, so a young node stays. To the program, this one appears to be older.
    let mark = world.gce.mark();
    let looks = |gce: &Gce| {
        gce.ledger(|ledger| ledger.since(mark).filter(|call| call.action.starts_with("instances.")).count()) >= 4
    };
    world.until("more looks", looks).await;
    assert!(rig.node(&two).await.is_some(), "its instance is there");
    assert_eq!(world.writes(manager.mark), [""; 0]);
    manager.stop().await;
    world.end();
}

/// The routes of the network as `range via instance`.
fn routes(world: &World) -> Vec<String> {
    let text =
        |route: &Value| format!("{} via {}", route["destRange"].as_str().unwrap(), last(&route["nextHopInstance"]));
    let mut routes: Vec<String> = world.gce.objects("routes").iter().map(text).collect();
    routes.sort();
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_lead_to_the_pods_of_each_node() {
    let Some(world) = World::start().await else { return };
    let args = ["--cluster-cidr=10.99.0.0/16", "--route-reconciliation-period=500ms"];
    // A route of another cluster, and one that a user created by hand.
    let theirs = json!({
        "destRange": "10.99.77.0/24", "network": format!("projects/{PROJECT}/global/networks/default"), "priority": 1000,
        "nextHopIp": "10.50.0.250", "description": "k8s-node-route",
    });
    world.gce.world(|gce| gce.put(&format!("projects/{PROJECT}/global/routes/kubernetes-2-by-hand"), theirs));
    world.machine(1).await;
    world.machine(2).await;
    let manager = world.manager("", &args);
    let [one, two, theirs] =
        ["10.99.1.0/24 via node-1", "10.99.2.0/24 via node-2", "10.99.77.0/24 via "].map(str::to_owned);
    world.rig.until(LONG, "both routes", async |_| (routes(&world) == [&*one, &*two, &*theirs]).then_some(())).await;
    for name in ["node-1", "node-2"] {
        let ready = |node: &Object| node.condition("NetworkUnavailable").is_some_and(|it| it["status"] == "False");
        world.rig.until(LONG, "the condition", async |rig| rig.node(name).await.filter(ready)).await;
    }
    manager.stop().await;

    let manager = world.manager("", &args);
    let mark = manager.mark;
    let looks = |gce: &Gce| gce.ledger(|ledger| ledger.counts(mark).get("compute:routes.list").copied()) >= Some(2);
    world.until("a few looks", looks).await;
    assert_eq!(world.writes(manager.mark), [""; 0], "a restart writes nothing");
    world.rig.delete("nodes", "", "node-2").await;
    world.rig.until(LONG, "the route is gone", async |_| (routes(&world) == [&*one, &*theirs]).then_some(())).await;
    manager.stop().await;
    world.end();
}
