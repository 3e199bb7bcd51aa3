//! A simulated Compute Engine in this process. The real provider calls it over HTTP.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::latency::Latency;
use ccm_cloudsim::core::ledger::Entry;
use ccm_cloudsim::gce::seed::InstanceSeed;
use ccm_cloudsim::gce::{Gce, Metadata, Options};
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
    name: "gce",
    acts: &[Act::LookFirst, Act::ForReal, Act::Changed, Act::Terminated, Act::CannotTell, Act::Restarted, Act::Deleted],
    annotations: &[("api", "networking.gke.io/load-balancer-type", "Internal")],
    leaving: &["api", "web"],
    parts: "forwarding rule, pool, group, health check, firewall rule or address",
    doubt: "The Compute API is down",
    cause: "the Compute API answers every call about instances with 503",
    known_after: &["compute:instances.list", "compute:routes.list", "compute:forwardingRules.get"],
    // Each node has a route, and each route is an operation.
    per_node: Duration::from_millis(300),
    settles: Duration::from_secs(1),
    age: Duration::from_secs(120),
    read_next: (
        "providers/gce/README.md",
        "Compute Engine: configuration, annotations, permissions, moving from the Go program",
    ),
};

const PROJECT: &str = "demo";
const REGION: &str = "us-central1";
const ZONES: [&str; 3] = ["us-central1-a", "us-central1-b", "us-central1-c"];
/// Network tag of the nodes.
const TAG: &str = "nodes";

#[derive(Debug)]
pub(super) struct SimulatedGce {
    gce: Gce,
    metadata: Metadata,
    /// All instances, including terminated ones.
    instances: Vec<Instance>,
    config: PathBuf,
}

#[derive(Debug)]
struct Instance {
    name: String,
    /// `projects/…/zones/…/instances/…`
    path: String,
    zone: &'static str,
    address: String,
}

impl SimulatedGce {
    /// Starts it with a network and this many instances, and writes the cloud config into the folder.
    pub(super) fn start(folder: &Path, nodes: usize) -> Result<Self> {
        let ms = Duration::from_millis;
        let options = Options {
            latency: Latency { read: ms(20), write: ms(40), actions: BTreeMap::new() },
            // A second or more at Google.
            operation: ms(150),
            ledger_entries: 20_000,
            ..Options::default()
        };
        let gce = Gce::start(options).context("cannot listen on 127.0.0.1")?;
        let subnetwork = gce.world(|world| {
            world.project(PROJECT);
            let network = world.network(PROJECT, "nodes", false);
            world.subnetwork(&network, REGION, "nodes", "10.0.0.0/16", &[])
        });
        let machine = |name: &str, zone| {
            let seed = InstanceSeed {
                project: PROJECT,
                zone,
                name,
                subnetwork: &subnetwork,
                tags: &[TAG],
                ..InstanceSeed::default()
            };
            gce.world(|world| world.instance(&seed)).context("the subnetwork is full")
        };
        let control = machine("control-plane", ZONES[0])?;
        let metadata = gce.metadata(&control, 0).context("cannot listen on 127.0.0.1")?;
        let mut instances = Vec::new();
        for (name, zone) in super::names(nodes).zip(ZONES.into_iter().cycle()) {
            let path = machine(&name, zone)?;
            let address = gce.world(|world| {
                let interfaces = world.object(&path).and_then(|fields| fields.get("networkInterfaces")).cloned();
                interfaces.and_then(|nics| Some(text(nics.get(0)?, "networkIP")?.to_owned()))
            });
            instances.push(Instance { name, path, zone, address: address.unwrap_or_default() });
        }
        let config = folder.join("gce.conf");
        std::fs::write(
            &config,
            format!(
                "[global]\napi-endpoint = {}\nsubnetwork-name = nodes\nnode-tags = {TAG}\nmultizone = true\n",
                gce.url()
            ),
        )?;
        Ok(Self { gce, metadata, instances, config })
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

fn list<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    object.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// The last part of a link.
fn last(link: &str) -> &str {
    link.rsplit('/').next().unwrap_or_default()
}

/// The Service in a description.
fn service_of(object: &Value) -> Option<String> {
    let description: Value = serde_json::from_str(text(object, "description")?).ok()?;
    Some(text(&description, "kubernetes.io/service-name")?.to_owned())
}

/// The ports of a forwarding rule: each, or the first and the last of a range.
fn ports(rule: &Value) -> BTreeSet<u16> {
    let range = text(rule, "portRange").into_iter().flat_map(|range| range.split('-'));
    let each = list(rule, "ports").filter_map(Value::as_str);
    range.chain(each).filter_map(|port| port.parse().ok()).collect()
}

impl Simulated for SimulatedGce {
    fn calls(&self, mark: u64) -> Vec<Entry> {
        self.gce.ledger(|ledger| ledger.since(mark).filter(|entry| entry.service != "metadata").cloned().collect())
    }

    fn look(&self) -> Seen {
        let pools: HashMap<String, Vec<String>> = self
            .gce
            .objects("targetPools")
            .iter()
            .filter_map(|pool| {
                let hosts = list(pool, "instances").filter_map(Value::as_str).map(|link| last(link).to_owned());
                Some((text(pool, "name")?.to_owned(), hosts.collect()))
            })
            .collect();
        // Each internal load balancer uses the groups of all zones.
        let members = || -> Vec<String> {
            let named = |group: &Value| Some((text(group, "name")?.to_owned(), last(text(group, "zone")?).to_owned()));
            let groups = self.gce.objects("instanceGroups");
            let paths = groups.iter().filter_map(named).map(|(name, zone)| {
                self.gce.world(|world| {
                    let group = world.object(&format!("projects/{PROJECT}/zones/{zone}/instanceGroups/{name}"));
                    let members = group.and_then(|group| group.get("_members")).and_then(Value::as_array);
                    let members = members.into_iter().flatten().filter_map(Value::as_str);
                    members.map(|path| last(path).to_owned()).collect::<Vec<_>>()
                })
            });
            paths.flatten().collect()
        };
        let rules = self.gce.objects("forwardingRules");
        let balancers = rules.iter().filter_map(|rule| {
            let hosts: BTreeSet<String> = match text(rule, "target") {
                Some(pool) => pools.get(last(pool)).into_iter().flatten().cloned().collect(),
                None => members().into_iter().collect(),
            };
            Some((service_of(rule)?, Balancer { kind: "load balancer", hosts, ports: ports(rule) }))
        });
        let balancers = balancers.collect();
        let routes = self.gce.objects("routes");
        let routes = routes.iter().filter_map(|route| {
            Some((text(route, "destRange")?.to_owned(), last(text(route, "nextHopInstance")?).to_owned()))
        });
        Seen { balancers, routes: routes.collect() }
    }

    fn about_instances(&self) -> &'static [&'static str] {
        &["compute:instances.list", "compute:instances.get", "compute:instances.aggregatedList"]
    }
}

impl Cloud for SimulatedGce {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    fn config(&self) -> &Path {
        &self.config
    }

    fn factory(&self) -> Box<dyn ProviderFactory> {
        let host = ("GCE_METADATA_HOST".to_owned(), self.metadata.host());
        Box::new(ccm_provider_gce::Factory::with_environment(BTreeMap::from([host])))
    }

    fn names(&self) -> Vec<String> {
        self.instances.iter().map(|instance| instance.name.clone()).collect()
    }

    fn machines(&self) -> Vec<Machine> {
        self.gce.world(|world| {
            let machine = |instance: &Instance| Machine {
                name: instance.name.clone(),
                on: world.object(&instance.path).is_some(),
                provider_id: Some(format!("gce://{PROJECT}/{}/{}", instance.zone, instance.name)),
                node_ip: Some(instance.address.clone()),
            };
            self.instances.iter().map(machine).collect()
        })
    }

    fn terminate(&self, name: &str) -> Result<String> {
        let instance = self.instances.iter().find(|instance| instance.name == name);
        let instance = instance.with_context(|| format!("there is no instance {name}"))?;
        self.gce.world(|world| world.delete_instance(&instance.path));
        Ok(format!("deletes the instance: gcloud compute instances delete {name} --zone={}", instance.zone))
    }

    fn fail(&self, _name: &str) -> Result<String> {
        let fault = Fault::Status { status: 503, body: "The service is currently unavailable.".to_owned() };
        self.gce.fault(Rule::every(fault).on("compute", "instances.*"));
        Ok("has the Compute API answer every call about instances with 503".to_owned())
    }

    fn recover(&self) -> Result<String> {
        self.gce.faults(Faults::clear);
        Ok("ends the outage of the Compute API".to_owned())
    }

    fn watch(self: Arc<Self>, world: Arc<World>, feed: Arc<Feed>, tasks: &mut JoinSet<()>) {
        tasks.spawn(follow(self, world, feed));
    }

    fn left_of_balancers(&self) -> Vec<String> {
        let collections = [
            "forwardingRules",
            "targetPools",
            "backendServices",
            "instanceGroups",
            "healthChecks",
            "httpHealthChecks",
            "firewalls",
            "addresses",
        ];
        let named = |collection: &'static str| {
            let objects = self.gce.objects(collection);
            objects.into_iter().map(move |object| format!("{collection} {}", text(&object, "name").unwrap_or_default()))
        };
        collections.into_iter().flat_map(named).collect()
    }

    fn windows(&self) -> Vec<String> {
        vec![
            format!("  the Compute API: {}", self.gce.url()),
            format!("  its log of calls: curl {}/ledger", self.gce.admin_url()),
        ]
    }

    fn try_next(&self) -> String {
        let admin = self.gce.admin_url();
        format!(
            "Or look at the project: curl {admin}/ledger/counts counts the calls, curl {admin} lists what else there is. \
             The commands of ccm also need GCE_METADATA_HOST={} in their environment.",
            self.metadata.host()
        )
    }
}
