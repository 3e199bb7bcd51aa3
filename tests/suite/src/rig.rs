//! One cluster, one cloud, any number of managers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use ccm_provider::{Clock as _, CloudProvider, ProviderFactory};
use ccm_runtime::client::ConnectOptions;
use ccm_runtime::clock::SimulatedClock;
use ccm_runtime::{Client, Metrics};
use ccm_test_apiserver::{ApiServer, Clock, Faults, Options, Patch, Store, WriteEntry};
use ccm_test_bed::{Bed, Reused};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::manager::Environment;
use crate::network;
use crate::{Cloud, LONG, Make, Network, Object, Running};

/// Timeout for operations that need only a few requests and back-offs.
pub const SHORTLY: Duration = Duration::from_secs(30);
/// The interval at which conditions are checked.
const LOOK: Duration = Duration::from_millis(50);

/// See the crate's documentation.
#[derive(Debug)]
pub struct Rig {
    api: Api,
    /// The cloud.
    pub cloud: Cloud,
    provider_name: String,
    network: Network,
    began: Instant,
    lap: Mutex<Instant>,
    managers: AtomicU64,
}

#[derive(Debug)]
enum Api {
    InMemory(ApiServer),
    Real(RealBed),
}

#[derive(Debug)]
enum RealBed {
    Shared(&'static Bed),
    Alone(Box<Reused>),
}

impl std::ops::Deref for RealBed {
    type Target = Bed;
    fn deref(&self) -> &Bed {
        match self {
            Self::Shared(bed) => bed,
            Self::Alone(bed) => bed,
        }
    }
}

impl Rig {
    /// An empty in-memory cluster, and a cloud with this YAML. The wall clocks of the cluster and of the managers start
    /// at a fixed time and follow tokio's time.
    pub async fn new(cloud: &str) -> Self {
        let clock = SimulatedClock::new(Self::epoch());
        let now = move || Timestamp::try_from(clock.wall()).unwrap();
        let options = Options { clock: Clock::new(now), seed: Some(1), dual_stack: true, ..Options::default() };
        let server = ApiServer::start(options).await.unwrap();
        Self::over(Api::InMemory(server), "fake", cloud)
    }

    /// Before the real time, so that time stamps of the fake cloud are never too old.
    fn epoch() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)
    }

    /// The real API server that all tests share, and a cloud with provider IDs `<provider_name>://…`: the nodes of
    /// other tests are foreign to it. `None` if there is no such server.
    pub async fn real(provider_name: &str, cloud: &str) -> Option<Self> {
        let bed = Bed::shared().await.unwrap()?;
        Some(Self::over(Api::Real(RealBed::Shared(bed)), provider_name, cloud))
    }

    /// Like [`Rig::real`], but with an API server that no other test uses at the same time, for tests with a controller
    /// that acts on the whole cluster.
    pub async fn real_alone(bed: ccm_test_bed::Options, provider_name: &str, cloud: &str) -> Option<Self> {
        let bed = Bed::reused(bed).await.unwrap()?;
        Some(Self::over(Api::Real(RealBed::Alone(Box::new(bed))), provider_name, cloud))
    }

    fn over(api: Api, provider_name: &str, cloud: &str) -> Self {
        let cloud = Cloud::new(provider_name, cloud);
        let provider_name = provider_name.to_owned();
        let (network, began) = (Network::default(), Instant::now());
        Self { api, cloud, provider_name, network, began, lap: Mutex::new(began), managers: AtomicU64::new(0) }
    }

    /// The arguments of every manager of this rig: no port, no election, this cloud. Later ones take precedence.
    pub fn args(&self, args: &[&str]) -> Vec<String> {
        let config = format!("--cloud-config={}", self.cloud.file().display());
        let fixed = ["--cloud-provider=fake", "--secure-port=0", "--leader-elect=false", &config];
        // Without pod ranges there are no routes; tests of routes override this.
        let defaults = ["--configure-cloud-routes=false"];
        fixed.iter().chain(&defaults).chain(args).map(|arg| (*arg).to_owned()).collect()
    }

    /// Starts a manager with these arguments in addition to [`Rig::args`].
    pub async fn start(&self, args: &[&str]) -> Running {
        Running::start(&self.args(args), self.environment().await).await
    }

    /// The same with the test's own provider instead of the fake cloud.
    pub async fn start_with(&self, provider: Arc<dyn CloudProvider>, args: &[&str]) -> Running {
        Running::with(&self.args(args), provider, self.environment().await)
    }

    /// The same with a program that has only this provider and its controllers.
    pub async fn start_of(&self, factory: Arc<dyn ProviderFactory>, args: &[&str]) -> Running {
        let provider = format!("--cloud-provider={}", factory.name());
        let args = [&[&*provider], args].concat();
        Running::of(&self.args(&args), factory, self.environment().await).await
    }

    async fn environment(&self) -> Environment {
        let (metrics, line) = (Metrics::new(), Network::default());
        let client = match &self.api {
            Api::InMemory(server) => {
                let networks = [self.network.clone(), line.clone()];
                let client = network::client(server.handler(), networks);
                Client::over(client, metrics.clone()).with_user_agent("manager")
            }
            Api::Real(bed) => {
                let kubeconfig = bed.kubeconfig().display().to_string();
                let options = ConnectOptions { kubeconfig, user_agent: "manager".into(), ..ConnectOptions::default() };
                Client::connect(&options, metrics.clone()).await.unwrap()
            }
        };
        let seed = self.managers.fetch_add(1, Ordering::SeqCst);
        let clock = match &self.api {
            // A separate clock for the API server: clocks of two machines differ.
            Api::InMemory(_) => {
                let now = Self::epoch() + self.began.elapsed() + Duration::from_nanos(seed);
                Some(Arc::new(SimulatedClock::new(now)))
            }
            Api::Real(_) => None,
        };
        Environment { client, line, metrics, clock, seed }
    }

    /// The scheme of this cloud's provider IDs.
    pub fn provider_name(&self) -> &str {
        &self.provider_name
    }

    fn memory(&self) -> &ApiServer {
        match &self.api {
            Api::InMemory(server) => server,
            Api::Real(_) => panic!("only the in-memory API server can do this"),
        }
    }

    /// The real API server.
    pub fn bed(&self) -> &Bed {
        match &self.api {
            Api::InMemory(_) => panic!("this is not a real API server"),
            Api::Real(bed) => bed,
        }
    }

    /// The objects, in-memory only.
    pub fn store(&self) -> &Store {
        self.memory().store()
    }

    /// The faults of the API server, in-memory only.
    pub fn faults(&self) -> &Faults {
        self.memory().faults()
    }

    /// Rejects connections to the API server and ends open watches, or accepts them again. In-memory only.
    pub fn set_api_gone(&self, gone: bool) {
        self.network.set_down(gone);
        if gone {
            self.faults().drop_watches(None);
        }
    }

    /// The writes of managers, without events and leases. In-memory only.
    pub fn writes(&self) -> Vec<WriteEntry> {
        let writes = self.store().log().remote_writes();
        writes.into_iter().filter(|write| !matches!(write.resource, "events" | "leases")).collect()
    }

    /// The writes that took effect on one object.
    pub fn writes_of(&self, resource: &str, name: &str) -> Vec<WriteEntry> {
        let of = |write: &WriteEntry| write.resource == resource && write.name == name && write.status < 300;
        self.writes().into_iter().filter(of).collect()
    }

    fn path(resource: &str, namespace: &str, name: &str) -> String {
        let root = match resource {
            "leases" => "/apis/coordination.k8s.io/v1",
            "endpointslices" => "/apis/discovery.k8s.io/v1",
            _ => "/api/v1",
        };
        let namespace = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("{root}{namespace}/{resource}{name}")
    }

    async fn ask(&self, bed: &Bed, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (status, text) = bed.request(method, path, &bed.token, body).await?;
        if !(200..300).contains(&status) {
            bail!("{method} {path}: {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| text.clone())
    }

    /// Creates an object.
    pub async fn create(&self, make: Make) -> Object {
        let namespace = make.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let made = match &self.api {
            Api::InMemory(server) => server.store().create(make.resource, &namespace, make.object).map_err(Into::into),
            Api::Real(bed) => {
                self.ask(bed, "POST", &Self::path(make.resource, &namespace, ""), Some(&make.object)).await
            }
        };
        Object(made.unwrap())
    }

    /// Reads an object.
    pub async fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        match &self.api {
            Api::InMemory(server) => match server.store().get(resource, namespace, name) {
                Ok(object) => Some(Object(object)),
                Err(error) if error.code == 404 => None,
                Err(error) => panic!("{error}"),
            },
            Api::Real(bed) => {
                let (status, text) = bed.get(&Self::path(resource, namespace, name)).await.unwrap();
                match status {
                    200 => Some(Object(serde_json::from_str(&text).unwrap())),
                    404 => None,
                    _ => panic!("{status}: {text}"),
                }
            }
        }
    }

    /// All objects of a kind.
    pub async fn list(&self, resource: &str) -> Vec<Object> {
        let list = match &self.api {
            Api::InMemory(server) => server.store().objects(resource).unwrap(),
            Api::Real(bed) => {
                let list = self.ask(bed, "GET", &Self::path(resource, "", ""), None).await.unwrap();
                list["items"].as_array().cloned().unwrap_or_default()
            }
        };
        list.into_iter().map(Object).collect()
    }

    /// Merges a change into an object; `subresource` is `status` or empty.
    pub async fn patch(&self, resource: &str, namespace: &str, name: &str, subresource: &str, change: Value) -> Object {
        let changed = match &self.api {
            Api::InMemory(server) => {
                let patch = Patch::Merge(change);
                let store = server.store();
                match subresource {
                    "" => store.patch(resource, namespace, name, &patch),
                    _ => store.patch_status(resource, namespace, name, &patch),
                }
                .map_err(Into::into)
            }
            Api::Real(bed) => {
                let path = format!("{}/{subresource}", Self::path(resource, namespace, name));
                self.ask(bed, "PATCH", path.trim_end_matches('/'), Some(&change)).await
            }
        };
        Object(changed.unwrap())
    }

    /// Deletes an object.
    pub async fn delete(&self, resource: &str, namespace: &str, name: &str) {
        match &self.api {
            Api::InMemory(server) => drop(server.store().delete(resource, namespace, name).unwrap()),
            Api::Real(bed) => {
                drop(self.ask(bed, "DELETE", &Self::path(resource, namespace, name), None).await.unwrap());
            }
        }
    }

    /// A node.
    pub async fn node(&self, name: &str) -> Option<Object> {
        self.get("nodes", "", name).await
    }

    /// A Service in the namespace `default`.
    pub async fn service(&self, name: &str) -> Option<Object> {
        self.get("services", "default", name).await
    }

    /// Merges a change into a node.
    pub async fn patch_node(&self, name: &str, change: Value) -> Object {
        self.patch("nodes", "", name, "", change).await
    }

    /// Merges a change into a Service in the namespace `default`.
    pub async fn patch_service(&self, name: &str, change: Value) -> Object {
        self.patch("services", "default", name, "", change).await
    }

    /// Sets the Ready condition of a node, as the kubelet or the node controller does.
    pub async fn set_ready(&self, name: &str, status: &str) {
        let change = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        self.patch("nodes", "", name, "status", change).await;
    }

    /// The events of an object, one line each, repeated according to their count.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let mut events = self.list("events").await;
        events.retain(|event| event["involvedObject"]["name"] == name);
        events.sort_by_key(|event| event["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned());
        let repeat = |event: &Object| {
            let count = usize::try_from(event["count"].as_u64().unwrap_or(1)).unwrap();
            std::iter::repeat_n(event.event_line(), count)
        };
        events.iter().flat_map(repeat).collect()
    }

    /// The number of events of an object with this reason.
    pub async fn count_events(&self, name: &str, reason: &str) -> usize {
        let reason = format!(" {reason}: ");
        self.events(name).await.iter().filter(|event| event.contains(&reason)).count()
    }

    /// Waits for this time.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until `look` returns a value; after `limit`, fails and prints the whole state.
    pub async fn until<T>(&self, limit: Duration, what: &str, mut look: impl AsyncFnMut(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self).await {
                return found;
            }
            if began.elapsed() >= limit {
                panic!("after {limit:?} still not: {what}\n{}", self.state().await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a node meets a condition.
    pub async fn until_node(&self, name: &str, what: &str, mut is_so: impl FnMut(&Object) -> bool) -> Object {
        let what = format!("node {name}: {what}");
        self.until(SHORTLY, &what, async |rig| rig.node(name).await.filter(&mut is_so)).await
    }

    /// Waits until a node is deleted.
    pub async fn until_gone(&self, name: &str) {
        self.until(SHORTLY, &format!("node {name} is gone"), async |rig| rig.node(name).await.is_none().then_some(()))
            .await;
    }

    /// Waits until a Service in the namespace `default` meets a condition.
    pub async fn until_service(&self, name: &str, what: &str, mut is_so: impl FnMut(&Object) -> bool) -> Object {
        let what = format!("service {name}: {what}");
        self.until(SHORTLY, &what, async |rig| rig.service(name).await.filter(&mut is_so)).await
    }

    /// Waits until a node is initialized, including its addresses, which are written right after the removal of the
    /// taint; for a program in its own process, in real time.
    pub async fn initialized(&self, name: &str) -> Object {
        let complete = |node: &Object| !node.is_uninitialized() && !node.addresses().is_empty();
        let what = format!("{name} is initialized");
        self.until(LONG, &what, async |rig| rig.node(name).await.filter(complete)).await
    }

    /// The same for the address of a Service.
    pub async fn address(&self, name: &str) -> String {
        let what = format!("{name} has an address");
        self.until(LONG, &what, async |rig| rig.service(name).await?.ingress().into_iter().next()).await
    }

    /// Deletes a Service and waits until it no longer exists.
    pub async fn delete_service(&self, name: &str) {
        self.delete("services", "default", name).await;
        let what = format!("{name} is gone");
        self.until(LONG, &what, async |rig| rig.service(name).await.is_none().then_some(())).await;
    }

    /// Waits until this many calls with this name have started.
    pub async fn until_calls(&self, call: &str, count: usize) -> Vec<Value> {
        let enough = async |rig: &Self| Some(rig.cloud.calls(call)).filter(|calls| calls.len() >= count);
        self.until(SHORTLY, &format!("{count} calls of {call}"), enough).await
    }

    /// Reads the cloud's call log for `time` and returns the start times of calls with this name, relative to now.
    pub async fn moments(&self, call: &str, time: Duration) -> Vec<Duration> {
        let began = Instant::now();
        let mut seen = self.cloud.calls(call).len();
        let mut moments = Vec::new();
        while began.elapsed() < time {
            tokio::time::sleep(LOOK).await;
            let now = self.cloud.calls(call).len();
            moments.extend(std::iter::repeat_n(began.elapsed(), now - seen));
            seen = now;
        }
        moments
    }

    /// Waits for an event of an object with this reason.
    pub async fn until_event(&self, name: &str, reason: &str) -> String {
        let find = async |rig: &Self| rig.events(name).await.into_iter().find(|e| e.contains(&format!(" {reason}: ")));
        self.until(SHORTLY, &format!("event {reason} of {name}"), find).await
    }

    /// The component in an event of an object with this reason, for which it waits.
    pub async fn event_component(&self, name: &str, reason: &str) -> String {
        let is_it = |event: &Object| event["involvedObject"]["name"] == name && event["reason"] == reason;
        let find = async |rig: &Self| rig.list("events").await.into_iter().find(is_it);
        let event = self.until(LONG, &format!("event {reason} of {name}"), find).await;
        event["source"]["component"].as_str().unwrap_or_default().to_owned()
    }

    /// Simulated or real time since the creation of the rig or the last call.
    pub fn lap(&self) -> Duration {
        let mut lap = self.lap.lock();
        std::mem::replace(&mut *lap, Instant::now()).elapsed()
    }

    /// The state, for the message of a failed test.
    pub async fn state(&self) -> String {
        let mut text = String::from("--- nodes\n");
        for node in self.list("nodes").await.iter().take(20) {
            let ready = node.condition("Ready").map_or(Value::Null, |c| c["status"].clone());
            let (id, taints, addresses) = (node.provider_id(), node.taints(), node.addresses());
            let labels = &node["metadata"]["labels"];
            text += &format!("{}: id={id:?} ready={ready} {taints:?} {addresses:?} {labels}\n", node.name());
        }
        text += "--- services\n";
        for service in self.list("services").await.iter().take(20) {
            let (meta, ingress) = (&service["metadata"], service.ingress());
            let (finalizers, deleted) = (service.finalizers(), &meta["deletionTimestamp"]);
            text += &format!("{}: {finalizers:?} {ingress:?} deleted={deleted}\n", service.name());
        }
        text += "--- events\n";
        for event in self.list("events").await.iter().rev().take(20) {
            let object = event["involvedObject"]["name"].as_str().unwrap_or_default();
            text += &format!("{object} x{}: {}\n", event["count"], event.event_line());
        }
        text += "--- last calls of the cloud\n";
        let log = self.cloud.log();
        for line in log.iter().skip(log.len().saturating_sub(20)) {
            let line = line.to_string();
            text += &format!("{}\n", line.chars().take(400).collect::<String>());
        }
        if let Api::InMemory(server) = &self.api {
            text += "--- last writes\n";
            let writes = self.writes();
            for write in writes.iter().skip(writes.len().saturating_sub(15)) {
                let WriteEntry { verb, resource, name, subresource, status, body, .. } = write;
                text += &format!("{status} {verb} {resource}/{name} {subresource} {body}\n");
            }
            text += &format!("--- requests\n{:?}\n", server.store().log().counts());
        }
        text
    }
}
