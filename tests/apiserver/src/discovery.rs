//! What clients ask before they ask for objects: versions, resources, schemas.

use crate::kind::{KINDS, Kind};
use crate::options::Options;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The document at `path`, if it is one of discovery.
pub(crate) fn answer(path: &str, options: &Options) -> Option<Value> {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    match steps.as_slice() {
        ["version"] => Some(version(options)),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(group).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] if groups().contains(name) => {
            let mut document = group(name);
            crate::value::set(&mut document, &["kind"], "APIGroup");
            crate::value::set(&mut document, &["apiVersion"], "v1");
            Some(document)
        }
        ["api", "v1"] => Some(resources("", "v1")),
        ["apis", name, "v1"] if groups().contains(name) => Some(resources(name, "v1")),
        ["openapi", "v2"] => Some(schemas_v2()),
        ["openapi", "v3"] => Some(index_v3()),
        ["openapi", "v3", "api", "v1"] => Some(schemas_v3("", "v1")),
        ["openapi", "v3", "apis", name, "v1"] if groups().contains(name) => Some(schemas_v3(name, "v1")),
        _ => None,
    }
}

fn groups() -> BTreeSet<&'static str> {
    KINDS.iter().map(|kind| kind.group).filter(|group| !group.is_empty()).collect()
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version.clone()], "preferredVersion": version})
}

fn version(options: &Options) -> Value {
    let mut numbers = options.version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    json!({
        "major": major, "minor": minor, "gitVersion": options.version, "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "in-memory",
    })
}

fn served(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| kind.group == group && kind.version == version)
}

fn resources(group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for kind in served(group, version) {
        let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs,
        });
        if !kind.short.is_empty() {
            crate::value::set(&mut resource, &["shortNames"], json!(kind.short));
        }
        if kind.plural == "services" {
            crate::value::set(&mut resource, &["categories"], json!(["all"]));
        }
        resources.push(resource);
        if kind.status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// Name of a kind's schema. Any name does, as long as references agree.
fn schema_name(kind: &Kind) -> String {
    let package = if kind.group.is_empty() { "core" } else { "coordination" };
    format!("io.k8s.api.{package}.{}.{}", kind.version, kind.kind)
}

/// A schema that permits everything: the server prunes nothing, so a client must not warn about anything.
fn open_schema(kind: &Kind) -> Value {
    json!({
        "type": "object", "description": format!("A {}.", kind.kind),
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [group_version_kind(kind)],
    })
}

fn collection_path(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", kind.group) };
    let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("{root}{place}/{}", kind.plural)
}

/// Operations of the object path: clients look there for the parameter `fieldValidation`.
fn operations(kind: &Kind, parameter: &Value) -> Value {
    let operation = |action: &str| {
        json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": group_version_kind(kind),
            "parameters": [parameter], "responses": {"200": {"description": "OK"}},
        })
    };
    json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete")})
}

fn schemas_v2() -> Value {
    let parameter = json!({"name": "fieldValidation", "in": "query", "type": "string", "uniqueItems": true});
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for kind in &KINDS {
        paths.insert(format!("{}/{{name}}", collection_path(kind)), operations(kind, &parameter));
        definitions.insert(schema_name(kind), open_schema(kind));
    }
    let info = json!({"title": "Kubernetes", "version": "unversioned"});
    json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions})
}

fn index_v3() -> Value {
    let mut paths = Map::new();
    paths.insert("api/v1".into(), json!({"serverRelativeURL": "/openapi/v3/api/v1?hash=1"}));
    for group in groups() {
        let url = format!("/openapi/v3/apis/{group}/v1?hash=1");
        paths.insert(format!("apis/{group}/v1"), json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn schemas_v3(group: &str, version: &str) -> Value {
    let parameter =
        json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for kind in served(group, version) {
        paths.insert(format!("{}/{{name}}", collection_path(kind)), operations(kind, &parameter));
        schemas.insert(schema_name(kind), open_schema(kind));
    }
    let info = json!({"title": "Kubernetes", "version": "unversioned"});
    json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}
