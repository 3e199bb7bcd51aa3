//! Services: defaults, allocation, changes of type, status.

use crate::api::{Api, MERGE, STRATEGIC};
use serde_json::{Value, json};

async fn make(api: &Api, name: &str, spec: Value) -> (String, Value) {
    let path = api.namespaced("services").await;
    let service = api.post(&path, json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    (format!("{path}/{name}"), service)
}

fn balanced() -> Value {
    json!({"type": "LoadBalancer", "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b", "targetPort": "web"}]})
}

fn node_port(service: &Value, index: usize) -> u64 {
    service["spec"]["ports"][index]["nodePort"].as_u64().unwrap_or_default()
}

pub(crate) async fn a_cluster_ip_service_is_filled_in(api: &Api) {
    let (_, service) = make(api, "a", json!({"ports": [{"port": 80}]})).await;
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    let octets: std::net::Ipv4Addr = address.parse().unwrap();
    assert_eq!((octets.octets()[0], octets.octets()[1] & 0xf0), (10, 96));
    let spec = json!({
        "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "sessionAffinity": "None", "type": "ClusterIP",
    });
    assert_eq!((&service["spec"], &service["status"]), (&spec, &json!({"loadBalancer": {}})));
}

pub(crate) async fn a_load_balancer_gets_ports(api: &Api) {
    let (path, service) = make(api, "a", balanced()).await;
    for index in [0, 1] {
        assert!((30000..=32767).contains(&node_port(&service, index)), "{service}");
    }
    assert_eq!(service["spec"]["ports"][1]["targetPort"], "web");
    assert_eq!(service["spec"]["externalTrafficPolicy"], "Cluster");
    assert_eq!(service["spec"]["allocateLoadBalancerNodePorts"], true);
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "loadBalancerClass": "x.y/z",
        "sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    let (_, other) = make(api, "b", spec).await;
    assert_eq!((node_port(&other, 0), &other["spec"]["loadBalancerClass"]), (0, &json!("x.y/z")));
    assert_eq!(other["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    let deleted = api.delete(&path).await.ok();
    assert_eq!(deleted["kind"], "Service");
}

pub(crate) async fn headless_and_external_services_get_no_address(api: &Api) {
    let (_, headless) = make(api, "a", json!({"clusterIP": "None", "selector": {"a": "b"}})).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(headless["spec"]["ipFamilyPolicy"], "SingleStack");
    let (_, bare) = make(api, "b", json!({"clusterIP": "None"})).await;
    assert_eq!(bare["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let (_, external) = make(api, "c", json!({"type": "ExternalName", "externalName": "a.b"})).await;
    assert_eq!(external["spec"], json!({"externalName": "a.b", "sessionAffinity": "None", "type": "ExternalName"}));
}

pub(crate) async fn invalid_services_are_refused(api: &Api) {
    let path = api.namespaced("services").await;
    for (spec, message) in [
        (json!({}), "spec.ports: Required value"),
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
        (
            json!({"type": "Foo", "ports": [{"port": 80}]}),
            "spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", *",
        ),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}), "spec.ports[1]: Duplicate value: *"),
        (
            json!({"ports": [{"port": 0}]}),
            "*spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive*",
        ),
        (json!({"ports": [{"port": 80, "protocol": "X"}]}), "spec.ports[0].protocol: Unsupported value: \"X\": *"),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 99}]}),
            "spec.ports[0].nodePort: Invalid value: 99: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "1.2.3.4"}),
            "spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range",
        ),
        (
            json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}),
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
        ),
        (
            json!({"ports": [{"port": 80}], "loadBalancerClass": "a.b/c"}),
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({"ports": [{"port": 80}], "ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ["x"]}),
            "spec.LoadBalancerSourceRanges[0]: Invalid value: \"x\": must be a valid CIDR value, *",
        ),
    ] {
        let answer = api.post(&path, json!({"metadata": {"name": "a"}, "spec": spec})).await;
        answer.fails(422, "Invalid", &format!("Service \"a\" is invalid: {message}"));
    }
}

pub(crate) async fn addresses_and_ports_are_given_once(api: &Api) {
    let path = api.namespaced("services").await;
    let (_, first) = make(api, "a", json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    let (address, port) = (&first["spec"]["clusterIP"], node_port(&first, 0));
    let body = json!({"metadata": {"name": "b"}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    api.post(&path, body.clone()).await.fails(
        422,
        "Invalid",
        "*failed to allocate IP *: provided IP is already allocated",
    );
    let taken =
        json!({"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    api.post(&path, taken.clone()).await.fails(422, "Invalid", "*provided port is already allocated");
    api.delete(&format!("{path}/a")).await.ok();
    assert_eq!(api.post(&path, body).await.code, 201);
    let service = api.put(&format!("{path}/b"), taken).await.ok();
    assert_eq!((&service["spec"]["clusterIP"], node_port(&service, 0)), (address, port));
}

pub(crate) async fn allocated_values_survive_an_update_that_omits_them(api: &Api) {
    let (path, before) = make(api, "a", balanced()).await;
    let mut spec = balanced();
    spec["externalTrafficPolicy"] = json!("Local");
    let body = json!({"metadata": {"name": "a"}, "spec": spec});
    let after = api.put(&path, body.clone()).await.ok();
    assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    assert_eq!((node_port(&after, 0), node_port(&after, 1)), (node_port(&before, 0), node_port(&before, 1)));
    let again = api.put(&path, body).await.ok();
    assert_eq!(again, after);
}

pub(crate) async fn changing_the_type_clears_its_fields(api: &Api) {
    let (path, _) = make(api, "a", balanced()).await;
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
    api.patch(STRATEGIC, &format!("{path}/status"), ingress).await.ok();
    let service = api.patch(STRATEGIC, &path, json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert_eq!((node_port(&service, 0), &service["status"]), (0, &json!({"loadBalancer": {}})));
    for field in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort"] {
        assert_eq!(service["spec"].get(field), None, "{field}");
    }
    let service = api.patch(STRATEGIC, &path, json!({"spec": {"type": "LoadBalancer"}})).await.ok();
    assert!(node_port(&service, 0) >= 30000);
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
    let service = api.patch(STRATEGIC, &path, external).await.ok();
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy"] {
        assert_eq!(service["spec"].get(field), None, "{field}");
    }
}

pub(crate) async fn ingress_gets_a_mode(api: &Api) {
    let (path, _) = make(api, "a", balanced()).await;
    let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "h.x"}, {"ip": "1.2.3.5", "ipMode": "Proxy"}]}}});
    let service = api.patch(STRATEGIC, &format!("{path}/status"), patch).await.ok();
    let wanted = json!([{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "h.x"}, {"ip": "1.2.3.5", "ipMode": "Proxy"}]);
    assert_eq!(service["status"]["loadBalancer"]["ingress"], wanted);
    let patch = json!({"status": {"loadBalancer": {"ingress": null}}});
    let service = api.patch(STRATEGIC, &format!("{path}/status"), patch).await.ok();
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
    let condition = json!({"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"});
    let patch = json!({"status": {"conditions": [condition]}});
    let service = api.patch(STRATEGIC, &format!("{path}/status"), patch).await.ok();
    assert_eq!(service["status"]["conditions"], json!([condition]));
}

pub(crate) async fn invalid_ingress_is_refused(api: &Api) {
    let (path, _) = make(api, "a", balanced()).await;
    let (other, _) = make(api, "b", json!({"ports": [{"port": 80}]})).await;
    let write = |path: &str, ingress: Value| {
        let path = format!("{path}/status");
        async move { api.patch(STRATEGIC, &path, json!({"status": {"loadBalancer": {"ingress": [ingress]}}})).await }
    };
    let message = "*ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set";
    write(&path, json!({"hostname": "h", "ipMode": "VIP"})).await.fails(422, "Invalid", message);
    write(&path, json!({"ip": "x"})).await.fails(
        422,
        "Invalid",
        "*ingress[0].ip: Invalid value: \"x\": must be a valid IP address, *",
    );
    let message = "*ingress[0].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address";
    write(&path, json!({"hostname": "1.2.3.4"})).await.fails(422, "Invalid", message);
    let message = "*ingress[0].ipMode: Unsupported value: \"X\": supported values: \"Proxy\", \"VIP\"";
    write(&path, json!({"ip": "1.2.3.4", "ipMode": "X"})).await.fails(422, "Invalid", message);
    let message = "*status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'";
    write(&other, json!({"ip": "1.2.3.4"})).await.fails(422, "Invalid", message);
}

pub(crate) async fn immutable_members_stay(api: &Api) {
    let (path, _) = make(api, "a", balanced()).await;
    let patch = json!({"spec": {"clusterIP": "10.96.77.77"}});
    let message = "*spec.clusterIPs[0]: Invalid value: [\"10.96.77.77\"]: may not change once set";
    api.patch(MERGE, &path, patch).await.fails(422, "Invalid", message);
    let message = "*spec.loadBalancerClass: Invalid value: \"a.b/c\": may not change once set";
    api.patch(MERGE, &path, json!({"spec": {"loadBalancerClass": "a.b/c"}})).await.fails(422, "Invalid", message);
}

pub(crate) async fn local_policy_gets_a_health_port(api: &Api) {
    let mut spec = balanced();
    spec["externalTrafficPolicy"] = json!("Local");
    let (path, service) = make(api, "a", spec).await;
    let port = service["spec"]["healthCheckNodePort"].as_u64().unwrap();
    assert!((30000..=32767).contains(&port) && port != node_port(&service, 0));
    let service = api.patch(MERGE, &path, json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await.ok();
    assert_eq!(service["spec"].get("healthCheckNodePort"), None);
}
