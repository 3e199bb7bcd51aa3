//! AWS in unit tests: the simulated one, called by the SDK in the same process without a socket; time may stand still.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_types::sdk_config::Builder;
use ccm_cloudsim::aws::ec2::model::{Association, Attachment, Gateway, Peer, Route, RouteTable, Rule, Target, Vpc};
use ccm_cloudsim::aws::ec2::{Ec2State, Instance, InstanceState, Interface, SecurityGroup, Subnet};
use ccm_cloudsim::aws::options::Delays;
use ccm_cloudsim::aws::{self, Aws, Options};
use ccm_cloudsim::core::clock::Mode;
use ccm_cloudsim::core::faults::{self, Fault};
use ccm_cloudsim::core::server::Answer;
use ccm_provider::metric::Registry;
use parking_lot::Mutex;

use crate::client::metrics::leading;
use crate::client::{Api, Tags};
use crate::sdk::{Clients, SdkApi, connect};
use crate::start::config::Config;

/// The tag of the cluster's objects.
pub(crate) const KEY: &str = "kubernetes.io/cluster/c1";
/// The security group of the nodes.
pub(crate) const NODE_GROUP: &str = "sg-00000000000000001";

/// A VPC `vpc-1` of the cluster `c1` with the public subnets `subnet-a` and `subnet-b` in two zones.
#[derive(Debug)]
pub(crate) struct World {
    wire: Arc<Wire>,
    api: Arc<SdkApi>,
}

type Edit = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Replaces the network.
struct Wire {
    aws: Aws,
    takes: Duration,
    calls: Mutex<Vec<String>>,
    edit: Mutex<Option<Edit>>,
    knows_no_dry_runs: AtomicBool,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

#[derive(Debug, Clone)]
struct InProcess(Arc<Wire>);

impl HttpClient for InProcess {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let wire = self.0.clone();
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let mut request = request.map(|body| bytes::Bytes::copy_from_slice(body.bytes().unwrap()));
            if wire.knows_no_dry_runs.load(Ordering::Relaxed) {
                request = request.map(|body| std::str::from_utf8(&body).unwrap().replace("&DryRun=true", "").into());
            }
            wire.calls.lock().push(call(std::str::from_utf8(request.body()).unwrap()));
            if !wire.takes.is_zero() {
                tokio::time::sleep(wire.takes).await;
            }
            let Answer::Reply(response) = wire.aws.answer(request).await else {
                return Err(ConnectorError::io("connection reset".into()));
            };
            let edit = wire.edit.lock().clone();
            let body = |body: bytes::Bytes| match &edit {
                Some(edit) => SdkBody::from(edit(std::str::from_utf8(&body).unwrap())),
                None => SdkBody::from(body),
            };
            Ok(HttpResponse::try_from(response.map(body)).unwrap())
        })
    }
}

/// A call in short: a read with its filters and the number of its IDs, a write with all its arguments.
fn call(form: &str) -> String {
    let form = ["%3A:", "%2F/", "%20 ", "%2A*"].iter().fold(form.to_owned(), |form, code| {
        let (code, plain) = code.split_at(3);
        form.replace(code, plain)
    });
    let pairs: Vec<(&str, &str)> = form.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let of = |wanted: &str| pairs.iter().find(|(key, _)| *key == wanted).map_or("", |(_, value)| *value);
    let mut text = of("Action").to_owned();
    if of("Version") == "2012-06-01" {
        text.push_str(" classic");
    }
    if !text.starts_with("Describe") {
        let said = pairs.iter().filter(|(key, _)| !["Action", "Version"].contains(key));
        said.for_each(|(key, value)| text.push_str(&format!(" {key}={value}")));
        return text;
    }
    let names = pairs.iter().filter(|(key, _)| key.starts_with("Filter.") && key.ends_with(".Name"));
    for (key, name) in names {
        let values = key.replace(".Name", ".Value.");
        let count = pairs.iter().filter(|(key, _)| key.starts_with(&values)).count();
        text.push_str(&format!(" {name}={count}"));
    }
    let is_of_list = |key: &str| !key.starts_with("Filter.") && key.ends_with(|c: char| c.is_ascii_digit());
    match pairs.iter().filter(|(key, _)| is_of_list(key)).count() {
        0 => {}
        count => text.push_str(&format!(" {count} IDs")),
    }
    if !of("LoadBalancerArn").is_empty() {
        text.push_str(" of 1");
    }
    text
}

/// Clients of an endpoint, with keys that the simulated AWS accepts, after a change of their configuration.
pub(crate) fn clients(url: &str, change: impl FnOnce(Builder) -> Builder) -> Clients {
    let keys = SharedCredentialsProvider::new(Credentials::new("AKIDTEST", "secret", None, None, "test"));
    let config = SdkConfig::builder().behavior_version(BehaviorVersion::latest()).region(Region::new("us-west-2"));
    let config = change(config.credentials_provider(keys).endpoint_url(url)).build();
    connect::clients(&Config::default(), &config, "us-west-2")
}

/// An instance ID by number.
pub(crate) fn id(number: usize) -> String {
    format!("i-{number:017x}")
}

/// The primary interface of an instance.
pub(crate) fn eni(number: usize) -> String {
    format!("eni-{number:017x}")
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap())
}

/// The private DNS name of an instance.
pub(crate) fn dns_name(number: usize) -> String {
    format!("ip-{}.us-west-2.compute.internal", address(number).to_string().replace('.', "-"))
}

pub(crate) fn owned() -> Tags {
    [(KEY.to_owned(), "owned".to_owned())].into()
}

impl Default for World {
    fn default() -> Self {
        Self::taking(Duration::ZERO)
    }
}

impl World {
    /// With this number of instances and a delay for each call.
    pub(crate) fn with(instances: usize) -> Self {
        Self::taking(Duration::from_millis(50)).launched(instances)
    }

    /// Without instances, and with this delay for each call.
    pub(crate) fn taking(takes: Duration) -> Self {
        let clock = Mode::Stepped { start: jiff::Timestamp::now() };
        let options = Options { clock, validate: false, delays: Delays::none(), ..Options::default() };
        let aws = Aws::start(options).unwrap();
        let wire = Arc::new(Wire {
            aws,
            takes,
            calls: Mutex::default(),
            edit: Mutex::default(),
            knows_no_dry_runs: AtomicBool::default(),
        });
        let clients = clients("http://simulated", |config| config.http_client(InProcess(wire.clone())));
        let (caller, metrics) = leading(&Registry::new());
        let world = Self { wire, api: Arc::new(SdkApi::new(&clients, caller.once(), &metrics)) };
        world.state(|world| network(&mut world.ec2));
        world
    }

    /// With this number of instances.
    pub(crate) fn launched(self, instances: usize) -> Self {
        self.ec2(|ec2| (1..=instances).for_each(|number| launch(ec2, number)));
        self
    }

    pub(crate) fn api(&self) -> Arc<dyn Api> {
        self.api.clone()
    }

    pub(crate) fn aws(&self) -> &Aws {
        &self.wire.aws
    }

    /// The calls since the previous query.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.wire.calls.lock())
    }

    /// Reads or changes the account.
    pub(crate) fn state<T>(&self, change: impl FnOnce(&mut aws::World) -> T) -> T {
        self.wire.aws.world(|world| {
            let answer = change(world);
            world.ec2.reindex();
            answer
        })
    }

    /// Reads or changes EC2.
    pub(crate) fn ec2<T>(&self, change: impl FnOnce(&mut Ec2State) -> T) -> T {
        self.state(|world| change(&mut world.ec2))
    }

    /// Changes an instance.
    pub(crate) fn instance(&self, number: usize, change: impl FnOnce(&mut Instance)) {
        self.ec2(|ec2| change(ec2.instances.get_mut(&id(number)).unwrap()));
    }

    /// Changes the primary interface of an instance.
    pub(crate) fn interface(&self, number: usize, change: impl FnOnce(&mut Interface)) {
        self.ec2(|ec2| change(ec2.interfaces.get_mut(&eni(number)).unwrap()));
    }

    /// Makes the next calls of an operation fail.
    pub(crate) fn fail(&self, operation: &str, code: &str, times: u64) {
        let fault = Fault::Code { status: 400, code: code.to_owned(), message: "as the test says".to_owned() };
        let rule = faults::Rule { action: Some(operation.to_owned()), ..faults::Rule::every(fault) };
        self.wire.aws.fault(rule.window(0, times));
    }

    /// Removes a permission from now on.
    pub(crate) fn deny(&self, permission: &str) {
        let (_, action) = permission.split_once(':').unwrap();
        self.wire.aws.fault(faults::Rule { action: Some(action.to_owned()), ..faults::Rule::every(Fault::Deny) });
    }

    /// AWS takes the credentials no longer.
    pub(crate) fn expire(&self) {
        self.wire.aws.fault(faults::Rule::every(Fault::ExpiredCredentials));
    }

    /// Changes all answers from now on.
    pub(crate) fn edit(&self, edit: impl Fn(&str) -> String + Send + Sync + 'static) {
        *self.wire.edit.lock() = Some(Arc::new(edit));
    }

    /// Carries out dry runs from now on.
    pub(crate) fn forget_dry_runs(&self) {
        self.wire.knows_no_dry_runs.store(true, Ordering::Relaxed);
    }
}

fn network(ec2: &mut Ec2State) {
    let created = jiff::Timestamp::UNIX_EPOCH;
    let vpc = Vpc { cidr: "10.0.0.0/8".to_owned(), ipv6_cidr: None, tags: Tags::new() };
    ec2.vpcs.insert("vpc-1".to_owned(), vpc);
    ec2.gateways.insert("igw-1".to_owned(), Gateway { vpc: Some("vpc-1".to_owned()), tags: Tags::new() });
    let subnets = [
        ("subnet-a", "us-west-2a", "10.0.1.0/24", owned()),
        ("subnet-b", "us-west-2b", "10.0.2.0/24", owned()),
        ("subnet-nodes", "us-west-2a", "10.0.0.0/24", Tags::new()),
    ];
    for (id, zone, cidr, tags) in subnets {
        ec2.subnets.insert(id.to_owned(), subnet(zone, cidr, tags));
    }
    let route = |destination: &str, target| Route { destination: destination.to_owned(), target, created };
    let table = |associations: &[(&str, Association)], routes, tags| RouteTable {
        vpc: "vpc-1".to_owned(),
        associations: associations.iter().map(|(id, of)| ((*id).to_owned(), of.clone())).collect(),
        routes,
        tags,
        created,
    };
    let local = route("10.0.0.0/8", Target::Local);
    let main = table(&[("rtbassoc-1", Association::Main)], vec![local.clone()], owned());
    let of = |subnet: &str| Association::Subnet(subnet.to_owned());
    let internet = route("0.0.0.0/0", Target::Gateway("igw-1".to_owned()));
    let public =
        table(&[("rtbassoc-2", of("subnet-a")), ("rtbassoc-3", of("subnet-b"))], vec![local, internet], Tags::new());
    ec2.route_tables.extend([("rtb-1".to_owned(), main), ("rtb-2".to_owned(), public)]);
    ec2.groups.insert(NODE_GROUP.to_owned(), group("nodes", owned()));
}

pub(crate) fn subnet(zone: &str, cidr: &str, tags: Tags) -> Subnet {
    let (vpc, zone, cidr) = ("vpc-1".to_owned(), zone.to_owned(), cidr.to_owned());
    Subnet { vpc, zone, cidr, ipv6_cidr: None, tags, next_ip: 0 }
}

/// A rule for one port, or for all traffic, from a group.
pub(crate) fn rule(port: Option<i64>, peer: Peer) -> Rule {
    let protocol = if port.is_some() { "tcp" } else { "-1" }.to_owned();
    Rule { id: format!("sgr-{port:?}-{peer:?}"), protocol, from: port, to: port, peer, description: None }
}

/// A route to an instance; a blackhole if there is no instance with this number.
pub(crate) fn route_to(destination: &str, number: usize) -> Route {
    let target = Target::Interface { interface: eni(number), instance: Some(id(number)) };
    Route { destination: destination.to_owned(), target, created: jiff::Timestamp::UNIX_EPOCH }
}

/// A security group without rules.
pub(crate) fn group(name: &str, tags: Tags) -> SecurityGroup {
    SecurityGroup {
        name: name.to_owned(),
        description: name.to_owned(),
        vpc: "vpc-1".to_owned(),
        tags,
        ..SecurityGroup::default()
    }
}

/// An interface in the subnet of the nodes.
pub(crate) fn new_interface(ip: Ipv4Addr, instance: Option<String>) -> Interface {
    let attachment = Attachment {
        id: format!("eni-attach-{ip}"),
        instance,
        device: 0,
        status: "attached".to_owned(),
        since: jiff::Timestamp::UNIX_EPOCH,
    };
    Interface {
        subnet: "subnet-nodes".to_owned(),
        vpc: "vpc-1".to_owned(),
        zone: "us-west-2a".to_owned(),
        kind: "interface".to_owned(),
        private_ips: vec![ip],
        groups: vec![NODE_GROUP.to_owned()],
        source_dest_check: true,
        attachment: Some(attachment),
        ..Interface::default()
    }
}

/// A running instance of the cluster.
pub(crate) fn launch(ec2: &mut Ec2State, number: usize) {
    let instance = Instance {
        reservation: format!("r-{number}"),
        image: "ami-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        state: InstanceState::Running,
        vpc: "vpc-1".to_owned(),
        subnet: "subnet-nodes".to_owned(),
        zone: "us-west-2a".to_owned(),
        private_dns: dns_name(number),
        interfaces: vec![eni(number)],
        metadata_hops: 2,
        tags: owned(),
        ..Instance::default()
    };
    ec2.interfaces.insert(eni(number), new_interface(address(number), Some(id(number))));
    ec2.instances.insert(id(number), instance);
}
