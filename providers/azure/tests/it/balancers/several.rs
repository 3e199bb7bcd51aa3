//! Several load balancers, and Services of two families.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;
use crate::bed::pass;

pub(super) const SEVERAL: &str = "loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations:\n\
                       - name: kubernetes\n  primaryVMSet: none\n- name: second\n  primaryVMSet: other\n";

/// The addresses in a pool.
fn members(scene: &Scene, balancer: &str) -> Vec<String> {
    let pools = items(&scene.object("loadBalancers", balancer), "backendAddressPools");
    let pool = pools.iter().find(|pool| pool["name"] == CLUSTER).unwrap();
    let addresses = items(pool, "loadBalancerBackendAddresses");
    addresses.iter().map(|it| it["properties"]["ipAddress"].as_str().unwrap().to_owned()).collect()
}

/// All members of all external load balancers.
fn all(scene: &Scene) -> Vec<String> {
    let mut all = [members(scene, "kubernetes"), members(scene, "second")].concat();
    all.sort();
    all
}

fn addresses(scene: &Scene) -> Vec<String> {
    let internal = |node: &NodeRef| node.addresses[0].address.to_string();
    let mut all: Vec<String> = scene.nodes.iter().map(internal).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_behind_one_load_balancer_also_after_a_restart() {
    let mut scene = Scene::new(SEVERAL, 4).await;
    let names = ["web0", "web1"];
    for (number, name) in (0_u16..).zip(names) {
        scene.service(name, &[], port(80 + number));
    }
    scene.ensure(&names).await;
    assert_eq!(all(&scene), addresses(&scene));
    assert_eq!((members(&scene, "kubernetes").len(), members(&scene, "second").len()), (2, 2));
    assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new(), "no warning of load balancers that are made");
    let before = (members(&scene, "kubernetes"), members(&scene, "second"));
    scene.restart().await;
    let mark = scene.mark();
    scene.ensure(&names).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    // The Go program has left a node in both.
    let pool = format!("{GROUP}/Microsoft.Network/loadBalancers/second/backendAddressPools/{CLUSTER}");
    let mut body = items(&scene.object("loadBalancers", "second"), "backendAddressPools")[0].clone();
    let network = json!({"id": format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet")});
    body["properties"]["loadBalancerBackendAddresses"].as_array_mut().unwrap().push(json!({
        "name": "twice", "properties": {"ipAddress": before.0[0], "virtualNetwork": network},
    }));
    scene.bed.cloud.by_hand("PUT", &pool, &body).unwrap();
    assert_eq!(all(&scene).len(), 5);
    scene.restart().await;
    scene.ensure(&names).await;
    assert_eq!((members(&scene, "kubernetes"), members(&scene, "second")), before);
    scene.delete(&names).await;
    assert!(scene.objects("loadBalancers").is_empty());
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_to_which_no_node_belongs_gets_all_with_a_warning() {
    let mut scene = Scene::new(&SEVERAL.replace("none", "pool"), 2).await;
    let names = ["web0", "web1"];
    for (number, name) in (0_u16..).zip(names) {
        scene.service(name, &[], port(80 + number));
    }
    scene.ensure(&names).await;
    assert_eq!((members(&scene, "kubernetes"), members(&scene, "second")), (addresses(&scene), addresses(&scene)));
    let events = scene.bed.cluster.take_events();
    let begin = "FailedToFindLoadBalancerForNode: no node belongs to the load balancer second";
    assert!(events.len() == 1 && events[0].starts_with(begin), "{events:?}");
    let facts = scene.provider.inspect().unwrap().explain_node(CLUSTER, &scene.nodes[0]).await.unwrap();
    let text = |about: &str| facts.iter().find(|fact| fact.about == about).unwrap().text.to_string();
    assert_eq!(text("load balancer kubernetes"), "the node is a member: pool is its primaryVMSet");
    assert!(text("load balancer second").contains("none belongs to this load balancer"), "{facts:?}");
    let mark = scene.mark();
    scene.ensure(&names).await;
    assert_eq!((scene.writes(mark), scene.bed.cluster.take_events()), (BTreeMap::new(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_node_of_a_load_balancer_serves_beside_the_others_until_it_may_have_been_probed() {
    let mut scene = Scene::new(&SEVERAL.replace("none", "pool"), 2).await;
    scene.service("web0", &[on(CLUSTER)], port(80));
    scene.service("web1", &[on("second")], port(81));
    let names = ["web0", "web1"];
    scene.ensure(&names).await;
    let others = addresses(&scene);
    assert_eq!(members(&scene, "second"), others, "no node is its own");
    let set = scene.bed.uniform("other", 1);
    scene.nodes.push(node_of(&set, 9, false));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    let answers = scene.call(&names, ServiceAction::UpdateHosts).await;
    assert_eq!(members(&scene, "second"), [&others[..], &["10.240.0.13".to_owned()]].concat());
    let again: Vec<_> = answers.iter().filter_map(|answer| answer.again).collect();
    assert!(!again.is_empty() && again.iter().all(|delay| delay.as_secs() > 10), "{again:?}");
    scene.done(&names, ServiceAction::UpdateHosts).await;
    assert_eq!((members(&scene, CLUSTER), members(&scene, "second")), (others, vec!["10.240.0.13".to_owned()]));
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_its_new_load_balancer_before_it_leaves_the_old_one() {
    let selecting = format!("{SEVERAL}  nodeSelector:\n    matchLabels:\n      pool: b\n");
    let mut scene = Scene::new(&selecting, 4).await;
    let label = |scene: &mut Scene, place: usize| {
        let mut node = (*scene.nodes[place]).clone();
        node.labels = [("pool", "b")].into_iter().collect();
        scene.nodes[place] = node.into();
    };
    label(&mut scene, 2);
    label(&mut scene, 3);
    let names = ["web0", "web1"];
    for (number, name) in (0_u16..).zip(names) {
        scene.service(name, &[], port(80 + number));
    }
    scene.ensure(&names).await;
    let all_addresses = addresses(&scene);
    let members_of_both = |scene: &Scene| (members(scene, "kubernetes"), members(scene, "second"));
    assert_eq!(members_of_both(&scene), (all_addresses[..2].to_vec(), all_addresses[2..].to_vec()));
    label(&mut scene, 1);
    let moves = &all_addresses[1];
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let (old, new) = members_of_both(&scene);
    assert!(old.contains(moves) && new.contains(moves), "{old:?} {new:?}");
    assert!(answers.iter().any(|answer| answer.again.is_some()), "the rest is due soon");
    scene.ensure(&names).await;
    assert_eq!(all(&scene), all_addresses, "exactly one again");
    assert_eq!(members(&scene, "second").len(), 3);
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_with_local_traffic_have_pools_of_their_own() {
    let mut scene = Scene::new(SEVERAL, 4).await;
    let balancers = scene.balancers();
    assert!(balancers.related().endpoint_slices);
    let first = [("azure-load-balancer-configurations", CLUSTER)];
    scene.service("all", &first, port(80));
    let names = ["web0", "web1", "web2"];
    for (number, name) in (81_u16..).zip(names) {
        let spec =
            json!({"ports": port(number), "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000 + number});
        scene.spec(name, &first, spec);
        assert!(balancers.only_nodes_with_endpoints(&scene.services[name]));
    }
    assert!(!balancers.only_nodes_with_endpoints(&scene.services["all"]));
    // The nodes with endpoints: what the service controller gives.
    let work = |scene: &Scene, action: ServiceAction, at: usize| {
        let of = |(number, name): (usize, &&str)| {
            let nodes = &scene.nodes[(number + at) % 4..][..1];
            ServiceWork::new(&scene.services[*name], nodes, action)
        };
        let mut work: Vec<ServiceWork> = names.iter().enumerate().map(of).collect();
        if action == ServiceAction::Ensure {
            work.push(ServiceWork::new(&scene.services["all"], &scene.nodes, action));
        }
        work
    };
    let run = async |scene: &mut Scene, action: ServiceAction, at: usize| {
        let work = work(scene, action, at);
        for answer in scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await {
            answer.result.unwrap();
        }
    };
    run(&mut scene, ServiceAction::Ensure, 0).await;
    let pool = |scene: &Scene, name: &str| -> Vec<Value> {
        let pools = items(&scene.object("loadBalancers", CLUSTER), "backendAddressPools");
        let pool = pools.iter().find(|pool| pool["name"] == name);
        pool.map(|pool| items(pool, "loadBalancerBackendAddresses")).unwrap_or_default()
    };
    assert_eq!(members(&scene, CLUSTER), addresses(&scene));
    for (number, name) in names.iter().enumerate() {
        let pool = pool(&scene, &format!("default-{name}"));
        assert_eq!(pool.len(), 1);
        assert_eq!(pool[0]["properties"]["ipAddress"], addresses(&scene)[number], "{name}");
    }
    scene.restart().await;
    let mark = scene.mark();
    run(&mut scene, ServiceAction::Ensure, 0).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new(), "new pools are no news");
    scene.bed.cluster.set_services(scene.services.values().cloned());
    let mark = scene.mark();
    run(&mut scene, ServiceAction::UpdateHosts, 1).await;
    assert_eq!(scene.writes(mark), BTreeMap::from([("backendAddressPools.put".to_owned(), 3)]));
    let updated = "LoadBalancerBackendPoolUpdated: Load balancer backend pool updated successfully";
    assert_eq!(scene.bed.cluster.take_events(), [updated; 3]);
    assert_eq!(pool(&scene, "default-web0")[0]["properties"]["ipAddress"], addresses(&scene)[1]);
    // Back to all nodes.
    scene.service("web0", &first, port(81));
    scene.ensure(&["all", "web0"]).await;
    let pools = items(&scene.object("loadBalancers", CLUSTER), "backendAddressPools");
    let mut pools: Vec<&str> = pools.iter().map(|pool| pool["name"].as_str().unwrap()).collect();
    pools.sort_unstable();
    assert_eq!(pools, ["default-web1", "default-web2", CLUSTER]);
    scene.delete(&["web1"]).await;
    assert_eq!(items(&scene.object("loadBalancers", CLUSTER), "backendAddressPools").len(), 2);
    scene.delete(&["all", "web0", "web2"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_a_service_that_cannot_be_written_is_an_event() {
    let mut scene = Scene::new(SEVERAL, 2).await;
    let local = json!({"ports": port(80), "externalTrafficPolicy": "Local", "healthCheckNodePort": 32080});
    scene.spec("web", &[], local);
    scene.ensure(&["web"]).await;
    scene.bed.cluster.set_services(scene.services.values().cloned());
    let (code, message) = ("InternalServerError", "an outage of Azure");
    for fault in [
        Fault::Code { status: 400, code: code.into(), message: message.into() },
        Fault::Operation { status: 500, code: code.into(), message: message.into() },
    ] {
        scene.nodes.rotate_left(1);
        scene.nodes.truncate(2);
        let kept = scene.nodes.split_off(1);
        scene.bed.cloud.fault(Rule::every(fault.clone()).on("network", "backendAddressPools.put"));
        assert!(scene.settle(&["web"], ServiceAction::UpdateHosts).await.is_err(), "{fault:?}");
        let events = scene.bed.cluster.take_events();
        let is_it =
            |event: &String| event.starts_with("LoadBalancerBackendPoolUpdateFailed: ") && event.contains(message);
        assert!(!events.is_empty() && events.iter().all(is_it), "{fault:?}: {events:?}");
        scene.bed.cloud.faults(Faults::clear);
        scene.nodes.extend(kept);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_two_families_has_an_address_a_pool_and_rules_of_each() {
    for (more, internal) in [("", false), (BY_ADDRESS, false), ("", true), (BY_ADDRESS, true)] {
        let mut scene = Scene::dual(more, 2).await;
        let annotations: &[(&str, &str)] = if internal { &[("azure-load-balancer-internal", "true")] } else { &[] };
        let ranges = ["0.0.0.0/0", "::/0"];
        let spec = json!({"ports": port(80), "ipFamilies": ["IPv4", "IPv6"], "loadBalancerSourceRanges": ranges});
        scene.spec("web", annotations, spec);
        scene.ensure(&["web"]).await;
        let ingress = &scene.services["web"].status.load_balancer.ingress;
        let families: Vec<bool> = ingress.iter().map(|it| it.ip.contains(':')).collect();
        assert_eq!(families, [false, true], "{ingress:?}");
        let balancer = scene.object("loadBalancers", if internal { "kubernetes-internal" } else { "kubernetes" });
        for pool in items(&balancer, "backendAddressPools") {
            assert_eq!(items(&pool, "loadBalancerBackendAddresses").len(), 2, "{pool:#}");
        }
        for list in ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules"] {
            assert_eq!(items(&balancer, list).len(), 2, "{list}");
        }
        let rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
        assert_eq!(rules.len(), 2, "{rules:#?}");
        let mark = scene.mark();
        scene.restart().await;
        scene.ensure(&["web"]).await;
        assert_eq!(scene.writes(mark), BTreeMap::new());
        // Back to one family.
        scene.service("web", annotations, port(80));
        scene.ensure(&["web"]).await;
        assert_eq!(scene.services["web"].status.load_balancer.ingress.len(), 1);
        scene.delete(&["web"]).await;
        assert_eq!(scene.objects("loadBalancers").len() + scene.objects("publicIPAddresses").len(), 0);
        assert!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").is_empty());
        assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
        scene.bed.is_clean();
    }
}

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

pub(super) fn on(name: &'static str) -> (&'static str, &'static str) {
    ("azure-load-balancer-configurations", name)
}

/// The frontends of a load balancer that are those of a Service.
pub(super) fn frontends(scene: &Scene, balancer: &str, service: &str) -> usize {
    let base = scene.services[service].default_load_balancer_name();
    let all = items(&scene.object("loadBalancers", balancer), "frontendIPConfigurations");
    all.iter().filter(|it| it["name"].as_str().unwrap().starts_with(&base)).count()
}

/// `web` moves from the first load balancer to the second. The first has `api` too, which changes in the same call, and
/// the second `db`, which goes the other way.
async fn moves(kind: &[(&'static str, &'static str)], others: &[&'static str]) {
    let with = |more: &[(&'static str, &'static str)]| [kind, more].concat();
    let mut scene = Scene::new(SEVERAL, 2).await;
    let names = [&["web"], others].concat();
    scene.service("web", &with(&[on(CLUSTER)]), port(80));
    let internal: &[(&str, &str)] = if kind.contains(&INTERNAL) { &[INTERNAL] } else { &[] };
    let plain = |name| [internal, &[on(name)]].concat();
    for other in others {
        let (number, place) = if *other == "api" { (81, CLUSTER) } else { (82, "second") };
        scene.service(other, &plain(place), port(number));
    }
    scene.ensure(&names).await;
    let before: Vec<String> = names.iter().map(|name| scene.ip(name)).collect();
    scene.service("web", &with(&[on("second")]), port(80));
    for other in others {
        let (number, place) = if *other == "api" { (83, CLUSTER) } else { (82, CLUSTER) };
        scene.service(other, &plain(place), port(number));
    }
    scene.ensure(&names).await;
    let after: Vec<String> = names.iter().map(|name| scene.ip(name)).collect();
    assert_eq!(after, before, "{kind:?} {others:?}");
    let end = if internal.is_empty() { "" } else { "-internal" };
    let (first, second) = (format!("{CLUSTER}{end}"), format!("second{end}"));
    assert_eq!((frontends(&scene, &first, "web"), frontends(&scene, &second, "web")), (0, 1), "{kind:?} {others:?}");
    for other in others {
        assert_eq!(frontends(&scene, &first, other), 1, "{kind:?} {other}");
    }
    let mark = scene.mark();
    scene.ensure(&names).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "{kind:?} {others:?}");
    scene.delete(&names).await;
    assert_eq!(scene.objects("loadBalancers").len() + scene.objects("publicIPAddresses").len(), 0);
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_moves_between_load_balancers_with_its_address() {
    let kinds: [&[(&str, &str)]; 3] = [&[], &[INTERNAL], &[INTERNAL, ("azure-load-balancer-ipv4", "10.240.0.100")]];
    for kind in kinds {
        for others in [&[][..], &["api"], &["db"], &["api", "db"]] {
            moves(kind, others).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_frontend_something_else_uses_does_not_move_and_the_error_names_it() {
    let mut scene = Scene::new(SEVERAL, 2).await;
    scene.service("web", &[on(CLUSTER)], port(80));
    scene.service("db", &[on("second")], port(82));
    scene.ensure(&["web", "db"]).await;
    let balancer = others::path("loadBalancers", CLUSTER);
    others::by_hand(&scene, &balancer, |object| {
        let frontend = object["properties"]["frontendIPConfigurations"][0]["id"].clone();
        let pools = object["properties"]["backendAddressPools"].as_array_mut().unwrap();
        pools.push(json!({"name": "theirs", "properties": {}}));
        object["properties"]["outboundRules"] = json!([{"name": "out", "properties": {"protocol": "All",
            "frontendIPConfigurations": [{"id": frontend}],
            "backendAddressPool": {"id": format!("{balancer}/backendAddressPools/theirs")}}}]);
    });
    let before = scene.object("loadBalancers", CLUSTER);
    scene.service("web", &[on("second")], port(80));
    let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
    let frontend = scene.services["web"].default_load_balancer_name();
    for word in [CLUSTER, "second", "the outbound rule out", &frontend] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(scene.object("loadBalancers", CLUSTER), before);
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_move_that_azure_refuses_for_a_moment_ends_at_a_retry_soon() {
    let mut scene = Scene::new(SEVERAL, 2).await;
    for (name, place, number) in [("web", CLUSTER, 80), ("api", CLUSTER, 81), ("db", "second", 82)] {
        scene.service(name, &[on(place)], port(number));
    }
    scene.ensure(&["web", "api", "db"]).await;
    let (ip, base) = (scene.ip("web"), scene.services["web"].default_load_balancer_name());
    let message = format!("Resource {base} is referencing a public IP address that is already allocated.");
    let in_use = || Fault::Code { status: 400, code: "PublicIPAddressInUse".to_owned(), message: message.clone() };
    let put = |fault| Rule::every(fault).on("network", "loadBalancers.put");
    // The first write takes the frontend from its load balancer.
    scene.bed.cloud.fault(put(in_use()).window(1, 1));
    scene.service("web", &[on("second")], port(80));
    let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
    assert!(error.contains("already allocated"), "{error}");
    assert_eq!((frontends(&scene, CLUSTER, "web"), frontends(&scene, "second", "web")), (0, 0));
    // Again, now that it is on none.
    scene.bed.cloud.fault(put(in_use()).window(0, 1));
    pass(6).await;
    scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err();
    pass(6).await;
    scene.ensure(&["web"]).await;
    assert_eq!((frontends(&scene, "second", "web"), scene.ip("web")), (1, ip));
    scene.bed.is_clean();
}
