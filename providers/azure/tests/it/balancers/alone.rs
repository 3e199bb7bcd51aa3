//! One bad object or Service fails alone.

use ccm_cloudsim::core::faults::{Fault, Rule};

use super::*;

fn errors(names: &[&str], answers: &[ServiceAnswer]) -> BTreeMap<String, String> {
    let failed = names.iter().zip(answers).filter_map(|(name, answer)| {
        let error = answer.result.as_ref().err()?;
        Some(((*name).to_owned(), error.to_string()))
    });
    failed.collect()
}

async fn three(more: &str) -> (Scene, [&'static str; 3]) {
    let mut scene = Scene::new(more, 2).await;
    let names = ["web0", "web1", "web2"];
    for (number, name) in (0_u16..).zip(names) {
        scene.service(name, &[], port(80 + number));
    }
    (scene, names)
}

/// Whether the operation fails at once or later.
async fn refused_for_one_address(fault: Fault) {
    let (mut scene, names) = three(BY_ADDRESS).await;
    scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.put").window(0, 1));
    let mark = scene.mark();
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web1"], "{errors:?}");
    assert!(errors["web1"].contains("is not allowed"), "{errors:?}");
    assert!(!scene.ip("web0").is_empty() && !scene.ip("web2").is_empty());
    assert_eq!(scene.writes(mark)["loadBalancers.put"], 2);
    let mark = scene.mark();
    scene.call(&["web1"], ServiceAction::Ensure).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "what is refused is not sent again");
    scene.service("web1", &[], port(90));
    scene.ensure(&["web1"]).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_names_one_address_leaves_the_others_in_the_same_call() {
    let message = "Public IP address kubernetes-a0000000211112222333344444444444 is not allowed".to_owned();
    refused_for_one_address(Fault::Code {
        status: 400,
        code: "InvalidResourceReference".into(),
        message: message.clone(),
    })
    .await;
    refused_for_one_address(Fault::Operation { status: 400, code: "InvalidResourceReference".into(), message }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_cannot_be_made_fails_its_service_alone() {
    let (mut scene, names) = three(BY_ADDRESS).await;
    let message = "Cannot create more than 1 public IP addresses.".to_owned();
    let fault = Fault::Code { status: 400, code: "PublicIPCountLimitReached".into(), message };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "publicIPAddresses.put").window(1, 1));
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    assert_eq!(errors(&names, &answers).len(), 1);
    let balancer = scene.object("loadBalancers", "kubernetes");
    assert_eq!(items(&balancer, "frontendIPConfigurations").len(), 2);
    scene.ensure(&names).await;
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes"), "frontendIPConfigurations").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_writer_costs_one_more_read_and_one_more_write() {
    for action in ["loadBalancers.put", "networkSecurityGroups.put"] {
        let (mut scene, names) = three(BY_ADDRESS).await;
        let fault = Fault::Code { status: 412, code: "PreconditionFailed".into(), message: String::new() };
        scene.bed.cloud.fault(Rule::every(fault).on("network", action).window(0, 1));
        let mark = scene.mark();
        let answers = scene.call(&names, ServiceAction::Ensure).await;
        assert_eq!(errors(&names, &answers), BTreeMap::new(), "{action}");
        assert_eq!(scene.writes(mark)[action], 2, "{action}");
        assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new(), "{action}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_change_meanwhile_survives() {
    let (mut scene, names) = three(BY_ADDRESS).await;
    scene.ensure(&names).await;
    let path = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes");
    let mut balancer = scene.bed.cloud.object(&path);
    balancer["tags"] = json!({"team": "a"});
    scene.bed.cloud.by_hand("PUT", &path, &balancer).unwrap();
    scene.service("web0", &[], port(99));
    scene.ensure(&names).await;
    assert_eq!(scene.object("loadBalancers", "kubernetes")["tags"], json!({"team": "a"}));
    scene.delete(&["web0"]).await;
    assert_eq!(scene.object("loadBalancers", "kubernetes")["tags"], json!({"team": "a"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_interface_in_the_pool_is_written_again() {
    let mut scene = Scene::new("", 0).await;
    let machine = scene.bed.machine("vm0");
    scene.nodes = vec![
        Node { name: "vm0".into(), provider_id: Some(format!("azure://{machine}").into()), ..Node::default() }.into(),
    ];
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.service("web0", &[], port(80));
    scene.ensure(&["web0"]).await;
    let interface = format!("{GROUP}/Microsoft.Network/networkInterfaces/vm0-nic");
    scene.bed.cloud.world(|world| world.state(&interface, "Failed"));
    scene.service("web1", &[], port(81));
    scene.ensure(&["web0", "web1"]).await;
    assert_eq!(scene.bed.cloud.object(&interface)["properties"]["provisioningState"], "Succeeded");
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_of_their_own_join_and_leave() {
    let mut scene = Scene::new("", 0).await;
    let node = |name: &str, id: &str| -> NodeRef {
        Node { name: name.into(), provider_id: Some(format!("azure://{id}").into()), ..Node::default() }.into()
    };
    let (one, two) = (scene.bed.machine("vm0"), scene.bed.machine("vm1"));
    scene.nodes = vec![node("vm0", &one), node("vm1", &two)];
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let members = |scene: &Scene| {
        let pools = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools");
        items(&pools[0], "backendIPConfigurations").len()
    };
    assert_eq!(members(&scene), 2);
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.bed.calls(mark).len(), 3, "the interfaces are known: {:?}", scene.bed.calls(mark));
    scene.nodes.pop();
    scene.done(&["web"], ServiceAction::UpdateHosts).await;
    assert_eq!(members(&scene), 1);
    scene.delete(&["web"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    scene.bed.is_clean();
}
