//! Hosts according to endpoints, from the EndpointSlices of a real API server.

use ccm_test_bed::Options;

use super::*;
use crate::services::endpoints::hosts_follow_endpoints;

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_of_a_local_service_follow_its_endpoints() {
    let Some(rig) = Rig::real_alone(Options::default(), "suite-endpoints", "").await else { return };
    hosts_follow_endpoints(&rig, &[]).await;
}

/// As in the Go program: the default role of `service-controller` has no EndpointSlices.
#[tokio::test(flavor = "multi_thread")]
async fn with_own_accounts_the_process_watches_the_endpoints() {
    let Some(rig) = Rig::real_alone(Options::default(), "suite-own-endpoints", "").await else { return };
    hosts_follow_endpoints(&rig, &["--use-service-account-credentials"]).await;
}
