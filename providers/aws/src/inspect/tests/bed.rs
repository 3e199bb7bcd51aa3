//! A cluster `c1` with nodes in one public subnet, and what asks about it.

use std::sync::Arc;

use ccm_kit::Cluster;
use ccm_provider::{
    Claims, Inspect as _, LoadBalancerExt as _, Node, NodeRef, Orphan, PlannedLoadBalancer, Service, ServicePort,
};

use super::cloud::{Cloud, State};
use crate::annotations::PREFIX;
use crate::client::ec2::{AvailabilityZone, Instance, InstanceInterface, Route, RouteTable, SecurityGroup, Subnet};
use crate::client::{Api, Tags};
use crate::inspect::Inspector;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::plan::Env;
use crate::node::fleet::Fleet;
use crate::node::instances::tests::lend;
use crate::node::instances::{Ec2Instances, Settings};
use crate::node::zones::Zones;
use crate::ownership::Ownership;
use crate::routes;
use crate::start::config::{Family, HealthProbe};

/// Value of `--cluster-name`.
pub(super) const CLUSTER: &str = "kubernetes";
pub(super) const KEY: &str = "kubernetes.io/cluster/c1";

pub(super) struct Bed {
    pub(super) cloud: Arc<Cloud>,
    pub(super) nodes: Vec<NodeRef>,
    pub(super) env: Env,
    pub(super) own_table: Option<String>,
}

pub(super) fn owned() -> Tags {
    [(KEY.to_owned(), "owned".to_owned())].into()
}

pub(super) fn id(number: usize) -> String {
    format!("i-{number:017x}")
}

pub(super) fn instance(number: usize) -> Instance {
    let ip = format!("10.0.0.{number}");
    Instance {
        id: id(number),
        state: Some("running".to_owned()),
        instance_type: "m5.large".to_owned(),
        zone: "us-west-2a".to_owned(),
        vpc: "vpc-1".to_owned(),
        subnet: "subnet-1".to_owned(),
        private_dns_name: format!("ip-10-0-0-{number}.us-west-2.compute.internal"),
        private_ip: Some(ip.clone()),
        interfaces: vec![InstanceInterface {
            id: format!("eni-{number}"),
            status: "in-use".to_owned(),
            device_index: Some(0),
            private_ips: vec![ip],
            source_dest_check: Some(false),
            ..InstanceInterface::default()
        }],
        security_groups: vec!["sg-nodes".to_owned()],
        tags: owned(),
        source_dest_check: Some(false),
        ..Instance::default()
    }
}

/// A node named and identified as its instance.
pub(super) fn node(number: usize) -> Node {
    Node {
        name: instance(number).private_dns_name.into(),
        provider_id: Some(format!("aws:///us-west-2a/{}", id(number)).into()),
        pod_cidrs: [format!("10.200.{number}.0/24").into()].into(),
        ..Node::default()
    }
}

pub(super) fn group(id: &str, name: &str) -> SecurityGroup {
    SecurityGroup {
        id: id.to_owned(),
        name: name.to_owned(),
        vpc: "vpc-1".to_owned(),
        tags: owned(),
        ..SecurityGroup::default()
    }
}

pub(super) fn service(name: &str, kind: &str) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "shop".into();
    service.metadata.name = name.into();
    let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    service.metadata.uid = format!("{digits:0>8}-aaaa-bbbb-cccc-0123456789ab").into();
    if !kind.is_empty() {
        service.metadata.annotations = [(format!("{PREFIX}type"), kind.to_owned())].into();
    }
    service.spec.kind = "LoadBalancer".to_owned();
    service.spec.ports = vec![ServicePort {
        name: "http".to_owned(),
        protocol: "TCP".to_owned(),
        port: 80,
        node_port: 30080,
        ..ServicePort::default()
    }];
    service
}

fn scene() -> State {
    let (name, kind) = ("us-west-2a".to_owned(), "availability-zone".to_owned());
    let subnet = Subnet {
        id: "subnet-1".to_owned(),
        vpc: "vpc-1".to_owned(),
        zone: "us-west-2a".to_owned(),
        cidr: "10.0.0.0/24".to_owned(),
        tags: owned(),
        ..Subnet::default()
    };
    let to = |destination: &str, gateway: &str| Route {
        destination: destination.to_owned(),
        gateway: gateway.to_owned(),
        ..Route::default()
    };
    let table = RouteTable {
        id: "rtb-1".to_owned(),
        vpc: "vpc-1".to_owned(),
        main: true,
        routes: vec![to("10.0.0.0/16", "local"), to("0.0.0.0/0", "igw-1")],
        tags: owned(),
        ..RouteTable::default()
    };
    State {
        instances: [1, 2].map(|number| (id(number), instance(number))).into(),
        zones: vec![AvailabilityZone { name, id: "usw2-az1".to_owned(), kind }],
        subnets: vec![subnet],
        tables: vec![table],
        groups: [("sg-nodes".to_owned(), group("sg-nodes", "nodes"))].into(),
        ..State::default()
    }
}

impl Bed {
    /// Two nodes.
    pub(super) fn new() -> Self {
        let cloud = Cloud::default();
        *cloud.state() = scene();
        let env = Env {
            ownership: Ownership { cluster: "c1".to_owned(), legacy: false },
            vpc: "vpc-1".to_owned(),
            self_subnet: String::new(),
            node_groups_untouched: false,
            shared_group: None,
            managed_network_groups: false,
        };
        let nodes = vec![Arc::new(node(1)), Arc::new(node(2))];
        Self { cloud: Arc::new(cloud), nodes, env, own_table: None }
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.cloud.state()
    }

    /// A new process: it remembers nothing.
    pub(super) fn inspector(&self) -> Inspector {
        let (api, cluster) = (self.cloud.clone() as Arc<dyn Api>, Cluster::default());
        lend(&cluster, self.nodes.clone());
        let settings = Settings {
            region: "us-west-2".into(),
            vpc: self.env.vpc.clone(),
            families: vec![Family::Ipv4],
            own: None,
            ownership: self.env.ownership.clone(),
            topology_types: None,
            fargate_counts_as_stopped: true,
        };
        let (zones, fleet) = (Arc::new(Zones::new(api.clone())), Fleet::new(api.clone()));
        let instances = Ec2Instances::new(settings.clone(), api.clone(), zones.clone(), cluster.clone()).unwrap();
        let (env, probe) = (self.env.clone(), HealthProbe::NodePort);
        let balancers = Balancers::new(api.clone(), fleet, zones, cluster.clone(), env, probe);
        let routes = routes::Settings {
            vpc: self.env.vpc.clone(),
            table: self.own_table.clone(),
            ownership: self.env.ownership.clone(),
        };
        let (instances, balancers) = (Arc::new(instances), Arc::new(PlannedLoadBalancer(balancers)));
        Inspector { api, instances, balancers, settings, routes, cluster }
    }

    /// The balancer of a Service as the controller makes it. The Service shows its name.
    pub(super) async fn make(&self, service: &mut Service) {
        let balancers = self.inspector().balancers;
        for _ in 0..3 {
            if let Ok(Some(status)) = balancers.ensure(CLUSTER, service, &self.nodes).await {
                service.status.load_balancer = status;
                self.cloud.written();
                return;
            }
        }
        panic!("no balancer after three attempts");
    }

    pub(super) fn claims(&self, services: &[&Service]) -> Claims {
        let services = services.iter().map(|service| Arc::new((*service).clone())).collect();
        Claims { nodes: self.nodes.clone(), services }
    }

    pub(super) async fn orphans(&self, services: &[&Service]) -> Vec<Orphan> {
        self.inspector().orphans(CLUSTER, &self.claims(services)).await.unwrap()
    }
}
