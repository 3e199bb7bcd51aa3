//! Behavior that only a simulation can show: expired tokens, faults, quotas, provisioning errors, other providers.

use super::client::{Client, password};
use super::scene;
use crate::http::send;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::throttle::BucketSpec;
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{CatalogEntry, OpenStack, Options};
use serde_json::{Value, json};
use std::time::Duration;

fn start(change: impl FnOnce(&mut Options)) -> (OpenStack, Client) {
    let mut options = Options::default();
    change(&mut options);
    let cloud = OpenStack::start(options).unwrap();
    let (client, _) = scene::simulated(&cloud);
    (cloud, client)
}

fn relogin(cloud: &OpenStack) -> Client {
    Client::login(&format!("{}/v3", cloud.auth_url()), &password("tenant", "secret", "tenant"))
}

#[test]
fn expired_tokens_get_401_until_the_next_login() {
    let (cloud, client) = start(|options| options.token_lifetime = Duration::from_secs(600));
    cloud.clock().step(Duration::from_secs(601));
    let answer = client.call("network GET /ports", &[], "");
    assert_eq!((answer.status, answer.headers.contains_key("www-authenticate")), (401, true));
    let client = relogin(&cloud);
    assert_eq!(client.call("network GET /ports", &[], "").status, 200);
    cloud.expire_tokens();
    for what in ["network GET /ports", "compute GET /servers/detail", "load-balancer GET /pools"] {
        assert_eq!(client.call(what, &[], "").status, 401, "{what}");
    }
    assert_eq!(cloud.violations(), Vec::<String>::new());
}

#[test]
fn the_catalog_can_lack_services_and_have_other_regions() {
    let (cloud, _) = start(|_| {});
    cloud.change(|options| {
        options.catalog.retain(|entry| entry.kind != "key-manager");
        let network = options.catalog.iter_mut().find(|entry| entry.kind == "network").unwrap();
        *network = CatalogEntry {
            regions: vec!["a".into(), "b".into()],
            ..CatalogEntry::new("network", "neutron", "/network/v2.0")
        };
    });
    let login = password("tenant", "secret", "tenant");
    let answer = send("POST", &format!("{}/v3/auth/tokens", cloud.auth_url()), &[], &login.to_string()).unwrap();
    let catalog = answer.json["token"]["catalog"].as_array().unwrap();
    assert!(catalog.iter().all(|service| service["type"] != "key-manager"));
    let network = catalog.iter().find(|service| service["type"] == "network").unwrap();
    assert_eq!(network["endpoints"].as_array().unwrap().len(), 6);
    assert_eq!(network["endpoints"][3]["region"], "b");
    assert!(network["endpoints"][0]["url"].as_str().unwrap().ends_with("/network/v2.0"));
}

/// Clients that find no version in the URL of the catalog look at the versions first.
#[test]
fn services_show_their_versions_without_a_token() {
    let (cloud, _) = start(|_| {});
    let paths = [("network", 200, "v2.0"), ("network/", 200, "v2.0"), ("load-balancer/", 200, "v2.0")];
    for (path, status, version) in paths.into_iter().chain([("key-manager/", 300, "v1")]) {
        let answer = send("GET", &format!("{}/{path}", cloud.url()), &[], "").unwrap();
        assert_eq!((answer.status, &answer.json["versions"][0]["id"]), (status, &json!(version)), "{path}");
    }
    assert_eq!(cloud.violations(), Vec::<String>::new());
}

#[test]
fn faults_strike_by_service_and_action() {
    let (cloud, client) = start(|_| {});
    let ports = || client.try_call("network GET /ports", &[], "");
    for fault in [Fault::ResetBefore, Fault::Truncate] {
        cloud.fault(Rule::every(fault).on("network", "port_list").window(0, 1));
        assert!(ports().is_err());
    }
    cloud.faults(|faults| {
        faults.clear();
        faults.add(Rule::every(Fault::Html { status: 502 }).on("network", "port_list").window(0, 1));
        faults.add(Rule::every(Fault::Throttle).on("load-balancer", "*").window(0, 1));
        faults.add(Rule::every(Fault::Deny).on("network", "port_update"));
        faults.add(Rule::writes_from(1, Fault::Code { status: 503, code: String::new(), message: "busy".into() }));
    });
    let answer = ports().unwrap();
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (502, "text/html"));
    assert_eq!(ports().unwrap().status, 200);
    let answer = client.call("load-balancer GET /pools", &[], "");
    assert_eq!((answer.status, answer.headers["retry-after"].as_str()), (503, "1"));
    assert_eq!(client.call("network PUT /ports/x", &[], "{}").status, 403);
    let answer = client.call("load-balancer DELETE /pools/x", &[], "");
    assert_eq!((answer.status, answer.json["faultstring"].as_str()), (503, Some("busy")));
    // A login is not a write.
    relogin(&cloud);
    assert_eq!(cloud.violations(), Vec::<String>::new());
}

#[test]
fn a_reset_after_the_effect_leaves_the_effect() {
    let (cloud, client) = start(|_| {});
    cloud.fault(Rule::every(Fault::ResetAfter).on("network", "security_group_create"));
    let body = json!({"security_group": {"name": "made"}}).to_string();
    assert!(client.try_call("network POST /security-groups", &[], &body).is_err());
    let found = client.call("network GET /security-groups?name=made", &[], "");
    assert_eq!(found.json["security_groups"].as_array().unwrap().len(), 1);
    let entry = cloud.ledger(|ledger| ledger.mutating(0).last().cloned()).unwrap();
    assert_eq!((entry.action.as_str(), entry.applied, entry.status), ("security_group_create", true, 0));
}

#[test]
fn a_throttled_call_gets_retry_after() {
    let bucket =
        BucketSpec { service: Some("network".into()), actions: vec![], mutating: None, burst: 2.0, rate: 0.0001 };
    let (cloud, client) = start(|options| options.retry_after = 7);
    cloud.change(|options| options.throttle = vec![bucket]);
    let status = || client.call("network GET /ports", &[], "").status;
    assert_eq!((status(), status(), status()), (200, 200, 429));
    let answer = client.call("network GET /ports", &[], "");
    assert_eq!(answer.headers["retry-after"], "7");
}

#[test]
fn quotas_are_kept_in_the_words_of_each_service() {
    let (cloud, client) = start(|_| {});
    cloud.change(|options| {
        options.quotas =
            [("loadbalancer", 0), ("floatingip", 0), ("security_group", 1)].map(|(k, v)| (k.to_owned(), v)).into();
    });
    let subnet = client.call("network GET /subnets?name=sub", &[], "").json["subnets"][0]["id"].clone();
    let network = client.call("network GET /networks?name=ext", &[], "").json["networks"][0]["id"].clone();
    for (what, body, status, text) in [
        ("load-balancer POST /loadbalancers", json!({"loadbalancer": {"vip_subnet_id": subnet}}), 403, "Load Balancer"),
        ("network POST /floatingips", json!({"floatingip": {"floating_network_id": network}}), 409, "['floatingip']"),
        ("network POST /security-groups", json!({"security_group": {"name": "x"}}), 409, "['security_group']"),
    ] {
        let answer = client.call(what, &[], &body.to_string());
        assert_eq!(answer.status, status, "{what}");
        assert!(answer.text.contains(text), "{}", answer.text);
    }
}

/// Octavia makes the port of the address first, and does not remove it.
#[test]
fn the_quotas_of_parts_and_short_delays_refuse_a_creation_that_leaves_its_port() {
    let (cloud, client) = start(|_| {});
    let subnet = client.call("network GET /subnets?name=sub", &[], "").json["subnets"][0]["id"].clone();
    let create = |delay: u32| {
        let monitor = json!({"type": "UDP-CONNECT", "delay": delay, "timeout": 1, "max_retries": 1});
        let pool = json!({"name": "p", "protocol": "UDP", "lb_algorithm": "ROUND_ROBIN", "healthmonitor": monitor,
            "members": [{"address": "10.0.0.7", "protocol_port": 30053}]});
        let listener = json!({"protocol": "UDP", "protocol_port": 53, "default_pool": pool});
        let body = json!({"loadbalancer": {"vip_subnet_id": subnet, "listeners": [listener]}});
        let answer = client.call("load-balancer POST /loadbalancers", &[], &body.to_string());
        let ports =
            client.call("network GET /ports?device_owner=Octavia", &[], "").json["ports"].as_array().unwrap().len();
        (answer.status, answer.text, ports)
    };
    for (before, (kind, name)) in
        [("pool", "Pool"), ("listener", "Listener"), ("healthmonitor", "Health Monitor"), ("member", "Member")]
            .into_iter()
            .enumerate()
    {
        cloud.change(|options| options.quotas = [(kind.to_owned(), 0)].into());
        let (status, text, ports) = create(5);
        assert_eq!((status, ports), (403, before + 1), "{text}");
        assert!(text.contains(&format!("Quota has been met for resources: {name}")), "{text}");
    }
    cloud.change(|options| options.quotas = [("pool".to_owned(), 1)].into());
    let (status, text, _) = create(2);
    assert!(status == 400 && text.contains("The request delay value 2 should be larger than 3"), "{text}");
    assert_eq!(create(3).0, 201);
    assert_eq!(create(3).0, 403);
}

/// A load balancer of the scene's subnet, and its ID.
fn balancer(client: &Client, provider: &str) -> String {
    let subnet = client.call("network GET /subnets?name=sub", &[], "").json["subnets"][0]["id"].clone();
    let body = json!({"vip_subnet_id": subnet, "provider": provider});
    let answer = client.call("load-balancer POST /loadbalancers", &[], &json!({ "loadbalancer": body }).to_string());
    answer.json["loadbalancer"]["id"].as_str().unwrap().to_owned()
}

fn status(client: &Client, id: &str) -> Value {
    client.call(&format!("load-balancer GET /loadbalancers/{id}"), &[], "").json["loadbalancer"]["provisioning_status"]
        .clone()
}

#[test]
fn provisioning_can_stand_still_and_fail() {
    let (cloud, client) = start(|options| options.provisioning = Duration::from_secs(5));
    let id = balancer(&client, "amphora");
    assert_eq!(status(&client, &id), "PENDING_CREATE");
    cloud.freeze_provisioning(true);
    cloud.clock().step(Duration::from_secs(6));
    assert_eq!(status(&client, &id), "PENDING_CREATE");
    cloud.fail_provisioning(1);
    cloud.freeze_provisioning(false);
    assert_eq!(status(&client, &id), "ERROR");
    let body = json!({"listener": {"protocol": "TCP", "protocol_port": 80, "loadbalancer_id": id}}).to_string();
    assert_eq!(client.call("load-balancer POST /listeners", &[], &body).status, 409);
    cloud.set_balancer_status(&id, "ACTIVE");
    assert_eq!(client.call("load-balancer POST /listeners", &[], &body).status, 201);
    cloud.set_balancer_status(&id, "ERROR");
    let delete = format!("load-balancer DELETE /loadbalancers/{id}?cascade=true");
    assert_eq!(client.call(&delete, &[], "").status, 204);
    assert_eq!(cloud.balancers()[0]["listeners"].as_array().unwrap().len(), 1);
    cloud.clock().step(Duration::from_secs(6));
    assert_eq!((status(&client, &id), cloud.balancers().len()), (Value::Null, 0));
}

#[test]
fn a_direct_change_is_not_a_call_of_the_caller() {
    let (cloud, client) = start(|options| options.provisioning = Duration::ZERO);
    let id = balancer(&client, "amphora");
    let mark = cloud.mark();
    let path = format!("/load-balancer/v2.0/lbaas/loadbalancers/{id}");
    let body = json!({"loadbalancer": {"tags": ["foreign"]}});
    cloud.by_hand(&client.project, "PUT", &path, &body).unwrap();
    assert_eq!(cloud.balancers()[0]["tags"], json!(["foreign"]));
    cloud.by_hand(&client.project, "DELETE", &path, &Value::Null).unwrap();
    assert_eq!(cloud.by_hand(&client.project, "GET", &path, &Value::Null).unwrap_err().status, 404);
    assert_eq!((cloud.mark(), cloud.balancers().len()), (mark, 0));
}

#[test]
fn the_ovn_provider_knows_only_its_own_algorithm_and_plain_protocols() {
    let (cloud, client) = start(|options| options.provisioning = Duration::ZERO);
    let id = balancer(&client, "ovn");
    for (kind, fields, status) in [
        ("listener", json!({"protocol": "HTTP", "protocol_port": 80}), 501),
        ("listener", json!({"protocol": "TCP", "protocol_port": 80, "allowed_cidrs": ["10.0.0.0/8"]}), 501),
        ("pool", json!({"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}), 501),
        ("pool", json!({"protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}), 201),
    ] {
        let mut body = fields;
        body["loadbalancer_id"] = json!(id);
        let answer = client.call(&format!("load-balancer POST /{kind}s"), &[], &json!({ kind: body }).to_string());
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    assert_eq!(cloud.violations(), Vec::<String>::new());
}

#[test]
fn secrets_volumes_and_metadata_are_read() {
    let (cloud, client) = start(|_| {});
    let project = client.project.clone();
    let (container, volume) = cloud.world(|world| (world.container(&project), world.volume(&project, "az1")));
    assert_eq!(client.call(&format!("key-manager GET /containers/{container}"), &[], "").status, 200);
    assert_eq!(client.call("key-manager GET /secrets/nosuch", &[], "").status, 404);
    let answer = client.call(&format!("block-storage GET /volumes/{volume}"), &[], "");
    assert_eq!(answer.json["volume"]["availability_zone"], "az1");
    let server = client.call("compute GET /servers/detail?name=other", &[], "").json["servers"][0]["id"].clone();
    let metadata = cloud.metadata(server.as_str().unwrap(), 0).unwrap();
    let document = send("GET", &format!("{}/openstack/latest/meta_data.json", metadata.url()), &[], "").unwrap();
    assert_eq!((&document.json["uuid"], &document.json["name"]), (&server, &json!("other")));
}

#[test]
fn stale_reads_show_the_world_as_it_was() {
    let (cloud, client) = start(|options| options.stale_reads = Duration::from_secs(3));
    let named = || {
        let answer = client.call("network GET /security-groups?name=a", &[], "");
        answer.json["security_groups"].as_array().unwrap().len()
    };
    let made = client.call("network POST /security-groups", &[], r#"{"security_group": {"name": "a"}}"#);
    assert_eq!((made.status, named()), (201, 0), "not shown yet");
    cloud.clock().step(Duration::from_secs(3));
    assert_eq!(named(), 1);
    let path = format!("network DELETE /security-groups/{}", made.json["security_group"]["id"].as_str().unwrap());
    assert_eq!(client.call(&path, &[], "").status, 204);
    assert_eq!(named(), 1, "still shown after its deletion");
    assert_eq!(client.call(&path, &[], "").status, 404, "writes are made on the world of now");
    // New tokens are valid immediately.
    assert_eq!(relogin(&cloud).call("network GET /ports", &[], "").status, 200);
    cloud.clock().step(Duration::from_secs(3));
    assert_eq!(named(), 0);
}

#[test]
fn new_objects_stay_unknown_for_their_lag() {
    let (cloud, client) = start(|options| options.provisioning = Duration::ZERO);
    cloud.change(|options| options.lag = options.lag.clone().with("loadbalancer", Duration::from_secs(60)));
    let id = balancer(&client, "amphora");
    let list =
        || client.call("load-balancer GET /loadbalancers", &[], "").json["loadbalancers"].as_array().unwrap().len();
    assert_eq!((list(), status(&client, &id)), (0, Value::Null));
    cloud.clock().step(Duration::from_secs(61));
    assert_eq!(list(), 1);
}

#[test]
fn five_thousand_servers_are_listed_in_pages_and_their_ports_at_once() {
    let (cloud, client) = start(|_| {});
    let project = client.project.clone();
    cloud.world(|world| {
        let network = world.network(&project, "large", Value::Null);
        let seed = SubnetSeed { network: &network, name: "large", cidr: "10.0.0.0/16", ..SubnetSeed::default() };
        let subnet = world.subnet(&seed);
        for number in 0..5000 {
            let name = format!("large-{number}");
            let subnets: &[&str] = &[&subnet];
            world.server(&ServerSeed { project: &project, name: &name, flavor: "1", subnets, ..ServerSeed::default() });
        }
    });
    let (mut found, mut next) = (0, "/servers/detail?name=large".to_owned());
    loop {
        let answer = client.call(&format!("compute GET {next}"), &[], "").json;
        found += answer["servers"].as_array().unwrap().len();
        let Some(link) = answer["servers_links"][0]["href"].as_str() else { break };
        next = link.split_once("/v2.1").unwrap().1.to_owned();
    }
    let ports = client.call("network GET /ports?device_owner=compute:nova", &[], "").json;
    let pages = cloud.ledger(|ledger| ledger.since(0).filter(|entry| entry.action == "server_list").count());
    // The last page is full: only the empty page after it shows that it was the last.
    assert_eq!((found, ports["ports"].as_array().unwrap().len(), pages), (5000, 5003, 6));
}

#[test]
fn the_admin_api_steps_breaks_and_reports() {
    let (cloud, client) = start(|_| {});
    let admin = |method: &str, path: &str, body: &str| {
        let reply = send(method, &format!("{}{path}", cloud.admin_url()), &[], body).unwrap();
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text);
        reply.json
    };
    assert_eq!(admin("GET", "/", "")["endpoint"], cloud.url());
    admin("DELETE", "/ledger", "");
    admin("POST", "/faults", r#"{"service":"compute","times":1,"fault":{"status":{"status":503}}}"#);
    let servers = || client.call("compute GET /servers/detail", &[], "").status;
    assert_eq!((servers(), servers()), (503, 200));
    assert_eq!(admin("GET", "/faults", "")[0]["struck"], 1);
    assert_eq!(admin("GET", "/ledger/counts", "")["compute:server_list"], 2);
    assert_eq!(admin("POST", "/options", r#"{"provisioning":5000}"#)["provisioning"], 5000);
    admin("POST", "/clock", r#"{"step_ms":7200000}"#);
    assert_eq!(servers(), 401, "the token has expired");
    assert_eq!(send("GET", &format!("{}/dump", cloud.admin_url()), &[], "").unwrap().status, 404);
}

#[test]
fn a_deleted_server_is_gone_with_its_ports() {
    let (cloud, client) = start(|_| {});
    let ids = || -> Vec<String> {
        cloud.resources("server").iter().map(|server| server["id"].as_str().unwrap().to_owned()).collect()
    };
    let (before, path) = (ids(), format!("compute DELETE /servers/{}", ids()[0]));
    assert_eq!((client.call(&path, &[], "").status, client.call(&path, &[], "").status), (204, 404));
    assert_eq!(ids(), before[1..]);
    assert!(cloud.resources("port").iter().all(|port| port["device_id"] != before[0].as_str()));
}

#[test]
fn a_thousand_load_balancers_are_listed_and_found_by_name() {
    let (cloud, client) = start(|options| options.provisioning = Duration::ZERO);
    let subnet = client.call("network GET /networks?name=net", &[], "").json["networks"][0]["subnets"][0].clone();
    cloud.world(|world| {
        // The subnet of the initial state is too small for this number.
        let network = world.row("subnet", subnet.as_str().unwrap()).unwrap().text("network_id").to_owned();
        world.subnet(&SubnetSeed { network: &network, name: "vips", cidr: "10.200.0.0/16", ..SubnetSeed::default() });
    });
    let vips = client.call("network GET /subnets?name=vips", &[], "").json["subnets"][0]["id"].clone();
    let member = |number: usize| json!({"address": format!("10.77.1.{number}"), "protocol_port": 30000});
    let members: Vec<Value> = (1..=2).map(member).collect();
    let pool = json!({"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members});
    let listeners = json!([{"protocol": "TCP", "protocol_port": 80, "default_pool": pool}]);
    for number in 0..1000 {
        let body =
            json!({"loadbalancer": {"name": format!("lb-{number}"), "vip_subnet_id": vips, "listeners": listeners}});
        cloud.by_hand(&client.project, "POST", "/load-balancer/v2.0/lbaas/loadbalancers", &body).unwrap();
    }
    let count = |what: &str, list: &str| client.call(what, &[], "").json[list].as_array().unwrap().len();
    assert_eq!(count("load-balancer GET /loadbalancers", "loadbalancers"), 1000);
    assert_eq!(count("load-balancer GET /loadbalancers?name=lb-77", "loadbalancers"), 1);
    assert_eq!(count("load-balancer GET /pools", "pools"), 1000);
}
