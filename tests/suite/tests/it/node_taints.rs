//! Taints from a provider's own controller: out-of-service while the instance of a node is stopped.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::TAINT_SHUTDOWN;
use ccm_provider::{
    CloudConfig, CloudProvider, FlagValues, InstancesV2, Node, NodeChanges, NodeTask, NodeTaskLimits, NodeTaskSpec,
    NodeWork, Plan, ProviderError, ProviderFactory, TaintEffect, TaintId,
};
use ccm_test_suite::{Object, Rig, node};
use serde_json::{Value, json};

const OUT: TaintId = TaintId { key: "node.kubernetes.io/out-of-service", effect: TaintEffect::NoExecute };
const NODES: &str = "--controllers=cloud-node-lifecycle,x-out-of-service";
const STOPPED: &str = "instances: [{name: a, shutdown: true}]";
const MINUTE: Duration = Duration::from_secs(60);
/// The duration of the task.
const RUN: Duration = Duration::from_secs(2);

/// The fake cloud with that controller.
struct Factory;

struct Cloud(Arc<dyn CloudProvider>);

struct OutOfService;

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "x"
    }

    fn node_tasks(&self) -> &'static [NodeTaskSpec] {
        &[NodeTaskSpec {
            name: "x-out-of-service",
            aliases: &[],
            queue: "x_out_of_service",
            on_by_default: true,
            taints: &[OUT],
            check: |_| Vec::new(),
        }]
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        Ok(Arc::new(Cloud(ccm_provider_fake::Factory.build(config, flags).await?)))
    }
}

impl CloudProvider for Cloud {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        self.0.instances()
    }

    fn node_task(&self, _: &str) -> Option<Arc<dyn NodeTask>> {
        Some(Arc::new(OutOfService))
    }
}

fn changes(node: &Node) -> NodeChanges {
    let ready = node.ready == Some(ConditionStatus::True);
    // Not Ready for another reason: the node stays unchanged.
    let known = ready || node.has_taint(TAINT_SHUTDOWN);
    NodeChanges { taints: known.then_some((OUT, !ready)).into_iter().collect(), ..NodeChanges::default() }
}

#[async_trait]
impl NodeTask for OutOfService {
    fn limits(&self) -> NodeTaskLimits {
        NodeTaskLimits { batch: 100, workers: 1, rate: None, tries: None }
    }

    fn is_due(&self, node: &Node) -> bool {
        !changes(node).against(node).is_empty()
    }

    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        tokio::time::sleep(RUN).await;
        work.iter().map(|work| Ok(work.node.as_deref().map(changes).unwrap_or_default())).collect()
    }

    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError> {
        let step = work.node.as_ref().and_then(|node| changes(node).step(node, "its instance is stopped"));
        Ok(Plan { steps: step.into_iter().collect(), ..Plan::new(format!("node {} out of service", work.name)) })
    }
}

/// The taints as `key=value:effect`, without that of the kubelet.
fn taints(node: &Object) -> Vec<String> {
    let text = |taint: &Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    let one = |taint: &Value| format!("{}={}:{}", text(taint, "key"), text(taint, "value"), text(taint, "effect"));
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter().map(one).filter(|taint| !taint.starts_with("node.kubernetes.io/not-ready")).collect()
}

const OWN: &str = "own=:NoExecute";
/// Our key with another effect.
const OTHER_EFFECT: &str = "node.kubernetes.io/out-of-service=:NoSchedule";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown=:NoSchedule";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=:NoExecute";

async fn stopped() -> Rig {
    let rig = Rig::new(STOPPED).await;
    let a = node("a").provider_id("fake://a").taint("own", "NoExecute").taint(OUT.key, "NoSchedule");
    rig.create(a.ready("Unknown")).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_is_out_of_service_until_it_is_ready_and_taints_of_others_stay() {
    let rig = stopped().await;
    let manager = rig.start_of(Arc::new(Factory), &[NODES]).await;
    let out = [OWN, OTHER_EFFECT, SHUTDOWN, OUT_OF_SERVICE];
    rig.until_node("a", "is out of service", |node| taints(node) == out).await;
    rig.pass(5 * MINUTE).await;
    let writes = rig.writes();
    let [shutdown, write] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((write.verb, &*write.subresource, write.status), ("patch", "", 200));
    // Its precondition is the version after the previous write.
    let mut list = shutdown.body["spec"]["taints"].clone();
    list.as_array_mut().unwrap().push(json!({"key": OUT.key, "effect": "NoExecute"}));
    assert_eq!(write.body["spec"], json!({"taints": list}));
    assert!(write.body["metadata"]["resourceVersion"].is_string(), "{}", write.body);

    // Another process has no work.
    manager.stop().await.unwrap();
    let _manager = rig.start_of(Arc::new(Factory), &[NODES]).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.writes().len(), 2);

    rig.cloud.write("instances: [{name: a}]");
    rig.pass(5 * MINUTE).await;
    assert_eq!(taints(&rig.node("a").await.unwrap()), out, "it runs, and is not Ready yet");
    rig.set_ready("a", "True").await;
    rig.until_node("a", "has the taints of others alone", |node| taints(node) == [OWN, OTHER_EFFECT]).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.writes_of("nodes", "a").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_there_with_a_value_is_left_and_goes_once_the_node_is_ready() {
    let rig = stopped().await;
    let by_hand = [
        json!({"key": OUT.key, "value": "nodeshutdown", "effect": "NoExecute"}),
        json!({"key": TAINT_SHUTDOWN, "effect": "NoSchedule"}),
    ];
    rig.patch_node("a", json!({"spec": {"taints": by_hand}})).await;
    let _manager = rig.start_of(Arc::new(Factory), &[NODES]).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.writes(), []);
    rig.set_ready("a", "True").await;
    rig.until_node("a", "has no taint", |node| taints(node).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_ready_while_the_task_runs_gets_no_taint() {
    let rig = stopped().await;
    let _manager = rig.start_of(Arc::new(Factory), &[NODES]).await;
    rig.until_node("a", "is stopped", |node| taints(node).contains(&SHUTDOWN.to_owned())).await;
    rig.set_ready("a", "True").await;
    rig.until_node("a", "is not stopped", |node| taints(node) == [OWN, OTHER_EFFECT]).await;
    rig.pass(5 * MINUTE).await;
    let late: Vec<u16> = rig.writes().iter().map(|write| write.status).collect();
    assert_eq!(late, [200, 409, 200], "the shutdown taint comes and goes, and the answer in between is refused");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_otherwise_while_the_task_runs_gets_its_taint() {
    let rig = stopped().await;
    let _manager = rig.start_of(Arc::new(Factory), &[NODES]).await;
    rig.until_node("a", "is stopped", |node| taints(node).contains(&SHUTDOWN.to_owned())).await;
    rig.patch_node("a", json!({"metadata": {"annotations": {"beat": "1"}}})).await;
    rig.until_node("a", "is out of service", |node| taints(node).contains(&OUT_OF_SERVICE.to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_taint_and_writes_nothing() {
    let rig = stopped().await;
    rig.patch_node("a", json!({"spec": {"taints": [{"key": TAINT_SHUTDOWN, "effect": "NoSchedule"}]}})).await;
    let manager = rig.start_of(Arc::new(Factory), &[NODES, "--dry-run"]).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(
        manager.plan("node a out of service").unwrap(),
        "node a out of service:\n  1. update Node a: taint = node.kubernetes.io/out-of-service:NoExecute \
         (because its instance is stopped) [disruptive]"
    );
    assert_eq!(rig.writes(), []);
    rig.set_ready("a", "True").await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.writes(), []);
}
