//! Load balancers for Services.

mod cleanup;
mod conditions;
mod drift;
mod elsewhere;
pub(crate) mod endpoints;
mod ensure;
mod groups;
mod hosts;
mod notes;
mod panics;
mod pools;
mod slots;

use std::time::Duration;

use ccm_test_apiserver::{Effect, Fault, Match, WriteEntry};
use ccm_test_suite::{Object, Rig, Running, node, service};
use serde_json::{Value, json};

const SERVICES: &str = "--controllers=service";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const MINUTE: Duration = Duration::from_secs(60);
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn has_address(service: &Object) -> bool {
    !service.ingress().is_empty()
}

/// A node that may be a host of load balancers.
async fn add_node(rig: &Rig, name: &str) {
    rig.create(node(name).provider_id(&format!("fake://{name}"))).await;
}

/// A manager, a node `n`, and a Service `s` without its load balancer.
async fn unbalanced(cloud: &str) -> (Rig, Running) {
    let rig = Rig::new(cloud).await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES]).await;
    (rig, manager)
}

/// The same after the load balancer is there.
async fn balanced(cloud: &str) -> (Rig, Running) {
    let (rig, manager) = unbalanced(cloud).await;
    rig.until_service("s", "has an address", has_address).await;
    (rig, manager)
}

/// Bodies of the writes to a Service, with the subresource, and without the UID in each of them.
fn bodies(rig: &Rig, name: &str) -> Vec<(String, String)> {
    let writes = rig.writes_of("services", name);
    let body = |mut write: WriteEntry| {
        let metadata = write.body["metadata"].as_object_mut().unwrap();
        assert!(metadata.remove("uid").is_some(), "{}", write.body);
        if write.body["metadata"] == json!({}) {
            write.body.as_object_mut().unwrap().remove("metadata");
        }
        (write.subresource, write.body.to_string())
    };
    writes.into_iter().map(body).collect()
}

/// The hosts of each call, in order.
fn hosts(rig: &Rig, call: &str, service: &str) -> Vec<String> {
    let calls =
        rig.cloud.calls(call).into_iter().filter(|call| call["args"]["service"] == format!("default/{service}"));
    let names = |call: Value| {
        let names: Vec<&str> = call["args"]["nodes"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        names.join(" ")
    };
    calls.map(names).collect()
}

async fn reasons(rig: &Rig, name: &str) -> Vec<String> {
    let events = rig.events(name).await;
    events.iter().map(|event| event.split([' ', ':']).nth(1).unwrap_or_default().to_owned()).collect()
}

/// Whether each time is within a second of the expected one.
#[track_caller]
fn assert_moments(moments: &[Duration], wanted: &[u64]) {
    let close = |(moment, wanted): (&Duration, &u64)| moment.as_secs_f64() - (*wanted as f64);
    let off: Vec<f64> = moments.iter().zip(wanted).map(close).collect();
    assert!(moments.len() == wanted.len() && off.iter().all(|off| off.abs() < 1.0), "{moments:?}, not {wanted:?}");
}
