//! The tour on the simulated Compute Engine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::{demo, left, text, words};

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn the_tour_on_compute_engine_goes_as_described() {
    let temp = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let output = demo(temp.path(), &["--fast", "--cloud-provider=gce"]).output().unwrap();
    let (log, errors) = text(&output);
    assert!(output.status.success(), "{log}\n{errors}");
    assert_eq!(errors, "");
    let words = words(&log);
    for fact in [
        "ccm --cloud-provider=gce",
        "Planned: 12 nodes, 2 Services, 12 routes. Written to the cluster or the cloud: nothing, not even a",
        "12 nodes initialized, routed and Ready",
        "spec.providerID: gce://demo/us-central1-",
        "default/api: address 10.0.",
        "deleting node node=\"node-02\"",
        "The balancers have 11 hosts, the cloud has 11 routes.",
        "node-07 is kept",
        "node-07 is Ready again, and nothing was lost.",
        "Written to the cloud, to Nodes and to Services: nothing.",
        "Routes 12 made, 1 removed",
    ] {
        assert!(words.contains(fact), "{fact:?} is missing in\n{log}");
    }
    assert_eq!(left(temp.path()), Vec::<PathBuf>::new());
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
}
