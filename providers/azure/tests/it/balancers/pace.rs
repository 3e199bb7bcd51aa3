//! Busy objects and throttled classes of calls hold back nothing else.

use std::convert::Infallible;
use std::time::Duration;

use ccm_cloudsim::azure::Azure;
use ccm_cloudsim::core::faults::{Fault, Rule};
use futures::FutureExt as _;

use super::*;

/// Time runs so many times as fast, here and in the cloud.
const TIMES: u32 = 20;
const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

pub(crate) async fn haste(cloud: &Azure) -> Infallible {
    const TICK: Duration = Duration::from_millis(5);
    loop {
        tokio::time::sleep(TICK).await;
        cloud.settled().await;
        cloud.clock().step(TICK * (TIMES - 1));
        tokio::time::pause();
        let _ = tokio::time::advance(TICK * (TIMES - 1)).now_or_never();
        tokio::time::resume();
    }
}

/// Calls as the core does: what is not done is called again after the time that it asks for.
pub(super) async fn ensured(scene: &Scene, names: &[&str]) {
    let balancers = scene.balancers();
    let mut left = scene.work(names, ServiceAction::Ensure);
    while !left.is_empty() {
        let answers = balancers.reconcile(CLUSTER, &left, &Scope::default()).await;
        let mut wait = Duration::from_secs(60);
        let is_left = |answer: ServiceAnswer| match answer.result {
            Err(error) => {
                wait = wait.min(error.retry_after().unwrap_or_else(|| panic!("{error}")));
                true
            }
            Ok(_) => false,
        };
        let again: Vec<bool> = answers.into_iter().map(is_left).collect();
        let mut again = again.into_iter();
        left.retain(|_| again.next().unwrap());
        if !left.is_empty() {
            tokio::time::sleep(wait).await;
        }
    }
}

async fn two() -> Scene {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web", &[], port(80));
    scene.service("api", &[INTERNAL], port(81));
    scene.ensure(&["web", "api"]).await;
    scene
}

/// Begin, action, last part of the path, and status of the calls of Microsoft.Network, without looks at operations.
fn calls(scene: &Scene, mark: u64) -> Vec<(jiff::Timestamp, String, String, u16)> {
    scene.bed.cloud.ledger(|ledger| {
        let all = ledger.since(mark).filter(|entry| entry.service == "network" && entry.action != "operations.get");
        let part = |params: &str| {
            let path = params.split('&').next().unwrap_or_default();
            path.rsplit('/').next().unwrap_or_default().to_owned()
        };
        all.map(|entry| (entry.at, entry.action.clone(), part(&entry.params), entry.status)).collect()
    })
}

#[tokio::test]
async fn a_busy_load_balancer_delays_no_other_object() {
    let mut scene = two().await;
    let busy = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes");
    let until = scene.bed.cloud.clock().now() + Duration::from_secs(60);
    scene.bed.cloud.busy(&busy, until);
    scene.service("web", &[], port(82));
    scene.spec("api", &[INTERNAL], json!({"ports": port(83), "loadBalancerSourceRanges": ["10.0.0.0/8"]}));
    let mark = scene.mark();
    tokio::select! {
        () = ensured(&scene, &["web", "api"]) => {}
        never = haste(&scene.bed.cloud) => match never {},
    }
    let calls = calls(&scene, mark);
    let at = |action: &str, part: &str| -> Vec<usize> {
        let is_it = |(_, (_, of, path, _)): &(usize, &(_, String, String, _))| of == action && path == part;
        calls.iter().enumerate().filter(is_it).map(|(place, _)| place).collect()
    };
    let tries = at("loadBalancers.put", "kubernetes");
    assert!((2..=12).contains(&tries.len()), "{calls:#?}");
    // The others are written before the busy one is tried again.
    assert!(at("loadBalancers.put", "kubernetes-internal")[0] < tries[1], "{calls:#?}");
    assert!(at("networkSecurityGroups.put", "nsg")[0] < tries[1], "{calls:#?}");
    assert_eq!(
        items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules")[0]["properties"]["frontendPort"],
        82
    );
}

#[tokio::test]
async fn a_throttled_class_is_left_alone_as_long_as_asked_and_others_go_on() {
    let mut scene = two().await;
    scene.bed.cloud.change(|options| options.throttle_after = 30);
    scene.bed.cloud.fault(Rule::every(Fault::Throttle).on("network", "loadBalancers.put").window(0, 1));
    scene.service("web", &[], port(82));
    let mark = scene.mark();
    let throttled =
        |calls: &[(jiff::Timestamp, String, String, u16)]| calls.iter().find(|call| call.3 == 429).map(|call| call.0);
    let others = async {
        while throttled(&calls(&scene, mark)).is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        scene.balancers().get(CLUSTER, &scene.services["api"]).await.unwrap();
    };
    tokio::select! {
        _ = futures::future::join(ensured(&scene, &["web"]), others) => {}
        never = haste(&scene.bed.cloud) => match never {},
    }
    let calls = calls(&scene, mark);
    let since = throttled(&calls).unwrap();
    let pause = since..since + Duration::from_secs(30);
    let during: Vec<_> = calls.iter().filter(|call| call.3 != 429 && pause.contains(&call.0)).collect();
    let is_write = |action: &str| action.ends_with(".put") || action.ends_with(".delete");
    assert!(!during.iter().any(|call| is_write(&call.1)), "{during:#?}");
    assert!(during.iter().any(|call| call.1 == "loadBalancers.list"), "reads go on: {during:#?}");
    assert!(calls.iter().any(|call| call.1 == "loadBalancers.put" && call.3 < 300), "{calls:#?}");
    // The write has succeeded; its throttled answer counts.
    let metrics = scene.provider.metrics().unwrap();
    let upstream = [("request", "load_balancers_create_or_update"), ("resource_group", "rg")];
    assert_eq!(metrics.value("cloudprovider_azure_api_request_throttled_count", &upstream), Some(1.0));
    let arm = [("resource", "LoadBalancer"), ("method", "create_or_update"), ("resource_group", "rg")];
    assert_eq!(metrics.value("arm_request_throttle_counter_total", &arm), Some(1.0));
}
