//! The cases. The expected answers were recorded from real services.

mod octavia;

use super::run::{Case, case};
use serde_json::{Value, json};

const NOWHERE: &str = "11111111-1111-1111-1111-111111111111";

pub(crate) fn all() -> Vec<Case> {
    let network = [networks(), ports(), routers(), floating(), groups()];
    [identity(), compute()]
        .into_iter()
        .chain(network)
        .chain([octavia::balancers(), octavia::parts()])
        .flatten()
        .collect()
}

/// A login of the user of the fixture.
fn login(scope: &Value) -> Value {
    let user = json!({"id": "{user}", "password": "secret"});
    let mut auth = json!({"identity": {"methods": ["password"], "password": {"user": user}}});
    if !scope.is_null() {
        auth["scope"] = scope.clone();
    }
    json!({ "auth": auth })
}

fn with_credential(credential: &Value) -> Value {
    json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": credential}}})
}

fn identity() -> Vec<Case> {
    let tokens = "identity POST /auth/tokens";
    let bad = json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"id": "{user}", "password": "x"}}}}});
    let nameless =
        json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "x", "password": "x"}}}}});
    let mut unknown = login(&Value::Null);
    unknown["auth"]["foo"] = json!(1);
    let mut scoped = with_credential(&json!({"id": "{credential}", "secret": "s3"}));
    scoped["auth"]["scope"] = json!({"project": {"id": "{project}"}});
    vec![
        case("identity: versions").call("identity GET /", 200).is("/version/id", "v3.14"),
        case("identity: a login with a password")
            .send(tokens, &login(&json!({"project": {"id": "{project}"}})), 201)
            .is("/token/project/id", "{project}")
            .send(tokens, &login(&Value::Null), 201)
            .send(tokens, &login(&json!({"OS-TRUST:trust": {"id": "{trust}"}})), 201)
            .is("/token/OS-TRUST:trust/id", "{trust}"),
        case("identity: logins that are refused")
            .send(tokens, &bad, 401)
            .send(tokens, &login(&json!({"project": {"name": "nosuch", "domain": {"id": "default"}}})), 401)
            .send(tokens, &login(&json!({"domain": {"id": "default"}})), 401)
            .send(tokens, &login(&json!({"OS-TRUST:trust": {"id": "nosuch"}})), 401)
            .wrong(tokens, &nameless, 400)
            .wrong(tokens, &login(&json!({"project": {"name": "x"}})), 400)
            .wrong(tokens, &unknown, 201),
        case("identity: application credentials")
            .send(tokens, &with_credential(&json!({"id": "{credential}", "secret": "s3"})), 201)
            .send(tokens, &with_credential(&json!({"name": "ac", "user": {"id": "{user}"}, "secret": "s3"})), 201)
            .is("/token/project/id", "{project}")
            .send(tokens, &with_credential(&json!({"id": "{credential}", "secret": "x"})), 401)
            .send(tokens, &with_credential(&json!({"id": "nosuch", "secret": "x"})), 404)
            .wrong(tokens, &scoped, 401),
    ]
}

fn compute() -> Vec<Case> {
    let version = "OpenStack-API-Version";
    vec![
        case("compute: names are patterns, and case makes no difference")
            .call("compute GET /servers/detail?name=%5Enode1%24", 200)
            .is("/servers/0/id", "{Node1}")
            .is("/servers/1/id", "{node1}")
            .is("/servers/2", "absent")
            .call("compute GET /servers/detail?name=nosuch", 200)
            .is("/servers", "[]")
            .wrong("compute GET /servers/detail?name=(", &Value::Null, 400),
        case("compute: pages")
            .call("compute GET /servers/detail?limit=2", 200)
            .is("/servers/0/id", "{other}")
            .is("/servers_links/0/rel", "next")
            .call("compute GET /servers/detail?limit=2&marker={Node1}", 200)
            .is("/servers/0/id", "{node1}")
            .is("/servers_links", "absent")
            .call("compute GET /servers/detail?marker=nosuch", 400)
            .wrong("compute GET /servers/detail?limit=x", &Value::Null, 400),
        case("compute: unknown filters")
            .wrong("compute GET /servers/detail?bogus=1", &Value::Null, 200)
            .wrong("compute GET /servers/detail?bogus=1", &Value::Null, 400)
            .header(version, "compute 2.90"),
        case("compute: a flavor is a link before 2.47")
            .call("compute GET /servers/{node1}", 200)
            .is("/server/flavor/id", "1")
            .is("/server/metadata/k", "v")
            .call("compute GET /servers/{node1}", 200)
            .header(version, "compute 2.47")
            .is("/server/flavor/original_name", "m1.tiny")
            .is("/server/flavor/id", "absent")
            .call("compute GET /servers/{node1}", 200)
            .header("X-OpenStack-Nova-API-Version", "2.47")
            .call("compute GET /servers/{node1}", 406)
            .header(version, "compute 2.999")
            .wrong("compute GET /servers/{node1}", &Value::Null, 400)
            .header(version, "compute foo"),
        case("compute: flavors and what there is not")
            .call("compute GET /flavors/1", 200)
            .is("/flavor/name", "m1.tiny")
            .call("compute GET /flavors/nosuch", 404)
            .call("compute GET /servers/nosuch", 404)
            .call("compute GET /servers/detail?all_tenants=1", 403)
            .wrong("compute GET /nosuch", &Value::Null, 404),
    ]
}

fn networks() -> Vec<Case> {
    vec![
        case("network: networks and subnets")
            .call("network GET /networks/{net}", 200)
            .is("/network/subnets/0", "{sub}")
            .call("network GET /networks/{ext}", 200)
            .is("/network/router:external", "true")
            .call("network GET /networks?router:external=true&id={ext}&fields=id", 200)
            .is("/networks/0/id", "{ext}")
            .call("network GET /networks?id={net}&router:external=True", 200)
            .is("/networks", "[]")
            .wrong("network GET /networks?router:external=maybe", &Value::Null, 400)
            .call("network GET /subnets/{sub}", 200)
            .is("/subnet/gateway_ip", "10.77.0.1")
            .call("network GET /subnets?network_id={ext}", 200)
            .is("/subnets/0/router:external", "true")
            .call("network GET /subnets/nosuch", 404)
            .call("network GET /networks/nosuch", 404),
        case("network: tags of subnets")
            .send("network PUT /subnets/{sub}/tags", &json!({"tags": ["b", "a"]}), 200)
            .is("/tags", r#"["a","b"]"#)
            .send("network PUT /subnets/{far}/tags", &json!({"tags": ["a"]}), 200)
            .call("network GET /subnets?project_id={project}&tags=a,b&fields=id", 200)
            .is("/subnets", r#"[{"id":"{sub}"}]"#)
            .call("network GET /subnets?project_id={project}&not-tags=a,b&fields=id", 200)
            .is("/subnets", r#"[{"id":"{far}"}]"#)
            .call("network GET /subnets?project_id={project}&not-tags-any=a,b&fields=id", 200)
            .is("/subnets", "[]")
            .call("network GET /subnets?project_id={project}&tags-any=b,c&fields=id", 200)
            .is("/subnets", r#"[{"id":"{sub}"}]"#)
            .wrong("network PUT /subnets/{sub}/tags", &json!({"tags": "a"}), 400)
            .wrong("network PUT /subnets/{sub}/tags", &json!({"foo": ["a"]}), 400)
            .send(&format!("network PUT /subnets/{NOWHERE}/tags"), &json!({"tags": ["a"]}), 404),
        case("network: what there is not")
            .wrong("network GET /nosuch", &Value::Null, 404)
            .wrong("network PATCH /ports/{port1}", &json!({}), 405)
            .wrong("network GET /networks?bogus=1", &Value::Null, 400),
    ]
}

fn ports() -> Vec<Case> {
    let port = "network PUT /ports/{port1}";
    let with = |fields: &Value| json!({ "port": fields });
    let pair = |address: &str| json!({"port": {"allowed_address_pairs": [{"ip_address": address}]}});
    vec![
        case("port: filters")
            .call(
                "network GET /ports?device_id=dev1&device_id=dev2&network_id={net}&fields=device_id&sort_key=name&sort_dir=asc",
                200,
            )
            .is("/ports", r#"[{"device_id":"dev1"},{"device_id":"dev2"}]"#)
            .call("network GET /ports?network_id={net}&fixed_ips=ip_address%3D{port1_ip}&fields=id", 200)
            .is("/ports/0/id", "{port1}")
            .call("network GET /ports?fixed_ips=subnet_id%3D{far}&fields=name", 200)
            .is("/ports/0/name", "far")
            .call("network GET /ports?security_groups={default_group}&name=port2&fields=id", 200)
            .is("/ports/0/id", "{port2}")
            .call("network GET /ports?device_id={node1}", 200)
            .is("/ports/0/status", "ACTIVE")
            .call("network GET /ports?id={port1}&fields=bogus", 200)
            .is("/ports/0", "{}")
            .wrong("network GET /ports?bogus=1", &Value::Null, 400)
            .wrong("network GET /ports?fixed_ips=bogus", &Value::Null, 400)
            .call("network GET /ports/nosuch", 404),
        case("port: pages")
            .call("network GET /ports?name=port1&name=port2&limit=1&sort_key=name&sort_dir=asc&fields=name", 200)
            .is("/ports/0/name", "port1")
            .is("/ports_links/0/rel", "next")
            .call("network GET /ports?name=port1&name=port2&limit=2&sort_key=name&sort_dir=asc&marker={port1}&fields=name", 200)
            .is("/ports/0/name", "port2")
            .is("/ports_links/0/rel", "previous")
            .call("network GET /ports?limit=1&marker=nosuch", 404)
            .wrong("network GET /ports?sort_key=name", &Value::Null, 400)
            .wrong("network GET /ports?limit=x", &Value::Null, 400),
        case("port: address pairs")
            .send(port, &pair("10.244.0.0/24"), 200)
            .is("/port/allowed_address_pairs/0/ip_address", "10.244.0.0/24")
            .wrong(port, &pair("x"), 400)
            .wrong(port, &json!({"port": {"allowed_address_pairs": [{"ip": "10.0.0.0/8"}]}}), 400)
            .send(
                port,
                &json!({"port": {"allowed_address_pairs": [{"ip_address": "10.0.0.1"}, {"ip_address": "10.0.0.1"}]}}),
                400,
            )
            .send(port, &with(&json!({"allowed_address_pairs": []})), 200),
        case("port: a change of an older revision is refused")
            .send(port, &with(&json!({"description": "x"})), 200)
            .send(port, &with(&json!({"description": "y"})), 412)
            .header("If-Match", "revision_number=0")
            .send(port, &with(&json!({"description": "y"})), 200)
            .header("If-Match", "foo"),
        case("port: bodies that make no sense")
            .wrong(port, &with(&json!({"bogus": 1})), 400)
            .wrong(port, &with(&json!({"status": "ACTIVE"})), 400)
            .wrong(port, &json!({"bogus": 1}), 400)
            .wrong(port, &with(&json!({"security_groups": "x"})), 400)
            .wrong(port, &with(&json!({"security_groups": ["x"]})), 400)
            .send(port, &with(&json!({"security_groups": [NOWHERE]})), 404)
            .wrong(port, &Value::Null, 400),
        case("port: without port security")
            .send("network PUT /ports/{port2}", &with(&json!({"port_security_enabled": false})), 409)
            .send(
                "network PUT /ports/{port2}",
                &with(&json!({"port_security_enabled": false, "security_groups": []})),
                200,
            )
            .send("network PUT /ports/{port2}", &pair("10.244.0.0/24"), 409)
            .send("network PUT /ports/{port2}", &with(&json!({"security_groups": ["{default_group}"]})), 400)
            .send(
                "network PUT /ports/{port2}",
                &with(&json!({"port_security_enabled": true, "security_groups": ["{default_group}"]})),
                200,
            ),
    ]
}

fn routers() -> Vec<Case> {
    let route = |destination: &str, hop: &str| json!({"destination": destination, "nexthop": hop});
    let routes = |routes: &Value| json!({"router": {"routes": routes}});
    let add = "network PUT /routers/{router}/add_extraroutes";
    let remove = "network PUT /routers/{router}/remove_extraroutes";
    let one = route("10.244.1.0/24", "{port1_ip}");
    let many = |count: u8| {
        let each = (0..count).map(|number| route(&format!("10.245.{number}.0/24"), "{port1_ip}"));
        routes(&each.collect::<Value>())
    };
    vec![
        case("router: extra routes")
            .call("network GET /routers/{router}", 200)
            .is("/router/routes", "[]")
            .send(add, &routes(&json!([one])), 200)
            .is("/router/routes/0/nexthop", "{port1_ip}")
            .send(add, &routes(&json!([one])), 200)
            .is("/router/routes/1", "absent")
            .send(remove, &routes(&json!([route("10.244.9.0/24", "{port1_ip}")])), 200)
            .is("/router/routes/0/destination", "10.244.1.0/24")
            .send(remove, &routes(&json!([one])), 200)
            .is("/router/routes", "[]")
            .send(add, &routes(&json!([route("10.244.1.0/24", "192.0.2.9")])), 400)
            .send(add, &routes(&json!([route("10.244.1.0/24", "10.77.0.1")])), 400)
            .wrong(add, &routes(&json!([route("bogus", "10.77.0.2")])), 400)
            .wrong(add, &json!({"router": {"foo": []}}), 500)
            .send("network PUT /routers/nosuch/add_extraroutes", &routes(&json!([])), 404)
            .wrong("network PUT /routers/{router}/bogus", &json!({}), 404),
        case("router: the quota of routes")
            .send(add, &many(31), 409)
            .is("/NeutronError/type", "OverQuota")
            .is("/NeutronError/message", "Quota exceeded for resources: ['router_route'].")
            .send("network PUT /routers/{router}", &many(31), 409)
            .send(add, &many(30), 200)
            .send(add, &routes(&json!([one])), 409)
            .send(remove, &many(30), 200),
        case("router: all routes at once")
            .send("network PUT /routers/{router}", &routes(&json!([one])), 200)
            .is("/router/routes/0/destination", "10.244.1.0/24")
            .wrong("network PUT /routers/{router}", &routes(&json!([one, one])), 400)
            .send("network PUT /routers/{router}", &routes(&json!([route("10.244.1.0/24", "1.2.3.4")])), 400)
            .send("network PUT /routers/{router}", &routes(&json!([])), 412)
            .header("If-Match", "revision_number=1")
            .send("network PUT /routers/{router}", &routes(&json!([])), 200)
            .call("network GET /routers/nosuch", 404)
            .call("network GET /ports?device_id={router}&device_owner=network:router_interface", 200)
            .is("/ports/0/network_id", "{net}"),
    ]
}

fn floating() -> Vec<Case> {
    let post = "network POST /floatingips";
    let with = |fields: &Value| {
        let mut body = json!({"floating_network_id": "{ext}"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "floatingip": body })
    };
    vec![
        case("floating IP: a life")
            .send(post, &with(&json!({"description": "d"})), 201)
            .save("fip", "/floatingip/id")
            .save("fip_ip", "/floatingip/floating_ip_address")
            .send("network PUT /floatingips/{fip}", &json!({"floatingip": {"port_id": "{port1}"}}), 200)
            .is("/floatingip/fixed_ip_address", "{port1_ip}")
            .is("/floatingip/router_id", "{router}")
            .call("network GET /floatingips?port_id={port1}", 200)
            .is("/floatingips/0/id", "{fip}")
            .call("network GET /floatingips?floating_ip_address={fip_ip}&fields=id", 200)
            .is("/floatingips/0/id", "{fip}")
            .send(post, &with(&json!({"port_id": "{port1}"})), 409)
            .send("network PUT /floatingips/{fip}", &json!({"floatingip": {"port_id": null}}), 200)
            .is("/floatingip/port_id", "null")
            .send("network PUT /floatingips/{fip}", &json!({"floatingip": {"port_id": "{far_port}"}}), 404)
            .send("network PUT /floatingips/{fip}/tags", &json!({"tags": ["a"]}), 200)
            .call("network GET /floatingips?tags=a&fields=id", 200)
            .is("/floatingips/0/id", "{fip}")
            .call("network PUT /floatingips/{fip}/tags/c", 201)
            .call("network GET /floatingips/{fip}/tags/c", 204)
            .call("network DELETE /floatingips/{fip}/tags/c", 204)
            .call("network DELETE /floatingips/{fip}/tags/c", 404)
            .call("network DELETE /floatingips/{fip}", 204)
            .call("network DELETE /floatingips/{fip}", 404)
            .call("network GET /floatingips/{fip}", 404),
        case("floating IP: what is refused")
            .send(post, &with(&json!({"floating_ip_address": "203.0.113.6"})), 403)
            .send(post, &json!({"floatingip": {"floating_network_id": "{net}"}}), 400)
            .send(post, &json!({"floatingip": {"floating_network_id": NOWHERE}}), 404)
            .send(post, &with(&json!({"subnet_id": "{sub}"})), 400)
            .send(post, &with(&json!({"port_id": NOWHERE})), 404)
            .wrong(post, &json!({"floatingip": {}}), 400)
            .wrong(post, &with(&json!({"bogus": 1})), 400)
            .wrong(post, &with(&json!({"tags": ["a"]})), 400)
            .wrong("network GET /floatingips?bogus=1", &Value::Null, 400),
        case("floating IP: a network that is full")
            .send(post, &with(&json!({})), 201)
            .save("f1", "/floatingip/id")
            .wrong("network PUT /floatingips/{f1}", &json!({"floatingip": {"status": "x"}}), 400)
            .send(post, &with(&json!({})), 201)
            .save("f2", "/floatingip/id")
            .send(post, &with(&json!({})), 201)
            .save("f3", "/floatingip/id")
            .send(post, &with(&json!({})), 201)
            .save("f4", "/floatingip/id")
            .send(post, &with(&json!({})), 409)
            .call("network DELETE /floatingips/{f1}", 204)
            .send(post, &with(&json!({})), 201)
            .save("f1", "/floatingip/id")
            .call("network DELETE /floatingips/{f1}", 204)
            .call("network DELETE /floatingips/{f2}", 204)
            .call("network DELETE /floatingips/{f3}", 204)
            .call("network DELETE /floatingips/{f4}", 204),
    ]
}

fn groups() -> Vec<Case> {
    let post = "network POST /security-group-rules";
    let rule = |fields: &Value| {
        let mut body = json!({
            "security_group_id": "{sg}", "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4",
            "port_range_min": 80, "port_range_max": 80, "remote_ip_prefix": "10.0.0.0/8",
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "security_group_rule": body })
    };
    vec![
        case("security group: a life")
            .send("network POST /security-groups", &json!({"security_group": {"name": "sg", "description": "d"}}), 201)
            .save("sg", "/security_group/id")
            .call("network GET /security-groups?name=sg", 200)
            .is("/security_groups/0/security_group_rules/1/direction", "egress")
            .call("network GET /security-group-rules?security_group_id={sg}&fields=direction", 200)
            .is("/security_group_rules", r#"[{"direction":"egress"},{"direction":"egress"}]"#)
            .send(post, &rule(&json!({})), 201)
            .is("/security_group_rule/normalized_cidr", "10.0.0.0/8")
            .save("rule", "/security_group_rule/id")
            .send(post, &rule(&json!({})), 409)
            .send(post, &rule(&json!({"protocol": "TCP"})), 409)
            .send(post, &rule(&json!({"protocol": 6, "ethertype": "ipv4"})), 409)
            .send(post, &rule(&json!({"remote_ip_prefix": "10.1.2.3/8"})), 201)
            .send(post, &rule(&json!({"remote_ip_prefix": "0.0.0.0/0"})), 201)
            .send(post, &json!({"security_group_rule": {"security_group_id": "{sg}", "direction": "ingress"}}), 201)
            .send(
                post,
                &json!({"security_group_rules": [rule(&json!({"port_range_min": 1}))["security_group_rule"]]}),
                201,
            )
            .call("network DELETE /security-group-rules/{rule}", 204)
            .call("network DELETE /security-group-rules/{rule}", 404)
            .send("network PUT /ports/{port1}", &json!({"port": {"security_groups": ["{sg}"]}}), 200)
            .call("network DELETE /security-groups/{sg}", 409)
            .call("network GET /ports?security_groups={sg}&fields=id", 200)
            .is("/ports/0/id", "{port1}")
            .send("network PUT /ports/{port1}", &json!({"port": {"security_groups": ["{default_group}"]}}), 200)
            .send("network PUT /security-groups/{sg}", &json!({"security_group": {"description": "e"}}), 200)
            .send("network PUT /security-groups/{sg}/tags", &json!({"tags": ["z"]}), 200)
            .call("network GET /security-groups/{sg}", 200)
            .is("/security_group/tags/0", "z")
            .call("network DELETE /security-groups/{sg}", 204)
            .call("network DELETE /security-groups/{sg}", 404),
        case("security group: rules that make no sense")
            .send("network POST /security-groups", &json!({"security_group": {"name": "sg2"}}), 201)
            .save("sg", "/security_group/id")
            .wrong(post, &rule(&json!({"direction": "x"})), 400)
            .wrong(post, &rule(&json!({"ethertype": "x"})), 400)
            .wrong(post, &rule(&json!({"remote_ip_prefix": "bogus"})), 400)
            .wrong(post, &rule(&json!({"port_range_max": 70000})), 400)
            .wrong(post, &rule(&json!({"port_range_min": 0})), 400)
            .wrong(post, &rule(&json!({"bogus": 1})), 400)
            .wrong(post, &json!({"security_group_rule": {"security_group_id": "{sg}"}}), 400)
            .send(post, &rule(&json!({"ethertype": "IPv6"})), 400)
            .send(post, &rule(&json!({"remote_ip_prefix": "2001:db8::/32"})), 400)
            .send(post, &rule(&json!({"port_range_min": 90})), 400)
            .send(post, &rule(&json!({"port_range_min": null})), 400)
            .send(post, &rule(&json!({"protocol": null})), 400)
            .send(post, &rule(&json!({"remote_group_id": "{sg}"})), 400)
            .send(post, &rule(&json!({"security_group_id": NOWHERE})), 404)
            .call("network DELETE /security-groups/{sg}", 204),
    ]
}
