//! Deletion of a Service: its own objects are deleted; shared ones and those of others stay.

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{Finding, ProviderError, ServiceAction, Verb};
use serde_json::json;

use super::super::names;
use super::super::observed::{Balancer, service_tags};
use super::super::step::{Then, Write};
use super::floating::FLOATING_IP;
use super::ports::label;
use super::{
    Claim, Draft, MONITOR, NAMESAKE, POOL, children_in_error, monitors_must_be_read, not_ours, refused, tag_change,
};
use crate::client::octavia::{ACTIVE, ERROR, Listener, LoadBalancer, Pool};

impl Draft<'_> {
    pub(super) fn delete(&mut self) -> Result<(), ProviderError> {
        self.must_be_read()?;
        let Some(balancer) = self.observed.balancer(self.place) else {
            self.leave_others()?;
            self.delete_loose_floating_ips();
            return self.delete_group_if_read();
        };
        let (id, status) = (&balancer.lb.id, &*balancer.lb.provisioning_status);
        if status == "PENDING_DELETE" {
            return Err(self.busy(format!("load balancer {id} is being deleted")));
        }
        if !balancer.lb.is_changeable() {
            let text = format!("load balancer {id} is in immutable status, current provisioning status: {status}");
            return Err(self.busy(text));
        }
        let (item, lb) = (self.item, &balancer.lb);
        if self.claim == Claim::Namesake {
            self.leave_namesake(lb)?;
            return self.delete_group_if_read();
        }
        self.must_be_ours(balancer)?;
        let is_user = self.claim.is_user();
        let shared = self.is_shared(balancer) || self.claim == Claim::HalfMade;
        if is_user && self.was_made_for_a_service(lb) && !shared {
            self.delete_floating_ips(balancer, "the Service goes");
            self.delete_balancer(balancer, "the Service goes", Then::Nothing)?;
        } else if is_user {
            self.leave(balancer)?;
        }
        self.leave_others()?;
        // One that lost its balancer waits for this one, which was made instead.
        match item.annotated.as_ref().is_some_and(|noted| *noted != lb.id) {
            true => self.delete_loose_floating_ips(),
            false => self.leave_loose_floating_ips(None),
        }
        self.delete_group_if_read()
    }

    /// Takes what the Service has on balancers that it does not use any more.
    pub(super) fn leave_others(&mut self) -> Result<(), ProviderError> {
        let (observed, place, is_over) = (self.observed, self.place, self.item.action == ServiceAction::Delete);
        for left in observed.left_behind.get(&place).into_iter().flatten().filter_map(|id| observed.balancers.get(id)) {
            let is_alone = self.was_made_for_a_service(&left.lb) && !self.is_shared(left);
            match is_over {
                true if is_alone => {
                    self.delete_floating_ips(left, "the Service goes");
                    self.delete_balancer(left, "the Service goes, which uses another", Then::Nothing)?;
                }
                true => self.leave(left)?,
                // The deletion looks for what is left now.
                false if is_alone || left.lb.provisioning_status == ERROR => {}
                false if left.lb.provisioning_status != ACTIVE => {
                    return Err(self.busy(format!("load balancer {}, which the Service leaves, is busy", left.lb.id)));
                }
                false => self.leave(left)?,
            }
        }
        for text in observed.left_namesakes.get(&place).into_iter().flatten() {
            self.findings.push(Finding::warning(NAMESAKE, text.clone()));
        }
        Ok(())
    }

    fn was_made_for_a_service(&self, lb: &LoadBalancer) -> bool {
        names::is_service_tag(&lb.name) || lb.name == self.item.legacy
    }

    /// Whether other Services use the balancer or one of its listeners.
    fn is_shared(&self, balancer: &Balancer) -> bool {
        self.observed.is_shared(balancer, |tag| self.claim.owns(self.item, tag))
    }

    /// Deletes the floating IPs that were created for the balancer; any other is detached with its port.
    pub(super) fn delete_floating_ips(&mut self, balancer: &Balancer, reason: &'static str) {
        self.part = Part::of(Kind::Retire, FLOATING_IP);
        for ip in &self.observed.floating_ips {
            let is_bound = ip.port_id.as_ref() == Some(&balancer.lb.vip_port_id);
            if is_bound && self.is_our_floating_ip(balancer, ip) && !self.item.keep_floating_ip {
                self.remove_floating_ip(balancer, ip, reason);
            }
        }
    }

    /// A group that was not read may be left.
    fn delete_group_if_read(&mut self) -> Result<(), ProviderError> {
        self.delete_group();
        self.group_must_be_read()
    }

    pub(super) fn delete_balancer(
        &mut self,
        balancer: &Balancer,
        reason: &'static str,
        then: Then,
    ) -> Result<(), ProviderError> {
        // In ERROR Octavia accepts no change of a part: only a cascade deletes it.
        let cascade = self.env.config.load_balancer.cascade_delete || balancer.lb.provisioning_status == ERROR;
        if !cascade {
            monitors_must_be_read(balancer)?;
            self.part = Part::new(Kind::Retire);
            for pool in &balancer.pools {
                self.delete_monitor_of(balancer, pool, reason);
            }
            for listener in &balancer.listeners {
                self.delete_listener(balancer, listener);
            }
            for pool in balancer.pools.iter().filter(|pool| !balancer.is_of_one_listener(pool)) {
                self.delete_part(balancer, &POOL, &pool.id, &pool.name, reason);
            }
        }
        self.part = Part::new(Kind::Release);
        let write = Write::DeleteBalancer { id: balancer.lb.id.clone(), cascade, then };
        self.push(write, (Verb::Delete, "LoadBalancer", &balancer.lb.name), reason);
        Ok(())
    }

    /// Removes this Service's part of a balancer that others use.
    fn leave(&mut self, balancer: &Balancer) -> Result<(), ProviderError> {
        let (item, claim, id) = (self.item, self.claim, &balancer.lb.id);
        if balancer.lb.provisioning_status == ERROR {
            let goes = match self.was_made_for_a_service(&balancer.lb) {
                true => "it is deleted with the last Service that uses it; until then ",
                false => "",
            };
            return Err(ProviderError::unknown(format!(
                "load balancer {id} is in ERROR{}, and Octavia takes no change of it: {goes}repair it, for example with \
                 `openstack loadbalancer failover {id}`",
                children_in_error(balancer)
            )));
        }
        monitors_must_be_read(balancer)?;
        let is_own_tag = |tag: &str| claim.owns(item, tag);
        let only_ours = |listener: &&Listener| {
            listener.tags.iter().any(|tag| is_own_tag(tag)) && service_tags(&listener.tags).all(is_own_tag)
        };
        for listener in balancer.listeners.iter().filter(only_ours) {
            self.part = Part::of(Kind::Retire, label(listener.protocol_port, &listener.protocol));
            if let Some(pool) = balancer.pool_of(listener).filter(|pool| balancer.is_of_one_listener(pool)) {
                self.delete_monitor_of(balancer, pool, "its listener goes");
            }
            self.delete_listener(balancer, listener);
        }
        self.delete_loose_pools(balancer);
        let tags: Vec<String> = balancer.lb.tags.iter().filter(|tag| !is_own_tag(tag)).cloned().collect();
        if tags != balancer.lb.tags {
            self.part = Part::new(Kind::Release);
            let changes = vec![tag_change(&balancer.lb.tags, &tags)];
            let body = json!({"loadbalancer": {"tags": tags}});
            self.update_balancer(id, body, changes, "the Service no longer uses it");
        }
        Ok(())
    }

    /// Octavia refuses to change the monitor of a pool in ERROR; it is deleted with the pool.
    fn delete_monitor_of(&mut self, balancer: &Balancer, pool: &Pool, reason: &'static str) {
        let monitor = balancer.monitors.iter().find(|monitor| monitor.id == pool.healthmonitor_id);
        if let Some(monitor) = monitor.filter(|_| pool.provisioning_status != ERROR) {
            self.delete_part(balancer, &MONITOR, &monitor.id, &monitor.name, reason);
        }
    }

    /// A balancer that may be another cluster's stays. If the Service had one, that one is not known: an error.
    fn leave_namesake(&mut self, lb: &LoadBalancer) -> Result<(), ProviderError> {
        let text = not_ours(&lb.id, &self.item.mark(lb));
        self.findings.push(Finding::warning(NAMESAKE, text.clone()));
        if self.item.published.is_empty() { Ok(()) } else { Err(refused(text)) }
    }

    fn delete_loose_floating_ips(&mut self) {
        if self.item.keep_floating_ip {
            return;
        }
        self.part = Part::of(Kind::Retire, FLOATING_IP);
        for ip in self.loose_floating_ips() {
            let write = Write::DeleteFloatingIp { id: ip.id.clone() };
            self.push(write, (Verb::Delete, "FloatingIP", &ip.floating_ip_address), "the Service goes");
        }
    }
}
