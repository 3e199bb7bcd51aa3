//! A shared object that Azure refuses because of one Service: it is written for the others.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

/// A public IP address that somebody has made.
fn by_hand(scene: &Scene) -> String {
    let ip = others::path("publicIPAddresses", "byhand");
    let body = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}});
    scene.bed.cloud.by_hand("PUT", &ip, &body).unwrap();
    ip
}

/// The errors of Services, by name, when nothing is in progress any more.
async fn failed(scene: &mut Scene, names: &[&str]) -> BTreeMap<String, String> {
    loop {
        let answers = scene.call(names, ServiceAction::Ensure).await;
        let is_in_progress = |answer: &ServiceAnswer| answer.result.as_ref().is_err_and(ProviderError::is_in_progress);
        if !answers.iter().any(is_in_progress) {
            return errors(names, &answers);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_object_that_may_not_be_used_fails_its_service_alone() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    by_hand(&scene);
    let network = others::path("virtualNetworks", "vnet");
    scene.bed.cloud.world(|world| world.subnet(&network, "team", &["10.241.0.0/24"], json!({})));
    let rights =
        ["publicIPAddresses", "virtualNetworks/subnets"].map(|kind| format!("Microsoft.Network/{kind}/join/action"));
    scene.service("good", &[INTERNAL], port(80));
    scene.service("free", &[], port(82));
    let own = format!("kubernetes-{}", scene.services["free"].default_load_balancer_name());
    let free = [format!("{network}/subnets/subnet"), others::path("publicIPAddresses", &own)];
    scene.bed.cloud.world(|world| {
        world.options.not_actions_in = [("rg".to_owned(), rights.to_vec())].into();
        world.options.actions_on = free.map(|id| (id, rights.to_vec())).into();
    });
    let denied = [
        (&[("azure-pip-name", "byhand")][..], "publicIPAddresses/byhand"),
        (&[INTERNAL, ("azure-load-balancer-internal-subnet", "team")], "subnets/team"),
    ];
    let names = ["bad", "free", "good"];
    for (given, object) in denied {
        scene.service("bad", given, port(81));
        let errors = failed(&mut scene, &names).await;
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["bad"], "{errors:?}");
        assert!(errors["bad"].contains(object) && errors["bad"].contains("join/action"), "{errors:?}");
        let mark = scene.mark();
        scene.call(&names, ServiceAction::Ensure).await;
        assert_eq!(scene.writes(mark), BTreeMap::new(), "{object}: it is not sent again at once");
        scene.delete(&names).await;
        scene.service("good", &[INTERNAL], port(80));
        scene.service("free", &[], port(82));
    }
    // Somebody grants it.
    scene.service("bad", denied[0].0, port(81));
    scene.call(&names, ServiceAction::Ensure).await;
    scene.bed.cloud.world(|world| world.options.not_actions_in.clear());
    crate::bed::pass(601).await;
    scene.ensure(&names).await;
    scene.bed.is_clean();
}

#[tokio::test]
async fn an_address_that_azure_has_not_provisioned_fails_its_service_alone() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let message = format!(
        "Cannot proceed with operation because resource {} used by resource {} is not in Succeeded state. Resource is in Failed state \
         and the last operation that updated/is updating the resource is PutPublicIpAddressOperation.",
        by_hand(&scene),
        others::path("loadBalancers", CLUSTER)
    );
    let fault = Fault::Code { status: 400, code: "ReferencedResourceNotProvisioned".into(), message };
    let rule = Rule { params: Some("byhand".to_owned()), ..Rule::every(fault) };
    scene.bed.cloud.fault(rule.on("network", "loadBalancers.put"));
    scene.service("good", &[], port(80));
    scene.service("bad", &[("azure-pip-name", "byhand")], port(81));
    let names = ["bad", "good"];
    let errors = failed(&mut scene, &names).await;
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["bad"], "{errors:?}");
    assert!(errors["bad"].contains("publicIPAddresses/byhand"), "{errors:?}");
    scene.bed.cloud.faults(Faults::clear);
    crate::bed::pass(6).await;
    scene.ensure(&names).await;
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_refusal_of_the_load_balancer_that_names_nobody_fails_in_the_end_the_service_that_it_is_about_alone() {
    for bad in ["a", "d"] {
        let mut scene = Scene::new(BY_ADDRESS, 1).await;
        scene.service("old", &[], port(79));
        scene.ensure(&["old"]).await;
        let names = ["a", "b", "c", "d", "e", "f"];
        (80..).zip(names).for_each(|(number, name)| scene.service(name, &[], port(number)));
        let message = "Cannot parse the request: properties.loadBalancingRules[3]".to_owned();
        let fault = Fault::Code { status: 400, code: "InvalidRequestFormat".into(), message };
        let rule = Rule { params: Some(scene.services[bad].default_load_balancer_name()), ..Rule::every(fault) };
        scene.bed.cloud.fault(rule.on("network", "loadBalancers.put"));
        for seconds in [6, 6, 60, 6, 60, 6] {
            failed(&mut scene, &names).await;
            crate::bed::pass(seconds).await;
        }
        let mark = scene.mark();
        let failed = failed(&mut scene, &names).await;
        assert_eq!(failed.keys().collect::<Vec<_>>(), [bad], "{bad}: {failed:?}");
        assert!(failed[bad].contains("loadBalancingRules[3]") && failed[bad].contains("correct"), "{failed:?}");
        assert_eq!(scene.writes(mark), BTreeMap::new(), "it is not sent again at once");
        scene.bed.cloud.faults(Faults::clear);
        scene.service(bad, &[], port(90));
        scene.ensure(&names).await;
        scene.bed.is_clean();
    }
}

#[tokio::test]
async fn a_service_that_is_left_alone_with_a_refusal_that_names_nobody_is_tried_again_after_minutes() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let names = ["a", "b"];
    (80..).zip(names).for_each(|(number, name)| scene.service(name, &[], port(number)));
    let message = "Cannot parse the request.".to_owned();
    let fault = Fault::Code { status: 400, code: "InvalidRequestFormat".into(), message };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.put"));
    let errors = failed(&mut scene, &names).await;
    assert_eq!(errors.keys().collect::<Vec<_>>(), names, "{errors:?}");
    let mark = scene.mark();
    failed(&mut scene, &names).await;
    assert_eq!(scene.writes(mark), BTreeMap::new(), "it is not sent again at once");
    scene.bed.cloud.faults(Faults::clear);
    crate::bed::pass(601).await;
    scene.ensure(&names).await;
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_refusal_of_the_security_group_that_names_only_a_service_tag_fails_the_service_with_it_alone() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let message = "Security rule has invalid Address prefix. Value provided: AzureCloud".to_owned();
    let fault = Fault::Code { status: 400, code: "SecurityRuleInvalidAddressPrefix".into(), message };
    let rule = Rule { params: Some("AzureCloud".to_owned()), ..Rule::every(fault) };
    scene.bed.cloud.fault(rule.on("network", "networkSecurityGroups.put"));
    scene.service("bad", &[("azure-allowed-service-tags", "AzureCloud")], port(80));
    scene.service("good", &[("azure-allowed-service-tags", "AzureMonitor")], port(81));
    let names = ["bad", "good"];
    let failed = failed(&mut scene, &names).await;
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["bad"], "{failed:?}");
    assert!(failed["bad"].contains("azure-allowed-service-tags \"AzureCloud\""), "{failed:?}");
    assert_eq!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").len(), 1);
    scene.bed.is_clean();
}
