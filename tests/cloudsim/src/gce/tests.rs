//! Compares the table of routes with the API description, and tests the endpoint.

use super::model::Model;
use super::routes::ROUTES;
use super::seed::ClusterSeed;
use super::{Gce, Options};
use crate::core::clock::Mode;
use crate::core::faults::{Fault, Rule};
use crate::core::lag::Lag;
use crate::core::server::Answer;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

const NODE: &str = "projects/p/zones/us-central1-b/instances/n1";

/// A cloud with one instance and a stopped clock.
fn cloud(options: Options) -> Gce {
    let clock = Mode::Stepped { start: "2026-01-01T00:00:00Z".parse().unwrap() };
    let gce = Gce::start(Options { clock, ..options }).unwrap();
    gce.world(|world| world.cluster(&ClusterSeed::default()));
    gce
}

fn send(gce: &Gce, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/compute/v1/{path}") };
    let request = http::Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match runtime.block_on(gce.answer(request.body(body).unwrap())) {
        Answer::Reply(reply) => (reply.status().as_u16(), serde_json::from_slice(reply.body()).unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

fn call(gce: &Gce, method: &str, path: &str, body: &Value) -> (u16, Value) {
    send(gce, &gce.token(), method, path, body)
}

fn route(name: &str) -> Value {
    json!({
        "name": name, "network": "global/networks/default", "destRange": "10.1.0.0/24", "priority": 1000,
        "nextHopInstance": "zones/us-central1-b/instances/n1",
    })
}

#[test]
fn every_route_is_a_method_of_the_api() {
    let Some(model) = Model::shared().unwrap() else { return };
    for route in ROUTES.iter().filter(|route| matches!(route.service, "compute" | "cloudresourcemanager")) {
        let known = model.has(route.service, route.action, route.method, route.path);
        assert!(known, "{} {} {}", route.action, route.method, route.path);
    }
}

#[test]
fn a_write_is_done_and_seen_when_its_operation_ends() {
    let options = Options {
        operation: Duration::from_secs(4),
        lag: Lag::default().with("routes", Duration::from_secs(5)),
        ..Options::default()
    };
    let gce = cloud(options);
    let (status, operation) = call(&gce, "POST", "projects/p/global/routes", &route("r"));
    assert_eq!((status, operation["status"].as_str()), (200, Some("PENDING")));
    let path = operation["selfLink"].as_str().unwrap().split_once("/v1/").unwrap().1.to_owned();
    gce.clock().step(Duration::from_secs(1));
    assert_eq!(call(&gce, "GET", &path, &Value::Null).1["status"], "RUNNING");
    assert_eq!(call(&gce, "POST", "projects/p/global/routes", &route("r")).0, 409);
    let (status, refused) = call(&gce, "DELETE", "projects/p/global/routes/r", &Value::Null);
    assert_eq!((status, &refused["error"]["errors"][0]["reason"]), (400, &json!("resourceNotReady")));
    let (_, operation) = call(&gce, "POST", &format!("{path}/wait"), &Value::Null);
    assert_eq!(operation["status"], "DONE");
    assert_eq!(gce.clock().now().to_string(), "2026-01-01T00:00:04Z", "a clock that stands still is moved by waiting");
    assert_eq!(call(&gce, "GET", "projects/p/global/routes/r", &Value::Null).0, 404, "reads are late");
    gce.clock().step(Duration::from_secs(5));
    let (status, found) = call(&gce, "GET", "projects/p/global/routes/r", &Value::Null);
    assert_eq!(
        (status, &found["nextHopInstance"]),
        (200, &json!(format!("https://www.googleapis.com/compute/v1/{NODE}")))
    );
    assert_eq!(gce.violations(), Vec::<String>::new());
}

#[test]
fn waiting_ends_after_two_minutes() {
    let gce = cloud(Options { operation: Duration::from_secs(300), ..Options::default() });
    let (_, operation) = call(&gce, "POST", "projects/p/global/routes", &route("r"));
    let path = operation["selfLink"].as_str().unwrap().split_once("/v1/").unwrap().1.to_owned();
    let (status, operation) = call(&gce, "POST", &format!("{path}/wait"), &Value::Null);
    assert_eq!((status, &operation["status"]), (200, &json!("RUNNING")));
    assert_eq!(gce.clock().now().to_string(), "2026-01-01T00:02:00Z");
}

#[test]
fn an_operation_that_fails_leaves_nothing_behind() {
    let gce = cloud(Options::default());
    let fault =
        Fault::Operation { status: 403, code: "QUOTA_EXCEEDED".to_owned(), message: "Quota exceeded".to_owned() };
    gce.fault(Rule::every(fault).on("compute", "routes.insert").window(0, 1));
    let (status, operation) = call(&gce, "POST", "projects/p/global/routes", &route("r"));
    assert_eq!((status, operation.get("error")), (200, None));
    let path = operation["selfLink"].as_str().unwrap().split_once("/v1/").unwrap().1.to_owned();
    let (_, operation) = call(&gce, "POST", &format!("{path}/wait"), &Value::Null);
    assert_eq!(operation["error"]["errors"][0]["code"], "QUOTA_EXCEEDED");
    assert_eq!(operation["httpErrorStatusCode"], 403);
    assert_eq!(call(&gce, "GET", "projects/p/global/routes/r", &Value::Null).0, 404);
    assert_eq!(gce.violations(), Vec::<String>::new());
}

#[test]
fn tokens_end() {
    let gce = cloud(Options::default());
    let token = gce.token();
    assert_eq!(send(&gce, &token, "GET", NODE, &Value::Null).0, 200);
    gce.clock().step(Duration::from_secs(3600));
    let (status, error) = send(&gce, &token, "GET", NODE, &Value::Null);
    assert_eq!((status, &error["error"]["errors"][0]["reason"]), (401, &json!("authError")));
}

#[test]
fn a_call_made_again_with_the_same_request_id_is_not_carried_out_again() {
    let gce = cloud(Options::default());
    let path = "projects/p/global/routes?requestId=11111111-2222-3333-4444-555555555555";
    let (_, first) = call(&gce, "POST", path, &route("r"));
    let (status, second) = call(&gce, "POST", path, &route("r"));
    assert_eq!((status, &second["name"]), (200, &first["name"]));
    assert_eq!(call(&gce, "POST", "projects/p/global/routes", &route("r")).0, 409);
}

#[test]
fn violations_of_the_description_are_refused_and_recorded() {
    if Model::shared().unwrap().is_none() {
        return;
    }
    let gce = cloud(Options::default());
    let mut wrong = route("r");
    wrong["nextHop"] = json!("n1");
    let (status, error) = call(&gce, "POST", "projects/p/global/routes", &wrong);
    let text = "Invalid JSON payload received. Unknown name \"nextHop\" at 'resource': Cannot find field.";
    assert_eq!((status, error["error"]["message"].as_str()), (400, Some(text)));
    assert_eq!(gce.take_violations().len(), 1);
}

#[test]
fn rights_differ_by_project() {
    let gce = cloud(Options { read_only: vec!["p".to_owned()], ..Options::default() });
    let (status, error) = call(&gce, "POST", "projects/p/global/routes", &route("r"));
    let text = "Required 'compute.routes.create' permission for 'projects/p/global/routes/r'";
    assert_eq!((status, error["error"]["message"].as_str()), (403, Some(text)));
    let asked = json!({"permissions": ["compute.routes.create", "compute.routes.get"]});
    let (_, has) = call(&gce, "POST", "/v1/projects/p:testIamPermissions", &asked);
    assert_eq!(has, json!({"permissions": ["compute.routes.get"]}));
    assert_eq!(gce.violations(), Vec::<String>::new());
}
