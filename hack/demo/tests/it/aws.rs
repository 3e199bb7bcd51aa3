//! The tour on the simulated AWS.

use std::time::Duration;

use crate::tour;

/// The test takes ten seconds.
const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn the_tour_on_aws_goes_as_described_whatever_account_the_user_has() {
    // Each of these settings would redirect the calls to a server other than the simulation.
    let elsewhere = [
        ("AWS_PROFILE", "mine"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("AWS_ACCESS_KEY_ID", "mine"),
        ("http_proxy", "http://127.0.0.1:9"),
    ];
    let facts = [
        "ccm --cloud-provider=aws",
        "Written to the cluster or the cloud: nothing, not even a",
        "12 nodes initialized, routed and Ready",
        "spec.providerID: aws:///us-west-2",
        "default/web: classic load balancer made",
        "default/api: network load balancer made",
        "default/web: classic load balancer listens on 80, 8080",
        "default/api: network load balancer listens on 443, 8080",
        "deleting node node=\"node-02\"",
        "The load balancers have 11 hosts, the cloud has 11 routes.",
        "fails: RequestLimitExceeded",
        "node-07 is kept",
        "node-07 is Ready again, and nothing was lost.",
        "Written to the cloud, to Nodes and to Services: nothing.",
        "No load balancer, target group, security group or rule of theirs is left.",
        "Routes 12 made, 1 removed",
        "12 ec2:CreateRoute",
    ];
    tour(&["--fast", "--cloud-provider=aws"], &elsewhere, LIMIT, &facts);
}
