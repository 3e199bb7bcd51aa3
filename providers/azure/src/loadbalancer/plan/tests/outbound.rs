//! The path by which nodes reach the internet.

use super::*;

fn warnings(world: &mut World, deleted: &[&str]) -> Vec<String> {
    let (plan, _) = world.planned(deleted, ServiceAction::Ensure);
    let warnings = plan.findings.into_iter().filter(|finding| finding.key == "LoadBalancerOutboundPath");
    warnings.map(|finding| finding.message).collect()
}

#[test]
fn a_removal_that_takes_the_outbound_path_of_nodes_is_a_warning() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    assert_eq!(warnings(&mut world, &[]), [] as [&str; 0]);
    let mut node = (*world.nodes[0]).clone();
    node.labels = [("node.kubernetes.io/exclude-from-external-load-balancers", "true")].into_iter().collect();
    world.nodes[0] = node.into();
    let left = warnings(&mut world, &[]);
    assert!(left.len() == 1 && left[0].contains("these leave it: 10.0.0.1;"), "{left:?}");
    let last = warnings(&mut world, &["web"]);
    assert!(
        last.len() == 1 && last[0].contains("kubernetes, by which nodes reach the internet, is deleted"),
        "{last:?}"
    );
}

#[test]
fn load_balancers_without_an_outbound_path_are_removed_without_a_warning() {
    let mut world = World::new();
    world.env.disables_outbound_snat = true;
    world
        .service("web", &[], json!({}))
        .service("inner", &[("azure-load-balancer-internal", "true")], json!({}))
        .settle(&[]);
    assert_eq!(warnings(&mut world, &["web", "inner"]), [] as [&str; 0]);
}
