//! Errors in the cloud or in a Service, and their messages for users.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::gce::Options;
use ccm_provider::{ErrorClass, Scope, ServiceAction, ServiceAnswer, ServiceWork};
use serde_json::json;

use super::scene::{LB, Scene, internal, node_of, ports, service, texts, web};
use crate::bed::CLUSTER;

fn code(status: u16, code: &str, message: &str) -> Fault {
    Fault::Code { status, code: code.to_owned(), message: message.to_owned() }
}

#[tokio::test]
async fn an_address_outlives_a_failure_between_two_rules() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = web();
    let ip = scene.ensure(&mut web).await;
    web.spec.ports = ports("TCP", &[8080]);
    scene.cloud().fault(Rule::every(code(400, "invalid", "no")).on("compute", "forwardingRules.insert"));
    assert!(scene.refused(&mut web).await.contains("no"));
    assert_eq!(scene.find("forwardingRules", LB), None);
    assert_eq!(scene.object("addresses", "LB")["address"], json!(ip));
    // A retry uses the same address, even in another process.
    scene.refused(&mut web).await;
    scene.restart().await;
    scene.refused(&mut web).await;
    scene.cloud().faults(Faults::clear);
    // A process remembers what was refused for good.
    scene.restart().await;
    assert_eq!(scene.ensure(&mut web).await, ip);
    assert_eq!(scene.find("addresses", LB), None);
    scene.is_steady(&mut web).await;
}

/// The rule for other ports is refused, and traffic for the old ones goes on.
#[tokio::test]
async fn a_rule_whose_successor_is_refused_is_created_again() {
    for mut service in [web(), internal(web())] {
        let mut scene = Scene::with(&["n1"]).await;
        let ip = scene.ensure(&mut service).await;
        let rule = scene.object("forwardingRules", "LB");
        let before = service.spec.ports.clone();
        service.spec.ports = ports("TCP", &[8080]);
        // The first creation is that of the new rule.
        scene
            .cloud()
            .fault(Rule::every(code(400, "invalid", "no")).on("compute", "forwardingRules.insert").window(0, 1));
        for _ in 0..3 {
            assert!(scene.refused(&mut service).await.contains("no"));
            let now = scene.object("forwardingRules", "LB");
            for field in ["IPAddress", "IPProtocol", "ports", "portRange", "target", "backendService", "networkTier"] {
                assert_eq!(now[field], rule[field], "{field}");
            }
        }
        service.spec.ports = before;
        assert_eq!(scene.ensure(&mut service).await, ip);
        scene.is_steady(&mut service).await;
    }
}

#[tokio::test]
async fn a_failed_creation_keeps_no_reservation() {
    let mut scene = Scene::with(&["n1"]).await;
    for call in ["targetPools.insert", "forwardingRules.insert", "firewalls.insert"] {
        let mut web = web();
        scene.cloud().fault(Rule::every(code(400, "invalid", "no")).on("compute", call));
        scene.refused(&mut web).await;
        assert!(!scene.names().iter().any(|name| name.starts_with("addresses")), "{call}");
        scene.cloud().faults(Faults::clear);
        scene.restart().await;
        scene.ensure(&mut web).await;
        scene.is_correct();
        scene.delete(&mut web).await;
    }
}

/// The reservation of the former address only helps if the new rule is refused.
#[tokio::test]
async fn a_service_moves_to_a_reserved_address_with_a_full_quota() {
    let mut scene = Scene::with(&["n1"]).await;
    scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &json!({"name": "mine"})).unwrap();
    let mine = scene.object("addresses", "mine")["address"].as_str().unwrap().to_owned();
    let mut web = web();
    assert_ne!(scene.ensure(&mut web).await, mine);
    scene.cloud().change(|options| options.quotas = [("STATIC_ADDRESSES".to_owned(), 1)].into());
    web.spec.load_balancer_ip.clone_from(&mine);
    assert_eq!(scene.ensure(&mut web).await, mine);
    scene.is_steady(&mut web).await;
}

/// There is no rule that another trial would interrupt.
#[tokio::test]
async fn a_refused_rule_is_sent_again_if_the_former_one_cannot_come_back() {
    let mut scene = Scene::with(&["n1"]).await;
    scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &json!({"name": "mine"})).unwrap();
    let mine = scene.object("addresses", "mine")["address"].as_str().unwrap().to_owned();
    let mut web = web();
    scene.ensure(&mut web).await;
    scene.cloud().change(|options| options.quotas = [("STATIC_ADDRESSES".to_owned(), 1)].into());
    web.spec.load_balancer_ip.clone_from(&mine);
    scene.cloud().fault(Rule::every(code(400, "invalid", "no")).on("compute", "forwardingRules.insert"));
    for _ in 0..3 {
        scene.refused(&mut web).await;
        assert_eq!(scene.find("forwardingRules", LB), None);
    }
    scene.cloud().faults(Faults::clear);
    assert_eq!(scene.ensure(&mut web).await, mine);
    scene.is_steady(&mut web).await;
}

/// The quota of a region for reserved addresses is 8 by default.
#[tokio::test]
async fn many_services_are_made_and_changed_within_the_quota_of_addresses() {
    let quotas = [("STATIC_ADDRESSES".to_owned(), 8)].into();
    let mut scene = Scene::of(Options { quotas, ..Options::default() }, &["n1"], "", &[]).await;
    let services: Vec<_> = (0..20).map(|number| service(&format!("s{number}"), json!({}))).collect();
    for port in [80, 81] {
        let mut work: Vec<ServiceWork> = services
            .iter()
            .map(|service| {
                let mut service = service.clone();
                service.spec.ports = ports("TCP", &[port]);
                ServiceWork::new(&service, &scene.nodes, ServiceAction::Ensure)
            })
            .collect();
        let (mut rounds, balancers) = (0, scene.balancers());
        while !work.is_empty() {
            let answers = balancers.reconcile(CLUSTER, &work, &Scope::default()).await;
            let mut answers = answers.into_iter();
            // Those that wait for the reservations of others have their status, and no failure.
            work.retain(|_| match answers.next().unwrap() {
                ServiceAnswer { result: Err(error), status, .. } if error.is_in_progress() => {
                    assert!(status.is_some() || port == 80);
                    true
                }
                answer => {
                    assert_eq!(answer.result.unwrap().unwrap().ingress.len(), 1);
                    false
                }
            });
            rounds += 1;
        }
        assert_eq!(rounds, if port == 80 { 1 } else { 5 });
        assert!(!scene.names().iter().any(|name| name.starts_with("addresses")));
        scene.restart().await;
    }
    scene.is_correct();
}

#[tokio::test]
async fn without_the_right_to_read_networks_internal_balancers_work() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    scene.cloud().change(|options| options.denied = [("*".to_owned(), vec!["compute.networks.get".to_owned()])].into());
    scene.without_subnetwork().await;
    let node = scene.bed.node("n2");
    scene.nodes.push(node);
    scene.update(&mut web).await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, [] as [&str; 0]);
    let error = scene.refused(&mut internal(service("new", json!({})))).await;
    assert!(error.contains("compute.networks.get") && error.contains("subnetwork-name"), "{error}");
}

/// The subnetwork selects hosts only where nodes name one.
#[tokio::test]
async fn hosts_follow_the_nodes_while_the_network_cannot_be_read() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    scene.cloud().fault(Rule::every(code(500, "backendError", "not now")).on("compute", "networks.get"));
    scene.without_subnetwork().await;
    let node = scene.bed.node("n2");
    scene.nodes.push(node);
    scene.update(&mut web).await;
    assert_eq!(scene.members(), 2);
    // What exists needs nothing of the network, a new rule does.
    assert_eq!(scene.writes_to_ensure(&mut web).await, [] as [&str; 0]);
    web.spec.ports = ports("TCP", &[81]);
    assert!(scene.refused(&mut web).await.contains("not now"));
}

/// The subnetwork is that of nodes, and the first of them is in a zone that is down.
#[tokio::test]
async fn a_node_that_cannot_be_read_does_not_hide_the_subnetwork_of_the_others() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    scene.bed.instance_in("us-central1-c", "a1", json!({}));
    let down = node_of("us-central1-c", "a1");
    scene.cluster.set_nodes(vec![down, scene.nodes[0].clone()]);
    let fault = Rule { params: Some("us-central1-c".to_owned()), ..Rule::every(code(503, "backendError", "down")) };
    scene.cloud().fault(fault.on("compute", "instances.get"));
    scene.without_subnetwork().await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, [] as [&str; 0]);
    let new = scene.ensure(&mut internal(service("new", json!({})))).await;
    assert!(new.starts_with("10."), "{new}");
    // Without any, only a new rule is impossible.
    scene.cluster.set_nodes(vec![node_of("us-central1-c", "a1")]);
    scene.restart().await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, [] as [&str; 0]);
    let error = scene.refused(&mut internal(service("newer", json!({})))).await;
    assert!(error.contains("subnetwork-name") && error.contains("down"), "{error}");
}

/// An instance of a managed group comes back with its name.
#[tokio::test]
async fn an_instance_that_comes_back_is_a_host_again() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    let path = "projects/p/zones/us-central1-b/instances/n2";
    scene.cloud().world(|world| world.delete_instance(path));
    let node = scene.bed.node("n3");
    scene.nodes.push(node);
    let work = ServiceWork::new(&web, &scene.nodes, ServiceAction::UpdateHosts);
    let answer = scene.balancers().reconcile(CLUSTER, &[work], &Scope::default()).await.remove(0);
    assert!(answer.again.is_some(), "{:?}", answer.result);
    scene.bed.instance_in(crate::bed::ZONE, "n2", json!({}));
    // It is looked for again after half a minute.
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    tokio::time::resume();
    scene.ask(&mut web, ServiceAction::UpdateHosts).await.0.unwrap();
    assert_eq!(scene.members(), 3);
    scene.is_correct();
}

#[tokio::test]
async fn nodes_without_an_instance_are_left_out() {
    let mut scene = Scene::with(&["n1"]).await;
    let ghost = |name: &str| node_of("us-central1-b", name);
    scene.nodes.push(ghost("gone"));
    for mut service in [web(), internal(service("inner", json!({})))] {
        scene.ensure(&mut service).await;
        assert_eq!(scene.writes_to_ensure(&mut service).await, [] as [&str; 0]);
    }
    assert_eq!(texts(&scene.object("targetPools", "LB")["instances"]).len(), 1);
    // Without any other instance, the pool stays unchanged.
    scene.nodes = vec![ghost("gone"), ghost("gone-2")];
    let mut web = web();
    let error = scene.ask(&mut web, ServiceAction::UpdateHosts).await.0.unwrap_err().to_string();
    assert!(error.contains("instance not found"), "{error}");
    assert_eq!(texts(&scene.object("targetPools", "LB")["instances"]).len(), 1);
}

#[tokio::test]
async fn a_changed_fingerprint_is_a_conflict_and_no_update_is_lost() {
    let scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    web.spec.session_affinity = "ClientIP".to_owned();
    let rule =
        Rule::every(code(412, "conditionNotMet", "Invalid fingerprint.")).on("compute", "regionBackendServices.patch");
    scene.cloud().fault(rule.window(0, 2));
    let error = scene.try_ensure(&mut web).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Conflict);
    scene.ensure(&mut web).await;
    // A single one is planned again in the same pass.
    web.spec.session_affinity = "None".to_owned();
    let refused = code(412, "conditionNotMet", "Invalid fingerprint.");
    scene.cloud().faults(Faults::clear);
    scene.cloud().fault(Rule::every(refused).on("compute", "regionBackendServices.patch").window(0, 1));
    scene.ensure(&mut web).await;
    web.spec.session_affinity = "ClientIP".to_owned();
    scene.ensure(&mut web).await;
    assert_eq!(scene.object("backendServices", "LB")["sessionAffinity"], "CLIENT_IP");
}

#[tokio::test]
async fn a_page_of_html_is_a_passing_failure() {
    let scene = Scene::with(&["n1"]).await;
    let mut web = web();
    scene.cloud().fault(Rule::every(Fault::Html { status: 502 }).on("compute", "forwardingRules.insert").window(0, 1));
    scene.ensure(&mut web).await;
    scene.delete(&mut web).await;
    scene.cloud().fault(Rule::every(Fault::Html { status: 502 }).on("compute", "forwardingRules.insert"));
    let error = scene.try_ensure(&mut web).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Transient { .. } | ErrorClass::Unknown), "{error:?}");
    assert!(!error.to_string().contains("expected value"), "{error}");
}

#[tokio::test]
async fn a_look_at_an_operation_that_fails_is_repeated() {
    let scene = Scene::with(&["n1"]).await;
    for scope in ["globalOperations.wait", "regionOperations.wait"] {
        scene.cloud().fault(Rule::every(code(503, "backendError", "busy")).on("compute", scope).window(0, 1));
    }
    scene.ensure(&mut web()).await;
}

/// A proxy that passes no POST without a body.
#[tokio::test]
async fn an_operation_whose_wait_a_proxy_refuses_is_read_at_once() {
    for fault in [Fault::Html { status: 411 }, Fault::Status { status: 411, body: "Length Required".to_owned() }] {
        let scene = Scene::with(&["n1"]).await;
        for scope in ["globalOperations.wait", "regionOperations.wait"] {
            scene.cloud().fault(Rule::every(fault.clone()).on("compute", scope));
        }
        let mark = scene.cloud().mark();
        scene.ensure(&mut web()).await;
        let calls = scene.bed.calls(mark);
        let count = |verb: &str| calls.iter().filter(|call| call.ends_with(&format!("Operations.{verb}"))).count();
        assert!(count("wait") > 0);
        assert_eq!(count("wait"), count("get"), "{calls:?}");
    }
}

#[tokio::test]
async fn an_operation_that_fails_at_its_end_is_the_error_of_its_service_only() {
    let scene = Scene::with(&["n1"]).await;
    let fault = Fault::Operation {
        status: 403,
        code: "QUOTA_EXCEEDED".to_owned(),
        message: "Quota 'FORWARDING_RULES' exceeded.".to_owned(),
    };
    let rule = Rule::every(fault).on("compute", "forwardingRules.insert").window(0, 1);
    scene.cloud().fault(rule);
    let services = [web(), service("other", json!({}))];
    let work: Vec<ServiceWork> =
        services.iter().map(|service| ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure)).collect();
    let answers = loop {
        let answers = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
        if !answers.iter().any(|answer| answer.result.as_ref().is_err_and(ccm_provider::ProviderError::is_in_progress))
        {
            break answers;
        }
    };
    let (failed, made): (Vec<_>, Vec<_>) = answers.into_iter().map(|answer| answer.result).partition(Result::is_err);
    assert_eq!((failed.len(), made.len()), (1, 1));
    let error = failed[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("Quota 'FORWARDING_RULES' exceeded"), "{error}");
    assert!(made[0].as_ref().unwrap().is_some());
}

#[tokio::test]
async fn mixed_protocols_are_a_condition_until_they_are_gone() {
    let scene = Scene::with(&["n1"]).await;
    let mut web = web();
    web.spec.ports = [ports("TCP", &[80]), ports("UDP", &[80])].concat();
    let (answer, notes) = scene.ask(&mut web, ServiceAction::Ensure).await;
    assert_eq!(
        answer.unwrap_err().to_string(),
        "mixed protocol is not supported for LoadBalancer: spec.ports has several; make a Service for each protocol"
    );
    let condition = &notes.conditions[0];
    assert_eq!((condition.kind, condition.status), ("LoadBalancerPortsError", true));
    assert_eq!(condition.message, "LoadBalancer with multiple protocols are not supported");
    let events = scene.events();
    assert!(
        events.iter().any(|event| event.contains("LoadBalancerMixedProtocolNotSupported")
            && event.contains("LoadBalancer with multiple protocols are not supported.")),
        "{events:?}"
    );
    scene.ask(&mut web, ServiceAction::Ensure).await.0.unwrap_err();
    assert_eq!(scene.events(), [] as [&str; 0]);
    let (_, notes) = scene.ask(&mut web, ServiceAction::UpdateHosts).await;
    assert_eq!((notes.conditions[0].kind, notes.conditions[0].status), ("LoadBalancerPortsError", true));
    web.status.conditions =
        serde_json::from_value(json!([{"type": "LoadBalancerPortsError", "status": "True"}])).unwrap();
    web.spec.ports = ports("TCP", &[80]);
    let (answer, notes) = scene.ask(&mut web, ServiceAction::Ensure).await;
    answer.unwrap();
    assert_eq!((notes.conditions[0].kind, notes.conditions[0].status), ("LoadBalancerPortsError", false));
}

#[tokio::test]
async fn what_is_not_served_is_an_event_once() {
    let scene = Scene::with(&["n1"]).await;
    let class =
        json!({"loadBalancerClass": "networking.gke.io/l4-regional-external-legacy", "ipFamilies": ["IPv4", "IPv6"]});
    let mut web = internal(service("web", class));
    scene.ensure(&mut web).await;
    let events = scene.events().join("\n");
    assert!(
        events.contains("ConflictingConfiguration") && events.contains("External LoadBalancer Service provisioned."),
        "{events}"
    );
    assert!(events.contains("spec.ipFamilies"), "{events}");
    scene.ensure(&mut web).await;
    assert_eq!(scene.events(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let denied = [("*".to_owned(), vec!["compute.firewalls.get".to_owned()])].into();
    let scene = Scene::of(Options { denied, ..Options::default() }, &["n1"], "", &[]).await;
    let error = scene.try_ensure(&mut web()).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains("compute.firewalls.get"), "{error}");
}

/// A call may need several, and the cloud names the missing one.
#[tokio::test]
async fn the_permission_that_the_cloud_names_is_the_one_to_grant() {
    for (mut service, lacks) in [
        (internal(web()), "compute.subnetworks.use"),
        (internal(web()), "compute.networks.updatePolicy"),
        (web(), "compute.httpHealthChecks.useReadOnly"),
    ] {
        let denied = [("*".to_owned(), vec![lacks.to_owned()])].into();
        let scene = Scene::of(Options { denied, ..Options::default() }, &["n1"], "", &[]).await;
        let error = scene.try_ensure(&mut service).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Denied { action: lacks.to_owned() });
        let next = format!("ccm lacks {lacks}: grant it to the service account of this program");
        assert!(error.to_string().starts_with(&next), "{error}");
    }
}

#[tokio::test]
async fn nothing_is_denied_before_all_is_admitted() {
    let flags = ["enable-l4-deny-firewall", "enable-l4-deny-firewall-rollback-cleanup"];
    let mut web = web();
    let mut scene = Scene::with(&["n1"]).await;
    scene.ensure(&mut web).await;
    scene.restart_with(&flags).await;
    scene.cloud().fault(Rule::every(code(400, "invalid", "no")).on("compute", "firewalls.patch"));
    scene.refused(&mut web).await;
    assert_eq!(scene.find("firewalls", &format!("k8s-fw-{LB}-deny")), None);
    scene.cloud().faults(Faults::clear);
    scene.restart_with(&flags).await;
    scene.ensure(&mut web).await;
    let deny = scene.object("firewalls", "k8s-fw-LB-deny");
    assert_eq!((&deny["priority"], &deny["denied"][0]["IPProtocol"]), (&json!(1000), &json!("all")));
    assert_eq!(scene.object("firewalls", "k8s-fw-LB")["priority"], 999);
    scene.is_steady(&mut web).await;
    scene.restart_with(&flags[1..]).await;
    let writes = scene.writes_to_ensure(&mut web).await;
    assert_eq!(writes, ["firewalls.delete", "firewalls.patch", "firewalls.patch"]);
    scene.is_steady(&mut web).await;
    scene.is_correct();
}

#[tokio::test]
async fn firewalls_follow_the_tags_of_instances_without_a_change_of_nodes() {
    let mut scene = Scene::with(&["k8s-node-1"]).await;
    scene.untagged().await;
    let mut web = web();
    let (calls, _) = scene.calls(scene.ensure(&mut web)).await;
    assert_eq!(calls.iter().filter(|call| *call == "instances.list").count(), 1, "{calls:?}");
    scene.is_steady(&mut web).await;
    scene.bed.retag("k8s-node-1", "k8s");
    // Another process reads the change, or this one a minute later.
    scene.restart().await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, ["firewalls.patch", "firewalls.patch"]);
    assert_eq!(scene.object("firewalls", "k8s-fw-LB")["targetTags"], json!(["k8s"]));
    scene.is_steady(&mut web).await;
}

/// A sync may use tags that were read for another one. The Service is then looked at again, once.
#[tokio::test]
async fn tags_that_were_read_before_are_looked_at_again() {
    let mut scene = Scene::with(&["k8s-node-1"]).await;
    scene.untagged().await;
    let again = async |scene: &Scene, service: &mut ccm_provider::Service| {
        let work = ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure);
        let answer = scene.balancers().reconcile(CLUSTER, &[work], &Scope::default()).await.remove(0);
        answer.result.unwrap();
        answer.again
    };
    let (mut web, mut other) = (web(), service("other", json!({})));
    scene.ensure(&mut web).await;
    scene.ensure(&mut other).await;
    scene.bed.retag("k8s-node-1", "k8s");
    assert!(again(&scene, &mut web).await.is_some());
    assert!(again(&scene, &mut other).await.is_some());
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    tokio::time::resume();
    // The second one uses what was read for the first one, after its own last sync.
    assert_eq!(again(&scene, &mut web).await, None);
    assert_eq!(again(&scene, &mut other).await, None);
    assert_eq!(scene.object("firewalls", "k8s-fw-LB")["targetTags"], json!(["k8s"]));
}
