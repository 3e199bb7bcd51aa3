//! The real API server, filled with nodes of realistic size.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::{Bed, Options};
use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};

/// The namespace of Services.
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Concurrent requests of the loader.
const IN_FLIGHT: usize = 16;

pub(crate) struct Cluster {
    pub(crate) bed: Bed,
    client: Client,
}

impl Cluster {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// A cluster with an audit log, which takes some of the API server's time.
    pub(crate) async fn audited() -> anyhow::Result<Self> {
        Self::start_with(Options::default().audit()).await
    }

    async fn start_with(options: Options) -> anyhow::Result<Self> {
        let bed = Bed::start_with(options).await?.context("no API server; see hack/test.sh components")?;
        let options = ConnectOptions {
            kubeconfig: bed.kubeconfig().display().to_string(),
            user_agent: "bench-loader".into(),
            ..ConnectOptions::default()
        };
        let client = Client::connect(&options, Metrics::new()).await?;
        Ok(Self { bed, client })
    }

    /// Creates nodes `node-<from>` to `node-<to - 1>`, spread evenly over `within`. Returns the time after the last
    /// creation.
    pub(crate) async fn make_nodes(
        &self,
        range: std::ops::Range<usize>,
        tainted: bool,
        within: Duration,
    ) -> anyhow::Result<Instant> {
        let nodes = range.map(|number| {
            let name = format!("node-{number}");
            let provider_id = (!tainted).then(|| format!("bench:///zone-{}/{name}", number % 3));
            NodeSpec { number, name, provider_id, tainted, labels: Vec::new() }
        });
        self.make(nodes.map(|node| node.call()).collect(), within).await
    }

    /// Creates these nodes (see [`NodeSpec::call`]), spread evenly over `within`. Returns the time after the last
    /// creation.
    pub(crate) async fn make(&self, nodes: Vec<Bytes>, within: Duration) -> anyhow::Result<Instant> {
        let count = u32::try_from(nodes.len().max(1))?;
        let began = tokio::time::Instant::now();
        let made = futures::stream::iter(nodes.into_iter().zip(0_u32..)).map(|(node, i)| {
            let at = began + within * i / count;
            async move {
                tokio::time::sleep_until(at).await;
                let call = Call {
                    method: Method::POST,
                    content_type: Some("application/json"),
                    body: Some(node),
                    ..Call::get("/api/v1/nodes")
                };
                self.client.send(&call.metadata_only()).await
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

    /// The status updates that kubelets send every five minutes for quiet nodes, spread evenly, forever.
    pub(crate) async fn heartbeat(self: Arc<Self>, names: Vec<String>, period: Duration) {
        let count = u32::try_from(names.len().max(1)).unwrap_or(u32::MAX);
        let mut tick = tokio::time::interval(period / count);
        for name in names.iter().cycle() {
            tick.tick().await;
            // A lost heartbeat does not matter.
            let _ = self.set_ready(name, true).await;
        }
    }

    /// Sets the condition Ready, like the kubelet (or, if it is silent, the node controller).
    pub(crate) async fn set_ready(&self, name: &str, ready: bool) -> anyhow::Result<()> {
        let (status, reason) = if ready { ("True", "KubeletReady") } else { ("Unknown", "NodeStatusUnknown") };
        let body = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason,
            "lastHeartbeatTime": jiff_now()}]}});
        self.client.send(&Call::strategic(format!("/api/v1/nodes/{name}/status"), &body).metadata_only()).await?;
        Ok(())
    }

    /// Calls `look` for every object of a collection, page by page.
    pub(crate) async fn each(&self, path: &str, mut look: impl FnMut(&Value)) -> anyhow::Result<()> {
        let mut go_on = String::new();
        loop {
            let page: Value = self.client.read(&Call::get(format!("{path}?limit=500&continue={go_on}"))).await?;
            page.get("items").and_then(Value::as_array).into_iter().flatten().for_each(&mut look);
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => go_on = next.to_owned(),
                _ => return Ok(()),
            }
        }
    }

    /// Creates a Service with a load balancer; `spec` has its ports and other fields.
    pub(crate) async fn make_service(&self, name: &str, annotations: Value, mut spec: Value) -> anyhow::Result<()> {
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("type".into(), "LoadBalancer".into());
            spec.insert("selector".into(), json!({"app": name}));
        }
        let metadata = json!({"name": name, "annotations": annotations});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        self.send(Method::POST, SERVICES, &service).await
    }

    /// Deletes Services, and waits until no Service has a load balancer.
    pub(crate) async fn delete_services(&self, names: impl Iterator<Item = &str>) -> anyhow::Result<()> {
        for name in names {
            self.send(Method::DELETE, &format!("{SERVICES}/{name}"), &json!({})).await?;
        }
        // The API server's Service `kubernetes` does not count.
        let is_left = |service: &Value| text(service, "/spec/type") == "LoadBalancer";
        self.until_count(is_left, "are left", |left| left == 0).await
    }

    /// Waits until this many Services have an address.
    pub(crate) async fn until_served(&self, wanted: usize) -> anyhow::Result<()> {
        let has = |service: &Value| service.pointer("/status/loadBalancer/ingress/0").is_some();
        self.until_count(has, &format!("of {wanted} have an address"), |served| served >= wanted).await
    }

    /// Waits until this number of Services meets the condition.
    async fn until_count(
        &self,
        is_one: impl Fn(&Value) -> bool,
        what: &str,
        is_right: impl Fn(usize) -> bool,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let mut count = 0;
            self.each(SERVICES, |service| count += usize::from(is_one(service))).await?;
            if is_right(count) {
                return Ok(());
            }
            let after = began.elapsed();
            eprintln!("{count} Services {what} after {} s", after.as_secs());
            anyhow::ensure!(after < Duration::from_secs(3600), "{count} Services {what} after an hour");
            // The cost of each list for the API server grows with the number of Services.
            tokio::time::sleep((after / 20).clamp(Duration::from_millis(100), Duration::from_secs(5))).await;
        }
    }

    /// One request.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<()> {
        self.client.send(&Call::json(method, path, body)).await.with_context(|| path.to_owned())?;
        Ok(())
    }

    /// Merges fields into an object.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        self.client.send(&Call::strategic(path, body).metadata_only()).await.with_context(|| path.to_owned())?;
        Ok(())
    }

    /// Whether an object exists at this path.
    pub(crate) async fn exists(&self, path: &str) -> anyhow::Result<bool> {
        match self.client.send(&Call::get(path).metadata_only()).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error).with_context(|| path.to_owned()),
        }
    }
}

/// The text at a pointer, empty if there is none.
pub(crate) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A node to create.
#[derive(Debug, Clone)]
pub(crate) struct NodeSpec {
    /// Makes its content unique.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) provider_id: Option<String>,
    /// Whether it waits for the cloud provider, as a kubelet registers it.
    pub(crate) tainted: bool,
    /// In addition to the usual ones.
    pub(crate) labels: Vec<(&'static str, &'static str)>,
}

fn jiff_now() -> String {
    let now = ccm_runtime::clock::timestamp(std::time::SystemTime::now());
    now.to_string().split('.').next().map(|t| format!("{}Z", t.trim_end_matches('Z'))).unwrap_or_default()
}

impl NodeSpec {
    /// The request that creates it, prepared in advance to reduce the loader's work during a burst.
    pub(crate) fn call(&self) -> Bytes {
        Bytes::from(self.body().to_string())
    }

    /// About 20 KB: 50 images, as on a busy machine.
    fn body(&self) -> Value {
        let (number, name) = (self.number, &self.name);
        let images: Vec<Value> = (0..50)
            .map(|i| {
                json!({"names": [
                    format!("registry.example.com/team-{i}/service-{i}@sha256:{:064x}", number * 100 + i),
                    format!("registry.example.com/team-{i}/service-{i}:v1.{i}.{number}-some-build-number-of-the-pipeline"),
                ], "sizeBytes": 100_000_000 + i})
            })
            .collect();
        let filler: String = format!("{number:08}").repeat(500);
        let mut labels = json!({
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
            "node.example.com/pool": format!("pool-{}", number % 7)});
        if let Some(labels) = labels.as_object_mut() {
            labels.extend(self.labels.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))));
        }
        let mut spec = json!({"podCIDR": pod_cidr(number), "podCIDRs": [pod_cidr(number)]});
        if let Some(spec) = spec.as_object_mut() {
            let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
            let taints: Vec<Value> = self.tainted.then_some(taint).into_iter().collect();
            spec.insert("taints".into(), taints.into());
            spec.extend(self.provider_id.clone().map(|id| ("providerID".to_owned(), id.into())));
        }
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels,
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
}

fn pod_cidr(number: usize) -> String {
    format!("10.{}.{}.0/24", 64 + number / 256, number % 256)
}
