//! Invalid input is reported to users with key, value and cause; other Services still work.

use super::*;

/// A Service, its annotations, of which the last one is invalid, and the words of the event.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);

const CASES: [Case<'_>; 2] = [
    (
        "tier",
        &[("cloud.google.com/network-tier", "standard")],
        &["cloud.google.com/network-tier", "unsupported network tier: \"standard\"", "Premium or Standard"],
    ),
    (
        "subnet",
        &[INTERNAL, ("networking.gke.io/internal-load-balancer-subnet", "nowhere")],
        &["networking.gke.io/internal-load-balancer-subnet", "nowhere"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_named_and_other_services_continue() {
    let Some(world) = World::start().await else { return };
    let manager = world.with_nodes(1).await;
    for (name, annotations, _) in CASES {
        world.rig.create(service(name, annotations, &[80])).await;
    }
    let address = json!({"spec": {"loadBalancerIP": "203.0.113.99"}});
    world
        .rig
        .create(service("address", &[], &[80]).with(|service| {
            service["spec"]["loadBalancerIP"] = address["spec"]["loadBalancerIP"].clone();
        }))
        .await;
    let mixed = json!([{"name": "a", "port": 53, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP"}]);
    world.rig.create(service("mixed", &[], &[80]).with(|service| service["spec"]["ports"] = mixed.clone())).await;
    let fixed = ["203.0.113.99", "neither static nor assigned", "spec.loadBalancerIP", "reserve it or remove"];
    let several = ["mixed protocol is not supported", "spec.ports", "make a Service for each protocol"];
    let added = [("address", &fixed[..]), ("mixed", &several[..])];
    let cases = CASES.iter().map(|(name, _, says)| (*name, *says)).chain(added);
    for (name, says) in cases.clone() {
        let wanted = |event: &String| event.starts_with("Warning ") && says.iter().all(|text| event.contains(text));
        let find = async |rig: &Rig| rig.events(name).await.into_iter().find(wanted);
        world.rig.until(LONG, &format!("an event about {name}"), find).await;
    }
    let reason = "LoadBalancerMixedProtocolNotSupported";
    assert_eq!(world.rig.event_component("mixed", reason).await, "g-cloudprovider");
    world.rig.create(service("good", &[], &[80])).await;
    world.rig.address("good").await;
    for (name, _) in cases {
        assert_eq!(world.rig.service(name).await.unwrap().ingress(), [""; 0], "{name}");
        world.rig.delete_service(name).await;
    }
    world.rig.delete_service("good").await;
    manager.stop().await;
    world.end();
}
