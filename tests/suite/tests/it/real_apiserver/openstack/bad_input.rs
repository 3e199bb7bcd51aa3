//! Invalid input is reported to users with key, value and cause; other Services still work.

use super::*;

ccm_test_openstack::cases! { [crate::real_apiserver::openstack]
    both:
        mistakes_are_named_and_other_services_continue;
    simulated:
}

/// A Service, its annotations, of which the last one is invalid, and the words of the event besides key and value.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

const NOWHERE: &str = "0badbad0-1111-4222-8333-444455556666";
const CASES: [Case<'_>; 8] = [
    ("network", &[("network-id", NOWHERE)], "correct network-id, in the annotation"),
    ("subnet", &[("subnet-id", NOWHERE)], "correct subnet-id, in the annotation"),
    ("port", &[("port-id", NOWHERE)], "correct port-id, in the annotation"),
    ("external", &[("floating-network-id", NOWHERE)], "correct floating-network-id, in the annotation"),
    ("balancer", &[("load-balancer-id", NOWHERE)], "correct or remove the annotation"),
    ("class", &[("class", "DMZ")], "cloud.conf has no such [LoadBalancerClass]"),
    ("both", &[("proxy-protocol", "true"), ("x-forwarded-for", "true")], "cannot be used together; remove one"),
    ("number", &[("timeout-client-data", "soon")], "write for"),
];

async fn mistakes_are_named_and_other_services_continue(world: &World) {
    let (manager, _machines) = world.with_nodes(1, "").await;
    for (name, annotations, _) in CASES {
        world.rig.create(service(name, annotations, &[80])).await;
    }
    for (name, annotations, fix) in CASES {
        let (key, value) = annotations.last().unwrap();
        let wanted =
            |event: &String| event.starts_with("Warning ") && [key, value, fix].iter().all(|it| event.contains(*it));
        let find = async |rig: &Rig| rig.events(name).await.into_iter().find(wanted);
        world.rig.until(LONG, &format!("an event about {name}"), find).await;
    }
    // A number that cannot be parsed is ignored.
    world.rig.address("number").await;
    let component = world.rig.event_component("number", "LoadBalancerConfiguration").await;
    assert_eq!(component, "cloud-provider-openstack");
    world.rig.create(service("good", &[], &[80])).await;
    world.rig.address("good").await;
    for (name, ..) in CASES {
        let is_served = !world.rig.service(name).await.unwrap().ingress().is_empty();
        assert_eq!(is_served, name == "number", "{name}");
        world.rig.delete_service(name).await;
    }
    world.rig.delete_service("good").await;
    manager.stop().await;
}
