//! Fixtures for the tests of all modules, and tests across modules.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{
    Aspects, CloudConfig, CloudProvider, FlagValues, LoadBalancer, LoadBalancerExt as _, Lookup, Node, NodeRef,
    ProviderError, ProviderFactory, Service,
};
use ccm_provider_contract::TestCluster;
use serde_json::{Value as Json, json};

use crate::{Factory, Fake};

/// A folder with the file of a cloud.
pub(crate) struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    /// Prepends a line to `text` that enables the call log.
    pub(crate) fn new(text: &str) -> Self {
        let bed = Self { folder: tempfile::tempdir().unwrap() };
        bed.write(text);
        bed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the file by renaming, as editors and ConfigMap volumes do.
    pub(crate) fn write(&self, text: &str) {
        self.write_raw(&format!("callLog: calls.jsonl\n{text}"));
    }

    pub(crate) fn write_raw(&self, text: &str) {
        std::fs::write(self.path("next"), text).unwrap();
        std::fs::rename(self.path("next"), self.path("cloud.yaml")).unwrap();
    }

    pub(crate) fn config(&self) -> CloudConfig {
        let path = self.path("cloud.yaml");
        CloudConfig { text: std::fs::read_to_string(&path).unwrap(), path }
    }

    pub(crate) fn cloud(&self) -> Fake {
        Fake::new(Some(&self.config())).unwrap()
    }

    pub(crate) fn refused(&self) -> String {
        Fake::new(Some(&self.config())).unwrap_err().to_string()
    }

    /// All lines of the call log.
    pub(crate) fn lines(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(self.path("calls.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The end lines, with the fields that are the same in every run.
    pub(crate) fn ends(&self) -> Vec<Json> {
        let end = |mut line: Json| {
            let fields = line.as_object_mut().unwrap();
            for key in ["time", "pid", "id", "phase", "ms"] {
                fields.remove(key);
            }
            line
        };
        self.lines().into_iter().filter(|line| line["phase"] == "end").map(end).collect()
    }
}

pub(crate) fn node(name: &str, provider_id: &str) -> NodeRef {
    let provider_id = Some(provider_id).filter(|id| !id.is_empty()).map(Into::into);
    Arc::new(Node { name: name.into(), provider_id, ..Node::default() })
}

pub(crate) fn service(key: &str) -> Service {
    let (namespace, name) = key.split_once('/').unwrap();
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{name}")},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
    }))
    .unwrap()
}

/// One word per answer, for comparison.
pub(crate) fn word(lookup: &Lookup) -> String {
    match lookup {
        Lookup::Found(instance) => match (&instance.shutdown, &instance.metadata) {
            (Ok(true), Ok(_)) => "shutdown".to_owned(),
            (Ok(false), Ok(_)) => "found".to_owned(),
            (shutdown, metadata) => format!("found, {shutdown:?}, {metadata:?}"),
        },
        Lookup::Gone(_) => "gone".to_owned(),
        Lookup::Foreign => "foreign".to_owned(),
        Lookup::Unknown(error) => format!("unknown: {error}"),
    }
}

pub(crate) async fn lookup(cloud: &Fake, nodes: &[NodeRef], aspects: Aspects) -> Vec<String> {
    cloud.instances().unwrap().lookup(nodes, aspects).await.iter().map(word).collect()
}

pub(crate) fn balancers(cloud: &Fake) -> Arc<dyn LoadBalancer> {
    cloud.load_balancer().unwrap()
}

/// The only ingress as JSON.
pub(crate) async fn ensure(cloud: &Fake, key: &str) -> Result<Json, ProviderError> {
    let status = balancers(cloud).ensure("kubernetes", &service(key), &[]).await?;
    Ok(json!(status.map(|status| status.ingress)))
}

#[tokio::test]
async fn without_a_file_all_defaults_hold() {
    let cloud = Factory.build(None, &FlagValues::default()).await.unwrap();
    assert_eq!((cloud.name(), cloud.has_cluster_id()), ("fake", true));
    assert!(cloud.instances().is_some() && cloud.load_balancer().is_some());
    assert!(cloud.legacy_instances().is_none() && cloud.zones().is_none() && cloud.routes().is_none());
    assert!(cloud.clusters().is_none() && cloud.volumes().is_none());
    assert_eq!(Factory.name(), "fake");
}

#[test]
fn interfaces_are_switched_one_by_one() {
    let bed = Bed::new(
        "interfaces: {instances: true, instancesV2: false, zones: true, loadBalancer: false, routes: true, \
         clusters: true, pvLabels: true}\nproviderName: other\nhasClusterID: false",
    );
    let cloud = bed.cloud();
    assert_eq!((cloud.name(), cloud.has_cluster_id()), ("other", false));
    assert!(cloud.instances().is_none() && cloud.load_balancer().is_none());
    assert!(cloud.legacy_instances().is_some() && cloud.zones().is_some() && cloud.routes().is_some());
    assert!(cloud.clusters().is_some() && cloud.volumes().is_some());
}

#[tokio::test]
async fn a_call_after_a_rename_sees_the_new_content() {
    let bed = Bed::new("unlisted: missing");
    let cloud = bed.cloud();
    let nodes = [node("a", "fake://a")];
    assert_eq!(lookup(&cloud, &nodes, Aspects::LIFECYCLE).await, ["gone"]);
    bed.write("unlisted: missing\ninstances: [{name: a}]");
    assert_eq!(lookup(&cloud, &nodes, Aspects::LIFECYCLE).await, ["found"]);
    let events: Vec<Json> = bed.lines().into_iter().filter(|line| line["event"] == "reload").collect();
    assert_eq!(events.len(), 1);
    assert!(events[0].get("error").is_none() && events[0]["pid"].is_u64() && events[0].get("phase").is_none());
}

#[tokio::test]
async fn bad_content_leaves_the_last_good_one_in_force_and_is_logged_once() {
    let bed = Bed::new("unlisted: missing");
    let cloud = bed.cloud();
    let nodes = [node("a", "fake://a")];
    bed.write("unlisted: mising");
    for _ in 0..3 {
        assert_eq!(lookup(&cloud, &nodes, Aspects::LIFECYCLE).await, ["gone"]);
    }
    std::fs::remove_file(bed.path("cloud.yaml")).unwrap();
    for _ in 0..3 {
        assert_eq!(lookup(&cloud, &nodes, Aspects::LIFECYCLE).await, ["gone"]);
    }
    bed.write("unlisted: invent");
    assert_eq!(lookup(&cloud, &nodes, Aspects::LIFECYCLE).await, ["found"]);
    let errors: Vec<bool> = bed
        .lines()
        .into_iter()
        .filter(|line| line["event"] == "reload")
        .map(|line| line.get("error").is_some())
        .collect();
    assert_eq!(errors, [true, true, false]);
}

#[tokio::test]
async fn keys_of_the_start_keep_their_value() {
    let bed = Bed::new("providerName: one");
    let cloud = bed.cloud();
    bed.write_raw("providerName: two\nhasClusterID: false\ninterfaces: {loadBalancer: false}\ncallLog: other.jsonl");
    assert_eq!(ensure(&cloud, "default/a").await.unwrap(), json!([{"ip": "203.0.113.1"}]));
    assert_eq!((cloud.name(), cloud.has_cluster_id()), ("one", true));
    assert!(cloud.load_balancer().is_some());
    assert!(!bed.path("other.jsonl").exists());
    let answers = cloud.instances().unwrap().lookup(&[node("a", "")], Aspects::METADATA).await;
    let Lookup::Found(instance) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(instance.metadata.as_ref().unwrap().as_ref().unwrap().provider_id, "one://a");
}

#[tokio::test(start_paused = true)]
async fn lines_have_the_documented_fields() {
    let bed = Bed::new("faults: [{id: slow, call: GetLoadBalancer, delay: 1.5s}]");
    let cloud = bed.cloud();
    balancers(&cloud).get("kubernetes", &service("default/a")).await.unwrap();
    balancers(&cloud).ensure_deleted("kubernetes", &service("default/a")).await.unwrap();
    let lines = bed.lines();
    let args = json!({"cluster": "kubernetes", "service": "default/a", "uid": "uid-of-a", "name": "auidofa"});
    for (line, (id, phase, call)) in lines.iter().zip([
        (1, "start", "GetLoadBalancer"),
        (1, "end", "GetLoadBalancer"),
        (2, "start", "EnsureLoadBalancerDeleted"),
        (2, "end", "EnsureLoadBalancerDeleted"),
    ]) {
        assert_eq!((&line["id"], &line["phase"], &line["call"]), (&json!(id), &json!(phase), &json!(call)));
        assert_eq!((&line["args"], &line["pid"]), (&args, &json!(std::process::id())));
        let time = line["time"].as_str().unwrap();
        assert_eq!((time.len(), time.ends_with('Z'), &time[10..11], &time[19..20]), (27, true, "T", "."));
        assert_eq!(line.get("ms").is_some(), phase == "end");
        assert!(line.get("as").is_none() && line.get("event").is_none() && line.get("error").is_none());
    }
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[1]["ms"], &lines[1]["fault"]), (&json!(1500), &json!("slow")));
    assert_eq!(lines[1]["result"], json!({"exists": false, "status": null}));
    assert!(lines[0].get("fault").is_none() && lines[3].get("fault").is_none() && lines[3].get("result").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_gets_its_end_line() {
    let bed = Bed::new("faults: [{id: slow, call: '*', delay: 1h, error: x}]");
    let cloud = bed.cloud();
    let cancelled = tokio::time::timeout(Duration::from_secs(2), ensure(&cloud, "default/a")).await;
    assert!(cancelled.is_err());
    let nodes = [node("a", "")];
    let batch = lookup(&cloud, &nodes, Aspects::LIFECYCLE);
    assert!(tokio::time::timeout(Duration::from_secs(3), batch).await.is_err());
    let lines = bed.lines();
    assert_eq!(lines.len(), 4);
    for (line, ms) in [(&lines[1], 2000), (&lines[3], 3000)] {
        assert_eq!((&line["error"], &line["kind"]), (&json!("context canceled"), &json!("Other")));
        assert_eq!((&line["fault"], &line["ms"], line.get("result")), (&json!("slow"), &json!(ms), None));
    }
}

#[tokio::test]
async fn the_log_is_appended_to_by_several_writers() {
    let bed = Bed::new("");
    std::fs::write(bed.path("calls.jsonl"), "{\"old\": true}\n").unwrap();
    let (one, two) = (bed.cloud(), bed.cloud());
    for _ in 0..20 {
        ensure(&one, "default/a").await.unwrap();
        ensure(&two, "default/b").await.unwrap();
    }
    let lines = bed.lines();
    assert_eq!((lines.len(), &lines[0]["old"]), (81, &json!(true)));
    assert_eq!((&lines[77]["id"], &lines[80]["id"]), (&json!(20), &json!(20)));
}

#[tokio::test]
async fn initialize_and_informers_are_calls_too() {
    let bed = Bed::new("faults: [{id: f, call: [Initialize, SetInformers], error: x}]");
    let cloud = bed.cloud();
    Fake::note(&cloud.cloud, crate::method::Method::Initialize).await;
    cloud.informer_user().unwrap().set_informers(Arc::new(TestCluster::default())).await;
    let end = |call: &str| json!({"call": call, "args": {}, "error": "x", "kind": "Other", "fault": "f"});
    assert_eq!(bed.ends(), [end("Initialize"), end("SetInformers")]);
}

#[test]
fn a_bad_file_stops_the_start_and_names_file_and_key() {
    let bed = Bed::new("unlistd: missing");
    let error = bed.refused();
    assert!(error.ends_with("cloud.yaml: unlistd: unknown key; did you mean \"unlisted\"?"), "{error}");
    bed.write_raw("callLog: no/such/folder.jsonl");
    let error = bed.refused();
    assert!(error.contains("callLog: cannot open ") && error.contains("no/such/folder.jsonl"), "{error}");
    bed.write_raw("stateFile: .");
    assert!(bed.refused().contains("stateFile: "), "{}", bed.refused());
}

/// The text between the fences of the first block of that language.
fn fenced(language: &str) -> String {
    let readme = include_str!("../README.md");
    let (_, rest) = readme.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

#[tokio::test]
async fn the_example_of_the_readme_works_as_described() {
    let bed = Bed { folder: tempfile::tempdir().unwrap() };
    bed.write_raw(&fenced("yaml"));
    let cloud = bed.cloud();
    let answers = cloud.instances().unwrap().lookup(&[node("worker-1", "")], Aspects::METADATA).await;
    let Lookup::Found(instance) = &answers[0] else { panic!("{answers:?}") };
    let metadata = instance.metadata.clone().unwrap().unwrap();
    assert_eq!((metadata.node_addresses.len(), &*metadata.additional_labels["example.com/rack"]), (2, "r7"));
    assert_eq!((&*metadata.zone, &*metadata.region), ("here-a", "here"));
    let nodes = [node("worker-2", "fake://worker-2"), node("other", "fake://other")];
    assert_eq!(lookup(&cloud, &nodes, Aspects::LIFECYCLE).await, ["shutdown", "unknown: unlisted instance"]);
    for _ in 0..2 {
        let error = ensure(&cloud, "default/web").await.unwrap_err();
        assert_eq!((error.to_string(), error.retry_after()), ("quota exhausted".into(), Some(Duration::from_secs(10))));
    }
    assert_eq!(ensure(&cloud, "default/web").await.unwrap(), json!([{"ip": "203.0.113.1", "ipMode": "VIP"}]));
    assert_eq!(ensure(&cloud, "x/public").await.unwrap(), json!([{"hostname": "public.example.com"}]));
    assert!(!bed.lines().is_empty());
}

#[test]
fn every_fenced_yaml_of_the_pages_parses() {
    let pages = concat!(include_str!("../README.md"), include_str!("../docs/file.md"));
    let blocks: Vec<&str> =
        pages.split("\n```yaml\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect();
    assert!(blocks.len() > 5);
    for block in blocks {
        crate::config::Config::parse(block, std::path::Path::new(""), None).unwrap_or_else(|e| panic!("{e}\n{block}"));
    }
}
