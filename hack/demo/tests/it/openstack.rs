//! The tour on the simulated OpenStack.

use std::time::Duration;

use crate::tour;

/// The test takes 15 seconds.
const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn the_tour_on_openstack_goes_as_described() {
    let facts = [
        "ccm --cloud-provider=openstack",
        "Planned: 12 nodes, 2 Services, 12 routes. Written to the cluster or the cloud: nothing, not even a",
        "create FloatingIP kube_service_kubernetes_default_web",
        "12 nodes initialized, routed and Ready",
        "spec.providerID: openstack:///",
        "default/web: address 203.0.113.",
        "default/api: address 10.0.0.",
        "default/web: load balancer listens on 80, 8080",
        "default/api: load balancer listens on 443, 8080",
        "deleting node node=\"node-02\"",
        "The load balancers have 11 hosts, the cloud has 11 routes.",
        "compute:server_get fails: status 503",
        "node-07 is kept",
        "node-07 is Ready again, and nothing was lost.",
        "Written to the cloud, to Nodes and to Services: nothing.",
        "No load balancer, floating IP, port or security group of theirs is left.",
        "Routes 12 made, 1 removed",
        "2 network:router_update",
    ];
    tour(&["--fast", "--cloud-provider=openstack"], &[], LIMIT, &facts);
}
