//! What a plan reports to users.

use ccm_provider::Finding;

use super::super::observed::Balancer;
use super::super::wanted::Settings;
use super::Draft;
use crate::annotations::{self as keys, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use crate::client::octavia::ERROR;
use crate::start::config::OVN;

/// The reason of the event about a setting that counts only when a balancer is created.
pub(super) const NOT_APPLIED: &str = "LoadBalancerSettingNotApplied";
/// The reason of the event about an external Service without an external network.
pub(crate) const FORCED_INTERNAL: &str = "LoadBalancerForcedInternal";

impl Draft<'_> {
    /// Reports settings of the Service that count only when a balancer is created, and differ from those of this one.
    pub(super) fn say_what_came_too_late(&mut self, balancer: &Balancer, settings: &Settings) {
        let (asked, lb) = (&settings.asked, &balancer.lb);
        let has_address = settings.is_internal || lb.vip_address.contains(':');
        let address = if has_address { &*asked.address } else { "" };
        // One that the Service names by its address may be anywhere.
        let by_address = settings.is_internal || !settings.floating.address.is_empty();
        let floating_ip = self.observed.floating_ip_of(self.place).filter(|_| !by_address);
        let network = floating_ip.map_or(&asked.floating_network, |ip| &ip.floating_network_id);
        // Beside a port, they are for the members.
        let of_vip = |place| if asked.port.is_empty() { place } else { "" };
        let of_annotations = [
            (keys::NETWORK_ID.row.key, of_vip(&asked.network), &lb.vip_network_id),
            (keys::SUBNET_ID.row.key, of_vip(&asked.subnet), &lb.vip_subnet_id),
            (keys::PORT_ID.row.key, &asked.port, &lb.vip_port_id),
            (keys::FLAVOR_ID.row.key, if self.features.flavors { &asked.flavor } else { "" }, &lb.flavor_id),
            (
                keys::AVAILABILITY_ZONE.row.key,
                if self.features.zones { &asked.zone } else { "" },
                &lb.availability_zone,
            ),
            ("spec.loadBalancerIP", address, &lb.vip_address),
            (keys::FLOATING_NETWORK_ID.row.key, &asked.floating_network, network),
        ];
        let is_owner = self.claim.is_owner();
        for (key, asked, present) in of_annotations.into_iter().filter(|(_, asked, _)| is_owner && !asked.is_empty()) {
            if asked != present {
                let shown = if present.is_empty() { "none" } else { present };
                let text = format!(
                    "{key} {asked} counts only when a load balancer is created: this one has {shown}; correct it, or make another \
                     Service"
                );
                self.findings.push(Finding::warning(NOT_APPLIED, text));
            }
        }
        if let Some(ip) = floating_ip.filter(|_| is_owner && self.observed.elsewhere.contains(&self.place)) {
            let text = format!(
                "{} counts only when a floating IP is created: {} is in no such subnet; correct it, or make another Service",
                asked.floating_subnet, ip.floating_ip_address
            );
            self.findings.push(Finding::warning(NOT_APPLIED, text));
        }
    }

    /// Reports settings that the cloud does not support.
    pub(super) fn say_what_is_ignored(&mut self, settings: &Settings) {
        let warn = |reason: &str, text: &str| Finding::warning(reason, text);
        let restricted_by_group = self.item.hosts.manages_group && self.provider == OVN;
        let without: Vec<String> =
            settings.ports.iter().filter(|port| port.node_port == 0).map(|port| port.port.to_string()).collect();
        if !without.is_empty() {
            let text = format!(
                "nothing is behind the ports without node ports ({}), which a load balancer sends to; remove the field",
                without.join(", ")
            );
            self.findings.push(warn("spec.allocateLoadBalancerNodePorts", &text));
        }
        if let Some(problem) = &settings.bad_sources {
            self.findings.push(warn("LoadBalancerSourceRangesIgnored", problem));
        }
        if settings.restricts_sources && !self.features.allowed_cidrs && !restricted_by_group {
            let text =
                "loadBalancerSourceRanges are ignored: this Octavia or its provider has no allowed CIDRs (since 2.12)";
            self.findings.push(warn("LoadBalancerSourceRangesIgnored", text));
        }
        if !settings.zone.is_empty() && !self.features.zones {
            let text = "the availability zone is ignored: this Octavia or its provider has none (since 2.14)";
            self.findings.push(warn("LoadBalancerAvailabilityZonesIgnored", text));
        }
    }
}

/// The reason why a balancer with the name or tag of a Service's is left alone, and what to do.
pub(crate) fn not_ours(id: &str, has: &str) -> String {
    format!(
        "load balancer {id} has the {has}, and nothing shows that it belongs to this cluster: none of its members is a \
         node of it. Another cluster of the project may have the same --cluster-name; give each its own. If it is of this \
         cluster, set only the annotation {}={id} (and remove {}) to take it over, or delete it",
        LOAD_BALANCER_ID.row.key, LOAD_BALANCER_ADDRESS.row.key
    )
}

/// `; listener a is in ERROR`
pub(super) fn children_in_error(balancer: &Balancer) -> String {
    let failed = |status: &str| status == ERROR;
    let listeners =
        balancer.listeners.iter().filter(|l| failed(&l.provisioning_status)).map(|l| format!("listener {}", l.name));
    let pools = balancer.pools.iter().filter(|p| failed(&p.provisioning_status)).map(|p| format!("pool {}", p.name));
    let members = balancer.members.values().flatten().filter(|m| failed(&m.provisioning_status));
    let members = members.map(|m| format!("member {}", m.name));
    let all: Vec<String> = listeners.chain(pools).chain(members).collect();
    if all.is_empty() { String::new() } else { format!(" (in ERROR: {})", all.join(", ")) }
}
