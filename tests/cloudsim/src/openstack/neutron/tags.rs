//! Tags of resources.

use super::super::World;
use super::{FLOATING, GROUP, Kind, PORT, SUBNET, bad, change, invalid};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Map, Value, json};

/// The kind of a call, from its path `/network/v2.0/<resources>/…`.
fn kind(call: &Call) -> Result<&'static Kind, Problem> {
    let name = call.path.split('/').nth(3).unwrap_or_default().replace('-', "_");
    let kinds: [&'static Kind; 4] = [&SUBNET, &PORT, &FLOATING, &GROUP];
    kinds
        .into_iter()
        .find(|kind| kind.listing.name == name)
        .ok_or_else(|| Problem::violation(404, "HTTPNotFound", "The resource could not be found."))
}

fn tags(world: &World, call: &Call) -> Result<Vec<String>, Problem> {
    Ok(kind(call)?.find(world, call.id(0))?.texts("tags").map(str::to_owned).collect())
}

fn store(world: &mut World, call: &Call, mut tags: Vec<String>) -> Result<(), Problem> {
    tags.sort_unstable();
    tags.dedup();
    let fields = Map::from_iter([("tags".to_owned(), json!(tags))]);
    change(world, kind(call)?.listing.kind, call.id(0), fields);
    Ok(())
}

fn missing(tag: &str) -> Problem {
    Problem::new(404, "TagNotFound", format!("Tag {tag} could not be found."))
}

/// `PUT …/{id}/tags`
pub(in super::super) fn replace(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let wrong = |text: &str| Err(Problem { violation: true, ..invalid(text) });
    let body = call.object().ok_or_else(|| bad("Body contains invalid data"))?;
    let Some(given) = body.get("tags").filter(|_| body.len() == 1) else { return wrong("Invalid tags body.") };
    let Value::Array(given) = given else { return wrong(&format!("{} is not a list.", super::python(given))) };
    let mut new = Vec::new();
    for tag in given {
        match tag.as_str() {
            Some(tag) if tag.chars().count() <= 255 => new.push(tag.to_owned()),
            _ => return wrong(&format!("{} exceeds maximum length of 255.", super::python(tag))),
        }
    }
    tags(world, call)?;
    store(world, call, new)?;
    Ok(Reply::json(200, &json!({"tags": tags(world, call)?})))
}

/// `PUT …/{id}/tags/{tag}`
pub(in super::super) fn add(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut all = tags(world, call)?;
    all.push(call.id(1).to_owned());
    store(world, call, all)?;
    Ok(Reply::json(201, &Value::Null))
}

/// `GET …/{id}/tags/{tag}`
pub(in super::super) fn has(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let found = tags(world, call)?.iter().any(|tag| tag == call.id(1));
    if found { Ok(Reply::empty(204)) } else { Err(missing(call.id(1))) }
}

/// `DELETE …/{id}/tags/{tag}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut all = tags(world, call)?;
    let before = all.len();
    all.retain(|tag| tag != call.id(1));
    if all.len() == before {
        return Err(missing(call.id(1)));
    }
    store(world, call, all)?;
    Ok(Reply::empty(204))
}
