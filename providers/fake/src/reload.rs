//! A file that is reread when it changes.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Distinguishes states of a file without reading it, by modification time, size and inode. Follows symbolic links.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stamp {
    /// There is a file.
    ///
    /// The last number is inode and device; 0 if the system has none.
    File { modified: Option<SystemTime>, size: u64, inode: (u64, u64) },
    /// There is no file, or it cannot be read.
    Unreadable(std::io::ErrorKind),
}

impl Stamp {
    /// The current state of the file.
    fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or_else(|error| Self::Unreadable(error.kind()), |data| Self::from_metadata(&data))
    }

    fn from_metadata(data: &Metadata) -> Self {
        Self::File { modified: data.modified().ok(), size: data.len(), inode: inode(data) }
    }
}

#[cfg(unix)]
fn inode(data: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (data.ino(), data.dev())
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// A file and the value parsed from its last valid content.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    path: PathBuf,
    seen: Option<Stamp>,
    current: Arc<T>,
}

/// The result of polling a [`Watched`] file.
#[derive(Debug)]
pub(crate) enum Change<T> {
    /// No change.
    None,
    /// New content, which is now in use.
    Reloaded {
        /// The old value.
        old: Arc<T>,
        /// The new value.
        new: Arc<T>,
    },
    /// The file changed but is invalid; the last valid value stays. Reported once per [`Stamp`].
    Refused(String),
}

impl<T> Watched<T> {
    /// A file whose content `text` was already read and parsed into `value`. If the file has changed since, the first
    /// [`Watched::poll`] rereads it.
    pub(crate) fn new(path: impl Into<PathBuf>, text: &str, value: T) -> Self {
        let path = path.into();
        let seen = match read(&path) {
            (stamp, Ok(now)) if now == text => Some(stamp),
            (_, Ok(_)) => None,
            (stamp, Err(_)) => Some(stamp),
        };
        Self { path, seen, current: Arc::new(value) }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The value parsed from the last valid content.
    pub(crate) fn current(&self) -> &Arc<T> {
        &self.current
    }

    /// Checks the file, and parses it again with `parse` if its stamp has changed.
    pub(crate) fn poll<E: std::fmt::Display>(&mut self, parse: impl FnOnce(&str) -> Result<T, E>) -> Change<T> {
        if self.seen.as_ref() == Some(&Stamp::of(&self.path)) {
            return Change::None;
        }
        let (stamp, text) = read(&self.path);
        self.seen = Some(stamp);
        let parsed = text.and_then(|text| parse(&text).map_err(|error| error.to_string()));
        match parsed {
            Ok(value) => {
                let new = Arc::new(value);
                let old = std::mem::replace(&mut self.current, Arc::clone(&new));
                Change::Reloaded { old, new }
            }
            Err(error) => Change::Refused(error),
        }
    }
}

/// The stamp is taken from the opened file before reading, so that it is never newer than the content: the next check
/// detects a write in between.
fn read(path: &Path) -> (Stamp, Result<String, String>) {
    let refuse = |error: std::io::Error| (Stamp::Unreadable(error.kind()), Err(error.to_string()));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return refuse(error),
    };
    let stamp = match file.metadata() {
        Ok(data) => Stamp::from_metadata(&data),
        Err(error) => return refuse(error),
    };
    let mut text = String::new();
    let result = file.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string());
    (stamp, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<i32, String> {
        text.parse().map_err(|_| format!("not a number: {text}"))
    }

    #[test]
    fn a_change_between_the_first_read_and_the_first_look_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "2").unwrap();
        let mut file = Watched::new(&path, "1", 1);
        assert!(matches!(file.poll(number), Change::Reloaded { .. }));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_as_in_a_config_map_volume() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("v1"), "1").unwrap();
        std::fs::write(at("v2"), "2").unwrap();
        std::os::unix::fs::symlink("v1", at("f")).unwrap();
        let mut file = Watched::new(at("f"), "1", 1);
        std::os::unix::fs::symlink("v2", at("next")).unwrap();
        std::fs::rename(at("next"), at("f")).unwrap();
        assert!(matches!(file.poll(number), Change::Reloaded { new, .. } if *new == 2));
    }
}
