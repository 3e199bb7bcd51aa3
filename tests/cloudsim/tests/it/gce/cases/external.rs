//! External load balancers: target pools, their health checks and forwarding rules.

use super::{NOTHING, REGION, ZONE, link, with};
use crate::calls::{Case, case};
use serde_json::{Value, json};

const POOL: &str = "region=us-central1&targetPool=t";
const RULE: &str = "region=us-central1&forwardingRule=f";

fn members(names: &[&str]) -> Value {
    let members: Vec<Value> =
        names.iter().map(|name| json!({"instance": format!("/zones/us-central1-b/instances/{name}")})).collect();
    json!({ "instances": members })
}

pub(super) fn all() -> Vec<Case> {
    let pool = json!({
        "name": "t", "instances": ["/zones/us-central1-b/instances/n1", link("zones/us-central1-c/instances/n2")],
        "healthChecks": ["global/httpHealthChecks/h"],
    });
    let rule = |fields: Value| with(json!({"name": "f", "target": link("regions/us-central1/targetPools/t")}), fields);
    let too_many: Vec<String> = (1..=6).map(|port: u16| port.to_string()).collect();
    vec![
        case("an HTTP health check has defaults and is replaced")
            .send("httpHealthChecks.insert", "", json!({"name": "h", "port": 10256, "requestPath": "/healthz"}))
            .call("httpHealthChecks.get", "httpHealthCheck=h")
            .is("/checkIntervalSec", 5)
            .is("/unhealthyThreshold", 2)
            .send("httpHealthChecks.update", "httpHealthCheck=h", json!({"name": "h", "checkIntervalSec": 8, "timeoutSec": 1}))
            .call("httpHealthChecks.get", "httpHealthCheck=h")
            .is("/port", 80)
            .is("/requestPath", "/")
            .is("/checkIntervalSec", 8)
            .send("httpHealthChecks.patch", "httpHealthCheck=h", json!({"port": 0}))
            .fails(400, "invalid")
            .send("httpHealthChecks.patch", "httpHealthCheck=h", json!({"timeoutSec": 9}))
            .fails(400, "invalid")
            .call("healthChecks.get", "healthCheck=h")
            .fails(404, "notFound"),
        case("a target pool has members and a check that cannot go")
            .send("httpHealthChecks.insert", "", json!({"name": "h"}))
            .send("targetPools.insert", REGION, pool.clone())
            .call("targetPools.get", POOL)
            .is("/sessionAffinity", "NONE")
            .is("/instances", json!([link("zones/us-central1-b/instances/n1"), link("zones/us-central1-c/instances/n2")]))
            .is("/healthChecks/0", link("global/httpHealthChecks/h"))
            .call("httpHealthChecks.delete", "httpHealthCheck=h")
            .fails(400, "resourceInUseByAnotherResource")
            .is(
                "/error/message",
                "The http_health_check resource 'projects/p/global/httpHealthChecks/h' is already being used by 'projects/p/regions/us-central1/targetPools/t'",
            )
            .send("targetPools.addInstance", POOL, members(&["n1", "n3"]))
            .call("targetPools.get", POOL)
            .is("/instances/2", link("zones/us-central1-b/instances/n3"))
            .is("/instances/3", NOTHING)
            .send("targetPools.addInstance", POOL, members(&["nosuch"]))
            .fails(404, "notFound")
            .send("targetPools.addInstance", POOL, json!({"instances": [{"instance": "/zones/us-east1-b/instances/east"}]}))
            .fails(400, "invalid")
            .send("targetPools.removeInstance", POOL, members(&["n1", "n3"]))
            .call("targetPools.get", POOL)
            .is("/instances", json!([link("zones/us-central1-c/instances/n2")]))
            .send("targetPools.removeInstance", POOL, members(&["n1"]))
            .fails(400, "invalid")
            .is(
                "/error/message",
                "Invalid value for field 'resource.instance': 'https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/instances/n1'. Instance is not currently attached to this target pool.",
            )
            .call("targetPools.delete", POOL)
            .call("httpHealthChecks.delete", "httpHealthCheck=h"),
        case("target pools that are refused")
            .send("targetPools.insert", REGION, pool)
            .fails(404, "notFound")
            .send("targetPools.insert", REGION, json!({"name": "t", "sessionAffinity": "SOME"}))
            .fails(400, "invalid")
            .wrong()
            .send("targetPools.insert", REGION, json!({"name": "t", "healthChecks": ["global/healthChecks/h"]}))
            .fails(400, "invalid"),
        case("a rule to a target pool has defaults and keeps the pool")
            .send("targetPools.insert", REGION, json!({"name": "t"}))
            .send("forwardingRules.insert", REGION, rule(json!({"portRange": "80"})))
            .call("forwardingRules.get", RULE)
            .is("/loadBalancingScheme", "EXTERNAL")
            .is("/networkTier", "PREMIUM")
            .is("/IPProtocol", "TCP")
            .is("/portRange", "80-80")
            .is("/target", link("regions/us-central1/targetPools/t"))
            .call("targetPools.delete", POOL)
            .fails(400, "resourceInUseByAnotherResource")
            .call("forwardingRules.list", "region=us-central1&filter=IPProtocol eq TCP")
            .is("/items/0/name", "f")
            .call("forwardingRules.delete", RULE)
            .call("forwardingRules.delete", RULE)
            .fails(404, "notFound")
            .call("targetPools.delete", POOL),
        case("rules to target pools that are refused")
            .send("forwardingRules.insert", REGION, rule(json!({})))
            .fails(404, "notFound")
            .send("targetPools.insert", REGION, json!({"name": "t"}))
            .send("forwardingRules.insert", REGION, rule(json!({"portRange": "80", "ports": ["80"]})))
            .fails(400, "badRequest")
            .send("forwardingRules.insert", REGION, rule(json!({"ports": too_many})))
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule(json!({"portRange": "90-80"})))
            .fails(400, "invalid")
            .send("forwardingRules.insert", REGION, rule(json!({"IPProtocol": "tcp"})))
            .fails(400, "invalid")
            .wrong()
            .send("forwardingRules.insert", REGION, json!({"name": "f"}))
            .fails(400, "required")
            .send("forwardingRules.insert", "region=us-east1", rule(json!({})))
            .fails(400, "invalid"),
        case("a rule with single ports keeps them")
            .send("targetPools.insert", REGION, json!({"name": "t"}))
            .send("forwardingRules.insert", REGION, rule(json!({"ports": ["80", "443"]})))
            .call("forwardingRules.get", RULE)
            .is("/ports", json!(["80", "443"]))
            .send("forwardingRules.patch", RULE, json!({"ports": ["80"]}))
            .fails(400, "invalid"),
        case("instances are listed while a pool has them")
            .call("instances.list", ZONE)
            .is("/items/1/name", "n1"),
    ]
}
