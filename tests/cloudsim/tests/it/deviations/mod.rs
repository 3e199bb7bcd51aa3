//! Known differences between the answers of two clouds to the same cases: the tables, and their check.

pub(crate) mod moto;
pub(crate) mod openstack;

use std::collections::BTreeSet;
use std::io::Write as _;

use wildmatch::WildMatch;

/// A known difference. In the case and its lines, `*` matches anything.
#[derive(Debug)]
pub(crate) struct Deviation {
    case: &'static str,
    /// The lines of the case.
    lines: &'static [&'static str],
    /// The reason for the difference, and why it is not corrected.
    reason: &'static str,
    /// The vendor's document that decides, if the other cloud is wrong.
    pub(crate) document: &'static str,
}

const fn differs(case: &'static str, lines: &'static [&'static str], reason: &'static str) -> Deviation {
    Deviation { case, lines, reason, document: "" }
}

impl Deviation {
    const fn decided_by(self, document: &'static str) -> Self {
        Self { document, ..self }
    }
}

fn like(text: &str, pattern: &str) -> bool {
    WildMatch::new(pattern).matches(text)
}

/// Checks that case names are unique, and that each entry of the table matches a case and has a reason.
pub(crate) fn check_names(names: &[&str], table: &[Deviation]) {
    let unique: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    for Deviation { case, lines, reason, .. } in table {
        assert!(names.iter().any(|name| like(name, case)), "the table names the unknown case {case:?}");
        assert!(!lines.is_empty() && !reason.is_empty(), "{case:?} says too little");
    }
}

/// Fails for each line that is not in the table. The lines begin with the name of the case.
pub(crate) fn check(table: &[Deviation], found: &[String]) {
    let of = |entry: &Deviation| entry.lines.iter().map(|line| format!("{}: {line}", entry.case)).collect::<Vec<_>>();
    let patterns: Vec<String> = table.iter().flat_map(of).collect();
    for pattern in patterns.iter().filter(|pattern| !found.iter().any(|line| like(line, pattern))) {
        // The other cloud was fixed, which is not a failure. Printed directly, because the test harness would capture
        // it.
        let notice = format!("\nNOTICE: this differs no longer; take it out of the table: {pattern:?}\n");
        std::io::stderr().write_all(notice.as_bytes()).expect("stderr");
    }
    let new = found.iter().filter(|line| !patterns.iter().any(|pattern| like(line, pattern)));
    let new: Vec<&str> = new.map(String::as_str).collect();
    assert!(new.is_empty(), "new differences:\n{}", new.join("\n"));
}
