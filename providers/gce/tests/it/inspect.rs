//! The output of the commands `explain node` and `migrate-check`.

use std::sync::Arc;

use ccm_cloudsim::gce::Options;
use ccm_provider::{Check, Claims, Fact, FactState, Node, NodeRef, Service, Severity};
use ccm_provider_contract::TestCluster;
use serde_json::json;

use crate::bed::{Bed, CLUSTER};

fn node(name: &str, provider_id: &str) -> NodeRef {
    let pod_cidrs = ["10.244.1.0/24".into()];
    Node { name: name.into(), provider_id: Some(provider_id.into()), pod_cidrs: pod_cidrs.into(), ..Node::default() }
        .into()
}

async fn explain(bed: &Bed, node: &NodeRef) -> Vec<Fact> {
    let provider = bed.process("", &Arc::<TestCluster>::default()).await;
    provider.inspect().unwrap().explain_node(CLUSTER, node).await.unwrap()
}

async fn checks(bed: &Bed, claims: &Claims) -> Vec<Check> {
    let provider = bed.process("typo = x", &Arc::<TestCluster>::default()).await;
    provider.inspect().unwrap().migration_checks(CLUSTER, claims).await
}

#[tokio::test]
async fn a_node_is_explained_down_to_its_routes() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-b", "n1", json!({}));
    let facts = explain(&bed, &node("n1", "gce://p/us-central1-b/n1")).await;
    let states: Vec<(&str, FactState)> = facts.iter().map(|fact| (&*fact.about, fact.state)).collect();
    let expected = [
        ("provider ID gce://p/us-central1-b/n1", FactState::Good),
        ("instance of n1", FactState::Good),
        ("addresses", FactState::Waiting),
        ("alias ranges and IPv6 of its NICs", FactState::Good),
        ("route 10.244.1.0/24", FactState::Waiting),
    ];
    assert_eq!(states, expected);
    for (id, about) in [
        ("gce://p/us-central1-b/n2", "instance of n2"),
        ("gce://other/us-central1-b/n2", "instance of n2"),
        ("gce://p/n2", "provider ID gce://p/n2"),
    ] {
        let last = explain(&bed, &node("n2", id)).await.pop().unwrap();
        assert_eq!((&*last.about, last.state), (about, FactState::Bad), "{id}");
    }
}

#[tokio::test]
async fn missing_permissions_are_found_before_the_migration() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-b", "n1", json!({}));
    let nodes = vec![node("n1", "gce://p/us-central1-b/n1"), node("n2", "gce://p/us-central1-b/n2")];
    let claims = Claims { nodes, ..Claims::default() };
    let of = |checks: &[Check], severity| -> Vec<String> {
        let found = checks.iter().filter(|check| check.severity == severity);
        found.map(|check| format!("{} {}", check.check, check.subject)).collect()
    };
    let all = checks(&bed, &claims).await;
    assert_eq!(of(&all, Severity::Error), ["provider-ids node n2"], "{all:?}");
    assert_eq!(of(&all, Severity::Warning), ["cloud-config [global] typo"]);
    bed.cloud.change(|options| {
        options.denied = [("*".to_owned(), vec!["compute.firewalls.*".to_owned()])].into();
    });
    // Without a Service nothing needs them.
    assert_eq!(of(&checks(&bed, &claims).await, Severity::Error), ["provider-ids node n2"]);
    let spec = json!({"type": "LoadBalancer", "ports": [{"protocol": "TCP", "port": 80, "nodePort": 30080}]});
    let service = json!({"metadata": {"namespace": "default", "name": "web", "uid": "u"}, "spec": spec});
    let claims = Claims { services: vec![serde_json::from_value::<Service>(service).unwrap().into()], ..claims };
    let all = checks(&bed, &claims).await;
    let missing = all.iter().find(|check| check.severity == Severity::Error).unwrap();
    for permission in ["compute.firewalls.create", "compute.firewalls.get"] {
        assert!(missing.message.contains(permission), "{missing:?}");
    }
    assert!(!missing.message.contains("compute.routes"), "{missing:?}");
    assert!(all.iter().any(|check| check.check == "load-balancers"), "{all:?}");
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}
