//! Filters entries, once per call site and again when the verbosity changes.

use std::sync::atomic::{AtomicU32, Ordering};

use ccm_kit::Glob;
use tracing::{Level, Metadata};

use super::VmoduleItem;

/// Crates (or prefixes of their names) whose logs concern their internals.
const LIBRARIES: [&str; 18] = [
    "aws_",
    "azure_",
    "google_",
    "h2",
    "http",
    "hyper",
    "kube",
    "log",
    "mio",
    "opentelemetry",
    "polling",
    "reqwest",
    "rustls",
    "tokio",
    "tonic",
    "tower",
    "tracing",
    "want",
];

#[derive(Debug)]
pub(super) struct Filter {
    verbosity: AtomicU32,
    vmodule: Vec<(Glob, u32)>,
    quiet: bool,
}

impl Filter {
    pub(super) fn new(verbosity: u32, vmodule: &[VmoduleItem], quiet: bool) -> Self {
        let vmodule = vmodule.iter().map(|item| (Glob::new(&item.pattern), item.verbosity)).collect();
        Self { verbosity: AtomicU32::new(verbosity), vmodule, quiet }
    }

    /// Changes the verbosity of a running program, with immediate effect.
    pub(super) fn set(&self, verbosity: u32) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    pub(super) fn shows(&self, meta: &Metadata<'_>) -> bool {
        let needed = needed(meta.target(), *meta.level()).max(u32::from(self.quiet));
        needed == 0
            || needed <= self.verbosity.load(Ordering::Relaxed)
            || meta.file().is_some_and(|file| needed <= self.of_file(file))
    }

    fn of_file(&self, path: &str) -> u32 {
        let mut parts = path.rsplit('/');
        let file = parts.next().map_or("", |name| name.strip_suffix(".rs").unwrap_or(name));
        let folder = if file == "mod" { parts.next() } else { None };
        let mut patterns = self.vmodule.iter();
        let found = patterns.find(|(glob, _)| glob.matches(file) || folder.is_some_and(|folder| glob.matches(folder)));
        found.map_or(0, |(_, verbosity)| *verbosity)
    }
}

/// The lowest verbosity at which an entry is shown.
pub(super) fn needed(target: &str, level: Level) -> u32 {
    let library = LIBRARIES.iter().any(|name| target.starts_with(name));
    match (library, level) {
        (_, Level::ERROR | Level::WARN) | (false, Level::INFO) => 0,
        (false, Level::DEBUG) => 2,
        (false, _) => 6,
        (true, Level::TRACE) => 10,
        (true, _) => 8,
    }
}
