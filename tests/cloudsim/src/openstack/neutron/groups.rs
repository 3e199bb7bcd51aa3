//! Security groups.

use super::super::World;
use super::floating::over_quota;
use super::{GROUP, change, rules};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::{Field, Kind, answer, may};
use serde_json::{Map, Value, json};

const FIELDS: &[Field] = &[
    may("name", Kind::Text(255)),
    may("description", Kind::Text(255)),
    may("stateful", Kind::Bool),
    may("project_id", Kind::Text(255)),
    may("tenant_id", Kind::Text(255)),
    answer("id"),
    answer("security_group_rules"),
    answer("tags"),
];

/// A group with its rules.
pub(super) fn shown(world: &World, row: &Row) -> Map<String, Value> {
    let mut fields = row.fields.clone();
    let mut inside: Vec<Value> = Vec::new();
    for rule in rules::of(world, row.id()) {
        inside.push(Value::Object(rule.fields.clone()));
    }
    fields.insert("security_group_rules".to_owned(), Value::Array(inside));
    fields
}

/// `POST /v2.0/security-groups`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = GROUP.body(call, FIELDS)?;
    if world.full("security_group") {
        return Err(over_quota("security_group"));
    }
    let project = world.who.project.clone();
    let id = make(world, &project, body);
    GROUP.reply(world, 201, &id)
}

/// Creates a security group with the two rules that allow all egress.
pub(in super::super) fn make(world: &mut World, project: &str, with: Map<String, Value>) -> String {
    let stamp = super::stamp(world);
    let base = json!({
        "name": "", "description": "", "stateful": true, "shared": false, "project_id": project, "tenant_id": project,
        "tags": [], "created_at": stamp, "updated_at": stamp, "revision_number": 1,
    });
    let id = world.add("security_group", base, with);
    for family in ["IPv4", "IPv6"] {
        let Value::Object(rule) = json!({"direction": "egress", "ethertype": family, "description": null}) else {
            continue;
        };
        rules::make(world, project, &id, rule);
    }
    id
}

/// `PUT /v2.0/security-groups/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = GROUP.update(world, call, FIELDS)?;
    change(world, "security_group", call.id(0), body);
    GROUP.reply(world, 200, call.id(0))
}

/// `DELETE /v2.0/security-groups/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = GROUP.find(world, call.id(0))?.id().to_owned();
    if world.table("port").values().any(|port| port.texts("security_groups").any(|group| group == id)) {
        return Err(Problem::new(409, "SecurityGroupInUse", format!("Security Group {id} in use.")));
    }
    let inside: Vec<String> = rules::of(world, &id).map(|rule| rule.id().to_owned()).collect();
    for rule in inside {
        world.remove("security_group_rule", &rule);
    }
    world.remove("security_group", &id);
    Ok(Reply::empty(204))
}
