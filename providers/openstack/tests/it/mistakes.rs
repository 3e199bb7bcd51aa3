//! Mistakes in annotations: the error or an event names key and value.

use futures::{StreamExt as _, future, stream};
use serde_json::json;

use crate::scene::{PREFIX, Scene, service, set};

const NOWHERE: &str = "0badbad0-1111-4222-8333-444455556666";

/// A wrong value of each annotation.
const WRONG: &[(&str, &str)] = &[
    ("class", "n0-such-class"),
    ("connection-limit", "many"),
    ("connection-limit", "-7"),
    ("default-tls-container-ref", "https://barbican/v1/orders/x"),
    ("enable-health-monitor", "yes"),
    ("enable-ingress-hostname", "yes"),
    ("flavor-id", NOWHERE),
    ("availability-zone", "n0where"),
    ("floating-network-id", NOWHERE),
    ("floating-subnet", "~["),
    ("floating-subnet", "no-such-*"),
    ("floating-subnet-id", NOWHERE),
    ("floating-subnet-tags", "no-such-tag"),
    ("health-monitor-delay", "5s"),
    ("health-monitor-delay", "-3"),
    ("health-monitor-max-retries", "x"),
    ("health-monitor-max-retries", "11"),
    ("health-monitor-max-retries-down", "x"),
    ("health-monitor-max-retries-down", "0"),
    ("health-monitor-timeout", "5s"),
    ("health-monitor-timeout", "3600"),
    ("hostname", "not a host name"),
    ("hostname", "203.0.113.9"),
    ("hostname", "203.0.113.09"),
    ("keep-floatingip", "yes"),
    ("lb-method", "FASTEST"),
    ("load-balancer-id", NOWHERE),
    ("member-subnet-id", NOWHERE),
    ("network-id", NOWHERE),
    ("node-selector", "no-node=has-it"),
    ("port-id", NOWHERE),
    ("proxy-protocol", "v3"),
    ("recreate-in-error", "yes"),
    ("subnet-id", NOWHERE),
    ("timeout-client-data", "5s"),
    ("timeout-client-data", "-7"),
    ("timeout-member-connect", "5s"),
    ("timeout-member-data", "5s"),
    ("timeout-tcp-inspect", "5s"),
    ("x-forwarded-for", "yes"),
    ("service.beta.kubernetes.io/openstack-internal-load-balancer", "yes"),
];

/// Those for which any text is right.
const FREE: &[&str] = &["load-balancer-address", "load-balancer-tags", "listener-tags", "pool-tags"];

#[test]
fn each_annotation_has_a_wrong_value_here() {
    let reference = ccm_provider_openstack::reference("annotations").unwrap();
    let keys = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_common = |key: &&str| *key == "service.beta.kubernetes.io/load-balancer-source-ranges";
    let here = |key: &str| WRONG.iter().map(|(key, _)| key).chain(FREE).any(|here| key.ends_with(here));
    let missing: Vec<&str> = keys.filter(|key| !is_common(key) && !here(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What is said about a Service with a wrong value, if that does not have key and value.
async fn unnamed((key, value): &(&'static str, &'static str)) -> Option<String> {
    let mut scene = Scene::simulated().await;
    scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
    let mut bad = service("bad", &[(80, 30080)], json!({}));
    set(&mut bad, key, value);
    let key = if key.contains('/') { (*key).to_owned() } else { format!("{PREFIX}{key}") };
    let answer = scene.try_ensure(&mut bad).await.map_err(|error| error.to_string());
    let said = format!("{:?} {answer:?}", scene.events());
    scene.delete(&mut bad).await;
    scene.is_empty().await;
    (!said.contains(&key) || !said.contains(value)).then(|| format!("{key} {value:?}: {said}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_value_is_named_with_its_key() {
    let unnamed: Vec<String> =
        stream::iter(WRONG).map(unnamed).buffer_unordered(8).filter_map(future::ready).collect().await;
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}
