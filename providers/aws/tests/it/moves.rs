//! Listeners that move to another target group: never to one that has no targets.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service};
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER, service};

fn web(annotations: &[(&str, &str)], spec: Value) -> Service {
    service("web", &[annotations, &[("type", "nlb")]].concat(), &[(80, 31080)], spec)
}

/// What takes a new target group.
fn changes() -> [(&'static str, Service); 3] {
    let mut udp = web(&[], json!({}));
    udp.spec.ports[0].protocol = "UDP".to_owned();
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
    [("interval", web(&[("healthcheck-interval", "20")], json!({}))), ("local", web(&[], local)), ("UDP", udp)]
}

/// The target group of the only listener, and the number of its targets.
fn served(bed: &Bed) -> (String, usize) {
    bed.aws.world(|world| {
        let listeners: Vec<_> = world.elbv2.listeners.values().collect();
        let [one] = &*listeners else { panic!("{listeners:?}") };
        (one.group.clone(), world.elbv2.groups[&one.group].targets.len())
    })
}

/// Upstream stops at the refused registration.
#[tokio::test]
async fn a_listener_keeps_its_target_group_while_aws_refuses_all_targets_of_the_new_one() {
    for refusal in ["InvalidTarget", "ValidationError", "TooManyRegistrationsForTargetId"] {
        for (what, changed) in changes() {
            for are_replaced in [false, true] {
                let case = format!("{refusal}, {what}, other nodes: {are_replaced}");
                let mut bed = Bed::start("");
                let process = bed.process().await;
                bed.ensure(&*process, &web(&[], json!({}))).await;
                if are_replaced {
                    bed.add_nodes(3);
                    bed.nodes.drain(..3);
                }
                let before = served(&bed);
                for node in &bed.nodes {
                    let id = node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
                    let message = format!("{id} as the test says");
                    let fault = Fault::Code { status: 400, code: refusal.to_owned(), message };
                    let refused = Rule::every(fault).on("elbv2", "RegisterTargets");
                    bed.aws.fault(Rule { params: Some(id), ..refused });
                }
                for sync in 0..3 {
                    let error = process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
                    assert!(error.contains("as the test says") || error.contains("stay"), "{case}: {error}");
                    assert_eq!(served(&bed), before, "{case}, sync {sync}");
                    bed.later(Duration::from_secs(61)).await;
                }
                bed.aws.faults(Faults::clear);
                bed.ensure(&*process, &changed).await;
                let after = served(&bed);
                assert!(after.0 != before.0 && after.1 == 3, "{case}: {after:?}");
                bed.check();
            }
        }
    }
}

/// One that is left over from an earlier sync is no better than a new one.
#[tokio::test]
async fn a_listener_keeps_its_target_group_while_all_instances_are_stopped() {
    for (what, changed) in changes() {
        let bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &web(&[], json!({}))).await;
        let before = served(&bed);
        for node in &bed.nodes {
            let id = node.provider_id_or_empty().rsplit('/').next().unwrap();
            bed.aws.by_hand(ccm_cloudsim::aws::Service::Ec2, "StopInstances", &format!("InstanceId.1={id}")).unwrap();
        }
        for sync in 0..3 {
            bed.later(Duration::from_secs(61)).await;
            process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err();
            assert_eq!(served(&bed), before, "{what}, sync {sync}");
        }
    }
}
