//! The initial state of each case: a project with a network, a subnetwork and instances in two zones; another project;
//! disks.

use super::client::Own;
use ccm_cloudsim::gce::seed::{ClusterSeed, InstanceSeed};
use ccm_cloudsim::gce::{Gce, Options};
use std::time::Duration;

/// A cloud in the initial state.
pub(crate) fn cloud() -> Gce {
    let gce = Gce::start(Options { operation: Duration::from_millis(1), page: 100, ..Options::default() }).unwrap();
    gce.world(|world| {
        let zones = ["us-central1-b", "us-central1-c"];
        let cluster = world.cluster(&ClusterSeed { zones: &zones, nodes: 4, ..ClusterSeed::default() });
        world.instance(&InstanceSeed {
            project: "p",
            zone: "us-central1-b",
            name: "pods",
            subnetwork: &cluster.subnetwork,
            alias: Some(("pods", 24)),
            external: true,
            ..InstanceSeed::default()
        });
        let other = world.network("p", "other", false);
        let far = world.subnetwork(&other, "us-central1", "far", "10.200.0.0/24", &[]);
        world.subnetwork(&cluster.network, "us-east1", "east", "10.201.0.0/24", &[]);
        for (zone, subnetwork) in [("us-central1-b", &far), ("us-east1-b", &far)] {
            let name = if zone == "us-east1-b" { "east" } else { "far" };
            world.instance(&InstanceSeed { project: "p", zone, name, subnetwork, ..InstanceSeed::default() });
        }
        world.project("q");
        world.disk("p", "us-central1-b", "data");
        world.region_disk("p", "us-central1", "data", &zones);
    });
    gce
}

/// Our own client with a token for it.
pub(crate) fn own(gce: &Gce) -> Own {
    Own { url: gce.url(), token: gce.token() }
}
