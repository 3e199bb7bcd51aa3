//! Deletion of a Service: its own objects are deleted; shared ones and those of others stay.

use ccm_provider::{ProviderError, Verb};
use serde_json::json;

use super::super::names;
use super::super::observed::{Balancer, service_tags};
use super::super::step::Write;
use super::ports::has_listener;
use super::{BUSY, Draft, MONITOR, POOL, tag_change};
use crate::client::octavia::{ACTIVE, ERROR, Listener, Pool};

impl Draft<'_> {
    pub(super) fn delete(&mut self) -> Result<(), ProviderError> {
        let Some(balancer) = self.observed.balancer(self.place) else {
            self.delete_loose_floating_ips();
            self.delete_group();
            return Ok(());
        };
        let (id, status) = (&balancer.lb.id, &*balancer.lb.provisioning_status);
        if status == "PENDING_DELETE" {
            return Err(ProviderError::in_progress(format!("load balancer {id} is being deleted"), BUSY));
        }
        if ![ACTIVE, ERROR].contains(&status) {
            let text = format!("load balancer {id} is in immutable status, current provisioning status: {status}");
            return Err(ProviderError::in_progress(text, BUSY));
        }
        let (item, lb) = (self.item, &balancer.lb);
        let is_own_tag = |tag: &str| item.owns(tag, lb);
        let is_user = lb.tags.iter().any(|tag| is_own_tag(tag)) || is_own_tag(&lb.name) || lb.name == item.legacy;
        let made_by_us = names::is_service_tag(&lb.name) || lb.name == item.legacy;
        let shared = service_tags(&balancer.lb.tags).any(|tag| !is_own_tag(tag));
        if is_user && made_by_us && !shared {
            let ips = self.observed.floating_ips.iter();
            let bound = ips.clone().filter(|ip| ip.port_id.as_ref() == Some(&balancer.lb.vip_port_id));
            for ip in bound.collect::<Vec<_>>() {
                // Any other floating IP is detached with the port.
                if self.is_our_floating_ip(balancer, ip) && !self.item.keep_floating_ip {
                    self.remove_floating_ip(balancer, ip, "the Service goes");
                }
            }
            self.delete_balancer(balancer, "the Service goes", false);
        } else if is_user {
            self.leave(balancer);
        }
        self.delete_loose_floating_ips();
        self.delete_group();
        Ok(())
    }

    pub(super) fn delete_balancer(&mut self, balancer: &Balancer, reason: &'static str, is_replaced: bool) {
        // In ERROR Octavia accepts no change of a part: only a cascade deletes it.
        let cascade = self.env.config.load_balancer.cascade_delete || balancer.lb.provisioning_status == ERROR;
        if !cascade {
            for pool in &balancer.pools {
                self.delete_monitor_of(balancer, pool, reason);
            }
            for listener in &balancer.listeners {
                self.delete_listener(balancer, listener);
            }
            for pool in balancer.pools.iter().filter(|pool| pool.listeners.is_empty()) {
                self.delete_part(balancer, &POOL, &pool.id, &pool.name, reason);
            }
        }
        let write = Write::DeleteBalancer { id: balancer.lb.id.clone(), cascade, is_replaced };
        self.push(write, (Verb::Delete, "LoadBalancer", &balancer.lb.name), reason);
    }

    /// Removes this Service's part of a balancer that others use.
    fn leave(&mut self, balancer: &Balancer) {
        let (item, lb) = (self.item, &balancer.lb);
        let is_own_tag = |tag: &str| item.owns(tag, lb);
        let only_ours = |listener: &&Listener| {
            listener.tags.iter().any(|tag| is_own_tag(tag)) && service_tags(&listener.tags).all(is_own_tag)
        };
        for listener in balancer.listeners.iter().filter(only_ours) {
            for pool in balancer.pools.iter().filter(|pool| has_listener(pool, &listener.id)) {
                self.delete_monitor_of(balancer, pool, "its listener goes");
            }
            self.delete_listener(balancer, listener);
        }
        self.delete_loose_pools(balancer);
        let tags: Vec<String> = balancer.lb.tags.iter().filter(|tag| !is_own_tag(tag)).cloned().collect();
        if tags != balancer.lb.tags {
            let changes = vec![tag_change(&balancer.lb.tags, &tags)];
            let body = json!({"loadbalancer": {"tags": tags}});
            self.update_balancer(&balancer.lb.id, body, changes, "the Service no longer uses it");
        }
    }

    /// Octavia refuses to change the monitor of a pool in ERROR; it is deleted with the pool.
    fn delete_monitor_of(&mut self, balancer: &Balancer, pool: &Pool, reason: &'static str) {
        let monitor = balancer.monitors.iter().find(|monitor| monitor.id == pool.healthmonitor_id);
        if let Some(monitor) = monitor.filter(|_| pool.provisioning_status != ERROR) {
            self.delete_part(balancer, &MONITOR, &monitor.id, &monitor.name, reason);
        }
    }

    fn delete_loose_floating_ips(&mut self) {
        if self.item.keep_floating_ip {
            return;
        }
        for ip in self.loose_floating_ips() {
            let write = Write::DeleteFloatingIp { id: ip.id.clone() };
            self.push(write, (Verb::Delete, "FloatingIP", &ip.floating_ip_address), "the Service goes");
        }
    }
}
