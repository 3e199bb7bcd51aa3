//! A simulated OpenStack in this process. The real provider calls it over HTTP.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::latency::Latency;
use ccm_cloudsim::core::ledger::Entry;
use ccm_cloudsim::core::rows::Row;
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options, World as Account};
use ccm_provider::ProviderFactory;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::simulated::{Seen, Simulated, follow};
use super::{Cloud, Machine, Profile};
use crate::act::Act;
use crate::feed::Feed;
use crate::world::World;
use crate::world::calls::Balancer;

static PROFILE: Profile = Profile {
    name: "openstack",
    acts: &[Act::LookFirst, Act::ForReal, Act::Changed, Act::Terminated, Act::CannotTell, Act::Restarted, Act::Deleted],
    annotations: &[
        ("web", "loadbalancer.openstack.org/enable-health-monitor", "true"),
        ("api", "service.beta.kubernetes.io/openstack-internal-load-balancer", "true"),
    ],
    leaving: &["api", "web"],
    parts: "load balancer, floating IP, port or security group",
    doubt: "Nova is down",
    cause: "Nova is down: it answers every call with 503",
    known_after: &["compute:server_list", "network:router_get", "load-balancer:loadbalancer_get"],
    // The provider sends 20 writes per second, and the port of each node needs several: for its route and for each
    // Service.
    per_node: Duration::from_millis(500),
    settles: Duration::from_secs(1),
    age: Duration::from_secs(120),
    read_next: (
        "providers/openstack/README.md",
        "OpenStack: configuration, annotations, permissions, moving from the Go program",
    ),
};

const REGION: &str = "RegionOne";
const PROJECT: &str = "demo";
const SECRET: &str = "not-a-secret";
const FLAVOR: &str = "m1.large";

#[derive(Debug)]
pub(super) struct SimulatedOpenStack {
    openstack: OpenStack,
    project: String,
    /// All servers, including deleted ones.
    servers: Vec<Server>,
    config: PathBuf,
}

#[derive(Debug)]
struct Server {
    name: String,
    id: String,
    address: String,
}

/// The objects of the tour.
struct Seed {
    project: String,
    external: String,
    subnet: String,
    router: String,
    credential: String,
    servers: Vec<Server>,
}

impl SimulatedOpenStack {
    /// Starts it with a network and this many servers, and writes the cloud config into the folder.
    pub(super) fn start(folder: &Path, nodes: usize) -> Result<Self> {
        let ms = Duration::from_millis;
        let options = Options {
            latency: Latency { read: ms(20), write: ms(60), actions: BTreeMap::new() },
            // Octavia takes a second for a change with one virtual machine per balancer, and a minute for a new one.
            provisioning: ms(250),
            ledger_entries: 20_000,
            ..Options::default()
        };
        let openstack = OpenStack::start(options).context("cannot listen on 127.0.0.1")?;
        let names: Vec<String> = super::names(nodes).collect();
        let seed = openstack.world(|account| seed(account, &names));
        let config = folder.join("cloud.conf");
        std::fs::write(&config, cloud_config(&openstack.auth_url(), &seed))?;
        std::fs::write(folder.join("clouds.yaml"), clouds_yaml(&openstack.auth_url(), &seed))?;
        Ok(Self { openstack, project: seed.project, servers: seed.servers, config })
    }
}

/// Nodes by address.
type Nodes<'a> = HashMap<&'a str, &'a str>;

/// A load balancer, and its Service.
fn balancer(shown: &Value, nodes: &Nodes<'_>) -> Option<(String, Balancer)> {
    let description = text(shown, "description")?.strip_prefix("Kubernetes external service ")?;
    let (service, _) = description.split_once(" from cluster ")?;
    let members = list(shown, "pools").flat_map(|pool| list(pool, "members"));
    let ports = list(shown, "listeners").filter_map(|listener| listener.get("protocol_port")?.as_u64());
    let found = Balancer {
        kind: "load balancer",
        hosts: members.filter_map(|member| Some((*nodes.get(text(member, "address")?)?).to_owned())).collect(),
        ports: ports.filter_map(|port| u16::try_from(port).ok()).collect(),
    };
    Some((service.to_owned(), found))
}

/// A route of a router: range and node.
fn route(route: &Value, nodes: &Nodes<'_>) -> Option<(String, String)> {
    Some((text(route, "destination")?.to_owned(), (*nodes.get(text(route, "nexthop")?)?).to_owned()))
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// The existing objects, without those being deleted.
fn list<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let entries = object.get(name).and_then(Value::as_array).into_iter().flatten();
    entries.filter(|entry| text(entry, "provisioning_status") != Some("PENDING_DELETE"))
}

/// Creates a project with a network of servers, and a router to the external network.
fn seed(account: &mut Account, names: &[String]) -> Seed {
    let admin = account.project("admin");
    let external = account.network(&admin, "public", json!({"router:external": true}));
    let public = SubnetSeed { network: &external, name: "public", cidr: "203.0.113.0/24", ..SubnetSeed::default() };
    account.subnet(&public);
    let project = account.project(PROJECT);
    let user = account.user("demo", SECRET, &project, &["member"]);
    let credential = account.application_credential(&user, &project, "ccm", SECRET);
    let network = account.network(&project, "nodes", json!({}));
    let nodes = SubnetSeed { network: &network, name: "nodes", cidr: "10.0.0.0/16", ..SubnetSeed::default() };
    let subnet = account.subnet(&nodes);
    let router = account.router(&project, "nodes", Some(&external), &[&subnet]);
    account.flavor("1", FLAVOR);
    let zones = ["az-1", "az-2", "az-3"].into_iter().cycle();
    let servers = names.iter().zip(zones).map(|(name, zone)| {
        let fields =
            ServerSeed { project: &project, name, flavor: "1", subnets: &[&subnet], zone, fields: Value::Null };
        let id = account.server(&fields);
        let port = account.table("port").values().find(|port| port.text("device_id") == id);
        let fixed = port.and_then(|port| text(port.list("fixed_ips").first()?, "ip_address"));
        Server { name: name.clone(), address: fixed.unwrap_or_default().to_owned(), id }
    });
    let servers = servers.collect();
    Seed { project, external, subnet, router, credential, servers }
}

fn cloud_config(auth_url: &str, seed: &Seed) -> String {
    let Seed { external, subnet, router, credential, .. } = seed;
    format!(
        "\
[Global]
auth-url = {auth_url}/v3
region = {REGION}
application-credential-id = {credential}
application-credential-secret = {SECRET}

[LoadBalancer]
floating-network-id = {external}
subnet-id = {subnet}
manage-security-groups = true

[Route]
router-id = {router}
"
    )
}

/// The credentials for `openstack`, the command-line client.
fn clouds_yaml(auth_url: &str, seed: &Seed) -> String {
    format!(
        "\
clouds:
  demo:
    region_name: {REGION}
    auth_type: v3applicationcredential
    auth:
      auth_url: {auth_url}/v3
      application_credential_id: {}
      application_credential_secret: {SECRET}
",
        seed.credential
    )
}

impl Simulated for SimulatedOpenStack {
    fn calls(&self, mark: u64) -> Vec<Entry> {
        self.openstack.ledger(|ledger| ledger.since(mark).cloned().collect())
    }

    fn look(&self) -> Seen {
        let nodes: Nodes<'_> = self.servers.iter().map(|server| (&*server.address, &*server.name)).collect();
        let balancers = self.openstack.balancers().iter().filter_map(|shown| balancer(shown, &nodes)).collect();
        let routers = self.openstack.resources("router");
        let routes = routers.iter().flat_map(|router| list(router, "routes")).filter_map(|one| route(one, &nodes));
        Seen { balancers, routes: routes.collect() }
    }

    fn about_instances(&self) -> &'static [&'static str] {
        &["compute:server_list", "compute:server_get"]
    }
}

impl Cloud for SimulatedOpenStack {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    fn config(&self) -> &Path {
        &self.config
    }

    fn factory(&self) -> Box<dyn ProviderFactory> {
        Box::new(ccm_provider_openstack::Factory)
    }

    fn names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    fn machines(&self) -> Vec<Machine> {
        self.openstack.world(|account| {
            let is_on = |id: &str| account.row("server", id).is_some_and(|server| server.text("status") == "ACTIVE");
            let machine = |server: &Server| {
                let (name, node_ip) = (server.name.clone(), Some(server.address.clone()));
                Machine {
                    name,
                    on: is_on(&server.id),
                    provider_id: Some(format!("openstack:///{}", server.id)),
                    node_ip,
                }
            };
            self.servers.iter().map(machine).collect()
        })
    }

    fn terminate(&self, name: &str) -> Result<String> {
        let server = self.servers.iter().find(|server| server.name == name);
        let path =
            format!("/compute/v2.1/servers/{}", server.with_context(|| format!("there is no server {name}"))?.id);
        let deleted = self.openstack.by_hand(&self.project, "DELETE", &path, &Value::Null);
        deleted.map_err(|problem| anyhow!("the simulated OpenStack says: {problem:?}"))?;
        Ok(format!(
            "deletes the server: openstack server delete {name} (that Nova does not know a server counts once its Node is a minute \
             old; these look two minutes older than they are)"
        ))
    }

    fn fail(&self, _name: &str) -> Result<String> {
        let fault = Fault::Status { status: 503, body: "No server is available to handle this request.".to_owned() };
        self.openstack.fault(Rule::every(fault).on("compute", "*"));
        Ok("has Nova answer every call with 503".to_owned())
    }

    fn recover(&self) -> Result<String> {
        self.openstack.faults(Faults::clear);
        Ok("ends the outage of Nova".to_owned())
    }

    fn watch(self: Arc<Self>, world: Arc<World>, feed: Arc<Feed>, tasks: &mut JoinSet<()>) {
        tasks.spawn(follow(self, world, feed));
    }

    fn left_of_balancers(&self) -> Vec<String> {
        let kinds = ["loadbalancer", "listener", "pool", "member", "healthmonitor", "floatingip"];
        let mut left: Vec<String> = Vec::new();
        self.openstack.world(|account| {
            let named = |kind: &str, row: &Row| format!("{kind} {} {}", row.text("name"), row.id());
            for kind in kinds {
                left.extend(account.table(kind).values().map(|row| named(kind, row)));
            }
            let is_ours = |owner: &str| owner.starts_with("compute:") || owner.starts_with("network:router");
            let ports = account.table("port").values().filter(|port| !is_ours(port.text("device_owner")));
            left.extend(ports.map(|port| named("port", port)));
            let groups = account.table("security_group").values().filter(|group| group.text("name") != "default");
            left.extend(groups.map(|group| named("security group", group)));
        });
        left
    }

    fn windows(&self) -> Vec<String> {
        vec![
            format!(
                "  OpenStack: export OS_CLIENT_CONFIG_FILE={} OS_CLOUD=demo",
                self.config.with_file_name("clouds.yaml").display()
            ),
            format!("  its log of calls: curl {}/ledger", self.openstack.admin_url()),
        ]
    }

    fn try_next(&self) -> String {
        let admin = self.openstack.admin_url();
        format!(
            "Or change the project: openstack server delete {}. curl {admin}/ledger/counts counts the calls, curl {admin} lists \
             what else there is.",
            self.servers.last().map(|server| server.name.as_str()).unwrap_or_default()
        )
    }
}
