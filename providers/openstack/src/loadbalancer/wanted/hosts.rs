//! What a change of nodes needs. Nothing of it can be refused, so the members of a load balancer follow the nodes
//! whatever else is wrong with its Service. Pure.

use ccm_kit::annotations::Annotations;
use ccm_provider::{Finding, NodeRef, Service, ServiceWork};
use serde::Serialize;

use super::{Family, Source, Target, Vip, backend};
use crate::annotations as keys;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::selector::NodeSelector;

/// All nodes of the cluster, of which a work has only those that a Service selects.
pub(crate) type AllNodes<'a> = &'a dyn Fn() -> Vec<NodeRef>;

/// The members of a Service, and where they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Hosts {
    /// The first IP family of the Service.
    pub(crate) family: Option<Family>,
    pub(crate) vip: Vip,
    /// The subnet of the members, if one is configured.
    pub(crate) member_subnet: Option<String>,
    /// The subnet may be that of a class that cloud.conf does not have (any more).
    #[serde(skip)]
    pub(crate) is_class_unknown: bool,
    pub(crate) node_ports: Vec<NodePort>,
    /// The port of kube-proxy's health check, if the Service has one.
    pub(crate) health_check_port: Option<i32>,
    pub(crate) members: Vec<Target>,
    /// If the selector leaves no members: the nodes without it, to find a subnet for a new balancer.
    #[serde(skip)]
    pub(crate) others: Vec<Target>,
    pub(crate) manages_group: bool,
}

/// The node port behind a port of the Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodePort {
    /// `TCP`, `UDP`, `SCTP`
    pub(crate) transport: String,
    pub(crate) port: i32,
    /// 0: none.
    pub(crate) node_port: i32,
}

impl Hosts {
    /// Whether the VIP of a new balancer has an IPv6 address. Of a network, Octavia takes an IPv4 subnet first.
    pub(crate) fn is_v6(&self) -> bool {
        let Vip { network, subnet, port, address } = &self.vip;
        let is_open = !network.is_empty() && subnet.is_empty() && port.is_empty() && address.is_empty();
        self.family == Some(Family::V6) && !is_open
    }

    /// The members that a Service asks for. An unknown class counts as none: an ensure refuses it.
    pub(super) fn new(env: &Env, work: &ServiceWork, all: AllNodes<'_>, findings: &mut Vec<Finding>) -> Self {
        let service = &*work.service;
        let config = &env.config;
        let annotations = Annotations::read(&service.metadata.annotations);
        let name = annotations.text(keys::CLASS.row).filter(|name| !name.is_empty());
        let class = name.and_then(|name| config.classes.get(name));
        let mut hosts = Source { service, annotations, class, config }.hosts(env, work, all, findings);
        hosts.is_class_unknown = name.is_some() && class.is_none() && !annotations.has(&keys::MEMBER_SUBNET_ID);
        hosts
    }
}

impl Source<'_> {
    fn hosts(&self, env: &Env, work: &ServiceWork, all: AllNodes<'_>, findings: &mut Vec<Finding>) -> Hosts {
        let (service, lb, family) = (self.service, &self.config.load_balancer, self.family());
        let is_internal = lb.internal_lb || self.annotations.readable(&keys::INTERNAL).unwrap_or(false);
        let vip = Vip {
            network: self.place(&keys::NETWORK_ID, |class| &class.network_id, &lb.network_id),
            subnet: self.place(&keys::SUBNET_ID, |class| &class.subnet_id, &lb.subnet_id),
            port: self.text(&keys::PORT_ID, ""),
            address: match is_internal || family == Some(Family::V6) {
                true => service.spec.load_balancer_ip.clone(),
                false => String::new(),
            },
        };
        // As upstream: here the annotation takes precedence over the class, and the configured subnet over that of the
        // VIP.
        let of_class = self.class.map(|class| &class.member_subnet_id).filter(|subnet| !subnet.is_empty());
        let member_subnet = [
            self.text(&keys::MEMBER_SUBNET_ID, of_class.unwrap_or(&lb.member_subnet_id)),
            lb.subnet_id.clone(),
            vip.subnet.clone(),
        ];
        let selector = NodeSelector::parse(&self.text(&keys::NODE_SELECTOR, &lb.node_selector));
        let members = backend::targets(&work.nodes, &env.identity, &selector, family, findings);
        let (any, mut others) = (NodeSelector::default(), Vec::new());
        if members.is_empty() && selector != any {
            let nodes: Vec<NodeRef> = all().into_iter().filter(|node| node.left_out_of_balancers().is_none()).collect();
            others = backend::targets(&nodes, &env.identity, &any, family, &mut Vec::new());
        }
        let matches_none = !work.nodes.iter().any(|node| selector.matches(&node.labels));
        if matches_none && !others.is_empty() && self.annotations.has(&keys::NODE_SELECTOR) {
            let problem = "no node that can be a member has these labels; correct it or the labels of the nodes";
            findings.push(self.annotations.warn(keys::NODE_SELECTOR.row, problem));
        }
        Hosts {
            family,
            vip,
            member_subnet: member_subnet.into_iter().find(|subnet| !subnet.is_empty()),
            is_class_unknown: false,
            node_ports: node_ports(service),
            health_check_port: Some(service.health_check_path_port().1).filter(|port| *port != 0),
            members,
            others,
            manages_group: lb.manage_security_groups,
        }
    }
}

fn node_ports(service: &Service) -> Vec<NodePort> {
    let node_port = |port: &ccm_provider::ServicePort| NodePort {
        transport: if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() },
        port: port.port,
        node_port: port.node_port,
    };
    service.spec.ports.iter().map(node_port).collect()
}
