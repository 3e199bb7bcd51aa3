//! The read calls of Barbican and Cinder. `unverified`: not checked on real services; the formats come from their
//! documentation.

use super::World;
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::View;
use serde_json::json;

/// `GET /` of Barbican
pub(super) fn versions(world: &mut World, _: &Call) -> Result<Reply, Problem> {
    let links = json!([{"rel": "self", "href": format!("{}/key-manager/v1/", world.url)}]);
    let version = json!({"id": "v1", "status": "CURRENT", "min_version": "1.0", "max_version": "1.1", "links": links});
    Ok(Reply::json(300, &json!({"versions": [version]})))
}

/// `GET /v1/containers/{id}`
pub(super) fn get_container(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    show(world, "container", call.id(0))
}

/// `GET /v1/secrets/{id}`
pub(super) fn get_secret(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    show(world, "secret", call.id(0))
}

fn show(world: &World, kind: &str, id: &str) -> Result<Reply, Problem> {
    let text = format!("Not Found. Sorry but your {kind} is in another castle.");
    let row = world.seen(kind, id).ok_or_else(|| Problem::new(404, "Not Found", text))?;
    Ok(Reply::json(
        200,
        &View { fields: &row.fields, only: &["created", "name", "status", "type", "container_ref", "secret_ref"] },
    ))
}

/// `GET /v3/volumes/{id}`, with or without a project ID before it.
pub(super) fn get_volume(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = call.ids.last().map(String::as_str).unwrap_or_default();
    let text = format!("Volume {id} could not be found.");
    let row = world.seen("volume", id).ok_or_else(|| Problem::new(404, "itemNotFound", text))?;
    Ok(Reply::json(200, &json!({"volume": row.fields})))
}
