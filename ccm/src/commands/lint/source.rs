//! The texts to check: files, folders, stdin.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// The path as given, or [`STDIN`].
    pub(super) name: String,
    pub(super) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) name: String,
    pub(super) error: String,
}

/// The name of the text from stdin.
pub(super) const STDIN: &str = "<stdin>";
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads all inputs given as arguments; continues after one that cannot be read.
pub(super) fn read(words: &[String]) -> (Vec<Source>, Vec<Unread>) {
    let (mut sources, mut unread) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for word in words {
        if word == "-" {
            if seen.insert(PathBuf::from(STDIN)) {
                let mut bytes = Vec::new();
                let read = std::io::stdin().lock().read_to_end(&mut bytes);
                add(STDIN, read.map(|_| bytes), &mut sources, &mut unread);
            }
            continue;
        }
        for path in files(Path::new(word), &mut unread) {
            if seen.insert(path.strip_prefix("./").unwrap_or(&path).to_owned()) {
                add(&path.display().to_string(), std::fs::read(&path), &mut sources, &mut unread);
            }
        }
    }
    (sources, unread)
}

/// Reads an input that must be one file.
pub(super) fn read_one(word: &str) -> (Vec<Source>, Vec<Unread>) {
    if Path::new(word).is_dir() {
        let error = "is a folder; name the file in it".to_owned();
        return (Vec::new(), vec![Unread { name: word.to_owned(), error }]);
    }
    read(&[word.to_owned()])
}

fn add(name: &str, read: std::io::Result<Vec<u8>>, sources: &mut Vec<Source>, unread: &mut Vec<Unread>) {
    let text = read.map_err(|error| error.to_string()).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| {
            format!("not UTF-8 text: byte {} is none; save it as UTF-8", error.utf8_error().valid_up_to() + 1)
        })
    });
    match text {
        Ok(text) => sources.push(Source { name: name.to_owned(), text }),
        Err(error) => unread.push(Unread { name: name.to_owned(), error }),
    }
}

/// The file itself, or all files with a manifest extension in a folder and its subfolders, sorted. Hidden files and
/// links to folders are skipped: a mounted ConfigMap would be read twice.
fn files(path: &Path, unread: &mut Vec<Unread>) -> Vec<PathBuf> {
    let mut failed = |path: &Path, error: &std::io::Error| {
        unread.push(Unread { name: path.display().to_string(), error: error.to_string() });
    };
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => return vec![path.to_owned()],
        Ok(_) => {}
        Err(error) => {
            failed(path, &error);
            return Vec::new();
        }
    }
    let (mut folders, mut files) = (vec![path.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => {
                failed(&folder, &error);
                continue;
            }
        };
        for entry in entries {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if !hidden && is_folder {
                folders.push(path);
            } else if !hidden && ENDINGS.contains(&ending) && path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_is_read_with_those_below_it_in_order_and_nothing_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for inner in ["b", ".git", "b/c"] {
            fs::create_dir(at(inner)).unwrap();
        }
        for file in ["z.yaml", "a.json", "notes.txt", ".x.yaml", ".git/y.yaml", "b/c/k.yml", "b/a.yaml"] {
            fs::write(at(file), file).unwrap();
        }
        std::os::unix::fs::symlink(at("b"), at("again")).unwrap();
        let word = folder.path().display().to_string();
        let (sources, unread) = read(&[word.clone(), at("notes.txt").display().to_string(), word]);
        let texts: Vec<&str> = sources.iter().map(|source| source.text.as_str()).collect();
        assert_eq!(texts, ["a.json", "b/a.yaml", "b/c/k.yml", "z.yaml", "notes.txt"]);
        assert_eq!(unread, []);
    }

    #[test]
    fn where_one_file_is_meant_a_folder_is_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "a: 1").unwrap();
        let (sources, unread) = read_one(&folder.path().display().to_string());
        assert_eq!((sources, &*unread[0].error), (Vec::new(), "is a folder; name the file in it"));
        let (sources, _) = read_one(&folder.path().join("a.yaml").display().to_string());
        assert_eq!(sources[0].text, "a: 1");
    }
}
