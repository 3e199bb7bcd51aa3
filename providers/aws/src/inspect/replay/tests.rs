use ccm_provider::{LoadBalancer as _, LoadBalancerExt as _, ServiceAction, ServiceWork};
use serde_json::json;

use super::*;
use crate::loadbalancer::env::Env;
use crate::ownership::Ownership;
use crate::start::config::SharedProbe;

fn env() -> Env {
    Env {
        ownership: Ownership { cluster: "c1".to_owned(), legacy: true },
        vpc: "vpc-1".to_owned(),
        self_subnet: "subnet-1".to_owned(),
        node_groups_untouched: true,
        shared_group: Some("sg-1".to_owned()),
        managed_network_groups: true,
        shared_probe: Some(SharedProbe { port: 10256, path: "/healthz".to_owned() }),
    }
}

#[test]
fn facts_are_settings_and_ids_and_come_back_whole() {
    let facts = facts(&env());
    assert_eq!(
        facts,
        json!({
            "cluster": "c1", "legacyTag": true, "vpc": "vpc-1", "subnet": "subnet-1", "nodeGroupsUntouched": true,
            "sharedGroup": "sg-1", "managedNetworkGroups": true,
            "sharedProbe": {"port": 10256, "path": "/healthz"},
        })
    );
    let read = balancers(&facts).unwrap().cloud().env.clone();
    assert_eq!(format!("{read:?}"), format!("{:?}", env()));
}

#[test]
fn facts_of_an_older_version_have_defaults_and_foreign_ones_are_refused() {
    let old = json!({"cluster": "c1", "vpc": "vpc-1", "fromTheFuture": {"x": 1}});
    let read = balancers(&old).unwrap().cloud().env.clone();
    assert_eq!((&*read.ownership.cluster, read.ownership.legacy, read.shared_probe), ("c1", false, None));
    for odd in [json!(null), json!({}), json!({"cluster": "c1"}), json!({"cluster": 1, "vpc": "v"}), json!("x")] {
        let error = balancers(&odd).unwrap_err().to_string();
        assert!(error.starts_with("the facts about AWS in the snapshot cannot be read: "), "{error}");
        assert!(error.ends_with("; take the snapshot again"), "{error}");
    }
}

#[tokio::test]
async fn every_call_to_aws_is_refused() {
    let balancers = balancers(&facts(&env())).unwrap();
    let service = ccm_provider::Service::default();
    let error = balancers.get("c", &service).await.unwrap_err().to_string();
    let why = "a snapshot has no connection to AWS: plans are only possible from the observed state";
    assert!(error.contains(why), "{error}");
    let error = balancers.ensure_deleted("c", &service).await.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn an_observation_that_is_none_names_the_service() {
    let balancers = balancers(&facts(&env())).unwrap();
    let service: ccm_provider::Service =
        serde_json::from_value(json!({"metadata": {"namespace": "d", "name": "web"}})).unwrap();
    let item =
        ServiceWork { service: service.into(), nodes: [].into(), action: ServiceAction::Delete, namespace: None };
    for odd in [json!(null), json!([{"observed": {}}]), json!({"x": 1})] {
        let error = balancers.plan_observed("c", &item, &odd).unwrap_err().to_string();
        assert!(error.starts_with("the observed state for the Service d/web cannot be read: "), "{error}");
    }
}
