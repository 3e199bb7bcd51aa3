//! The contract of every provider.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::openstack::Options;
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    AddressType, CloudConfig, LoadBalancerExt as _, NodeAddress, PersistentVolume, ProviderFactory, Service,
};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, Simulation, TestCluster};
use serde_json::{Value, json};

use crate::bed::{self, Bed};

ccm_provider_contract::contract!(cloud);

async fn cloud() -> Arc<dyn Harness> {
    Arc::new(Cloud { bed: Bed::start(Options::default()), config: "manage-security-groups = true" })
}

pub(crate) struct Cloud {
    pub(crate) bed: Bed,
    /// Keys of `[LoadBalancer]`.
    pub(crate) config: &'static str,
}

impl Cloud {
    /// With a subnet, so that a Service without nodes gets a balancer too.
    fn keys(&self) -> String {
        format!("{}\nsubnet-id = {}", self.config, self.bed.subnet)
    }

    fn server_of(&self, name: &str) -> String {
        let find = |servers: Vec<Value>| servers.into_iter().find(|server| server["name"] == name);
        find(self.bed.cloud.resources("server")).unwrap()["id"].as_str().unwrap().to_owned()
    }
}

#[async_trait]
impl Harness for Cloud {
    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(ccm_provider_openstack::Factory)
    }

    fn config(&self) -> Option<CloudConfig> {
        Some(CloudConfig { path: "cloud.conf".into(), text: self.bed.config(&self.keys()) })
    }

    fn flags(&self) -> FlagValues {
        bed::flags()
    }

    fn simulation(&self) -> Option<&dyn Simulation> {
        Some(&self.bed.cloud)
    }

    async fn add_instance(&self, name: &str) -> Made {
        let (id, address) = self.bed.server(name);
        let addresses = vec![NodeAddress::new(AddressType::InternalIp, address)];
        Made { provider_id: format!("openstack:///{id}"), addresses }
    }

    async fn stop_instance(&self, name: &str) -> bool {
        let id = self.server_of(name);
        self.bed.cloud.world(|world| world.row_mut("server", &id).unwrap().set("status", "SHUTOFF"));
        true
    }

    async fn remove_instance(&self, name: &str) {
        let id = self.server_of(name);
        self.bed.cloud.world(|world| world.delete_server(&id));
    }

    fn refuse(&self, service: &mut Service) -> bool {
        service.metadata.annotations.insert("loadbalancer.openstack.org/class".into(), "missing".into());
        true
    }

    async fn contents(&self) -> BTreeSet<String> {
        bed::contents(&self.bed.cloud).into_iter().collect()
    }

    /// Adds a balancer of another cluster in the same project, and routes on the same router.
    async fn add_objects_of_others(&self, like: Option<&Service>) -> bool {
        let other = self.bed.process("", &Arc::<TestCluster>::default()).await;
        if let Some(mut service) = like.cloned() {
            service.metadata.uid = "5eb5a7f2-aaaa-bbbb-cccc-0123456789ab".into();
            let node = self.bed.node("other");
            let balancers = other.load_balancer().unwrap();
            loop {
                match balancers.ensure("c2", &service, std::slice::from_ref(&node)).await {
                    Err(error) if error.is_in_progress() => tokio::time::sleep(Duration::from_millis(50)).await,
                    answer => break drop(answer.unwrap()),
                }
            }
        }
        self.bed.cloud.world(|world| {
            let router = world.row_mut("router", &self.bed.router).unwrap();
            router.set("routes", json!([{"destination": "10.99.0.0/24", "nexthop": "10.60.0.250"}]));
        });
        true
    }

    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        self.bed.cloud.world(|world| {
            let router = world.row_mut("router", &self.bed.router).unwrap();
            let mut routes = router.list("routes").to_vec();
            routes.iter_mut().find(|route| route["destination"] == destination_cidr).unwrap()["nexthop"] =
                json!("10.60.255.250");
            router.set("routes", Value::Array(routes));
        });
        true
    }

    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let id = self.bed.cloud.world(|world| world.volume(&self.bed.project, "zone-1"));
        let volume = json!({"metadata": {"name": name}, "spec": {"cinder": {"volumeID": id}}});
        Some(serde_json::from_value(volume).unwrap())
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let good = self.bed.config("");
        let broken = |text: String, names| BrokenConfig::new("cloud.conf", text, names);
        let with = |more: &str, names| broken(format!("{good}{more}\n"), names);
        let no_domain = "[Global]\nauth-url = http://127.0.0.1:1/v3\nusername = ccm\npassword = hush".to_owned();
        vec![
            with("create-monitor = maybe", "create-monitor"),
            with("monitor-delay = soon", "monitor-delay"),
            with("[Metadata]\nsearch-order = floppy", "search-order"),
            broken(no_domain, "domain").with_secret("hush"),
            broken(good.replace("password = secret", "password = hushhush"), "credentials").with_secret("hushhush"),
        ]
    }

    fn malformed_provider_ids(&self) -> Vec<String> {
        ["openstack://", "openstack:///", "openstack://id", "openstack:///a/b"].map(str::to_owned).into()
    }

    fn plans_are_exact(&self) -> bool {
        true
    }

    fn deviations(&self) -> &'static [Deviation] {
        &[
            Deviation {
                clause: "other_clusters_and_owners_are_not_listed",
                why: "the routes of a cluster are those of its router in --cluster-cidr, whatever --cluster-name says",
            },
            Deviation {
                clause: "a_cloud_that_fails_gives_no_short_list",
                why: "a route that the router showed within the last seconds is there, also while the cloud is down",
            },
        ]
    }
}
