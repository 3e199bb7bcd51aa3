//! A simulated OpenStack with a project, networks and servers, and the provider as a process creates it: from a
//! cloud.conf, over HTTP, with a login.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options};
use ccm_provider::flag::FlagValues;
use ccm_provider::{AddressType, CloudConfig, CloudProvider, Node, NodeAddress, NodeRef, ProviderFactory as _};
use ccm_provider_contract::TestCluster;
use ccm_provider_openstack::Factory;
use ccm_test_openstack::id;
use serde_json::{Value, json};

/// Value of `--cluster-name`.
pub(crate) const CLUSTER: &str = "kubernetes";

pub(crate) struct Bed {
    pub(crate) cloud: OpenStack,
    pub(crate) project: String,
    pub(crate) subnet: String,
    pub(crate) router: String,
}

impl Bed {
    /// A project with a subnet of nodes that a router connects to an external network.
    pub(crate) fn start(options: Options) -> Self {
        let cloud = OpenStack::start(options).unwrap();
        let (project, subnet, router) = cloud.world(|world| {
            let project = world.project("kube");
            world.user("ccm", "secret", &project, &["member", "load-balancer_member"]);
            world.flavor("f-1", "m1.small");
            let admin = world.project("admin");
            let external = world.network(&admin, "public", json!({"router:external": true}));
            world.subnet(&SubnetSeed {
                network: &external,
                name: "public",
                cidr: "172.24.4.0/24",
                ..Default::default()
            });
            let network = world.network(&project, "nodes", json!({}));
            let nodes = SubnetSeed { network: &network, name: "nodes", cidr: "10.60.0.0/16", ..Default::default() };
            let subnet = world.subnet(&nodes);
            let router = world.router(&project, "router", Some(&external), &[&subnet]);
            (project, subnet, router)
        });
        Self { cloud, project, subnet, router }
    }

    /// The configuration, with `more` in `[LoadBalancer]` and in sections after it.
    pub(crate) fn config(&self, more: &str) -> String {
        format!(
            "[Global]\nauth-url = {}\nusername = ccm\npassword = secret\ntenant-name = kube\ndomain-id = default\n\
             region = RegionOne\n[Route]\nrouter-id = {}\n[LoadBalancer]\n{more}\n",
            self.cloud.auth_url(),
            self.router
        )
    }

    /// A new server, and its node as the core initializes it.
    pub(crate) fn node(&self, name: &str) -> NodeRef {
        let (id, address) = self.server(name);
        Node {
            name: name.into(),
            provider_id: Some(format!("openstack:///{id}").into()),
            addresses: [NodeAddress::new(AddressType::InternalIp, address)].into(),
            ..Node::default()
        }
        .into()
    }

    /// A new server: its ID and address.
    pub(crate) fn server(&self, name: &str) -> (String, String) {
        let (project, subnet) = (&self.project, &self.subnet);
        self.cloud.world(|world| {
            let seed =
                ServerSeed { project, name, flavor: "f-1", subnets: &[subnet], zone: "zone-1", ..Default::default() };
            let id = world.server(&seed);
            let port = world.table("port").values().find(|port| port.text("device_id") == id).unwrap();
            (id, port.list("fixed_ips")[0]["ip_address"].as_str().unwrap().to_owned())
        })
    }

    /// The provider of a leading process.
    pub(crate) async fn process(&self, more: &str, cluster: &Arc<TestCluster>) -> Arc<dyn CloudProvider> {
        let config = CloudConfig { path: "cloud.conf".into(), text: self.config(more) };
        let provider = Factory.build(Some(config), &flags()).await.unwrap();
        provider.initialize(cluster.context(CLUSTER)).await.unwrap();
        provider
    }
}

/// The flags of the provider and of the program that it reads, with their defaults.
pub(crate) fn flags() -> FlagValues {
    ccm_provider_contract::flags(&Factory, &[("cluster-cidr", "10.244.0.0/16,fd00:10:244::/48")])
}

const KINDS: [&str; 9] = [
    "loadbalancer",
    "listener",
    "pool",
    "member",
    "healthmonitor",
    "floatingip",
    "security_group",
    "security_group_rule",
    "router",
];

/// The objects of load balancers and routes, one line each, and one for each security group and address pair of a
/// server's port; sorted.
pub(crate) fn contents(cloud: &OpenStack) -> Vec<String> {
    let mut lines = Vec::new();
    // Members of pools without a monitor may keep the port of health checks; a new monitor corrects it.
    let unchecked =
        cloud.resources("pool").into_iter().filter(|pool| pool["healthmonitor_id"].as_str().is_none_or(str::is_empty));
    let unchecked: BTreeSet<String> =
        unchecked.flat_map(|pool| pool["members"].as_array().cloned()).flatten().map(|it| id(&it).to_owned()).collect();
    for kind in KINDS {
        lines.extend(cloud.resources(kind).into_iter().map(|mut it| {
            if kind == "member" && unchecked.contains(id(&it)) {
                it["monitor_port"] = Value::Null;
            }
            format!("{kind} {}", shape(it))
        }));
    }
    let groups = cloud.resources("security_group").into_iter();
    let names: BTreeMap<String, Value> =
        groups.map(|group| (group["id"].as_str().unwrap().to_owned(), group["name"].clone())).collect();
    for port in cloud.resources("port") {
        // Ports of servers depend on the servers; only the provider's changes to them count.
        if !port["device_owner"].as_str().unwrap().starts_with("compute:") {
            continue;
        }
        let words = |key: &str| port[key].as_array().cloned().unwrap_or_default();
        let pairs = words("allowed_address_pairs").into_iter().map(|pair| pair["ip_address"].clone());
        let groups = words("security_groups").into_iter().map(|group| names[group.as_str().unwrap()].clone());
        lines.extend(
            pairs.chain(groups.filter(|name| name != "default")).map(|word| format!("port {}: {word}", port["id"])),
        );
    }
    lines.sort();
    lines
}

/// An object without fields that each creation changes; addresses and IDs of other objects become booleans.
fn shape(mut value: Value) -> Value {
    const ADDRESSES: [&str; 3] = ["vip_address", "floating_ip_address", "fixed_ip_address"];
    const CHANGING: [&str; 6] =
        ["id", "updated_at", "created_at", "revision_number", "operating_status", "loadbalancers"];
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|key, _| !CHANGING.contains(&&**key));
            for (key, inner) in fields.iter_mut() {
                *inner = match key.ends_with("_id") || ADDRESSES.contains(&&**key) {
                    true => json!(!inner.is_null()),
                    false => shape(inner.take()),
                };
            }
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|inner| *inner = shape(inner.take()));
            list.sort_by_key(ToString::to_string);
        }
        _ => {}
    }
    value
}
