//! The real API server, filled with nodes as large as in the field.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::Bed;
use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};

/// Requests of the loader under way at once.
const IN_FLIGHT: usize = 16;

pub(crate) struct Cluster {
    pub(crate) bed: Bed,
    client: Client,
}

impl Cluster {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let bed = Bed::start().await?.context("no API server; see hack/test.sh components")?;
        let options = ConnectOptions {
            kubeconfig: bed.kubeconfig().display().to_string(),
            user_agent: "bench-loader".into(),
            ..ConnectOptions::default()
        };
        let client = Client::connect(&options, Metrics::new()).await?;
        Ok(Self { bed, client })
    }

    /// Makes nodes `node-<from>` to `node-<to - 1>`, spread evenly over `within`. Answers when the last one was made.
    pub(crate) async fn make_nodes(
        &self,
        range: std::ops::Range<usize>,
        tainted: bool,
        within: Duration,
    ) -> anyhow::Result<Instant> {
        let count = u32::try_from(range.len().max(1))?;
        let began = tokio::time::Instant::now();
        let made = futures::stream::iter(range.enumerate()).map(|(i, number)| {
            let at = began + within * u32::try_from(i).unwrap_or(u32::MAX) / count;
            async move {
                tokio::time::sleep_until(at).await;
                let body = node(number, tainted);
                self.client.send(&Call::json(Method::POST, "/api/v1/nodes", &body)).await
            }
        });
        let mut made = made.buffer_unordered(IN_FLIGHT);
        while let Some(answer) = made.next().await {
            if let Err(error) = answer {
                bail!("cannot make a node: {error}");
            }
        }
        Ok(Instant::now())
    }

    /// What a kubelet does every five minutes on a quiet node, spread evenly: `rounds` of status updates of all nodes.
    pub(crate) async fn heartbeat(self: Arc<Self>, nodes: usize, period: Duration) {
        let count = u32::try_from(nodes.max(1)).unwrap_or(u32::MAX);
        let mut tick = tokio::time::interval(period / count);
        for number in (0..nodes).cycle() {
            tick.tick().await;
            let now = jiff_now();
            let body = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": now}]}});
            // One lost heartbeat changes nothing.
            let _ = self.client.send(&Call::strategic(format!("/api/v1/nodes/node-{number}/status"), &body)).await;
        }
    }
}

fn jiff_now() -> String {
    let now = ccm_runtime::clock::timestamp(std::time::SystemTime::now());
    now.to_string().split('.').next().map(|t| format!("{}Z", t.trim_end_matches('Z'))).unwrap_or_default()
}

/// A node of about 20 KB: 50 images, as on a busy machine.
fn node(number: usize, tainted: bool) -> Value {
    let images: Vec<Value> = (0..50)
        .map(|i| {
            json!({"names": [
                format!("registry.example.com/team-{i}/service-{i}@sha256:{:064x}", number * 100 + i),
                format!("registry.example.com/team-{i}/service-{i}:v1.{i}.{number}-some-build-number-of-the-pipeline"),
            ], "sizeBytes": 100_000_000 + i})
        })
        .collect();
    let filler: String = format!("{number:08}").repeat(500);
    let name = format!("node-{number}");
    let mut taints = Vec::new();
    let mut spec = json!({"podCIDR": pod_cidr(number), "podCIDRs": [pod_cidr(number)]});
    if tainted {
        taints.push(
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}),
        );
    } else if let Some(spec) = spec.as_object_mut() {
        spec.insert("providerID".into(), format!("bench:///zone-{}/{name}", number % 3).into());
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("taints".into(), taints.into());
    }
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
            "node.example.com/pool": format!("pool-{}", number % 7)},
            "annotations": {"example.com/filler": filler, "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": spec,
        "status": {
            "capacity": {"cpu": "16", "memory": "65806460Ki", "pods": "110"},
            "allocatable": {"cpu": "15", "memory": "65806460Ki", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": jiff_now(), "lastTransitionTime": jiff_now()}],
            "addresses": [{"type": "Hostname", "address": name}],
            "images": images}})
}

fn pod_cidr(number: usize) -> String {
    format!("10.{}.{}.0/24", 64 + number / 256, number % 256)
}
