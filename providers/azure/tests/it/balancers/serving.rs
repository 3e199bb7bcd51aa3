//! A Service that is served stays so: while it changes, and for as long as Azure refuses a part of the change.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

const INTERNAL: [(&str, &str); 1] = [("azure-load-balancer-internal", "true")];
const WITHOUT_FLOATING_IP: [(&str, &str); 1] = [("azure-disable-load-balancer-floating-ip", "true")];

/// The addresses and ports at which clients reach a Service.
fn open(scene: &Scene, name: &str) -> Vec<(String, u64)> {
    let base = scene.services[name].default_load_balancer_name();
    let ips = scene.objects("publicIPAddresses");
    let group = scene.object("networkSecurityGroups", "nsg");
    let has = |rule: &Value, one: &str, many: &str, text: &str| {
        let properties = &rule["properties"];
        properties[one] == text || properties[many].as_array().is_some_and(|list| list.iter().any(|it| it == text))
    };
    let admits = |ip: &str, port: u64| {
        items(&group, "securityRules").iter().any(|rule| {
            has(rule, "destinationPortRange", "destinationPortRanges", &port.to_string())
                && has(rule, "destinationAddressPrefix", "destinationAddressPrefixes", ip)
        })
    };
    let mut found = Vec::new();
    for balancer in scene.objects("loadBalancers") {
        let by_id = |list: &str, reference: &Value| {
            items(&balancer, list).into_iter().find(|it| it["id"] == reference["id"]).unwrap_or_default()
        };
        for rule in items(&balancer, "loadBalancingRules") {
            let properties = &rule["properties"];
            let pool = by_id("backendAddressPools", &properties["backendAddressPool"]);
            let has_members = ["backendIPConfigurations", "loadBalancerBackendAddresses"]
                .iter()
                .any(|list| !items(&pool, list).is_empty());
            if !rule["name"].as_str().unwrap().starts_with(&base) || !has_members {
                continue;
            }
            let frontend = by_id("frontendIPConfigurations", &properties["frontendIPConfiguration"]);
            let port = properties["frontendPort"].as_u64().unwrap();
            if let Some(ip) = frontend["properties"]["privateIPAddress"].as_str() {
                found.push((ip.to_owned(), port));
                continue;
            }
            let ip = ips.iter().find(|ip| ip["id"] == frontend["properties"]["publicIPAddress"]["id"]).unwrap();
            let ip = ip["properties"]["ipAddress"].as_str().unwrap();
            let is_admitted = match properties["enableFloatingIP"] == true {
                true => admits(ip, port),
                false => admits("10.240.0.4", properties["backendPort"].as_u64().unwrap()),
            };
            found.extend(is_admitted.then(|| (ip.to_owned(), port)));
        }
    }
    found
}

fn deny(scene: &Scene, service: &str, action: &str) {
    scene.bed.cloud.fault(Rule::every(Fault::Deny).on(service, action));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_service_of_a_load_balancer_keeps_it_until_another_one_serves() {
    // From internal to external, and the other way round; with another Service that comes, and without.
    for (is_internal, comes) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut scene = Scene::new("", 3).await;
        let (before, after): (&[_], &[_]) = if is_internal { (&INTERNAL, &[]) } else { (&[], &INTERNAL) };
        scene.service("web", before, port(80));
        scene.service("keep", after, port(81));
        scene.ensure(&["web", "keep"]).await;
        let reached = open(&scene, "web");
        assert_eq!(reached.len(), 1);
        let mut names = vec!["web"];
        if comes {
            scene.service("new", before, port(82));
            names.push("new");
        }
        scene.service("web", after, port(80));
        deny(&scene, "network", if is_internal { "publicIPAddresses.put" } else { "loadBalancers.put" });
        for _ in 0..2 {
            let mark = scene.mark();
            let answers = scene.call(&names, ServiceAction::Ensure).await;
            assert!(answers[0].result.is_err(), "{is_internal} {comes}");
            assert_eq!(open(&scene, "web"), reached, "{is_internal} {comes}");
            assert!(!scene.writes(mark).contains_key("virtualMachineScaleSetVMs.put"), "{is_internal} {comes}");
        }
        scene.bed.cloud.faults(Faults::clear);
        scene.ensure(&names).await;
        let reached = open(&scene, "web");
        assert_eq!((reached.len(), &reached[0].0), (1, &scene.ip("web")), "{is_internal} {comes}");
        assert_eq!(scene.objects("loadBalancers").len(), if comes { 2 } else { 1 });
        let all: Vec<String> = scene.services.keys().cloned().collect();
        scene.delete(&all.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").is_empty());
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_leaves_the_former_load_balancer_in_the_call_in_which_others_come_to_the_new_one() {
    for is_internal in [true, false] {
        for pools in ["", BY_ADDRESS] {
            let mut scene = Scene::new(pools, 3).await;
            let (before, after): (&[_], &[_]) = if is_internal { (&INTERNAL, &[]) } else { (&[], &INTERNAL) };
            scene.service("web", before, port(80));
            scene.service("too", before, port(81));
            scene.ensure(&["web", "too"]).await;
            scene.service("first", after, port(82));
            scene.service("web", after, port(80));
            scene.service("too", after, port(81));
            scene.ensure(&["first", "web", "too"]).await;
            assert_eq!(scene.objects("loadBalancers").len(), 1, "{is_internal} {pools}");
            for name in ["first", "web", "too"] {
                assert_eq!(open(&scene, name).len(), 1, "{is_internal} {pools} {name}");
            }
            scene.bed.is_clean();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_a_port_waits_with_the_service_that_gives_it_up() {
    for action in ["networkSecurityGroups.put", "networkSecurityGroups.get"] {
        let mut scene = Scene::new("", 3).await;
        let one = [("azure-pip-name", "one")];
        scene.bed.cloud.world(|world| world.public_ip("sub", "rg", "one", json!({"location": "eastus"})));
        scene.service("gives", &one, port(443));
        scene.service("takes", &one, port(80));
        scene.ensure(&["gives", "takes"]).await;
        let (gives, takes) = (open(&scene, "gives"), open(&scene, "takes"));
        scene.service("gives", &one, port(8443));
        // It goes on serving what it has.
        let ports = [port(80), port(443)].map(|ports| ports[0].clone());
        let named = |(number, mut port): (usize, Value)| {
            port["name"] = json!(format!("p{number}"));
            port
        };
        scene.service("takes", &one, ports.into_iter().enumerate().map(named).collect());
        deny(&scene, "network", action);
        for _ in 0..2 {
            let mark = scene.mark();
            let answers = scene.call(&["gives", "takes"], ServiceAction::Ensure).await;
            assert!(answers.iter().all(|answer| answer.result.is_err()), "{action}: {answers:?}");
            assert_eq!(
                scene.writes(mark).get("loadBalancers.put"),
                None,
                "{action}: Azure would refuse two rules of a port"
            );
            assert_eq!((open(&scene, "gives"), open(&scene, "takes")), (gives.clone(), takes.clone()), "{action}");
        }
        scene.bed.cloud.faults(Faults::clear);
        scene.ensure(&["gives", "takes"]).await;
        let mut ports: Vec<u64> = items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules")
            .iter()
            .filter_map(|rule| rule["properties"]["frontendPort"].as_u64())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [80, 443, 8443], "{action}");
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_change_the_load_balancer_are_written_twice_and_without_a_conflict() {
    let mut scene = Scene::new("", 3).await;
    scene.service("web", &INTERNAL, port(80));
    scene.ensure(&["web"]).await;
    scene.service("web", &[], port(80));
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    let writes = scene.writes(mark);
    assert_eq!(writes["virtualMachineScaleSetVMs.put"], 6, "{writes:?}");
    assert_eq!(writes["virtualMachineScaleSets.put"], 2, "{writes:?}");
    assert_eq!(open(&scene, "web").len(), 1);
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_load_balancer_takes_no_service_over() {
    let mut scene = Scene::new("", 3).await;
    scene.service("web", &[], port(80));
    scene.service("keep", &[], port(81));
    scene.ensure(&["web", "keep"]).await;
    let reached = open(&scene, "web");
    let fault = Fault::Code { status: 400, code: "Refused".into(), message: "no".into() };
    scene.bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSetVMs.put"));
    scene.service("web", &INTERNAL, port(80));
    let answers = scene.call(&["web"], ServiceAction::Ensure).await;
    assert!(answers[0].result.is_err());
    assert_eq!(open(&scene, "web"), reached);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_cannot_be_written_keeps_the_rules_of_its_services() {
    let busy = Fault::Code { status: 429, code: "RetryableError".into(), message: "busy".into() };
    let refused = Fault::Code { status: 400, code: "Refused".into(), message: "no".into() };
    for fault in [Fault::Deny, busy, refused] {
        let mut scene = Scene::new(BY_ADDRESS, 1).await;
        let names = ["port", "fip", "src"];
        for (number, name) in (80_u16..).zip(names) {
            scene.service(name, &[], port(number));
        }
        scene.ensure(&names).await;
        let reached = [open(&scene, "port"), open(&scene, "fip")];
        assert!(reached.iter().all(|reached| reached.len() == 1));
        scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.put"));
        scene.service("port", &[], port(90));
        scene.service("fip", &WITHOUT_FLOATING_IP, port(81));
        scene.spec("src", &[], json!({"ports": port(82), "loadBalancerSourceRanges": ["192.0.2.0/24"]}));
        scene.bed.cluster.set_services(scene.services.values().cloned());
        for _ in 0..2 {
            scene.call(&names, ServiceAction::Ensure).await;
            assert_eq!([open(&scene, "port"), open(&scene, "fip")], reached);
        }
        let group = scene.object("networkSecurityGroups", "nsg").to_string();
        assert!(group.contains("192.0.2.0/24"), "what needs no load balancer is written");
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_security_group_that_cannot_be_written_keeps_the_load_balancer_of_its_services() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let names = ["port", "fip", "moves", "adds"];
    for (number, name) in (80_u16..).zip(names) {
        scene.service(name, if name == "moves" { &INTERNAL } else { &[] }, port(number));
    }
    scene.ensure(&names).await;
    let all = |scene: &Scene| names.map(|name| open(scene, name));
    let reached = all(&scene);
    scene.service("port", &[], port(90));
    scene.service("fip", &WITHOUT_FLOATING_IP, port(81));
    scene.service("moves", &[], port(82));
    scene.service("adds", &[], json!([port(83)[0], port(93)[0]]));
    for action in ["networkSecurityGroups.put", "networkSecurityGroups.get"] {
        scene.restart().await;
        deny(&scene, "network", action);
        let answers = scene.call(&names, ServiceAction::Ensure).await;
        assert!(answers.iter().all(|answer| answer.result.is_err()), "{action}");
        assert_eq!(all(&scene), reached, "{action}");
        scene.bed.cloud.faults(Faults::clear);
    }
    scene.ensure(&names).await;
    let ports = all(&scene).map(|reached| reached.iter().map(|(_, port)| *port).collect::<Vec<_>>());
    assert_eq!(ports, [vec![90], vec![81], vec![82], vec![83, 93]]);
    scene.delete(&names).await;
    assert!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").is_empty());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_change_that_admits_and_gives_up_costs_two_writes_of_the_security_group() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("a", &[], port(80));
    scene.service("b", &[], port(81));
    let rules = |scene: &Scene, mark: u64| {
        let calls = scene.bed.calls(mark);
        let writes = calls.iter().filter(|call| call.ends_with("s.put")).map(|call| call.split('.').next().unwrap());
        writes.map(str::to_owned).collect::<Vec<_>>()
    };
    let mark = scene.mark();
    scene.ensure(&["a", "b"]).await;
    assert_eq!(rules(&scene, mark).iter().filter(|kind| *kind == "networkSecurityGroups").count(), 1);
    let mark = scene.mark();
    scene.service("a", &[], port(90));
    scene.ensure(&["a", "b"]).await;
    assert_eq!(rules(&scene, mark), ["networkSecurityGroups", "loadBalancers", "networkSecurityGroups"]);
    let mark = scene.mark();
    scene.service("a", &[], json!([port(90)[0], port(91)[0]]));
    scene.ensure(&["a", "b"]).await;
    assert_eq!(rules(&scene, mark), ["loadBalancers", "networkSecurityGroups"], "nobody loses anything");
    let mark = scene.mark();
    scene.delete(&["a"]).await;
    assert_eq!(rules(&scene, mark), ["loadBalancers", "networkSecurityGroups"]);
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_service_without_floating_ip_is_open_at_nodes_that_replace_all_others() {
    for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
        let options = Options { operation: Duration::ZERO, ..Options::default() };
        let mut scene = Scene::with(options, BY_ADDRESS, 4).await;
        let new = scene.nodes.split_off(2);
        scene.service("web", &WITHOUT_FLOATING_IP, port(80));
        scene.ensure(&["web"]).await;
        scene.service("web", &[WITHOUT_FLOATING_IP[0], ("azure-load-balancer-tcp-idle-timeout", "3")], port(80));
        scene.nodes = new;
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        scene.bed.cluster.set_services(scene.services.values().cloned());
        let answers = scene.call(&["web"], action).await;
        assert_eq!(answers[0].result.is_err(), action == ServiceAction::Ensure);
        let pool = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0].clone();
        let members = items(&pool, "loadBalancerBackendAddresses");
        let members: Vec<Value> = members.iter().map(|it| it["properties"]["ipAddress"].clone()).collect();
        assert_eq!(members, ["10.240.0.6", "10.240.0.7"]);
        let rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
        assert_eq!(rules.len(), 1, "{action:?}");
        assert_eq!(rules[0]["properties"]["destinationAddressPrefixes"], json!(members), "{action:?}");
        // Its members follow also while its rules cannot.
        deny(&scene, "network", "networkSecurityGroups.get");
        scene.nodes.pop();
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        assert!(scene.call(&["web"], action).await[0].result.is_err());
        let pool = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0].clone();
        assert_eq!(items(&pool, "loadBalancerBackendAddresses").len(), 1, "{action:?}");
        scene.bed.is_clean();
    }
}
