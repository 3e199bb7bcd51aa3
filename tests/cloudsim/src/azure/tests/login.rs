//! Tokens.

use super::super::{Azure, Options};
use super::{GROUP, Got, cloud, send};
use serde_json::json;

fn ask(azure: &Azure, path: &str, form: &str) -> Got {
    send(azure, "POST", path, &[], form)
}

#[test]
fn a_secret_gives_a_token_until_it_expires() {
    let azure = cloud(Options::default());
    let form = "grant_type=client_credentials&client_id=client&scope=https%3A%2F%2Fmanagement.azure.com%2F.default";
    let path = "/tenant/oauth2/v2.0/token";
    let got = ask(&azure, path, &format!("{form}&client_secret=secret"));
    assert_eq!((got.status, &got.json["token_type"]), (200, &json!("Bearer")));
    let token = format!("Bearer {}", got.json["access_token"].as_str().unwrap());
    let list = format!("{GROUP}/Microsoft.Network/loadBalancers?api-version=2025-05-01");
    assert_eq!(send(&azure, "GET", &list, &[("authorization", &token)], "").status, 200);
    let wrong = ask(&azure, path, &format!("{form}&client_secret=other"));
    assert_eq!((wrong.status, &wrong.json["error_codes"]), (401, &json!([7000215])));
    let now = azure.clock().now();
    azure.world(|world| {
        let client = world.identities.applications.get_mut("client").unwrap();
        client.secrets.insert("secret".to_owned(), Some(now));
    });
    let late = ask(&azure, path, &format!("{form}&client_secret=secret"));
    assert_eq!((late.status, &late.json["error_codes"]), (401, &json!([7000222])));
    let lost = ask(&azure, "/nowhere/oauth2/v2.0/token", &format!("{form}&client_secret=secret"));
    assert_eq!((lost.status, &lost.json["error_codes"]), (400, &json!([90002])));
}

#[test]
fn federated_tokens_and_managed_identities_give_tokens() {
    let azure = cloud(Options::default());
    azure.world(|world| {
        let client = world.identities.applications.get_mut("client").unwrap();
        client.federated.insert("one".to_owned());
    });
    let form = "grant_type=client_credentials&client_id=client&scope=x\
        &client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer&client_assertion=";
    assert_eq!(ask(&azure, "/tenant/oauth2/v2.0/token", &format!("{form}one")).status, 200);
    assert_eq!(ask(&azure, "/tenant/oauth2/v2.0/token", &format!("{form}two")).status, 401);
    let path = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/";
    let got = send(&azure, "GET", path, &[("metadata", "true")], "");
    assert_eq!((got.status, &got.json["client_id"]), (200, &json!("system")));
    let other = send(&azure, "GET", &format!("{path}&client_id=other"), &[("metadata", "true")], "");
    assert_eq!((other.status, &other.json["error"]), (400, &json!("invalid_request")));
    assert_eq!(azure.violations(), Vec::<String>::new());
}

#[test]
fn a_subscription_takes_tokens_of_its_own_tenant() {
    let azure = cloud(Options::default());
    let token = azure.world(|world| world.token("client", "other").0);
    let list = format!("{GROUP}/Microsoft.Network/loadBalancers?api-version=2025-05-01");
    let got = send(&azure, "GET", &list, &[("authorization", &format!("Bearer {token}"))], "");
    assert_eq!((got.status, got.code()), (401, "InvalidAuthenticationTokenTenant"));
}

#[test]
fn endpoints_are_discovered_without_a_token() {
    let azure = cloud(Options::default());
    let got = send(&azure, "GET", "/metadata/endpoints?api-version=2019-05-01", &[], "");
    assert_eq!(got.json[0]["name"], "AzureCloud");
    assert_eq!(got.json[0]["authentication"]["loginEndpoint"], format!("{}/", azure.root()));
}

#[test]
fn the_metadata_service_knows_its_instance() {
    let azure = cloud(Options::default());
    let vm = format!("{GROUP}/Microsoft.Compute/virtualMachines/vm0");
    let ask = |path: &str| send(&azure, "GET", path, &[("metadata", "true")], "");
    let path = "/metadata/instance?api-version=2021-10-01&format=json";
    assert_eq!(ask(path).status, 404);
    azure.world(|world| world.asks(&vm));
    let got = ask(path).json;
    assert_eq!((&got["compute"]["name"], &got["compute"]["resourceId"]), (&json!("vm0"), &json!(vm)));
    let address = &got["network"]["interface"][0]["ipv4"]["ipAddress"][0];
    assert_eq!(address, &json!({"privateIpAddress": "10.240.0.4", "publicIpAddress": ""}));
    assert_eq!(
        ask("/metadata/loadbalancer?api-version=2020-10-01").json["loadbalancer"]["publicIpAddresses"],
        json!([])
    );
    assert_eq!(send(&azure, "GET", path, &[], "").status, 400);
    assert_eq!(azure.take_violations().len(), 1);
}
