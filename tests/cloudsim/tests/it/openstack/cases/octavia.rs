//! Load balancers.

use super::NOWHERE;
use crate::openstack::run::{Case, case};
use serde_json::{Value, json};

const BALANCERS: &str = "load-balancer POST /loadbalancers";
const LISTENERS: &str = "load-balancer POST /listeners";
const POOLS: &str = "load-balancer POST /pools";
const MONITORS: &str = "load-balancer POST /healthmonitors";
const BALANCER: &str = "load-balancer GET /loadbalancers/{lb}";
const MEMBERS: &str = "load-balancer PUT /pools/{pool}/members";

/// An object with these fields replaced.
fn over(base: &Value, fields: &Value) -> Value {
    let mut all = base.as_object().unwrap().clone();
    all.extend(fields.as_object().unwrap().clone());
    Value::Object(all)
}

fn balancer(fields: &Value) -> Value {
    json!({"loadbalancer": over(&json!({"vip_subnet_id": "{sub}"}), fields)})
}

fn listener(fields: &Value) -> Value {
    json!({"listener": over(&json!({"protocol": "TCP", "protocol_port": 80, "loadbalancer_id": "{lb}"}), fields)})
}

fn pool(fields: &Value) -> Value {
    json!({"pool": over(&json!({"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "listener_id": "{listener}"}), fields)})
}

fn monitor(fields: &Value) -> Value {
    let base = json!({"pool_id": "{pool}", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1});
    json!({"healthmonitor": over(&base, fields)})
}

fn members(addresses: &[&str]) -> Value {
    let member =
        |address: &&str| json!({"address": address, "protocol_port": 30080, "name": "n", "subnet_id": "{sub}"});
    json!({"members": addresses.iter().map(member).collect::<Vec<Value>>()})
}

/// A case that starts with a load balancer.
fn with_balancer(name: &'static str) -> Case {
    case(name)
        .send(BALANCERS, &balancer(&json!({"name": "case"})), 201)
        .save("lb", "/loadbalancer/id")
        .save("vip", "/loadbalancer/vip_address")
        .wait("{lb}")
}

/// Adds the deletion of that load balancer.
fn without(case: Case) -> Case {
    case.call("load-balancer DELETE /loadbalancers/{lb}?cascade=true", 204).wait("{lb}").call(BALANCER, 404)
}

pub(crate) fn balancers() -> Vec<Case> {
    let inside = |pool: &Value| json!([{"name": "l", "protocol": "TCP", "protocol_port": 80, "default_pool": pool}]);
    let whole = json!({
        "name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members(&["10.77.0.11"])["members"],
        "healthmonitor": {"name": "m", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1},
    });
    vec![
        case("balancer: a life")
            .send(BALANCERS, &balancer(&json!({"name": "one", "tags": ["t1"], "description": "d"})), 201)
            .is("/loadbalancer/provisioning_status", "PENDING_CREATE")
            .save("lb", "/loadbalancer/id")
            .save("vip_port", "/loadbalancer/vip_port_id")
            .wait("{lb}")
            .call(BALANCER, 200)
            .is("/loadbalancer/provisioning_status", "ACTIVE")
            .call("network GET /ports/{vip_port}", 200)
            .is("/port/device_owner", "Octavia")
            .is("/port/name", "octavia-lb-{lb}")
            .call("load-balancer GET /loadbalancers?name=one&fields=id", 200)
            .is("/loadbalancers/0/id", "{lb}")
            .call("load-balancer GET /loadbalancers?tags=t1&vip_port_id={vip_port}&project_id={project}&limit=1", 200)
            .is("/loadbalancers/0/id", "{lb}")
            .call("load-balancer GET /loadbalancers?not-tags=t1&name=one", 200)
            .is("/loadbalancers", "[]")
            .send("load-balancer PUT /loadbalancers/{lb}", &json!({"loadbalancer": {"tags": []}}), 200)
            .is("/loadbalancer/tags", "[]")
            .wait("{lb}")
            .wrong("load-balancer PUT /loadbalancers/{lb}", &json!({"loadbalancer": {"vip_address": "1.1.1.1"}}), 400)
            .call("load-balancer DELETE /loadbalancers/{lb}", 204)
            .call(BALANCER, 200)
            .is("/loadbalancer/provisioning_status", "PENDING_DELETE")
            .wait("{lb}")
            .call(BALANCER, 404)
            .call("load-balancer DELETE /loadbalancers/{lb}", 404)
            .call("load-balancer GET /loadbalancers?id={lb}", 200)
            .is("/loadbalancers", "[]")
            .call("network GET /ports/{vip_port}", 404),
        without(
            case("balancer: nothing changes while it is pending")
                .send(BALANCERS, &balancer(&json!({})), 201)
                .save("lb", "/loadbalancer/id")
                .send(LISTENERS, &listener(&json!({})), 409)
                .send("load-balancer PUT /loadbalancers/{lb}", &json!({"loadbalancer": {"tags": ["x"]}}), 409)
                .call("load-balancer DELETE /loadbalancers/{lb}?cascade=true", 409)
                .wait("{lb}")
                .send(LISTENERS, &listener(&json!({})), 201)
                .wait("{lb}")
                .call("load-balancer DELETE /loadbalancers/{lb}", 400),
        ),
        without(
            case("balancer: with everything in it")
                .send(BALANCERS, &balancer(&json!({"listeners": inside(&whole)})), 201)
                .is("/loadbalancer/pools/0/healthmonitor/name", "m")
                .save("lb", "/loadbalancer/id")
                .wait("{lb}")
                .call("load-balancer GET /loadbalancers/{lb}/status", 200)
                .is("/statuses/loadbalancer/listeners/0/pools/0/members/0/address", "10.77.0.11")
                .call("load-balancer GET /pools?loadbalancer_id={lb}", 200)
                .is("/pools/0/name", "p"),
        ),
        case("balancer: what is refused")
            .send(BALANCERS, &json!({"loadbalancer": {"name": "x"}}), 400)
            .send(BALANCERS, &balancer(&json!({"vip_subnet_id": NOWHERE})), 400)
            .send(BALANCERS, &json!({"loadbalancer": {"vip_network_id": NOWHERE}}), 400)
            .send(BALANCERS, &json!({"loadbalancer": {"vip_port_id": NOWHERE}}), 400)
            .send(BALANCERS, &balancer(&json!({"vip_address": "1.1.1.1"})), 500)
            .send(BALANCERS, &balancer(&json!({"vip_address": "{port1_ip}"})), 409)
            .send(BALANCERS, &balancer(&json!({"provider": "bogus"})), 400)
            .send(BALANCERS, &balancer(&json!({"flavor_id": NOWHERE})), 400)
            .send(BALANCERS, &balancer(&json!({"availability_zone": "bogus"})), 400)
            .send(BALANCERS, &balancer(&json!({"project_id": "x"})), 403)
            .wrong(BALANCERS, &balancer(&json!({"bogus": 1})), 400)
            .wrong(BALANCERS, &balancer(&json!({"vip_subnet_id": "x"})), 400)
            .wrong(BALANCERS, &balancer(&json!({"name": "a".repeat(300)})), 400)
            .send(
                BALANCERS,
                &balancer(&json!({"listeners": inside(&json!({"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}))})),
                400,
            )
            .call("load-balancer GET /loadbalancers/nosuch", 404)
            .wrong("load-balancer GET /loadbalancers?bogus=1", &Value::Null, 400)
            .wrong("load-balancer GET /loadbalancers?limit=x", &Value::Null, 400)
            .call("load-balancer GET /loadbalancers?marker=nosuch", 400)
            .wrong("load-balancer GET /nosuch", &Value::Null, 404)
            .wrong("load-balancer PATCH /loadbalancers", &json!({}), 405),
    ]
}

pub(crate) fn parts() -> Vec<Case> {
    let update = "load-balancer PUT /listeners/{listener}";
    let with_pool = |name: &'static str| {
        with_balancer(name)
            .send(LISTENERS, &listener(&json!({"tags": ["a"]})), 201)
            .save("listener", "/listener/id")
            .wait("{lb}")
            .send(POOLS, &pool(&json!({"session_persistence": {"type": "SOURCE_IP"}})), 201)
            .save("pool", "/pool/id")
            .wait("{lb}")
    };
    vec![
        without(
            with_balancer("listener: a life")
                .send(LISTENERS, &listener(&json!({"allowed_cidrs": ["10.1.2.3/8"]})), 201)
                .save("listener", "/listener/id")
                .send(update, &json!({"listener": {"connection_limit": 5}}), 409)
                .wait("{lb}")
                .send(LISTENERS, &listener(&json!({})), 409)
                .send(LISTENERS, &listener(&json!({"protocol": "HTTP"})), 409)
                .send(
                    update,
                    &json!({"listener": {"tags": ["a"], "timeout_client_data": 1000, "allowed_cidrs": null}}),
                    200,
                )
                .wait("{lb}")
                .send(update, &json!({"listener": {"timeout_client_data": null}}), 200)
                .is("/listener/timeout_client_data", "50000")
                .wait("{lb}")
                .wrong(update, &json!({"listener": {"protocol_port": 90}}), 400)
                .call("load-balancer GET /listeners?loadbalancer_id={lb}", 200)
                .is("/listeners/0/id", "{listener}")
                .send(LISTENERS, &listener(&json!({"protocol": "UDP"})), 201)
                .wait("{lb}")
                .call("load-balancer DELETE /listeners/{listener}", 204)
                .wait("{lb}")
                .call("load-balancer DELETE /listeners/{listener}", 404),
        ),
        without(
            with_balancer("listener: what is refused")
                .wrong(LISTENERS, &listener(&json!({"protocol": "BOGUS"})), 400)
                .wrong(LISTENERS, &listener(&json!({"protocol_port": 0})), 400)
                .wrong(LISTENERS, &listener(&json!({"protocol_port": "81x"})), 400)
                .wrong(LISTENERS, &listener(&json!({"bogus": 1})), 400)
                .wrong(LISTENERS, &listener(&json!({"allowed_cidrs": ["x"]})), 400)
                .wrong(LISTENERS, &listener(&json!({"connection_limit": -2})), 400)
                .wrong(LISTENERS, &listener(&json!({"name": 5})), 400)
                .wrong(LISTENERS, &json!({"listener": {}}), 400)
                .send(LISTENERS, &listener(&json!({"allowed_cidrs": ["2001:db8::/32"]})), 400)
                .send(LISTENERS, &listener(&json!({"loadbalancer_id": NOWHERE})), 404)
                .send(LISTENERS, &listener(&json!({"insert_headers": {"X-Forwarded-For": "true"}})), 400)
                .send(LISTENERS, &listener(&json!({"default_tls_container_ref": "http://x/v1/containers/x"})), 400)
                .send(LISTENERS, &listener(&json!({"protocol": "HTTP", "insert_headers": {"X-Bogus": "true"}})), 400)
                .send(LISTENERS, &listener(&json!({"default_pool_id": NOWHERE})), 404)
                .send(LISTENERS, &listener(&json!({"protocol": "TERMINATED_HTTPS"})), 400),
        ),
        without(
            with_pool("pool: a life")
                .send(POOLS, &pool(&json!({})), 409)
                .call("load-balancer GET /pools/{pool}", 200)
                .is("/pool/listeners/0/id", "{listener}")
                .send(
                    "load-balancer PUT /pools/{pool}",
                    &json!({"pool": {"lb_algorithm": "LEAST_CONNECTIONS", "session_persistence": null}}),
                    200,
                )
                .wait("{lb}")
                .send("load-balancer PUT /pools/{pool}", &json!({"pool": {"lb_algorithm": "SOURCE_IP_PORT"}}), 501)
                .wrong("load-balancer PUT /pools/{pool}", &json!({"pool": {"protocol": "HTTP"}}), 400)
                .call("load-balancer GET /pools?loadbalancer_id={lb}&limit=1&fields=id", 200)
                .is("/pools/0/id", "{pool}")
                .wrong("load-balancer GET /pools?listener_id={listener}", &Value::Null, 400)
                .call("load-balancer DELETE /pools/{pool}", 204)
                .wait("{lb}")
                .send(POOLS, &pool(&json!({"lb_algorithm": "SOURCE_IP_PORT"})), 501)
                .send(POOLS, &pool(&json!({"protocol": "UDP"})), 400)
                .send(POOLS, &pool(&json!({"session_persistence": {"type": "APP_COOKIE"}})), 400)
                .send(POOLS, &json!({"pool": {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}}), 400)
                .wrong(POOLS, &pool(&json!({"lb_algorithm": "BOGUS"})), 400)
                .wrong(POOLS, &pool(&json!({"session_persistence": {"type": "X"}})), 400)
                .wrong(POOLS, &pool(&json!({"protocol": null})), 400),
        ),
        without(
            with_pool("members: in one request")
                .send(MEMBERS, &members(&["10.77.0.11", "10.77.0.12"]), 202)
                .send(MEMBERS, &members(&[]), 409)
                .wait("{lb}")
                .call("load-balancer GET /pools/{pool}/members", 200)
                .is("/members/1/address", "10.77.0.12")
                .send("load-balancer PUT /pools/{pool}/members?additive_only=true", &members(&["10.77.0.13"]), 202)
                .wait("{lb}")
                .call("load-balancer GET /pools/{pool}/members?fields=address", 200)
                .is("/members/2/address", "10.77.0.13")
                .send(MEMBERS, &members(&["10.77.0.12"]), 202)
                .wait("{lb}")
                .call("load-balancer GET /pools/{pool}/members?fields=address", 200)
                .is("/members", r#"[{"address":"10.77.0.12"}]"#)
                .send(MEMBERS, &members(&["10.77.0.12", "10.77.0.12"]), 400)
                .send(
                    MEMBERS,
                    &json!({"members": [{"address": "10.77.0.1", "protocol_port": 1, "subnet_id": NOWHERE}]}),
                    400,
                )
                .wrong(MEMBERS, &json!({"members": [{"address": "x", "protocol_port": 1}]}), 400)
                .wrong(MEMBERS, &json!({"members": [{"address": "10.77.0.1"}]}), 400)
                .wrong(MEMBERS, &json!({"members": [{"address": "10.77.0.1", "protocol_port": 1, "bogus": 1}]}), 400)
                .wrong(MEMBERS, &json!({"members": "x"}), 400)
                .call(&format!("load-balancer GET /pools/{NOWHERE}/members"), 404),
        ),
        without(
            with_pool("members: one by one")
                .send(
                    "load-balancer POST /pools/{pool}/members",
                    &json!({"member": {"address": "10.77.0.14", "protocol_port": 1}}),
                    201,
                )
                .save("member", "/member/id")
                .wait("{lb}")
                .send(
                    "load-balancer POST /pools/{pool}/members",
                    &json!({"member": {"address": "10.77.0.14", "protocol_port": 1}}),
                    409,
                )
                .call("load-balancer DELETE /pools/{pool}/members/{member}", 204)
                .wait("{lb}")
                .call("load-balancer DELETE /pools/{pool}/members/{member}", 404),
        ),
        without(
            with_balancer("pool: datagrams")
                .send(LISTENERS, &listener(&json!({"protocol": "UDP", "protocol_port": 53})), 201)
                .save("listener", "/listener/id")
                .wait("{lb}")
                .send(POOLS, &pool(&json!({"protocol": "UDP"})), 201)
                .save("pool", "/pool/id")
                .wait("{lb}")
                .send(MEMBERS, &json!({"members": [{"address": "2001:db8::1", "protocol_port": 1}]}), 501)
                .send(MONITORS, &monitor(&json!({"type": "PING"})), 400)
                .send(MONITORS, &monitor(&json!({"type": "UDP-CONNECT"})), 201)
                .wait("{lb}"),
        ),
        without(
            with_pool("health monitor: a life")
                .send(MONITORS, &monitor(&json!({})), 201)
                .save("monitor", "/healthmonitor/id")
                .wait("{lb}")
                .send(MONITORS, &monitor(&json!({})), 409)
                .call("load-balancer GET /healthmonitors/{monitor}", 200)
                .call("load-balancer GET /pools/{pool}", 200)
                .is("/pool/healthmonitor_id", "{monitor}")
                .send("load-balancer PUT /healthmonitors/{monitor}", &json!({"healthmonitor": {"delay": 6}}), 200)
                .wait("{lb}")
                .wrong("load-balancer PUT /healthmonitors/{monitor}", &json!({"healthmonitor": {"type": "HTTP"}}), 400)
                .call("load-balancer GET /healthmonitors?pool_id={pool}&fields=id", 200)
                .is("/healthmonitors/0/id", "{monitor}")
                .call("load-balancer DELETE /healthmonitors/{monitor}", 204)
                .wait("{lb}")
                .call("load-balancer DELETE /healthmonitors/{monitor}", 404)
                .send(MONITORS, &monitor(&json!({"url_path": "/x"})), 400)
                .send(MONITORS, &monitor(&json!({"type": "UDP-CONNECT"})), 400)
                .send(MONITORS, &monitor(&json!({"pool_id": NOWHERE})), 404)
                .wrong(MONITORS, &monitor(&json!({"type": "X"})), 400)
                .wrong(MONITORS, &monitor(&json!({"max_retries": 11})), 400)
                .wrong(MONITORS, &monitor(&json!({"delay": -1})), 400)
                .send(MONITORS, &monitor(&json!({"type": "HTTP"})), 201)
                .is("/healthmonitor/url_path", "/")
                .wait("{lb}"),
        ),
    ]
}
