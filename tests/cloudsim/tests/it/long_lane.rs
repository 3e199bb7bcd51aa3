//! Runs all cases on moto: it may differ where the table says so and nowhere else.

use std::fmt::Write as _;
use std::io::Write as _;

use ccm_cloudsim::moto::Moto;

use crate::api::Api;
use crate::case::{Case, like};
use crate::{cases, deviations, scene};

#[test]
fn moto_differs_only_where_the_table_says_so() {
    // Two, because moto takes most of a second for a case, and works on one request at a time.
    let cases = cases::all();
    let halves = cases.chunks(cases.len().div_ceil(2));
    let report: String = std::thread::scope(|scope| {
        let workers: Vec<_> = halves.map(|half| scope.spawn(|| differences(half))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a report")).collect()
    });
    assert!(report.is_empty(), "\n{report}");
}

/// Runs cases against a moto of their own: a line for each difference that the table lacks.
fn differences(cases: &[Case]) -> String {
    let mut report = String::new();
    let Some(moto) = Moto::start().expect("moto") else { return report };
    let api = Api { address: moto.address() };
    for case in cases {
        moto.reset().expect("an empty moto");
        let mut values = scene::make(api);
        values.insert("cert".to_owned(), scene::certificate_in_moto(moto.address()));
        let found = case.run(api, &values);
        let listed: Vec<&str> = deviations::OF_MOTO
            .iter()
            .filter(|deviation| deviation.case == case.name)
            .flat_map(|deviation| deviation.lines.iter().copied())
            .collect();
        for line in found.iter().filter(|line| !listed.iter().any(|pattern| like(line, pattern))) {
            let _ = writeln!(report, "new difference, in {:?}:\n    {line:?},", case.name);
        }
        for pattern in listed.iter().filter(|pattern| !found.iter().any(|line| like(line, pattern))) {
            // Moto got better: no defect of ours. Past the test harness, which would keep it to itself.
            let notice =
                format!("\nNOTICE: moto no longer differs in {:?}; take it out of the table: {pattern:?}\n", case.name);
            std::io::stderr().write_all(notice.as_bytes()).expect("stderr");
        }
    }
    report
}
