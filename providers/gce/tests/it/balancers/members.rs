//! Instances that a target pool or an instance group refuses.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Service, ServiceAction};
use serde_json::json;

use super::scene::{Scene, internal, web};

const N3: &str = "projects/p/zones/us-central1-b/instances/n3";

fn code(status: u16, code: &str, message: &str) -> Fault {
    Fault::Code { status, code: code.to_owned(), message: message.to_owned() }
}

/// Refuses the calls that name the instance `n3`.
fn refuse_n3(scene: &Scene, fault: &Fault) {
    for call in ["targetPools.insert", "targetPools.addInstance", "instanceGroups.addInstances"] {
        let named = Rule { params: Some("instances/n3\"".to_owned()), ..Rule::every(fault.clone()) };
        scene.cloud().fault(named.on("compute", call));
    }
}

async fn advance(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// Somebody else removes it between the look and the write.
#[tokio::test]
async fn an_instance_that_has_left_already_joins_again_at_once() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let all = scene.nodes.clone();
    scene.nodes.truncate(1);
    let link = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/instances/n2";
    let text = format!(
        "Invalid value for field 'resource.instance': '{link}'. Instance is not currently attached to this target pool."
    );
    let call = "targetPools.removeInstance";
    scene.cloud().fault(Rule::every(code(400, "invalid", &text)).on("compute", call).window(0, 1));
    scene.update(&mut web).await;
    let path = "projects/p/regions/us-central1/targetPools/a1111111122223333444455555555555/removeInstance";
    let body = json!({"instances": [{"instance": link}]});
    scene.cloud().by_hand("POST", path, &body).unwrap();
    // The simulated cloud answers the same.
    let again = scene.cloud().by_hand("POST", path, &body).unwrap_err();
    assert!(format!("{again:?}").contains("not currently attached"), "{again:?}");
    scene.nodes = all;
    scene.update(&mut web).await;
    assert_eq!(scene.members(), 2);
    scene.is_correct();
}

/// Whatever the error names, at a new load balancer and at one that exists.
#[tokio::test]
async fn an_instance_that_is_refused_fails_alone() {
    let late =
        |message: &str| Fault::Operation { status: 400, code: "INVALID".to_owned(), message: message.to_owned() };
    for fault in [
        code(400, "invalid", "Invalid value"),
        code(400, "badRequest", "Instance 'n3' cannot be a member."),
        code(400, "invalid", &format!("Instance '{N3}' cannot be a member.")),
        code(403, "forbidden", &format!("Required 'compute.instances.use' permission for '{N3}'")),
        late(&format!("Instance '{N3}' cannot be a member.")),
        late("Instance 'n3' cannot be a member."),
    ] {
        for kind in [(|service| service) as fn(Service) -> Service, internal] {
            let mut scene = Scene::with(&["n1", "n2", "n3", "n4", "n5"]).await;
            let mut asked = kind(web());
            let all = scene.nodes.clone();
            // A new load balancer.
            refuse_n3(&scene, &fault);
            let _ = scene.try_ensure(&mut asked).await;
            assert_eq!(scene.members(), 4, "{fault:?}");
            scene.delete(&mut asked).await;
            // New nodes of one that exists.
            scene.restart().await;
            scene.nodes.truncate(1);
            scene.ensure(&mut asked).await;
            scene.nodes = all;
            let error = scene.ask(&mut asked, ServiceAction::UpdateHosts).await.0.expect_err("an error").to_string();
            assert_eq!(scene.members(), 4, "{fault:?}: {error}");
            scene.cloud().faults(Faults::clear);
            advance(301).await;
            scene.update(&mut asked).await;
            assert_eq!(scene.members(), 5, "{fault:?}");
            scene.is_correct();
        }
    }
}

/// A permission that is missing for all instances is not asked for one by one.
#[tokio::test]
async fn many_instances_that_are_all_refused_cost_few_calls() {
    let names: Vec<String> = (0..60).map(|number| format!("n{number}")).collect();
    let mut scene = Scene::with(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut web = web();
    let all = scene.nodes.clone();
    scene.nodes.truncate(1);
    scene.ensure(&mut web).await;
    scene.nodes = all;
    scene.cloud().change(|options| {
        options.denied = [("*".to_owned(), vec!["compute.instances.use".to_owned()])].into();
    });
    let mark = scene.cloud().mark();
    let error = scene.refused(&mut web).await;
    assert!(error.contains("compute.instances.use"), "{error}");
    let calls = scene.bed.calls(mark).into_iter().filter(|call| call == "targetPools.addInstance").count();
    assert!(calls <= 30, "{calls}");
    assert_eq!(scene.members(), 1);
}
