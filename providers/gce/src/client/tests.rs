use ccm_kit::call::Operation as _;

use super::balancing::{
    Address, BackendService, Firewall, ForwardingRule, GroupMember, HealthCheck, HttpCheck, TargetPool, Traffic,
};
use super::operation::{FIREWALL_GET, INSTANCE_GET};
use super::*;

fn missing(operation: Operation, code: &str, message: &str) -> ApiError {
    let failure =
        Failure { status: Some(404), code: code.to_owned(), message: message.to_owned(), ..Failure::default() };
    ApiError::new(operation, failure)
}

#[test]
fn only_an_answer_about_the_object_itself_shows_that_it_is_gone() {
    let instance = |message: &str| absence(&missing(INSTANCE_GET, "notFound", message), "n1");
    assert!(instance("The resource 'projects/p/zones/z/instances/n1' was not found"));
    for message in [
        "The resource 'projects/p' was not found",
        "The resource 'projects/p/zones/z' was not found",
        "The resource 'projects/p/zones/z/instances/other-n1' was not found",
        "Not Found",
        "",
    ] {
        assert!(!instance(message), "{message}");
    }
    let firewall = missing(FIREWALL_GET, "notFound", "not there");
    assert!(absence(&firewall, "f"));
    // From an intermediary, without the API's body.
    assert!(!absence(&missing(FIREWALL_GET, "404", "Not Found"), "f"));
    let denied = Failure { status: Some(403), code: "forbidden".to_owned(), ..Failure::default() };
    assert!(!absence(&ApiError::new(FIREWALL_GET, denied), "f"));
}

#[test]
fn a_missing_project_is_no_evidence() {
    let error = inconclusive(missing(INSTANCE_GET, "notFound", "The resource 'projects/p' was not found"));
    let error = ccm_provider::ProviderError::from(error);
    assert!(matches!(error.class(), ccm_provider::ErrorClass::Unknown), "{error}");
}

#[test]
fn a_list_that_lacks_something_is_an_error() {
    let check = |code: &str| {
        let page = serde_json::json!({"items": [{}], "warning": {"code": code, "message": "m"}});
        serde_json::from_value::<Page<Value>>(page).unwrap().warning.unwrap().check()
    };
    assert!(check("UNREACHABLE").is_err() && check("PARTIAL_SUCCESS").is_err());
    let page = serde_json::json!({"kind": "k", "items": null, "nextPageToken": null, "warning": {"code": null}});
    assert!(serde_json::from_value::<Page<Value>>(page).unwrap().warning.unwrap().check().is_ok());
    assert!(check("NO_RESULTS_ON_PAGE").is_ok() && check("DEPRECATED_RESOURCE_USED").is_ok());
}

/// As the Go program does.
#[test]
fn null_in_an_object_is_what_is_missing() {
    fn read<T: Default + DeserializeOwned + PartialEq + std::fmt::Debug>(fields: &[&str]) {
        let nulls: serde_json::Map<String, Value> =
            fields.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
        assert_eq!(serde_json::from_value::<T>(nulls.into()).unwrap(), T::default());
    }
    read::<ForwardingRule>(&["id", "description", "IPAddress", "portRange", "ports", "allPorts", "networkTier"]);
    read::<Address>(&["address", "purpose", "users"]);
    read::<TargetPool>(&["instances", "sessionAffinity", "healthChecks"]);
    read::<HealthCheck>(&["port", "requestPath", "httpHealthCheck", "type", "timeoutSec"]);
    read::<HttpCheck>(&["port", "requestPath"]);
    read::<BackendService>(&["healthChecks", "backends", "fingerprint"]);
    read::<GroupMember>(&["instance"]);
    read::<Firewall>(&["sourceRanges", "destinationRanges", "targetTags", "allowed", "denied", "priority", "disabled"]);
    read::<Traffic>(&["IPProtocol", "ports"]);
}

#[test]
fn a_scope_without_objects_is_empty_and_one_that_failed_an_error() {
    let of = |scope: Value| of_scope::<Value>(scope, "instances").map(|list| list.len());
    assert_eq!(of(serde_json::json!({"instances": [{}, {}]})).unwrap(), 2);
    assert_eq!(of(serde_json::json!({"warning": {"code": "NO_RESULTS_ON_PAGE"}})).unwrap(), 0);
    assert_eq!(of(serde_json::json!({"instances": null})).unwrap(), 0);
    assert!(of(serde_json::json!({"warning": {"code": "UNREACHABLE"}})).is_err());
    assert_eq!(INSTANCE_GET.name(), "instances_get");
}
