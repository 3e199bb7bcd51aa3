//! The list of cases, and their report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::case::{self, Baseline, Case, Found};
use super::known::{self, Failure, Known};
use super::{Kind, MatrixCloud, Operation, Reach, Situation, Trouble};
use crate::watch::Effect;

/// The part of the matrix to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Each operation and each trouble at least once, in a minute.
    Sample,
    /// Everything.
    All,
}

/// The cases of a cloud.
#[derive(Default)]
struct Cases {
    cases: Vec<(Case, Effect)>,
    /// The number of cases without a trouble, by reason.
    skipped: BTreeMap<String, usize>,
    /// Defects of the matrix itself.
    wrong: Vec<String>,
    operations: BTreeSet<String>,
    /// The operations of all kinds so far.
    places: BTreeSet<(String, Reach, Situation)>,
}

type Baselines = BTreeMap<(&'static str, Situation), Baseline>;

/// Runs a part of the matrix, and compares its failures with the known ones. Panics if they differ, since this is the
/// body of a test.
#[allow(clippy::panic)]
pub fn run(kinds: &[Kind], part: Part, known: &Known) {
    let begin = Instant::now();
    let listed = known.read().unwrap_or_else(|error| panic!("{error}"));
    let (mut all, baselines) = cases(kinds);
    let whole = all.cases.len();
    // A part of the name of cases, for work on them.
    let only = std::env::var("CCM_MATRIX_ONLY").ok();
    if let Some(only) = &only {
        all.cases.retain(|(case, _)| case.name().contains(only));
    } else if part == Part::Sample {
        all.cases = sample(std::mem::take(&mut all.cases));
    }
    let results = run_all(&all.cases, &baselines, if part == Part::Sample { 1 } else { 2 });
    let report = Report::new(&all, &results);
    let troubles: BTreeSet<Trouble> = all.cases.iter().map(|(case, _)| case.trouble).collect();
    let situations: BTreeSet<Situation> = all.cases.iter().map(|(case, _)| case.situation).collect();
    println!(
        "{} cases of {whole} ({} operations x {} outcomes x {} situations), {} without the call, in {} s",
        all.cases.len(),
        all.operations.len(),
        troubles.len(),
        situations.len(),
        report.missed,
        begin.elapsed().as_secs()
    );
    println!("operations: {}", all.operations.iter().cloned().collect::<Vec<_>>().join(" "));
    for (reason, count) in &all.skipped {
        println!("skipped {count}: {reason}");
    }
    println!("{}", report.table());
    assert!(all.wrong.is_empty(), "{:#?}", all.wrong);
    let ran: BTreeSet<String> = all.cases.iter().map(|(case, _)| case.name()).collect();
    let is_whole = part == Part::All && only.is_none();
    let expected = listed.iter().filter(|failure| is_whole || ran.contains(&failure.case()));
    let expected: BTreeSet<Failure> = expected.cloned().collect();
    if std::env::var("UPDATE").is_ok() {
        let next = listed.difference(&expected).cloned().chain(report.failures).collect();
        return known.write(&next).unwrap_or_else(|error| panic!("{error}"));
    }
    let new: BTreeSet<Failure> = report.failures.difference(&expected).cloned().collect();
    let mended: BTreeSet<Failure> = expected.difference(&report.failures).cloned().collect();
    for failure in &new {
        println!("NEW {}", report.details.get(failure).map(String::as_str).unwrap_or_default());
    }
    assert!(new.is_empty(), "{} failures that are not in {}:\n{}", new.len(), known.0.display(), known::lines(&new));
    assert!(
        mended.is_empty(),
        "{} failures of {} pass now; take them out (UPDATE=1 does):\n{}",
        mended.len(),
        known.0.display(),
        known::lines(&mended)
    );
}

impl Case {
    fn name(&self) -> String {
        let Self { kind, operation, reach, trouble, situation } = self;
        format!("{} {} {reach} {situation} {trouble}", kind.name, operation.name)
    }
}

impl Failure {
    /// The name of its case.
    fn case(&self) -> String {
        let Self { kind, operation, reach, trouble, situation, .. } = self;
        format!("{kind} {operation} {reach} {situation} {trouble}")
    }
}

struct Report {
    failures: BTreeSet<Failure>,
    details: BTreeMap<Failure, String>,
    /// Cases in which the call did not happen.
    missed: usize,
}

impl Report {
    fn new(all: &Cases, results: &[Found]) -> Self {
        let mut report = Self { failures: BTreeSet::new(), details: BTreeMap::new(), missed: 0 };
        for ((case, _), found) in all.cases.iter().zip(results) {
            report.missed += usize::from(!found.struck && found.broken.is_empty());
            for (check, how) in &found.broken {
                let failure = Failure {
                    kind: case.kind.name.to_owned(),
                    operation: case.operation.name.clone(),
                    reach: case.reach,
                    situation: case.situation,
                    check: *check,
                    trouble: case.trouble,
                };
                report.details.insert(failure.clone(), format!("{} {check}: {how}", case.name()));
                report.failures.insert(failure);
            }
        }
        report
    }

    /// The number of failures by check, and by check and trouble.
    fn table(&self) -> String {
        let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for Failure { check, trouble, .. } in &self.failures {
            *counts.entry(check.as_str()).or_default().entry(trouble.as_str()).or_default() += 1;
        }
        let mut text = format!("{} failures", self.failures.len());
        for (check, troubles) in counts {
            let total: usize = troubles.values().sum();
            let words: Vec<String> = troubles.iter().map(|(trouble, count)| format!("{trouble} {count}")).collect();
            let _ = write!(text, "\n  {check} {total}: {}", words.join(", "));
        }
        text
    }
}

/// All cases of all kinds, from runs without a fault.
fn cases(kinds: &[Kind]) -> (Cases, Baselines) {
    let (mut all, mut baselines) = (Cases::default(), Baselines::new());
    let (mut table, mut unused, mut used) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    for kind in kinds {
        let cloud = match case::on_a_cloud(*kind, async |cloud, _| Ok(cloud)) {
            Ok(cloud) => cloud,
            Err(error) => {
                all.wrong.push(format!("{}: {error}", kind.name));
                continue;
            }
        };
        table.extend(cloud.table());
        unused.extend(cloud.unused().iter().copied());
        let most = [Situation::Ensure, Situation::Change, Situation::Delete];
        for situation in Situation::ALL.iter().filter(|situation| !kind.is_variant || most.contains(situation)) {
            // Without a fault, nothing is handed over.
            let same = baselines.get(&(kind.name, Situation::Ensure)).filter(|_| *situation == Situation::HandOver);
            match same.cloned().map_or_else(|| case::healthy(*kind, *situation), Ok) {
                Ok(baseline) => {
                    used.extend(baseline.calls.iter().map(|call| cloud.entry(&call.operation)));
                    all.add(*kind, &*cloud, *situation, &baseline);
                    baselines.insert((kind.name, *situation), baseline);
                }
                Err(error) => all.wrong.push(format!("{} {situation}: {error}", kind.name)),
            }
        }
    }
    for entry in &table {
        if !used.contains(entry) && !unused.contains_key(&**entry) {
            all.wrong.push(format!("{entry} is not in a healthy life"));
        }
    }
    for (entry, reason) in unused {
        *all.skipped.entry(format!("{entry}: {reason}")).or_default() += 1;
    }
    (all, baselines)
}

impl Cases {
    fn add(&mut self, kind: Kind, cloud: &dyn MatrixCloud, situation: Situation, baseline: &Baseline) {
        let table: BTreeSet<String> = cloud.table().into_iter().collect();
        let mut found: BTreeMap<(String, Reach), Operation> = BTreeMap::new();
        for (call, (is_hit, is_other)) in baseline.calls.iter().zip(&baseline.about) {
            let reach = match (is_hit, is_other) {
                (true, _) => Reach::Own,
                (false, true) => continue,
                (false, false) => Reach::Shared,
            };
            // Logins and metadata of the host are no operations of balancers.
            if !table.contains(&cloud.entry(&call.operation)) {
                continue;
            }
            self.operations.insert(call.operation.clone());
            let operation = found.entry((call.operation.clone(), reach)).or_insert_with(|| Operation {
                name: call.operation.clone(),
                writes: call.writes,
                continued: false,
            });
            operation.continued |= call.continued;
        }
        for ((_, reach), operation) in found {
            let place = (operation.name.clone(), reach, situation);
            if kind.is_variant && !self.places.insert(place.clone()) {
                *self.skipped.entry(format!("{}: a kind before it has the operation", kind.name)).or_default() += 1;
                continue;
            }
            self.places.insert(place);
            for trouble in Trouble::ALL {
                let case = Case { kind, operation: operation.clone(), reach, trouble: *trouble, situation };
                match cloud.effect(&operation, *trouble) {
                    Ok(effect) => self.cases.push((case, effect)),
                    Err(reason) => *self.skipped.entry(format!("{trouble}: {reason}")).or_default() += 1,
                }
            }
        }
    }
}

/// A few cases for each operation, so that all troubles and situations occur about equally often.
fn sample(cases: Vec<(Case, Effect)>) -> Vec<(Case, Effect)> {
    let mut groups: BTreeMap<String, Vec<(Case, Effect)>> = BTreeMap::new();
    for (case, effect) in cases {
        let group = format!("{} {}", case.operation.name, case.reach);
        groups.entry(group).or_default().push((case, effect));
    }
    let (mut troubles, mut situations) = (BTreeMap::new(), BTreeMap::new());
    let mut chosen = Vec::new();
    for group in groups.into_values() {
        let count = |case: &Case| {
            let trouble: usize = troubles.get(&case.trouble).copied().unwrap_or_default();
            let situation: usize = situations.get(&case.situation).copied().unwrap_or_default();
            (trouble, situation)
        };
        let Some(best) = group.into_iter().min_by_key(|(case, _)| count(case)) else { continue };
        *troubles.entry(best.0.trouble).or_default() += 1;
        *situations.entry(best.0.situation).or_default() += 1;
        chosen.push(best);
    }
    chosen
}

/// Runs the cases on some threads; the results are in their order.
fn run_all(cases: &[(Case, Effect)], baselines: &Baselines, threads: usize) -> Vec<Found> {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Found>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some((case, effect)) = cases.get(at)
                    && let Some(baseline) = baselines.get(&(case.kind.name, case.situation))
                {
                    let found = case::run(case, effect, baseline);
                    let mut results = results.lock();
                    results.insert(at, found);
                    if results.len().is_multiple_of(100) {
                        println!("{} of {} cases", results.len(), cases.len());
                    }
                }
            });
        }
    });
    results.into_inner().into_values().collect()
}
