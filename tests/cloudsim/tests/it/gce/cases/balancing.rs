//! Internal load balancers: instance groups, health checks, backend services and forwarding rules.

use super::{NOTHING, REGION, ZONE, link, with};
use crate::calls::{Case, case};
use serde_json::{Value, json};

const GROUP: &str = "zone=us-central1-b&instanceGroup=g";
const SERVICE: &str = "region=us-central1&backendService=s";
const RULE: &str = "region=us-central1&forwardingRule=f";

fn members(zone: &str, names: &[&str]) -> Value {
    let path = |name: &&str| json!({"instance": link(&format!("zones/{zone}/instances/{name}"))});
    json!({ "instances": names.iter().map(path).collect::<Vec<_>>() })
}

fn check(name: &str) -> Value {
    json!({"name": name, "type": "HTTP", "httpHealthCheck": {"port": 10256, "requestPath": "/healthz"}})
}

fn service(name: &str, fields: Value) -> Value {
    let service = json!({
        "name": name, "loadBalancingScheme": "INTERNAL", "protocol": "TCP", "healthChecks": [link("global/healthChecks/h")],
        "backends": [{"group": link("zones/us-central1-b/instanceGroups/g")}],
    });
    with(service, fields)
}

fn rule(fields: Value) -> Value {
    let rule = json!({
        "name": "f", "loadBalancingScheme": "INTERNAL", "IPProtocol": "TCP", "ports": ["80", "443"],
        "backendService": link("regions/us-central1/backendServices/s"), "network": link("global/networks/default"),
        "subnetwork": link("regions/us-central1/subnetworks/sub"),
    });
    with(rule, fields)
}

/// An instance group with a member, a health check and a backend service.
fn backend(case: Case) -> Case {
    case.send("instanceGroups.insert", ZONE, json!({"name": "g"}))
        .send("instanceGroups.addInstances", GROUP, members("us-central1-b", &["n1"]))
        .send("healthChecks.insert", "", check("h"))
        .send("regionBackendServices.insert", REGION, service("s", json!({})))
}

pub(super) fn all() -> Vec<Case> {
    [groups(), services(), rules()].into_iter().flatten().collect()
}

fn groups() -> Vec<Case> {
    vec![
        case("an instance group has members of its zone and network")
            .send("instanceGroups.insert", ZONE, json!({"name": "g"}))
            .call("instanceGroups.get", GROUP)
            .is("/size", 0)
            .is("/network", NOTHING)
            .send("instanceGroups.addInstances", GROUP, members("us-central1-b", &["n1", "n3"]))
            .call("instanceGroups.get", GROUP)
            .is("/size", 2)
            .is("/network", link("global/networks/default"))
            .send("instanceGroups.listInstances", GROUP, json!({"instanceState": "ALL"}))
            .is("/items/0/instance", link("zones/us-central1-b/instances/n1"))
            .is("/items/0/status", "RUNNING")
            .is("/items/2", NOTHING)
            .send("instanceGroups.addInstances", GROUP, members("us-central1-b", &["n1"]))
            .fails(400, "memberAlreadyExists")
            .is(
                "/error/message",
                "Resource 'projects/p/zones/us-central1-b/instances/n1' is already a member of 'projects/p/zones/us-central1-b/instanceGroups/g'.",
            )
            .send("instanceGroups.addInstances", GROUP, members("us-central1-b", &["nosuch"]))
            .fails(404, "notFound")
            .send("instanceGroups.addInstances", GROUP, members("us-central1-c", &["n2"]))
            .fails(400, "invalid")
            .send("instanceGroups.addInstances", GROUP, members("us-central1-b", &["far"]))
            .fails(400, "invalid")
            .send("instanceGroups.removeInstances", GROUP, members("us-central1-b", &["n1"]))
            .send("instanceGroups.removeInstances", GROUP, members("us-central1-b", &["n1"]))
            .fails(400, "memberNotFound")
            .send("instanceGroups.listInstances", GROUP, json!({}))
            .is("/items/0/instance", link("zones/us-central1-b/instances/n3"))
            .call("instanceGroups.list", "zone=us-central1-b&filter=name eq g.*")
            .is("/items/0/size", 1)
            .call("instanceGroups.delete", GROUP)
            .call("instanceGroups.delete", GROUP)
            .fails(404, "notFound"),
        case("members are listed in pages")
            .send("instanceGroups.insert", ZONE, json!({"name": "g"}))
            .send("instanceGroups.addInstances", GROUP, members("us-central1-b", &["n1", "n3", "pods"]))
            .send("instanceGroups.listInstances", "zone=us-central1-b&instanceGroup=g&maxResults=2", json!({}))
            .save("token", "/nextPageToken")
            .send("instanceGroups.listInstances", "zone=us-central1-b&instanceGroup=g&pageToken={token}", json!({}))
            .is("/items/0/instance", link("zones/us-central1-b/instances/pods"))
            .is("/nextPageToken", NOTHING),
        backend(case("an instance is in one group that is balanced"))
            .send("instanceGroups.insert", ZONE, json!({"name": "g2"}))
            .send("instanceGroups.addInstances", "zone=us-central1-b&instanceGroup=g2", members("us-central1-b", &["n1"]))
            .send(
                "regionBackendServices.insert",
                REGION,
                service("s2", json!({"backends": [{"group": link("zones/us-central1-b/instanceGroups/g2")}]})),
            )
            .fails(400, "instanceInMultipleLoadBalancedIgs")
            .is(
                "/error/message",
                "Validation failed for instance 'projects/p/zones/us-central1-b/instances/n1': instance may belong to at most one load-balanced instance group.",
            )
            .send("instanceGroups.removeInstances", "zone=us-central1-b&instanceGroup=g2", members("us-central1-b", &["n1"]))
            .send(
                "regionBackendServices.insert",
                REGION,
                service("s2", json!({"backends": [{"group": link("zones/us-central1-b/instanceGroups/g2")}]})),
            )
            .send("instanceGroups.addInstances", "zone=us-central1-b&instanceGroup=g2", members("us-central1-b", &["n1"]))
            .fails(400, "instanceInMultipleLoadBalancedIgs")
            .send("regionBackendServices.insert", REGION, service("s3", json!({}))),
    ]
}

fn services() -> Vec<Case> {
    vec![
        case("a health check has a type")
            .send("healthChecks.insert", "", json!({"name": "h"}))
            .fails(400, "required")
            .send("healthChecks.insert", "", check("h"))
            .call("healthChecks.get", "healthCheck=h")
            .is("/httpHealthCheck/proxyHeader", "NONE")
            .is("/checkIntervalSec", 5)
            .send("healthChecks.patch", "healthCheck=h", json!({"httpHealthCheck": {"port": 0}}))
            .fails(400, "invalid")
            .send("healthChecks.patch", "healthCheck=h", json!({"checkIntervalSec": 9}))
            .call("healthChecks.get", "healthCheck=h")
            .is("/httpHealthCheck/port", 10256)
            .is("/checkIntervalSec", 9)
            .call("healthChecks.delete", "healthCheck=h"),
        backend(case("an internal backend service balances by connections"))
            .send(
                "regionBackendServices.insert",
                REGION,
                service(
                    "s2",
                    json!({"backends": [{"group": link("zones/us-central1-b/instanceGroups/g"), "balancingMode": "UTILIZATION"}]}),
                ),
            )
            .fails(400, "invalid")
            .is(
                "/error/message",
                "Invalid value for field 'resource.backends[0].balancingMode': 'UTILIZATION'. Balancing mode must be CONNECTION for an INTERNAL backend service.",
            ),
        backend(case("a backend service is changed with its fingerprint"))
            .call("regionBackendServices.get", SERVICE)
            .is("/backends/0/balancingMode", "CONNECTION")
            .is("/sessionAffinity", "NONE")
            .is("/timeoutSec", 30)
            .save("fingerprint", "/fingerprint")
            .send("regionBackendServices.update", SERVICE, service("s", json!({"backends": []})))
            .fails(400, "required")
            .is("/error/message", "Required field 'resource.fingerprint' not specified")
            .send("regionBackendServices.update", SERVICE, service("s", json!({"backends": [], "fingerprint": "{fingerprint}"})))
            .call("regionBackendServices.get", SERVICE)
            .is("/backends", NOTHING)
            .send("regionBackendServices.update", SERVICE, service("s", json!({"fingerprint": "{fingerprint}"})))
            .fails(412, "conditionNotMet")
            .is("/error/message", "Invalid fingerprint.")
            .call("regionBackendServices.get", SERVICE)
            .save("fingerprint", "/fingerprint")
            .send(
                "regionBackendServices.patch",
                SERVICE,
                json!({"fingerprint": "{fingerprint}", "sessionAffinity": "CLIENT_IP"}),
            )
            .call("regionBackendServices.get", SERVICE)
            .is("/sessionAffinity", "CLIENT_IP")
            .is("/healthChecks/0", link("global/healthChecks/h")),
        backend(case("backend services that are refused"))
            .send("regionBackendServices.insert", REGION, service("s2", json!({"healthChecks": []})))
            .fails(400, "invalid")
            .send("regionBackendServices.insert", REGION, service("s2", json!({"protocol": "HTTP"})))
            .fails(400, "invalid")
            .send("regionBackendServices.insert", REGION, service("s2", json!({"healthChecks": ["global/healthChecks/nosuch"]})))
            .fails(404, "notFound")
            .send(
                "regionBackendServices.insert",
                REGION,
                service("s2", json!({"backends": [{"group": "zones/us-central1-b/instanceGroups/g"}, {"group": link("zones/us-central1-b/instanceGroups/g")}]})),
            )
            .fails(400, "invalid")
            .send(
                "regionBackendServices.insert",
                REGION,
                service("s2", json!({"backends": [{"group": "zones/us-central1-b/instanceGroups/nosuch"}]})),
            )
            .fails(404, "notFound")
            .send("regionBackendServices.insert", "region=us-east1", service("s2", json!({})))
            .fails(400, "invalid"),
        backend(case("what a backend service uses stays"))
            .call("instanceGroups.delete", GROUP)
            .fails(400, "resourceInUseByAnotherResource")
            .call("healthChecks.delete", "healthCheck=h")
            .fails(400, "resourceInUseByAnotherResource")
            .call("regionBackendServices.delete", SERVICE)
            .call("instanceGroups.delete", GROUP)
            .call("healthChecks.delete", "healthCheck=h"),
    ]
}

fn rules() -> Vec<Case> {
    let too_many: Vec<String> = (1..=6).map(|port: u16| port.to_string()).collect();
    vec![
        backend(case("an internal rule has an address and keeps its backend service"))
            .send("forwardingRules.insert", REGION, rule(json!({})))
            .call("forwardingRules.get", RULE)
            .is("/networkTier", "PREMIUM")
            .is("/ports", json!(["80", "443"]))
            .is("/allowGlobalAccess", NOTHING)
            .is("/network", link("global/networks/default"))
            .call("regionBackendServices.delete", SERVICE)
            .fails(400, "resourceInUseByAnotherResource")
            .call("regionBackendServices.get", SERVICE)
            .is("/usedBy/0/reference", link("regions/us-central1/forwardingRules/f"))
            .save("fingerprint", "/fingerprint")
            .send(
                "regionBackendServices.update",
                SERVICE,
                service("s", json!({"protocol": "UDP", "fingerprint": "{fingerprint}"})),
            )
            .fails(400, "invalid")
            .send("forwardingRules.patch", RULE, json!({"allowGlobalAccess": true}))
            .call("forwardingRules.get", RULE)
            .is("/allowGlobalAccess", true)
            .call("forwardingRules.delete", RULE)
            .send(
                "regionBackendServices.update",
                SERVICE,
                service("s", json!({"protocol": "UDP", "fingerprint": "{fingerprint}"})),
            )
            .call("regionBackendServices.delete", SERVICE),
        backend(case("the address of an internal rule is its own"))
            .send("forwardingRules.insert", REGION, rule(json!({"IPAddress": "10.0.0.200"})))
            .send("forwardingRules.insert", REGION, rule(json!({"name": "f2", "IPAddress": "10.0.0.200"})))
            .fails(409, "conflict")
            .is(
                "/error/message",
                "IP_IN_USE_BY_ANOTHER_RESOURCE - IP '10.0.0.200' is already being used by another resource.",
            )
            .send("forwardingRules.insert", REGION, rule(json!({"name": "f2", "IPAddress": "10.0.0.2"})))
            .fails(409, "conflict")
            .send("forwardingRules.insert", REGION, rule(json!({"name": "f2", "IPAddress": "10.9.0.2"})))
            .fails(400, "invalid")
            .send(
                "addresses.insert",
                REGION,
                json!({
                    "name": "a", "addressType": "INTERNAL", "address": "10.0.0.200",
                    "subnetwork": link("regions/us-central1/subnetworks/sub"),
                }),
            )
            .call("addresses.get", "region=us-central1&address=a")
            .is("/users/0", link("regions/us-central1/forwardingRules/f"))
            .call("forwardingRules.delete", RULE)
            .send("forwardingRules.insert", REGION, rule(json!({"IPAddress": "10.0.0.200"})))
            .call("addresses.delete", "region=us-central1&address=a"),
        backend(case("rules of different ports share an internal address that is reserved for that"))
            .send(
                "addresses.insert",
                REGION,
                json!({
                    "name": "a", "addressType": "INTERNAL", "address": "10.0.0.200",
                    "purpose": "SHARED_LOADBALANCER_VIP", "subnetwork": link("regions/us-central1/subnetworks/sub"),
                }),
            )
            .send("forwardingRules.insert", REGION, rule(json!({"IPAddress": "10.0.0.200"})))
            .send("forwardingRules.insert", REGION, rule(json!({"name": "f2", "IPAddress": "10.0.0.200"})))
            .fails(409, "conflict")
            .send(
                "forwardingRules.insert",
                REGION,
                rule(json!({"name": "f2", "IPAddress": "10.0.0.200", "ports": ["81"]})),
            )
            .call("addresses.get", "region=us-central1&address=a")
            .is("/users/1", link("regions/us-central1/forwardingRules/f2")),
        backend(case("internal rules that are refused"))
            .send("forwardingRules.insert", REGION, rule(json!({"ports": too_many})))
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule(json!({"ports": []})))
            .fails(400, "required")
            .send("forwardingRules.insert", REGION, rule(json!({"allPorts": true})))
            .fails(400, "badRequest")
            .send("forwardingRules.insert", REGION, rule(json!({"IPProtocol": "UDP"})))
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule(json!({"networkTier": "STANDARD"})))
            .fails(400, "badRequest")
            .send("forwardingRules.insert", REGION, rule(json!({"subnetwork": Value::Null})))
            .fails(400, "invalid")
            .send(
                "forwardingRules.insert",
                REGION,
                rule(json!({"subnetwork": link("regions/us-east1/subnetworks/east")})),
            )
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule(json!({"network": link("global/networks/other")})))
            .fails(400, "invalid")
            .send(
                "forwardingRules.insert",
                REGION,
                rule(json!({
                    "network": link("global/networks/other"), "subnetwork": link("regions/us-central1/subnetworks/far"),
                })),
            )
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule(json!({"backendService": Value::Null})))
            .fails(400, "required")
            .send(
                "forwardingRules.insert",
                REGION,
                rule(json!({"ports": [], "allPorts": true, "network": Value::Null})),
            )
            .call("forwardingRules.get", RULE)
            .is("/network", link("global/networks/default"))
            .is("/allPorts", true),
    ]
}
