//! What scripts of `hack/` have put into the cache: descriptions of APIs, and Python environments.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{env, fs};

use parking_lot::Mutex;

/// The folder of a script: its name, and the version of its main package, from the pins of all.
pub(crate) fn folder(name: &str, package: &str, pins: &str) -> Option<PathBuf> {
    let version = pins.lines().find_map(|line| line.strip_prefix(package)?.strip_prefix("=="))?;
    let root = env::var_os("XDG_CACHE_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(root.join("ccm").join(format!("{name}-{version}")))
}

/// The folder, if it is complete; else see [`not_here`]. The script copies its pins last: a folder with other versions,
/// or an incomplete one, is ignored.
pub(crate) fn complete(folder: Option<PathBuf>, pins: &str, reason: &str) -> io::Result<Option<PathBuf>> {
    let has_pins = |folder: &PathBuf| fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|had| had == pins);
    match folder.filter(has_pins) {
        Some(folder) => Ok(Some(folder)),
        None => not_here(reason).map(|()| None),
    }
}

/// What the tests of a process share.
pub(crate) type Shared<T> = OnceLock<Result<Option<Arc<T>>, String>>;

/// Reads it with the first call.
pub(crate) fn once<T>(shared: &Shared<T>, read: impl FnOnce() -> io::Result<Option<T>>) -> io::Result<Option<Arc<T>>> {
    let read = || read().map(|read| read.map(Arc::new)).map_err(|error| error.to_string());
    shared.get_or_init(read).clone().map_err(io::Error::other)
}

/// Reports a missing component on stderr, bypassing the test harness, which would capture it; an error if `CI=true` is
/// set.
pub(crate) fn not_here(reason: &str) -> io::Result<()> {
    if env::var("CI").is_ok_and(|value| value == "true") {
        return Err(io::Error::other(reason));
    }
    // Once per reason: a line per test would be noise.
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if REPORTED.lock().insert(reason.to_owned()) {
        io::stderr().write_all(format!("\nNOT RUN: {reason}\n").as_bytes())?;
    }
    Ok(())
}
