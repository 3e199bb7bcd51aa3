//! Reserved addresses, and forwarding rules that use them.

use super::{NOTHING, REGION, link, with};
use crate::calls::{Case, case};
use serde_json::{Value, json};

fn external(name: &str, fields: Value) -> Value {
    with(json!({ "name": name }), fields)
}

fn internal(name: &str, fields: Value) -> Value {
    let base = json!({"name": name, "addressType": "INTERNAL", "subnetwork": "regions/us-central1/subnetworks/sub"});
    with(base, fields)
}

pub(super) fn all() -> Vec<Case> {
    let rule = |name: &str, address: &str, fields: Value| {
        with(
            json!({"name": name, "IPAddress": address, "target": "regions/us-central1/targetPools/t", "portRange": "80"}),
            fields,
        )
    };
    vec![
        case("an external address is reserved once")
            .send("addresses.insert", REGION, external("a", json!({})))
            .call("addresses.get", "region=us-central1&address=a")
            .is("/addressType", "EXTERNAL")
            .is("/networkTier", "PREMIUM")
            .is("/status", "RESERVED")
            .save("ip", "/address")
            .send("addresses.insert", REGION, external("a", json!({})))
            .fails(409, "alreadyExists")
            .send("addresses.insert", REGION, external("b", json!({"address": "{ip}"})))
            .fails(400, "invalid")
            .send("addresses.insert", REGION, external("b", json!({"address": "198.51.100.1"})))
            .fails(400, "invalid")
            .call("addresses.list", "region=us-central1&filter=address eq {ip}")
            .is("/items/0/name", "a")
            .call("addresses.delete", "region=us-central1&address=a")
            .call("addresses.delete", "region=us-central1&address=a")
            .fails(404, "notFound"),
        case("an internal address is reserved once")
            .send("addresses.insert", REGION, internal("a", json!({"address": "10.0.7.7"})))
            .call("addresses.get", "region=us-central1&address=a")
            .is("/purpose", "GCE_ENDPOINT")
            .is("/subnetwork", link("regions/us-central1/subnetworks/sub"))
            .send("addresses.insert", REGION, internal("b", json!({"address": "10.0.7.7"})))
            .fails(409, "conflict")
            .send("addresses.insert", REGION, internal("b", json!({"address": "10.9.0.1"})))
            .fails(400, "invalid")
            .send("addresses.insert", REGION, internal("b", json!({"networkTier": "STANDARD"})))
            .fails(400, "badRequest")
            .send("addresses.insert", REGION, internal("b", json!({})))
            .call("addresses.get", "region=us-central1&address=b")
            .is("/status", "RESERVED"),
        case("the address of a rule is reserved and released while the rule has it")
            .send("targetPools.insert", REGION, json!({"name": "t"}))
            .send("forwardingRules.insert", REGION, json!({"name": "f", "target": "regions/us-central1/targetPools/t"}))
            .call("forwardingRules.get", "region=us-central1&forwardingRule=f")
            .save("ip", "/IPAddress")
            .send("addresses.insert", REGION, external("a", json!({"address": "{ip}", "networkTier": "STANDARD"})))
            .fails(400, "invalid")
            .send("addresses.insert", REGION, external("a", json!({"address": "{ip}"})))
            .call("addresses.get", "region=us-central1&address=a")
            .is("/status", "IN_USE")
            .is("/users/0", link("regions/us-central1/forwardingRules/f"))
            .call("addresses.delete", "region=us-central1&address=a")
            .call("forwardingRules.get", "region=us-central1&forwardingRule=f")
            .is("/IPAddress", "{ip}"),
        case("a rule takes a reserved address of its tier and region")
            .send("targetPools.insert", REGION, json!({"name": "t"}))
            .send("addresses.insert", REGION, external("a", json!({"networkTier": "STANDARD"})))
            .call("addresses.get", "region=us-central1&address=a")
            .save("ip", "/address")
            .send("forwardingRules.insert", REGION, rule("f", "{ip}", json!({})))
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule("f", "198.51.100.1", json!({})))
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule("f", "{ip}", json!({"networkTier": "STANDARD"})))
            .send("forwardingRules.insert", REGION, rule("g", "{ip}", json!({"networkTier": "STANDARD", "portRange": "70-90"})))
            .fails(400, "invalid")
            .is(
                "/error/message",
                "Invalid value for field 'resource.IPAddress': '{ip}'. Specified IP address is in-use and would result in a conflict.",
            )
            .send("forwardingRules.insert", REGION, rule("g", "{ip}", json!({"networkTier": "STANDARD", "IPProtocol": "UDP"})))
            .send("forwardingRules.insert", REGION, rule("h", "a", json!({"networkTier": "STANDARD", "portRange": "81-90"})))
            .call("forwardingRules.get", "region=us-central1&forwardingRule=h")
            .is("/IPAddress", "{ip}"),
        case("a global address is in no region")
            .send("globalAddresses.insert", "", external("a", json!({})))
            .call("globalAddresses.get", "address=a")
            .save("ip", "/address")
            .is("/region", NOTHING)
            .call("addresses.list", "region=us-central1&filter=address eq {ip}")
            .is("/items", NOTHING)
            .send("targetPools.insert", REGION, json!({"name": "t"}))
            .send("forwardingRules.insert", REGION, rule("f", "{ip}", json!({})))
            .fails(400, "invalid"),
        case("the address of an instance stays reserved")
            .call("instances.get", "zone=us-central1-b&instance=pods")
            .save("ip", "/networkInterfaces/0/accessConfigs/0/natIP")
            .send("addresses.insert", REGION, external("a", json!({"address": "{ip}"})))
            .call("addresses.delete", "region=us-central1&address=a")
            .fails(400, "resourceInUseByAnotherResource"),
    ]
}
