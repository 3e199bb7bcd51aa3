//! Calls that the Go program does not make: where a role, an access rule or a driver's API lacks them, nothing is missing.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::seed::SubnetSeed;
use serde_json::json;

use crate::scene::{Scene, service, set, web};

ccm_test_openstack::cases! { [crate::scene]
    both: ;
    simulated:
        without_the_status_tree_nothing_is_missing,
        without_the_list_of_health_monitors_each_is_read,
        without_subnets_the_members_are_where_the_user_says;
}

/// Refusals, with the calls that they may cost in an hour: two for 401, with a login between them, and three if a gateway
/// may have sent it.
fn refusals() -> [(Fault, u64); 6] {
    let code = |status| Fault::Code { status, code: String::new(), message: "as the test says".to_owned() };
    let gateway = Fault::Status { status: 404, body: r#"{"error_code": "APIGW.0101"}"#.to_owned() };
    [(Fault::Deny, 1), (code(401), 2), (code(404), 1), (code(405), 1), (code(501), 1), (gateway, 3)]
}

async fn without_the_status_tree_nothing_is_missing(scene: &mut Scene) {
    for (refusal, calls) in refusals() {
        scene.configure("").await;
        let mark = scene.simulation().mark();
        scene.simulation().fault(Rule::every(refusal.clone()).on("load-balancer", "loadbalancer_status_get"));
        let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
        scene.ensure(&mut web).await;
        scene.is_steady(&mut web).await;
        let node = scene.nodes.pop().unwrap();
        scene.update_hosts(&mut web).await;
        assert_eq!(scene.members().await.len(), 4);
        let sent = scene.simulation().ledger(|ledger| ledger.counts(mark));
        assert_eq!(sent["load-balancer:loadbalancer_status_get"], calls, "{refusal:?}");
        scene.configure("[LoadBalancer]\ncascade-delete = false\n").await;
        scene.delete(&mut web).await;
        scene.is_empty().await;
        scene.nodes.push(node);
        scene.simulation().faults(Faults::clear);
    }
}

async fn without_the_list_of_health_monitors_each_is_read(scene: &mut Scene) {
    for (refusal, calls) in refusals() {
        scene.configure("").await;
        let mark = scene.simulation().mark();
        scene.simulation().fault(Rule::every(refusal.clone()).on("load-balancer", "loadbalancer_healthmonitor_list"));
        let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
        set(&mut web, "enable-health-monitor", "true");
        scene.ensure(&mut web).await;
        set(&mut web, "health-monitor-delay", "7");
        assert_eq!(scene.writes_to_ensure(&mut web).await, "loadbalancer_healthmonitor_update 2", "{refusal:?}");
        scene.is_steady(&mut web).await;
        let sent = scene.simulation().ledger(|ledger| ledger.counts(mark));
        assert!(sent["load-balancer:loadbalancer_healthmonitor_list"] <= calls, "{refusal:?}: {sent:?}");
        scene.delete(&mut web).await;
        scene.is_empty().await;
        scene.simulation().faults(Faults::clear);
    }
}

async fn without_subnets_the_members_are_where_the_user_says(scene: &mut Scene) {
    let network = scene.place().network.clone();
    let seed = SubnetSeed { network: &network, cidr: "10.51.0.0/24", ..SubnetSeed::default() };
    let subnet = scene.simulation().world(|world| world.subnet(&seed));
    scene.simulation().fault(Rule::every(Fault::Deny).on("network", "subnet_get"));
    let mut web = web();
    set(&mut web, "member-subnet-id", &subnet);
    scene.ensure(&mut web).await;
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"] == *subnet));
    scene.is_steady(&mut web).await;
}
