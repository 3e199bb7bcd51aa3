//! The metrics, compared with those of the Go program.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_runtime::metrics::Def;
use ccm_test_suite::{Rig, node, service};

const REFERENCE: &str = include_str!("metrics_reference.txt");

/// One metric: type, labels, upper bounds.
#[derive(Debug, Clone, Default, PartialEq)]
struct Shape {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<String>,
}

/// The reference, and whether the metric always exists.
fn reference() -> BTreeMap<String, (bool, Shape)> {
    let rows = REFERENCE.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let mut words = row.split(' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("a word is missing in {row:?}"));
        let (name, when, kind, labels) = (next(), next(), next(), next());
        assert!(["always", "used"].contains(&when), "{row}");
        let labels = labels.split(',').filter(|label| *label != "-").map(str::to_owned).collect();
        let shape = Shape { kind: kind.to_owned(), labels, bounds: words.map(str::to_owned).collect() };
        (name.to_owned(), (when == "always", shape))
    })
    .collect()
}

/// All metrics that the program can export.
pub(crate) fn table() -> Vec<&'static Def> {
    let mut table = ccm_runtime::metrics_reference();
    table.extend(ccm_controllers::metrics_reference());
    table.extend(ccm::metrics_reference());
    table
}

/// The families of a scrape. Labels and bounds are empty for a family without samples.
fn families(text: &str) -> BTreeMap<String, Shape> {
    let mut families: BTreeMap<String, Shape> = BTreeMap::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            let first = families.insert(name.to_owned(), Shape { kind: kind.to_owned(), ..Shape::default() });
            assert_eq!(first, None, "{name} is defined twice");
        }
        if line.starts_with('#') {
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let family = ["", "_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|suffix| name.strip_suffix(suffix).filter(|family| families.contains_key(*family)))
            .unwrap_or_else(|| panic!("{line} has no type"));
        let shape = families.get_mut(family).unwrap();
        for (key, value) in labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\"")) {
            let value = value.trim_end_matches('"');
            if key != "le" {
                shape.labels.insert(key.to_owned());
            } else if value != "+Inf" && !shape.bounds.iter().any(|bound| bound == value) {
                shape.bounds.push(value.to_owned());
            }
        }
    }
    families
}

#[test]
fn the_table_agrees_with_the_reference_and_our_metrics_have_our_prefix() {
    let reference = reference();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for def in table() {
        assert!(names.insert(def.name), "{} is defined twice", def.name);
        let Some((_, shape)) = reference.get(def.name) else {
            assert!(def.name.starts_with("ccm_"), "{} is neither in the reference nor called ccm_…", def.name);
            continue;
        };
        assert_eq!(def.kind.to_string(), shape.kind, "{}", def.name);
        let labels: BTreeSet<String> = def.labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(labels, shape.labels, "{}", def.name);
        let bounds: Vec<f64> = shape.bounds.iter().map(|bound| bound.parse().unwrap()).collect();
        assert_eq!(def.buckets, bounds, "{}", def.name);
    }
    let missing: Vec<&String> = reference.keys().filter(|name| !names.contains(name.as_str())).collect();
    assert_eq!(missing, [""; 0], "not in the table");
}

#[tokio::test(start_paused = true)]
async fn a_manager_shows_every_metric_with_its_type_labels_and_buckets() {
    let cloud = "zone: {failureDomain: z1, region: r1}\ninterfaces: {routes: true}\nunlisted: invent";
    let rig = Rig::new(cloud).await;
    rig.create(node("a").uninitialized().pod_cidr("10.8.1.0/24")).await;
    rig.create(service("s")).await;
    let args = ["--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/14", "--leader-elect=true"];
    let manager = rig.start(&[args[0], args[1], args[2], "--leader-elect-resource-name=metrics"]).await;
    rig.until_service("s", "has an address", |service| !service.ingress().is_empty()).await;
    rig.until_event("a", "Synced").await;
    rig.until_calls("CreateRoute", 1).await;
    rig.pass(Duration::from_secs(30)).await;
    let shown = families(&manager.metrics());

    let reference = reference();
    for (name, (always, shape)) in &reference {
        match shown.get(name) {
            // A family without a sample cannot be compared.
            Some(found) if found.labels.is_empty() && !shape.labels.is_empty() => {
                assert!(!always, "{name} has no sample");
            }
            Some(found) => assert_eq!(found, shape, "{name}"),
            None => assert!(!always, "{name} is missing"),
        }
    }
    let table = table();
    for name in shown.keys() {
        assert!(table.iter().any(|def| def.name == name), "{name} is not in the table");
        assert!(reference.contains_key(name) || name.starts_with("ccm_"), "{name}");
    }
    for ours in [
        "ccm_lease_state",
        "ccm_nodes_awaiting_initialization",
        "ccm_observation_age_seconds",
        "ccm_plan_steps_total",
        "ccm_provider_calls_total",
        "ccm_provider_throttled_total",
        "ccm_queue_oldest_seconds",
        "ccm_store_age_seconds",
    ] {
        assert!(shown.contains_key(ours), "{ours} is missing");
    }
    let gate = "kubernetes_feature_enabled{name=\"CloudControllerManagerWebhook\",stage=\"ALPHA\"}";
    assert_eq!(manager.metric(gate), Some(0.0));
    assert_eq!(manager.metric("ccm_nodes_awaiting_initialization"), Some(0.0));
    assert_eq!(manager.metric("ccm_lease_state{state=\"leading\"}"), Some(1.0));
    assert!(manager.metric("ccm_observation_age_seconds{of=\"routes\"}").unwrap() <= 10.0);
    manager.stop().await.unwrap();
}
