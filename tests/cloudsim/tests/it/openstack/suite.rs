//! Runs all cases on the simulation.

use super::{cases, scene};
use crate::deviations::{self, openstack::OF_OPENSTACK};

#[test]
fn the_simulation_passes_every_case() {
    let cloud = scene::cloud();
    let (client, mut values) = scene::simulated(&cloud);
    assert_eq!(cloud.take_violations(), Vec::<String>::new());
    let mut report = Vec::new();
    for case in cases::all() {
        let (_, found) = case.run(&client, &mut values, &|| scene::later(&cloud), |step| {
            match (cloud.take_violations(), step.wrong) {
                (violations, true) if violations.is_empty() => {
                    vec!["is against the API, and was not noticed".to_owned()]
                }
                (_, true) => Vec::new(),
                (violations, false) => violations,
            }
        });
        report.extend(found);
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

#[test]
fn names_of_cases_are_unique_and_the_table_names_cases() {
    let names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    deviations::check_names(&names, OF_OPENSTACK);
}
