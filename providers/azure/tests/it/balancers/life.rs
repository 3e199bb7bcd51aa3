//! The life of a Service: created, changed, with other nodes, deleted.

use std::time::Duration;

use ccm_cloudsim::azure::{ClusterSeed, MachineSeed};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{Aspects, Lookup};

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

/// What the cluster had at the beginning is there at the end.
fn is_empty(scene: &Scene) {
    assert_eq!(scene.objects("loadBalancers").len() + scene.objects("publicIPAddresses").len(), 0);
    assert!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").is_empty());
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_service_with_interfaces_lives_and_goes() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    let writes = scene.writes(mark);
    assert_eq!(writes["publicIPAddresses.put"], 1, "{writes:?}");
    assert_eq!(writes["loadBalancers.put"], 1, "{writes:?}");
    assert_eq!(writes["networkSecurityGroups.put"], 1, "{writes:?}");
    let balancer = scene.object("loadBalancers", "kubernetes");
    assert_eq!(items(&items(&balancer, "backendAddressPools")[0], "backendIPConfigurations").len(), 2);
    let ip = items(&balancer, "frontendIPConfigurations")[0]["properties"]["publicIPAddress"]["id"].clone();
    let ip = scene.bed.cloud.object(ip.as_str().unwrap());
    assert_eq!(ip["properties"]["ipAddress"], json!(scene.ip("web")));
    let rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
    assert_eq!(rules[0]["properties"]["destinationAddressPrefix"], json!(scene.ip("web")));

    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "a second call writes nothing");
    assert_eq!(scene.bed.calls(mark).len(), 3, "two lists and the security group: {:?}", scene.bed.calls(mark));
    scene.restart().await;
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "and neither does a new process");

    scene.service("web", &[], port(81));
    scene.ensure(&["web"]).await;
    let rules = items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules");
    assert_eq!((rules.len(), &rules[0]["properties"]["frontendPort"]), (1, &json!(81)));
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_internal_service_with_addresses_follows_the_nodes() {
    let mut scene = Scene::new(BY_ADDRESS, 3).await;
    let all = std::mem::take(&mut scene.nodes);
    scene.nodes = all[..2].to_vec();
    scene.service("web", &[INTERNAL], port(80));
    scene.ensure(&["web"]).await;
    let members = |scene: &Scene| {
        let pool = items(&scene.object("loadBalancers", "kubernetes-internal"), "backendAddressPools")[0].clone();
        items(&pool, "loadBalancerBackendAddresses")
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(members(&scene), ["pool000000", "pool000001"]);
    assert!(scene.ip("web").starts_with("10.240."), "{}", scene.ip("web"));
    scene.nodes = all[1..].to_vec();
    let mark = scene.mark();
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(scene.writes(mark), [("backendAddressPools.put".to_owned(), 1)].into());
    assert_eq!(members(&scene), ["pool000001", "pool000002"]);
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_moves_between_external_and_internal() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    scene.service("web", &[INTERNAL], port(80));
    scene.ensure(&["web"]).await;
    assert!(scene.ip("web").starts_with("10.240."));
    assert_eq!(scene.objects("publicIPAddresses").len(), 0);
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    assert!(!scene.ip("web").starts_with("10."));
    assert_eq!(scene.objects("loadBalancers").len(), 1);
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_basic_address_of_an_older_load_balancer_becomes_a_standard_one() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[], port(80));
    let name = format!("kubernetes-{}", scene.services["web"].default_load_balancer_name());
    for method in ["Static", "Dynamic"] {
        scene.service("web", &[], port(80));
        let basic = json!({"location": "eastus", "sku": {"name": "Basic"},
            "tags": {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": CLUSTER},
            "properties": {"publicIPAllocationMethod": method, "publicIPAddressVersion": "IPv4"}});
        scene.bed.cloud.by_hand("PUT", &format!("{GROUP}/Microsoft.Network/publicIPAddresses/{name}"), &basic).unwrap();
        scene.ensure(&["web"]).await;
        let address = scene.object("publicIPAddresses", &name);
        assert_eq!(
            (&address["sku"]["name"], &address["properties"]["ipAddress"]),
            (&json!("Standard"), &json!(scene.ip("web")))
        );
        scene.delete(&["web"]).await;
        is_empty(&scene);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_link_service_lives_and_goes_with_its_service() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[INTERNAL, ("azure-pls-create", "true")], port(80));
    scene.ensure(&["web"]).await;
    assert_eq!(scene.objects("privateLinkServices").len(), 1);
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    scene.delete(&["web"]).await;
    assert_eq!(scene.objects("privateLinkServices").len(), 0);
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_link_service_in_a_group_of_its_own_goes_also_without_a_service_that_wants_it() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.bed.cloud.world(|world| world.group("sub", "links"));
    let group = ("azure-pls-resource-group", "links");
    let moves: [&[(&str, &str)]; 3] = [&[INTERNAL, ("azure-pls-create", "true"), group], &[INTERNAL, group], &[group]];
    for now in moves {
        scene.service("web", moves[0], port(80));
        scene.ensure(&["web"]).await;
        let links = scene.objects("privateLinkServices");
        assert!(links[0]["id"].as_str().unwrap().contains("/resourceGroups/links/"), "{links:?}");
        if now != moves[0] {
            scene.service("web", now, port(80));
            scene.ensure(&["web"]).await;
            assert_eq!(scene.objects("privateLinkServices").len(), 0, "{now:?}");
        }
        scene.delete(&["web"]).await;
        assert_eq!(scene.objects("privateLinkServices").len(), 0, "{now:?}");
        is_empty(&scene);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_link_of_a_frontend_that_another_service_leaves_last_goes_with_it() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let shared = |number: u16| json!({"ports": port(number), "loadBalancerIP": "10.240.0.77"});
    scene.spec("a", &[INTERNAL, ("azure-pls-create", "true")], shared(80));
    scene.spec("b", &[INTERNAL], shared(81));
    scene.ensure(&["a", "b"]).await;
    scene.delete(&["a"]).await;
    assert_eq!(scene.objects("privateLinkServices").len(), 1);
    scene.service("b", &[INTERNAL], port(81));
    scene.ensure(&["b"]).await;
    assert_eq!(scene.objects("privateLinkServices").len(), 0);
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes-internal"), "frontendIPConfigurations").len(), 1);
    scene.delete(&["b"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_does_not_mention_its_private_link_service_any_more_can_move_and_go() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let off = ("azure-disable-load-balancer-floating-ip", "true");
    let internal = (&[INTERNAL][..], &[][..]);
    let external = (&[off][..], &[off, INTERNAL][..]);
    for ((kind, other), moves) in [(internal, true), (internal, false), (external, true), (external, false)] {
        scene.service("web", &[kind, &[("azure-pls-create", "true"), ("azure-pls-name", "mine")]].concat(), port(80));
        scene.ensure(&["web"]).await;
        assert_eq!(scene.objects("privateLinkServices").len(), 1);
        scene.service("web", kind, port(80));
        scene.ensure(&["web"]).await;
        assert_eq!(scene.objects("privateLinkServices").len(), 1, "as by the Go program");
        if moves {
            scene.service("web", other, port(80));
            scene.ensure(&["web"]).await;
            assert_eq!(scene.objects("privateLinkServices").len(), 0);
            assert_eq!(scene.objects("loadBalancers").len(), 1);
        }
        scene.delete(&["web"]).await;
        assert_eq!(scene.objects("privateLinkServices").len(), 0);
        is_empty(&scene);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_migrates_from_interfaces_to_addresses() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    scene.reconfigure(BY_ADDRESS).await;
    scene.ensure(&["web"]).await;
    scene.ensure(&["web"]).await;
    let pool = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0].clone();
    let addresses = items(&pool, "loadBalancerBackendAddresses");
    let addresses: Vec<&Value> = addresses.iter().map(|it| &it["properties"]["ipAddress"]).collect();
    assert_eq!(addresses.len(), 2, "{pool:#}");
    let sets = scene.bed.cloud.objects("Microsoft.Compute/virtualMachineScaleSets");
    let named = sets.iter().any(|set| set.to_string().contains("/backendAddressPools/"));
    assert!(!named, "Azure refuses each change of such a model: {sets:#?}");
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_after_the_migration_leaves_the_model_to_the_next_one() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    scene.reconfigure(BY_ADDRESS).await;
    scene.call(&["web"], ServiceAction::Ensure).await;
    assert!(names_pools(&scene), "the model is written in the next call");
    scene.restart().await;
    // The first call of the next process may see no node yet.
    let nodes = std::mem::take(&mut scene.nodes);
    scene.call(&["web"], ServiceAction::Ensure).await;
    scene.nodes = nodes;
    scene.ensure(&["web"]).await;
    assert!(!names_pools(&scene), "Azure refuses each change of such a model");
    // Where no model names any, a start costs one list of the scale sets.
    scene.restart().await;
    for lists in [1, 0] {
        let mark = scene.mark();
        scene.ensure(&["web"]).await;
        let mut calls = scene.bed.calls(mark);
        calls.retain(|call| call.starts_with("virtualMachineScaleSet"));
        assert_eq!(calls, vec!["virtualMachineScaleSets.list"; lists]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_balancers_whose_migrated_pools_a_model_still_names_go_with_one_write_of_it() {
    for all in [&[&["web", "inner"][..]][..], &[&["inner"], &["web"]]] {
        let mut scene = Scene::new("", 2).await;
        scene.service("web", &[], port(80));
        scene.service("inner", &[INTERNAL], port(81));
        scene.ensure(&["web", "inner"]).await;
        // The process ends after the migration, and the next one cannot know that the model still names the pools.
        scene.reconfigure(BY_ADDRESS).await;
        scene.call(&["web", "inner"], ServiceAction::Ensure).await;
        scene.bed.cloud.fault(Rule::every(Fault::Deny).on("compute", "virtualMachineScaleSets.list"));
        scene.restart().await;
        scene.ensure(&["web", "inner"]).await;
        let mark = scene.mark();
        for names in all {
            scene.delete(names).await;
        }
        let models = scene.writes(mark).get("virtualMachineScaleSets.put").copied();
        assert_eq!(models, Some(1), "{:?}", scene.writes(mark));
        is_empty(&scene);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_ip_tags_of_the_only_service_replace_its_load_balancer_too() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/a")], port(80));
    scene.ensure(&["web"]).await;
    let former = scene.ip("web");
    scene.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/b")], port(80));
    scene.ensure(&["web"]).await;
    assert!(scene.ip("web") != former, "{former}");
    assert_eq!(external_members(&scene), 2);
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_ip_tags_give_another_address_in_one_call() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/a")], port(80));
    scene.service("api", &[], port(81));
    scene.ensure(&["web", "api"]).await;
    let (former, api) = (scene.ip("web"), scene.ip("api"));
    scene.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/b")], port(80));
    scene.ensure(&["web"]).await;
    assert!(scene.ip("web") != former, "{former}");
    assert_eq!(scene.objects("publicIPAddresses").len(), 2);
    let mark = scene.mark();
    scene.ensure(&["web", "api"]).await;
    assert_eq!((scene.writes(mark), scene.ip("api")), (BTreeMap::new(), api));
    let destinations = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
    assert!(!destinations.iter().any(|rule| rule.to_string().contains(&format!("\"{former}\""))), "{destinations:?}");
    scene.delete(&["web", "api"]).await;
    is_empty(&scene);
}

/// The members of the pool of the external load balancer.
fn external_members(scene: &Scene) -> usize {
    items(&items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0], "backendIPConfigurations")
        .len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_whose_node_is_gone_is_no_member_any_more() {
    let mut scene = Scene::new("", 3).await;
    scene.service("web", &[], port(80));
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    let lists = scene.bed.calls(mark).into_iter().filter(|call| call == "publicIPAddresses.list").count();
    assert_eq!(lists, 2, "before, and for the end of the creation");
    assert_eq!(external_members(&scene), 3);
    let gone = scene.nodes.remove(0);
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(external_members(&scene), 2);
    scene.nodes.push(gone);
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(external_members(&scene), 3);
    // A machine that was no node in the time of this process is somebody else's.
    scene.nodes.remove(0);
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.restart().await;
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(external_members(&scene), 3);
    // Azure refuses changes of one that is being deleted.
    let gone = scene.nodes.remove(0);
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    let instance = gone.provider_id_or_empty().trim_start_matches("azure://").to_owned();
    scene.bed.cloud.world(|world| world.state(&instance, "Deleting"));
    let mark = scene.mark();
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_goes_between_list_and_write_fails_no_service() {
    let going = "Operation 'Put on Virtual Machine Scale Set VM Instance' is not allowed on Virtual Machine Scale Set 'pool' \
                 since it is marked for deletion. You can only retry the Delete operation (or wait for an ongoing one to \
                 complete).";
    let gone = "The provided instanceId 0 is not an active Virtual Machine Scale Set VM instanceId.";
    let (refused, gone) = (("OperationNotAllowed".to_owned(), going.to_owned()), gone.to_owned());
    for fault in [
        Fault::Code { status: 409, code: refused.0.clone(), message: refused.1.clone() },
        Fault::Operation { status: 409, code: refused.0, message: refused.1 },
        Fault::Code { status: 400, code: "InvalidParameter".into(), message: gone },
    ] {
        let mut scene = Scene::new("", 2).await;
        scene.service("web", &[], port(80));
        scene.ensure(&["web"]).await;
        scene.nodes.remove(0);
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        scene.bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSetVMs.put"));
        let mark = scene.mark();
        scene.done(&["web"], ServiceAction::UpdateHosts).await;
        assert_eq!(scene.writes(mark), BTreeMap::from([("virtualMachineScaleSetVMs.put".to_owned(), 1)]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_that_users_configure_are_filled_once_and_keep_their_load_balancer() {
    let mut scene = Scene::new("preConfiguredBackendPoolLoadBalancerTypes: external\n", 3).await;
    let all = std::mem::take(&mut scene.nodes);
    scene.nodes = all[..2].to_vec();
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    assert_eq!(external_members(&scene), 2, "the pool is new");
    scene.nodes = all;
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(external_members(&scene), 2, "now it is the users'");
    scene.delete(&["web"]).await;
    let balancer = scene.object("loadBalancers", "kubernetes");
    assert_eq!(items(&balancer, "frontendIPConfigurations").len(), 1, "it cannot be without a frontend");
    assert!(items(&balancer, "loadBalancingRules").is_empty());
    assert_eq!(external_members(&scene), 2);
    assert!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").is_empty());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_of_another_tenant_than_the_network_are_nodes_and_members() {
    let bed = Bed::start(Options::default());
    let vm = bed.cloud.world(|world| {
        world.tenant("net", "other");
        let cluster = world.cluster(&ClusterSeed { subscription: "net", ..ClusterSeed::default() });
        world.machine(&MachineSeed { name: "vm", public: true, subnet: &cluster.subnet, ..MachineSeed::default() })
    });
    let node = Node { name: "vm".into(), provider_id: Some(format!("azure://{vm}").into()), ..Node::default() };
    let more = "networkResourceTenantID: other\nnetworkResourceSubscriptionID: net\n";
    let mut scene = Scene::of(bed, more, vec![node.into()]).await;
    let answers = scene.provider.instances().unwrap().lookup(&scene.nodes, Aspects::METADATA).await;
    let Lookup::Found(instance) = &answers[0] else { panic!("{answers:?}") };
    let metadata = instance.metadata.clone().unwrap().unwrap();
    let kinds: Vec<&str> = metadata.node_addresses.iter().map(|address| address.kind.as_str()).collect();
    assert_eq!(kinds, ["InternalIP", "Hostname", "ExternalIP"]);
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let path = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes").replace("/sub/", "/net/");
    let pools = items(&scene.bed.cloud.object(&path), "backendAddressPools");
    let members = items(&pools[0], "backendIPConfigurations");
    assert!(members.len() == 1 && members[0]["id"].as_str().unwrap().contains("/sub/"), "{members:?}");
    scene.delete(&["web"]).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_internal_service_of_two_families_becomes_one_of_ipv6() {
    let mut scene = Scene::dual(BY_ADDRESS, 2).await;
    scene.spec("web", &[INTERNAL], json!({"ports": port(80), "ipFamilies": ["IPv6", "IPv4"]}));
    scene.ensure(&["web"]).await;
    scene.spec("web", &[INTERNAL], json!({"ports": port(81), "ipFamilies": ["IPv6"]}));
    scene.ensure(&["web"]).await;
    let ingress = &scene.services["web"].status.load_balancer.ingress;
    assert!(ingress.len() == 1 && ingress[0].ip.contains(':'), "{ingress:?}");
    let rules = items(&scene.object("loadBalancers", "kubernetes-internal"), "loadBalancingRules");
    assert_eq!((rules.len(), &rules[0]["properties"]["frontendPort"]), (1, &json!(81)));
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_public_ip_in_a_group_that_is_no_longer_named_goes() {
    let group = |name: &'static str| ("azure-load-balancer-resource-group", name);
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.bed.cloud.world(|world| ["a", "b"].map(|name| world.group("sub", name)));
    let groups = |scene: &Scene| -> Vec<String> {
        let ids = scene.objects("publicIPAddresses").into_iter().map(|ip| ip["id"].as_str().unwrap().to_owned());
        ids.map(|id| id.split('/').nth(4).unwrap().to_owned()).collect()
    };
    scene.service("web", &[group("a")], port(80));
    scene.ensure(&["web"]).await;
    assert_eq!(groups(&scene), ["a"]);
    scene.service("web", &[group("b")], port(80));
    scene.ensure(&["web"]).await;
    assert_eq!(groups(&scene), ["b"]);
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    assert_eq!(groups(&scene), ["rg"]);
    scene.service("web", &[group("a")], port(80));
    scene.ensure(&["web"]).await;
    // The deletion does not end before the group can be read.
    scene.service("web", &[], port(80));
    let deny = |params: &str| Rule { params: Some(params.to_owned()), ..Rule::every(Fault::Deny) };
    scene.bed.cloud.fault(deny("resourceGroups/a/").on("network", "publicIPAddresses.list"));
    for action in [ServiceAction::Ensure, ServiceAction::Delete] {
        assert!(scene.settle(&["web"], action).await.is_err(), "{action:?}");
        assert_eq!(groups(&scene), ["a"], "{action:?}");
    }
    scene.bed.cloud.faults(ccm_cloudsim::core::faults::Faults::clear);
    scene.delete(&["web"]).await;
    is_empty(&scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_rebuilt_with_addresses_of_each_other_are_members() {
    let mut scene = Scene::new(BY_ADDRESS, 2).await;
    scene.service("web", &[INTERNAL], port(80));
    scene.ensure(&["web"]).await;
    let at = |scene: &Scene, place: usize, name: &str, ip: &str| -> NodeRef {
        let addresses = [NodeAddress::new(AddressType::InternalIp, ip)].into();
        Node { name: name.into(), addresses, ..(*scene.nodes[place]).clone() }.into()
    };
    scene.nodes = vec![
        at(&scene, 0, "pool000000", "10.240.0.9"),
        at(&scene, 1, "pool000001", "10.240.0.4"),
        // The node of one machine may be there under two names.
        at(&scene, 1, "renamed", "10.240.0.4"),
        at(&scene, 0, "renamed-too", "10.240.0.9"),
    ];
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    let members = |scene: &Scene| -> Vec<(String, String)> {
        let pool = items(&scene.object("loadBalancers", "kubernetes-internal"), "backendAddressPools")[0].clone();
        let addresses = items(&pool, "loadBalancerBackendAddresses");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        addresses.iter().map(|it| (text(&it["name"]), text(&it["properties"]["ipAddress"]))).collect()
    };
    let members = members(&scene);
    let expected = [("pool000000", "10.240.0.4"), ("pool000000-10-240-0-9", "10.240.0.9")];
    assert_eq!(members, expected.map(|(name, ip)| (name.to_owned(), ip.to_owned())));
    let mark = scene.mark();
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    scene.bed.is_clean();
}

/// Whether the model of a scale set names a pool.
fn names_pools(scene: &Scene) -> bool {
    let sets = scene.bed.cloud.objects("Microsoft.Compute/virtualMachineScaleSets");
    sets.iter().any(|set| set.to_string().contains("/backendAddressPools/"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_to_be_written_after_the_migration_is_so_whatever_comes_first() {
    let outage = || Fault::Operation { status: 500, code: "InternalServerError".into(), message: "outage".into() };
    for first in ["unread", "unlisted", "refused", "deletion", "failure"] {
        let mut scene = Scene::with(Options { operation: Duration::ZERO, ..Options::default() }, "", 2).await;
        scene.service("web", &[], port(80));
        scene.service("other", &[], port(81));
        scene.ensure(&["web", "other"]).await;
        scene.reconfigure(BY_ADDRESS).await;
        scene.call(&["web", "other"], ServiceAction::Ensure).await;
        assert!(names_pools(&scene), "the model is written in the next call");
        let once = |fault: Fault, action: &str| {
            scene.bed.cloud.fault(Rule::every(fault).on("compute", action).window(0, 1));
        };
        match first {
            "unread" => once(Fault::Deny, "virtualMachineScaleSets.get"),
            "unlisted" => once(Fault::Deny, "virtualMachineScaleSetVMs.list"),
            "failure" => once(outage(), "virtualMachineScaleSets.put"),
            // The plan of the only Service of the call fails.
            "refused" => {
                scene.service("web", &[("azure-pip-name", "none")], port(80));
                drop(scene.call(&["web"], ServiceAction::Ensure).await);
                scene.service("web", &[], port(80));
            }
            _ => scene.delete(&["other"]).await,
        }
        drop(scene.settle(&["web"], ServiceAction::Ensure).await);
        scene.ensure(&["web"]).await;
        assert!(!names_pools(&scene), "{first}: Azure refuses each change of such a model");
        scene.ensure(&["web"]).await;
        let mark = scene.mark();
        scene.ensure(&["web"]).await;
        let calls = scene.bed.calls(mark);
        assert_eq!(calls.len(), 3, "{first}: nothing of it is read any more: {calls:?}");
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_whose_write_fails_late_is_looked_at_again() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[], port(80));
    let fault = Fault::Operation { status: 500, code: "InternalServerError".into(), message: "outage".into() };
    scene.bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSets.put").window(0, 1));
    scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err();
    assert_eq!(external_members(&scene), 2, "nothing else shows that it is to be written");
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert!(scene.bed.calls(mark).contains(&"virtualMachineScaleSets.get".to_owned()));
    assert!(names_pools(&scene), "new instances become members");
    scene.bed.is_clean();
}
