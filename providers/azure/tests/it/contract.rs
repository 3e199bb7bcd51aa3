//! The contract of every provider.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloudsim::azure::{MachineSeed, Options};
use ccm_provider::flag::FlagValues;
use ccm_provider::{AddressType, CloudConfig, NodeAddress, PersistentVolume, ProviderFactory, Service};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, Simulation};
use serde_json::{Value, json};

use crate::bed::{Bed, GROUP, flags, stable};

ccm_provider_contract::contract!(cloud);

async fn cloud() -> Arc<dyn Harness> {
    Arc::new(Cloud { bed: Bed::start(Options::default()), more: "" })
}

pub(crate) struct Cloud {
    pub(crate) bed: Bed,
    /// More keys of the configuration.
    pub(crate) more: &'static str,
}

fn machine(name: &str) -> String {
    format!("{GROUP}/Microsoft.Compute/virtualMachines/{name}")
}

#[async_trait]
impl Harness for Cloud {
    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(self.bed.factory())
    }

    /// Without the lists of some seconds ago, from which Services and nodes that did not change are served.
    fn config(&self) -> Option<CloudConfig> {
        Some(CloudConfig {
            path: "azure.yaml".into(),
            text: self.bed.config(&format!("disableAPICallCache: true\n{}", self.more)),
        })
    }

    fn flags(&self) -> FlagValues {
        flags()
    }

    fn simulation(&self) -> Option<&dyn Simulation> {
        Some(&self.bed.cloud)
    }

    async fn add_instance(&self, name: &str) -> Made {
        let seed = MachineSeed { name, zone: "1", ..MachineSeed::default() };
        let id = self.bed.cloud.world(|world| world.machine(&seed));
        let address = NodeAddress::new(AddressType::InternalIp, self.bed.address(name));
        let addresses = vec![address, NodeAddress::new(AddressType::Hostname, name)];
        Made { provider_id: format!("azure://{id}"), addresses }
    }

    async fn stop_instance(&self, name: &str) -> bool {
        self.bed.cloud.world(|world| world.power(&machine(name), "deallocated"));
        true
    }

    async fn remove_instance(&self, name: &str) {
        self.bed.cloud.world(|world| world.delete_machine(&machine(name)));
    }

    fn refuse(&self, service: &mut Service) -> bool {
        service
            .metadata
            .annotations
            .insert("service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout".into(), "3".into());
        true
    }

    async fn contents(&self) -> BTreeSet<String> {
        let kinds =
            ["loadBalancers", "publicIPAddresses", "networkSecurityGroups", "routeTables", "privateLinkServices"];
        let kinds = kinds.map(|kind| format!("Microsoft.Network/{kind}"));
        let objects = kinds.iter().flat_map(|kind| self.bed.cloud.objects(kind));
        objects.flat_map(|object| parts(stable(object))).collect()
    }

    /// Adds routes of a user in the same table.
    async fn add_objects_of_others(&self, like: Option<&Service>) -> bool {
        if like.is_some() {
            return false;
        }
        let route = |name: &str, prefix: &str| {
            let properties =
                json!({"addressPrefix": prefix, "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.9.9.9"});
            json!({"name": name, "properties": properties})
        };
        let routes = json!([route("office", "10.99.0.0/24"), route("other____x", "10.98.0.0/24")]);
        let table = format!("{GROUP}/Microsoft.Network/routeTables/rt");
        self.bed.cloud.world(|world| world.alter(&table, json!({"properties": {"routes": routes}})));
        true
    }

    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let id = self.bed.cloud.world(|world| world.disk("sub", "rg", name, "1"));
        let spec = json!({"azureDisk": {"diskName": name, "diskURI": id, "kind": "Managed"}});
        Some(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let good = self.bed.config("");
        let broken = |more: &str, names| BrokenConfig::new("azure.yaml", format!("{good}{more}\n"), names);
        vec![
            broken("useInstanceMetadata: maybe", "useInstanceMetadata"),
            broken("serviceGatewayEnabled: true", "serviceGatewayEnabled"),
            broken("cloudConfigType: File", "cloudConfigType"),
            broken("aadClientCertPassword: hush", "aadClientCertPassword").with_secret("hush"),
        ]
    }

    fn malformed_provider_ids(&self) -> Vec<String> {
        ["azure://", "azure:///x", "azure:///subscriptions/s/resourceGroups/g"].map(str::to_owned).into()
    }

    fn plans_are_exact(&self) -> bool {
        true
    }

    fn deviations(&self) -> &'static [Deviation] {
        &[
            Deviation {
                clause: "other_clusters_and_owners_are_not_listed",
                why: "the routes of a cluster are those of its route table, whatever --cluster-name says",
            },
            Deviation {
                clause: "a_cloud_that_fails_gives_no_short_list",
                why: "a route that the table showed within the last seconds is there, also while the cloud is down",
            },
        ]
    }
}

/// An object as lines: those of load balancers and security groups, which Services share, in parts.
fn parts(mut object: Value) -> Vec<String> {
    const LISTS: [&str; 5] =
        ["frontendIPConfigurations", "loadBalancingRules", "probes", "backendAddressPools", "securityRules"];
    const BACK: [&str; 4] = ["loadBalancingRules", "inboundNatRules", "inboundNatPools", "outboundRules"];
    let (name, mut lines) = (object["name"].clone(), Vec::new());
    for list in LISTS {
        let items = object["properties"].as_object_mut().and_then(|fields| fields.remove(list));
        for mut item in items.iter().filter_map(Value::as_array).flatten().cloned() {
            let fields = item["properties"].as_object_mut().unwrap();
            BACK.iter().for_each(|field| drop(fields.remove(*field)));
            lines.push(format!("{list} of {name}: {item}"));
        }
    }
    lines.push(object.to_string());
    lines
}
