//! The service catalog of a token.

use super::World;
use serde_json::{Value, json};

/// The catalog in tokens. IDs are derived from the names, since no call uses them.
pub(super) fn catalog(world: &World) -> Value {
    let mut services: Vec<Value> = Vec::new();
    for (number, entry) in (1..).zip(&world.options.catalog) {
        let mut endpoints = Vec::new();
        let url =
            if entry.path.starts_with("http") { entry.path.clone() } else { format!("{}{}", world.url, entry.path) };
        for region in &entry.regions {
            for interface in &entry.interfaces {
                let id = format!("{number:08x}{:024x}", endpoints.len());
                endpoints.push(json!({
                    "id": id, "interface": interface, "region": region, "region_id": region, "url": url,
                }));
            }
        }
        let id = format!("{number:032x}");
        services.push(json!({"id": id, "type": entry.kind, "name": entry.name, "endpoints": endpoints}));
    }
    Value::Array(services)
}
