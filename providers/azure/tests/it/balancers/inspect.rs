//! The output of the commands about load balancers and their nodes.

use ccm_provider::{Claims, Fact, FactState, LoadBalancerExt as _, Orphan};

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

fn claims(scene: &Scene, names: &[&str]) -> Claims {
    let services = names.iter().map(|name| Arc::new(scene.services[*name].clone()));
    Claims { nodes: scene.nodes.clone(), services: services.collect() }
}

async fn explain(scene: &Scene, name: &str) -> Vec<String> {
    let service = &scene.services[name];
    let facts = scene.provider.inspect().unwrap().explain_service(CLUSTER, service).await.unwrap();
    assert!(facts.iter().all(|fact| fact.state != FactState::Bad || fact.hint.is_some()));
    facts.iter().map(line).collect()
}

fn line(fact: &Fact) -> String {
    format!("{:?} {}: {}", fact.state, fact.about, fact.text)
}

async fn orphans(scene: &Scene, claims: &Claims) -> Vec<Orphan> {
    scene.provider.inspect().unwrap().orphans(CLUSTER, claims).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_explained_from_its_load_balancer_to_the_security_rules() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    let before = explain(&scene, "web").await;
    let base = "a0000000111112222333344444444444";
    assert_eq!(before[0], format!("Good desired state: {base} on a shared load balancer, external: Tcp 80"));
    assert_eq!(
        before[1],
        format!("Waiting frontend {base}: not made yet: it is added to the load balancer with its rules")
    );
    assert!(before.last().unwrap().starts_with("Waiting plan: writes left: "), "{before:?}");
    scene.ensure(&["web"]).await;
    let (ip, mark) = (scene.ip("web"), scene.mark());
    let after = explain(&scene, "web").await;
    assert_eq!(
        after[1..5],
        [
            "Good load balancer kubernetes: all external Services of the cluster share it".to_owned(),
            format!("Good frontend {base}: Tcp 80 to 80, probe Tcp 30080"),
            format!("Good address {ip}: of the public IP address kubernetes-{base}"),
            "Good pools of kubernetes: members: 2".to_owned(),
        ],
        "{after:?}"
    );
    assert!(
        after[5].starts_with("Good security group nsg: rules for its addresses: k8s-azure-lb_allow_IPv4_"),
        "{after:?}"
    );
    assert_eq!(after[6..], ["Good plan: nothing is left to do in the cloud"]);
    assert_eq!(scene.writes(mark), BTreeMap::new());
    scene.service("web", &[INTERNAL], port(80));
    let moved = explain(&scene, "web").await;
    assert!(moved[1].starts_with("Waiting load balancer kubernetes: of the other kind"), "{moved:?}");
    scene.service("web", &[("azure-load-balancer-tcp-idle-timeout", "x")], port(80));
    let refused = explain(&scene, "web").await;
    assert!(refused[0].starts_with("Bad desired state: ") && refused[0].contains("tcp-idle-timeout"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_explained_down_to_its_load_balancers() {
    let mut scene = Scene::new("", 2).await;
    let facts = async |scene: &Scene, node: &Node| {
        let facts = scene.provider.inspect().unwrap().explain_node(CLUSTER, node).await.unwrap();
        facts.iter().map(line).collect::<Vec<_>>()
    };
    let none = facts(&scene, &scene.nodes[0]).await;
    assert_eq!(none.last().unwrap(), "Good load balancers: there is none");
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let behind = facts(&scene, &scene.nodes[0]).await;
    let expected = "Good load balancer kubernetes: the node is a member: all nodes of the cluster are behind it";
    assert_eq!(behind.last().unwrap(), expected);
    let excluded = Node {
        labels: [("node.kubernetes.io/exclude-from-external-load-balancers", "")].into_iter().collect(),
        ..(*scene.nodes[1]).clone()
    };
    let left_out = facts(&scene, &excluded).await;
    assert!(
        left_out.last().unwrap().starts_with("Good load balancers: the node is behind none: it has the label"),
        "{left_out:?}"
    );
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gone_services_have_left_is_found_and_deleted_in_order() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    scene.service("stays", &[], port(81));
    scene.service("inner", &[INTERNAL], port(82));
    scene.ensure(&["web", "stays", "inner"]).await;
    assert_eq!(orphans(&scene, &claims(&scene, &["web", "stays", "inner"])).await, []);
    // A rule of the Go program for an address that is gone.
    let group = format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg");
    let mut rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
    rules[0]["properties"]["destinationAddressPrefixes"] =
        json!(["20.1.2.3", rules[0]["properties"]["destinationAddressPrefix"]]);
    rules[0]["properties"].as_object_mut().unwrap().remove("destinationAddressPrefix");
    scene.bed.cloud.world(|world| world.alter(&group, json!({"properties": {"securityRules": rules}})));
    let claims = claims(&scene, &["stays"]);
    let found = orphans(&scene, &claims).await;
    let shown: Vec<String> =
        found.iter().map(|orphan| format!("{} {} of {}", orphan.kind, orphan.name, orphan.owner)).collect();
    assert_eq!(
        shown,
        [
            "LoadBalancer kubernetes: frontends, rules and probes a0000000111112222333344444444444 of service default/web",
            "LoadBalancer kubernetes-internal: frontends, rules and probes a0000000311112222333344444444444 of a Service with the \
             UID 0000000311112222333344444444444…",
            "PublicIPAddress kubernetes-a0000000111112222333344444444444 of service default/web",
            "SecurityGroup nsg of Services that are gone",
        ]
    );
    assert!(found.iter().all(|orphan| orphan.kept.is_none()), "{found:?}");
    let inspect = scene.provider.inspect().unwrap();
    let in_use = inspect.delete_orphan(CLUSTER, &found[2]).await.unwrap_err();
    assert!(in_use.to_string().contains("uses it"), "{in_use}");
    for orphan in &found {
        inspect.delete_orphan(CLUSTER, orphan).await.unwrap();
    }
    assert_eq!(orphans(&scene, &claims).await, []);
    assert_eq!(scene.objects("loadBalancers").len(), 1);
    assert_eq!(scene.objects("publicIPAddresses").len(), 1);
    let balancer = scene.object("loadBalancers", "kubernetes");
    assert_eq!(items(&balancer, "loadBalancingRules").len(), 1, "the rule of the Service that stays");
    let rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
    assert!(rules.len() == 1 && !rules[0].to_string().contains("20.1.2.3"), "{rules:?}");
    inspect.delete_orphan(CLUSTER, &found[0]).await.unwrap();
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_gone_services_are_found_and_those_of_users_are_not() {
    let mut scene = Scene::new(several::SEVERAL, 2).await;
    let first = ("azure-load-balancer-configurations", CLUSTER);
    for (number, name, kind) in [(80, "stays", "false"), (81, "web", "false"), (82, "inner", "true")] {
        let spec =
            json!({"ports": port(number), "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000 + number});
        scene.spec(name, &[first, (INTERNAL.0, kind)], spec);
    }
    scene.ensure(&["stays", "web", "inner"]).await;
    assert_eq!(orphans(&scene, &claims(&scene, &["stays", "web", "inner"])).await, []);
    let pool = |name: &str| format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes/backendAddressPools/{name}");
    scene.bed.cloud.by_hand("PUT", &pool("users-own"), &json!({"properties": {}})).unwrap();
    let claims = claims(&scene, &["stays"]);
    let found = orphans(&scene, &claims).await;
    let shown: Vec<(&str, &str)> = found.iter().map(|orphan| (&*orphan.kind, &*orphan.name)).collect();
    let of_pools: Vec<&str> = shown.iter().filter(|(kind, _)| *kind == "BackendPool").map(|(_, name)| *name).collect();
    assert_eq!(of_pools, ["kubernetes: pool default-web", "kubernetes-internal: pool default-inner"], "{shown:?}");
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert!(found.iter().all(|orphan| orphan.kept.is_none()), "{found:?}");
    let inspect = scene.provider.inspect().unwrap();
    for orphan in &found {
        inspect.delete_orphan(CLUSTER, orphan).await.unwrap();
    }
    assert_eq!(orphans(&scene, &claims).await, []);
    assert_eq!(scene.objects("loadBalancers").len(), 1);
    let left = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
    let mut left: Vec<&str> = left.iter().map(|pool| pool["name"].as_str().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, ["default-stays", "users-own"]);
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_of_another_cluster_is_kept() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let claims = Claims { nodes: vec![], ..claims(&scene, &[]) };
    let found = orphans(&scene, &claims).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].kept.as_ref().unwrap().contains("another cluster"), "{found:?}");
    assert!(found[1].kept.as_ref().unwrap().contains("uses it"), "{found:?}");
    let inspect = scene.provider.inspect().unwrap();
    for orphan in &found {
        assert!(inspect.delete_orphan(CLUSTER, orphan).await.is_err());
    }
    // The tag of another cluster.
    let id = format!("{GROUP}/Microsoft.Network/publicIPAddresses/kubernetes-a0000000111112222333344444444444");
    scene.bed.cloud.world(|world| world.alter(&id, json!({"tags": {"k8s-azure-cluster-name": "other"}})));
    let found = orphans(&scene, &claims).await;
    assert_eq!(found.iter().map(|orphan| &*orphan.kind).collect::<Vec<_>>(), ["LoadBalancer"]);
}

/// Tags that plans read stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_users_are_not_in_snapshots_and_the_plans_stay_the_same() {
    const TEXT: &str = "call Bob Builder +49 30 4711";
    let mut scene = Scene::new("tags: team=web\n", 1).await;
    scene.service("web", &[INTERNAL, ("azure-pls-create", "true")], port(80));
    scene.service("out", &[], port(81));
    scene.ensure(&["web", "out"]).await;
    let machine = scene.bed.machine("vm");
    for kind in
        ["loadBalancers", "networkSecurityGroups", "privateLinkServices", "publicIPAddresses", "networkInterfaces"]
    {
        let objects = scene.objects(kind);
        assert!(!objects.is_empty(), "{kind}, {machine}");
        for mut object in objects {
            object["tags"]["note"] = json!(TEXT);
            if kind == "networkSecurityGroups" {
                object["properties"]["securityRules"][0]["properties"]["description"] = json!(TEXT);
            }
            let id = object["id"].as_str().unwrap().to_owned();
            scene.bed.cloud.world(|world| world.put(&id, object));
        }
    }
    scene.restart().await;
    for (name, number) in [("web", 80), ("out", 81)] {
        let mut all = port(number).as_array().unwrap().clone();
        all.push(json!({"name": "more", "port": 9090, "nodePort": 32_767, "protocol": "TCP"}));
        let ports = serde_json::from_value(json!(all)).unwrap();
        scene.services.get_mut(name).unwrap().spec.ports = ports;
        let work = scene.work(&[name], ServiceAction::Ensure).remove(0);
        let observed = scene.balancers().observe(CLUSTER, &work).await.unwrap();
        let plan = scene.balancers().plan(CLUSTER, &work).await.unwrap();
        assert!(!plan.steps.is_empty(), "{name}");
        assert_eq!(scene.balancers().plan_observed(CLUSTER, &work, &observed).unwrap(), plan, "{name}");
        let text = observed.to_string();
        assert!(!text.contains("Bob"), "{text}");
        let kept = if name == "web" { "k8s-azure-owner-service" } else { "k8s-azure-service" };
        assert!(text.contains(kept) && text.contains("\"team\""), "{text}");
    }
}
