//! Parts of load balancers that fail, hang or meet others fail alone.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Scope, ServiceAction, ServiceAnswer, ServiceWork};
use serde_json::json;

use super::scene::{LB, Scene, internal, local, ports, service, set, texts, web};
use crate::bed::CLUSTER;

fn shared(mut service: ccm_provider::Service) -> ccm_provider::Service {
    set(&mut service, "alpha.cloud.google.com/load-balancer-backend-share", "true");
    service
}

fn refused() -> Fault {
    Fault::Code { status: 400, code: "invalid".to_owned(), message: "no".to_owned() }
}

pub(super) async fn reconcile(
    scene: &Scene,
    services: &[ccm_provider::Service],
    action: ServiceAction,
) -> Vec<ServiceAnswer> {
    let work: Vec<ServiceWork> =
        services.iter().map(|service| ServiceWork::new(service, &scene.nodes, action)).collect();
    scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await
}

/// The first operation that hangs withholds neither the status nor the hosts of others.
#[tokio::test]
async fn an_operation_that_hangs_is_left_and_others_have_their_status() {
    let scene = Scene::with(&["n1"]).await;
    let hung = web();
    let name = hung.default_load_balancer_name();
    let hangs = format!("forwardingRules.insert {name}");
    scene.cloud().change(|options| options.operations = [(hangs, 3_600_000)].into());
    let services = [hung, service("other", json!({})), internal(service("inner", json!({})))];
    let began = std::time::Instant::now();
    let answers = reconcile(&scene, &services[..2], ServiceAction::Ensure).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let error = answers[0].result.as_ref().unwrap_err();
    assert!(error.is_in_progress() && error.to_string().contains("creating ForwardingRule"), "{error}");
    assert_eq!(answers[1].result.as_ref().unwrap().as_ref().unwrap().ingress.len(), 1);
    // It is looked at again, and nothing is sent twice.
    let mark = scene.cloud().mark();
    let answers = reconcile(&scene, &services[..2], ServiceAction::Ensure).await;
    assert!(answers[0].result.as_ref().unwrap_err().is_in_progress() && answers[1].result.is_ok());
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
    assert!(reconcile(&scene, &services[2..], ServiceAction::Ensure).await[0].result.is_ok());
}

/// A read may not show it before its operation has ended.
#[tokio::test]
async fn a_deletion_waits_for_a_rule_that_is_still_being_made() {
    let scene = Scene::with(&["n1"]).await;
    let services = [internal(web()), internal(service("other", json!({})))];
    scene.cloud().change(|options| options.operations = [(format!("forwardingRules.insert {LB}"), 4_000)].into());
    let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
    assert!(answers[0].result.as_ref().unwrap_err().is_in_progress(), "{answers:?}");
    let mut deleted = reconcile(&scene, &services[..1], ServiceAction::Delete).await.remove(0).result;
    while let Err(error) = deleted {
        assert!(error.is_in_progress(), "{error}");
        deleted = reconcile(&scene, &services[..1], ServiceAction::Delete).await.remove(0).result;
    }
    assert!(!scene.names().iter().any(|name| name.ends_with("LB")), "{:?}", scene.names());
    scene.is_correct();
}

#[tokio::test]
async fn what_fails_for_one_policy_does_not_fail_the_other() {
    let scene = Scene::with(&["n1"]).await;
    let other = service("other", json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}));
    scene.cloud().fault(Rule::every(refused()).on("compute", "httpHealthChecks.insert").window(0, 1));
    let answers = reconcile(&scene, &[web(), other], ServiceAction::Ensure).await;
    let results: Vec<bool> = answers.iter().map(|answer| answer.result.is_ok()).collect();
    assert_eq!(results.iter().filter(|is_ok| **is_ok).count(), 1, "{answers:?}");
}

/// The health check of the nodes is one's, and the other has its own.
#[tokio::test]
async fn what_cannot_be_read_for_one_policy_does_not_fail_the_other() {
    for (kind, call) in [((|service| service) as fn(_) -> _, "httpHealthChecks.*"), (internal, "healthChecks.*")] {
        let services = [
            kind(web()),
            kind(service("other", json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}))),
        ];
        let own = services[1].default_load_balancer_name();
        for (fails, check) in ["k8s-cid-node", &own].into_iter().enumerate() {
            // Before the writes, and after them.
            for look in 0..2 {
                let mut scene = Scene::with(&["n1"]).await;
                let read = |skip| Rule {
                    params: Some(check.to_owned()),
                    mutating: Some(false),
                    skip,
                    ..Rule::every(refused()).on("compute", call)
                };
                scene.cloud().fault(read(look));
                let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
                assert!(scene.cloud().faults(|faults| faults.rules().any(|(_, times)| times > 0)), "{call} {check}");
                let case = format!("{call} of {check} in look {look}: {answers:?}");
                assert_eq!(answers[fails].result.is_err(), look == 0, "{case}");
                assert_eq!(answers[1 - fails].result.as_ref().unwrap().as_ref().unwrap().ingress.len(), 1, "{case}");
                scene.cloud().faults(Faults::clear);
                let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
                assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
                // The same for what exists.
                scene.restart().await;
                let node = scene.bed.node("n2");
                scene.nodes.push(node);
                scene.cloud().fault(read(0));
                let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
                assert!(
                    answers[fails].result.is_err() && answers[1 - fails].result.is_ok(),
                    "{call} {check}: {answers:?}"
                );
                assert!(answers[fails].status.is_some());
                assert_eq!(scene.members(), 2, "{call} {check}");
                scene.is_correct();
            }
        }
    }
}

/// A refused setting, firewall rule or health check leaves the hosts to the nodes, and the status to the Service.
#[tokio::test]
async fn hosts_follow_the_nodes_whatever_is_refused() {
    for (kind, calls) in [
        ((|service| service) as fn(_) -> _, ["firewalls.patch", "forwardingRules.delete", "addresses.insert"]),
        (internal, ["firewalls.patch", "forwardingRules.delete", "regionBackendServices.insert"]),
    ] {
        for call in calls {
            let mut scene = Scene::with(&["n1"]).await;
            let mut asked = kind(web());
            let ip = scene.ensure(&mut asked).await;
            scene.cloud().fault(Rule::every(refused()).on("compute", call));
            let node = scene.bed.node("n2");
            scene.nodes.push(node);
            asked.spec.ports = ports("TCP", &[81]);
            asked.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
            let answer = reconcile(&scene, std::slice::from_ref(&asked), ServiceAction::Ensure).await.remove(0);
            assert_eq!(scene.members(), 2, "{call}");
            if answer.result.is_err() {
                let shown = answer.status.unwrap_or_else(|| panic!("{call}: no status"));
                assert_eq!(shown.ingress[0].ip, ip, "{call}");
            }
            scene.cloud().faults(Faults::clear);
        }
    }
}

/// Of the former kind, only the forwarding rule and its address have names that the new one needs.
#[tokio::test]
async fn the_load_balancer_of_another_kind_does_not_wait_for_what_is_left_of_the_former_one() {
    let denied = Fault::Code { status: 403, code: "forbidden".to_owned(), message: "no".to_owned() };
    let used = "resourceInUseByAnotherResource".to_owned();
    let used = Fault::Code { status: 400, code: used, message: "already being used by theirs".to_owned() };
    for (before, after, call, fault) in [
        (local(), internal(local()), "targetPools.delete", used),
        (local(), internal(local()), "targetPools.delete", denied.clone()),
        (local(), internal(local()), "httpHealthChecks.delete", denied.clone()),
        (local(), internal(local()), "firewalls.delete", denied.clone()),
        (internal(local()), local(), "regionBackendServices.delete", denied.clone()),
        (internal(web()), web(), "instanceGroups.delete", denied),
    ] {
        let mut scene = Scene::with(&["n1"]).await;
        let (mut before, mut after) = (before, after);
        scene.ensure(&mut before).await;
        after.metadata.finalizers.clone_from(&before.metadata.finalizers);
        scene.cloud().fault(Rule::every(fault).on("compute", call));
        for _ in 0..2 {
            let answer = reconcile(&scene, std::slice::from_ref(&after), ServiceAction::Ensure).await.remove(0);
            assert!(answer.result.is_err(), "{call}");
            let rule = scene.object("forwardingRules", "LB");
            let is_internal = rule["loadBalancingScheme"] == "INTERNAL";
            assert_eq!(is_internal, !after.metadata.annotations.is_empty(), "{call}");
            assert_eq!(json!(answer.status.unwrap().ingress[0].ip), rule["IPAddress"], "{call}");
            assert_eq!(scene.object("firewalls", "k8s-fw-LB")["destinationRanges"], json!([rule["IPAddress"]]));
        }
        scene.cloud().faults(Faults::clear);
        scene.ensure(&mut after).await;
        scene.is_steady(&mut after).await;
        scene.delete(&mut after).await;
        assert_eq!(scene.names(), [] as [&str; 0], "{call}");
        scene.is_correct();
    }
}

/// The former check, firewall rule and backend service go before the new rule exists, but it does not wait for them.
#[tokio::test]
async fn a_rule_is_made_again_although_what_it_used_cannot_be_deleted() {
    for (before, after, call) in [
        (local(), web(), "httpHealthChecks.delete"),
        (local(), web(), "firewalls.delete"),
        (internal(web()), shared(internal(web())), "regionBackendServices.delete"),
        (shared(internal(web())), internal(web()), "regionBackendServices.delete"),
    ] {
        let scene = Scene::with(&["n1"]).await;
        let (mut before, mut after) = (before, after);
        let ip = scene.ensure(&mut before).await;
        let passing = Fault::Operation { status: 503, code: "INTERNAL_ERROR".to_owned(), message: "no".to_owned() };
        scene.cloud().fault(Rule::every(passing).on("compute", call));
        let error = scene.try_ensure(&mut after).await.unwrap_err().to_string();
        assert!(error.contains(call.split_once('.').unwrap().0), "{error}");
        assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip, "{call}");
        scene.cloud().faults(Faults::clear);
        scene.ensure(&mut after).await;
        scene.delete(&mut after).await;
        assert_eq!(scene.names(), [] as [&str; 0], "{call}");
    }
}

/// The firewall rule admits what the forwarding rule serves, whatever prevents the next one.
#[tokio::test]
async fn what_serves_stays_admitted_while_its_rule_cannot_be_replaced() {
    let quota = Fault::Code { status: 403, code: "quotaExceeded".to_owned(), message: "no".to_owned() };
    for kind in [(|service| service) as fn(_) -> _, internal] {
        for prevented in ["addresses.insert fails", "forwardingRules.insert fails", "addresses.insert hangs"] {
            let mut scene = Scene::with(&["n1"]).await;
            let mut asked = kind(web());
            scene.ensure(&mut asked).await;
            let before = scene.object("firewalls", "k8s-fw-LB");
            match prevented.split_once(' ').unwrap() {
                (call, "hangs") => scene.cloud().change(|options| {
                    options.operations = [(format!("{call} {LB}"), 3_600_000)].into();
                }),
                ("addresses.insert", _) => {
                    scene.cloud().fault(Rule::every(quota.clone()).on("compute", "addresses.insert"));
                }
                // The second creation is that of the old rule.
                (call, _) => {
                    let rule = Rule { params: Some(LB.to_owned()), ..Rule::every(refused()) };
                    scene.cloud().fault(rule.on("compute", call).window(0, 1));
                }
            }
            asked.spec.ports = ports("TCP", &[8080]);
            asked.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
            for _ in 0..2 {
                let services = [asked.clone(), kind(service("other", json!({})))];
                let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
                assert!(answers[0].result.is_err(), "{prevented}");
                let now = scene.object("firewalls", "k8s-fw-LB");
                for field in ["destinationRanges", "description"] {
                    assert_eq!(now[field], before[field], "{prevented}");
                }
                assert!(texts(&now["allowed"][0]["ports"]).contains(&"80".to_owned()), "{prevented}");
                // It does not depend on the forwarding rule.
                assert_eq!(now["sourceRanges"], json!(["10.0.0.0/8"]), "{prevented}");
            }
            scene.cloud().faults(Faults::clear);
            if prevented.ends_with("hangs") {
                continue;
            }
            scene.restart().await;
            scene.ensure(&mut asked).await;
            assert_eq!(scene.object("firewalls", "k8s-fw-LB")["allowed"][0]["ports"], json!(["8080"]), "{prevented}");
            scene.is_steady(&mut asked).await;
            scene.is_correct();
        }
    }
}

/// Clients and health checks are admitted to the address that still serves.
#[tokio::test]
async fn the_address_that_serves_stays_admitted_while_another_one_is_refused() {
    let mut scene = Scene::with(&["n1"]).await;
    let [ip, mine] = ["former", "mine"].map(|name| {
        scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &json!({"name": name})).unwrap();
        scene.object("addresses", name)["address"].as_str().unwrap().to_owned()
    });
    let mut asked = local();
    asked.spec.load_balancer_ip = ip.clone();
    scene.ensure(&mut asked).await;
    asked.spec.load_balancer_ip = mine.clone();
    scene.cloud().fault(Rule::every(refused()).on("compute", "forwardingRules.insert").window(0, 1));
    for _ in 0..2 {
        assert!(scene.refused(&mut asked).await.contains("no"));
        assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], json!(ip));
        for name in ["k8s-fw-LB", "k8s-LB-http-hc"] {
            assert!(texts(&scene.object("firewalls", name)["destinationRanges"]).contains(&ip), "{name}");
        }
    }
    scene.cloud().faults(Faults::clear);
    scene.restart().await;
    assert_eq!(scene.ensure(&mut asked).await, mine);
    for name in ["k8s-fw-LB", "k8s-LB-http-hc"] {
        assert_eq!(scene.object("firewalls", name)["destinationRanges"], json!([mine]), "{name}");
    }
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

/// Another controller makes a rule of the same name between the look and the write.
#[tokio::test]
async fn an_object_that_somebody_else_has_just_made_is_compared() {
    let scene = Scene::with(&["n1"]).await;
    let path = format!("projects/p/regions/us-central1/forwardingRules/{LB}");
    // It appears between the look and the write.
    let absent = Fault::Code {
        status: 404,
        code: "notFound".to_owned(),
        message: format!("The resource '{path}' was not found"),
    };
    let hides = || Rule::every(absent.clone()).on("compute", "forwardingRules.get").window(0, 1);
    let theirs = json!({"name": LB, "IPAddress": "198.51.100.1", "IPProtocol": "TCP", "loadBalancingScheme": "EXTERNAL",
        "backendService": "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1/backendServices/x"});
    scene.cloud().world(|world| world.put(&path, theirs));
    let before = scene.object("forwardingRules", "LB");
    for mut asked in [internal(web()), web()] {
        scene.cloud().fault(hides());
        let (calls, (answer, _)) = scene.calls(scene.ask(&mut asked, ServiceAction::Ensure)).await;
        assert!(calls.iter().any(|call| call == "forwardingRules.insert"), "{calls:?}");
        let is_external = asked.metadata.annotations.is_empty();
        assert_eq!(answer.as_ref().unwrap_err().is_implemented_elsewhere(), is_external, "{answer:?}");
        assert_eq!(scene.object("forwardingRules", "LB"), before);
    }
    scene.is_correct();
    // Without a rule of others, the conflict is one.
    scene.cloud().world(|world| world.remove(&path));
    let exists = Fault::Code {
        status: 409,
        code: "alreadyExists".to_owned(),
        message: format!("The resource '{path}' already exists"),
    };
    scene.cloud().fault(Rule::every(exists).on("compute", "forwardingRules.insert"));
    let mut asked = internal(web());
    let error = scene.refused(&mut asked).await;
    assert!(error.contains("already exists"), "{error}");
    scene.cloud().faults(Faults::clear);
    let ip = scene.ensure(&mut asked).await;
    // Another process of ours has made it.
    let mut scene = scene;
    scene.restart().await;
    scene.cloud().fault(hides());
    let (calls, now) = scene.calls(scene.ensure(&mut asked)).await;
    assert!(calls.iter().any(|call| call == "forwardingRules.insert"), "{calls:?}");
    assert_eq!(now, ip);
}

/// The deletion of the last user of shared objects, and the creation of the next by another service controller.
#[tokio::test]
async fn two_controllers_take_turns_with_what_services_share() {
    let scene = Scene::with(&["n1"]).await;
    let mut first = web();
    scene.ensure(&mut first).await;
    scene.cloud().change(|options| {
        options.operations =
            [("firewalls.delete k8s-cid-node-http-hc".to_owned(), 300), ("httpHealthChecks.delete*".to_owned(), 100)]
                .into();
    });
    let second = service("other", json!({"loadBalancerClass": "networking.gke.io/l4-regional-external-legacy"}));
    let deletion = async { reconcile(&scene, std::slice::from_ref(&first), ServiceAction::Delete).await };
    let creation = async { reconcile(&scene, std::slice::from_ref(&second), ServiceAction::Ensure).await };
    let (deleted, ensured) = futures::join!(deletion, creation);
    assert!(deleted[0].result.is_ok() && ensured[0].result.is_ok(), "{deleted:?} {ensured:?}");
    assert!(scene.find("firewalls", "k8s-cid-node-http-hc").is_some());
    assert!(scene.find("httpHealthChecks", "k8s-cid-node").is_some());
    let mut own = local();
    scene.ensure(&mut own).await;
    scene.is_correct();
}

/// Both kinds of health checks have the same name.
#[tokio::test]
async fn a_check_in_use_keeps_its_own_firewall_rule_and_not_that_of_the_other_kind() {
    let scene = Scene::with(&["n1"]).await;
    let (mut stays, mut goes, mut inner) = (service("stays", json!({})), web(), internal(service("inner", json!({}))));
    for service in [&mut stays, &mut goes, &mut inner] {
        scene.ensure(service).await;
    }
    scene.cloud().change(|options| {
        // The second is refused while the first goes on.
        let slow = [("healthChecks.delete k8s-cid-node".to_owned(), 4_000), ("targetPools.delete*".to_owned(), 1_500)];
        options.operations = slow.into();
    });
    futures::join!(scene.delete(&mut goes), scene.delete(&mut inner));
    let names = scene.names();
    assert!(!names.contains(&"firewalls k8s-cid-node-hc".to_owned()), "{names:?}");
    assert!(names.contains(&"firewalls k8s-cid-node-http-hc".to_owned()), "{names:?}");
    scene.is_correct();
}

#[tokio::test]
async fn a_check_in_use_keeps_its_firewall_rule_while_the_other_kind_is_deleted() {
    let scene = Scene::with(&["n1"]).await;
    let policy = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000});
    let (mut stays, mut inner) = (service("stays", json!({})), internal(service("inner", json!({}))));
    let mut gone = [web(), service("local", policy)];
    for service in [&mut stays, &mut inner].into_iter().chain(&mut gone) {
        scene.ensure(service).await;
    }
    let (own, other) = (gone[1].default_load_balancer_name(), inner.default_load_balancer_name());
    scene.cloud().change(|options| {
        let slow = [
            (format!("httpHealthChecks.delete {own}"), 4_000),
            (format!("regionBackendServices.delete {other}"), 1_500),
        ];
        options.operations = slow.into();
    });
    let both = async { reconcile(&scene, &gone, ServiceAction::Delete).await };
    let (answers, ()) = futures::join!(both, scene.delete(&mut inner));
    assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
    let names = scene.names();
    assert!(names.contains(&"firewalls k8s-cid-node-http-hc".to_owned()), "{names:?}");
    assert!(!names.contains(&"firewalls k8s-cid-node-hc".to_owned()), "{names:?}");
    scene.is_correct();
}

#[tokio::test]
async fn an_event_about_an_annotation_is_that_of_its_service_alone() {
    let scene = Scene::with(&["n1"]).await;
    let (mut outer, mut inner) = (web(), internal(service("inner", json!({}))));
    for service in [&mut outer, &mut inner] {
        set(service, "networking.gke.io/internal-load-balancer-allow-global-access", "true");
    }
    reconcile(&scene, &[outer, inner], ServiceAction::Ensure).await;
    let events = scene.events();
    let found: Vec<&String> = events.iter().filter(|event| event.contains("allow-global-access")).collect();
    assert!(found.len() == 1 && found[0].contains("has no effect on an external load balancer"), "{events:?}");
}
