//! All resources as one JSON object.

use super::World;
use super::neutron::addresses;
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
