//! The contract that every provider keeps.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::Options;
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    AddressType, CloudConfig, LoadBalancerExt as _, NodeAddress, PersistentVolume, ProviderFactory, Service,
};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, TestCluster, Trouble};
use serde_json::{Value, json};

use crate::bed::{self, Bed};

ccm_provider_contract::contract!(cloud);

async fn cloud() -> Arc<dyn Harness> {
    Arc::new(Cloud { bed: Bed::start(Options::default()), asked: Mutex::default() })
}

struct Cloud {
    bed: Bed,
    /// The Service that the suite made last.
    asked: Mutex<Option<Service>>,
}

impl Cloud {
    /// With a subnet, so that a Service without nodes gets a balancer too.
    fn keys(&self) -> String {
        format!("manage-security-groups = true\nsubnet-id = {}", self.bed.subnet)
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

    async fn contents(&self) -> BTreeSet<String> {
        bed::contents(&self.bed.cloud).into_iter().collect()
    }

    async fn writes(&self) -> u64 {
        self.bed.cloud.ledger(|ledger| u64::try_from(ledger.mutating(0).count()).unwrap())
    }

    async fn trouble(&self, trouble: Trouble) -> bool {
        let refused = || Fault::Code { status: 400, code: "BadRequest".into(), message: "no".into() };
        let refused_after = |writes| Rule::writes_from(writes + 1, refused());
        let rules = match trouble {
            Trouble::None => vec![],
            Trouble::Down => {
                vec![Rule::every(Fault::Code { status: 500, code: "Fault".into(), message: String::new() })]
            }
            Trouble::WritesRefusedAfter(writes) => vec![refused_after(writes)],
            Trouble::AnswerLostAfter(writes) => {
                let lost = Rule { mutating: Some(true), ..Rule::every(Fault::ResetAfter).window(writes, 1) };
                vec![lost, refused_after(writes)]
            }
        };
        self.bed.cloud.faults(Faults::clear);
        rules.into_iter().for_each(|rule| self.bed.cloud.fault(rule));
        true
    }

    async fn settle(&self) {
        self.bed.cloud.settled().await;
    }

    fn haste(&self) -> u32 {
        10
    }

    fn dress(&self, service: &mut Service) {
        *self.asked.lock().unwrap() = Some(service.clone());
    }

    /// Another cluster has a balancer in the same project, and routes on the same router.
    async fn add_objects_of_others(&self) -> bool {
        let asked = self.asked.lock().unwrap().clone();
        let other = self.bed.process("", &Arc::<TestCluster>::default()).await;
        if let Some(mut service) = asked {
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
        let with = |more: &str| format!("{good}{more}\n");
        let cases = [
            (with("create-monitor = maybe"), "create-monitor", None),
            (with("monitor-delay = soon"), "monitor-delay", None),
            (with("[Metadata]\nsearch-order = floppy"), "search-order", None),
            (
                "[Global]\nauth-url = http://127.0.0.1:1/v3\nusername = ccm\npassword = hush".to_owned(),
                "domain",
                Some("hush"),
            ),
            (good.replace("password = secret", "password = hushhush"), "credentials", Some("hushhush")),
        ];
        let broken = |(text, names, secret)| BrokenConfig {
            config: CloudConfig { path: "cloud.conf".into(), text },
            names,
            secret,
        };
        cases.into_iter().map(broken).collect()
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
