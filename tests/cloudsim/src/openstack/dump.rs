//! All resources as one JSON object.

use super::World;
use super::neutron::addresses;
use super::octavia;
use crate::core::rows::Row;
use serde_json::{Value, json};
use std::net::IpAddr;

/// All kinds of resources; a kind comes after those that it refers to.
const KINDS: [&str; 17] = [
    "network",
    "subnet",
    "security_group",
    "security_group_rule",
    "router",
    "port",
    "floatingip",
    "flavor",
    "server",
    "container",
    "secret",
    "volume",
    "loadbalancer",
    "listener",
    "pool",
    "member",
    "healthmonitor",
];

impl World {
    /// All resources by kind, in the order of creation, with the internal fields of the simulation.
    pub fn resources(&self) -> Value {
        let shown = |kind: &&'static str| {
            let mut rows: Vec<&Row> = self.table(kind).values().collect();
            rows.sort_by_key(|row| row.seq);
            ((*kind).to_owned(), json!(rows.iter().map(|row| &row.fields).collect::<Vec<_>>()))
        };
        KINDS.iter().map(shown).collect()
    }

    /// Adds resources in the format of [`World::resources`]. One with the ID of another replaces it.
    pub fn load(&mut self, resources: &Value) -> Result<(), String> {
        let resources = resources.as_object().ok_or("not an object")?;
        if let Some(unknown) = resources.keys().find(|name| !KINDS.contains(&name.as_str())) {
            return Err(format!("there is no kind {unknown}"));
        }
        for kind in KINDS {
            for row in resources.get(kind).and_then(Value::as_array).into_iter().flatten() {
                let fields = row.as_object().ok_or_else(|| format!("a {kind} is not an object"))?;
                let id = self.add(kind, Value::Null, fields.clone());
                if kind == "port" {
                    self.reserve(&id);
                }
                if self.row(kind, &id).is_some_and(|row| kind == "loadbalancer" && octavia::is_pending(row)) {
                    octavia::queue(self, &id);
                }
            }
        }
        Ok(())
    }

    /// Reserves the addresses of a port in their subnets.
    fn reserve(&mut self, port: &str) {
        let fixed = self.row("port", port).map(|port| port.list("fixed_ips").to_vec()).unwrap_or_default();
        for fixed in fixed {
            let text = |name: &str| fixed.get(name).and_then(Value::as_str).unwrap_or_default();
            if let Ok(address) = text("ip_address").parse::<IpAddr>() {
                addresses::take(self, text("subnet_id"), Some(address));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Options;
    use super::*;
    use crate::core::endpoint::Simulated as _;

    #[test]
    fn a_new_resource_has_the_id_of_no_loaded_one() {
        let mut first = World::new(Options::default());
        let made = first.add("network", Value::Null, serde_json::Map::new());
        let mut second = World::new(Options::default());
        second.load(&first.resources()).unwrap();
        assert_ne!(second.add("network", Value::Null, serde_json::Map::new()), made);
    }

    #[test]
    fn a_busy_load_balancer_becomes_active_after_a_load() {
        let mut world = World::new(Options { provisioning: Duration::ZERO, ..Options::default() });
        let listener = json!({"id": "l", "provisioning_status": "PENDING_UPDATE"});
        let lb = json!({"id": "lb", "provisioning_status": "PENDING_UPDATE", "listeners": [{"id": "l"}], "pools": []});
        world.load(&json!({"loadbalancer": [lb], "listener": [listener]})).unwrap();
        world.settle();
        for (kind, id) in [("loadbalancer", "lb"), ("listener", "l")] {
            assert_eq!(world.row(kind, id).unwrap().text("provisioning_status"), "ACTIVE", "{kind}");
        }
    }
}
