//! The tour on the simulated Azure.

use std::time::Duration;

use crate::tour;

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn the_tour_on_azure_goes_as_described() {
    let facts = [
        "ccm --cloud-provider=azure",
        "Planned: 12 nodes, 2 Services, 12 routes. Written to the cluster or the cloud: nothing, not even a",
        "12 nodes initialized, routed and Ready",
        "spec.providerID: azure:///subscriptions/sub/",
        "default/api: address 10.240.",
        "deleting node node=\"node-000001\"",
        "The load balancers have 11 hosts, the cloud has 11 routes.",
        "node-000006 is kept",
        "node-000006 is Ready again, and nothing was lost.",
        "Written to the cloud, to Nodes and to Services: nothing.",
        "No load balancer, public IP address or security rule of theirs is left.",
        "Routes 12 made, 1 removed",
    ];
    // Each of these settings would redirect the calls to another tenant.
    let elsewhere = [("AZURE_TENANT_ID", "mine"), ("AZURE_CLIENT_ID", "mine"), ("https_proxy", "http://127.0.0.1:9")];
    tour(&["--fast", "--cloud-provider=azure"], &elsewhere, LIMIT, &facts);
}
