//! Quotas: a refusal concerns one kind of part of one Service, and nothing is left of it.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::rows::Row;
use ccm_provider::{Service, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{GROUPS, INTERNAL, Scene, forget, service, set, simulated, web};

const MANAGED: &str = "[LoadBalancer]\nmanage-security-groups = true\n";

ccm_test_openstack::cases! { [crate::scene]
    both:;
    simulated:
        a_full_set_of_rules_is_changed_in_one_pass,
        an_exhausted_quota_is_asked_once_in_a_pass_and_fails_its_service_alone,
        a_quota_of_listeners_stops_no_member_and_leaves_nothing,
        an_address_in_use_is_asked_for_once_in_a_pass;
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

/// Octavia makes the port of the address before it looks at the rest, and does not remove it.
#[tokio::test]
async fn a_creation_whose_refusal_leaves_a_port_is_sent_again_after_an_hour() {
    const QUOTA: &str = "Quota has been met for resources: ";
    let taken = "Another member on this pool is already using ip 10.50.0.3 on protocol_port 30080";
    let of_quota = |kind, name: &str| (Some(kind), format!("{QUOTA}{name}"));
    for (quota, text) in [
        of_quota("pool", "Pool"),
        of_quota("listener", "Listener"),
        of_quota("healthmonitor", "Health Monitor"),
        of_quota("member", "Member"),
        (None, taken.to_owned()),
    ] {
        simulated(async |scene: &mut Scene| {
            scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
            match quota {
                Some(kind) => scene.simulation().change(|options| options.quotas = [(kind.to_owned(), 0)].into()),
                None => {
                    let fault = Fault::Code { status: 409, code: String::new(), message: text.clone() };
                    scene.simulation().fault(Rule::every(fault).on("load-balancer", "loadbalancer_create"));
                }
            }
            let mut web = web();
            let (calls, error) = scene.counted(scene.refused(&mut web)).await;
            assert!(error.contains(&text), "{error}");
            assert_eq!(calls.of("loadbalancer_create"), 1, "{text}");
            for _ in 0..3 {
                let (calls, again) = scene.counted(scene.refused(&mut web)).await;
                assert_eq!((calls.of("loadbalancer_create"), &again), (0, &error), "{text}");
            }
            scene.simulation().change(|options| options.quotas.clear());
            scene.simulation().faults(Faults::clear);
            tokio::time::pause();
            tokio::time::advance(std::time::Duration::from_secs(3600)).await;
            tokio::time::resume();
            scene.ensure(&mut web).await;
            scene.is_steady(&mut web).await;
        })
        .await;
    }
}

/// It may be that of a balancer which goes, so it is asked for at the next retry.
async fn an_address_in_use_is_asked_for_once_in_a_pass(scene: &mut Scene) {
    let port = scene.list("/v2.0/ports").await.into_iter().find(|port| port["device_owner"] == "compute:nova");
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    port.as_ref()
        .and_then(|port| port["fixed_ips"][0]["ip_address"].as_str())
        .unwrap()
        .clone_into(&mut web.spec.load_balancer_ip);
    for _ in 0..2 {
        let (calls, error) = scene.counted(scene.refused(&mut web)).await;
        assert!(error.contains("The VIP IP address is already in use"), "{error}");
        assert_eq!(calls.of("loadbalancer_create"), 1, "{error}");
    }
    let left = scene.list("/v2.0/ports?device_owner=Octavia").await;
    assert_eq!(left, Vec::<Value>::new());
}
