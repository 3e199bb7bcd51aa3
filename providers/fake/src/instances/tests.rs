use std::time::Duration;

use super::*;
use crate::tests::{Bed, lookup, node};
use ccm_provider::CloudProvider;
use serde_json::json;

const EXISTENCE: Aspects = Aspects { existence: true, shutdown: false, addresses: false, metadata: false };

fn config(text: &str) -> Config {
    Config::parse(text, std::path::Path::new(""), None).unwrap()
}

/// The type of the found instance.
fn found(text: &str, name: &str, id: &str) -> Result<Option<String>, String> {
    find(&config(text), "fake", name, id)
        .map(|known| known.map(|known| known.metadata.instance_type))
        .map_err(|error| error.to_string())
}

fn one(kind: &str) -> Result<Option<String>, String> {
    Ok(Some(kind.to_owned()))
}

#[test]
fn the_first_entry_with_the_provider_id_or_the_name_without_an_id_is_found() {
    let text = "
unlisted: missing
instances:
- {name: a, providerID: 'fake://1', type: first}
- {name: a, providerID: 'fake://2', type: second}
- {name: b, providerID: '', type: no-id}
- {name: c, type: default-id}
";
    for (name, id, want) in [
        ("a", "fake://1", one("first")),
        ("a", "fake://2", one("second")),
        ("other", "fake://2", one("second")),
        ("a", "", one("first")),
        ("a", "fake://3", Ok(None)),
        ("", "fake://2", one("second")),
        ("b", "", one("no-id")),
        ("b", "fake://9", one("no-id")),
        ("", "", Ok(None)),
        ("c", "fake://c", one("default-id")),
        ("c", "fake://x", Ok(None)),
        ("", "fake://c", one("default-id")),
        ("", "c", Ok(None)),
    ] {
        assert_eq!(found(text, name, id), want, "{name:?} {id:?}");
    }
}

#[test]
fn the_entry_that_comes_first_wins_whichever_way_it_matches() {
    let text = "instances: [{name: a, providerID: '', type: by-name}, {name: b, providerID: 'fake://1', type: by-id}]";
    assert_eq!(found(text, "a", "fake://1"), one("by-name"));
}

#[test]
fn unlisted_instances_are_invented_missing_or_an_error() {
    assert_eq!(found("unlisted: missing", "a", "fake://a"), Ok(None));
    assert_eq!(found("unlisted: error", "a", ""), Err("unlisted instance".into()));
    let text = "zone: {failureDomain: z, region: r}";
    let known = |name, id| find(&config(text), "fake", name, id).unwrap().unwrap();
    let metadata = known("a", "").metadata;
    assert_eq!((&*metadata.provider_id, &*metadata.instance_type), ("fake://a", "fake.small"));
    assert_eq!((&*metadata.zone, &*metadata.region, metadata.node_addresses.len()), ("z", "r", 0));
    assert_eq!(known("a", "aws:///x/i-1").metadata.provider_id, "aws:///x/i-1");
    assert_eq!(known("", "fake://b").metadata.provider_id, "fake://b");
    assert_eq!((known("", "fake://b").instance_id, known("b", "").instance_id), ("b".into(), "b".into()));
    // An empty ID finds nothing, and no instance can be invented from it.
    assert_eq!(found("", "", ""), Ok(None));
}

#[test]
fn defaults_of_an_entry_come_from_its_name_and_the_top_level_zone() {
    let text = "
zone: {failureDomain: z, region: r}
instances:
- {name: a}
- {name: b, providerID: 'fake:///x/b', zone: '', region: other}
- {name: c, instanceID: i-c, providerID: ''}
- {name: d, providerID: 'x://d'}
";
    let known = |name| find(&config(text), "fake", name, "").unwrap().unwrap();
    let a = known("a");
    assert_eq!((&*a.metadata.provider_id, &*a.instance_id, &*a.metadata.instance_type), ("fake://a", "a", ""));
    assert_eq!((&*a.metadata.zone, &*a.metadata.region), ("z", "r"));
    let b = known("b");
    assert_eq!((&*b.instance_id, &*b.metadata.zone, &*b.metadata.region), ("/x/b", "", "other"));
    assert_eq!((&*known("c").instance_id, &*known("c").metadata.provider_id), ("i-c", ""));
    assert_eq!(known("d").instance_id, "x://d");
}

#[test]
fn exists_false_is_as_if_it_were_not_there_and_not_unlisted() {
    assert_eq!(found("{unlisted: error, instances: [{name: a, exists: false}]}", "a", ""), Ok(None));
}

#[tokio::test]
async fn metadata_is_reported_in_the_order_of_the_file() {
    let bed = Bed::new(
        "instances: [{name: a, type: t, zone: z, region: r, labels: {l: v}, addresses: [{type: ExternalIP, address: \
         198.51.100.1}, {type: InternalIP, address: 10.0.0.1}, {type: Hostname, address: a}]}]",
    );
    let cloud = bed.cloud();
    lookup(&cloud, &[node("a", "")], Aspects::METADATA).await;
    assert_eq!(
        bed.ends(),
        [json!({"call": "Lookup", "as": "InstanceMetadata", "args": {"nodes": ["a"]}, "result": [{"result": {
            "ProviderID": "fake://a", "InstanceType": "t", "Zone": "z", "Region": "r",
            "AdditionalLabels": {"l": "v"},
            "NodeAddresses": [{"type": "ExternalIP", "address": "198.51.100.1"},
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "a"}],
        }}]})]
    );
}

#[tokio::test]
async fn no_metadata_is_an_answer_without_error() {
    let bed = Bed::new("instances: [{name: a, noMetadata: true}]");
    let cloud = bed.cloud();
    let answers = cloud.instances().unwrap().lookup(&[node("a", "")], Aspects::METADATA).await;
    assert!(matches!(&answers[0], Lookup::Found(i) if matches!(i.metadata, Ok(None))), "{answers:?}");
    assert_eq!(bed.ends()[0]["result"], json!([{"result": null}]));
}

#[tokio::test]
async fn absence_is_evidence_with_the_grace_of_the_file() {
    let bed = Bed::new("unlisted: missing\nabsenceGrace: 1m30s");
    let cloud = bed.cloud();
    let before = std::time::SystemTime::now();
    let answers = cloud.instances().unwrap().lookup(&[node("a", "fake://a")], Aspects::LIFECYCLE).await;
    let Lookup::Gone(evidence) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!((&evidence.kind, evidence.grace), (&EvidenceKind::Absent, Duration::from_secs(90)));
    assert!(evidence.read_began >= before && evidence.read_began <= std::time::SystemTime::now());
}

#[tokio::test]
async fn each_aspect_is_one_call_about_those_not_known_to_be_gone() {
    let bed = Bed::new("unlisted: missing\ninstances: [{name: a, shutdown: true}, {name: c}]");
    let cloud = bed.cloud();
    let nodes = [node("a", ""), node("b", ""), node("c", "")];
    let all = Aspects::ALL;
    assert_eq!(lookup(&cloud, &nodes, all).await, ["shutdown", "gone", "found"]);
    let calls: Vec<_> = bed.ends().iter().map(|end| (end["as"].clone(), end["args"]["nodes"].clone())).collect();
    assert_eq!(
        calls,
        [
            (json!("InstanceExists"), json!(["a", "b", "c"])),
            (json!("InstanceShutdown"), json!(["a", "c"])),
            (json!("InstanceMetadata"), json!(["a", "c"])),
        ]
    );
    assert_eq!(bed.ends()[0]["result"], json!([{"result": true}, {"result": false}, {"result": true}]));
}

#[tokio::test]
async fn an_empty_lookup_makes_no_call() {
    let bed = Bed::new("unlisted: missing");
    let cloud = bed.cloud();
    assert!(lookup(&cloud, &[], Aspects::LIFECYCLE).await.is_empty());
    assert_eq!(bed.lines().len(), 0);
    assert_eq!(lookup(&cloud, &[node("a", "")], Aspects::LIFECYCLE).await, ["gone"]);
    assert_eq!(bed.ends().len(), 1);
}

#[tokio::test]
async fn a_missing_instance_is_unknown_in_a_lookup_of_metadata_only() {
    let bed = Bed::new("unlisted: missing");
    let cloud = bed.cloud();
    let nodes = [node("a", "")];
    assert_eq!(lookup(&cloud, &nodes, Aspects::METADATA).await, ["unknown: instance not found"]);
    assert_eq!(lookup(&cloud, &nodes, Aspects::ADDRESSES).await, ["unknown: instance not found"]);
    let end = &bed.ends()[0];
    assert_eq!((&end["error"], &end["kind"]), (&json!("instance not found"), &json!("InstanceNotFound")));
}

#[tokio::test]
async fn a_failing_call_makes_only_its_node_unknown() {
    let bed = Bed::new(
        "faults:\n- {id: f1, call: InstanceExists, node: b, error: down}\n- {id: f2, call: InstanceShutdown, providerID: 'x*', error: busy}",
    );
    let cloud = bed.cloud();
    let nodes = [node("a", ""), node("b", ""), node("c", "x://c")];
    let answers = cloud.instances().unwrap().lookup(&nodes, Aspects::LIFECYCLE).await;
    assert!(matches!(&answers[0], Lookup::Found(i) if matches!(i.shutdown, Ok(false))));
    assert!(matches!(&answers[1], Lookup::Unknown(error) if error.to_string() == "down"));
    assert!(matches!(&answers[2], Lookup::Found(i) if i.shutdown.is_err()));
    let ends = bed.ends();
    assert_eq!(
        ends[0]["result"],
        json!([{"result": true}, {"error": "down", "kind": "Other", "fault": "f1"}, {"result": true}])
    );
    assert_eq!((&ends[0]["fault"], ends[0].get("error")), (&json!("f1"), None));
    assert_eq!(ends[1]["args"]["nodes"], json!(["a", "c"]));
}

#[tokio::test]
async fn when_every_node_fails_the_line_has_the_error_too() {
    let bed =
        Bed::new("faults: [{id: f, call: InstanceExists, error: quota, kind: Retry, retryAfter: 90s, wrap: ctx}]");
    let cloud = bed.cloud();
    assert_eq!(lookup(&cloud, &[node("a", ""), node("b", "")], EXISTENCE).await, ["unknown: ctx: quota"; 2]);
    let end = &bed.ends()[0];
    assert_eq!((&end["error"], &end["kind"]), (&json!("ctx: quota"), &json!("Retry")));
    assert_eq!((&end["retryAfter"], &end["fault"]), (&json!("1m30s"), &json!("f")));
}

#[tokio::test(start_paused = true)]
async fn delays_wait_once_per_batch_and_as_long_as_the_longest() {
    let bed = Bed::new("faults: [{id: x, call: Lookup, node: a, delay: 2s}, {id: y, call: Instance*, delay: 1s}]");
    let cloud = bed.cloud();
    let began = tokio::time::Instant::now();
    let nodes: Vec<_> = ["a", "b", "c"].map(|name| node(name, "")).into();
    assert_eq!(lookup(&cloud, &nodes, EXISTENCE).await, ["found"; 3]);
    assert_eq!(began.elapsed().as_secs(), 2);
    assert_eq!((&bed.lines()[1]["ms"], &bed.lines()[1]["fault"]), (&json!(2000), &json!("x,y")));
}

#[tokio::test]
async fn applications_are_counted_per_node() {
    let bed = Bed::new("faults: [{call: InstanceExists, after: 1, times: 2, error: x}]");
    let cloud = bed.cloud();
    let nodes: Vec<_> = ["a", "b", "c", "d"].map(|name| node(name, "")).into();
    assert_eq!(lookup(&cloud, &nodes, EXISTENCE).await, ["found", "unknown: x", "unknown: x", "found"]);
}

#[tokio::test]
async fn results_are_replaced_per_node() {
    let bed = Bed::new(
        "faults:\n- {call: InstanceExists, node: a, result: false}\n- {call: InstanceShutdown, node: b, result: true}\n\
         - {call: InstanceMetadata, node: b, result: null}",
    );
    let cloud = bed.cloud();
    let nodes = [node("a", ""), node("b", "")];
    let all = Aspects::ALL;
    assert_eq!(lookup(&cloud, &nodes, all).await, ["gone", "shutdown"]);
    assert_eq!(bed.ends()[2]["result"], json!([{"result": null, "fault": ""}]));
}
