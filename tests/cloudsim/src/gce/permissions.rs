//! The permissions that each method requires, and `testIamPermissions`.

use super::places::PATH;
use super::world::World;
use super::{errors, verbs};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

/// The permission of a method, without the service prefix. If the description does not contain it: from Google's
/// documentation.
pub(super) fn of(action: &str) -> String {
    let (resource, verb) = action.split_once('.').unwrap_or((action, ""));
    let resource = match resource {
        "regionDisks" => "disks",
        resource => resource,
    };
    let verb = match (resource, verb) {
        (_, "aggregatedList") | ("instanceGroups", "listInstances") => "list",
        ("instanceGroups", "addInstances" | "removeInstances") => "update",
        (_, "patch") => "update",
        (_, "wait" | "getHealth") => "get",
        ("subnetworks", "testIamPermissions") => "list",
        (_, verb @ ("insert" | "get" | "list" | "delete" | "update")) => verb,
        (_, verb) => verb,
    };
    let verb = if verb == "insert" { "create" } else { verb };
    format!("compute.{resource}.{verb}")
}

impl World {
    /// Whether the caller has a permission in a project.
    pub fn permits(&self, project: &str, permission: &str) -> bool {
        let verb = permission.rsplit('.').next().unwrap_or_default();
        if self.options.read_only.iter().any(|read_only| read_only == project) && !matches!(verb, "get" | "list") {
            return false;
        }
        let lists = ["*", project].into_iter().filter_map(|name| self.options.denied.get(name));
        !lists.flatten().any(|pattern| crate::core::throttle::matches(pattern, permission))
    }

    /// The error if the caller lacks a permission.
    pub(super) fn may(&self, permission: &str, key: &str) -> Result<(), Problem> {
        let project = key.split('/').nth(1).unwrap_or_default();
        let mut on_it = self.options.granted.get(key).into_iter().flatten();
        let is_granted = on_it.any(|pattern| crate::core::throttle::matches(pattern, permission));
        match is_granted || self.permits(project, permission) {
            true => Ok(()),
            false => Err(errors::denied(permission, key)),
        }
    }
}

/// Checks whether the caller is allowed to make a call.
pub(super) fn check(world: &World, call: &Call) -> Result<(), Problem> {
    if call.service != "compute" {
        return Ok(());
    }
    let mut key = key(call);
    if let Some(project) = key.split('/').nth(1).and_then(|project| world.project_id(project)) {
        let rest = key.splitn(3, '/').nth(2).map(|rest| format!("/{rest}")).unwrap_or_default();
        key = format!("projects/{project}{rest}");
    }
    world.may(&of(call.action), &key)
}

/// The error of a denied call.
pub(super) fn denied(call: &Call) -> Problem {
    errors::denied(&of(call.action), &key(call))
}

/// The resource of a call as in errors.
fn key(call: &Call) -> String {
    let path = call.path.strip_prefix(PATH).unwrap_or_default();
    let path = path.strip_suffix("/testIamPermissions").unwrap_or(path);
    if !call.action.ends_with(".insert") {
        return path.to_owned();
    }
    let name = call.object().map(|body| verbs::text(&body, "name").to_owned()).unwrap_or_default();
    format!("{path}/{name}")
}

/// `POST /v1/projects/{project}:testIamPermissions`: returns those of the permissions that the caller has.
pub(super) fn test(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let project = call.id(0).strip_suffix(":testIamPermissions");
    let project = project.ok_or_else(|| Problem::violation(404, "notFound", "Not Found"))?;
    let missing = || Problem::new(403, "forbidden", "The caller does not have permission");
    let project = world.project_id(project).ok_or_else(missing)?;
    tested(call, |permission| world.permits(&project, permission))
}

/// `POST …/subnetworks/{name}/testIamPermissions`
pub(super) fn test_subnetwork(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (_, spot) = verbs::at(world, call)?;
    let key = spot.key();
    world.object(&key).ok_or_else(|| errors::not_found(&key))?;
    tested(call, |permission| world.may(permission, &key).is_ok())
}

fn tested(call: &Call, has: impl Fn(&str) -> bool) -> Result<Reply, Problem> {
    let asked = verbs::texts(&verbs::body(call)?, "permissions");
    let has: Vec<Value> = asked.into_iter().filter(|permission| has(permission)).map(Value::from).collect();
    let body = if has.is_empty() { json!({}) } else { json!({ "permissions": has }) };
    Ok(Reply::json(200, &body))
}
