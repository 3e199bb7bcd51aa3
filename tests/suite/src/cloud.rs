//! The file of the fake cloud and its call log.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with the cloud's file, its call log, and files that hold calls.
#[derive(Debug)]
pub struct Cloud {
    folder: TempDir,
    header: String,
}

impl Cloud {
    /// A cloud with this YAML, after a line for the call log.
    pub fn new(provider_name: &str, yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let header = format!("callLog: calls.jsonl\nproviderName: {provider_name}\n");
        let cloud = Self { folder, header };
        cloud.write(yaml);
        cloud
    }

    /// The path for `--cloud-config`.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("cloud.yaml")
    }

    /// A path next to the file, as in `hold: <name>`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the content, which applies from the next call.
    pub fn write(&self, yaml: &str) {
        self.write_raw(&format!("{}{yaml}\n", self.header));
    }

    /// The same without the lines that [`Cloud::write`] adds.
    pub fn write_raw(&self, text: &str) {
        replace(&self.file(), text);
    }

    /// Creates the file that calls of rules with `hold: <name>` wait for, until the returned function is called.
    pub fn hold(&self, name: &str) -> impl FnOnce() + use<> {
        let path = self.path(name);
        std::fs::write(&path, "").unwrap();
        move || std::fs::remove_file(path).unwrap()
    }

    /// All lines of the call log.
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("calls.jsonl")).unwrap_or_default();
        // The provider may be writing the last line.
        let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        complete.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The started calls with this name, in order; a batch call has both of its names.
    pub fn calls(&self, name: &str) -> Vec<Value> {
        let named = |line: &Value| line["call"] == name || line["as"] == name;
        self.log().into_iter().filter(|line| line["phase"] == "start" && named(line)).collect()
    }

    /// The ended calls with this name, in order.
    pub fn ended(&self, name: &str) -> Vec<Value> {
        let named = |line: &Value| line["call"] == name || line["as"] == name;
        self.log().into_iter().filter(|line| line["phase"] == "end" && named(line)).collect()
    }

    /// The number of calls with this name for this node.
    pub fn calls_for(&self, name: &str, node: &str) -> usize {
        let about = |line: &&Value| {
            let many = line["args"]["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(|n| n == node));
            many || line["args"]["node"] == node
        };
        self.calls(name).iter().filter(about).count()
    }
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, path).unwrap();
}
