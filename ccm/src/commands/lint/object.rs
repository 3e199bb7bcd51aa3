//! Converts a document to Services: expands lists; a field of a wrong type becomes a finding and is omitted.

use ccm_provider::{Finding, Service, Severity};
use ccm_runtime::store::{Cached as _, FieldFilter};
use serde_json::{Value as Json, json};

use super::tree::{Kind, Node};

/// The Services of a document, and the number of its other objects.
pub(super) fn services(document: &Node) -> (Vec<&Node>, usize) {
    let (mut found, mut others) = (Vec::new(), 0);
    collect(document, "", &mut found, &mut others);
    (found, others)
}

/// `kind` applies to objects without one, as in a typed list.
fn collect<'a>(node: &'a Node, kind: &str, found: &mut Vec<&'a Node>, others: &mut usize) {
    if matches!(node.kind, Kind::Null) {
        return;
    }
    let kind = node.get("kind").and_then(Node::text).unwrap_or(kind);
    let version = node.get("apiVersion").and_then(Node::text).unwrap_or("v1");
    match (version, kind) {
        ("v1", "Service") => found.push(node),
        ("v1", "List" | "ServiceList") => {
            let item = if kind == "ServiceList" { "Service" } else { "" };
            let items = node.get("items").map(Node::items).unwrap_or_default();
            items.iter().for_each(|node| collect(node, item, found, others));
        }
        _ => *others += 1,
    }
}

/// The Service of an object, with the API server's defaults; a field of a wrong type becomes a finding and is omitted.
pub(super) fn read(object: &Node, findings: &mut Vec<Finding>) -> Service {
    let mut json = object.json();
    if let Some(fields) = json.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "metadata" | "spec"));
    }
    prune(&mut json);
    texts(&mut json, findings);
    for section in ["metadata", "spec"] {
        let Some(value) = json.get_mut(section) else { continue };
        match value.as_object_mut() {
            Some(fields) => {
                fields.retain(|name, value| {
                    let path = format!("{section}.{name}");
                    if name == "ports" {
                        ports(value, &path, findings);
                    }
                    check(&json!({section: {name: &*value}}), &path, findings)
                });
            }
            None => {
                findings.push(Finding::new(Severity::Error, section, "expected a map"));
                *value = json!({});
            }
        }
    }
    let mut service = Service::decode(&json.to_string(), &FieldFilter::default()).unwrap_or_else(|error| {
        findings.push(Finding::new(Severity::Error, "", error.to_string()));
        Service::default()
    });
    fill_in(&mut service);
    service
}

/// Removes nulls: Kubernetes treats them as absent.
fn prune(json: &mut Json) {
    match json {
        Json::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune);
        }
        Json::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Annotations and labels must be strings: `true` or `60` without quotes is rejected.
fn texts(json: &mut Json, findings: &mut Vec<Finding>) {
    for (section, path) in [("annotations", "/metadata/annotations"), ("labels", "/metadata/labels")] {
        let Some(fields) = json.pointer_mut(path).and_then(Json::as_object_mut) else { continue };
        for (key, value) in fields.iter_mut().filter(|(_, value)| !value.is_string()) {
            let key = if section == "annotations" { key.clone() } else { format!("metadata.labels[{key:?}]") };
            let shown = value.to_string();
            let message = "expected text: put the value in quotes";
            findings.push(Finding { value: Some(shown.clone()), ..Finding::new(Severity::Error, key, message) });
            *value = Json::String(shown);
        }
    }
}

/// Omits wrong fields of a port, so that its other fields are still checked.
fn ports(ports: &mut Json, path: &str, findings: &mut Vec<Finding>) {
    for (at, port) in ports.as_array_mut().into_iter().flatten().enumerate() {
        let Some(fields) = port.as_object_mut() else { continue };
        fields.retain(|name, value| {
            let alone = json!({"spec": {"ports": [{name: &*value}]}});
            check(&alone, &format!("{path}[{at}].{name}"), findings)
        });
    }
}

/// Whether a Service with only this field can be deserialized.
fn check(alone: &Json, path: &str, findings: &mut Vec<Finding>) -> bool {
    let read = serde_json::from_value::<Service>(alone.clone());
    // Replaces Rust's type names.
    let plain = |error: &serde_json::Error| {
        let text = error.to_string();
        let number = if text.starts_with("invalid value") { "a smaller number" } else { "a whole number" };
        let words = [("i32", number), ("sequence", "list"), ("struct ServicePort", "a map")];
        let text = words.into_iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours));
        let is_scalar = ["boolean", "integer", "floating point"].iter().any(|kind| text.contains(kind));
        match text.strip_suffix("a string").filter(|_| is_scalar) {
            Some(before) => format!("{before}text: put the value in quotes"),
            None => text,
        }
    };
    findings.extend(read.as_ref().err().map(|error| Finding::new(Severity::Error, path, plain(error))));
    read.is_ok()
}

/// Sets the API server's defaults. Source: `pkg/apis/core/v1/defaults.go` of Kubernetes, `SetDefaults_Service`.
fn fill_in(service: &mut Service) {
    let default = |field: &mut String, value: &str| {
        if field.is_empty() {
            value.clone_into(field);
        }
    };
    let spec = &mut service.spec;
    default(&mut spec.kind, "ClusterIP");
    default(&mut spec.session_affinity, "None");
    for port in &mut spec.ports {
        default(&mut port.protocol, "TCP");
        if port.target_port.is_null() {
            port.target_port = port.port.into();
        }
    }
    if matches!(&*spec.kind, "LoadBalancer" | "NodePort") {
        default(&mut spec.external_traffic_policy, "Cluster");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::parse;
    use super::*;

    fn read_one(text: &str) -> (Service, Vec<String>) {
        let parsed = parse(text);
        let (found, others) = services(&parsed.documents[0].1);
        assert_eq!((found.len(), others), (1, 0));
        let mut findings = Vec::new();
        let service = read(found[0], &mut findings);
        (service, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn defaults_of_the_api_server_are_filled_in() {
        let (service, findings) = read_one(
            "{kind: Service, spec: {type: LoadBalancer, sessionAffinity: null, ports: [{port: 80, nodePort: null}]}}",
        );
        assert_eq!(findings, [""; 0]);
        let spec = service.spec;
        assert_eq!((&*spec.session_affinity, &*spec.external_traffic_policy), ("None", "Cluster"));
        assert_eq!((&*spec.ports[0].protocol, &spec.ports[0].target_port), ("TCP", &json!(80)));
        assert_eq!(read_one("{kind: Service}").0.spec.kind, "ClusterIP");
    }

    #[test]
    fn a_field_of_a_wrong_type_is_reported_and_the_rest_is_read() {
        let (service, findings) = read_one(
            "kind: Service\nmetadata:\n  name: web\n  annotations: {a: true, b: 60, c: text, d: ~}\n  labels: {x: 1}\n\
             spec:\n  type: LoadBalancer\n  selector: [app]\n  ports: [{name: a, port: '80'}, {name: b, port: 81}]\n",
        );
        assert_eq!(
            findings,
            [
                "a \"true\": expected text: put the value in quotes",
                "b \"60\": expected text: put the value in quotes",
                "metadata.labels[\"x\"] \"1\": expected text: put the value in quotes",
                "spec.ports[0].port: invalid type: string \"80\", expected a whole number",
                "spec.selector: invalid type: list, expected a map",
            ]
        );
        assert!(service.is_load_balancer() && service.spec.ports[1].port == 81);
        assert_eq!(service.metadata.annotations["b"], "60");
        let (_, findings) = read_one("kind: Service\nmetadata: {name: 1.5, namespace: n}\nspec: {clusterIP: yes}\n");
        assert_eq!(
            findings,
            [
                "metadata.name: invalid type: floating point `1.5`, expected text: put the value in quotes",
                "metadata.namespace: invalid type: boolean `false`, expected text: put the value in quotes",
                "spec.clusterIP: invalid type: boolean `true`, expected text: put the value in quotes",
            ]
        );
        let (_, findings) = read_one("{kind: Service, spec: {ports: [80, {port: 99999999999}], externalIPs: x}}");
        assert_eq!(
            findings,
            [
                "spec.externalIPs: invalid type: string \"x\", expected a list",
                "spec.ports[1].port: invalid value: integer `99999999999`, expected a smaller number",
                "spec.ports: invalid type: integer `80`, expected a map",
            ]
        );
        let (_, findings) = read_one("kind: Service\nspec: 5\nmetadata: {name: [x]}\n");
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn lists_are_opened_and_other_kinds_counted() {
        let of = |text: &str| {
            let parsed = parse(text);
            let (found, others) = services(&parsed.documents[0].1);
            (found.len(), others)
        };
        let list = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service}, {apiVersion: v1, kind: Pod}, \
                    {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service}]}]}";
        assert_eq!(of(list), (2, 1));
        assert_eq!(
            of("{kind: ServiceList, apiVersion: v1, items: [{metadata: {name: a}}, {metadata: {name: b}}]}"),
            (2, 0)
        );
        assert_eq!(of("{kind: Service, apiVersion: serving.knative.dev/v1}"), (0, 1));
        assert_eq!(of("{replicas: 3}"), (0, 1));
        assert_eq!(of("[1, 2]"), (0, 1));
    }
}
