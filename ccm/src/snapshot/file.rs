//! Reads and writes snapshot files.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::error::Category;

use super::{Document, KIND, VERSION};
use crate::exit::Failure;

/// Means stdin or stdout.
pub(crate) const STANDARD: &str = "-";
/// Other names of stdout. Their targets must be written to, not replaced.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// The maximum length of a chain of links. Source: Linux, `MAXSYMLINKS`.
const LINKS: usize = 40;
/// A cluster of 5000 nodes needs about 30 MB.
const LARGEST: u64 = 1 << 30;

/// The fields for the error message that names a program that can read the file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    kind: serde_json::Value,
    version: serde_json::Value,
    ccm: serde_json::Value,
}

pub(crate) fn is_stdout(path: &str) -> bool {
    path == STANDARD || STDOUT.contains(&path)
}

pub(crate) fn text(document: &Document) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document);
    text.map(|text| text + "\n")
        .map_err(|error| Failure::error(format!("the snapshot cannot be written as JSON: {error}")))
}

/// Writes the file atomically, readable by its owner only. Symlinks are followed.
pub(crate) fn write(path: &str, text: &str) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::error(format!("cannot write the snapshot {path}: {error}"));
    if path.is_empty() {
        return Err(failed(&"the name is empty; give a name, or - for stdout"));
    }
    let target = &followed(Path::new(path));
    match fs::metadata(target) {
        Ok(there) if there.is_dir() => return Err(failed(&"it is a directory; name a file in it")),
        Ok(there) if !there.is_file() => return Err(failed(&"it is not a regular file; for stdout give -")),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&error)),
        _ => {}
    }
    let (temporary, mut file) = beside(target).map_err(|error| failed(&error))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&temporary, target));
    written.map_err(|error| {
        // A partial snapshot is useless.
        drop(fs::remove_file(&temporary));
        failed(&error)
    })
}

/// The final target of a link, whether it exists or not.
fn followed(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = target.with_file_name("").join(next),
            Err(_) => break,
        }
    }
    target
}

/// A new file in the same folder.
fn beside(target: &Path) -> std::io::Result<(PathBuf, File)> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = target.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    // Removes the file of a crashed process with this PID, and does not follow a link.
    drop(fs::remove_file(&temporary));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    Ok((temporary, file))
}

/// Reads a snapshot; the error describes the problem with the file.
pub(crate) fn read(path: &str) -> Result<Document, Failure> {
    let failed = |error: &String| Failure::error(format!("--from-snapshot={path}: {error}"));
    let bytes = bytes(path).map_err(|error| failed(&error))?;
    parse(&bytes).map_err(|error| failed(&error))
}

fn bytes(path: &str) -> Result<Vec<u8>, String> {
    let open = |path: &str| File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let mut bytes = Vec::new();
    let too_large = || format!("it is larger than {} MiB, which no snapshot is", LARGEST >> 20);
    let read = if path == STANDARD {
        std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        let (there, file) = open(path).map_err(|error| error.to_string())?;
        if there.is_dir() {
            return Err("it is a directory; name the file that `ccm snapshot` wrote".into());
        }
        if there.len() > LARGEST {
            return Err(too_large());
        }
        file.take(LARGEST + 1).read_to_end(&mut bytes)
    };
    read.map_err(|error| error.to_string())?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LARGEST) {
        return Err(too_large());
    }
    Ok(bytes)
}

/// The document in these bytes.
///
/// # Errors
///
/// The problem, with its path in the document.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty; take the snapshot again with `ccm snapshot`".into());
    }
    let header: Header = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Eof => format!("it is truncated ({error}); copy it again, or take it again with `ccm snapshot`"),
        Category::Data => "it is not a JSON object; expected a file that `ccm snapshot` wrote".into(),
        Category::Io | Category::Syntax => {
            format!("it is not JSON ({error}); expected a file that `ccm snapshot` wrote")
        }
    })?;
    match header.kind.as_str() {
        Some(KIND) => {}
        Some(kind) => return Err(format!("kind {kind:?}: expected {KIND:?}, the file that `ccm snapshot` wrote")),
        None => return Err(format!("it has no kind {KIND:?}; expected a file that `ccm snapshot` wrote")),
    }
    match header.version.as_u64() {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) if version > u64::from(VERSION) => {
            let ccm = header.ccm.as_str().unwrap_or("of a newer version");
            return Err(format!(
                "version {version} of the format is newer than this program, which reads {VERSION}; it was written by ccm {ccm}: use that one, or a newer one"
            ));
        }
        _ => return Err(format!("version {}: expected {VERSION}", header.version)),
    }
    let reader = &mut serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.into_inner());
        // An error of the whole document has no path.
        if path == "." { error.to_string() } else { format!("{path}: {error}") }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn good() -> Value {
        json!({
            "kind": KIND, "version": VERSION, "ccm": "v1", "taken": "2026-01-02T03:04:05.000000006Z", "redacted": 0,
            "provider": {"name": "fake"}, "flags": {"cloud-provider": ["fake"]}, "plan": {},
            "nodes": [{"name": "a", "labels": {"kubernetes.io/arch": "x"}, "networkUnavailable": ["True", "x"]}],
            "services": [{"metadata": {"name": "s", "namespace": "d"}, "spec": {"ports": [{"port": 1}]}}],
            "answers": {"instances": {"providerIdRequired": true, "lookups": {"a": {"metadata": {"unknown": "instanceNotFound"}}}}}
        })
    }

    #[test]
    fn a_written_file_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json").display().to_string();
        let document = parse(good().to_string().as_bytes()).unwrap();
        let written = text(&document).unwrap();
        fs::write(&path, "older").unwrap();
        write(&path, &written).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(text(&read(&path).unwrap()).unwrap(), written);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        assert!(written.starts_with("{\n  \"kind\": \"Snapshot\",\n  \"version\": 1,"), "{written}");
    }

    #[test]
    fn a_link_stays_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("kept")).unwrap();
        fs::write(at("kept/there.json"), "older").unwrap();
        for (link, to) in [("a.json", "kept/there.json"), ("b.json", "a.json"), ("c.json", "kept/new.json")] {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
            write(&at(link).display().to_string(), link).unwrap();
            assert_eq!(fs::read_link(at(link)).unwrap(), Path::new(to));
            assert_eq!(fs::read_to_string(at(link)).unwrap(), link);
        }
        assert_eq!(fs::read_to_string(at("kept/there.json")).unwrap(), "b.json");
        assert_eq!(fs::read_dir(at("kept")).unwrap().count(), 2, "nothing else is left");
        // A loop has no target.
        std::os::unix::fs::symlink("round", at("round")).unwrap();
        assert!(write(&at("round").display().to_string(), "x").is_err());
        assert_eq!(fs::read_link(at("round")).unwrap(), Path::new("round"));
    }

    #[test]
    fn any_truncation_is_an_error() {
        let whole = text(&parse(good().to_string().as_bytes()).unwrap()).unwrap();
        let whole = whole.trim_end().as_bytes();
        for end in 0..whole.len() {
            let error = parse(&whole[..end]).unwrap_err();
            assert!(error.contains("truncated") || error.contains("empty"), "{end}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_change_of_a_file_makes_the_reader_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = good().to_string().into_bytes();
            for (at, byte) in changes {
                *at.get_mut(&mut bytes) = byte;
            }
            if let Err(error) = parse(&bytes) {
                prop_assert!(!error.is_empty());
            }
        }
    }
}
