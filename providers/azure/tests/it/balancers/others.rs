//! Other writers of the same objects, and what is theirs in them.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Rule};

use super::*;
use crate::bed::{contents, stable};

const KINDS: [&str; 3] = [
    "Microsoft.Network/loadBalancers",
    "Microsoft.Network/publicIPAddresses",
    "Microsoft.Network/networkSecurityGroups",
];
const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

pub(super) fn path(kind: &str, name: &str) -> String {
    format!("{GROUP}/Microsoft.Network/{kind}/{name}")
}

/// Changes an object as another client does.
pub(super) fn by_hand(scene: &Scene, path: &str, change: impl FnOnce(&mut Value)) {
    let mut object = scene.bed.cloud.object(path);
    change(&mut object);
    scene.bed.cloud.by_hand("PUT", path, &object).unwrap();
}

/// The number of calls of each action.
fn counts(scene: &Scene, mark: u64) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for action in scene.bed.calls(mark).into_iter().filter(|action| action != "operations.get") {
        *counts.entry(action).or_default() += 1;
    }
    counts
}

/// Two Services, of which one is new, on a scale set of which one node is new.
async fn before() -> Scene {
    // The first look at an operation shows its end.
    let options = Options { operation: Duration::ZERO, ..Options::default() };
    let mut scene = Scene::with(options, "", 2).await;
    let new = scene.nodes.pop().unwrap();
    scene.service("web0", &[], port(80));
    scene.ensure(&["web0"]).await;
    // As new instances of a model that somebody has changed.
    let set = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool");
    let pools = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/\
                 ipConfigurations/0/properties";
    by_hand(&scene, &set, |set| {
        set.pointer_mut(pools).unwrap()["loadBalancerBackendAddressPools"] = json!([]);
    });
    scene.nodes.push(new);
    scene.service("web1", &[], port(81));
    scene.bed.cluster.take_events();
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_conflict_costs_one_read_and_one_write_and_no_event() {
    let names = ["web0", "web1"];
    let mut scene = before().await;
    let mark = scene.mark();
    assert_eq!(errors(&names, &scene.call(&names, ServiceAction::Ensure).await), BTreeMap::new());
    let (usual, reached) = (counts(&scene, mark), contents(&scene.bed.cloud, &KINDS));
    for (service, action) in [
        ("network", "loadBalancers.put"),
        ("network", "networkSecurityGroups.put"),
        ("network", "publicIPAddresses.put"),
        ("compute", "virtualMachineScaleSets.put"),
        ("compute", "virtualMachineScaleSetVMs.put"),
    ] {
        let mut scene = before().await;
        let fault = Fault::Code { status: 412, code: "PreconditionFailed".into(), message: String::new() };
        scene.bed.cloud.fault(Rule::every(fault).on(service, action).window(0, 1));
        let mark = scene.mark();
        assert_eq!(errors(&names, &scene.call(&names, ServiceAction::Ensure).await), BTreeMap::new(), "{action}");
        let counts = counts(&scene, mark);
        for (call, count) in &counts {
            let usual = usual.get(call).copied().unwrap_or_default();
            let is_write = call.ends_with(".put");
            let most = if is_write && call != action { usual } else { usual + 1 };
            assert!(*count <= most, "{action}: {call}: {counts:?}, usual {usual}");
        }
        assert_eq!(counts[action], usual[action] + 1, "{action}");
        assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new(), "{action}");
        assert_eq!(contents(&scene.bed.cloud, &KINDS), reached, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_write_between_read_and_write_stays() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web0", &[], port(80));
    scene.ensure(&["web0"]).await;
    scene.service("web1", &[], port(81));
    // The new address takes until others have written.
    let slow = [("publicIPAddresses.put".to_owned(), 60_000)].into();
    scene.bed.cloud.change(|options| options.operations = slow);
    let (balancers, work, mark) =
        (scene.balancers(), scene.work(&["web0", "web1"], ServiceAction::Ensure), scene.mark());
    let tag = |object: &mut Value| object["tags"] = json!({"team": "a"});
    let others = async {
        while !scene.writes(mark).contains_key("publicIPAddresses.put") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        by_hand(&scene, &path("loadBalancers", "kubernetes"), tag);
        by_hand(&scene, &path("networkSecurityGroups", "nsg"), tag);
        scene.bed.cloud.change(|options| options.operations.clear());
        scene.bed.cloud.clock().step(Duration::from_secs(60));
    };
    let scope = Scope::default();
    let (answers, ()) = tokio::join!(balancers.reconcile(CLUSTER, &work, &scope), others);
    assert_eq!(errors(&["web0", "web1"], &answers), BTreeMap::new());
    let writes = scene.writes(mark);
    assert_eq!((writes["loadBalancers.put"], writes["networkSecurityGroups.put"]), (2, 1), "{writes:?}");
    for (kind, name) in [("loadBalancers", "kubernetes"), ("networkSecurityGroups", "nsg")] {
        assert_eq!(scene.object(kind, name)["tags"], json!({"team": "a"}));
    }
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules").len(), 2);
    assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new());
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_others_supersede_is_planned_again_at_once() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    let code = "CanceledAndSupersededDueToAnotherOperation".to_owned();
    let fault = Fault::Operation { status: 409, code, message: "by theirs".to_owned() };
    for action in ["loadBalancers.put", "networkSecurityGroups.put"] {
        scene.bed.cloud.fault(Rule::every(fault.clone()).on("network", action).window(0, 1));
    }
    scene.service("web", &[], port(80));
    let answers = scene.call(&["web"], ServiceAction::Ensure).await;
    assert_eq!(errors(&["web"], &answers), BTreeMap::new());
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules").len(), 1);
    assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_a_late_list_does_not_show_is_not_replaced() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web0", &[], port(80));
    scene.ensure(&["web0"]).await;
    scene.bed.cloud.world(|world| world.hide(&path("loadBalancers", "kubernetes"), Duration::from_secs(60)));
    scene.service("web1", &[], port(81));
    let answers = scene.call(&["web1"], ServiceAction::Ensure).await;
    assert!(answers[0].result.is_err());
    let rules = |scene: &Scene| items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules").len();
    assert_eq!(rules(&scene), 1, "the rule of the other Service is there");
    scene.bed.cloud.clock().step(Duration::from_secs(60));
    scene.ensure(&["web1"]).await;
    assert_eq!(rules(&scene), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_removes_comes_back() {
    for more in ["", BY_ADDRESS] {
        let mut scene = Scene::new(more, 2).await;
        scene.service("web", &[], json!([port(80)[0], port(443)[0]]));
        scene.ensure(&["web"]).await;
        let reached = contents(&scene.bed.cloud, &KINDS);
        let balancer = path("loadBalancers", "kubernetes");
        let drop_of = |list: &'static str| {
            move |object: &mut Value| drop(object["properties"][list].as_array_mut().unwrap().pop())
        };
        by_hand(&scene, &balancer, drop_of("loadBalancingRules"));
        by_hand(&scene, &balancer, |balancer| {
            drop_of("probes")(balancer);
            let rules = balancer["properties"]["loadBalancingRules"].as_array_mut().unwrap();
            rules.iter_mut().for_each(|rule| rule["properties"]["probe"] = Value::Null);
        });
        by_hand(&scene, &path("networkSecurityGroups", "nsg"), drop_of("securityRules"));
        if more == BY_ADDRESS {
            let pool = format!("{balancer}/backendAddressPools/kubernetes");
            let mut body = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0].clone();
            drop_of("loadBalancerBackendAddresses")(&mut body);
            scene.bed.cloud.by_hand("PUT", &pool, &body).unwrap();
        } else {
            let id = scene.nodes[0].provider_id_or_empty().trim_start_matches("azure://").to_owned();
            by_hand(&scene, &id, |instance| {
                let all = "/properties/networkProfileConfiguration/networkInterfaceConfigurations/0/properties/\
                           ipConfigurations/0/properties";
                instance.pointer_mut(all).unwrap()["loadBalancerBackendAddressPools"] = json!([]);
            });
        }
        assert_ne!(contents(&scene.bed.cloud, &KINDS), reached);
        scene.ensure(&["web"]).await;
        let now = contents(&scene.bed.cloud, &KINDS);
        let sorted = |lines: &[String]| -> Vec<Value> {
            lines.iter().map(|line| sorted(serde_json::from_str(line).unwrap())).collect()
        };
        assert_eq!(sorted(&now), sorted(&reached), "{more}");
    }
}

/// A rule has one form of sources and ports: the API refuses one with two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_and_ports_of_a_rule_that_somebody_writes_in_another_form_come_back() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let asg = path("applicationSecurityGroups", "asg");
    scene.bed.cloud.world(|world| world.put(&asg, json!({})));
    let ranges = json!(["10.1.0.0/16", "10.3.0.0/16"]);
    scene.service("web", &[], port(80));
    let spec = json!({"ports": port(81), "loadBalancerSourceRanges": ranges});
    scene.spec("api", &[("azure-deny-all-except-load-balancer-source-ranges", "true")], spec);
    scene.ensure(&["web", "api"]).await;
    let group = path("networkSecurityGroups", "nsg");
    let reached = scene.object("networkSecurityGroups", "nsg")["properties"]["securityRules"].clone();
    assert_eq!(reached.as_array().unwrap().len(), 3);
    let one = json!({"sourceAddressPrefix": "192.0.2.0/24"});
    let many = json!({"sourceAddressPrefixes": ["192.0.2.0/24", "198.51.100.0/24"]});
    let groups = json!({"sourceApplicationSecurityGroups": [{"id": asg}]});
    let to = json!({"destinationApplicationSecurityGroups": [{"id": asg}]});
    let ports = json!({"sourcePortRanges": ["1024-2047", "4096-8191"]});
    for edited in [one, many, groups, to, ports] {
        by_hand(&scene, &group, |group| {
            for rule in group["properties"]["securityRules"].as_array_mut().unwrap() {
                let fields = rule["properties"].as_object_mut().unwrap();
                let kind = match () {
                    () if edited.get("sourcePortRanges").is_some() => "sourcePort",
                    () if edited.get("destinationApplicationSecurityGroups").is_some() => "destinationA",
                    () => "sourceA",
                };
                fields.retain(|key, _| !key.starts_with(kind));
                fields.extend(edited.as_object().unwrap().clone());
            }
        });
        scene.ensure(&["web", "api"]).await;
        let now = scene.object("networkSecurityGroups", "nsg")["properties"]["securityRules"].clone();
        assert_eq!(sorted(stable(now)), sorted(stable(reached.clone())), "{edited}");
    }
    scene.bed.is_clean();
}

/// With lists in a fixed order: what comes back comes last.
fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => fields.values_mut().for_each(|field| *field = sorted(field.take())),
        Value::Array(list) => {
            list.iter_mut().for_each(|one| *one = sorted(one.take()));
            list.sort_by_key(ToString::to_string);
        }
        _ => {}
    }
    value
}

/// What users have in the shared objects: rules, pools, frontends, and fields that no plan knows.
fn adds_of_users(scene: &Scene) {
    let balancer = path("loadBalancers", "kubernetes");
    let (asg, ip) = (
        path("applicationSecurityGroups", "asg"),
        scene.bed.cloud.world(|world| {
            world.put(&path("applicationSecurityGroups", "asg"), json!({}));
            world.public_ip("sub", "rg", "theirs", json!({"location": "eastus"}))
        }),
    );
    by_hand(scene, &balancer, |body| {
        let frontend = json!({"id": format!("{balancer}/frontendIPConfigurations/theirs")});
        let pool = json!({"id": format!("{balancer}/backendAddressPools/theirs")});
        let properties = &mut body["properties"];
        let mut add = |list: &str, more: Value| {
            let more = json!({"name": "theirs", "properties": more});
            match properties[list].as_array_mut() {
                Some(all) => all.push(more),
                None => properties[list] = json!([more]),
            }
        };
        add("frontendIPConfigurations", json!({"publicIPAddress": {"id": ip}}));
        let network = json!({"id": path("virtualNetworks", "vnet")});
        let address = json!({"name": "theirs", "properties": {
            "ipAddress": "10.240.9.9", "adminState": "Down", "virtualNetwork": network,
        }});
        add("backendAddressPools", json!({"loadBalancerBackendAddresses": [address], "drainPeriodInSeconds": 30}));
        add(
            "inboundNatRules",
            json!({
                "frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPort": 2222, "backendPort": 22,
            }),
        );
        add(
            "inboundNatPools",
            json!({
                "frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPortRangeStart": 3000,
                "frontendPortRangeEnd": 3010, "backendPort": 22,
            }),
        );
        add(
            "outboundRules",
            json!({
                "frontendIPConfigurations": [frontend], "backendAddressPool": pool, "protocol": "All",
                "allocatedOutboundPorts": 1024, "idleTimeoutInMinutes": 10,
            }),
        );
        add(
            "loadBalancingRules",
            json!({
                "frontendIPConfiguration": frontend, "backendAddressPool": pool, "protocol": "Tcp", "frontendPort": 7,
                "backendPort": 7, "disableOutboundSnat": true, "enableConnectionTracking": true,
            }),
        );
        body["tags"] = json!({"team": "a", "Empty": ""});
    });
    adds_to_group(scene, &asg);
    let own = scene.bed.cloud.objects(KINDS[1]);
    let own = own.iter().find(|ip| ip["name"] != "theirs").unwrap()["id"].as_str().unwrap().to_owned();
    by_hand(scene, &own, |ip| {
        ip["tags"]["team"] = json!("a");
        ip["properties"]["idleTimeoutInMinutes"] = json!(20);
        ip["properties"]["ddosSettings"] = json!({"protectionMode": "Disabled"});
    });
}

/// Rules of users, one with an application security group as destination.
fn adds_to_group(scene: &Scene, asg: &str) {
    by_hand(scene, &path("networkSecurityGroups", "nsg"), |group| {
        let rule = |name: &str, priority: i64, to: Value| {
            let mut rule = json!({"name": name, "properties": {
                "priority": priority, "protocol": "Tcp", "access": "Allow", "direction": "Inbound",
                "description": "do not touch", "sourceAddressPrefix": "*", "sourcePortRange": "*",
                "destinationPortRanges": ["22", "2222-2223"],
            }});
            for (key, value) in to.as_object().unwrap() {
                rule["properties"][key] = value.clone();
            }
            rule
        };
        let rules = group["properties"]["securityRules"].as_array_mut().unwrap();
        rules.push(rule("theirs", 600, json!({"destinationAddressPrefix": "10.240.9.9"})));
        rules.push(rule("theirs-asg", 601, json!({"destinationApplicationSecurityGroups": [{"id": asg}]})));
        group["properties"]["flushConnection"] = json!(true);
        group["tags"] = json!({"team": "a"});
    });
}

/// All that users have, without ETags.
fn of_users(scene: &Scene) -> Vec<Value> {
    let balancer = scene.object("loadBalancers", "kubernetes");
    let group = scene.object("networkSecurityGroups", "nsg");
    let lists = [
        "frontendIPConfigurations",
        "backendAddressPools",
        "inboundNatRules",
        "inboundNatPools",
        "outboundRules",
        "loadBalancingRules",
    ];
    let mut found: Vec<Value> = lists.iter().flat_map(|list| items(&balancer, list)).collect();
    found.extend(items(&group, "securityRules"));
    found.retain(|one| one["name"].as_str().is_some_and(|name| name.starts_with("theirs")));
    assert_eq!(found.len(), 8, "{found:#?}");
    let fields = [balancer["tags"].clone(), group["tags"].clone(), group["properties"]["flushConnection"].clone()];
    found.into_iter().map(stable).chain(fields).chain([stable(scene.object("publicIPAddresses", "theirs"))]).collect()
}

/// What users have set in the public IP address of a Service.
fn in_address(scene: &Scene) -> [Value; 3] {
    let all = scene.objects("publicIPAddresses");
    let own = all.iter().find(|ip| ip["tags"]["k8s-azure-service"] == "default/web0").unwrap();
    let properties = &own["properties"];
    [own["tags"]["team"].clone(), properties["idleTimeoutInMinutes"].clone(), properties["ddosSettings"].clone()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_users_have_is_the_same_after_creation_change_take_over_and_deletion() {
    for more in ["", BY_ADDRESS] {
        let mut scene = Scene::new(more, 2).await;
        scene.service("web0", &[], port(80));
        scene.ensure(&["web0"]).await;
        adds_of_users(&scene);
        let (users, address) = (of_users(&scene), in_address(&scene));
        let same = |scene: &Scene, when: &str| {
            assert_eq!(of_users(scene), users, "{when}");
            assert_eq!(in_address(scene), address, "{when}");
        };
        scene.restart().await;
        let mark = scene.mark();
        scene.ensure(&["web0"]).await;
        assert_eq!(scene.writes(mark), BTreeMap::new(), "a take-over writes nothing");
        scene.service("web1", &[], port(81));
        scene.ensure(&["web0", "web1"]).await;
        same(&scene, "creation");
        scene.spec("web1", &[], json!({"ports": port(82), "loadBalancerSourceRanges": ["10.0.0.0/8"]}));
        scene.spec("web0", &[], json!({"ports": port(83), "sessionAffinity": "ClientIP"}));
        scene.ensure(&["web0", "web1"]).await;
        same(&scene, "change");
        scene.nodes.remove(0);
        scene.done(&["web0", "web1"], ServiceAction::UpdateHosts).await;
        same(&scene, "other nodes");
        scene.service("web1", &[INTERNAL], port(82));
        scene.ensure(&["web1"]).await;
        scene.delete(&["web1"]).await;
        same(&scene, "deletion");
        scene.delete(&["web0"]).await;
        assert_eq!(of_users(&scene), users, "the last deletion");
        assert_eq!(scene.objects("publicIPAddresses").len(), 1);
        scene.bed.is_clean();
    }
}
