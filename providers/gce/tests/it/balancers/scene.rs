//! A cluster in a project: the provider as a process creates it, nodes, Services, and the project's objects.

use std::sync::Arc;

use ccm_cloudsim::gce::seed::ClusterSeed;
use ccm_cloudsim::gce::{BALANCING, Gce, Options};
use ccm_provider::{
    CloudProvider, LoadBalancer, LoadBalancerStatus, NodeRef, Notes, ProviderError, ProviderFactory as _, Service,
    ServiceAction, ServiceAnswer,
};
use ccm_provider_contract::{TestCluster, controller};
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER, ZONE, flags};

/// The name of the balancer of [`web`].
pub(super) const LB: &str = "a1111111122223333444455555555555";
pub(super) const TYPE: &str = "networking.gke.io/load-balancer-type";

pub(super) struct Scene {
    pub(super) bed: Bed,
    pub(super) cluster: Arc<TestCluster>,
    provider: Arc<dyn CloudProvider>,
    pub(super) nodes: Vec<NodeRef>,
    more: String,
    flags: Vec<&'static str>,
}

pub(super) type Answer = Result<Option<LoadBalancerStatus>, ProviderError>;

impl Scene {
    /// A cluster with the ID `cid` and these nodes.
    pub(super) async fn with(nodes: &[&str]) -> Self {
        Self::of(Options::default(), nodes, "", &[]).await
    }

    /// The same, with more keys of `[global]` and these flags.
    pub(super) async fn of(options: Options, nodes: &[&str], more: &str, given: &[&'static str]) -> Self {
        Self::begin(Bed::start(options), nodes, more, given).await
    }

    /// The usual contents of a cluster.
    pub(super) fn seed() -> ClusterSeed<'static> {
        ClusterSeed { zones: &[ZONE], nodes: 0, ..ClusterSeed::default() }
    }

    /// The same in another network.
    pub(super) async fn in_cluster(options: Options, seed: &ClusterSeed<'_>, nodes: &[&str]) -> Self {
        let more = format!("network-project-id = {}", seed.network_project);
        Self::begin(Bed::of(options, seed), nodes, &more, &[]).await
    }

    async fn begin(bed: Bed, nodes: &[&str], more: &str, given: &[&'static str]) -> Self {
        let nodes = nodes.iter().map(|name| bed.node(name)).collect();
        Self::over(bed, nodes, more, given).await
    }

    /// The same over nodes whose instances exist.
    pub(super) async fn over(bed: Bed, nodes: Vec<NodeRef>, more: &str, given: &[&'static str]) -> Self {
        let cluster = Arc::new(TestCluster::default());
        let uid = bed.factory().config_maps()[0];
        cluster.set_config_map(&uid, [("uid".to_owned(), "cid".to_owned())].into());
        let subnetwork = bed.subnetwork.rsplit('/').next().unwrap();
        let more = format!("subnetwork-name = {subnetwork}\n{more}");
        let provider = start(&bed, &cluster, &more, given).await;
        let scene = Self { bed, cluster, provider, nodes, more, flags: given.to_vec() };
        scene.balancers();
        scene
    }

    pub(super) fn cloud(&self) -> &Gce {
        &self.bed.cloud
    }

    pub(super) fn provider(&self) -> &Arc<dyn CloudProvider> {
        &self.provider
    }

    pub(super) fn balancers(&self) -> Arc<dyn LoadBalancer> {
        self.provider.load_balancer().unwrap()
    }

    /// A new process with the same configuration.
    pub(super) async fn restart(&mut self) {
        self.provider = start(&self.bed, &self.cluster, &self.more, &self.flags).await;
    }

    /// A new process with these flags.
    pub(super) async fn restart_with(&mut self, given: &[&'static str]) {
        self.flags = given.to_vec();
        self.restart().await;
    }

    /// A new process with other keys of `[global]`.
    pub(super) async fn reconfigure(&mut self, more: &str) {
        let subnetwork = self.more.lines().next().unwrap_or_default();
        self.more = format!("{subnetwork}\n{more}");
        self.restart().await;
    }

    /// A new process that has to find the subnetwork itself.
    pub(super) async fn without_subnetwork(&mut self) {
        self.more = self.more.split_once('\n').map(|(_, more)| more.to_owned()).unwrap_or_default();
        self.restart().await;
    }

    /// A new process that has to find the tags of nodes itself.
    pub(super) async fn untagged(&mut self) {
        self.bed.node_tags = "";
        self.restart().await;
    }

    /// Processes a Service as the core does, with its finalizers.
    pub(super) async fn ask(&self, service: &mut Service, action: ServiceAction) -> (Answer, Notes) {
        let balancers = self.balancers();
        let finalizers = balancers.finalizers(service);
        if action == ServiceAction::Ensure {
            add(service, finalizers.iter().filter(|(_, needed)| *needed).map(|(name, _)| *name));
        }
        let nodes: &[NodeRef] = if action == ServiceAction::Delete { &[] } else { &self.nodes };
        let ServiceAnswer { result, notes, .. } = controller::work(&*balancers, CLUSTER, service, nodes, action).await;
        if result.as_ref().err().is_none_or(ProviderError::is_implemented_elsewhere) {
            let goes =
                |name: &&(&str, bool)| action == ServiceAction::Delete || !name.1 && action == ServiceAction::Ensure;
            let goes: Vec<&str> = finalizers.iter().filter(goes).map(|(name, _)| *name).collect();
            service.metadata.finalizers.retain(|name| !goes.contains(&&**name));
        }
        (result, notes)
    }

    pub(super) async fn try_ensure(&self, service: &mut Service) -> Answer {
        self.ask(service, ServiceAction::Ensure).await.0
    }

    /// Ensures the Service, and returns the address.
    pub(super) async fn ensure(&self, service: &mut Service) -> String {
        let status = self.try_ensure(service).await.unwrap().expect("a status");
        assert_eq!(status.ingress.len(), 1);
        status.ingress[0].ip.clone()
    }

    pub(super) async fn refused(&self, service: &mut Service) -> String {
        self.try_ensure(service).await.expect_err("an error").to_string()
    }

    pub(super) async fn update(&self, service: &mut Service) {
        self.ask(service, ServiceAction::UpdateHosts).await.0.unwrap();
    }

    pub(super) async fn delete(&self, service: &mut Service) {
        self.ask(service, ServiceAction::Delete).await.0.unwrap();
    }

    /// The methods that were called by this work.
    pub(super) async fn calls<T>(&self, work: impl Future<Output = T>) -> (Vec<String>, T) {
        let mark = self.cloud().mark();
        let answer = work.await;
        let calls = self.bed.calls(mark).into_iter().filter(|call| !call.ends_with("Operations.wait"));
        (calls.collect(), answer)
    }

    /// The writes that an ensure sends.
    pub(super) async fn writes_to_ensure(&self, service: &mut Service) -> Vec<String> {
        let mark = self.cloud().mark();
        self.ensure(service).await;
        self.writes(mark)
    }

    pub(super) fn writes(&self, mark: u64) -> Vec<String> {
        self.cloud().writes(mark)
    }

    /// Another ensure writes nothing, by this process and by a new one.
    pub(super) async fn is_steady(&mut self, service: &mut Service) {
        assert_eq!(self.writes_to_ensure(service).await, [] as [&str; 0]);
        self.restart().await;
        assert_eq!(self.writes_to_ensure(service).await, [] as [&str; 0]);
    }

    /// The kind and name of all objects of load balancers in the project.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for kind in BALANCING {
            names.extend(self.cloud().objects(kind).iter().map(|object| {
                let name = object["name"].as_str().unwrap_or_default().replace(LB, "LB");
                format!("{kind} {name}")
            }));
        }
        names.sort();
        names
    }

    /// The object with this name, where `LB` is the name of the balancer of [`web`].
    pub(super) fn object(&self, kind: &str, name: &str) -> Value {
        let name = name.replace("LB", LB);
        self.find(kind, &name).unwrap_or_else(|| panic!("no {kind} {name} in {:?}", self.names()))
    }

    pub(super) fn find(&self, kind: &str, name: &str) -> Option<Value> {
        self.cloud().objects(kind).into_iter().find(|object| object["name"] == name)
    }

    /// The members of the group of a zone.
    pub(super) fn group(&self, zone: &str) -> Vec<String> {
        let path = format!("projects/p/zones/{zone}/instanceGroups/k8s-ig--cid/listInstances");
        let members = self.cloud().by_hand("POST", &path, &json!({"instanceState": "ALL"})).unwrap_or_default();
        let members = members["items"].as_array().cloned().unwrap_or_default();
        members.iter().map(|it| it["instance"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    }

    /// The number of hosts of [`web`] in the usual zone.
    pub(super) fn members(&self) -> usize {
        match self.find("targetPools", LB) {
            Some(pool) => texts(&pool["instances"]).len(),
            None => self.group(ZONE).len(),
        }
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.cluster.take_events()
    }

    /// No request violated the API.
    pub(super) fn is_correct(&self) {
        assert_eq!(self.cloud().violations(), [] as [&str; 0]);
    }
}

async fn start(bed: &Bed, cluster: &Arc<TestCluster>, more: &str, given: &[&'static str]) -> Arc<dyn CloudProvider> {
    let provider = bed.build(more, &flags(given)).await.unwrap();
    provider.initialize(cluster.context(CLUSTER)).await.unwrap();
    provider
}

fn add<'a>(service: &mut Service, finalizers: impl Iterator<Item = &'a str>) {
    for name in finalizers {
        if !service.metadata.finalizers.iter().any(|present| present == name) {
            service.metadata.finalizers.push(name.to_owned());
        }
    }
}

/// A Service `default/<name>` of type LoadBalancer; `spec` replaces fields.
#[allow(clippy::needless_pass_by_value)] // literals at all callers
pub(super) fn service(name: &str, spec: Value) -> Service {
    let uid = match name {
        "web" => "11111111-2222-3333-4444-555555555555".to_owned(),
        name => {
            let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits:0<32.32}")
        }
    };
    let mut json = json!({
        "metadata": {"namespace": "default", "name": name, "uid": uid, "annotations": {}},
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        json["spec"][key] = value.clone();
    }
    serde_json::from_value(json).unwrap()
}

pub(super) fn web() -> Service {
    service("web", json!({}))
}

pub(super) fn local() -> Service {
    service("web", json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}))
}

/// With the annotation of internal load balancers.
pub(super) fn internal(mut service: Service) -> Service {
    set(&mut service, TYPE, "Internal");
    service
}

pub(super) fn set(service: &mut Service, key: &str, value: &str) {
    service.metadata.annotations.insert(key.to_owned(), value.to_owned());
}

pub(super) fn ports(protocol: &str, ports: &[i32]) -> Vec<ccm_provider::ServicePort> {
    let port =
        |port: &i32| ccm_provider::ServicePort { port: *port, protocol: protocol.to_owned(), ..Default::default() };
    ports.iter().map(port).collect()
}

/// The sorted strings of a list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> =
        list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap_or_default().to_owned()).collect();
    texts.sort();
    texts
}

/// The node of an instance in a zone, which may not exist.
pub(super) fn node_of(zone: &str, name: &str) -> NodeRef {
    let node = json!({"name": name, "providerId": format!("gce://p/{zone}/{name}")});
    serde_json::from_value::<ccm_provider::Node>(node).unwrap().into()
}
