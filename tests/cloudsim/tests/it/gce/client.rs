//! Our own client, which knows only the paths of each resource.

use super::run::{got, parameters};
use crate::calls::{Case, Got};
use crate::http::{Answer, send};
use crate::values::{Values, fill, filled, save};
use ccm_cloudsim::core::rest::encoded;
use serde_json::Value;

/// A resource: its scope, its name in paths, and the parameter that identifies one object.
const RESOURCES: [(&str, &str, &str, &str); 21] = [
    ("projects", "", "", ""),
    ("zones", "", "zones", "zone"),
    ("regions", "", "regions", "region"),
    ("instances", "zone", "instances", "instance"),
    ("instanceGroups", "zone", "instanceGroups", "instanceGroup"),
    ("disks", "zone", "disks", "disk"),
    ("zoneOperations", "zone", "operations", "operation"),
    ("regionDisks", "region", "disks", "disk"),
    ("regionOperations", "region", "operations", "operation"),
    ("subnetworks", "region", "subnetworks", "subnetwork"),
    ("addresses", "region", "addresses", "address"),
    ("forwardingRules", "region", "forwardingRules", "forwardingRule"),
    ("targetPools", "region", "targetPools", "targetPool"),
    ("regionBackendServices", "region", "backendServices", "backendService"),
    ("globalOperations", "global", "operations", "operation"),
    ("networks", "global", "networks", "network"),
    ("routes", "global", "routes", "route"),
    ("firewalls", "global", "firewalls", "firewall"),
    ("httpHealthChecks", "global", "httpHealthChecks", "httpHealthCheck"),
    ("healthChecks", "global", "healthChecks", "healthCheck"),
    ("globalAddresses", "global", "addresses", "address"),
];

/// A client with a token.
#[derive(Debug)]
pub(crate) struct Own {
    /// The base of the API.
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Own {
    /// Runs the steps of a case and returns the answers; values of earlier answers are filled in.
    pub(crate) fn run(&self, case: &Case) -> Vec<Got> {
        let mut values = Values::new();
        let mut answers = Vec::new();
        for step in &case.steps {
            let parameters: Vec<(&str, String)> =
                parameters(step).into_iter().map(|(name, value)| (name, fill(value, &values))).collect();
            let (method, path) = request(step.call, &parameters);
            let answer = self.send(method, &path, &filled(&step.body, &values));
            save(&step.saves, &answer.json, &mut values);
            answers.push(got(answer.status, answer.json));
        }
        answers
    }

    /// Sends a call, and waits for its operation, if any.
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let got = self.once(method, path, body);
        let is_operation = got.status == 200 && got.json["kind"] == "compute#operation";
        if method == "GET" || !is_operation || path.ends_with("/wait") || got.json["status"] == "DONE" {
            return got;
        }
        let link = got.json["selfLink"].as_str().expect("a link");
        let (_, path) = link.split_once("/compute/v1/").expect("a path");
        self.once("POST", &format!("{path}/wait"), &Value::Null)
    }

    fn once(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let token = format!("Bearer {}", self.token);
        let url = format!("{}{path}", self.url);
        send(method, &url, &[("Authorization", &token)], &body).expect("an answer")
    }
}

/// The HTTP method and the path of a call.
fn request(method: &str, parameters: &[(&str, String)]) -> (&'static str, String) {
    let (resource, verb) = method.split_once('.').expect("a verb");
    let (_, place, collection, one) =
        RESOURCES.into_iter().find(|(name, ..)| *name == resource).unwrap_or_else(|| panic!("no resource {resource}"));
    let value = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| encoded(value));
    let mut path = format!("projects/{}", value("project").unwrap_or_else(|| "p".to_owned()));
    let mut used = vec!["project"];
    if verb == "aggregatedList" {
        path.push_str("/aggregated");
    } else if !place.is_empty() {
        used.push(place);
        let found = value(place).map_or("/global".to_owned(), |value| format!("/{place}s/{value}"));
        path.push_str(&found);
    }
    if !collection.is_empty() {
        path.push_str(&format!("/{collection}"));
    }
    if let Some(name) = value(one).filter(|_| !matches!(verb, "list" | "insert" | "aggregatedList")) {
        used.push(one);
        path.push_str(&format!("/{name}"));
    }
    let http = match verb {
        "get" | "list" | "aggregatedList" => "GET",
        "insert" => "POST",
        "delete" => "DELETE",
        "patch" => "PATCH",
        "update" => "PUT",
        verb => {
            path.push_str(&format!("/{verb}"));
            if verb == "updateNetworkInterface" { "PATCH" } else { "POST" }
        }
    };
    let rest = parameters.iter().filter(|(name, _)| !used.contains(name));
    let query: Vec<String> = rest.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if !query.is_empty() {
        path.push_str(&format!("?{}", query.join("&")));
    }
    (http, path)
}
