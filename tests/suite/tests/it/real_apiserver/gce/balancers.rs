//! Load balancers from creation to deletion.

use super::*;

/// The name of a Service's load balancer.
async fn name_of(world: &World, service: &str) -> String {
    let uid = world.rig.service(service).await.unwrap().uid().replace('-', "");
    format!("a{uid}").chars().take(32).collect()
}

/// The instances of the target pool.
fn pool(world: &World) -> BTreeSet<String> {
    let pool = world.only("targetPools");
    pool["instances"].as_array().into_iter().flatten().map(|link| last(link).to_owned()).collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_balancer_follows_its_service_and_its_nodes_and_leaves_nothing() {
    let Some(world) = World::start().await else { return };
    let rig = &world.rig;
    let manager = world.with_nodes(2).await;
    rig.create(service("web", &[], &[80])).await;
    let address = world.rig.address("web").await;
    let name = name_of(&world, "web").await;
    let rule = world.only("forwardingRules");
    assert_eq!(
        (&rule["name"], &rule["IPAddress"], &rule["portRange"]),
        (&json!(name), &json!(address), &json!("80-80"))
    );
    assert_eq!(pool(&world), names(&["node-1", "node-2"]));
    assert!(world.names("firewalls").contains(&format!("k8s-fw-{name}")));
    assert_eq!(world.names("addresses"), BTreeSet::new(), "the reservation is released");
    world.is_steady("web").await;

    world.machine(3).await;
    world.rig.until(LONG, "the new node", async |_| (pool(&world).len() == 3).then_some(())).await;
    rig.delete("nodes", "", "node-3").await;
    world.rig.until(LONG, "the node goes", async |_| (pool(&world).len() == 2).then_some(())).await;

    rig.patch_service("web", json!({"spec": {"ports": tcp_ports(&[80, 443])}})).await;
    let changed = |gce: &Gce| gce.objects("forwardingRules").iter().any(|rule| rule["portRange"] == "80-443");
    world.until("the rule of both ports", changed).await;
    world.until("the release of the address", |gce| gce.objects("addresses").is_empty()).await;
    assert_eq!(world.only("forwardingRules")["IPAddress"], address, "the address stays");
    manager.stop().await;

    let manager = world.manager("", ARGS);
    world.is_steady("web").await;
    assert_eq!(world.writes(manager.mark), [""; 0], "a restart writes nothing");
    assert_eq!(rig.count_events("web", "SyncLoadBalancerFailed").await, 0);
    world.rig.delete_service("web").await;
    manager.stop().await;
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_balancers_share_their_groups_until_the_last_one_goes() {
    let Some(world) = World::start().await else { return };
    let manager = world.with_nodes(2).await;
    for (name, port) in [("web", 80), ("api", 8080)] {
        world.rig.create(service(name, &[INTERNAL], &[port])).await;
    }
    for name in ["web", "api"] {
        assert!(world.rig.address(name).await.starts_with("10.50.0."), "of the subnetwork");
    }
    assert_eq!((world.names("backendServices").len(), world.names("healthChecks").len()), (2, 1));
    assert_eq!(world.gce.objects("instanceGroups").len(), 2, "one for each zone");
    for name in ["web", "api"] {
        world.is_steady(name).await;
    }
    world.rig.delete_service("web").await;
    assert_eq!((world.names("backendServices").len(), world.names("healthChecks").len()), (1, 1));
    assert_eq!(world.gce.objects("instanceGroups").len(), 2);
    world.is_steady("api").await;
    world.rig.delete_service("api").await;
    manager.stop().await;
    world.end();
}

/// The Node objects of both hosts are deleted; their instances run. The other node could be no backend.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_node_of_another_cloud_balancers_keep_the_hosts_whose_node_objects_are_gone() {
    let Some(world) = World::start().await else { return };
    let manager = world.with_nodes(2).await;
    world.rig.create(service("web", &[], &[80])).await;
    world.rig.create(service("api", &[INTERNAL], &[8080])).await;
    world.rig.create(node("onprem-1").provider_id("onprem://rack/1")).await;
    for name in ["web", "api"] {
        world.rig.address(name).await;
    }
    let hosts = || (pool(&world).len(), world.only("backendServices")["backends"].as_array().map_or(0, Vec::len));
    world.until("both nodes are hosts", |_| hosts() == (2, 2)).await;
    for name in ["node-1", "node-2"] {
        world.rig.delete("nodes", "", name).await;
    }
    for name in ["web", "api"] {
        world.rig.until_event(name, "LoadBalancerHostsKept").await;
    }
    manager.stop().await;
    let kept = async |name: &str| world.rig.count_events(name, "LoadBalancerHostsKept").await;
    let before = [kept("web").await, kept("api").await];
    let manager = world.manager("", ARGS);
    for (name, before) in ["web", "api"].into_iter().zip(before) {
        world.rig.until(LONG, "kept again", async |_| (kept(name).await > before).then_some(())).await;
    }
    assert_eq!((hosts(), world.writes(manager.mark)), ((2, 2), vec![]));
    manager.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_changes_its_scheme_leaves_nothing_of_the_old_one() {
    let Some(world) = World::start().await else { return };
    let manager = world.with_nodes(1).await;
    world.rig.create(service("web", &[], &[80])).await;
    let outside = world.rig.address("web").await;
    let (key, value) = INTERNAL;
    world.rig.patch_service("web", json!({"metadata": {"annotations": {key: value}}})).await;
    let inside = async |rig: &Rig| rig.service("web").await?.ingress().into_iter().find(|ip| *ip != outside);
    let inside = world.rig.until(LONG, "an internal address", inside).await;
    assert!(inside.starts_with("10.50.0."), "{inside}");
    assert_eq!(world.only("forwardingRules")["loadBalancingScheme"], "INTERNAL");
    assert_eq!((world.names("targetPools"), world.names("httpHealthChecks")), (BTreeSet::new(), BTreeSet::new()));
    world.is_steady("web").await;
    let finalizers = world.rig.service("web").await.unwrap().finalizers();
    assert!(finalizers.iter().any(|name| name == "gke.networking.io/l4-ilb-v1"), "{finalizers:?}");
    assert!(!finalizers.iter().any(|name| name == "gke.networking.io/l4-netlb-v1"), "{finalizers:?}");
    world.rig.delete_service("web").await;
    manager.stop().await;
    world.end();
}

/// The roles of kOps: the process may list ConfigMaps, and only the account `cloud-provider` may create one.
async fn bind_roles_of_kops(world: &World) -> std::path::PathBuf {
    let bed = world.rig.bed();
    let kubeconfig = bed.kubeconfig_for_service_account("kube-system", "ccm").await.unwrap();
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let of_process = json!([
        rule("*", &["*"], &["list", "watch"]),
        rule("", &["events"], &["create", "patch", "update"]),
        rule("", &["serviceaccounts"], &["create", "get", "update"]),
        rule("", &["serviceaccounts/token"], &["create"]),
    ]);
    let of_provider = json!([rule("", &["configmaps"], &["create", "get", "list", "patch", "update", "watch"])]);
    let api = "rbac.authorization.k8s.io";
    for (place, prefix, account, rules) in
        [("", "Cluster", "ccm", of_process), ("/namespaces/kube-system", "", "cloud-provider", of_provider)]
    {
        let (role, binding) = (format!("{prefix}Role"), format!("{prefix}RoleBinding"));
        let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "kube-system"});
        let objects = [
            json!({"apiVersion": format!("{api}/v1"), "kind": role, "metadata": {"name": account}, "rules": rules}),
            json!({"apiVersion": format!("{api}/v1"), "kind": binding, "metadata": {"name": account},
                "subjects": [subject], "roleRef": {"apiGroup": api, "kind": role, "name": account}}),
        ];
        for object in objects {
            let path = format!("/apis/{api}/v1{place}/{}s", object["kind"].as_str().unwrap().to_lowercase());
            let (status, body) = bed.request("POST", &path, &bed.token, Some(&object)).await.unwrap();
            assert_eq!(status, 201, "{body}");
        }
    }
    kubeconfig
}

/// Go makes it as this account too.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_roles_of_kops_the_id_of_the_cluster_is_made_as_the_account_that_may() {
    let Some(world) = World::start().await else { return };
    let kubeconfig = format!("--kubeconfig={}", bind_roles_of_kops(&world).await.display());
    world.machine(1).await;
    let manager = world.manager("", &[ARGS, &["--use-service-account-credentials", &kubeconfig]].concat());
    world.rig.initialized("node-1").await;
    world.rig.create(service("web", &[], &[80])).await;
    world.rig.address("web").await;
    let id = world.rig.bed().get("/api/v1/namespaces/kube-system/configmaps/ingress-uid").await.unwrap();
    assert_eq!(id.0, 200, "{}", id.1);
    world.rig.delete_service("web").await;
    manager.stop().await;
}
