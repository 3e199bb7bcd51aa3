//! Replacement of a balancer in ERROR at the Service's request.
//!
//! The old balancer is deleted first: both have the same name, and the address may be fixed. The next sync relies on
//! what remains: the recorded ID shows that there was one, and a floating IP is found by its description or address.

use std::time::Duration;

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{Finding, ProviderError, Verb};

use super::super::observed::Balancer;
use super::super::step::{Then, Write};
use super::super::wanted::Settings;
use super::floating::FLOATING_IP;
use super::{Draft, children_in_error, refused};
use crate::annotations::RECREATE_IN_ERROR;
use crate::client::network::FloatingIp;

/// Delay until the plan that relies on the recorded ID.
const NOTED: Duration = Duration::from_millis(100);

impl Draft<'_> {
    pub(super) fn replace(&mut self, balancer: &Balancer, settings: &Settings) -> Result<(), ProviderError> {
        let (item, lb) = (self.item, &balancer.lb);
        let text = format!("load balancer {} is in ERROR{}", lb.id, children_in_error(balancer));
        let keeps = |why: String| {
            let key = RECREATE_IN_ERROR.row.key;
            Err(refused(format!("{text}, and the annotation {key} does not replace it: {why}")))
        };
        if !self.claim.is_owner() {
            return keeps(
                "it was not made for this Service; repair it, or remove the annotation load-balancer-id".to_owned(),
            );
        }
        if let Some(other) = balancer.service_tags().find(|tag| !self.claim.owns(item, tag)) {
            return keeps(format!("it is shared with {other}; repair it, or let the other Services leave it first"));
        }
        let is_bound = |port: &Option<String>| port.as_ref() == Some(&lb.vip_port_id);
        let ip = self.observed.floating_ips.iter().find(|ip| is_bound(&ip.port_id) && !lb.vip_port_id.is_empty());
        let is_named = ip.is_some_and(|ip| ip.floating_ip_address == settings.floating.address);
        match ip {
            Some(ip) if !settings.is_internal && !is_named && !self.is_our_floating_ip(balancer, ip) => {
                let address = &ip.floating_ip_address;
                return keeps(format!(
                    "its floating IP {address} would be lost; write {address} into spec.loadBalancerIP"
                ));
            }
            _ => {}
        }
        // Its address proves that the floating IP is the Service's.
        let is_noted = |ip: &FloatingIp| item.noted_address.as_ref() == Some(&ip.floating_ip_address);
        let is_address_noted = settings.is_internal || ip.is_none_or(is_noted);
        if item.annotated.as_ref() != Some(&lb.id) || !is_address_noted {
            let text = format!("load balancer {} is recorded before it is created again", lb.id);
            return Err(ProviderError::in_progress(text, NOTED));
        }
        self.part = Part::of(Kind::Settings, FLOATING_IP);
        match ip {
            Some(ip) if settings.is_internal => self.remove_floating_ip(balancer, ip, "the Service is internal"),
            Some(ip) if !is_named && ip.description != item.descriptions.floating_ip => {
                let description = item.descriptions.floating_ip.clone();
                let write = Write::DescribeFloatingIp { id: ip.id.clone(), description };
                self.push(write, (Verb::Update, "FloatingIP", &ip.floating_ip_address), "it is to be found again");
            }
            _ => {}
        }
        self.findings.push(Finding::warning("LoadBalancerRecreated", format!("{text}: it is deleted and made again")));
        self.delete_balancer(balancer, "it is in ERROR, and the Service asks for another one", Then::Again)
    }
}
