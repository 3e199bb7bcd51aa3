//! The contract of every provider.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloudsim::gce::Options;
use ccm_provider::flag::FlagValues;
use ccm_provider::{AddressType, CloudConfig, NodeAddress, PersistentVolume, ProviderFactory, Service};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, Simulation, TestCluster};
use serde_json::json;

use crate::bed::{self, Bed, PROJECT, ZONE};

ccm_provider_contract::contract!(cloud);

async fn cloud() -> Arc<dyn Harness> {
    Arc::new(Cloud { bed: Bed::start(Options::default()), config: String::new() })
}

pub(crate) struct Cloud {
    pub(crate) bed: Bed,
    /// More keys of `[global]`.
    pub(crate) config: String,
}

fn path(name: &str) -> String {
    format!("projects/{PROJECT}/zones/{ZONE}/instances/{name}")
}

#[async_trait]
impl Harness for Cloud {
    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(self.bed.factory())
    }

    fn config(&self) -> Option<CloudConfig> {
        Some(CloudConfig { path: "gce.conf".into(), text: self.bed.config(&self.config) })
    }

    fn flags(&self) -> FlagValues {
        bed::flags(&["gce-taint-stopped-instances"])
    }

    fn simulation(&self) -> Option<&dyn Simulation> {
        Some(&self.bed.cloud)
    }

    /// The ID of the cluster does not differ between runs.
    fn furnish(&self, cluster: &TestCluster) {
        cluster.set_config_map(&self.bed.factory().config_maps()[0], [("uid".to_owned(), "cid".to_owned())].into());
    }

    async fn add_instance(&self, name: &str) -> Made {
        self.bed.instance_in(ZONE, name, json!({}));
        let addresses = vec![NodeAddress::new(AddressType::InternalIp, self.bed.address(name))];
        Made { provider_id: format!("gce://{PROJECT}/{ZONE}/{name}"), addresses }
    }

    async fn stop_instance(&self, name: &str) -> bool {
        // There is no call for this: the instance is replaced with a stopped one.
        self.bed.cloud.world(|world| world.remove(&path(name)));
        self.bed.instance_in(ZONE, name, json!({"status": "TERMINATED"}));
        true
    }

    async fn remove_instance(&self, name: &str) {
        self.bed.cloud.world(|world| world.delete_instance(&path(name)));
    }

    fn refuse(&self, service: &mut Service) -> bool {
        service.spec.load_balancer_source_ranges = Some(vec!["nowhere".into()]);
        true
    }

    async fn contents(&self) -> BTreeSet<String> {
        bed::contents(&self.bed.cloud).into_iter().collect()
    }

    /// Adds routes of another cluster and of a user in the same network.
    async fn add_objects_of_others(&self, _: Option<&Service>) -> bool {
        let network = "https://www.googleapis.com/compute/v1/projects/p/global/networks/default";
        let uid = "99999999-2222-3333-4444-555555555555";
        for (name, description, range) in [
            (format!("kubernetes-2-{uid}"), "k8s-node-route", "10.99.0.0/24"),
            ("kubernetes-vpn".to_owned(), "to the office", "10.98.0.0/24"),
        ] {
            let hop = format!("https://www.googleapis.com/compute/v1/{}", path("control"));
            let route = json!({"network": network, "destRange": range, "priority": 1000, "description": description,
                "nextHopInstance": hop});
            self.bed.cloud.world(|world| world.put(&format!("projects/p/global/routes/{name}"), route));
        }
        true
    }

    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        self.bed.cloud.world(|world| world.disk(PROJECT, ZONE, name));
        let volume = json!({"metadata": {"name": name}, "spec": {"gcePersistentDisk": {"pdName": name}}});
        Some(serde_json::from_value(volume).unwrap())
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let good = self.bed.config("");
        let broken = |more: &str, names| BrokenConfig::new("gce.conf", format!("{good}{more}\n"), names);
        vec![
            broken("multizone = maybe", "multizone"),
            broken("project-id", "project-id"),
            broken("local-zone = nowhere", "zone"),
            broken("token-body = hush\ntoken-url", "token-url").with_secret("hush"),
        ]
    }

    fn malformed_provider_ids(&self) -> Vec<String> {
        ["gce://", "gce://p/z", "gce://p//n", "gce://p/z/n/"].map(str::to_owned).into()
    }

    fn plans_are_exact(&self) -> bool {
        true
    }

    fn deviations(&self) -> &'static [Deviation] {
        &[
            Deviation {
                clause: "no_hosts_are_no_error",
                why: "as upstream, an external load balancer is not made without hosts",
            },
            Deviation {
                clause: "a_cloud_that_fails_gives_no_short_list",
                why: "a route that the network showed within the last seconds is there, also while the cloud is down",
            },
        ]
    }
}
