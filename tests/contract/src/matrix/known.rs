//! The list of known failures: a line for each operation, situation, reach and check, with the troubles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{Check, Reach, Situation, Trouble};

/// A failure of a case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Failure {
    pub(super) kind: String,
    pub(super) operation: String,
    pub(super) reach: Reach,
    pub(super) situation: Situation,
    pub(super) check: Check,
    pub(super) trouble: Trouble,
}

/// The file with the known failures of a cloud.
#[derive(Debug, Clone)]
pub struct Known(pub PathBuf);

impl Known {
    /// The file `tests/it/matrix/known.txt` of a crate.
    pub fn of(manifest_dir: &str) -> Self {
        Self(PathBuf::from(manifest_dir).join("tests/it/matrix/known.txt"))
    }

    /// Reads the file. A missing one is empty.
    pub(super) fn read(&self) -> Result<BTreeSet<Failure>, String> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", self.0.display())),
        };
        let mut failures = BTreeSet::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parsed = parse(line).ok_or_else(|| format!("{}: {line}", self.0.display()))?;
            failures.extend(parsed);
        }
        Ok(failures)
    }

    pub(super) fn write(&self, failures: &BTreeSet<Failure>) -> Result<(), String> {
        // Comments say why a failure stays.
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let comments: String =
            text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let write = || {
            if failures.is_empty() {
                return std::fs::remove_file(&self.0).or(Ok(()));
            }
            if let Some(folder) = self.0.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&self.0, comments + &lines(failures))
        };
        write().map_err(|error: std::io::Error| format!("{}: {error}", self.0.display()))
    }
}

/// The failures as text.
pub(super) fn lines(failures: &BTreeSet<Failure>) -> String {
    let mut lines: BTreeMap<String, BTreeSet<Trouble>> = BTreeMap::new();
    for Failure { kind, operation, reach, situation, check, trouble } in failures {
        let line = format!("{kind} {operation} {reach} {situation} {check}");
        lines.entry(line).or_default().insert(*trouble);
    }
    let words = |troubles: BTreeSet<Trouble>| troubles.into_iter().map(Trouble::as_str).collect::<Vec<_>>().join(" ");
    lines.into_iter().map(|(line, troubles)| format!("{line}: {}\n", words(troubles))).collect()
}

fn parse(line: &str) -> Option<Vec<Failure>> {
    // Operations have a colon, too.
    let (head, troubles) = line.split_once(": ")?;
    let words: Vec<&str> = head.split(' ').collect();
    let [kind, operation, reach, situation, check] = words[..] else { return None };
    let (reach, situation) = (Reach::from_word(reach)?, Situation::from_word(situation)?);
    let check = Check::from_word(check)?;
    let failure = |trouble| {
        let (kind, operation) = (kind.to_owned(), operation.to_owned());
        Some(Failure { kind, operation, reach, situation, check, trouble: Trouble::from_word(trouble)? })
    };
    troubles.split(' ').map(failure).collect()
}
