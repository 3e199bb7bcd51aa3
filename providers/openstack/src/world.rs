//! A test bed: a simulated cloud with a few servers behind a router, and a client of it.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options};
use ccm_kit::Cluster;
use ccm_kit::http::{self, Tls};
use ccm_provider::metric::Registry;
use ccm_provider::{AddressType, Node, NodeAddress, NodeRef};
use ccm_provider_contract::TestCluster;
use serde_json::{Value, json};

use crate::client::session::{self, Endpoints, Session};
use crate::client::{Client, metrics};
use crate::start::config::Global;
use crate::start::login::Login;

/// The region of the cloud.
pub(crate) const REGION: &str = "RegionOne";
/// The range of the servers.
const RANGE: &str = "10.0.0.0/16";

/// A cloud with the network `nodes`, its router, and the flavor `m1.tiny`.
pub(crate) struct World {
    pub(crate) cloud: OpenStack,
    pub(crate) client: Client,
    pub(crate) project: String,
    pub(crate) subnet: String,
    pub(crate) subnet6: String,
    pub(crate) router: String,
}

impl World {
    /// A world with this many servers: `n1`, `n2`, …
    pub(crate) async fn with(servers: usize) -> Self {
        Self::of(servers, Options::default()).await
    }

    pub(crate) async fn of(servers: usize, options: Options) -> Self {
        let cloud = OpenStack::start(options).unwrap();
        let (project, subnet, subnet6, router) = cloud.world(|world| {
            let project = world.project("p");
            world.user("ccm", "secret", &project, &["member"]);
            let network = world.network(&project, "nodes", json!({}));
            let make = |cidr| SubnetSeed { network: &network, cidr, ..SubnetSeed::default() };
            let (subnet, subnet6) = (world.subnet(&make(RANGE)), world.subnet(&make("fd00::/64")));
            let router = world.router(&project, "r", None, &[&subnet, &subnet6]);
            world.flavor("42", "m1.tiny");
            (project, subnet, subnet6, router)
        });
        let client = client(&cloud, &project);
        client.lend(Arc::new(TestCluster::default()));
        let world = Self { cloud, client, project, subnet, subnet6, router };
        (1..=servers).for_each(|number| drop(world.server(&format!("n{number}"), json!({}))));
        world.client.session().token().await.unwrap();
        world.calls();
        world
    }

    /// A client of the same cloud for another process.
    pub(crate) fn another_client(&self) -> Client {
        let client = client(&self.cloud, &self.project);
        client.lend(Arc::new(TestCluster::default()));
        client
    }

    /// Creates a server in both subnets; returns its ID.
    pub(crate) fn server(&self, name: &str, fields: Value) -> String {
        let subnets = [&*self.subnet, &*self.subnet6];
        let seed = ServerSeed { project: &self.project, name, flavor: "42", subnets: &subnets, zone: "", fields };
        self.cloud.world(|world| world.server(&seed))
    }

    /// The ID of a server.
    pub(crate) fn id(&self, name: &str) -> String {
        self.resource("server", "name", name)["id"].as_str().unwrap().to_owned()
    }

    /// The resource of a kind with this value of a field.
    pub(crate) fn resource(&self, kind: &str, field: &str, value: &str) -> Value {
        self.cloud.resources(kind).into_iter().find(|resource| resource[field] == value).unwrap()
    }

    /// The port of a server.
    pub(crate) fn port(&self, server: &str) -> Value {
        self.resource("port", "device_id", &self.id(server))
    }

    /// Changes fields of a resource.
    pub(crate) fn set(&self, kind: &'static str, id: &str, fields: Value) {
        self.cloud.world(|world| {
            let (row, Value::Object(fields)) = (world.row_mut(kind, id).unwrap(), fields) else { panic!("no object") };
            row.fields.extend(fields);
        });
    }

    /// The initialized node of a server.
    pub(crate) fn node(&self, name: &str, pod_cidrs: &[&str]) -> NodeRef {
        let port = self.port(name);
        let ip = |fixed: &Value| NodeAddress::new(AddressType::InternalIp, fixed["ip_address"].as_str().unwrap());
        Arc::new(Node {
            name: name.into(),
            provider_id: Some(format!("openstack:///{}", self.id(name)).into()),
            addresses: port["fixed_ips"].as_array().unwrap().iter().map(ip).collect(),
            pod_cidrs: pod_cidrs.iter().map(|cidr| Box::from(*cidr)).collect(),
            ..Node::default()
        })
    }

    /// The first address of a server.
    pub(crate) fn ip(&self, server: &str) -> String {
        self.node(server, &[]).addresses[0].address.to_string()
    }

    /// The calls since the last read, without logins: the action, and the parameters of reads.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.cloud.ledger(|ledger| {
            let calls = ledger.since(0).filter(|entry| entry.service != "identity");
            let calls = calls.map(|entry| format!("{}:{}", entry.service, entry.action)).collect();
            ledger.clear();
            calls
        })
    }

    /// Answers the next calls of an operation with this error.
    pub(crate) fn fail(&self, (service, action): (&str, &str), status: u16, times: u64) {
        let fault = Fault::Code { status, code: format!("Code{status}"), message: "as the test says".to_owned() };
        self.cloud.fault(Rule::every(fault).on(service, action).window(0, times));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.cloud.violations(), [""; 0]);
        }
    }
}

/// A client without retries, of a leading process.
fn client(cloud: &OpenStack, project: &str) -> Client {
    let settings = http::Settings {
        cloud: "OpenStack",
        environment: &|_| None,
        tls: Tls::default(),
        timeout: Duration::from_secs(10),
        user_agent: "test",
        request_ids: &[],
        refusal: session::refusal,
    };
    let http = http::Client::new(&settings).unwrap();
    let caller = metrics::caller(&Registry::new()).0.unlimited().once();
    let global = Global {
        auth_url: format!("{}/v3", cloud.auth_url()),
        username: "ccm".to_owned(),
        password: ccm_kit::gcfg::Secret("secret".to_owned()),
        tenant_id: project.to_owned(),
        user_domain_id: "default".to_owned(),
        ..Global::default()
    };
    let login = Login::from(&global).unwrap().0;
    let endpoints = Endpoints { region: REGION.to_owned(), interface: "public".to_owned() };
    let session = Session::new(http, caller.clone(), Arc::new(move || Ok(login.clone())), endpoints);
    Client::new(caller, session)
}

/// A cluster with these nodes.
pub(crate) fn cluster(nodes: Vec<NodeRef>) -> (Cluster, Arc<TestCluster>) {
    let (cluster, double) = (Cluster::default(), Arc::new(TestCluster::default()));
    double.set_nodes(nodes);
    cluster.set(double.context("kubernetes"));
    (cluster, double)
}
