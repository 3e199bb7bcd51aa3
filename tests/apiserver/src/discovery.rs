//! Discovery: versions, resources, schemas.

use crate::kind::{KINDS, Kind};
use serde_json::{Map, Value, json};

/// The groups besides the core.
const GROUPS: [&str; 2] = ["coordination.k8s.io", "discovery.k8s.io"];

/// The discovery document at `path`, if there is one.
pub(crate) fn answer(path: &str) -> Option<Value> {
    let group = |name: &str| {
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    let schema_path = |of: &str| (of.to_owned(), json!({"serverRelativeURL": format!("/openapi/v3/{of}?hash=1")}));
    match path.trim_matches('/').split('/').collect::<Vec<_>>().as_slice() {
        ["version"] => Some(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "in-memory",
        })),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": GROUPS.map(group)})),
        ["api", "v1"] => Some(resources("", "v1")),
        ["apis", group, "v1"] if GROUPS.contains(group) => Some(resources(group, &format!("{group}/v1"))),
        ["openapi", "v3"] => {
            let of_groups = GROUPS.map(|group| schema_path(&format!("apis/{group}/v1")));
            let paths: Map<String, Value> = [schema_path("api/v1")].into_iter().chain(of_groups).collect();
            Some(json!({"paths": paths}))
        }
        ["openapi", "v3", "api", "v1"] => Some(schemas("")),
        ["openapi", "v3", "apis", group, "v1"] if GROUPS.contains(group) => Some(schemas(group)),
        _ => None,
    }
}

fn served(group: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| kind.group == group)
}

fn resources(group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for kind in served(group) {
        let (singular, namespaced, kind_name) = (kind.kind.to_lowercase(), kind.namespaced, kind.kind);
        let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let mut resource = json!({
            "name": kind.plural, "singularName": singular, "namespaced": namespaced, "kind": kind_name, "verbs": verbs,
        });
        if !kind.short.is_empty() {
            crate::value::set(&mut resource, "/shortNames", json!([kind.short]));
        }
        resources.push(resource);
        if kind.status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": namespaced,
                "kind": kind_name, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources})
}

/// Schemas that permit everything. The server validates each object; kubectl relies on that if an operation has the
/// parameter `fieldValidation`.
fn schemas(group: &str) -> Value {
    let parameter =
        json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for kind in served(group) {
        let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let of = json!({"group": group, "version": "v1", "kind": kind.kind});
        let patch = json!({
            "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": of, "parameters": [parameter],
            "responses": {"200": {"description": "OK"}},
        });
        paths.insert(format!("{root}{place}/{}/{{name}}", kind.plural), json!({"patch": patch}));
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-group-version-kind": [of]});
        // Any name works if all references use it.
        schemas.insert(kind.qualified_kind(), schema);
    }
    let info = json!({"title": "Kubernetes", "version": "unversioned"});
    json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}
