//! Whether the members of a balancer are nodes of this cluster.
//!
//! Clusters are often in networks of their own with the same range. So an address is not enough: a member is a node if a
//! port of the node has the address in the subnet from which the balancer reaches the member. A balancer in another
//! subnet reaches its members through a router, which knows one network with the address.

use std::collections::BTreeSet;

use ccm_provider::ProviderError;
use ccm_provider::address::{parse_cidr, parse_ip};

use super::super::claim::{self, Evidence};
use super::super::observed::Balancer;
use super::super::wanted::{Item, Target, Vip};
use super::Reads;
use crate::client::network::FloatingIp;
use crate::client::octavia::{LoadBalancer, Member};
use crate::client::{ApiError, is_refused};

impl Reads {
    /// What the members of a balancer that was read show. `nodes`: all addresses of the cluster's nodes.
    pub(in super::super) async fn evidence(
        &self,
        item: &Item,
        balancer: &Balancer,
        nodes: &[Target],
    ) -> Result<Evidence, ProviderError> {
        let addresses: BTreeSet<&str> = balancer.members.values().flatten().map(|member| &*member.address).collect();
        let nodes: Vec<&Target> = nodes.iter().filter(|node| addresses.contains(&*node.address)).collect();
        let has_address = |member: &Member| nodes.iter().any(|node| node.address == member.address);
        let by_address = claim::evidence(item, balancer, &has_address);
        if by_address != Evidence::Member {
            return Ok(by_address);
        }
        let balancer = &self.with_subnets(balancer).await?;
        let all = || balancer.members.values().flatten();
        let ports = self.ports.with_subports(&nodes.iter().filter_map(|node| node.server.clone()).collect()).await?;
        let fixed: BTreeSet<(&str, &str)> = ports
            .values()
            .flatten()
            .flat_map(|port| &port.fixed_ips)
            .map(|ip| (&*ip.ip_address, &*ip.subnet_id))
            .collect();
        let is_near = |member: &Member| {
            balancer.subnet_of(member).is_some_and(|subnet| fixed.contains(&(&*member.address, &**subnet)))
        };
        let mut far: BTreeSet<(&str, &str)> = BTreeSet::new();
        for member in all().filter(|member| has_address(member) && !is_near(member)) {
            if self.is_behind_router(balancer, member).await? {
                far.insert((&member.address, &member.subnet_id));
            }
        }
        let is_node = |member: &Member| {
            let mut with_address = nodes.iter().filter(|node| node.address == member.address);
            let has_port = || fixed.iter().any(|(address, _)| *address == member.address);
            is_near(member)
                || far.contains(&(&*member.address, &*member.subnet_id)) && has_port()
                // Neutron has no port of it.
                || with_address.any(|node| node.is_elsewhere)
        };
        let found = claim::evidence(item, balancer, &is_node);
        let is_unknown = |node: &&&Target| node.server.is_none() && !node.is_elsewhere;
        match nodes.iter().find(is_unknown) {
            Some(Target { node, .. }) if found != Evidence::Member => {
                Err(ProviderError::unknown(format!("node {node} has no provider ID yet: its ports are not known")))
            }
            _ => Ok(found),
        }
    }

    /// Whether the Service publishes the address of its balancer, and notes none. That of a VIP is unique only in its
    /// network, so this must be the one of a node, or that the Service's settings name.
    pub(super) async fn is_published(
        &self,
        item: &Item,
        lb: &LoadBalancer,
        floating_ip: Option<&FloatingIp>,
        nodes: impl Fn() -> Vec<Target>,
    ) -> Result<bool, ProviderError> {
        if floating_ip.is_some_and(|ip| item.publishes(lb, &ip.floating_ip_address)) {
            return Ok(true);
        }
        if !item.publishes(lb, &lb.vip_address) {
            return Ok(false);
        }
        let Vip { network, subnet, port, .. } = &item.hosts.vip;
        let places = [(network, &lb.vip_network_id), (subnet, &lb.vip_subnet_id), (port, &lb.vip_port_id)];
        if places.iter().any(|(wanted, found)| !wanted.is_empty() && wanted == found) {
            return Ok(true);
        }
        let ports = self.ports.with_subports(&nodes().into_iter().filter_map(|node| node.server).collect()).await?;
        let mut ips = ports.values().flatten().flat_map(|port| &port.fixed_ips);
        Ok(ips.any(|ip| ip.subnet_id == lb.vip_subnet_id))
    }

    /// The balancer with all fields of its members: the status tree does not show their subnets.
    async fn with_subnets(&self, balancer: &Balancer) -> Result<Balancer, ApiError> {
        let mut balancer = balancer.clone();
        for (pool, members) in &mut balancer.members {
            if !balancer.whole.contains(pool) {
                *members = self.client.members(pool).await?;
            }
        }
        Ok(balancer)
    }

    /// Whether the address of a member is outside of the subnet from which the balancer reaches it, as far as that is
    /// known: Neutron does not show the subnets of an external network to each project.
    async fn is_behind_router(&self, balancer: &Balancer, member: &Member) -> Result<bool, ProviderError> {
        let Some(id) = balancer.subnet_of(member) else { return Ok(true) };
        let subnet = match self.subnets.ask_one(id.clone()).await?.transpose() {
            // Its range may be that of the nodes.
            Err(error) if is_refused(&error) => return Ok(false),
            found => found?,
        };
        let range = subnet.and_then(|subnet| parse_cidr(&subnet.cidr));
        Ok(range.zip(parse_ip(&member.address)).is_none_or(|(range, address)| !range.contains(&address)))
    }
}
