//! A simulated Azure in this process. The real provider calls it over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use ccm_cloudsim::azure::{Azure, ClusterSeed, Options, SetSeed};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::latency::Latency;
use ccm_cloudsim::core::ledger::Entry;
use ccm_provider::ProviderFactory;
use serde_json::Value;
use tokio::task::JoinSet;

use super::simulated::{Seen, Simulated, follow};
use super::{Cloud, Machine, Profile};
use crate::act::Act;
use crate::feed::Feed;
use crate::world::World;
use crate::world::calls::Balancer;

static PROFILE: Profile = Profile {
    name: "azure",
    acts: &[Act::LookFirst, Act::ForReal, Act::Changed, Act::Terminated, Act::CannotTell, Act::Restarted, Act::Deleted],
    annotations: &[("api", "service.beta.kubernetes.io/azure-load-balancer-internal", "true")],
    leaving: &["api", "web"],
    parts: "load balancer, public IP address or security rule",
    doubt: "The Compute API is down",
    cause: "the Compute API answers every call with 503",
    known_after: &["compute:virtualMachineScaleSetVMs.list", "network:routeTables.get", "network:loadBalancers.list"],
    // Each node joins the pools by an operation.
    per_node: Duration::from_millis(500),
    settles: Duration::from_secs(2),
    age: Duration::from_secs(120),
    read_next: (
        "providers/azure/README.md",
        "Azure: configuration, annotations, permissions, moving from the Go program",
    ),
};

const SCALE_SET: &str = "nodes";

#[derive(Debug)]
pub(super) struct SimulatedAzure {
    azure: Azure,
    /// All instances of the scale set, including deleted ones.
    instances: Vec<Instance>,
    config: PathBuf,
    /// Knows the UIDs of Services, which are the names of their frontends.
    world: OnceLock<Arc<World>>,
}

#[derive(Debug)]
struct Instance {
    name: String,
    id: String,
    address: String,
}

impl SimulatedAzure {
    /// Starts it with a network and a scale set of this many instances, and writes the cloud config into the folder.
    pub(super) fn start(folder: &Path, nodes: usize) -> Result<Self> {
        let ms = Duration::from_millis;
        let options = Options {
            latency: Latency { read: ms(20), write: ms(40), actions: BTreeMap::new() },
            // Some seconds at Azure.
            operation: ms(150),
            ledger_entries: 20_000,
            ..Options::default()
        };
        let azure = Azure::start(options).context("cannot listen on 127.0.0.1")?;
        let zones = &["1", "2", "3"];
        let seed = SetSeed { name: SCALE_SET, prefix: "node-", instances: nodes, zones, ..SetSeed::default() };
        azure.world(|world| {
            world.cluster(&ClusterSeed::default());
            world.scale_set(&seed)
        });
        let instances = instances(&azure)?;
        let config = folder.join("azure.yaml");
        std::fs::write(
            &config,
            format!(
                "cloud: AzureCloud\nresourceManagerEndpoint: {}\ntenantId: tenant\nsubscriptionId: sub\naadClientId: client\n\
                 aadClientSecret: secret\nresourceGroup: rg\nlocation: eastus\nvnetName: vnet\nsubnetName: subnet\n\
                 securityGroupName: nsg\nrouteTableName: rt\n",
                azure.root()
            ),
        )?;
        Ok(Self { azure, instances, config, world: OnceLock::new() })
    }

    /// The Service of a frontend, which has the name of its UID.
    fn service_of(&self, frontend: &str) -> Option<String> {
        self.world.get()?.look(|state| {
            let has_name = |uid: &str| !uid.is_empty() && frontend.starts_with(&base(uid));
            state.services.iter().find(|(_, row)| has_name(&row.uid)).map(|(key, _)| key.clone())
        })
    }

    /// The nodes in the pool of a load balancer.
    fn hosts(&self, balancer: &Value) -> BTreeSet<String> {
        let members = list(balancer, "/properties/backendAddressPools")
            .flat_map(|pool| list(pool, "/properties/backendIPConfigurations"))
            .map(|member| text(member, "/id").to_lowercase());
        let of = |member: String| {
            let is_it = |instance: &&Instance| member.starts_with(&format!("{}/", instance.id.to_lowercase()));
            self.instances.iter().find(is_it).map(|instance| instance.name.clone())
        };
        members.filter_map(of).collect()
    }
}

/// What the names of the objects of a Service begin with.
fn base(uid: &str) -> String {
    let name = format!("a{}", uid.replace('-', ""));
    name.chars().take(32).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The instances of the scale set.
fn instances(azure: &Azure) -> Result<Vec<Instance>> {
    let group = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets";
    let interfaces = azure.by_hand("GET", &format!("{group}/{SCALE_SET}/networkInterfaces"), &Value::Null);
    let interfaces = interfaces.map_err(|problem| anyhow::anyhow!("the simulated Azure says: {problem:?}"))?;
    let mut instances: Vec<Instance> = azure
        .objects("Microsoft.Compute/virtualMachineScaleSets/virtualMachines")
        .iter()
        .map(|machine| {
            let id = text(machine, "/id");
            let own = list(&interfaces, "/value")
                .find(|interface| text(interface, "/properties/virtualMachine/id").eq_ignore_ascii_case(id));
            let address =
                own.map(|interface| text(interface, "/properties/ipConfigurations/0/properties/privateIPAddress"));
            let name = text(machine, "/properties/osProfile/computerName").to_lowercase();
            Instance { name, id: id.to_owned(), address: address.unwrap_or_default().to_owned() }
        })
        .collect();
    instances.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(instances)
}

impl Simulated for SimulatedAzure {
    fn calls(&self, mark: u64) -> Vec<Entry> {
        let is_of_arm = |entry: &&Entry| !matches!(&*entry.service, "login" | "metadata");
        self.azure.ledger(|ledger| ledger.since(mark).filter(is_of_arm).cloned().collect())
    }

    fn look(&self) -> Seen {
        let mut balancers = BTreeMap::new();
        for balancer in self.azure.objects("Microsoft.Network/loadBalancers") {
            let hosts = self.hosts(&balancer);
            for frontend in list(&balancer, "/properties/frontendIPConfigurations") {
                let id = text(frontend, "/id");
                let is_own =
                    |rule: &&Value| text(rule, "/properties/frontendIPConfiguration/id").eq_ignore_ascii_case(id);
                let rules = list(&balancer, "/properties/loadBalancingRules").filter(is_own);
                let ports = rules.filter_map(|rule| rule.pointer("/properties/frontendPort")?.as_u64());
                let ports = ports.filter_map(|port| u16::try_from(port).ok()).collect();
                if let Some(service) = self.service_of(text(frontend, "/name")) {
                    let found = Balancer { kind: "frontend of the load balancer", hosts: hosts.clone(), ports };
                    balancers.insert(service, found);
                }
            }
        }
        let node = |address: &str| self.instances.iter().find(|instance| instance.address == address);
        let tables = self.azure.objects("Microsoft.Network/routeTables");
        let routes = tables.iter().flat_map(|table| list(table, "/properties/routes")).filter_map(|route| {
            let node = node(text(route, "/properties/nextHopIpAddress"))?;
            Some((text(route, "/properties/addressPrefix").to_owned(), node.name.clone()))
        });
        Seen { balancers, routes: routes.collect() }
    }

    fn about_instances(&self) -> &'static [&'static str] {
        &["compute:virtualMachineScaleSetVMs.list", "compute:virtualMachines.listAll", "compute:virtualMachines.list"]
    }
}

impl Cloud for SimulatedAzure {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    fn config(&self) -> &Path {
        &self.config
    }

    fn factory(&self) -> Box<dyn ProviderFactory> {
        // The user's variables could select another tenant or endpoint.
        Box::new(ccm_provider_azure::Factory::with_environment(BTreeMap::new()))
    }

    fn names(&self) -> Vec<String> {
        self.instances.iter().map(|instance| instance.name.clone()).collect()
    }

    fn machines(&self) -> Vec<Machine> {
        let machine = |instance: &Instance| Machine {
            name: instance.name.clone(),
            on: !self.azure.object(&instance.id).is_null(),
            provider_id: Some(format!("azure://{}", instance.id)),
            node_ip: Some(instance.address.clone()),
        };
        self.instances.iter().map(machine).collect()
    }

    fn terminate(&self, name: &str) -> Result<String> {
        let instance = self.instances.iter().find(|instance| instance.name == name);
        let instance = instance.with_context(|| format!("there is no instance {name}"))?;
        self.azure.world(|world| world.delete_machine(&instance.id));
        let number = instance.id.rsplit('/').next().unwrap_or_default();
        Ok(format!("deletes the instance: az vmss delete-instances -g rg -n {SCALE_SET} --instance-ids {number}"))
    }

    fn fail(&self, _name: &str) -> Result<String> {
        let fault = Fault::Status { status: 503, body: "The service is unavailable.".to_owned() };
        self.azure.fault(Rule::every(fault).on("compute", "*"));
        Ok("has the Compute API answer every call with 503".to_owned())
    }

    fn recover(&self) -> Result<String> {
        self.azure.faults(Faults::clear);
        Ok("ends the outage of the Compute API".to_owned())
    }

    fn watch(self: Arc<Self>, world: Arc<World>, feed: Arc<Feed>, tasks: &mut JoinSet<()>) {
        // Called once.
        let _set = self.world.set(world.clone());
        tasks.spawn(follow(self, world, feed));
    }

    fn left_of_balancers(&self) -> Vec<String> {
        let named = |kind: &'static str| {
            let objects = self.azure.objects(&format!("Microsoft.Network/{kind}"));
            objects.into_iter().map(move |object| format!("{kind} {}", text(&object, "/name")))
        };
        let groups = self.azure.objects("Microsoft.Network/networkSecurityGroups");
        let rules = groups.iter().flat_map(|group| list(group, "/properties/securityRules"));
        let rules = rules.map(|rule| format!("security rule {}", text(rule, "/name")));
        ["loadBalancers", "publicIPAddresses"].into_iter().flat_map(named).chain(rules).collect()
    }

    fn windows(&self) -> Vec<String> {
        vec![
            format!("  the Resource Manager: {}", self.azure.root()),
            format!("  its log of calls: curl {}/ledger", self.azure.admin_url()),
        ]
    }

    fn try_next(&self) -> String {
        let admin = self.azure.admin_url();
        format!(
            "Or look at the subscription: curl {admin}/ledger/counts counts the calls, curl {admin} lists what else there is."
        )
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_names_of_objects_begin_with_most_of_the_uid() {
        assert_eq!(super::base("257b9655-5137-4ad2-b091-ef3f07043ad3"), "a257b965551374ad2b091ef3f07043ad");
    }
}
