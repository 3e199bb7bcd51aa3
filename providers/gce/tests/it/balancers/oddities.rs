//! Mistakes of other programs, each tested separately.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Node, NodeRef, ServiceAction};
use serde_json::json;

use super::scene::{Scene, internal, local, node_of, ports, service, set, web};
use crate::bed::ZONE;

#[tokio::test]
async fn a_subnetwork_in_another_spelling_keeps_the_rule_and_its_address() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    let ip = scene.ensure(&mut web).await;
    let made = scene.object("forwardingRules", "LB");
    let path = scene.bed.subnetwork.clone();
    assert!(path.starts_with("projects/") && made["subnetwork"].as_str().unwrap().starts_with("https://"));
    let full = format!("https://compute.googleapis.com/compute/beta/{path}");
    for spelling in [path.clone(), full, path.rsplit('/').next().unwrap().to_owned()] {
        // The last value of a key is used.
        scene.reconfigure(&format!("subnetwork-name = {spelling}")).await;
        let mark = scene.cloud().mark();
        assert_eq!(scene.ensure(&mut web).await, ip, "{spelling}");
        assert_eq!(scene.writes(mark), [] as [&str; 0], "{spelling}");
    }
    assert_eq!(scene.object("forwardingRules", "LB"), made);
}

#[tokio::test]
async fn a_deletion_that_finds_everything_gone_is_done_whatever_finalizers_say() {
    let mut scene = Scene::with(&["n1"]).await;
    for mut service in [web(), internal(web()), local(), internal(local())] {
        scene.ensure(&mut service).await;
        // Another process has deleted everything; this one has an older copy with the finalizer.
        let mut older = service.clone();
        scene.delete(&mut service).await;
        scene.restart().await;
        assert!(!older.metadata.finalizers.is_empty());
        let mark = scene.cloud().mark();
        scene.ask(&mut older, ServiceAction::Delete).await.0.unwrap();
        assert_eq!((scene.writes(mark), older.metadata.finalizers), (Vec::new(), Vec::new()));
        assert_eq!(scene.names(), [] as [&str; 0]);
    }
}

/// The subnetwork of the first nodes is only a guess.
#[tokio::test]
async fn a_rule_stays_in_its_subnetwork_whichever_nodes_are_first() {
    let mut scene = Scene::with(&["n1"]).await;
    scene.cluster.set_nodes(scene.nodes.clone());
    scene.without_subnetwork().await;
    let mut web = internal(web());
    let ip = scene.ensure(&mut web).await;
    let rule = scene.object("forwardingRules", "LB");
    // All nodes are replaced by those of another pool, and another process leads.
    let other = scene
        .cloud()
        .world(|world| world.subnetwork("projects/p/global/networks/default", "us-central1", "b", "10.9.0.0/20", &[]));
    scene.bed.subnetwork = other;
    // A group keeps its subnetwork.
    let zone = "us-central1-c";
    scene.bed.instance_in(zone, "n2", json!({}));
    scene.nodes = vec![node_of(zone, "n2")];
    scene.cluster.set_nodes(scene.nodes.clone());
    scene.restart().await;
    scene.ensure(&mut web).await;
    assert_eq!(scene.object("forwardingRules", "LB"), rule);
    // A rule that is replaced for another reason stays there, too.
    web.spec.ports = ports("TCP", &[81]);
    assert_eq!(scene.ensure(&mut web).await, ip);
    assert_eq!(scene.object("forwardingRules", "LB")["subnetwork"], rule["subnetwork"]);
    scene.is_steady(&mut web).await;
    // The guess is for new rules; what the user says is for all.
    assert!(scene.ensure(&mut internal(service("new", json!({})))).await.starts_with("10.9."));
    set(&mut web, "networking.gke.io/internal-load-balancer-subnet", "b");
    assert!(scene.ensure(&mut web).await.starts_with("10.9."));
    scene.is_steady(&mut web).await;
    scene.is_correct();
}

/// Nodes of two pools, each in its subnetwork: a group has instances of one.
#[tokio::test]
async fn a_group_keeps_the_subnetwork_of_its_members_whichever_nodes_are_first() {
    let mut scene = Scene::with(&[]).await;
    let network = "projects/p/global/networks/default";
    let other = scene.cloud().world(|world| world.subnetwork(network, "us-central1", "b", "10.9.0.0/20", &[]));
    let labeled = |scene: &Scene, name: &str| {
        let subnet = scene.bed.subnetwork.rsplit('/').next().unwrap();
        let node = json!({"name": name, "providerId": scene.bed.node(name).provider_id.as_deref(),
            "labels": {"cloud.google.com/gke-node-pool-subnet": subnet}});
        NodeRef::from(serde_json::from_value::<Node>(node).unwrap())
    };
    let [first, third] = ["n1", "n3"].map(|name| labeled(&scene, name));
    scene.bed.subnetwork = other;
    let second = labeled(&scene, "n2");
    let mut web = internal(web());
    for (is_first, nodes, members) in [
        (&first, vec![&first, &second], vec!["n1"]),
        (&second, vec![&first, &second], vec!["n1"]),
        (&second, vec![&first, &second, &third], vec!["n1", "n3"]),
    ] {
        scene.nodes = nodes.into_iter().cloned().collect();
        scene.cluster.set_nodes(vec![is_first.clone()]);
        scene.without_subnetwork().await;
        scene.ensure(&mut web).await;
        assert_eq!(scene.group(ZONE), members);
        scene.update(&mut web).await;
        scene.is_steady(&mut web).await;
        assert_eq!(scene.group(ZONE), members);
    }
    scene.is_correct();
}

/// A Service has one protocol. Two Services serve both on one address, which is reserved.
#[tokio::test]
async fn services_for_tcp_and_udp_share_a_reserved_external_address() {
    let mut scene = Scene::with(&["n1"]).await;
    scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &json!({"name": "mine"})).unwrap();
    let mine = scene.object("addresses", "mine")["address"].as_str().unwrap().to_owned();
    let dns = |name: &str, protocol: &str| {
        let mut service = service(name, json!({"loadBalancerIP": mine}));
        service.spec.ports = ports(protocol, &[53]);
        service
    };
    let (mut tcp, mut udp) = (dns("tcp", "TCP"), dns("udp", "UDP"));
    for service in [&mut tcp, &mut udp] {
        assert_eq!(scene.ensure(service).await, mine);
    }
    tcp.spec.ports = ports("TCP", &[5353]);
    assert_eq!(scene.ensure(&mut tcp).await, mine);
    for service in [&mut tcp, &mut udp] {
        scene.is_steady(service).await;
    }
    // The same port of the same protocol is refused, and nothing changes: also if the Service has another address.
    let mut third = dns("third", "UDP");
    let before = scene.names();
    assert!(scene.refused(&mut third).await.contains("is in use by"));
    assert_eq!(scene.names(), before);
    third.spec.load_balancer_ip = String::new();
    let served = scene.ensure(&mut third).await;
    third.spec.load_balancer_ip.clone_from(&mine);
    let before = scene.names();
    assert!(scene.refused(&mut third).await.contains("is in use by"));
    assert_eq!(scene.names(), before);
    assert!(scene.cloud().objects("forwardingRules").iter().any(|rule| rule["IPAddress"] == served));
    scene.delete(&mut third).await;
    scene.is_steady(&mut udp).await;
    scene.is_correct();
}

/// At equal priority, a rule that denies wins over one that admits: the Services would have to change together.
#[tokio::test]
async fn nothing_is_denied_at_an_address_that_services_share() {
    let mut scene = Scene::with(&["n1"]).await;
    scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &json!({"name": "mine"})).unwrap();
    let mine = scene.object("addresses", "mine")["address"].as_str().unwrap().to_owned();
    let of = |name: &str, protocol: &str| {
        let mut service = service(name, json!({"loadBalancerIP": mine}));
        service.spec.ports = ports(protocol, &[53]);
        service
    };
    let (mut tcp, mut udp) = (of("tcp", "TCP"), of("udp", "UDP"));
    scene.ensure(&mut tcp).await;
    scene.ensure(&mut udp).await;
    scene.restart_with(&["enable-l4-deny-firewall", "enable-l4-deny-firewall-rollback-cleanup"]).await;
    let denies = |scene: &Scene| scene.names().iter().filter(|name| name.ends_with("-deny")).count();
    scene.events();
    for service in [&mut udp, &mut tcp] {
        scene.ensure(service).await;
        assert_eq!(denies(&scene), 0);
        assert!(scene.events().join("\n").contains("shared with"));
        scene.is_steady(service).await;
    }
    // Its rule is away for a moment: it has used the address before.
    let fault = Fault::Code { status: 503, code: "backendError".to_owned(), message: "no".to_owned() };
    for (port, is_new_process) in [(5353, false), (53, true)] {
        tcp.spec.ports = ports("TCP", &[port]);
        scene.cloud().fault(Rule::every(fault.clone()).on("compute", "forwardingRules.insert"));
        scene.refused(&mut tcp).await;
        scene.cloud().faults(Faults::clear);
        if is_new_process {
            scene.restart().await;
        }
        assert_eq!(scene.ensure(&mut tcp).await, mine);
        assert_eq!(denies(&scene), 0);
    }
    // It would be cut by the rule of the first.
    scene.delete(&mut tcp).await;
    scene.ensure(&mut udp).await;
    assert_eq!(denies(&scene), 1);
    let error = scene.refused(&mut tcp).await;
    assert!(error.contains("is in use by") && error.contains("enable-l4-deny-firewall"), "{error}");
    scene.is_correct();
}

/// All internal Services without their own check use it.
#[tokio::test]
async fn a_shared_health_check_of_another_type_is_made_one_for_http_again() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    let name = "k8s-cid-node";
    let made = scene.object("healthChecks", name);
    for (kind, part) in [
        ("TCP", "tcpHealthCheck"),
        ("SSL", "sslHealthCheck"),
        ("HTTPS", "httpsHealthCheck"),
        ("HTTP2", "http2HealthCheck"),
        ("GRPC", "grpcHealthCheck"),
        ("GRPC_WITH_TLS", "grpcTlsHealthCheck"),
    ] {
        let changed = json!({"type": kind, part: {"port": 80}, "httpHealthCheck": null});
        scene.cloud().by_hand("PATCH", &format!("projects/p/global/healthChecks/{name}"), &changed).unwrap();
        scene.ensure(&mut web).await;
        assert_eq!(scene.object("healthChecks", name), made, "{kind}");
        scene.is_steady(&mut web).await;
    }
    scene.is_correct();
}

#[tokio::test]
async fn a_refused_rule_with_a_requested_address_leaves_the_former_rule_and_its_address() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = service("web", json!({}));
    let served = scene.ensure(&mut asked).await;
    scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &json!({"name": "mine"})).unwrap();
    let mine = scene.object("addresses", "mine")["address"].as_str().unwrap().to_owned();
    asked.spec.load_balancer_ip.clone_from(&mine);
    let fault = Fault::Code { status: 400, code: "invalid".to_owned(), message: "no".to_owned() };
    scene.cloud().fault(Rule::every(fault).on("compute", "forwardingRules.insert").window(0, 1));
    scene.refused(&mut asked).await;
    assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], served);
    // A process does not repeat a refused replacement soon.
    scene.restart().await;
    assert_eq!(scene.ensure(&mut asked).await, mine);
    assert_eq!(scene.names().iter().filter(|name| name.starts_with("addresses")).count(), 1);
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

/// Otherwise one such node lets a balancer lose all backends because the other Node objects are gone.
#[tokio::test]
async fn a_node_of_another_cloud_is_no_host_and_one_without_a_zone_takes_no_backend_away() {
    let mut scene = Scene::with(&["n1"]).await;
    let node = |name: &str, id: Option<&str>| {
        NodeRef::new(Node { name: name.into(), provider_id: id.map(Into::into), ..Node::default() })
    };
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    let balancers = scene.balancers();
    assert_eq!(balancers.backend(&web, &node("onprem-1", Some("onprem://rack/1"))), None);
    for id in [Some("gce://p/us-central1-b/n1"), Some("gce://p"), None] {
        assert!(balancers.backend(&web, &node("n1", id)).is_some(), "{id:?}");
    }
    for name in ["n1", "n2"] {
        scene.nodes = vec![node(name, None)];
        scene.update(&mut web).await;
        assert_eq!(scene.object("backendServices", "LB")["backends"].as_array().unwrap().len(), 1, "{name}");
    }
    scene.is_correct();
}
