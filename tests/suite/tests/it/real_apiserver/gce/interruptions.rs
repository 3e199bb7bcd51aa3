//! The program is killed during its work, and operations fail at their end.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

/// The program is killed as soon as each kind of object exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_killed_again_and_again_leaves_one_balancer() {
    let Some(world) = World::start().await else { return };
    world.with_nodes(2).await.stop().await;
    world.gce.change(|options| options.operation = Duration::from_millis(200));
    world.rig.create(service("web", &[], &[80])).await;
    world.rig.create(service("api", &[INTERNAL], &[8080])).await;
    for collection in ["firewalls", "targetPools", "instanceGroups", "backendServices", "forwardingRules"] {
        let mut manager = world.manager("", ARGS);
        world.until(collection, |gce| !gce.objects(collection).is_empty()).await;
        manager.process.kill();
    }
    let manager = world.manager("", ARGS);
    for name in ["web", "api"] {
        world.rig.address(name).await;
    }
    world.until("the release of the addresses", |gce| gce.objects("addresses").is_empty()).await;
    assert_eq!((world.names("forwardingRules").len(), world.names("targetPools").len()), (2, 1));
    for name in ["web", "api"] {
        world.is_steady(name).await;
        world.rig.delete_service(name).await;
    }
    manager.stop().await;
    world.end();
}

/// HTML instead of any response: the response of a broken proxy is no evidence.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_answers_for_the_cloud_does_no_harm() {
    let Some(world) = World::start().await else { return };
    let manager = world.with_nodes(2).await;
    for status in [502, 404] {
        let stays = format!("stays-{status}");
        world.rig.create(service(&stays, &[], &[80])).await;
        world.rig.address(&stays).await;
        let before = world.gce.objects("forwardingRules");
        world.gce.fault(Rule::every(Fault::Html { status }));
        world.rig.set_ready("node-2", "Unknown").await;
        world.rig.patch_service(&stays, json!({"spec": {"ports": tcp_ports(&[80, 443])}})).await;
        world.rig.until_event(&stays, "SyncLoadBalancerFailed").await;
        assert!(world.rig.node("node-2").await.is_some());
        assert_eq!(world.gce.objects("forwardingRules"), before);
        world.gce.faults(Faults::clear);
        world.rig.set_ready("node-2", "True").await;
        let both = |gce: &Gce| gce.objects("forwardingRules").iter().any(|rule| rule["portRange"] == "80-443");
        world.until("the rule of both ports", both).await;
        world.rig.delete_service(&stays).await;
    }
    manager.stop().await;
    world.end();
}
