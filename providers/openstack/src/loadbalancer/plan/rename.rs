//! A balancer of this Service under an older name of the cluster.
//!
//! Upstream: `pkg/openstack/loadbalancer_rename.go`. Descriptions are rewritten too: by them floating IPs are known to be ours.

use ccm_provider::{Finding, Verb};
use http::Method;
use serde_json::{Value, json};

use super::super::names;
use super::super::observe::Balancer;
use super::{Draft, Octavia, change};
use crate::client::operation::{LISTENER_UPDATE, MONITOR_UPDATE, Operation, POOL_UPDATE};

impl Draft<'_> {
    /// Whether the balancer is this Service's under another cluster name; then its parts and it get the new one.
    pub(super) fn rename(&mut self, balancer: &Balancer) -> bool {
        let ours = &self.item.name;
        let old = &balancer.lb.name;
        if names::renamed(old, ours).is_none() {
            return false;
        }
        let text = format!("renaming the load balancer {old} and its parts: the cluster name changed");
        self.findings.push(Finding::warning("LoadBalancerRename", text));
        let lb = &balancer.lb.id;
        let tags = |tags: &[String]| -> Vec<String> {
            tags.iter().map(|tag| names::renamed(tag, ours).unwrap_or_else(|| tag.clone())).collect()
        };
        let mut parts: Vec<(Operation, &'static str, &'static str, &str, &str, Vec<String>)> = Vec::new();
        for monitor in &balancer.monitors {
            parts.push((MONITOR_UPDATE, "HealthMonitor", "healthmonitor", &monitor.id, &monitor.name, Vec::new()));
        }
        for pool in &balancer.pools {
            parts.push((POOL_UPDATE, "Pool", "pool", &pool.id, &pool.name, pool.tags.clone()));
        }
        for listener in &balancer.listeners {
            parts.push((LISTENER_UPDATE, "Listener", "listener", &listener.id, &listener.name, listener.tags.clone()));
        }
        for (operation, kind, key, id, name, old_tags) in parts {
            let Some(new) = names::renamed(name, ours) else { continue };
            let mut body = json!({ "name": new });
            let new_tags = tags(&old_tags);
            if new_tags != old_tags {
                body["tags"] = json!(new_tags);
            }
            let path = format!("{key}s/{id}");
            let call = Octavia { operation, method: Method::PUT, path, body: Some(json!({ key: body })) };
            let step = self.octavia(
                lb,
                call,
                (Verb::Update, kind, name),
                vec![change("name", name, &new)],
                "the cluster name changed",
            );
            self.steps.push(step);
        }
        let mut body = json!({"name": ours, "description": self.item.descriptions.balancer});
        if self.features.tags {
            let mut new_tags = tags(&balancer.lb.tags);
            if !new_tags.contains(ours) {
                new_tags.push(ours.clone());
            }
            body["tags"] = Value::from(new_tags);
        }
        let changes = vec![change("name", old, ours)];
        self.update_balancer(lb, json!({ "loadbalancer": body }), changes, "the cluster name changed");
        true
    }
}
