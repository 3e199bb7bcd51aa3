//! The calls of each step of the lives of Services.

use ccm_cloudsim::core::faults::{Fault, Rule};

use super::*;
use crate::bed::pass;

/// A cluster whose operations end at once, so that one look at each is enough.
async fn scene(more: &str) -> Scene {
    let options = Options { operation: std::time::Duration::ZERO, ..Options::default() };
    Scene::with(options, &format!("{}{more}", known::AGE), 2).await
}

/// The calls of one step, with their numbers, in the order of the alphabet.
async fn calls(scene: &mut Scene, name: &str, action: ServiceAction) -> Vec<String> {
    let mark = scene.mark();
    scene.done(&[name], action).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in scene.bed.calls(mark) {
        *counts.entry(call).or_default() += 1;
    }
    counts.into_iter().map(|(call, count)| if count == 1 { call } else { format!("{call} {count}") }).collect()
}

const NOTHING: [&str; 0] = [];
/// A change of the load balancer and of the rules: each is written, and then looked at.
const CHANGE: [&str; 4] =
    ["loadBalancers.get", "loadBalancers.put", "networkSecurityGroups.get", "networkSecurityGroups.put"];
/// The same where clients go elsewhere: they are admitted before.
const REPLACED: [&str; 4] =
    ["loadBalancers.get", "loadBalancers.put", "networkSecurityGroups.get 2", "networkSecurityGroups.put 2"];
/// A change with a new address.
const NEW: [&str; 6] = [
    "loadBalancers.get",
    "loadBalancers.put",
    "networkSecurityGroups.get",
    "networkSecurityGroups.put",
    "publicIPAddresses.list",
    "publicIPAddresses.put",
];

#[tokio::test]
async fn an_external_service_with_instances() {
    let mut scene = scene("").await;
    scene.service("web", &[], port(80));
    assert_eq!(
        calls(&mut scene, "web", ServiceAction::Ensure).await,
        [
            // One says that there is none, and one shows the end of the creation.
            "loadBalancers.get 2",
            "loadBalancers.list",
            "loadBalancers.put",
            "networkSecurityGroups.get 2",
            "networkSecurityGroups.put",
            "operations.get 3",
            "publicIPAddresses.list 2",
            "publicIPAddresses.put",
            "virtualMachineScaleSetVMs.list",
            "virtualMachineScaleSetVMs.put 2",
            "virtualMachineScaleSets.get",
            "virtualMachineScaleSets.put",
        ]
    );
    // Its members have changed the load balancer.
    scene.service("web", &[], port(81));
    let first = ["loadBalancers.get", "loadBalancers.list"].into_iter().chain(REPLACED[1..].iter().copied());
    assert_eq!(calls(&mut scene, "web", ServiceAction::Ensure).await, first.collect::<Vec<_>>());
    assert_eq!(calls(&mut scene, "web", ServiceAction::Ensure).await, NOTHING);
    for number in [82, 83] {
        scene.service("web", &[], port(number));
        assert_eq!(calls(&mut scene, "web", ServiceAction::Ensure).await, REPLACED);
    }
    scene.service("api", &[], port(443));
    assert_eq!(calls(&mut scene, "api", ServiceAction::Ensure).await, NEW);
    scene.service("api", &[], json!([port(443)[0], port(444)[0]]));
    assert_eq!(calls(&mut scene, "api", ServiceAction::Ensure).await, CHANGE);
    assert_eq!(calls(&mut scene, "web", ServiceAction::UpdateHosts).await, NOTHING);
    let before = ["loadBalancers.get", "loadBalancers.list", "loadBalancers.put", "networkSecurityGroups.get 2"];
    let after = ["networkSecurityGroups.put", "publicIPAddresses.delete", "publicIPAddresses.list 2"];
    assert_eq!(calls(&mut scene, "web", ServiceAction::Delete).await, [&before[..], &after[..]].concat());
    scene.restart().await;
    let all = ["loadBalancers.list", "networkSecurityGroups.get", "publicIPAddresses.list"];
    assert_eq!(calls(&mut scene, "api", ServiceAction::Ensure).await, all);
    scene.bed.is_clean();
}

#[tokio::test]
async fn an_internal_service_with_addresses() {
    let mut scene = scene(BY_ADDRESS).await;
    let internal = [("azure-load-balancer-internal", "true")];
    scene.service("web", &internal, port(80));
    scene.ensure(&["web"]).await;
    pass(20).await;
    calls(&mut scene, "web", ServiceAction::Ensure).await;
    scene.service("web", &internal, port(81));
    assert_eq!(calls(&mut scene, "web", ServiceAction::Ensure).await, CHANGE[..2]);
    // Its subnet, and with it the load balancer, are as they are now; its address is shown with the end of the write.
    scene.service("api", &internal, port(82));
    let new = ["loadBalancers.get", "loadBalancers.list", "loadBalancers.put", "subnets.get"];
    assert_eq!(calls(&mut scene, "api", ServiceAction::Ensure).await, new);
    assert!(scene.ip("api").starts_with("10.240."), "{}", scene.ip("api"));
    // Pools have no guard.
    let gone = scene.nodes.pop().unwrap();
    let members = ["backendAddressPools.put", "loadBalancers.list", "operations.get"];
    assert_eq!(calls(&mut scene, "web", ServiceAction::UpdateHosts).await, members);
    scene.nodes.push(gone);
    scene.bed.is_clean();
}

/// Microsoft's command line has recorded such answers: success, with the ETag that the load balancer has at the end.
#[tokio::test]
async fn a_load_balancer_that_shows_success_at_once_is_waited_for() {
    let options = Options { succeeds_at_once: true, ..Options::default() };
    let mut scene = Scene::with(options, known::AGE, 2).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    scene.service("web", &[], port(81));
    scene.ensure(&["web"]).await;
    scene.service("web", &[], port(82));
    let mark = scene.mark();
    scene.done(&["web"], ServiceAction::Ensure).await;
    let calls = scene.bed.calls(mark);
    assert_eq!(calls.iter().filter(|call| *call == "loadBalancers.get").count(), 0, "it shows nothing: {calls:?}");
    let first = |name: &str| calls.iter().position(|call| call == name).unwrap_or(usize::MAX);
    let last = |name: &str| calls.iter().rposition(|call| call == name).unwrap_or(0);
    assert!(first("networkSecurityGroups.put") < first("loadBalancers.put"), "{calls:?}");
    assert!(first("operations.get") < last("networkSecurityGroups.put"), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| *call == "loadBalancers.put").count(), 1, "{calls:?}");
    assert_eq!(self::calls(&mut scene, "web", ServiceAction::Ensure).await, NOTHING, "the answer is what is known");
    // The operation fails after the success that it has shown.
    let fault = Fault::Operation { status: 500, code: "InternalServerError".to_owned(), message: "outage".to_owned() };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.put").window(0, 1));
    scene.service("web", &[], port(83));
    let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
    assert!(error.contains("outage"), "{error}");
    scene.ensure(&["web"]).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_on_services_and_on_their_parts_has_the_metrics_of_the_go_program() {
    const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");
    let mut scene = Scene::new(several::SEVERAL, 2).await;
    let local = json!({"ports": port(80), "externalTrafficPolicy": "Local", "healthCheckNodePort": 32080});
    scene.spec("web", &[], local);
    scene.service("inner", &[INTERNAL, ("azure-pls-create", "true")], port(81));
    scene.ensure(&["web", "inner"]).await;
    scene.service("inner", &[INTERNAL, ("azure-pls-create", "false")], port(81));
    scene.ensure(&["inner"]).await;
    scene.nodes.truncate(1);
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    scene.delete(&["web", "inner"]).await;
    let metrics = scene.provider.metrics().unwrap();
    let count = |request| {
        let labels = [("request", request), ("resource_group", "rg"), ("subscription_id", "sub"), ("source", "")];
        let failed = metrics.value("cloudprovider_azure_op_failure_count", &labels);
        assert_eq!(failed, None, "{request}");
        metrics.value("cloudprovider_azure_op_duration_seconds", &labels)
    };
    for request in [
        "services_ensure_privatelinkservice",
        "services_ensure_privatelinkservice_deleted",
        "services_local_update_backend_pool",
    ] {
        assert_eq!(count(request), Some(1.0), "{request}");
    }
    for request in
        ["services_ensure_loadbalancer", "services_update_loadbalancer", "services_ensure_loadbalancer_deleted"]
    {
        assert!(count(request) >= Some(1.0), "{request}");
    }
}

#[tokio::test]
async fn a_node_that_cannot_join_costs_no_read_for_each_sync() {
    let mut scene = scene("").await;
    let instance = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/1");
    scene.bed.cloud.world(|world| world.power(&instance, "deallocated"));
    let names = ["web", "api", "mail"];
    (80..).zip(names).for_each(|(number, name)| scene.service(name, &[], port(number)));
    scene.ensure(&names).await;
    pass(20).await;
    scene.ensure(&names).await;
    for name in names {
        for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
            assert_eq!(calls(&mut scene, name, action).await, NOTHING, "{name}");
        }
    }
    assert_eq!(scene.bed.cluster.take_events(), [] as [String; 0], "nor an event");
    scene.restart().await;
    let shared = ["loadBalancers.list", "networkSecurityGroups.get", "publicIPAddresses.list"];
    let machines = ["virtualMachineScaleSetVMs.list", "virtualMachineScaleSets.get"];
    assert_eq!(calls(&mut scene, "web", ServiceAction::Ensure).await, [&shared[..], &machines].concat());
    assert_eq!(calls(&mut scene, "api", ServiceAction::Ensure).await, NOTHING);
    // Another address may be that of another machine.
    let node = scene.nodes[1].clone();
    scene.nodes[1] = Arc::new(Node { addresses: scene.nodes[0].addresses.clone(), ..Node::clone(&node) });
    let again = ["loadBalancers.list", "virtualMachineScaleSetVMs.list", "virtualMachineScaleSets.get"];
    assert_eq!(calls(&mut scene, "api", ServiceAction::UpdateHosts).await, again);
    scene.nodes[1] = node;
    scene.bed.cloud.world(|world| world.power(&instance, "running"));
    pass(121).await;
    scene.ensure(&["web"]).await;
    let pool = &items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0];
    assert_eq!(items(pool, "backendIPConfigurations").len(), 2, "it joins when it runs again");
    scene.bed.is_clean();
}

/// The number of members of the pool.
fn members(scene: &Scene) -> usize {
    let pool = &items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0];
    items(pool, "backendIPConfigurations").len()
}

#[tokio::test]
async fn a_node_whose_first_sync_fails_at_the_security_group_joins_with_the_next() {
    let mut scene = scene("").await;
    let new = scene.nodes.pop().unwrap();
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    pass(121).await;
    scene.nodes.push(new);
    scene.bed.cloud.fault(Rule::every(Fault::Deny).on("network", "networkSecurityGroups.get").window(0, 1));
    assert!(scene.call(&["web"], ServiceAction::Ensure).await[0].result.is_err());
    assert_eq!(members(&scene), 1);
    scene.ensure(&["web"]).await;
    assert_eq!(members(&scene), 2);
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_node_whose_machine_is_not_listed_yet_joins_when_it_is() {
    let mut scene = scene("").await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    pass(20).await;
    let id = format!("{GROUP}/Microsoft.Compute/virtualMachines/late");
    let provider_id = Some(format!("azure://{id}").into());
    scene.nodes.push(Arc::new(Node { name: "late".into(), provider_id, ..Node::default() }));
    scene.ensure(&["web"]).await;
    assert_eq!(members(&scene), 2);
    scene.bed.machine("late");
    pass(20).await;
    scene.ensure(&["web"]).await;
    assert_eq!(members(&scene), 3);
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_node_that_could_not_join_is_read_with_the_next_change_of_members() {
    let mut scene = scene("").await;
    let instance = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/1");
    scene.bed.cloud.world(|world| world.power(&instance, "deallocated"));
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    pass(20).await;
    scene.ensure(&["web"]).await;
    assert_eq!((members(&scene), calls(&mut scene, "web", ServiceAction::Ensure).await), (1, Vec::new()));
    scene.bed.cloud.world(|world| world.power(&instance, "running"));
    scene.nodes.push(machine_node(&scene, "more"));
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(members(&scene), 3);
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_service_that_goes_with_its_private_link_service_has_one_write_of_the_load_balancer() {
    let mut scene = scene(BY_ADDRESS).await;
    let internal = ("azure-load-balancer-internal", "true");
    scene.service("web", &[internal, ("azure-pls-create", "true")], port(80));
    scene.service("api", &[internal], port(81));
    scene.ensure(&["web", "api"]).await;
    let mark = scene.mark();
    scene.delete(&["web"]).await;
    assert_eq!(scene.writes(mark)["loadBalancers.put"], 1, "the first has the ETag after the deletion");
    assert!(scene.objects("privateLinkServices").is_empty());
    scene.bed.is_clean();
}
