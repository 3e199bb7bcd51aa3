//! The observed cloud state of a group of Services; see [`observe`](super::observe).

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;
use serde::{Deserialize, Serialize};

use super::names;
use super::wanted::{Item, NodePort, transport};
use crate::client::network::{FloatingIp, Port, SecurityGroup, Subnet};
use crate::client::octavia::{ERROR, Listener, LoadBalancer, Member, Monitor, Pool, Version};
use crate::start::config::OVN;

/// The observed state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    pub(crate) version: Version,
    /// The balancer ID of each item that has a balancer, by the item's index.
    pub(crate) balancer_of: BTreeMap<usize, String>,
    pub(crate) balancers: BTreeMap<String, Balancer>,
    /// What the members of an item's balancer show about its owner; absent if it was not read.
    #[serde(default)]
    pub(crate) evidence: BTreeMap<usize, Evidence>,
    /// The balancers that were created for items that use another one now, or that they used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) left_behind: BTreeMap<usize, BTreeSet<String>>,
    /// What to say of balancers that may have been left like this, and that nothing shows to be of this cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) left_namesakes: BTreeMap<usize, Vec<String>>,
    /// Floating IPs on the balancers, those with the requested addresses, and leftovers of these Services.
    pub(crate) floating_ips: Vec<FloatingIp>,
    /// The networks and subnets for items that need a floating IP or a subnet.
    pub(crate) places: BTreeMap<usize, Places>,
    /// The items whose floating IP is in no subnet that they ask for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) elsewhere: BTreeSet<usize>,
    /// The security groups with the names of the items.
    pub(crate) groups: BTreeMap<usize, Group>,
    /// The reason why an item's certificate cannot be used.
    pub(crate) bad_certificates: BTreeMap<usize, String>,
    /// The error of a read without which the item gets no settings; other items of the balancer continue.
    #[serde(default)]
    pub(crate) unread: BTreeMap<usize, ProviderError>,
    /// The reason why an item's security group is not known.
    #[serde(default)]
    pub(crate) group_problems: BTreeMap<usize, ProviderError>,
    /// Items with a creation or deletion that is not shown yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) hidden: BTreeSet<usize>,
    /// For how many seconds the balancer of an item has been busy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) busy_for: BTreeMap<usize, u64>,
    /// Items of which a creation was refused for a quota.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) short: BTreeSet<usize>,
    /// The names of the balancers, which are tags, of Services whose deletion has failed so far.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) leaving: BTreeSet<String>,
    /// Items with any write that is not shown yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unsettled: BTreeSet<usize>,
}

/// A balancer and its parts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Balancer {
    pub(crate) lb: LoadBalancer,
    /// Its parts were not read: it is as recorded, or goes as a whole, and only its listeners were read.
    pub(crate) is_unread: bool,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<Pool>,
    /// By pool ID.
    pub(crate) members: BTreeMap<String, Vec<Member>>,
    /// The pools whose members were read with all fields.
    pub(crate) whole: BTreeSet<String>,
    pub(crate) monitors: Vec<Monitor>,
    /// The reason why they are not known.
    #[serde(default)]
    pub(crate) unread_monitors: Option<ProviderError>,
}

/// The networks and subnets for new objects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Places {
    /// The subnet of a node.
    pub(crate) node_subnet: Option<String>,
    /// The VIP of a new balancer has an IPv6 address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_v6: bool,
    /// The external network; `None`: there is none.
    pub(crate) external: Option<String>,
    /// The subnets of floating IPs in order; empty: Neutron chooses.
    pub(crate) external_subnets: Vec<String>,
    /// The reason why no floating IP can be created.
    pub(crate) problem: Option<String>,
}

/// A security group of a Service and the ports that concern it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    /// `None`: not created yet.
    pub(crate) group: Option<SecurityGroup>,
    /// The subnet of new members, if known.
    pub(crate) subnet: Option<Subnet>,
    /// The other subnets from which members are reached that stay where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept_subnets: Vec<Subnet>,
    /// Members stay in subnets that are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_unknown_subnets: bool,
    /// The ports of the members.
    pub(crate) ports: Vec<Port>,
    /// The ports that have the group.
    pub(crate) with_group: Vec<Port>,
    /// A member whose ports are not known: its node has no provider ID yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unknown_node: Option<String>,
}

impl Group {
    /// Whether a rule is neither from the subnet of new members nor, with ovn, from clients.
    pub(crate) fn lets_others_in(&self, item: &Item, lb: &LoadBalancer) -> bool {
        let settings = item.settings.as_ref().filter(|_| lb.provider == OVN);
        let clients = || settings.into_iter().flat_map(|settings| &settings.sources);
        let is_expected = |range: &String| {
            self.subnet.as_ref().is_some_and(|subnet| subnet.cidr == *range)
                || clients().any(|net| net.to_string() == *range)
        };
        let rules = self.group.iter().flat_map(|group| &group.security_group_rules);
        rules.map(|rule| &rule.remote_ip_prefix).any(|range| !range.is_empty() && !is_expected(range))
    }
}

impl Balancer {
    /// The tags of Services on the balancer and its listeners.
    pub(crate) fn service_tags(&self) -> impl Iterator<Item = &str> {
        let of_listeners = self.listeners.iter().map(|listener| &listener.tags);
        of_listeners.chain([&self.lb.tags]).flat_map(|tags| service_tags(tags))
    }

    /// The pool of a listener. Octavia also lists a listener at the pools to which its L7 policies redirect; where
    /// listeners do not show their pool, it is the only one with the name of a Service's.
    pub(crate) fn pool_of(&self, listener: &Listener) -> Option<&Pool> {
        let is_default = |listener: &Listener, pool: &Pool| !pool.id.is_empty() && pool.id == listener.default_pool_id;
        if !listener.default_pool_id.is_empty() {
            return self.pools.iter().find(|pool| is_default(listener, pool));
        }
        let is_listed = |pool: &&Pool| pool.listeners.iter().any(|listed| listed.id == listener.id);
        let is_free = |pool: &&Pool| !self.listeners.iter().any(|listener| is_default(listener, pool));
        let is_made = |pool: &&Pool| {
            let mut services = self.service_tags().chain([&*self.lb.name]);
            services.any(|service| names::is_part(&pool.name, "pool", service))
        };
        let mut found = self.pools.iter().filter(is_listed).filter(is_free).filter(is_made);
        found.next().filter(|_| found.next().is_none())
    }

    /// Whether a pool is deleted with its listener.
    pub(crate) fn is_of_one_listener(&self, pool: &Pool) -> bool {
        let is_of = |listener: &&Listener| self.pool_of(listener).is_some_and(|found| found.id == pool.id);
        self.listeners.iter().filter(is_of).count() == 1
    }

    /// The subnets from which it reaches the members behind these ports; `None`: the members were not read.
    pub(crate) fn subnets_behind(&self, ports: &[NodePort]) -> Option<BTreeSet<String>> {
        let all: Vec<&Listener> = self.listeners.iter().collect();
        let is_port = |listener: &&Listener| node_port_of(listener, &all, ports).is_some();
        let mut subnets = BTreeSet::new();
        for pool in self.listeners.iter().filter(is_port).filter_map(|listener| self.pool_of(listener)) {
            let members = self.members.get(&pool.id).filter(|_| self.whole.contains(&pool.id))?;
            subnets.extend(members.iter().filter_map(|member| self.subnet_of(member)).cloned());
        }
        (!self.is_unread).then_some(subnets)
    }

    /// The subnet from which it reaches a member; without one of its own that is the subnet of the VIP.
    pub(crate) fn subnet_of<'b>(&'b self, member: &'b Member) -> Option<&'b String> {
        [&member.subnet_id, &self.lb.vip_subnet_id].into_iter().find(|id| !id.is_empty())
    }
}

impl Observed {
    /// The balancer of an item.
    pub(crate) fn balancer(&self, place: usize) -> Option<&Balancer> {
        self.balancers.get(self.balancer_of.get(&place)?)
    }

    /// Whether an item has left the balancer for another one.
    pub(crate) fn has_left(&self, place: usize, id: &str) -> bool {
        self.left_behind.get(&place).is_some_and(|left| left.contains(id))
    }

    /// Whether Services use the balancer, or one of its listeners, with tags that are not `own`. Nobody can leave one in
    /// ERROR: it goes when all Services that use it do.
    pub(crate) fn is_shared(&self, balancer: &Balancer, own: impl Fn(&str) -> bool) -> bool {
        let leaves = |tag: &str| balancer.lb.provisioning_status == ERROR && self.leaving.contains(tag);
        balancer.service_tags().any(|tag| !own(tag) && !leaves(tag))
    }

    /// The floating IP on the balancer of an item.
    pub(crate) fn floating_ip_of(&self, place: usize) -> Option<&FloatingIp> {
        let port = &self.balancer(place)?.lb.vip_port_id;
        self.floating_ips.iter().find(|ip| ip.port_id.as_ref() == Some(port) && !port.is_empty())
    }

    /// Whether the parts of an item's balancer were read, or it has none.
    pub(crate) fn is_read(&self, place: usize) -> bool {
        self.balancer(place).is_none_or(|balancer| !balancer.is_unread)
    }

    /// The subnet of the members of an item; `None` with only a network: Octavia then takes the address as reachable.
    pub(crate) fn member_subnet(&self, place: usize, item: &Item) -> Option<String> {
        let of_nodes = || self.places.get(&place).and_then(|places| places.node_subnet.clone());
        let is_placed = self.balancer(place).is_none_or(|balancer| item.has_made(&balancer.lb));
        match &item.hosts.member_subnet {
            Some(subnet) => Some(subnet.clone()),
            None if !item.hosts.vip.follows_nodes() => None,
            // The VIP is in the nodes' subnet, unless the user chose its port or its balancer.
            None if item.hosts.vip.port.is_empty() && is_placed => self.vip_subnet(place).or_else(of_nodes),
            None => of_nodes(),
        }
    }

    /// The subnet from which a balancer reaches the members of an item; `None`: unknown until the balancer exists.
    pub(crate) fn source_subnet(&self, place: usize, item: &Item) -> Option<String> {
        self.member_subnet(place, item).or_else(|| self.vip_subnet(place))
    }

    fn vip_subnet(&self, place: usize) -> Option<String> {
        self.balancer(place).map(|balancer| balancer.lb.vip_subnet_id.clone()).filter(|subnet| !subnet.is_empty())
    }
}

/// The node port behind one of these listeners. Certificates and `X-Forwarded-For` make one of HTTP of any port.
pub(crate) fn node_port_of<'p>(
    listener: &Listener,
    listeners: &[&Listener],
    ports: &'p [NodePort],
) -> Option<&'p NodePort> {
    let is_own = |listener: &Listener, port: &NodePort| {
        (listener.protocol_port, transport(&listener.protocol)) == (port.port, &*port.transport)
    };
    let is_http = ["HTTP", "TERMINATED_HTTPS"].contains(&&*listener.protocol);
    let may_be = |port: &&NodePort| {
        is_http && listener.protocol_port == port.port && !listeners.iter().any(|other| is_own(other, port))
    };
    ports.iter().find(|port| is_own(listener, port)).or_else(|| ports.iter().find(may_be))
}

/// The tags of Services on an object.
pub(crate) fn service_tags(tags: &[String]) -> impl Iterator<Item = &str> + Clone {
    tags.iter().map(String::as_str).filter(|tag| names::is_service_tag(tag))
}

/// What shows that a balancer with the name of a Service's belongs to this cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Evidence {
    /// This process created it, or has seen such a member.
    Created,
    /// The Service publishes its address.
    Published,
    /// A member is a node of this cluster.
    Member,
    /// It has no members.
    Empty,
    /// Its members are others.
    Nothing,
}
