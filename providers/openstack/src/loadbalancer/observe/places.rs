//! The networks and subnets for new balancers, members and floating IPs.

use std::net::IpAddr;
use std::time::Duration;

use ccm_provider::{ProviderError, ServiceAction};
use ipnet::IpNet;

use super::super::observed::{Observed, Places};
use super::super::wanted::{Family, Floating, Hosts, Item, Settings};
use super::Reads;
use crate::annotations::{FLOATING_SUBNET, FLOATING_SUBNET_ID, FLOATING_SUBNET_TAGS, Key, MEMBER_SUBNET_ID};
use crate::client::network::{Network, Subnet};
use crate::client::{Query, is_refused, seen};
use crate::pattern::{NamePattern, tag_query};

/// External networks and their subnets rarely change.
const NETWORKS_AGE: Duration = Duration::from_secs(300);
/// Maximum number of nodes tried to find a subnet.
const CANDIDATES: usize = 20;

impl Reads {
    /// The networks for a new balancer or floating IP; `None` if nothing new is needed.
    pub(super) async fn places(
        &self,
        item: &Item,
        observed: &Observed,
        place: usize,
    ) -> Result<Option<Places>, ProviderError> {
        if item.action == ServiceAction::Delete {
            return Ok(None);
        }
        let (hosts, ensured) = (&item.hosts, item.settings.as_ref().filter(|_| item.action == ServiceAction::Ensure));
        let balancer = observed.balancer(place);
        let makes_balancer = balancer.is_none() && ensured.is_some();
        let is_v6 = match balancer {
            Some(balancer) => balancer.lb.vip_address.contains(':'),
            None => hosts.is_v6() || makes_balancer && self.is_without_ipv4(hosts).await?,
        };
        let has_floating_ip = observed.floating_ip_of(place).is_some();
        let for_floating_ip = ensured.filter(|settings| !settings.is_internal && !is_v6 && !has_floating_ip);
        let (follows_nodes, has_port) = (hosts.vip.follows_nodes(), !hosts.vip.port.is_empty());
        // With a VIP port or a balancer of the user, only the members are in the nodes' subnet.
        let is_theirs = has_port || balancer.is_some_and(|balancer| !item.has_made(&balancer.lb));
        let of_members = follows_nodes
            && is_theirs
            && hosts.member_subnet.is_none()
            && (observed.is_read(place) || hosts.manages_group);
        if !of_members && !makes_balancer && for_floating_ip.is_none() {
            return Ok(None);
        }
        let mut places = Places { is_v6, ..Places::default() };
        if makes_balancer && follows_nodes && !has_port {
            let subnet = self.node_subnet(hosts).await?;
            places.node_subnet = Some(subnet.ok_or_else(|| no_subnet(item))?);
        } else if of_members {
            places.node_subnet = self.node_subnet(hosts).await?;
        }
        let of_members = hosts.member_subnet.as_ref().filter(|subnet| makes_balancer && **subnet != hosts.vip.subnet);
        if let Some(subnet) = of_members
            && self.is_missing(subnet).await?
        {
            // Octavia does not look at it in a new balancer, and its driver fails later.
            places.problem = Some(format!(
                "the subnet {subnet:?} of the members does not exist; correct the annotation {}, or member-subnet-id or subnet-id in \
                 cloud.conf",
                MEMBER_SUBNET_ID.row.key
            ));
            return Ok(Some(places));
        }
        if let Some(settings) = for_floating_ip {
            let of_balancer = balancer.map(|balancer| &balancer.lb.vip_subnet_id);
            let of_nodes = places.node_subnet.as_ref().filter(|_| !has_port);
            let subnet = of_balancer.or(of_nodes).unwrap_or(&hosts.vip.subnet).clone();
            self.external(settings, &subnet, &mut places).await?;
        }
        Ok(Some(places))
    }

    /// Whether Neutron reports that a subnet does not exist. The Go program does not ask.
    async fn is_missing(&self, subnet: &str) -> Result<bool, ProviderError> {
        match self.subnets.ask_one(subnet.to_owned()).await?.transpose() {
            Err(error) if is_refused(&error) => Ok(false),
            found => Ok(found?.is_none()),
        }
    }

    /// Whether Octavia can take only an IPv6 subnet of the network of an IPv6 Service.
    async fn is_without_ipv4(&self, hosts: &Hosts) -> Result<bool, ProviderError> {
        if hosts.family != Some(Family::V6) {
            return Ok(false);
        }
        let subnets = self.client.subnets(Query::default().with("network_id", &hosts.vip.network));
        let subnets = self.client.optional("subnets of a network", subnets).await?.unwrap_or_default();
        Ok(!subnets.is_empty() && subnets.iter().all(|subnet| subnet.ip_version == 6))
    }

    /// The subnet of the first node, by name, whose address is on a port of its server.
    async fn node_subnet(&self, hosts: &Hosts) -> Result<Option<String>, ProviderError> {
        let nodes = hosts.members.iter().chain(&hosts.others);
        let with_server = nodes.filter_map(|node| Some((node.server.clone()?, node)));
        let candidates: Vec<_> = with_server.take(CANDIDATES).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let ports = self.ports.with_subports(&candidates.iter().map(|(server, _)| server.clone()).collect()).await?;
        Ok(candidates.iter().find_map(|(server, member)| {
            let ports = ports.get(server)?;
            let ips = ports.iter().flat_map(|port| &port.fixed_ips);
            ips.into_iter().find(|ip| ip.ip_address == member.address).map(|ip| ip.subnet_id.clone())
        }))
    }

    /// The external network of the floating IP of an address in this subnet, and the subnets in it.
    async fn external(&self, settings: &Settings, subnet: &str, places: &mut Places) -> Result<(), ProviderError> {
        let floating = &settings.floating;
        let network = match floating.network.is_empty() {
            false => Some(floating.network.clone()),
            true => self.detected(subnet).await?,
        };
        let Some(network) = network else { return Ok(()) };
        match self.external_subnets(floating, &network).await? {
            Ok(subnets) => places.external_subnets = subnets.into_iter().map(|subnet| subnet.id).collect(),
            Err(problem) => places.problem = Some(problem),
        }
        places.external = Some(network);
        Ok(())
    }

    /// The subnets of a new floating IP, in order; empty: Neutron chooses. The inner error says why there are none.
    async fn external_subnets(
        &self,
        floating: &Floating,
        network: &str,
    ) -> Result<Result<Vec<Subnet>, String>, ProviderError> {
        let fix = |key: &Key<String>| format!("correct the annotation {}, or its key in cloud.conf", key.row.key);
        if !floating.subnet.is_empty() {
            let fix = fix(&FLOATING_SUBNET_ID);
            return Ok(match self.client.subnet(&floating.subnet).await? {
                Some(subnet) if subnet.network_id == network => Ok(vec![subnet]),
                Some(Subnet { id, network_id, .. }) => Err(format!(
                    "floating IP subnet {id:?} doesn't belong to the network {network:?}: it is in {network_id:?}; {fix}"
                )),
                None => Err(format!("floating IP subnet {:?} does not exist; {fix}", floating.subnet)),
            });
        }
        if !floating.address.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        if let Some(problem) = &floating.problem {
            return Ok(Err(problem.clone()));
        }
        if floating.pattern.is_empty() && floating.tags.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let query = Query::default().with("network_id", network);
        let query = match tag_query(&floating.tags) {
            Some((key, value)) => query.with(key, &value),
            None => query,
        };
        let mut subnets = self.client.subnets(query).await?;
        let pattern = Some(&floating.pattern).filter(|pattern| !pattern.is_empty());
        let pattern = pattern.and_then(|pattern| NamePattern::parse(pattern).ok());
        let found_any = !subnets.is_empty();
        subnets.retain(|subnet| pattern.as_ref().is_none_or(|pattern| pattern.matches(&subnet.name)));
        Ok(match (subnets.is_empty(), found_any) {
            (false, _) => Ok(subnets),
            (true, false) => Err(format!(
                "could not find subnets for network {network} with the tags {:?}; {}",
                floating.tags,
                fix(&FLOATING_SUBNET_TAGS)
            )),
            (true, true) => Err(format!(
                "no subnet matching {:?} in the network {network}; {}",
                floating.pattern,
                fix(&FLOATING_SUBNET)
            )),
        })
    }

    /// Whether a floating IP is in no subnet that its Service asks for. Of one that is as recorded, nothing is read.
    pub(super) async fn is_elsewhere(
        &self,
        item: &Item,
        observed: &Observed,
        place: usize,
    ) -> Result<bool, ProviderError> {
        let settings = item.settings.as_ref().filter(|settings| !settings.asked.floating_subnet.is_empty());
        let settings = settings.filter(|settings| !settings.is_internal && settings.floating.address.is_empty());
        let ip =
            observed.floating_ip_of(place).filter(|_| item.action == ServiceAction::Ensure && observed.is_read(place));
        let Some((settings, ip)) = settings.zip(ip) else { return Ok(false) };
        let subnets = self.external_subnets(&settings.floating, &ip.floating_network_id).await?;
        let address = ip.floating_ip_address.parse::<IpAddr>().ok();
        let has = |subnet: &Subnet| {
            subnet.cidr.parse::<IpNet>().ok().zip(address).is_none_or(|(range, address)| range.contains(&address))
        };
        Ok(!subnets.is_ok_and(|subnets| subnets.iter().any(has)))
    }

    /// The external network that a router connects to the subnet, else the first one. It must have an IPv4 subnet, or
    /// one that is not visible to the project.
    async fn detected(&self, subnet: &str) -> Result<Option<String>, ProviderError> {
        let networks = self.networks.get(NETWORKS_AGE, None).await?.value;
        let mut external: Vec<&Network> =
            networks.iter().filter(|network| network.is_external && !network.subnets.is_empty()).collect();
        // Upstream takes the first one, and fails forever if no router connects to it.
        if external.len() > 1 && !subnet.is_empty() {
            let gateways = seen(self.client.gateways_of(subnet)).await?;
            external.sort_by_key(|network| !gateways.contains(&network.id));
        }
        for network in external {
            let visible = self.client.subnets(Query::default().with("network_id", &network.id)).await?;
            let hides_some = network.subnets.iter().any(|id| !visible.iter().any(|subnet| subnet.id == *id));
            if hides_some || visible.iter().any(|subnet| subnet.ip_version == 4) {
                return Ok(Some(network.id.clone()));
            }
        }
        Ok(None)
    }
}

/// The error for a new balancer without a subnet.
fn no_subnet(item: &Item) -> ProviderError {
    ProviderError::unknown(match item.hosts.members.is_empty() && item.hosts.others.is_empty() {
        true => format!(
            "there are no available nodes for LoadBalancer service {}: its subnet is that of a node, as no subnet-id is set",
            item.key
        ),
        false => {
            "failed to find object: no port of a node has the address of the node, so its subnet is not known; set \
                  subnet-id or network-id in [LoadBalancer] of cloud.conf"
                .to_owned()
        }
    })
}
