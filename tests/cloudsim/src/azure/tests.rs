//! Compares the table of routes with the description of the API, and tests the endpoint.

mod balancing;
mod login;
mod machines;

use super::model::Model;
use super::options::RetryAfter;
use super::routes::ROUTES;
use super::seed::ClusterSeed;
use super::{Azure, Options};
use crate::core::clock::Mode;
use crate::core::faults::{Fault, Rule};
use crate::core::lag::Lag;
use crate::core::server::Answer;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const GROUP: &str = "/subscriptions/sub/resourceGroups/rg/providers";
const SUBNET: &str =
    "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet/subnets/subnet";

/// An answer: the headers with names in lower case.
#[derive(Debug)]
struct Got {
    status: u16,
    headers: BTreeMap<String, String>,
    json: Value,
}

impl Got {
    fn code(&self) -> &str {
        self.json.pointer("/error/code").and_then(Value::as_str).unwrap_or_default()
    }
}

/// A cloud with one machine and a stopped clock, whose operations take two seconds.
fn cloud(options: Options) -> Azure {
    let clock = Mode::Stepped { start: "2026-01-01T00:00:00Z".parse().unwrap() };
    let azure = Azure::start(Options { clock, operation: Duration::from_secs(2), ..options }).unwrap();
    azure.world(|world| world.cluster(&ClusterSeed { machines: 1, ..ClusterSeed::default() }));
    azure
}

fn send(azure: &Azure, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = request.body(Bytes::from(body.to_owned())).unwrap();
    let Answer::Reply(reply) = runtime.block_on(azure.answer(request)) else { panic!("no answer") };
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
    };
    let headers = reply.headers().iter().map(header).collect();
    Got { status: reply.status().as_u16(), headers, json: serde_json::from_slice(reply.body()).unwrap_or_default() }
}

fn version(path: &str) -> &'static str {
    match path {
        path if path.contains("Microsoft.Network") => "2025-05-01",
        path if path.contains("/disks/") => "2025-01-02",
        path if path.ends_with("/networkInterfaces") || path.ends_with("/publicIPAddresses") => "2018-10-01",
        _ => "2025-04-01",
    }
}

/// Calls with a valid token and version; the path is relative to the group.
fn call(azure: &Azure, method: &str, path: &str, body: &Value) -> Got {
    call_if(azure, method, path, body, "")
}

fn call_if(azure: &Azure, method: &str, path: &str, body: &Value, etag: &str) -> Got {
    let token = format!("Bearer {}", azure.token());
    let path = if path.starts_with('/') { path.to_owned() } else { format!("{GROUP}/{path}") };
    let sign = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{sign}api-version={}", version(&path));
    let mut headers = vec![("authorization", token.as_str())];
    if !etag.is_empty() {
        headers.push(("if-match", etag));
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(azure, method, &path, &headers, &body)
}

fn get(azure: &Azure, path: &str) -> Value {
    let got = call(azure, "GET", path, &Value::Null);
    assert_eq!(got.status, 200, "{path}: {}", got.json);
    got.json
}

/// A write that must be accepted, to the end of its operation.
fn done(azure: &Azure, method: &str, path: &str, body: &Value) -> Got {
    let got = call(azure, method, path, body);
    assert!((200..300).contains(&got.status), "{method} {path}: {}", got.json);
    azure.clock().step(Duration::from_secs(2));
    got
}

/// Asks for an operation by the path in a header.
fn poll_of(azure: &Azure, path: &str) -> Got {
    let token = format!("Bearer {}", azure.token());
    send(azure, "GET", path, &[("authorization", &token)], "")
}

fn public_ip() -> Value {
    json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}})
}

#[test]
fn every_route_is_a_method_of_the_api_with_its_version() {
    let Some(model) = Model::shared().unwrap() else { return };
    for route in ROUTES.iter().filter(|route| matches!(route.service, "network" | "compute")) {
        // The polls of operations are no methods, and the client's instance views have paths of their own.
        if route.action.starts_with("operation") {
            continue;
        }
        let ours = super::routes::version_of(route.service, route.action);
        assert_eq!(model.version(route.service, route.action), Some(ours), "{} {}", route.action, route.path);
    }
}

#[test]
fn other_versions_and_missing_tokens_are_refused() {
    let azure = cloud(Options::default());
    let path = format!("{GROUP}/Microsoft.Network/loadBalancers");
    let token = format!("Bearer {}", azure.token());
    let with = [("authorization", token.as_str())];
    let old = send(&azure, "GET", &format!("{path}?api-version=2024-05-01"), &with, "");
    assert_eq!((old.status, old.code()), (400, "InvalidResourceType"));
    let none = send(&azure, "GET", &path, &with, "");
    assert_eq!((none.status, none.code()), (400, "MissingApiVersionParameter"));
    assert_eq!(azure.take_violations().len(), 2);
    let open = send(&azure, "GET", &format!("{path}?api-version=2025-05-01"), &[], "");
    assert_eq!((open.status, open.code()), (401, "AuthenticationFailed"));
    azure.expire_tokens();
    let late = send(&azure, "GET", &format!("{path}?api-version=2025-05-01"), &with, "");
    assert_eq!((late.status, late.code()), (401, "ExpiredAuthenticationToken"));
}

#[test]
fn paths_are_compared_without_case_and_ids_keep_theirs() {
    let azure = cloud(Options::default());
    let path = "/SUBSCRIPTIONS/sub/resourcegroups/RG/providers/Microsoft.Network/NETWORKINTERFACES/VM0-NIC";
    assert_eq!(get(&azure, path)["id"], format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic"));
    let lost = call(
        &azure,
        "GET",
        "/subscriptions/sub/resourceGroups/no/providers/Microsoft.Network/routeTables",
        &Value::Null,
    );
    assert_eq!((lost.status, lost.code()), (404, "ResourceGroupNotFound"));
    let lost = call(&azure, "GET", "Microsoft.Network/routeTables/no", &Value::Null);
    assert_eq!((lost.status, lost.code()), (404, "ResourceNotFound"));
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn a_write_is_an_operation_that_ends_later() {
    let azure = cloud(Options { retry_after: 7, ..Options::default() });
    let path = "Microsoft.Network/publicIPAddresses/a";
    let made = call(&azure, "PUT", path, &public_ip());
    assert_eq!((made.status, &made.json["properties"]["provisioningState"]), (201, &json!("Updating")));
    assert_eq!(made.headers["retry-after"], "7");
    let poll = made.headers["azure-asyncoperation"].replacen(&azure.root(), "", 1);
    let status = |path: &str| poll_of(&azure, path);
    assert_eq!(status(&poll).json, json!({"status": "InProgress"}));
    let before = get(&azure, path)["etag"].clone();
    azure.clock().step(Duration::from_secs(2));
    assert_eq!(status(&poll).json, json!({"status": "Succeeded"}));
    let after = get(&azure, path);
    assert_eq!(after["properties"]["provisioningState"], "Succeeded");
    assert_ne!(after["etag"], before);
    let gone = call(&azure, "DELETE", path, &Value::Null);
    assert_eq!(gone.status, 202);
    assert_ne!(gone.headers["location"], gone.headers["azure-asyncoperation"]);
    let result = gone.headers["location"].replacen(&azure.root(), "", 1);
    assert_eq!(status(&result).status, 202);
    assert_eq!(get(&azure, path)["properties"]["provisioningState"], "Deleting");
    azure.clock().step(Duration::from_secs(2));
    assert_eq!(status(&result).status, 204);
    assert_eq!(call(&azure, "GET", path, &Value::Null).status, 404);
    assert_eq!(call(&azure, "DELETE", path, &Value::Null).status, 204);
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn an_operation_may_fail_after_it_was_accepted() {
    let azure = cloud(Options::default());
    let fault = Fault::Operation { status: 400, code: "AllocationFailed".to_owned(), message: "no".to_owned() };
    azure.fault(Rule::every(fault).on("network", "publicIPAddresses.put").window(0, 1));
    let path = "Microsoft.Network/publicIPAddresses/a";
    let made = done(&azure, "PUT", path, &public_ip());
    let poll = made.headers["azure-asyncoperation"].replacen(&azure.root(), "", 1);
    let status = poll_of(&azure, &poll);
    assert_eq!((&status.json["status"], status.code()), (&json!("Failed"), "AllocationFailed"));
    assert_eq!(get(&azure, path)["properties"]["provisioningState"], "Failed");
    done(&azure, "PUT", path, &public_ip());
    assert_eq!(get(&azure, path)["properties"]["provisioningState"], "Succeeded");
}

#[test]
fn an_operation_may_be_canceled_as_if_a_later_one_had_superseded_it() {
    let azure = cloud(Options::default());
    let superseded = "CanceledAndSupersededDueToAnotherOperation";
    let fault = Fault::Operation { status: 409, code: superseded.to_owned(), message: "by B".to_owned() };
    azure.fault(Rule::every(fault).on("network", "routeTables.put").window(0, 1));
    let table = json!({"location": "eastus", "properties": {"routes": []}});
    let made = call(&azure, "PUT", "Microsoft.Network/routeTables/rt", &table);
    let poll = made.headers["azure-asyncoperation"].replacen(&azure.root(), "", 1);
    azure.clock().step(Duration::from_secs(3));
    let status = poll_of(&azure, &poll);
    assert_eq!((&status.json["status"], status.code()), (&json!("Canceled"), "Canceled"));
    assert_eq!(status.json["error"]["details"], json!([{"code": superseded, "message": "by B"}]));
}

#[test]
fn a_later_write_supersedes_a_running_one() {
    let azure = cloud(Options::default());
    let path = "Microsoft.Network/routeTables/rt";
    let table = json!({"location": "eastus", "properties": {"routes": []}});
    let first = call(&azure, "PUT", path, &table);
    call(&azure, "PUT", path, &table);
    let poll = first.headers["azure-asyncoperation"].replacen(&azure.root(), "", 1);
    let status = poll_of(&azure, &poll);
    assert_eq!((&status.json["status"], status.code()), (&json!("Canceled"), "Canceled"));
    let detail = &status.json["error"]["details"][0];
    assert_eq!(detail["code"], "CanceledAndSupersededDueToAnotherOperation");
    assert!(detail["message"].as_str().unwrap().contains("superseded by operation PutRouteTableOperation"));
    assert_eq!(azure.superseded().len(), 1);
}

#[test]
fn a_stale_etag_is_refused() {
    let azure = cloud(Options::default());
    let path = "Microsoft.Network/routeTables/rt";
    let table = get(&azure, path);
    let etag = table["etag"].as_str().unwrap().to_owned();
    assert_eq!(call_if(&azure, "PUT", path, &table, &etag).status, 200);
    let refused = call_if(&azure, "PUT", path, &table, &etag);
    assert_eq!((refused.status, refused.code()), (412, "PreconditionFailed"));
    assert_eq!(refused.json["error"]["details"][0]["code"], "PreconditionFailedEtagMismatch");
}

#[test]
fn reads_may_be_late() {
    let lag = Lag::default().with("routeTables", Duration::from_secs(3));
    let azure = cloud(Options { lag, ..Options::default() });
    let path = "Microsoft.Network/routeTables/rt";
    let table = json!({"location": "eastus", "tags": {"a": "b"}, "properties": {"routes": []}});
    done(&azure, "PUT", path, &table);
    assert_eq!(get(&azure, path)["tags"], Value::Null);
    azure.clock().step(Duration::from_secs(3));
    assert_eq!(get(&azure, path)["tags"], json!({"a": "b"}));
    assert_eq!(get(&azure, "Microsoft.Network/routeTables")["value"][0]["tags"], json!({"a": "b"}));
}

#[test]
fn lists_have_pages() {
    let azure = cloud(Options { page: 2, ..Options::default() });
    for name in ["a", "b", "c"] {
        azure.world(|world| world.public_ip("sub", "rg", name, json!({})));
    }
    let first = get(&azure, "Microsoft.Network/publicIPAddresses");
    assert_eq!(first["value"].as_array().unwrap().len(), 2);
    let next = first["nextLink"].as_str().unwrap().replacen(&azure.root(), "", 1);
    let token = format!("Bearer {}", azure.token());
    let second = send(&azure, "GET", &next, &[("authorization", &token)], "");
    assert_eq!(second.json["value"][0]["name"], "c");
    assert_eq!(second.json.get("nextLink"), None);
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn throttled_and_busy_answers_differ() {
    let azure = cloud(Options::default());
    azure.fault(Rule::every(Fault::Throttle).window(0, 2));
    let listed = call(&azure, "GET", "Microsoft.Compute/virtualMachines", &Value::Null);
    assert_eq!(
        (listed.status, listed.code(), listed.headers["retry-after"].as_str()),
        (429, "OperationNotAllowed", "10")
    );
    assert_eq!(listed.json["error"]["details"][0]["target"], "HighCostGet3Min");
    let listed = call(&azure, "GET", "Microsoft.Network/loadBalancers", &Value::Null);
    assert_eq!((listed.status, listed.code()), (429, "SubscriptionRequestsThrottled"));
    let table = format!("{GROUP}/Microsoft.Network/routeTables/rt");
    let until = azure.clock().now() + jiff::SignedDuration::from_secs(60);
    azure.busy(&table, until);
    let put = json!({"location": "eastus", "properties": {"routes": []}});
    let busy = call(&azure, "PUT", &table, &put);
    assert_eq!((busy.status, busy.code(), busy.headers["retry-after"].as_str()), (429, "RetryableError", "14"));
    assert_eq!(busy.json["error"]["details"][0]["code"], "RetryableErrorDueToAnotherOperation");
    azure.clock().step(Duration::from_secs(60));
    assert_eq!(call(&azure, "PUT", &table, &put).status, 200);
    azure.change(|options| options.retry_after_form = RetryAfter::Date);
    azure.fault(Rule::every(Fault::Throttle).window(0, 1));
    let listed = call(&azure, "GET", "Microsoft.Network/loadBalancers", &Value::Null);
    assert_eq!(listed.headers["retry-after"], "Thu, 01 Jan 2026 00:01:10 GMT");
}

#[test]
fn a_hidden_resource_is_listed_later() {
    let azure = cloud(Options::default());
    let path = "Microsoft.Compute/virtualMachines/vm0";
    azure.world(|world| world.hide(&format!("{GROUP}/{path}"), Duration::from_secs(9)));
    assert_eq!(get(&azure, "Microsoft.Compute/virtualMachines")["value"], json!([]));
    assert_eq!(get(&azure, path)["name"], "vm0");
    azure.clock().step(Duration::from_secs(9));
    assert_eq!(get(&azure, "Microsoft.Compute/virtualMachines")["value"][0]["name"], "vm0");
}

#[test]
fn unknown_fields_are_refused_and_recorded() {
    if Model::shared().unwrap().is_none() {
        return;
    }
    let azure = cloud(Options::default());
    let mut wrong = public_ip();
    wrong["properties"]["allocation"] = json!("Static");
    let refused = call(&azure, "PUT", "Microsoft.Network/publicIPAddresses/a", &wrong);
    assert_eq!((refused.status, refused.code()), (400, "InvalidRequestFormat"));
    assert_eq!(azure.take_violations().len(), 1);
}

#[test]
fn the_buckets_of_azure_hold_back_a_burst() {
    let azure = cloud(Options { throttle: Options::buckets(), ..Options::default() });
    let ask = |path: &str| call(&azure, "GET", path, &Value::Null).status;
    let costly = (0..141).map(|_| ask("Microsoft.Compute/virtualMachines")).filter(|status| *status == 429);
    assert_eq!(costly.count(), 1);
    assert_eq!(ask("Microsoft.Network/loadBalancers"), 200);
    azure.clock().step(Duration::from_secs(10));
    assert_eq!(ask("Microsoft.Compute/virtualMachines"), 200);
}
