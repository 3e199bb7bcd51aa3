//! Quotas: a refusal concerns one kind of part of one Service, and nothing is left of it.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::rows::Row;
use ccm_provider::{Service, ServiceAction};
use serde_json::json;

use crate::scene::{GROUPS, Scene, forget, service, set, web};

const MANAGED: &str = "[LoadBalancer]\nmanage-security-groups = true\n";

ccm_test_openstack::cases! { [crate::scene]
    both:;
    simulated:
        a_full_set_of_rules_is_changed_in_one_pass,
        an_exhausted_quota_is_asked_once_in_a_pass_and_fails_its_service_alone,
        a_quota_of_listeners_stops_no_member_and_leaves_nothing;
}

/// Lets the project have no more rules than now.
fn no_more_rules(scene: &Scene) {
    let project = &scene.place().project;
    scene.simulation().world(|world| {
        let is_ours = |rule: &&Row| rule.text("project_id") == project;
        let rules = world.table("security_group_rule").values().filter(is_ours).count();
        world.options.quotas.insert("security_group_rule".to_owned(), rules);
    });
}

/// Three Services, each with its node port.
async fn three(scene: &mut Scene) -> Vec<Service> {
    scene.configure(MANAGED).await;
    let mut all: Vec<Service> = (0..3).map(|n| service(&format!("web-{n}"), &[(80, 30080 + n)], json!({}))).collect();
    for web in &mut all {
        scene.ensure(web).await;
    }
    all
}

/// The old rules go before the new ones come.
async fn a_full_set_of_rules_is_changed_in_one_pass(scene: &mut Scene) {
    scene.configure(MANAGED).await;
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    no_more_rules(scene);
    (web.spec.ports[0].node_port, web.spec.ports[1].node_port) = (30081, 30444);
    scene.ensure(&mut web).await;
    assert_eq!(scene.rules().await, ["tcp 30081 10.50.0.0/24", "tcp 30444 10.50.0.0/24"]);
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn an_exhausted_quota_is_asked_once_in_a_pass_and_fails_its_service_alone(scene: &mut Scene) {
    let mut all = three(scene).await;
    no_more_rules(scene);
    let more: Vec<(i32, i32)> = (0..5).map(|n| (8080 + n, 32080 + n)).chain([(80, 30080)]).collect();
    all[0].spec.ports = service("web", &more, json!({})).spec.ports;
    all.iter_mut().for_each(forget);
    scene.nodes.pop();
    let (calls, error) = scene.counted(scene.refused(&mut all[0])).await;
    assert!(error.contains("quota"), "{error}");
    assert_eq!(calls.of("security_group_rule_create"), 1, "{calls:?}");
    assert_eq!(scene.listeners().await.len(), 8, "the listeners need no rule");
    let answer = scene.process.work(&mut all[0], &scene.nodes, ServiceAction::UpdateHosts).await;
    assert!(answer.is_ok(), "{answer:?}");
    for web in &mut all[1..] {
        scene.ensure(web).await;
    }
    assert_eq!(scene.members().await.len(), 16);
    for web in &mut all {
        scene.delete(web).await;
    }
    scene.is_empty().await;
}

async fn a_quota_of_listeners_stops_no_member_and_leaves_nothing(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    web.spec.ports = service("web", &[(80, 30080), (443, 30443), (8443, 30444)], json!({})).spec.ports;
    set(&mut web, "connection-limit", "7");
    let quota = Fault::Code {
        status: 403,
        code: String::new(),
        message: "Quota has been met for resources: Listener".to_owned(),
    };
    scene.simulation().fault(Rule::every(quota).on("load-balancer", "loadbalancer_listener_create"));
    scene.nodes.pop();
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert!(error.contains("quota"), "{error}");
    assert_eq!(calls.of("loadbalancer_listener_create"), 1, "{calls:?}");
    assert_eq!((scene.members().await.len(), &scene.listener().await["connection_limit"]), (2, &json!(7)));
    scene.simulation().faults(Faults::clear);
    scene.ensure(&mut web).await;
    assert_eq!((scene.listeners().await.len(), scene.members().await.len()), (3, 6));
    scene.delete(&mut web).await;
    scene.is_empty().await;
    assert_eq!(scene.list(GROUPS).await.iter().filter(|group| group["name"] != "default").count(), 0);
}
