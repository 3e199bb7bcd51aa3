//! Results of clauses.

use std::fmt;

use crate::Clause;

/// The result of a clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider keeps the clause.
    Kept,
    /// The provider breaks the clause; describes how.
    Broken(String),
    /// The provider breaks the clause on purpose.
    Deviates {
        /// The observation.
        how: String,
        /// The author's reason.
        why: &'static str,
    },
    /// It does not apply to this cloud or its harness.
    NotApplicable(&'static str),
}

/// The return type of a clause.
pub type Result<T = ()> = std::result::Result<T, Outcome>;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Broken(how) => write!(f, "BROKEN: {how}"),
            Self::Deviates { how, why } => write!(f, "deviates, because {why}: {how}"),
            Self::NotApplicable(why) => write!(f, "not applicable: {why}"),
        }
    }
}

/// The results of all clauses.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of [`crate::clauses`].
    pub results: Vec<(&'static Clause, Outcome)>,
}

impl Report {
    /// Names of the broken clauses.
    pub fn broken(&self) -> Vec<&'static str> {
        let broken = self.results.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Broken(_)));
        broken.map(|(clause, _)| clause.name).collect()
    }

    /// Names of the clauses that did not apply.
    pub fn not_applicable(&self) -> Vec<&'static str> {
        let left_out = self.results.iter().filter(|(_, outcome)| matches!(outcome, Outcome::NotApplicable(_)));
        left_out.map(|(clause, _)| clause.name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (clause, outcome) in &self.results {
            writeln!(f, "{}: {outcome}", clause.name)?;
        }
        Ok(())
    }
}
