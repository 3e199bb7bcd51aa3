//! Runs all cases with our own client.

use super::{cases, scene};
use crate::calls::Case;
use crate::deviations;
use ccm_cloudsim::gce::Gce;

#[test]
fn the_simulation_passes_every_case() {
    let mut report = Vec::new();
    let described = ccm_cloudsim::gce::cache_folder().unwrap().is_some();
    // Only the description can show that a call violates the API.
    for case in cases::all().into_iter().filter(|case| described || case.steps.iter().all(|step| !step.wrong)) {
        let gce = scene::cloud();
        report.extend(case.judge(&scene::own(&gce).run(&case)));
        report.extend(noticed(&case, &gce));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

/// A line for each violation, unless their number equals that of the intentionally invalid calls.
pub(crate) fn noticed(case: &Case, gce: &Gce) -> Vec<String> {
    let violations = gce.take_violations();
    let wrong = case.steps.iter().filter(|step| step.wrong).count();
    if violations.len() == wrong {
        return Vec::new();
    }
    let mut found = vec![format!("{}: {} violations, {wrong} wanted", case.name, violations.len())];
    found.extend(violations);
    found
}

#[test]
fn names_of_cases_are_unique() {
    let names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    deviations::check_names(&names, &[]);
}
