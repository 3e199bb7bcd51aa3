//! Tests with the real programs.

use ccm_test_bed::AuditEntry;
use ccm_test_suite::{Make, Object, Rig, service};
use serde_json::{Value, json};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn one_gives_ranges_and_the_other_makes_the_routes_and_they_share_no_field_but_the_taints() {
    let Some(world) = World::start("beside-nodes", CLOUD, &[]).await else { return };
    let _manager = world.manager("manager", &[]);
    let names = world.register("both", 6).await;
    let nodes = world.until_usable(&names).await;
    world.let_both_look().await;

    let routes = world.rig.cloud.calls("CreateRoute");
    let mut made: Vec<_> = routes.iter().map(|call| target(&call["args"])).collect();
    made.sort();
    let mut wanted: Vec<_> = nodes.iter().map(|node| (range(node).to_owned(), node.name().to_owned())).collect();
    wanted.sort();
    assert_eq!(made, wanted, "one route for each node and no second attempt");

    for node in &nodes {
        let ours = fields(node, "ccm");
        let theirs = fields(node, "kube-controller-manager");
        let of_type = ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
        let mut wanted = of_type.map(|label| format!("metadata.labels.{label}")).to_vec();
        wanted.extend(["spec.providerID", "status.conditions.NetworkUnavailable"].map(str::to_owned));
        assert_eq!(ours, wanted);
        let ranges = ["spec.podCIDR".to_owned(), format!("spec.podCIDRs.{:?}", range(node))];
        assert!(ranges.iter().all(|field| theirs.contains(field)), "{theirs:?}");
        assert!(theirs.iter().all(|field| !ours.contains(field)), "{ours:?} {theirs:?}");
    }
    let (ours, theirs) = world.writes();
    assert_no_taint_can_get_lost(&[&ours[..], &theirs].concat());
    // Both write the taints of a new node, so one of them may have to retry, but not indefinitely.
    let conflicts: Vec<_> = ours.iter().filter(|entry| entry.code == 409).cloned().collect();
    assert!(conflicts.len() <= 2 * names.len(), "{}", lines(&conflicts));
    let unexpected = |entry: &&AuditEntry| is_ours(entry) && entry.code >= 400 && entry.code != 409;
    let refused: Vec<_> = world.asked().iter().filter(unexpected).cloned().collect();
    // The first read of a lease that does not exist yet.
    assert!(refused.iter().all(|entry| entry.is_about("leases") && entry.code == 404), "{}", lines(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ranges_of_our_own_allocator_are_left_alone_by_the_other() {
    let Some(world) = World::start("beside-ipam", CLOUD, &["--allocate-node-cidrs=false"]).await else { return };
    let _manager = world.manager("manager", &["--controllers=*,node-ipam-controller"]);
    let names = world.register("ours", 4).await;
    let nodes = world.until_usable(&names).await;
    world.until_at_rest().await;
    let mut ranges: Vec<_> = nodes.iter().map(range).collect();
    ranges.sort_unstable();
    assert_eq!(ranges, ["10.90.0.0/24", "10.90.1.0/24", "10.90.2.0/24", "10.90.3.0/24"]);
    assert!(nodes.iter().all(|node| fields(node, "ccm").contains(&"spec.podCIDR".to_owned())));
    assert_eq!(world.rig.cloud.calls("CreateRoute").len(), 4);
    let (_, theirs) = world.writes();
    let of_ranges = |entry: &&AuditEntry| entry.body.as_ref().is_some_and(|body| !body["spec"]["podCIDR"].is_null());
    assert_eq!(theirs.iter().filter(of_ranges).count(), 0, "{}", lines(&theirs));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_range_of_a_dual_stack_node_gets_its_route() {
    let ranges = "--cluster-cidr=10.90.0.0/16,fd00:90::/56";
    let Some(world) = World::start("beside-dual", CLOUD, &[ranges]).await else { return };
    let _manager = world.manager("manager", &[ranges]);
    let names = world.register("dual", 2).await;
    let nodes = world.until_usable(&names).await;
    world.until_at_rest().await;
    let text = |range: &Value| range.as_str().unwrap().to_owned();
    let ranges = |node: &Object| node["spec"]["podCIDRs"].as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    let of_node = |node: &Object| ranges(node).into_iter().map(|range| (range, node.name().to_owned())).collect();
    let mut wanted: Vec<(String, String)> = nodes.iter().flat_map::<Vec<_>, _>(of_node).collect();
    wanted.sort();
    let mut made: Vec<_> = world.rig.cloud.calls("CreateRoute").iter().map(|call| target(&call["args"])).collect();
    made.sort();
    assert_eq!(made, wanted);
    assert_eq!(made.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_neither_writes_and_a_restart_of_either_changes_nothing() {
    let Some(mut world) = World::start("beside-rest", CLOUD, &[]).await else { return };
    let mut manager = world.manager("first", &[]);
    let names = world.register("rest", 4).await;
    world.rig.create(service("rest")).await;
    world.until_usable(&names).await;
    world.rig.until_service("rest", "has an address", |service| !service.ingress().is_empty()).await;
    world.until_at_rest().await;
    world.forget();

    let ours = world.holder(OUR_LEASE).await;
    manager.terminate();
    assert!(manager.ended(LONG).await.success(), "{}", manager.output());
    manager = world.manager("second", &[]);
    world.let_both_look().await;
    world.assert_no_writes("after a restart of ours");
    assert!(world.asked().iter().any(|entry| is_ours(entry) && is_renewal(entry)), "is it under another name?");
    assert_ne!(world.holder(OUR_LEASE).await, ours);

    world.kill_controller_manager();
    world.start_controller_manager(&[]).await;
    world.let_both_look().await;
    world.assert_no_writes("after a restart of theirs");

    // A user's change stays, and causes no continuing activity.
    world.rig.patch_node(&names[0], json!({"metadata": {"labels": {"mine": "1"}}})).await;
    world.rig.patch_service("rest", json!({"metadata": {"annotations": {"mine": "1"}}})).await;
    world.let_both_look().await;
    world.assert_no_writes("after a change of a user");
    assert_eq!(world.rig.cloud.calls("CreateRoute").len(), names.len());
    drop(manager);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_kubelet_is_tainted_by_one_and_its_node_goes_only_when_the_cloud_says_so() {
    let Some(world) = World::start("beside-silent", CLOUD, &["--node-monitor-grace-period=10s"]).await else {
        return;
    };
    let _manager = world.manager("manager", &[]);
    let well = world.register("well", 4).await;
    let silent = world.register("silent", 4).await;
    let [kept, stopped, gone, unsure] = [0, 1, 2, 3].map(|i: usize| silent[i].as_str());
    world.until_usable(&[well.clone(), silent.clone()].concat()).await;
    world.until_at_rest().await;
    world.forget();

    let lost = format!(
        "{CLOUD}\ninstances: [{{name: {stopped}, shutdown: true}}, {{name: {gone}, exists: false}}]\n\
         faults: [{{call: InstanceExists, node: {unsure}, error: throttled}}]"
    );
    world.rig.cloud.write(&lost);
    silent.iter().for_each(|name| world.kubelets.stop(name));
    let unreachable = ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];
    let both = [&["node.cloudprovider.kubernetes.io/shutdown:NoSchedule"], &unreachable[..]].concat();
    for (name, wanted) in [(kept, &unreachable[..]), (unsure, &unreachable), (stopped, &both)] {
        world.until_taints(name, wanted).await;
    }
    world.until("gone", async |rig| rig.node(gone).await.is_none().then_some(())).await;
    world.rig.until_event(gone, "DeletingNode").await;
    world.rig.until_calls("DeleteRoute", 1).await;
    world.until_at_rest().await;
    let about_kept = |entry: &AuditEntry| is_ours(entry) && [kept, unsure].contains(&&*entry.name);
    let ours: Vec<_> = world.asked().into_iter().filter(|e| e.is_write() && about_kept(e)).collect();
    assert!(ours.is_empty(), "{}", lines(&ours));
    assert_eq!(world.rig.cloud.calls("DeleteRoute").len(), 1, "a silent node keeps its route");

    world.rig.cloud.write(CLOUD);
    let back = [kept, stopped, unsure].map(str::to_owned);
    back.iter().for_each(|name| world.kubelets.resume(name));
    world.until_usable(&[&well[..], &back].concat()).await;
    world.until_at_rest().await;
    let (ours, theirs) = world.writes();
    assert_no_taint_can_get_lost(&[&ours[..], &theirs].concat());
    // The shutdown taint was added and removed.
    assert_eq!(ours.iter().filter(|e| sets_taints(e) && e.code == 200).count(), 2, "{}", lines(&ours));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_its_route_is_tainted_by_the_other_until_the_route_is_made() {
    let faults = format!("{CLOUD}\nfaults: [{{call: CreateRoute, node: routeless-0, error: route table full}}]");
    let Some(world) = World::start("beside-routeless", &faults, &[]).await else { return };
    let _manager = world.manager("manager", &[]);
    let names = world.register("routeless", 3).await;
    world.until_usable(&names[1..]).await;
    world.until_taints(&names[0], &["node.kubernetes.io/network-unavailable:NoSchedule"]).await;
    world.rig.cloud.write(CLOUD);
    world.until_usable(&names).await;
    world.until_at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_passes_to_another_node_takes_its_route_along() {
    let small = "--cluster-cidr=10.90.0.0/23";
    let Some(world) = World::start("beside-ranges", CLOUD, &[small]).await else { return };
    let _manager = world.manager("manager", &[small]);
    let first = world.register("first", 2).await;
    let nodes = world.until_usable(&first).await;
    let next = world.register("next", 1).await;
    world.rig.until_event(&next[0], "CIDRNotAvailable").await;
    let routes = world.rig.cloud.calls("CreateRoute").len();
    assert_eq!(routes, 2, "no route for a node without range");

    world.kubelets.stop(&first[0]);
    world.rig.delete("nodes", "", &first[0]).await;
    let heirs = world.until_usable(&next).await;
    assert_eq!(range(&heirs[0]), range(&nodes[0]));
    let created = world.rig.cloud.calls("CreateRoute");
    assert_eq!(target(&created[routes]["args"]), (range(&nodes[0]).to_owned(), next[0].clone()));
    assert_eq!((created.len(), world.rig.cloud.calls("DeleteRoute").len()), (3, 1));
    world.until_at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_is_made_once_and_goes_with_its_namespace() {
    let Some(world) = World::start("beside-services", CLOUD, &[]).await else { return };
    let _manager = world.manager("manager", &[]);
    let names = world.register("host", 2).await;
    world.until_usable(&names).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    world.rig.create(Make { resource: "namespaces", object: namespace }).await;
    world.rig.create(service("web").namespace("shop")).await;
    let served = async |rig: &Rig| rig.get("services", "shop", "web").await.filter(|s| !s.ingress().is_empty());
    world.until("an address", served).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    world
        .until("an endpoint slice", async |rig| rig.bed().get(slices).await.unwrap().1.contains("web-").then_some(()))
        .await;
    world.register("late", 1).await;
    world.rig.until_calls("UpdateLoadBalancer", 1).await;
    world.until_at_rest().await;
    let (ours, theirs) = world.writes();
    let bodies = ours.iter().filter(|entry| entry.resource == "services").filter_map(|entry| entry.body.as_ref());
    let has = |body: &Value| (body["metadata"]["finalizers"].is_array(), body["status"]["loadBalancer"].is_object());
    let bodies: Vec<_> = bodies.map(has).collect();
    assert_eq!(bodies, [(true, false), (false, true)], "the finalizer, then the address\n{}", lines(&ours));
    assert!(theirs.iter().all(|entry| entry.resource != "services"), "{}", lines(&theirs));

    world.rig.delete("namespaces", "", "shop").await;
    world.until("gone", async |rig| rig.get("namespaces", "", "shop").await.is_none().then_some(())).await;
    assert_eq!(world.rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
    assert_eq!(world.rig.cloud.calls("EnsureLoadBalancer").len(), 1);
}

/// Both may run the allocator; the lease of the migration determines which one does. The reverse cannot be tested: a
/// kube-controller-manager 1.36.3 exits as soon as it holds that lease together with its own ("informer name
/// \"kube-controller-manager\" is already registered").
#[tokio::test(flavor = "multi_thread")]
async fn the_allocator_runs_where_the_lease_of_the_migration_is_held() {
    const LEASE: &str = "ipam-migration";
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = json!({"kind": "LeaderMigrationConfiguration", "apiVersion": "controllermanager.config.k8s.io/v1",
        "leaderName": LEASE, "controllerLeaders": [{"name": "node-ipam-controller", "component": "*"}]});
    std::fs::write(file.path(), config.to_string()).unwrap();
    let config = format!("--leader-migration-config={}", file.path().display());
    let flags = ["--enable-leader-migration=true", &config];

    let Some(mut world) = World::start("beside-migration", CLOUD, &["--allocate-node-cidrs=false"]).await else {
        return;
    };
    let _manager = world.manager("manager", &[&flags[..], &["--controllers=*,node-ipam-controller"]].concat());
    world.until("ours holds it", async |_| (!world.holder(LEASE).await.is_empty()).then_some(())).await;
    let ours = world.holder(LEASE).await;
    world.kill_controller_manager();
    world.start_controller_manager(&flags).await;
    let names = world.register("moved", 3).await;
    let nodes = world.until_usable(&names).await;
    world.until_at_rest().await;

    assert_eq!(world.holder(LEASE).await, ours);
    for node in &nodes {
        let allocated = |manager: &str| fields(node, manager).contains(&"spec.podCIDR".to_owned());
        assert!(allocated("ccm") && !allocated("kube-controller-manager"), "{}", node.name());
    }
}
