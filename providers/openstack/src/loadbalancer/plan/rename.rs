//! Rename of a Service's balancer after a change of the cluster name.
//!
//! Upstream: `pkg/openstack/loadbalancer_rename.go`. Descriptions are rewritten too: they identify our floating IPs.

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{Finding, Verb};

use super::super::names;
use super::super::observed::Balancer;
use super::super::step::Write;
use super::bodies::change;
use super::{Changed, Draft, Fields, LISTENER, MONITOR, POOL, tag_change};

impl Draft<'_> {
    /// Whether the rename changes the name of this part.
    pub(super) fn is_renamed(&self, name: &str) -> bool {
        self.claim.is_former() && names::renamed(name, &self.item.name).is_some()
    }

    /// Renames the balancer of this Service from another cluster name, with its parts and its floating IP. Objects and
    /// tags of other Services stay.
    pub(super) fn rename(&mut self, balancer: &Balancer) {
        let ours = &self.item.name;
        let old = &balancer.lb.name;
        let is_owner = self.claim.is_owner();
        let what = if is_owner { "the load balancer" } else { "what this Service has of the load balancer" };
        let text = format!("renaming {what} {old} and its parts: the cluster name changed");
        self.findings.push(Finding::warning("LoadBalancerRename", text));
        let lb = &balancer.lb.id;
        self.part = Part::of(Kind::Settings, "name");
        let tags = |tags: &[String]| -> Vec<String> {
            tags.iter().map(|tag| names::renamed(tag, ours).unwrap_or_else(|| tag.clone())).collect()
        };
        let none: &[String] = &[];
        let monitors = balancer.monitors.iter().map(|part| (&MONITOR, &part.id, &part.name, none));
        let pools = balancer.pools.iter().map(|part| (&POOL, &part.id, &part.name, &*part.tags));
        let listeners = balancer.listeners.iter().map(|part| (&LISTENER, &part.id, &part.name, &*part.tags));
        for (kind, id, name, old_tags) in monitors.chain(pools).chain(listeners) {
            let Some(new) = names::renamed(name, ours) else { continue };
            let mut changed = Changed::default();
            changed.field("name", name, &new);
            let new_tags = tags(old_tags);
            if new_tags != old_tags {
                changed.body.insert("tags".to_owned(), new_tags.into());
            }
            self.update_part(balancer, kind, id, name, changed, "the cluster name changed");
        }
        // Before the balancer: until then its description identifies the floating IP.
        let (before, description) =
            (names::floating_ip_of(&balancer.lb.description), &self.item.descriptions.floating_ip);
        let ips = self.observed.floating_ips.iter();
        for ip in ips
            .filter(|ip| is_owner && ip.port_id.as_ref() == Some(&balancer.lb.vip_port_id) && ip.description == before)
        {
            let write = Write::DescribeFloatingIp { id: ip.id.clone(), description: description.clone() };
            self.push(write, (Verb::Update, "FloatingIP", &ip.floating_ip_address), "the cluster name changed");
        }
        let (mut fields, mut changes) = (Fields::default(), Vec::new());
        if is_owner {
            fields.put("name", &**ours);
            fields.put("description", &*self.item.descriptions.balancer);
            changes.push(change("name", old, ours));
        }
        if self.features.tags {
            let mut new_tags = tags(&balancer.lb.tags);
            if !new_tags.contains(ours) {
                new_tags.push(ours.clone());
            }
            changes.push(tag_change(&balancer.lb.tags, &new_tags));
            fields.put("tags", new_tags);
        }
        self.update_balancer(lb, fields.below("loadbalancer"), changes, "the cluster name changed");
    }
}
