//! What was read in the last seconds is enough for Services that did not change.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;
use crate::bed::{pass, stable};

pub(super) const AGE: &str = "loadBalancerCacheTTLInSeconds: 100\n";

/// A Service whose objects were read some time after the last write.
async fn read() -> Scene {
    let options = Options { operation: std::time::Duration::ZERO, ..Options::default() };
    let mut scene = Scene::with(options, AGE, 2).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    pass(20).await;
    scene.ensure(&["web"]).await;
    scene
}

#[tokio::test]
async fn an_internal_service_that_shares_an_address_reads_nothing_either() {
    let mut scene = read().await;
    let internal = ("azure-load-balancer-internal", "true");
    scene.service("first", &[internal], port(81));
    scene.ensure(&["first"]).await;
    let ip = scene.ip("first");
    scene.service("other", &[internal, ("azure-load-balancer-ipv4", &ip)], port(82));
    scene.ensure(&["other"]).await;
    pass(20).await;
    scene.ensure(&["first"]).await;
    let mark = scene.mark();
    scene.ensure(&["other"]).await;
    assert_eq!(scene.bed.calls(mark), [] as [String; 0]);
    scene.bed.is_clean();
}

fn remove_rules(scene: &Scene) {
    let id = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes");
    scene.bed.cloud.world(|world| world.alter(&id, json!({"properties": {"loadBalancingRules": []}})));
}

#[tokio::test]
async fn a_call_that_changes_nothing_reads_nothing_for_some_time() {
    let mut scene = read().await;
    let mark = scene.mark();
    for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
        scene.done(&["web"], action).await;
    }
    assert_eq!(scene.bed.calls(mark), [] as [String; 0]);
    remove_rules(&scene);
    pass(101).await;
    scene.ensure(&["web"]).await;
    let calls = scene.bed.calls(mark);
    assert!(calls.iter().any(|call| call == "loadBalancers.put"), "{calls:?}");
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules").len(), 1);
    scene.bed.is_clean();
}

#[tokio::test]
async fn nothing_is_read_with_several_load_balancers_either() {
    let mut scene = Scene::new(&format!("{AGE}{}", several::SEVERAL), 2).await;
    scene.nodes.push(machine_node(&scene, "vm0"));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    pass(20).await;
    scene.ensure(&["web"]).await;
    let mark = scene.mark();
    scene.ensure(&["web"]).await;
    assert_eq!(scene.bed.calls(mark), [] as [String; 0]);
    // The set of a new machine says behind which one it is.
    scene.nodes.push(machine_node(&scene, "vm1"));
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    scene.ensure(&["web"]).await;
    assert!(scene.bed.calls(mark).contains(&"virtualMachines.list".to_owned()));
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_change_by_others_in_the_meantime_stays_and_costs_one_read_and_one_write() {
    const BALANCER: (&str, &str) = ("loadBalancers", "kubernetes");
    const GROUP_OF_RULES: (&str, &str) = ("networkSecurityGroups", "nsg");
    // The clients of the new port are admitted before, and those of the former one no longer afterwards.
    let of_rules = ["networkSecurityGroups.get", "networkSecurityGroups.put"];
    let usual = [["loadBalancers.get", "loadBalancers.put"], of_rules, of_rules].concat();
    for (changed, more) in [
        (&[][..], &[][..]),
        (&[BALANCER], &["loadBalancers.list", "loadBalancers.put"]),
        (&[GROUP_OF_RULES], &["networkSecurityGroups.get", "networkSecurityGroups.put"]),
        (
            &[BALANCER, GROUP_OF_RULES],
            &["loadBalancers.list", "loadBalancers.put", "networkSecurityGroups.get", "networkSecurityGroups.put"],
        ),
    ] {
        let mut scene = read().await;
        for (kind, name) in changed {
            others::by_hand(&scene, &others::path(kind, name), |object| {
                object["tags"] = json!({"team": "a"});
                if (*kind, *name) == GROUP_OF_RULES {
                    object["properties"]["securityRules"].as_array_mut().unwrap().push(theirs());
                }
            });
        }
        let rule = |scene: &Scene| {
            let rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
            rules.into_iter().find(|rule| rule["name"] == "theirs").map(stable)
        };
        let (before, mark) = (rule(&scene), scene.mark());
        scene.service("web", &[], port(81));
        let answers = scene.call(&["web"], ServiceAction::Ensure).await;
        assert_eq!(errors(&["web"], &answers), BTreeMap::new(), "{changed:?}");
        let mut expected: Vec<&str> = usual.iter().chain(more).copied().collect();
        expected.sort_unstable();
        let mut calls = scene.bed.calls(mark);
        calls.sort_unstable();
        assert_eq!(calls, expected, "{changed:?}");
        for (kind, name) in changed {
            assert_eq!(scene.object(kind, name)["tags"], json!({"team": "a"}), "{kind}");
        }
        assert_eq!(rule(&scene), before, "{changed:?}");
        assert_eq!(scene.bed.cluster.take_events(), Vec::<String>::new(), "{changed:?}");
        let rules = items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules");
        assert_eq!(rules[0]["properties"]["frontendPort"], 81);
        // What was written is known.
        let mark = scene.mark();
        scene.ensure(&["web"]).await;
        assert_eq!(scene.bed.calls(mark), [] as [String; 0], "{changed:?}");
        scene.bed.is_clean();
    }
}

/// A rule of a user.
fn theirs() -> Value {
    json!({"name": "theirs", "properties": {
        "priority": 600, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "*",
        "sourcePortRange": "*", "destinationPortRange": "22", "destinationAddressPrefix": "10.240.9.9",
    }})
}

#[tokio::test]
async fn what_others_remove_in_the_meantime_is_made_again() {
    let mut scene = read().await;
    scene.bed.cloud.world(|world| world.remove(&others::path("loadBalancers", "kubernetes")));
    scene.service("web", &[], port(81));
    scene.ensure(&["web"]).await;
    assert_eq!(items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules").len(), 1);
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_deletion_waits_until_reads_show_what_was_written() {
    for hidden in ["loadBalancers/kubernetes", "publicIPAddresses/kubernetes-a0000000111112222333344444444444"] {
        let mut scene = Scene::new("", 2).await;
        scene.service("web", &[], port(80));
        scene.ensure(&["web"]).await;
        let id = format!("{GROUP}/Microsoft.Network/{hidden}");
        assert!(!scene.bed.cloud.object(&id).is_null(), "{hidden}");
        scene.bed.cloud.world(|world| world.hide(&id, std::time::Duration::from_millis(300)));
        let answers = scene.call(&["web"], ServiceAction::Delete).await;
        assert!(answers[0].result.as_ref().is_err_and(ProviderError::is_in_progress), "{hidden}: {answers:?}");
        scene.delete(&["web"]).await;
        assert!(scene.objects("loadBalancers").is_empty() && scene.objects("publicIPAddresses").is_empty());
        scene.bed.is_clean();
    }
}

#[tokio::test]
async fn a_write_without_an_answer_counts_as_written() {
    let mut scene = Scene::new("", 2).await;
    scene.service("web", &[("azure-load-balancer-internal", "true")], port(80));
    let rule = Rule::every(Fault::ResetAfter).on("network", "loadBalancers.put");
    scene.bed.cloud.fault(rule);
    let answers = scene.call(&["web"], ServiceAction::Ensure).await;
    assert!(answers[0].result.is_err(), "{answers:?}");
    scene.bed.cloud.faults(Faults::clear);
    let id = format!("{GROUP}/Microsoft.Network/loadBalancers/kubernetes-internal");
    assert!(!scene.bed.cloud.object(&id).is_null());
    scene.bed.cloud.world(|world| world.hide(&id, std::time::Duration::from_millis(300)));
    let answers = scene.call(&["web"], ServiceAction::Delete).await;
    assert!(answers[0].result.as_ref().is_err_and(ProviderError::is_in_progress), "{answers:?}");
    scene.delete(&["web"]).await;
    assert!(scene.objects("loadBalancers").is_empty());
    scene.bed.is_clean();
}

#[tokio::test]
async fn a_deletion_reads() {
    let mut scene = read().await;
    let mark = scene.mark();
    scene.delete(&["web"]).await;
    let calls = scene.bed.calls(mark);
    let reads = ["loadBalancers.list", "networkSecurityGroups.get", "publicIPAddresses.list"];
    assert!(reads.iter().all(|read| calls.iter().any(|call| call == read)), "{calls:?}");
    assert!(scene.objects("publicIPAddresses").is_empty());
    scene.bed.is_clean();
}

/// Users may make the address of a Service, with the name that it will have.
#[tokio::test]
async fn an_address_that_a_user_has_made_for_an_older_service_stays() {
    let mut scene = read().await;
    scene.service("api", &[], port(443));
    let created = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    scene.services.get_mut("api").unwrap().metadata.creation_timestamp = Some(created);
    let name = "kubernetes-a0000000211112222333344444444444";
    let theirs = json!({"location": "eastus", "sku": {"name": "Standard"}, "tags": {"team": "a"}, "properties": {
        "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
    scene.bed.cloud.by_hand("PUT", &others::path("publicIPAddresses", name), &theirs).unwrap();
    scene.ensure(&["api"]).await;
    assert_eq!(scene.object("publicIPAddresses", name)["tags"]["team"], "a");
    scene.delete(&["api"]).await;
    assert_eq!(scene.object("publicIPAddresses", name)["tags"]["team"], "a", "it is not deleted");
}
