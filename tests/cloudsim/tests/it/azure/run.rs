//! The fixture of all cases, a cluster of one machine and a scale set, and our own client.

use crate::calls::{Case, Got, Step};
use crate::http::send;
use ccm_cloudsim::azure::{Azure, ClusterSeed, Options, SetSeed};
use serde_json::{Value, json};
use std::time::Duration;

/// The resource group of all cases.
pub(crate) const GROUP: &str = "/subscriptions/sub/resourceGroups/rg/providers";

/// A step as JSON for another program.
pub(crate) fn written(step: &Step) -> Value {
    json!({"call": step.call, "names": names(step), "body": step.body})
}

/// The names of the resource below its group.
fn names(step: &Step) -> Vec<&str> {
    step.target.split('/').filter(|name| !name.is_empty()).collect()
}

/// The path, and the version of the API.
fn path(step: &Step) -> (String, &'static str) {
    let (names, (group, verb)) = (names(step), step.call.split_once('.').expect("a verb"));
    let (kinds, version): (&[&str], &str) = match group {
        "load_balancers" => (&["Microsoft.Network/loadBalancers"], "2025-05-01"),
        "load_balancer_backend_address_pools" => {
            (&["Microsoft.Network/loadBalancers", "backendAddressPools"], "2025-05-01")
        }
        "public_ip_addresses" => (&["Microsoft.Network/publicIPAddresses"], "2025-05-01"),
        "network_security_groups" => (&["Microsoft.Network/networkSecurityGroups"], "2025-05-01"),
        "network_interfaces" => (&["Microsoft.Network/networkInterfaces"], "2025-05-01"),
        "route_tables" => (&["Microsoft.Network/routeTables"], "2025-05-01"),
        "virtual_machines" => (&["Microsoft.Compute/virtualMachines"], "2025-04-01"),
        "virtual_machine_scale_sets" => (&["Microsoft.Compute/virtualMachineScaleSets"], "2025-04-01"),
        "virtual_machine_scale_set_vms" => {
            (&["Microsoft.Compute/virtualMachineScaleSets", "virtualMachines"], "2025-04-01")
        }
        other => panic!("no group {other}"),
    };
    let mut path = GROUP.to_owned();
    for (number, kind) in kinds.iter().enumerate() {
        path.push_str(&format!("/{kind}"));
        match names.get(number) {
            Some(name) => path.push_str(&format!("/{name}")),
            None => assert_eq!(verb, "list", "{}", step.call),
        }
    }
    (path, version)
}

/// A cloud in the initial state.
pub(crate) fn cloud() -> Azure {
    let azure = Azure::start(Options { operation: Duration::from_millis(20), page: 2, ..Options::default() }).unwrap();
    azure.world(|world| {
        world.cluster(&ClusterSeed { machines: 1, ..ClusterSeed::default() });
        world.scale_set(&SetSeed { instances: 3, ..SetSeed::default() });
    });
    azure
}

/// Runs a case with our own client.
pub(crate) fn own(azure: &Azure, case: &Case) -> Vec<Got> {
    let token = format!("Bearer {}", azure.token());
    let once = |method: &str, url: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send(method, url, &[("Authorization", &token)], &body).expect("an answer")
    };
    let run = |step: &Step| {
        let (path, version) = path(step);
        let url = format!("{}{path}?api-version={version}", azure.root());
        let method = match step.call.rsplit('.').next() {
            Some("put") => "PUT",
            Some("delete") => "DELETE",
            _ => "GET",
        };
        let mut answer = once(method, &url, &step.body);
        if let Some(poll) = answer.headers.get("azure-asyncoperation").filter(|_| answer.status < 300) {
            let end = loop {
                let status = once("GET", poll, &Value::Null);
                if status.json["status"] != "InProgress" {
                    break status;
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            answer = match (end.json["status"].as_str(), method) {
                (Some("Succeeded"), "PUT") => once("GET", &url, &Value::Null),
                _ => end,
            };
        }
        let problem = answer.json.pointer("/error/code").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut json = answer.json;
        let mut all = json["value"].as_array().cloned().unwrap_or_default();
        let mut next = json["nextLink"].as_str().map(str::to_owned);
        while let Some(url) = next {
            let page = once("GET", &url, &Value::Null).json;
            all.extend(page["value"].as_array().cloned().unwrap_or_default());
            next = page["nextLink"].as_str().map(str::to_owned);
        }
        if json.get("value").is_some() {
            json = json!(all);
        }
        Got { problem, json }
    };
    case.steps.iter().map(run).collect()
}
