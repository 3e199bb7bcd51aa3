//! Runs all cases on moto, whose answers may differ only as listed in the table.

use ccm_cloudsim::moto::Moto;

use crate::case::Case;
use crate::deviations::moto::OF_MOTO;
use crate::{cases, deviations, scene};

#[test]
fn moto_differs_only_where_the_table_says_so() {
    // Two, because moto takes almost a second for a case, and handles one request at a time.
    let cases = cases::all();
    let halves = cases.chunks(cases.len().div_ceil(2));
    let found: Option<Vec<Vec<String>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = halves.map(|half| scope.spawn(|| differences(half))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a report")).collect()
    });
    if let Some(found) = found {
        deviations::check(OF_MOTO, &found.concat());
    }
}

/// Runs cases against a new moto, if it is installed: a line for each difference.
fn differences(cases: &[Case]) -> Option<Vec<String>> {
    let moto = Moto::start().expect("moto")?;
    let of_case = |case: &Case| {
        moto.reset().expect("an empty moto");
        let mut values = scene::make(moto.address());
        values.insert("cert".to_owned(), scene::certificate_in_moto(moto.address()));
        case.run(moto.address(), &values)
    };
    Some(cases.iter().flat_map(of_case).collect())
}
