//! Failures of the cloud, and restarts during the work.

use std::time::{Duration, Instant};

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{Service, ServiceAction};
use serde_json::json;

use crate::scene::{Process, Scene, annotation, id, service, set, simulated, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_restart_before_the_annotation_finds_the_balancer_by_name;
    simulated:
        two_balancers_of_one_name_are_an_error,
        a_creation_that_ends_in_error_is_deleted_and_tried_again,
        a_creation_without_an_answer_is_found_by_name,
        a_failed_look_at_versions_makes_no_listener_open_to_all,
        a_busy_server_is_asked_again_when_it_says,
        a_balancer_in_error_says_which_part_failed,
        what_the_driver_could_not_change_can_be_deleted_part_by_part,
        an_expired_token_is_renewed_once_for_all,
        no_error_shows_a_secret,
        what_octavia_does_not_have_is_named_with_its_key;
}

async fn a_restart_before_the_annotation_finds_the_balancer_by_name(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    for key in ["load-balancer-id", "load-balancer-address"] {
        unset(&mut web, key);
    }
    scene.restart().await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    assert_eq!(annotation(&web, "load-balancer-id"), Some(id(&scene.balancer().await)));
}

async fn two_balancers_of_one_name_are_an_error(scene: &mut Scene) {
    for _ in 0..2 {
        let lb = json!({"name": "kube_service_kubernetes_shop_web", "vip_subnet_id": scene.place().subnet});
        scene.make(crate::scene::LBS, "loadbalancer", lb).await;
    }
    let error = scene.refused(&mut web()).await;
    assert!(error.contains("multiple results where only one expected"), "{error}");
    assert_eq!(scene.balancers().await.len(), 2);
}

async fn a_creation_that_ends_in_error_is_deleted_and_tried_again(scene: &mut Scene) {
    scene.simulation().fail_provisioning(1);
    let mut web = web();
    let error = scene.refused(&mut web).await;
    assert!(error.contains("has gone into ERROR state"), "{error}");
    scene.settle().await;
    scene.is_empty().await;
    scene.ensure(&mut web).await;
    scene.is_steady(&mut web).await;
}

async fn a_creation_without_an_answer_is_found_by_name(scene: &mut Scene) {
    let lost = |service: &str, action: &str| Rule::every(Fault::ResetAfter).on(service, action).window(0, 1);
    scene.simulation().fault(lost("load-balancer", "loadbalancer_create"));
    scene.simulation().fault(lost("network", "floating_ip_create"));
    let mut web = web();
    let mut failures = 0;
    while scene.try_ensure(&mut web).await.is_err() {
        failures += 1;
    }
    assert!((1..=3).contains(&failures), "{failures}");
    assert_eq!((scene.balancers().await.len(), scene.floating_ips().await.len()), (1, 1));
    scene.is_steady(&mut web).await;
}

async fn a_failed_look_at_versions_makes_no_listener_open_to_all(scene: &mut Scene) {
    scene.restart().await;
    let fault = Fault::Code { status: 403, code: String::new(), message: "no".to_owned() };
    scene.simulation().fault(Rule::every(fault).on("load-balancer", "version_list").window(0, 1));
    let mut web = web();
    web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    scene.refused(&mut web).await;
    assert_eq!(scene.balancers().await.len(), 0);
    // A failure is also the answer to requests soon after it.
    while scene.try_ensure(&mut web).await.is_err() {}
    assert_eq!(scene.listener().await["allowed_cidrs"], json!(["192.0.2.0/24"]));
}

async fn a_busy_server_is_asked_again_when_it_says(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    scene.simulation().fault(Rule::every(Fault::Throttle).on("load-balancer", "loadbalancer_get").window(0, 1));
    let begin = Instant::now();
    scene.ensure(&mut web).await;
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
}

async fn a_balancer_in_error_says_which_part_failed(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    scene.simulation().fail_provisioning(1);
    scene.nodes.pop();
    scene.process.work(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
    let id = scene.balancer().await["id"].as_str().unwrap().to_owned();
    scene.cloud.set_status(&id, "ERROR").await;
    let error = scene.refused(&mut web).await;
    assert!(error.contains("in ERROR: member node-1"), "{error}");
}

/// A driver that cannot make a change leaves the balancer ACTIVE.
#[tokio::test]
async fn a_change_that_the_driver_cannot_make_is_an_error_and_made_again() {
    for conf in ["", "[LoadBalancer]\nprovider-requires-serial-api-calls = true\n"] {
        simulated(async |scene: &mut Scene| {
            scene.configure(conf).await;
            let mut web = web();
            set(&mut web, "enable-health-monitor", "true");
            let gone = scene.nodes.pop().unwrap();
            scene.ensure(&mut web).await;
            // A change of the nodes.
            scene.nodes.push(gone);
            failing(scene, &mut web, ServiceAction::UpdateHosts, "member ").await;
            // Changes of the health monitor, the pool, the listener.
            set(&mut web, "health-monitor-delay", "7");
            failing(scene, &mut web, ServiceAction::Ensure, "health monitor monitor_0_").await;
            web.spec.session_affinity = "ClientIP".to_owned();
            failing(scene, &mut web, ServiceAction::Ensure, "pool pool_0_").await;
            set(&mut web, "connection-limit", "100");
            failing(scene, &mut web, ServiceAction::Ensure, "listener listener_0_").await;
            assert_eq!((scene.members().await.len(), scene.listeners().await.len()), (3, 1));
        })
        .await;
    }
}

/// The next change fails in this part; the one after it repairs the part.
async fn failing(scene: &mut Scene, web: &mut Service, action: ServiceAction, part: &str) {
    scene.simulation().fail_provisioning(1);
    let error = scene.process.work(web, &scene.nodes, action).await.unwrap_err().to_string();
    assert!(error.contains(&format!("in ERROR: {part}")), "{part}: {error}");
    assert_eq!(scene.balancer().await["provisioning_status"], "ACTIVE");
    scene.process.work(web, &scene.nodes, action).await.unwrap();
    for kind in ["listener", "pool", "member", "healthmonitor"] {
        let all = scene.simulation().resources(kind);
        assert!(all.iter().all(|it| it["provisioning_status"] == "ACTIVE"), "{part}: {all:#?}");
    }
    scene.is_steady(web).await;
}

async fn what_the_driver_could_not_change_can_be_deleted_part_by_part(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\ncascade-delete = false\n").await;
    let mut web = web();
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    web.spec.session_affinity = "ClientIP".to_owned();
    scene.simulation().fail_provisioning(1);
    scene.refused(&mut web).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn an_expired_token_is_renewed_once_for_all(scene: &mut Scene) {
    let mut all: Vec<_> = (0..5).map(|n| service(&format!("web-{n}"), &[(80, 30080)], json!({}))).collect();
    for web in &mut all {
        scene.ensure(web).await;
    }
    let login = scene.simulation().mark();
    scene.simulation().expire_tokens();
    let work = futures::future::join_all(all.iter_mut().map(|web| scene.ensure(web)));
    let (calls, _) = scene.counted(work).await;
    assert_eq!((calls.writes(), calls.of("token_create")), (String::new(), 1));
    let logins = scene.simulation().ledger(|ledger| ledger.counts(login));
    assert_eq!(logins.get("identity:token_create"), Some(&1));
}

async fn no_error_shows_a_secret(scene: &mut Scene) {
    let wrong = scene.cloud.login().replace("s3cret-of-tenant", "wr0ng-s3cret");
    let error = Process::start(wrong, "kubernetes").await.err().unwrap();
    let texts = [error.to_string(), format!("{error:?}"), format!("{:?}", scene.process.balancers.name("c", &web()))];
    assert!(texts.iter().all(|text| !text.contains("s3cret")), "{texts:?}");
    let fault = Fault::Code { status: 400, code: "Bad".to_owned(), message: "refused".to_owned() };
    scene.simulation().fault(Rule::every(fault).on("load-balancer", "loadbalancer_create"));
    let error = scene.refused(&mut web()).await;
    assert!(error.contains("refused") && !error.contains("listeners"), "{error}");
}

#[tokio::test]
async fn an_exhausted_quota_is_named_and_nothing_is_lost_once_there_is_room() {
    for (kind, resource) in
        [("loadbalancer", "Load Balancer"), ("floatingip", "floatingip"), ("security_group", "security_group")]
    {
        simulated(async |scene: &mut Scene| {
            scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
            scene.simulation().change(|options| options.quotas.extend([(kind.to_owned(), 0)]));
            let mut web = web();
            let error = scene.refused(&mut web).await;
            assert!(error.contains("a quota of the project is exhausted") && error.contains(resource), "{error}");
            scene.simulation().change(|options| options.quotas.clear());
            scene.ensure(&mut web).await;
            scene.is_steady(&mut web).await;
            scene.delete(&mut web).await;
            scene.is_empty().await;
        })
        .await;
    }
}

async fn what_octavia_does_not_have_is_named_with_its_key(scene: &mut Scene) {
    let nowhere = "0badbad0-1111-4222-8333-444455556666";
    let cases =
        [("flavor-id", nowhere, "Invalid flavor_id."), ("availability-zone", "n0where", "Invalid availability zone.")];
    for (key, value, says) in cases {
        let mut lost = service("lost", &[(80, 30080)], json!({}));
        set(&mut lost, key, value);
        let error = scene.refused(&mut lost).await;
        let fix = format!("correct {key}, in the annotation loadbalancer.openstack.org/{key} or in cloud.conf: ");
        assert!(error.starts_with(&fix) && error.contains(value) && error.contains(says), "{error}");
    }
    // Octavia and Neutron name the field.
    for key in ["member-subnet-id", "floating-network-id"] {
        let mut lost = service("lost", &[(80, 30080)], json!({}));
        set(&mut lost, key, "x y");
        let error = scene.refused(&mut lost).await;
        assert!(error.contains(&format!("loadbalancer.openstack.org/{key}")) && error.contains("x y"), "{error}");
        scene.delete(&mut lost).await;
    }
    let _ = scene.simulation().take_violations();
    scene.configure("[LoadBalancer]\nlb-provider = f5\n").await;
    let error = scene.refused(&mut web()).await;
    let fix = "correct lb-provider in [LoadBalancer] of cloud.conf: ";
    assert!(error.starts_with(fix) && error.contains("Provider 'f5' is not enabled"), "{error}");
}

#[tokio::test]
async fn a_service_that_the_catalog_lacks_is_named_at_the_start() {
    for (kind, is_needed) in [("load-balancer", true), ("network", true), ("compute", false), ("key-manager", false)] {
        simulated(async |scene: &mut Scene| {
            scene.simulation().change(|options| options.catalog.retain(|entry| entry.kind != kind));
            let error = Process::start(scene.cloud.login(), "kubernetes").await.err().map(|error| error.to_string());
            assert_eq!(error.is_some(), is_needed, "{kind}: {error:?}");
            assert!(error.is_none_or(|error| error.contains(kind) && error.contains("RegionOne")), "{kind}");
        })
        .await;
    }
}
