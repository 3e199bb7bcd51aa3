//! A case is a list of calls with their expected answers. Writes run to the end of their operations.

use crate::http::send;
use ccm_cloudsim::azure::{Azure, ClusterSeed, Options, SetSeed};
use serde_json::{Value, json};
use std::time::Duration;

/// The resource group of all cases.
pub(crate) const GROUP: &str = "/subscriptions/sub/resourceGroups/rg/providers";

/// A case; it starts with a cluster of one machine and a scale set of one instance.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Step {
    /// The group of operations in the official client, and the verb: `load_balancers.put`; `get`, `list`, `delete`.
    pub(crate) call: &'static str,
    /// The names of the resource below its group.
    names: Vec<&'static str>,
    pub(crate) body: Value,
    code: &'static str,
    is: Vec<(&'static str, Value)>,
}

/// An answer: the resource, or the code of the error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Got {
    pub(crate) code: String,
    pub(crate) json: Value,
}

/// A new case.
pub(crate) fn case(name: &'static str) -> Case {
    Case { name, steps: Vec::new() }
}

impl Case {
    /// Adds a call that must succeed; the names are separated by slashes.
    pub(crate) fn call(mut self, call: &'static str, names: &'static str) -> Self {
        let names = names.split('/').filter(|name| !name.is_empty()).collect();
        self.steps.push(Step { call, names, body: Value::Null, code: "", is: Vec::new() });
        self
    }

    /// Adds a call with a body that must succeed.
    pub(crate) fn send(self, call: &'static str, names: &'static str, body: Value) -> Self {
        let mut case = self.call(call, names);
        case.last().body = body;
        case
    }

    fn last(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a step")
    }

    /// Expects that the last call is refused with this code.
    pub(crate) fn fails(mut self, code: &'static str) -> Self {
        self.last().code = code;
        self
    }

    /// Expects this value at a pointer of the last answer; null: no value.
    pub(crate) fn is(mut self, pointer: &'static str, value: impl Into<Value>) -> Self {
        self.last().is.push((pointer, value.into()));
        self
    }

    /// A line for each difference between the expected and the received answers.
    pub(crate) fn judge(&self, got: &[Got]) -> Vec<String> {
        let mut found = Vec::new();
        if got.len() != self.steps.len() {
            found.push(format!("{}: {} answers to {} calls", self.name, got.len(), self.steps.len()));
        }
        for (number, (step, got)) in self.steps.iter().zip(got).enumerate() {
            let mut say = |text: String| found.push(format!("{}: {} {}: {text}", self.name, number + 1, step.call));
            if got.code != step.code {
                say(format!("{:?} instead of {:?}: {}", got.code, step.code, got.json));
            }
            for (pointer, wanted) in &step.is {
                let is = got.json.pointer(pointer).cloned().unwrap_or_default();
                if is != *wanted {
                    say(format!("{pointer} is {is}, not {wanted}"));
                }
            }
        }
        found
    }
}

impl Step {
    /// The step as JSON for another program.
    pub(crate) fn json(&self) -> Value {
        json!({"call": self.call, "names": self.names, "body": self.body})
    }

    /// The path, and the version of the API.
    fn path(&self) -> (String, &'static str) {
        let (group, verb) = self.call.split_once('.').expect("a verb");
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
            match self.names.get(number) {
                Some(name) => path.push_str(&format!("/{name}")),
                None => assert_eq!(verb, "list", "{}", self.call),
            }
        }
        (path, version)
    }
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
        let (path, version) = step.path();
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
        let code = answer.json.pointer("/error/code").and_then(Value::as_str).unwrap_or_default().to_owned();
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
        Got { code, json }
    };
    case.steps.iter().map(run).collect()
}
