//! Reads that lag behind the writes of the process.

use std::time::Duration;

use ccm_cloudsim::core::lag::Lag;
use ccm_provider::ServiceAction;
use ccm_provider_contract::Simulation as _;
use serde_json::json;

use super::scene::{Scene, internal, web};

const LAG: Duration = Duration::from_secs(3600);

/// A read that shows the former rule, or none, is older than these writes.
#[tokio::test]
async fn a_rule_of_another_kind_that_is_not_shown_yet_is_neither_deleted_nor_made_again() {
    for (mut before, mut after) in [(web(), internal(web())), (internal(web()), web())] {
        let mut scene = Scene::with(&["n1"]).await;
        let status = scene.try_ensure(&mut before).await.unwrap().unwrap();
        after.metadata.finalizers.clone_from(&before.metadata.finalizers);
        after.status.load_balancer = status;
        let lag = Lag::default().with("forwardingRules", LAG).with("firewalls", LAG);
        scene.cloud().change(|options| options.lag = lag);
        let mark = scene.cloud().mark();
        for _ in 0..4 {
            scene.refused(&mut after).await;
        }
        assert!(scene.ask(&mut after.clone(), ServiceAction::Delete).await.0.is_err());
        let writes = scene.writes(mark).into_iter().filter(|write| write.starts_with("forwardingRules"));
        assert_eq!(writes.collect::<Vec<_>>(), ["forwardingRules.delete", "forwardingRules.insert"]);
        scene.cloud().change(|options| options.lag = Lag::default());
        scene.cloud().step(LAG);
        let ip = scene.ensure(&mut after).await;
        let rule = scene.object("forwardingRules", "LB");
        assert_eq!(rule["IPAddress"], json!(ip));
        scene.is_steady(&mut after).await;
        scene.delete(&mut after).await;
        assert_eq!(scene.names(), [] as [&str; 0]);
        scene.is_correct();
    }
}
