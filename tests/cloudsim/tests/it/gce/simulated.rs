//! Behavior other than calls: metadata servers, tokens, permissions, quotas, throttles, faults and the admin API.

use super::client::Own;
use super::scene::{self, own};
use crate::http::{Answer, send};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::throttle::BucketSpec;
use ccm_cloudsim::gce::seed::InstanceSeed;
use ccm_cloudsim::gce::{Gce, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NODE: &str = "projects/p/zones/us-central1-b/instances/n1";
const PODS: &str = "projects/p/zones/us-central1-b/instances/pods";

fn asked(url: &str, path: &str) -> Answer {
    send("GET", &format!("{url}/computeMetadata/v1/{path}"), &[("Metadata-Flavor", "Google")], "").unwrap()
}

#[test]
fn the_metadata_server_knows_its_instance() {
    let gce = scene::cloud();
    let metadata = gce.metadata(PODS, 0).unwrap();
    let number = gce.world(|world| world.projects["p"]);
    let text = |path: &str| asked(&metadata.url(), path).text;
    assert_eq!(text("project/project-id"), "p");
    assert_eq!(text("instance/zone"), format!("projects/{number}/zones/us-central1-b"));
    assert_eq!(text("instance/machine-type"), format!("projects/{number}/machineTypes/e2-standard-2"));
    assert_eq!(text("instance/hostname"), "pods.us-central1-b.c.p.internal");
    assert_eq!(text("instance/network-interfaces/"), "0/\n");
    assert_eq!(text("instance/network-interfaces/0/network"), format!("projects/{number}/networks/default"));
    let instance = own(&gce).send("GET", PODS, &Value::Null).json;
    assert_eq!(
        text("instance/network-interfaces/0/ip"),
        instance["networkInterfaces"][0]["networkIP"].as_str().unwrap()
    );
    let outside = text("instance/network-interfaces/0/access-configs/0/external-ip");
    assert_eq!(outside, instance["networkInterfaces"][0]["accessConfigs"][0]["natIP"].as_str().unwrap());
    assert_eq!(asked(&metadata.url(), "instance/network-interfaces/0/ipv6s").status, 404);
    assert_eq!(asked(&metadata.url(), "instance/nosuch").status, 404);
    let without = send("GET", &format!("{}/computeMetadata/v1/instance/zone", metadata.url()), &[], "").unwrap();
    assert_eq!(without.status, 403);
    assert_eq!(without.headers["metadata-flavor"], "Google");
    assert!(gce.ledger(|ledger| ledger.counts(0)).contains_key("metadata:/computeMetadata/v1/instance/zone"));
    assert!(gce.metadata("projects/p/zones/us-central1-b/instances/nosuch", 0).is_err());
}

#[test]
fn the_metadata_server_gives_tokens_that_end() {
    let gce = scene::cloud();
    let metadata = gce.metadata(NODE, 0).unwrap();
    let token = asked(&metadata.url(), "instance/service-accounts/default/token").json;
    assert_eq!((token["token_type"].as_str(), token["expires_in"].as_u64()), (Some("Bearer"), Some(3599)));
    let client = Own { url: gce.url(), token: token["access_token"].as_str().unwrap().to_owned() };
    assert_eq!(client.send("GET", NODE, &Value::Null).status, 200);
    gce.expire_tokens();
    assert_eq!(client.send("GET", NODE, &Value::Null).json["error"]["status"], "UNAUTHENTICATED");
    let nobody = Own { url: gce.url(), token: String::new() };
    assert_eq!(nobody.send("GET", NODE, &Value::Null).status, 401);
}

#[test]
fn a_service_account_gets_a_token_for_an_assertion() {
    let gce = scene::cloud();
    let now = gce.clock().now().as_second();
    let claims = json!({"iss": "ccm@p.iam.gserviceaccount.com", "scope": "s", "iat": now, "exp": now + 3600});
    let grant = |claims: &Value| {
        let part = |value: &Value| base64url(value.to_string().as_bytes());
        let assertion = format!("{}.{}.c2ln", part(&json!({"alg": "RS256", "typ": "JWT"})), part(claims));
        let form = format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}");
        send("POST", &gce.token_url(), &[], &form).unwrap()
    };
    let token = grant(&claims).json["access_token"].as_str().unwrap().to_owned();
    assert_eq!(Own { url: gce.url(), token }.send("GET", NODE, &Value::Null).status, 200);
    assert_eq!(gce.take_violations(), Vec::<String>::new());
    let mut late = claims.clone();
    late["exp"] = json!(now + 7200);
    assert_eq!((grant(&late).status, &grant(&late).json["error"]), (400, &json!("invalid_grant")));
    assert_eq!(send("POST", &gce.token_url(), &[], "grant_type=password").unwrap().status, 400);
    let calls = gce.ledger(|ledger| ledger.since(0).map(|entry| entry.params.clone()).collect::<String>());
    assert!(!calls.contains("assertion"), "secrets are not kept");
}

fn base64url(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let part = |part: &[u8]| {
        let number = (0..3).fold(0_usize, |number, at| number << 8 | usize::from(*part.get(at).unwrap_or(&0)));
        (0..=part.len()).map(|digit| char::from(letters[number >> (18 - 6 * digit) & 63])).collect::<String>()
    };
    bytes.chunks(3).map(part).collect()
}

#[test]
fn quotas_hold_for_each_region() {
    let gce = scene::cloud();
    gce.change(|options| options.quotas = BTreeMap::from([("TARGET_POOLS".to_owned(), 1)]));
    let client = own(&gce);
    let insert = |region: &str, name: &str| {
        client.send("POST", &format!("projects/p/regions/{region}/targetPools"), &json!({ "name": name }))
    };
    assert_eq!(insert("us-central1", "a").status, 200);
    let refused = insert("us-central1", "b");
    assert_eq!((refused.status, &refused.json["error"]["errors"][0]["reason"]), (403, &json!("quotaExceeded")));
    assert_eq!(refused.json["error"]["message"], "Quota 'TARGET_POOLS' exceeded.  Limit: 1.0 in region us-central1.");
    assert_eq!(insert("us-east1", "b").status, 200);
}

#[test]
fn calls_are_throttled_and_fail_as_configured() {
    let gce = scene::cloud();
    let client = own(&gce);
    let reads =
        BucketSpec { service: None, actions: vec!["instances.*".to_owned()], mutating: None, burst: 1.0, rate: 0.0 };
    gce.change(|options| options.throttle = vec![reads]);
    assert_eq!(client.send("GET", NODE, &Value::Null).status, 200);
    let held = client.send("GET", NODE, &Value::Null);
    assert_eq!((held.status, &held.json["error"]["errors"][0]["reason"]), (403, &json!("rateLimitExceeded")));
    gce.change(|options| options.throttle_status = 429);
    assert_eq!(client.send("GET", NODE, &Value::Null).status, 429);
    gce.change(|options| options.throttle = Vec::new());
    let once = |fault| gce.fault(Rule::every(fault).on("compute", "instances.get").window(0, 1));
    once(Fault::Html { status: 502 });
    let page = send("GET", &format!("{}{NODE}", gce.url()), &[], "").unwrap();
    assert_eq!((page.status, &page.headers["content-type"][..9], page.json), (502, "text/html", Value::Null));
    once(Fault::Deny);
    let denied = client.send("GET", NODE, &Value::Null).json;
    assert_eq!(denied["error"]["message"], format!("Required 'compute.instances.get' permission for '{NODE}'"));
    once(Fault::Code { status: 503, code: "backendError".to_owned(), message: "Backend Error".to_owned() });
    assert_eq!(client.send("GET", NODE, &Value::Null).json["error"]["errors"][0]["message"], "Backend Error");
    once(Fault::ResetBefore);
    assert!(send("GET", &format!("{}{NODE}", gce.url()), &[], "").is_err());
    assert_eq!(client.send("GET", NODE, &Value::Null).status, 200);
    assert_eq!(gce.violations(), Vec::<String>::new());
}

#[test]
fn a_network_project_may_refuse_firewalls() {
    let gce = scene::cloud();
    gce.world(|world| {
        world.network("net", "shared", false);
    });
    gce.change(|options| {
        options.denied = BTreeMap::from([("net".to_owned(), vec!["compute.firewalls.*".to_owned()])]);
    });
    let client = own(&gce);
    let rule = json!({"name": "f", "network": "global/networks/shared", "allowed": [{"IPProtocol": "all"}]});
    let refused = client.send("POST", "projects/net/global/firewalls", &rule);
    assert_eq!((refused.status, &refused.json["error"]["errors"][0]["reason"]), (403, &json!("forbidden")));
    assert_eq!(client.send("GET", "projects/net/global/networks/shared", &Value::Null).status, 200);
    let own_rule = json!({"name": "f", "network": "global/networks/default", "allowed": [{"IPProtocol": "all"}]});
    assert_eq!(client.send("POST", "projects/p/global/firewalls", &own_rule).status, 200);
}

#[test]
fn an_object_stays_in_use_until_the_deletion_of_its_user_has_ended() {
    let gce = scene::cloud();
    let client = own(&gce);
    let region = "projects/p/regions/us-central1";
    client.send("POST", &format!("{region}/targetPools"), &json!({"name": "t"}));
    let rule = json!({"name": "f", "target": "regions/us-central1/targetPools/t"});
    assert_eq!(client.send("POST", &format!("{region}/forwardingRules"), &rule).status, 200);
    gce.change(|options| options.operation = Duration::from_secs(60));
    let path = format!("{}{region}/forwardingRules/f", gce.url());
    let token = format!("Bearer {}", client.token);
    let going = send("DELETE", &path, &[("Authorization", &token)], "").unwrap();
    assert_eq!(going.json["status"], "PENDING");
    let refused = client.send("DELETE", &format!("{region}/targetPools/t"), &Value::Null);
    assert_eq!(refused.json["error"]["errors"][0]["reason"], "resourceInUseByAnotherResource");
    assert_eq!(client.send("GET", &format!("{region}/forwardingRules/f"), &Value::Null).status, 200);
    gce.clock().step(Duration::from_secs(60));
    assert_eq!(client.send("GET", &format!("{region}/forwardingRules/f"), &Value::Null).status, 404);
    gce.change(|options| options.operation = Duration::ZERO);
    assert_eq!(client.send("DELETE", &format!("{region}/targetPools/t"), &Value::Null).status, 200);
}

#[test]
fn a_direct_change_is_not_a_call() {
    let gce = scene::cloud();
    gce.change(|options| options.read_only = vec!["p".to_owned()]);
    let rule = json!({"name": "f", "network": "global/networks/default", "allowed": [{"IPProtocol": "all"}]});
    let done = gce.by_hand("POST", "projects/p/global/firewalls", &rule).unwrap();
    assert_eq!((&done["kind"], gce.mark()), (&json!("compute#operation"), 0));
    assert_eq!(gce.objects("firewalls")[0]["direction"], "INGRESS");
    assert_eq!(gce.by_hand("POST", "projects/p/global/firewalls", &rule).unwrap_err().status, 409);
    assert_eq!(own(&gce).send("DELETE", "projects/p/global/firewalls/f", &Value::Null).status, 403);
}

#[test]
fn the_effects_of_a_call_end_with_its_operation() {
    let gce = scene::cloud();
    let client = own(&gce);
    for round in 0..50 {
        let made = client.send("POST", "projects/p/global/httpHealthChecks", &json!({"name": "h"}));
        assert_eq!((made.status, &made.json["status"]), (200, &json!("DONE")), "{round}: {}", made.json);
        let gone = client.send("DELETE", "projects/p/global/httpHealthChecks/h", &Value::Null);
        assert_eq!((gone.status, &gone.json["status"]), (200, &json!("DONE")), "{round}: {}", gone.json);
    }
}

#[test]
fn waiting_takes_as_long_as_the_operation_and_no_other_call_waits() {
    let gce = scene::cloud();
    gce.change(|options| options.operation = Duration::from_millis(1500));
    let client = own(&gce);
    let begun = std::time::Instant::now();
    std::thread::scope(|threads| {
        let insert = |name: &'static str| {
            let client = &client;
            move || client.send("POST", "projects/p/global/httpHealthChecks", &json!({ "name": name })).json
        };
        let writes = [threads.spawn(insert("a")), threads.spawn(insert("b"))];
        assert_eq!(client.send("GET", NODE, &Value::Null).status, 200);
        assert!(begun.elapsed() < Duration::from_millis(1500), "a read is answered meanwhile");
        for write in writes {
            assert_eq!(write.join().unwrap()["status"], "DONE");
        }
    });
    assert!(begun.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn a_deleted_instance_leaves_its_groups() {
    let gce = scene::cloud();
    let client = own(&gce);
    let groups = "projects/p/zones/us-central1-b/instanceGroups";
    client.send("POST", groups, &json!({"name": "g"}));
    client.send("POST", &format!("{groups}/g/addInstances"), &json!({"instances": [{"instance": NODE}]}));
    assert_eq!(gce.objects("instanceGroups")[0]["size"], 1);
    gce.world(|world| world.delete_instance(NODE));
    assert_eq!(gce.objects("instanceGroups")[0]["size"], 0);
}

/// Source of the text: kubernetes/ingress-gce#282.
#[test]
fn the_members_of_a_group_are_in_one_subnetwork() {
    let gce = scene::cloud();
    let client = own(&gce);
    gce.world(|world| {
        let second = world.subnetwork("projects/p/global/networks/default", "us-central1", "b", "10.9.0.0/20", &[]);
        let seed = InstanceSeed {
            project: "p",
            zone: "us-central1-b",
            name: "other",
            subnetwork: &second,
            ..InstanceSeed::default()
        };
        world.instance(&seed).unwrap();
    });
    let groups = "projects/p/zones/us-central1-b/instanceGroups";
    client.send("POST", groups, &json!({"name": "g"}));
    let add = |instance: &str| {
        client.send("POST", &format!("{groups}/g/addInstances"), &json!({"instances": [{"instance": instance}]}))
    };
    assert_eq!(add(NODE).status, 200);
    let refused = add("projects/p/zones/us-central1-b/instances/other");
    assert_eq!((refused.status, &refused.json["error"]["errors"][0]["reason"]), (400, &json!("wrongSubnetwork")));
    assert_eq!(
        refused.json["error"]["message"],
        "Resource 'projects/p/zones/us-central1-b/instances/other' is expected to be in the subnetwork \
         'projects/p/regions/us-central1/subnetworks/sub' but is in the subnetwork \
         'projects/p/regions/us-central1/subnetworks/b'."
    );
}

#[test]
fn a_path_that_no_method_has_is_noted() {
    let gce = scene::cloud();
    let client = own(&gce);
    assert_eq!(client.send("GET", "projects/p/global/targetPools", &Value::Null).status, 404);
    assert_eq!(client.send("POST", NODE, &Value::Null).status, 405);
    assert_eq!(gce.take_violations().len(), 2);
}

#[test]
fn the_admin_api_shows_and_changes() {
    let gce = scene::cloud();
    let ask =
        |method: &str, path: &str, body: &str| send(method, &format!("{}{path}", gce.admin_url()), &[], body).unwrap();
    assert_eq!(ask("GET", "/", "").json["endpoint"], gce.root());
    assert_eq!(ask("POST", "/options", r#"{"operation": 5000}"#).json["operation"], 5000);
    assert_eq!(gce.world(|world| world.options.operation), Duration::from_secs(5));
    ask("POST", "/options", r#"{"quotas": {"ROUTES": 1, "NETWORKS": 2}, "operations": {"routes.insert": 5}}"#);
    let changed =
        ask("POST", "/options", r#"{"quotas": {"ROUTES": null}, "operations": null, "operation": null}"#).json;
    assert_eq!((&changed["quotas"], &changed["operations"]), (&json!({"NETWORKS": 2}), &json!({})));
    assert_eq!(ask("POST", "/options", r#"{"quotas": null, "operation": 5000}"#).json["quotas"], json!({}));
    assert_eq!(ask("GET", "/violations", "").json, json!([]));
    assert_eq!(ask("GET", "/objects", "").json[NODE]["status"], "RUNNING");
    own(&gce).send("GET", NODE, &Value::Null);
    assert_eq!(ask("GET", "/ledger/counts", "").json, json!({"compute:instances.get": 1}));
    assert_eq!(ask("GET", "/nosuch", "").status, 404);
}

#[test]
fn five_thousand_instances_are_listed_in_pages() {
    let gce = Gce::start(Options { check: false, ..Options::default() }).unwrap();
    let seed = ccm_cloudsim::gce::seed::ClusterSeed { nodes: 5000, ..Default::default() };
    assert_eq!(gce.world(|world| world.cluster(&seed)).instances.len(), 5000);
    let client = own(&gce);
    let mut token = String::new();
    let mut names = std::collections::BTreeSet::new();
    for page in 1..=10 {
        let path = format!("projects/p/zones/us-central1-b/instances?filter=name%20eq%20n.*&pageToken={token}");
        let list = client.send("GET", &path, &Value::Null).json;
        names.extend(list["items"].as_array().unwrap().iter().map(|item| item["name"].to_string()));
        token = list["nextPageToken"].as_str().unwrap_or_default().to_owned();
        assert_eq!(token.is_empty(), page == 10);
    }
    assert_eq!(names.len(), 5000);
    assert_eq!(gce.ledger(|ledger| ledger.counts(0)), BTreeMap::from([("compute:instances.list".to_owned(), 10)]));
}
