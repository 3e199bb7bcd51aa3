//! The address of a load balancer, and its reservation while the rule is replaced. Pure.
//!
//! Upstream reserves and releases an address on every sync. Here that is done only if a rule is replaced: the
//! reservation outlives a failure, and is released once the new rule has the address. The first rule of a Service has
//! no address to lose, and projects have few reservations.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ccm_provider::address::parse_cidr;
use ccm_provider::{ProviderError, Verb};
use serde_json::json;

use super::super::ports;
use super::super::step::{Act, RESERVED, Rank};
use super::super::wanted::{Settings, refused};
use super::{Draft, put, what};
use crate::annotations::{LOAD_BALANCER_TYPE, SUBNET, Scheme, Tier};
use crate::client::Write;
use crate::client::balancing::{Address, ForwardingRule};
use crate::client::operation::{ADDRESS_DELETE, ADDRESS_RESERVE};
use crate::client::resource::{Collection, ResourceId, last_part, same_url};

/// The delay of a Service that waits for the reservations of others.
const NEXT: Duration = Duration::from_secs(5);
/// The purposes of addresses that a forwarding rule can have; external ones have none.
const PURPOSES: [&str; 3] = ["", "GCE_ENDPOINT", "SHARED_LOADBALANCER_VIP"];

/// An address that a load balancer of this kind can have.
pub(super) struct Kind<'t> {
    pub(super) scheme: Scheme,
    /// External: its tier.
    pub(super) tier: Tier,
    /// Internal: its subnetwork.
    pub(super) subnetwork: Option<&'t str>,
    /// The ports of its new rule; `None`: all of them.
    pub(super) ports: Option<BTreeSet<u16>>,
}

impl Kind<'_> {
    /// Whether a leftover address can be used.
    fn fits(&self, address: &Address, wanted: Option<&str>) -> bool {
        let is_wanted = wanted.is_none_or(|ip| ip == address.address);
        let is_of_kind = match self.scheme {
            Scheme::External => !address.is_internal() && Tier::of(&address.network_tier) == self.tier,
            Scheme::Internal => {
                let subnetwork = self.subnetwork.filter(|_| wanted.is_none() && !address.subnetwork.is_empty());
                address.is_internal() && subnetwork.is_none_or(|subnetwork| same_url(subnetwork, &address.subnetwork))
            }
        };
        is_wanted && is_of_kind && !address.address.is_empty()
    }
}

/// The ports of a rule; `None`: all of them.
fn rule_ports(rule: &ForwardingRule) -> Option<BTreeSet<u16>> {
    match (&*rule.ports, &*rule.port_range) {
        _ if rule.all_ports => None,
        ([], "") => None,
        ([], range) => ports::expanded(&[range.to_owned()]),
        (discrete, _) => ports::expanded(discrete),
    }
}

impl Draft<'_> {
    /// Secures an address for a rule that will be created: the requested one, or any. Returns it, or its placeholder;
    /// empty if the rule gets one when it is created.
    pub(super) fn hold_address(
        &mut self,
        settings: &Settings,
        rule: Option<&ForwardingRule>,
        wanted: Option<String>,
        kind: &Kind<'_>,
    ) -> Result<String, ProviderError> {
        let name = self.item.names.balancer.clone();
        let left = self.observed.addresses.get(&name);
        if let Some(left) = left.filter(|left| kind.fits(left, wanted.as_deref())) {
            self.may_use(settings, left, kind)?;
            return Ok(left.address.clone());
        }
        let reserved = wanted.as_ref().and_then(|ip| self.observed.reserved.get(ip)).filter(|it| it.name != name);
        if let Some(reserved) = reserved {
            self.may_use(settings, reserved, kind)?;
            // The former rule comes back with its address if the cloud refuses the new one.
            let is_lost = |rule: &&ForwardingRule| {
                let ip = &rule.ip_address;
                !ip.is_empty() && *ip != reserved.address && !self.observed.reserved.contains_key(ip)
            };
            if let Some(rule) = rule.filter(is_lost).filter(|_| left.is_none()) {
                let subnetwork = Some(&*rule.subnetwork).filter(|url| !url.is_empty());
                let kind = Kind { scheme: kind.scheme, tier: Tier::of(&rule.network_tier), subnetwork, ports: None };
                self.reserve(Some(&rule.ip_address), &kind, Act::Keep)?;
            }
            return Ok(reserved.address.clone());
        }
        let new_ip = settings.ip.as_ref().filter(|ip| rule.is_none_or(|rule| rule.ip_address != **ip));
        if let Some(ip) = new_ip.filter(|_| kind.scheme == Scheme::Internal) {
            self.must_be_free(ip, kind)?;
        } else if let Some(ip) = new_ip {
            return Err(refused(format!(
                "requested ip {ip:?} is neither static nor assigned to the LB: spec.loadBalancerIP must be a regional external \
                 address that is reserved in region {} of project {} (a global address cannot be used); reserve it or remove \
                 the field",
                self.env.region, self.env.links.project
            )));
        }
        let is_foreign = left.is_some_and(|left| !self.is_own(left));
        if left.is_some() && !is_foreign && !self.steps.iter().any(|step| step.kind == "Address") {
            self.delete_address(Rank::WrongAddress, "it is not the wanted address");
        }
        // The reservation shows whether an internal balancer can have the address, before the external one goes.
        let is_free = !is_foreign && left.is_none_or(|left| left.other_user(&name).is_none());
        let is_tried = kind.scheme == Scheme::Internal && self.former().is_some() && is_free;
        // Its name is taken for as long as an instance has the leftover one: the rule is replaced without it.
        let has_name = is_free || kind.scheme == Scheme::External;
        if !has_name || rule.is_none() && !is_tried {
            return Ok(wanted.unwrap_or_default());
        }
        if is_foreign {
            return Err(refused(format!(
                "the forwarding rule is not replaced: its address cannot be reserved meanwhile, as somebody else has reserved \
                 another one under the name {name}; release that or give it another name"
            )));
        }
        self.reserve(wanted.as_deref(), kind, Act::Reserve)?;
        Ok(wanted.unwrap_or_else(|| RESERVED.to_owned()))
    }

    /// Reserves an address, or any, until the new rule is there.
    fn reserve(&mut self, ip: Option<&str>, kind: &Kind<'_>, act: fn(Write) -> Act) -> Result<(), ProviderError> {
        if !self.may_reserve {
            let text =
                "other Services have reserved addresses, of which a region has few: its rule is replaced after theirs";
            return Err(ProviderError::in_progress(text, NEXT));
        }
        let mut body = json!({"description": self.item.names.description()});
        match kind.scheme {
            Scheme::External => put(&mut body, "networkTier", json!(kind.tier.as_str())),
            Scheme::Internal => {
                put(&mut body, "addressType", json!("INTERNAL"));
                if let Some(subnetwork) = kind.subnetwork {
                    put(&mut body, "subnetwork", json!(subnetwork));
                }
            }
        }
        if let Some(ip) = ip {
            put(&mut body, "address", json!(ip));
        }
        let write = self.write(ADDRESS_RESERVE, &self.item.names.balancer).body(body);
        let reason = "the address is kept until the forwarding rule has it";
        self.push(Rank::Reserve, act(write), what(Verb::Create, "Address", reason));
        Ok(())
    }

    /// Checks that an address that is not reserved is one of the subnetwork, if its range is known, and no instance has it.
    fn must_be_free(&self, ip: &str, kind: &Kind<'_>) -> Result<(), ProviderError> {
        if let Some(instance) = self.observed.in_use.get(ip) {
            return Err(in_use(ip, instance));
        }
        let Some(subnetwork) = kind.subnetwork else { return Ok(()) };
        let range = self.observed.ranges.iter().find(|(url, _)| same_url(url, subnetwork)).map(|(_, range)| range);
        let contains = |range: &String| Some(parse_cidr(range)?.contains(&ip.parse::<IpAddr>().ok()?));
        match range.filter(|range| contains(range) == Some(false)) {
            Some(range) => Err(refused(format!(
                "spec.loadBalancerIP {ip:?} is outside of {range}, the range of the subnetwork {}; use an address of that \
                 range, or name another subnetwork in the annotation {}",
                last_part(subnetwork),
                SUBNET.row.key
            ))),
            None => Ok(()),
        }
    }

    /// Checks that an address that somebody else reserved can be used.
    fn may_use(&self, settings: &Settings, address: &Address, kind: &Kind<'_>) -> Result<(), ProviderError> {
        let (ip, name) = (&address.address, &address.name);
        let refuse =
            |why: String| Err(refused(format!("spec.loadBalancerIP {ip:?}: the reserved address {name} {why}")));
        match kind.scheme {
            Scheme::Internal if !address.is_internal() => {
                return refuse(
                    "is EXTERNAL, and the load balancer INTERNAL; use an internal address of its subnetwork".to_owned(),
                );
            }
            Scheme::External if address.is_internal() => {
                return refuse(format!(
                    "is INTERNAL, and the load balancer EXTERNAL; use a regional external address, or set the annotation {} to \
                     Internal",
                    LOAD_BALANCER_TYPE.row.key
                ));
            }
            Scheme::External if Tier::of(&address.network_tier) != kind.tier => {
                return Err(refused(format!(
                    "requested IP {ip:?} belongs to the {} network tier; expected {}",
                    Tier::of(&address.network_tier).as_str(),
                    kind.tier.as_str()
                )));
            }
            _ => {}
        }
        let is_other = |subnetwork: &&str| !address.subnetwork.is_empty() && !same_url(subnetwork, &address.subnetwork);
        if let Some(subnetwork) = kind.subnetwork.filter(is_other) {
            return refuse(format!(
                "is of the subnetwork {}, and the load balancer of {}; use an address of that one, or name the other in the \
                 annotation {}",
                last_part(&address.subnetwork),
                last_part(subnetwork),
                SUBNET.row.key
            ));
        }
        if !PURPOSES.contains(&&*address.purpose) {
            return refuse(format!(
                "has the purpose {}, which is not for load balancers; use another one",
                address.purpose
            ));
        }
        let others = address.users.iter().filter(|user| last_part(user) != self.item.names.balancer);
        let found = others.filter_map(|user| Some((user, self.conflict(settings, address, user, kind)?))).next();
        match found {
            Some((user, why)) => Err(refused(format!(
                "spec.loadBalancerIP {ip:?}: the reserved address {name} is in use by {}{why}; use another one or free it",
                last_part(user)
            ))),
            None => Ok(()),
        }
    }

    /// Why an address cannot be used beside this user. The Service's own rule has it until the rule is replaced. External
    /// forwarding rules share an address if they differ in protocol or ports, internal ones if it is reserved for that.
    fn conflict(&self, settings: &Settings, address: &Address, user: &str, kind: &Kind<'_>) -> Option<&'static str> {
        let id = ResourceId::parse(user);
        let is_rule = id.is_some_and(|id| id.collection == Collection::ForwardingRules.as_str());
        if !(address.is_shared() || kind.scheme == Scheme::External && is_rule) {
            return Some("");
        }
        if kind.scheme == Scheme::External && self.env.options.denies && !self.has(&address.address) {
            return Some(", and --enable-l4-deny-firewall is for addresses of one Service");
        }
        let Some(other) = self.observed.sharers.get(user) else {
            // The cloud refuses the first rule of a Service. One that is replaced would be gone by then.
            let has_rule = self.observed.rule(&self.item.names).is_some();
            return has_rule.then_some(", and it is not known for which ports");
        };
        let is_same_protocol = other.ip_protocol.is_empty() || other.ip_protocol == settings.protocol;
        let overlaps = match (&kind.ports, rule_ports(other)) {
            (Some(ours), Some(theirs)) => !ours.is_disjoint(&theirs),
            _ => true,
        };
        (is_same_protocol && overlaps).then_some(" for the same protocol and port")
    }

    /// Whether the Service has an address. Its rule is away while it is replaced, its firewall rule is not.
    fn has(&self, address: &str) -> bool {
        let names = &self.item.names;
        let firewall = self.observed.firewalls.get(&names.firewall());
        self.observed.rule(names).is_some_and(|rule| rule.ip_address == address)
            || firewall.is_some_and(|firewall| {
                firewall.destination_ranges.iter().any(|range| range.trim_end_matches("/32") == address)
            })
    }

    /// Releases the reservation: the rule has the address now. Also if its predecessor stays.
    pub(super) fn release_address(&mut self) {
        let name = self.item.names.balancer.clone();
        let is_reserved = self.steps.iter().any(|step| step.rank == Rank::Reserve);
        let is_left = self.observed.addresses.get(&name).is_some_and(|left| self.is_own(left))
            && !self.steps.iter().any(|step| step.kind == "Address" && step.verb == Verb::Delete);
        if is_reserved || is_left {
            self.delete_address(Rank::Release, "the forwarding rule has the address");
            let releases = self.observed.rule(&self.item.names).is_some();
            self.steps.last_mut().into_iter().for_each(|step| step.releases = releases);
        }
    }

    /// Whether a reservation with the name of the balancer was made for it: this program and the Go program say so.
    pub(super) fn is_own(&self, address: &Address) -> bool {
        address.description == self.item.names.description()
    }

    /// Deletes the reservation. One that an instance uses by now cannot be deleted, and stops nothing.
    pub(super) fn delete_address(&mut self, rank: Rank, reason: &'static str) {
        let name = &self.item.names.balancer;
        let is_used = self.observed.addresses.get(name).is_some_and(|address| address.other_user(name).is_some());
        let write = self.write(ADDRESS_DELETE, name);
        let act = if is_used { Act::DeleteUnlessUsed(write) } else { Act::Send(write) };
        self.push(rank, act, what(Verb::Delete, "Address", reason));
    }
}

/// The error for an address that cannot be had because of this user.
pub(in super::super) fn in_use(ip: &str, user: &str) -> ProviderError {
    refused(format!("spec.loadBalancerIP {ip:?} is in use by {user}; use another one or free it"))
}
