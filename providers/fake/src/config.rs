//! The file of `--cloud-config`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ccm_kit::document::{self, DocumentError};
use ccm_kit::{Fields, Glob, Problems, Value};
use ccm_provider::{LoadBalancerIngress, NodeAddress};
use ipnet::IpNet;

use crate::faults::Rule;
use crate::values::{StoredRoute, each, read_address, read_ingress, read_ip_mode};

mod doubts;

#[cfg(test)]
mod tests;

/// The whole configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) start: StartConfig,
    pub(crate) zone: Zone,
    pub(crate) absence_grace: Duration,
    pub(crate) unlisted: Unlisted,
    pub(crate) instances: Instances,
    pub(crate) load_balancers: LoadBalancers,
    pub(crate) routes: Routes,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) faults: Vec<Rule>,
}

/// The part that is read only at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartConfig {
    pub(crate) provider_name: String,
    pub(crate) has_cluster_id: bool,
    pub(crate) call_log: Option<PathBuf>,
    pub(crate) state_file: Option<PathBuf>,
    pub(crate) interfaces: Interfaces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interfaces {
    pub(crate) instances: bool,
    pub(crate) instances_v2: bool,
    pub(crate) zones: bool,
    pub(crate) load_balancer: bool,
    pub(crate) routes: bool,
    pub(crate) clusters: bool,
    pub(crate) pv_labels: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) failure_domain: String,
    pub(crate) region: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlisted {
    Invent,
    Missing,
    Error,
}

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) provider_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) kind: String,
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) addresses: Vec<NodeAddress>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) exists: bool,
    pub(crate) shutdown: bool,
    pub(crate) no_metadata: bool,
}

/// The entries in order, with an index for each kind of lookup: a large cluster looks up all of its nodes at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Instances {
    list: Vec<Instance>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// Only the entries without a provider ID.
    by_name_alone: HashMap<String, usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct LoadBalancers {
    pub(crate) pool: IpNet,
    pub(crate) ip_mode: Option<String>,
    pub(crate) ports: bool,
    pub(crate) statuses: Vec<StatusRule>,
    pub(crate) initial: Vec<InitialBalancer>,
}

#[derive(Debug, Clone)]
pub(crate) struct StatusRule {
    pub(crate) service: Option<Glob>,
    pub(crate) ingress: Vec<LoadBalancerIngress>,
    pub(crate) missing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InitialBalancer {
    pub(crate) service: String,
    pub(crate) ingress: Vec<LoadBalancerIngress>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Routes {
    pub(crate) node_addresses: bool,
    pub(crate) initial: Vec<StoredRoute>,
}

#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) master: String,
}

impl Config {
    /// The configuration for an absent or empty file.
    pub(crate) fn defaults() -> Result<Self, DocumentError> {
        Self::parse("", Path::new(""), None)
    }

    /// Relative paths start at `folder`. `provider_name` is the one at the start; the file may have a newer one.
    pub(crate) fn parse(text: &str, folder: &Path, provider_name: Option<&str>) -> Result<Self, DocumentError> {
        let tree = match document::parse(text)? {
            serde_json::Value::Null => serde_json::Value::Object(serde_json::Map::new()),
            tree => tree,
        };
        let problems = Problems::default();
        let config = Value::root(&tree, &problems).fields().map(|fields| Self::read(fields, folder, provider_name));
        problems.into_result()?;
        match config {
            Some(config) => Ok(config),
            // Unreachable: any other type was recorded as a problem.
            None => Self::parse("", folder, provider_name),
        }
    }

    fn read(mut f: Fields<'_>, folder: &Path, provider_name: Option<&str>) -> Self {
        let path = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| folder.join(text));
        let start = StartConfig {
            provider_name: f.text("providerName").unwrap_or_else(|| "fake".to_owned()),
            has_cluster_id: f.flag("hasClusterID").unwrap_or(true),
            call_log: path(f.text("callLog")),
            state_file: path(f.text("stateFile")),
            interfaces: Interfaces::read(f.fields("interfaces")),
        };
        let words = [("invent", Unlisted::Invent), ("missing", Unlisted::Missing), ("error", Unlisted::Error)];
        Self {
            zone: f.fields("zone").map(Zone::read).unwrap_or_default(),
            absence_grace: f.duration("absenceGrace").unwrap_or_default(),
            unlisted: f.word("unlisted", &words).unwrap_or(Unlisted::Invent),
            instances: Instances::read(&f.list("instances"), provider_name.unwrap_or(&start.provider_name)),
            load_balancers: LoadBalancers::read(f.fields("loadBalancers")),
            routes: f.fields("routes").map(Routes::read).unwrap_or_default(),
            volumes: each(&f.list("volumes"), |mut v| {
                let labels = v.texts("labels");
                Some(Volume { id: v.needed_text("id")?, labels })
            }),
            clusters: each(&f.list("clusters"), |mut c| {
                let master = c.text("master").unwrap_or_default();
                Some(Cluster { name: c.needed_text("name")?, master })
            }),
            faults: f.list("faults").iter().filter_map(|rule| Rule::read(rule, folder)).collect(),
            start,
        }
    }
}

impl StartConfig {
    /// The keys with different values.
    pub(crate) fn changes(&self, new: &Self) -> Vec<&'static str> {
        [
            ("providerName", self.provider_name != new.provider_name),
            ("hasClusterID", self.has_cluster_id != new.has_cluster_id),
            ("callLog", self.call_log != new.call_log),
            ("stateFile", self.state_file != new.state_file),
            ("interfaces", self.interfaces != new.interfaces),
        ]
        .into_iter()
        .filter_map(|(key, changed)| changed.then_some(key))
        .collect()
    }
}

impl Interfaces {
    fn read(mut fields: Option<Fields<'_>>) -> Self {
        let mut flag = |key, default| fields.as_mut().and_then(|fields| fields.flag(key)).unwrap_or(default);
        Self {
            instances: flag("instances", false),
            instances_v2: flag("instancesV2", true),
            zones: flag("zones", false),
            load_balancer: flag("loadBalancer", true),
            routes: flag("routes", false),
            clusters: flag("clusters", false),
            pv_labels: flag("pvLabels", false),
        }
    }
}

impl Zone {
    fn read(mut f: Fields<'_>) -> Self {
        Self {
            failure_domain: f.text("failureDomain").unwrap_or_default(),
            region: f.text("region").unwrap_or_default(),
        }
    }
}

impl Instances {
    /// Two entries may share a name or a provider ID (for example after an instance was replaced), but if they share
    /// both, the second could never be found.
    fn read(values: &[Value<'_>], provider_name: &str) -> Self {
        let mut read = Self::default();
        let mut seen: HashMap<(String, String), &str> = HashMap::new();
        for value in values {
            let Some(instance) = value.fields().and_then(|fields| Instance::read(fields, provider_name)) else {
                continue;
            };
            let (name, id) = (&instance.name, &instance.provider_id);
            if let Some(first) = seen.insert((name.clone(), id.clone()), value.path()) {
                let problem = format!("instance {name:?} with provider ID {id:?} is listed twice, first as {first}");
                value.problem(problem);
            }
            let at = read.list.len();
            read.by_name.entry(name.clone()).or_insert(at);
            match id.as_str() {
                "" => read.by_name_alone.entry(name.clone()).or_insert(at),
                id => read.by_id.entry(id.to_owned()).or_insert(at),
            };
            read.list.push(instance);
        }
        read
    }

    /// The entries, in order.
    pub(crate) fn list(&self) -> &[Instance] {
        &self.list
    }

    /// The first entry with this provider ID, or with this name if the query or the entry has no provider ID: a node
    /// with a provider ID must not be confused with another machine that has its name.
    pub(crate) fn find(&self, name: &str, provider_id: &str) -> Option<&Instance> {
        let by_name = if provider_id.is_empty() { &self.by_name } else { &self.by_name_alone };
        // No entry has an empty name, and `by_id` has no empty ID.
        let at = [self.by_id.get(provider_id), by_name.get(name)].into_iter().flatten().min()?;
        self.list.get(*at)
    }
}

impl Instance {
    fn read(mut f: Fields<'_>, provider_name: &str) -> Option<Self> {
        let name = f.needed_text("name");
        let default_id = format!("{provider_name}://{}", name.as_deref().unwrap_or_default());
        let instance = Self {
            name: String::new(),
            provider_id: f.text("providerID").unwrap_or(default_id),
            instance_id: f.text("instanceID"),
            kind: f.text("type").unwrap_or_default(),
            zone: f.text("zone"),
            region: f.text("region"),
            addresses: each(&f.list("addresses"), read_address),
            labels: f.texts("labels"),
            exists: f.flag("exists").unwrap_or(true),
            shutdown: f.flag("shutdown").unwrap_or(false),
            no_metadata: f.flag("noMetadata").unwrap_or(false),
        };
        Some(Self { name: name?, ..instance })
    }
}

impl LoadBalancers {
    fn read(fields: Option<Fields<'_>>) -> Self {
        // Documentation addresses (TEST-NET-3), which are not routed.
        let default_pool = IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(203, 0, 113, 0), 24));
        let mut read =
            Self { pool: default_pool, ip_mode: None, ports: false, statuses: Vec::new(), initial: Vec::new() };
        let Some(mut f) = fields else { return read };
        if let Some(pool) = f.text("pool") {
            match pool.parse() {
                Ok(pool) => read.pool = pool,
                Err(_) => f.problem("pool", format_args!("{pool:?} is not an address range such as 203.0.113.0/24")),
            }
        }
        read.ip_mode = read_ip_mode(&mut f);
        read.ports = f.flag("ports").unwrap_or(false);
        read.statuses = each(&f.list("statuses"), |mut s| {
            Some(StatusRule {
                service: s.text("service").map(|text| Glob::new(&text)),
                ingress: each(&s.list("ingress"), read_ingress),
                missing: s.flag("missing").unwrap_or(false),
            })
        });
        read.initial = each(&f.list("initial"), |mut i| {
            let ingress = each(&i.list("ingress"), read_ingress);
            Some(InitialBalancer { service: i.needed_text("service")?, ingress })
        });
        read
    }
}

impl Routes {
    fn read(mut f: Fields<'_>) -> Self {
        Self {
            node_addresses: f.flag("nodeAddresses").unwrap_or(false),
            initial: each(&f.list("initial"), |mut route| StoredRoute::read(&mut route)),
        }
    }
}
