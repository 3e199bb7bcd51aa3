//! The floating IP of a balancer.

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{Finding, ProviderError, Verb};

use super::super::names;
use super::super::observed::Balancer;
use super::super::step::Write;
use super::super::wanted::Settings;
use super::findings::{FORCED_INTERNAL, NOT_APPLIED};
use super::{Draft, Fields, refused};
use crate::client::network::FloatingIp;

/// The part of the floating IP.
pub(super) const FLOATING_IP: &str = "floating IP";
/// The reason of the event about a floating IP of a user.
const KEPT: &str = "LoadBalancerFloatingIPKept";

impl<'a> Draft<'a> {
    pub(super) fn floating_ip(&mut self, balancer: &Balancer, settings: &Settings) -> Result<(), ProviderError> {
        let (port, is_owner) = (&balancer.lb.vip_port_id, self.claim.is_owner());
        self.part = Part::of(Kind::Settings, FLOATING_IP);
        if balancer.lb.vip_address.contains(':') {
            if !settings.is_internal {
                let text = "the address of the load balancer is an IPv6 address, which needs no floating IP";
                self.findings.push(Finding::warning("LoadBalancerFloatingIPSkipped", text));
            }
            return Ok(());
        }
        let bound = self.observed.floating_ips.iter().find(|ip| ip.port_id.as_ref() == Some(port) && !port.is_empty());
        match bound {
            Some(ip) if settings.is_internal && is_owner => {
                self.remove_floating_ip(balancer, ip, "the Service is internal");
                return Ok(());
            }
            Some(ip) => {
                self.move_floating_ip(balancer, settings, ip);
                let has_moved = |noted: &String| noted != &ip.floating_ip_address;
                if ip.floating_ip_address == settings.floating.address
                    && self.item.noted_address.as_ref().is_some_and(has_moved)
                {
                    self.leave_loose_floating_ips(Some(ip));
                }
                return Ok(());
            }
            None if settings.is_internal => return Ok(()),
            None if !is_owner => {
                return Err(refused(format!(
                    "cannot attach a floating IP to a load balancer for a shared Service: {} is that of another Service",
                    balancer.lb.id
                )));
            }
            None => {}
        }
        let address = &settings.floating.address;
        let in_network = |ip: &&FloatingIp| settings.floating.has(ip);
        if address.is_empty()
            && let Some(ip) = self.loose_floating_ips().find(in_network)
        {
            self.bind_floating_ip(ip, port, "it was made for the Service");
            return Ok(());
        }
        if let Some(ip) = self.named_floating_ip(settings) {
            if ip.port_id.as_ref().is_some_and(|port| !port.is_empty()) {
                return Err(refused(format!(
                    "floating IP {address} is not available: it is bound to the port {}",
                    ip.port_id.as_deref().unwrap_or_default()
                )));
            }
            self.bind_floating_ip(ip, port, "spec.loadBalancerIP names it");
            self.leave_loose_floating_ips(Some(ip));
            return Ok(());
        }
        self.create_floating_ip(settings, port)
    }

    fn bind_floating_ip(&mut self, ip: &FloatingIp, port: &str, reason: &'static str) {
        let (id, address, descriptions) = (&ip.id, &ip.floating_ip_address, &self.item.descriptions);
        if ip.description == descriptions.replaced_ip {
            let write = Write::DescribeFloatingIp { id: id.clone(), description: descriptions.floating_ip.clone() };
            self.push(write, (Verb::Update, "FloatingIP", address), "it is not replaced after all");
        }
        let write = Write::BindFloatingIp { id: id.clone(), port: Some(port.to_owned()) };
        self.push(write, (Verb::Attach, "FloatingIP", address), reason);
    }

    /// The floating IP with the address that the Service asks for; one in the configured network first.
    fn named_floating_ip(&self, settings: &Settings) -> Option<&'a FloatingIp> {
        self.named_floating_ips(&settings.floating.address).min_by_key(|ip| !settings.floating.has(ip))
    }

    /// External networks may have the same addresses.
    fn named_floating_ips(&self, address: &str) -> impl Iterator<Item = &'a FloatingIp> {
        let all = self.observed.floating_ips.iter();
        all.filter(move |ip| !address.is_empty() && ip.floating_ip_address == address)
    }

    /// Replaces the floating IP by the one that the Service asks for, if that is free.
    fn move_floating_ip(&mut self, balancer: &Balancer, settings: &Settings, bound: &FloatingIp) {
        let (address, present) = (&settings.floating.address, &bound.floating_ip_address);
        if address.is_empty() || address == present {
            return;
        }
        // A router must join the load balancer to its network: that of the present one, or the one that the user names.
        let is_near = |ip: &&FloatingIp| {
            let network = &ip.floating_network_id;
            [&bound.floating_network_id, &settings.floating.network].contains(&network)
        };
        let is_free = |ip: &&FloatingIp| ip.port_id.as_ref().is_none_or(String::is_empty);
        let free = self.named_floating_ips(address).filter(is_near).find(is_free);
        let Some(free) = free.filter(|_| self.claim.is_owner()) else {
            let text = format!(
                "spec.loadBalancerIP {address} is not used, and {present} stays: no floating IP of the project with that address is \
                 free in its external network; reserve it there first, or write {present}"
            );
            self.findings.push(Finding::warning(NOT_APPLIED, text));
            return;
        };
        let (from, to, port) = (bound.id.clone(), free.id.clone(), balancer.lb.vip_port_id.clone());
        let goes = self.is_our_floating_ip(balancer, bound) && !self.item.keep_floating_ip;
        let descriptions = goes.then(|| [bound.description.clone(), self.item.descriptions.replaced_ip.clone()]);
        let write = Write::MoveToFloatingIp { from, to, port, descriptions };
        self.push(write, (Verb::Attach, "FloatingIP", address), "spec.loadBalancerIP names it");
        if goes {
            self.delete_replaced(bound);
        }
    }

    /// Deletes the floating IPs that an interrupted move to another one has left. Any other that was detached from an
    /// existing balancer was detached to be kept.
    pub(super) fn leave_loose_floating_ips(&mut self, bound: Option<&FloatingIp>) {
        for ip in self.loose_floating_ips().filter(|ip| bound.is_none_or(|bound| bound.id != ip.id)) {
            if ip.description == self.item.descriptions.replaced_ip {
                self.delete_replaced(ip);
                continue;
            }
            let address = &ip.floating_ip_address;
            let text = format!("floating IP {address} was detached from the load balancer: it is not deleted");
            self.findings.push(Finding::warning(KEPT, text));
        }
    }

    /// Deletes a floating IP whose successor is bound.
    fn delete_replaced(&mut self, ip: &FloatingIp) {
        if !self.item.keep_floating_ip {
            self.part = Part::of(Kind::Retire, FLOATING_IP);
            let write = Write::DeleteFloatingIp { id: ip.id.clone() };
            let address = &ip.floating_ip_address;
            self.push(write, (Verb::Delete, "FloatingIP", address), "spec.loadBalancerIP names another");
            self.amend(|step| step.needs(&[Kind::Settings]));
        }
    }

    fn create_floating_ip(&mut self, settings: &Settings, port: &str) -> Result<(), ProviderError> {
        let places = self.observed.places.get(&self.place).cloned().unwrap_or_default();
        if let Some(problem) = &places.problem {
            return Err(refused(problem.clone()));
        }
        let Some(network) = &places.external else {
            let text = "failed to find an external network: set floating-network-id; the address of the load balancer is published";
            self.findings.push(Finding::warning("LoadBalancerExternalNetworkSearchFailed", text));
            let text = "no floating IP: the Service is reachable inside of the cloud alone";
            self.findings.push(Finding::warning(FORCED_INTERNAL, text));
            return Ok(());
        };
        let body = |subnet: Option<&String>| {
            let mut fields = Fields::default();
            fields.put("floating_network_id", &**network);
            fields.put("port_id", port);
            fields.put("description", &*self.item.descriptions.floating_ip);
            fields.put_text("subnet_id", subnet.map(String::as_str).unwrap_or_default());
            fields.put_text("floating_ip_address", &settings.floating.address);
            fields.into()
        };
        let bodies = match places.external_subnets.as_slice() {
            [] => vec![body(None)],
            subnets => subnets.iter().map(|subnet| body(Some(subnet))).collect(),
        };
        let pattern = settings.floating.pattern.clone();
        let write = Write::CreateFloatingIp { bodies, pattern };
        self.push(write, (Verb::Create, "FloatingIP", &self.item.name), "the Service is external");
        Ok(())
    }

    /// Deletes a floating IP that was created for the balancer; detaches any other one that the Service has had. One that
    /// a user bound to an internal Service stays.
    pub(super) fn remove_floating_ip(&mut self, balancer: &Balancer, ip: &FloatingIp, reason: &'static str) {
        let (address, is_ours) = (ip.floating_ip_address.clone(), self.is_our_floating_ip(balancer, ip));
        if is_ours && !self.item.keep_floating_ip {
            self.push(Write::DeleteFloatingIp { id: ip.id.clone() }, (Verb::Delete, "FloatingIP", &address), reason);
        } else if is_ours || self.item.has_had(&address) {
            let write = Write::BindFloatingIp { id: ip.id.clone(), port: None };
            self.push(write, (Verb::Detach, "FloatingIP", &address), reason);
        } else {
            let text = format!(
                "floating IP {address} was bound to the load balancer of an internal Service by another client, and stays: the \
                 Service can be reached from outside"
            );
            self.findings.push(Finding::warning(KEPT, text));
        }
    }

    /// Unbound floating IPs created for this Service: their balancer was deleted by hand. One older than the Service is
    /// left out: it was kept for an earlier Service of the same name.
    pub(super) fn loose_floating_ips(&self) -> impl Iterator<Item = &'a FloatingIp> + use<'a> {
        let item = self.item;
        let is_loose = |ip: &&FloatingIp| ip.port_id.as_ref().is_none_or(String::is_empty);
        self.observed.floating_ips.iter().filter(is_loose).filter(move |ip| item.has_floating_ip(ip))
    }

    /// Whether a floating IP was created for this Service or, by the balancer's description, for the balancer's owner.
    pub(super) fn is_our_floating_ip(&self, balancer: &Balancer, ip: &FloatingIp) -> bool {
        let of_balancer = !balancer.lb.description.is_empty() && names::is_service_tag(&balancer.lb.name);
        ip.description == self.item.descriptions.floating_ip
            || of_balancer && ip.description == names::floating_ip_of(&balancer.lb.description)
    }
}
