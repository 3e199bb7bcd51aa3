//! The tour on the simulated Compute Engine.

use std::time::Duration;

use crate::tour;

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn the_tour_on_compute_engine_goes_as_described() {
    let facts = [
        "ccm --cloud-provider=gce",
        "Planned: 12 nodes, 2 Services, 12 routes. Written to the cluster or the cloud: nothing, not even a",
        "12 nodes initialized, routed and Ready",
        "spec.providerID: gce://demo/us-central1-",
        "default/api: address 10.0.",
        "deleting node node=\"node-02\"",
        "The load balancers have 11 hosts, the cloud has 11 routes.",
        "node-07 is kept",
        "node-07 is Ready again, and nothing was lost.",
        "Written to the cloud, to Nodes and to Services: nothing.",
        "Routes 12 made, 1 removed",
    ];
    tour(&["--fast", "--cloud-provider=gce"], &[], LIMIT, &facts);
}
