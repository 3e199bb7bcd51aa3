//! Runs all cases with our own client.

use super::cases;
use super::run::{cloud, own};

#[test]
fn the_simulation_passes_every_case() {
    let mut report = Vec::new();
    for case in cases::all() {
        let azure = cloud();
        report.extend(case.judge(&own(&azure, &case)));
        report.extend(azure.take_violations().into_iter().map(|text| format!("{}: {text}", case.name)));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}
