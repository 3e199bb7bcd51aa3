//! The reports for users, over HTTP.

use std::time::Duration;

use ccm_provider::{Fact, FactState};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service};
use crate::instances::leading;

fn bad(facts: &[Fact]) -> Vec<&Fact> {
    facts.iter().filter(|fact| fact.state == FactState::Bad).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_services_in_order_are_explained_without_a_write() {
    let bed = Bed::start("");
    let provider = leading(&bed, &bed.nodes).await;
    let balancers = provider.load_balancer().unwrap();
    let classic = service("old", &[], &[(80, 31080)], json!({}));
    let network = service("web", &[("type", "nlb")], &[(80, 31081)], json!({}));
    let mut services = [classic, network];
    for service in &mut services {
        service.status.load_balancer = bed.ensure(&*balancers, service).await;
    }
    // All targets are healthy by then.
    bed.aws.clock().step(Duration::from_secs(600));
    let inspector = leading(&bed, &bed.nodes).await.inspect().unwrap();
    let mark = bed.aws.mark();
    for node in &bed.nodes {
        let facts = inspector.explain_node(CLUSTER, node).await.unwrap();
        assert!(bad(&facts).is_empty() && facts.len() >= 5, "{facts:#?}");
    }
    for service in &services {
        let facts = inspector.explain_service(CLUSTER, service).await.unwrap();
        assert!(bad(&facts).is_empty(), "{facts:#?}");
        assert!(facts.iter().any(|fact| fact.text.contains("nothing is left to do")), "{facts:#?}");
    }
    assert_eq!(bed.writes(mark), [""; 0]);
    bed.check();
}
