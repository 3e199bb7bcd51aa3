//! A cluster `c1` with nodes in one public subnet, and its inspectors.

use std::sync::Arc;

use ccm_kit::Cluster;
use ccm_kit::balancer::Engine;
use ccm_provider::{Claims, Inspect as _, LoadBalancerExt as _, Node, NodeRef, Orphan, Service, ServicePort};

use ccm_cloudsim::aws::ec2::model::RouteTable;

use crate::annotations::PREFIX;
use crate::client::Tags;
use crate::inspect::Inspector;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::Env;
use crate::node::fleet;
use crate::node::instances::tests::lend;
use crate::node::instances::{self, Settings};
use crate::node::zones::Zones;
use crate::routes;
use crate::start::config::Family;
use crate::tests::env;
use crate::tests::world::{World, dns_name, id};

/// Value of `--cluster-name`.
pub(super) const CLUSTER: &str = "kubernetes";

pub(super) struct Bed {
    pub(super) world: World,
    pub(super) nodes: Vec<NodeRef>,
    pub(super) env: Env,
    pub(super) own_table: Option<String>,
    pub(super) makes_routes: bool,
    pub(super) tags_instances: bool,
}

/// A node with the name and provider ID of its instance.
pub(super) fn node(number: usize) -> Node {
    Node {
        name: dns_name(number).into(),
        provider_id: Some(format!("aws:///us-west-2a/{}", id(number)).into()),
        pod_cidrs: [format!("10.200.{number}.0/24").into()].into(),
        ..Node::default()
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

impl Bed {
    /// Two nodes.
    pub(super) fn new() -> Self {
        let world = World::default().launched(2);
        [1, 2].into_iter().for_each(|number| world.interface(number, |interface| interface.source_dest_check = false));
        let nodes = vec![Arc::new(node(1)), Arc::new(node(2))];
        Self { world, nodes, env: env(), own_table: None, makes_routes: true, tags_instances: false }
    }

    /// Changes the route table of the cluster.
    pub(super) fn table(&self, change: impl FnOnce(&mut RouteTable)) {
        self.world.ec2(|ec2| change(ec2.route_tables.get_mut("rtb-1").unwrap()));
    }

    /// Changes the tags of balancers and target groups.
    pub(super) fn tags(&self, change: impl Fn(&mut Tags)) {
        self.world.state(|state| {
            state.elb.balancers.values_mut().for_each(|balancer| change(&mut balancer.tags));
            state.elbv2.balancers.values_mut().for_each(|balancer| change(&mut balancer.tags));
            state.elbv2.groups.values_mut().for_each(|group| change(&mut group.tags));
        });
    }

    /// All objects as text.
    pub(super) fn objects(&self) -> String {
        self.world.state(|state| {
            let (ec2, elb, elbv2) = (&state.ec2, &state.elb, &state.elbv2);
            let of_ec2 = (&ec2.groups, &ec2.route_tables, &ec2.instances, &ec2.interfaces);
            format!("{:#?}", (of_ec2, &elb.balancers, &elbv2.balancers, &elbv2.listeners, &elbv2.groups))
        })
    }

    /// Names of the writes since the previous query.
    pub(super) fn written(&self) -> Vec<String> {
        let calls = self.world.calls().into_iter();
        let writes = calls.filter(|call| !call.starts_with("Describe") && !call.contains("DryRun=true"));
        writes.map(|call| call.split(' ').next().unwrap().to_owned()).collect()
    }

    /// The inspector of a new process without caches.
    pub(super) fn inspector(&self) -> Inspector {
        let (api, cluster) = (self.world.api(), Cluster::default());
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
        let (zones, fleet) = (Arc::new(Zones::new(api.clone())), fleet::new(api.clone()));
        let instances = instances::instances(settings.clone(), api.clone(), zones.clone(), cluster.clone());
        let balancers = Balancers::new(api.clone(), fleet, zones, cluster.clone(), self.env.clone());
        let routes = routes::Settings {
            vpc: self.env.vpc.clone(),
            table: self.own_table.clone(),
            ownership: self.env.ownership.clone(),
        };
        let (instances, balancers) = (Arc::new(instances), Arc::new(Engine::new(balancers)));
        let Self { makes_routes, tags_instances, .. } = *self;
        Inspector { api, instances, balancers, settings, routes, makes_routes, tags_instances, cluster }
    }

    /// A Service with the balancer that the controller creates for it, and its hostname in the status.
    pub(super) async fn made(&self, name: &str, kind: &str) -> Service {
        let (balancers, mut service) = (self.inspector().balancers, service(name, kind));
        for _ in 0..3 {
            if let Ok(Some(status)) = balancers.ensure(CLUSTER, &service, &self.nodes).await {
                service.status.load_balancer = status;
                self.written();
                return service;
            }
        }
        panic!("no balancer after three attempts");
    }

    /// `shop/old` with a classic balancer, and `shop/web` with a network balancer.
    pub(super) async fn both(&self) -> (Service, Service) {
        (self.made("old", "").await, self.made("web", "nlb").await)
    }

    pub(super) fn claims(&self, services: &[&Service]) -> Claims {
        let services = services.iter().map(|service| Arc::new((*service).clone())).collect();
        Claims { nodes: self.nodes.clone(), services }
    }

    pub(super) async fn orphans(&self, services: &[&Service]) -> Vec<Orphan> {
        self.inspector().orphans(CLUSTER, &self.claims(services)).await.unwrap()
    }
}
