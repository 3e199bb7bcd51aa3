//! The cases: behavior that the description does not cover. The simulation names the sources of the answers.

mod addresses;
mod balancing;
mod external;

use crate::calls::{Case, case};
use serde_json::{Value, json};

const BASE: &str = "https://www.googleapis.com/compute/v1/projects/p";
const ZONE: &str = "zone=us-central1-b";
const REGION: &str = "region=us-central1";

pub(crate) fn all() -> Vec<Case> {
    [places(), instances(), networks(), routes(), firewalls()]
        .into_iter()
        .chain([addresses::all(), external::all(), balancing::all()])
        .flatten()
        .collect()
}

/// The link of an object in the project.
fn link(path: &str) -> String {
    format!("{BASE}/{path}")
}

/// An object with additional or replaced fields.
fn with(mut base: Value, fields: Value) -> Value {
    if let (Some(base), Value::Object(fields)) = (base.as_object_mut(), fields) {
        base.extend(fields);
    }
    base
}

/// Expects no value.
const NOTHING: Value = Value::Null;

fn places() -> Vec<Case> {
    vec![
        case("projects, zones and regions")
            .call("projects.get", "")
            .is("/name", "p")
            .save("number", "/id")
            .call("projects.get", "project={number}")
            .is("/name", "p")
            .call("zones.list", "filter=region eq .*/regions/us-central1")
            .is("/items/0/name", "us-central1-a")
            .is("/items/4", NOTHING)
            .call("zones.get", "zone=us-east1-b")
            .is("/region", link("regions/us-east1"))
            .call("regions.list", "")
            .is("/items/1/name", "us-east1")
            .call("regions.get", "region=us-east1")
            .is("/zones/0", link("zones/us-east1-b")),
        case("places that are not there")
            .call("projects.get", "project=nosuch")
            .fails(404, "notFound")
            .is("/error/message", "The resource 'projects/nosuch' was not found")
            .call("zones.get", "zone=us-central1-z")
            .fails(404, "notFound")
            .call("instances.list", "zone=us-central1-z")
            .fails(400, "invalid")
            .is("/error/message", "Invalid value for field 'zone': 'us-central1-z'. Unknown zone.")
            .call("addresses.list", "region=us-central9")
            .fails(400, "invalid"),
        case("operations are found where they belong")
            .send("httpHealthChecks.insert", "", json!({"name": "h"}))
            .is("/status", "DONE")
            .is("/operationType", "insert")
            .is("/targetLink", link("global/httpHealthChecks/h"))
            .save("name", "/name")
            .call("globalOperations.get", "operation={name}")
            .is("/status", "DONE")
            .call("globalOperations.wait", "operation={name}")
            .is("/progress", 100)
            .call("regionOperations.get", "region=us-central1&operation={name}")
            .fails(404, "notFound"),
    ]
}

fn instances() -> Vec<Case> {
    let alias = |fingerprint: &str, ranges: Value| json!({"fingerprint": fingerprint, "aliasIpRanges": ranges});
    let interface = "zone=us-central1-b&instance=n1&networkInterface=nic0";
    vec![
        case("instances are found by name and filter")
            .call("instances.get", "zone=us-central1-b&instance=n1")
            .is("/status", "RUNNING")
            .is("/networkInterfaces/0/networkIP", "10.0.0.2")
            .is("/tags/items/0", "k8s-node")
            .call("instances.get", "zone=us-central1-c&instance=n1")
            .fails(404, "notFound")
            .is("/error/message", "The resource 'projects/p/zones/us-central1-c/instances/n1' was not found")
            .call("instances.list", "zone=us-central1-b&filter=name eq n.*")
            .is("/items/0/name", "n1")
            .is("/items/1/name", "n3")
            .is("/items/2", NOTHING)
            .call("instances.list", "zone=us-central1-b&filter=(name eq n.*) (name = n3)")
            .fails(400, "invalid")
            .call("instances.list", "zone=us-central1-f")
            .is("/items", NOTHING),
        case("pages follow each other")
            .call("instances.list", "zone=us-central1-b&maxResults=2")
            .is("/items/1/name", "n1")
            .save("token", "/nextPageToken")
            .call("instances.list", "zone=us-central1-b&maxResults=2&pageToken={token}")
            .is("/items/0/name", "n3")
            .is("/nextPageToken", NOTHING)
            .call("instances.list", "zone=us-central1-b&maxResults=501")
            .fails(400, "invalid")
            .call("instances.list", "zone=us-central1-b&pageToken=x")
            .fails(400, "invalid")
            .call("instances.list", "zone=us-central1-b&orderBy=name&maxResults=1")
            .is("/items/0/name", "far"),
        case("instances of all zones")
            .call("instances.aggregatedList", "filter=name eq n2")
            .is("/items/zones~1us-central1-c/instances/0/name", "n2")
            .is("/items/zones~1us-central1-b/warning/code", "NO_RESULTS_ON_PAGE")
            .call("instances.aggregatedList", "maxResults=3")
            .save("token", "/nextPageToken")
            .call("instances.aggregatedList", "maxResults=100&pageToken={token}")
            .is("/items/zones~1us-east1-b/instances/0/name", "east")
            .is("/nextPageToken", NOTHING),
        case("an instance gets alias ranges with the fingerprint of its interface")
            .call("instances.get", "zone=us-central1-b&instance=pods")
            .is("/networkInterfaces/0/aliasIpRanges/0/ipCidrRange", "10.64.0.0/24")
            .is("/networkInterfaces/0/accessConfigs/0/type", "ONE_TO_ONE_NAT")
            .call("instances.get", "zone=us-central1-b&instance=n1")
            .save("fingerprint", "/networkInterfaces/0/fingerprint")
            .send("instances.updateNetworkInterface", interface, alias("AAAAAAAAAAA=", json!([])))
            .fails(412, "conditionNotMet")
            .send("instances.updateNetworkInterface", interface, json!({"aliasIpRanges": []}))
            .fails(400, "required")
            .send(
                "instances.updateNetworkInterface",
                interface,
                alias("{fingerprint}", json!([{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}])),
            )
            .call("instances.get", "zone=us-central1-b&instance=n1")
            .is("/networkInterfaces/0/aliasIpRanges/0/ipCidrRange", "10.64.1.0/24")
            .save("fingerprint", "/networkInterfaces/0/fingerprint")
            .send(
                "instances.updateNetworkInterface",
                interface,
                alias("{fingerprint}", json!([{"ipCidrRange": "10.64.0.0/24", "subnetworkRangeName": "pods"}])),
            )
            .fails(409, "conflict")
            .send(
                "instances.updateNetworkInterface",
                "zone=us-central1-b&instance=n1&networkInterface=nic7",
                alias("{fingerprint}", json!([])),
            )
            .fails(400, "invalid"),
        case("disks")
            .call("disks.get", "zone=us-central1-b&disk=data")
            .is("/zone", link("zones/us-central1-b"))
            .call("disks.get", "zone=us-central1-c&disk=data")
            .fails(404, "notFound")
            .call("regionDisks.get", "region=us-central1&disk=data")
            .is("/replicaZones/1", link("zones/us-central1-c")),
    ]
}

fn networks() -> Vec<Case> {
    vec![
        case("networks and subnetworks")
            .call("networks.get", "network=default")
            .is("/autoCreateSubnetworks", false)
            .is("/subnetworks/0", link("regions/us-central1/subnetworks/sub"))
            .is("/subnetworks/1", link("regions/us-east1/subnetworks/east"))
            .call("networks.list", "")
            .is("/items/1/name", "other")
            .call("subnetworks.list", "region=us-central1&filter=network eq .*/default$")
            .is("/items/0/name", "sub")
            .is("/items/1", NOTHING)
            .call("subnetworks.get", "region=us-central1&subnetwork=sub")
            .is("/secondaryIpRanges/0/rangeName", "pods"),
    ]
}

fn routes() -> Vec<Case> {
    let route = |name: &str| {
        json!({
            "name": name, "network": link("global/networks/default"), "destRange": "10.1.0.0/24", "priority": 1000,
            "nextHopInstance": "zones/us-central1-b/instances/n1", "description": "k8s-node-route",
        })
    };
    let with = |field: &str, value: Value| {
        let mut route = route("r2");
        route[field] = value;
        route
    };
    let filter = "filter=(name eq r.*) (network eq https://www.googleapis.com/compute/v1/projects/p/global/networks/default) (description eq k8s-node-route)";
    vec![
        case("a route is made once, found and deleted once")
            .send("routes.insert", "", route("r"))
            .send("routes.insert", "", route("r"))
            .fails(409, "alreadyExists")
            .is("/error/message", "The resource 'projects/p/global/routes/r' already exists")
            .call("routes.list", filter)
            .is("/items/0/nextHopInstance", link("zones/us-central1-b/instances/n1"))
            .is("/items/0/warnings", NOTHING)
            .is("/items/1", NOTHING)
            .call("routes.delete", "route=r")
            .call("routes.delete", "route=r")
            .fails(404, "notFound")
            .call("routes.list", "")
            .is("/items", NOTHING),
        case("a route leads to an instance of its network")
            .send("routes.insert", "", with("nextHopInstance", json!("zones/us-central1-b/instances/nosuch")))
            .fails(404, "notFound")
            .send("routes.insert", "", with("nextHopInstance", json!("zones/us-central1-b/instances/far")))
            .call("routes.get", "route=r2")
            .is("/warnings/0/code", "NEXT_HOP_INSTANCE_NOT_ON_NETWORK"),
        case("routes that are refused")
            .send("routes.insert", "", with("destRange", json!("10.1.0.1/24")))
            .fails(400, "invalid")
            .send("routes.insert", "", with("nextHopIp", json!("10.0.0.2")))
            .fails(400, "badRequest")
            .send("routes.insert", "", with("network", json!("global/networks/nosuch")))
            .fails(404, "notFound")
            .send("routes.insert", "", with("network", json!("nosuch")))
            .fails(400, "invalid")
            .send("routes.insert", "", with("name", json!("R_2")))
            .fails(400, "invalid")
            .send("routes.insert", "", with("priority", json!(70000)))
            .fails(400, "invalid"),
        case("a body that is against the description")
            .send("routes.insert", "", with("nextHop", json!("n1")))
            .fails(400, "badRequest")
            .wrong()
            .send("routes.insert", "", with("priority", json!("high")))
            .fails(400, "badRequest")
            .wrong()
            .send("routes.insert", "", with("destRange", Value::Null))
            .fails(400, "required")
            .wrong(),
    ]
}

fn firewalls() -> Vec<Case> {
    let rule = |name: &str| {
        json!({
            "name": name, "network": link("global/networks/default"), "sourceRanges": ["0.0.0.0/0"],
            "destinationRanges": ["203.0.113.7"], "targetTags": ["k8s-node"],
            "allowed": [{"IPProtocol": "tcp", "ports": ["80", "443-445"]}],
        })
    };
    let with = |field: &str, value: Value| {
        let mut rule = rule("g");
        rule[field] = value;
        rule
    };
    vec![
        case("a firewall has defaults, is patched and deleted")
            .send("firewalls.insert", "", rule("f"))
            .send("firewalls.insert", "", rule("f"))
            .fails(409, "alreadyExists")
            .call("firewalls.get", "firewall=f")
            .is("/priority", 1000)
            .is("/direction", "INGRESS")
            .is("/disabled", false)
            .is("/destinationRanges/0", "203.0.113.7")
            .send("firewalls.patch", "firewall=f", json!({"name": "f", "priority": 999, "targetTags": ["a", "b"]}))
            .call("firewalls.get", "firewall=f")
            .is("/priority", 999)
            .is("/targetTags", json!(["a", "b"]))
            .is("/allowed/0/ports/1", "443-445")
            .send("firewalls.patch", "firewall=f", json!({"name": "f", "network": "global/networks/other"}))
            .fails(400, "invalid")
            .send("firewalls.patch", "firewall=f", json!({"priority": 1}))
            .fails(400, "required")
            .wrong()
            .send("firewalls.update", "firewall=f", json!({"name": "f", "allowed": [{"IPProtocol": "icmp"}]}))
            .call("firewalls.get", "firewall=f")
            .is("/targetTags", NOTHING)
            .is("/sourceRanges/0", "0.0.0.0/0")
            .call("firewalls.delete", "firewall=f")
            .call("firewalls.get", "firewall=f")
            .fails(404, "notFound"),
        case("firewalls that are refused")
            .send("firewalls.insert", "", with("denied", json!([{"IPProtocol": "all"}])))
            .fails(400, "badRequest")
            .send("firewalls.insert", "", with("allowed", json!([])))
            .fails(400, "required")
            .send("firewalls.insert", "", with("sourceRanges", json!(["10.0.0.1/24"])))
            .fails(400, "invalid")
            .send("firewalls.insert", "", with("sourceRanges", json!(["10.0.0.0/24", "2001:db8::/32"])))
            .fails(400, "invalid")
            .send("firewalls.insert", "", with("targetTags", json!(["K8S"])))
            .fails(400, "invalid")
            .send("firewalls.insert", "", with("targetTags", (0..71).map(|tag| json!(format!("t{tag}"))).collect()))
            .fails(400, "invalid")
            .send("firewalls.insert", "", with("priority", json!(-1)))
            .fails(400, "invalid")
            .send("firewalls.insert", "", with("allowed", json!([{"IPProtocol": "icmp", "ports": ["80"]}])))
            .fails(400, "invalid")
            .send("firewalls.insert", "", with("network", json!("projects/q/global/networks/default")))
            .fails(404, "notFound")
            .send("firewalls.patch", "firewall=nosuch", json!({"name": "nosuch", "priority": 1}))
            .fails(404, "notFound"),
    ]
}
