//! The cloud: JSON files in a folder.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ccm_kit::document::{self, DocumentError};
use ccm_kit::{Problems, Value};
use ccm_provider::{CloudConfig, ProviderError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The folder and its configuration.
#[derive(Debug)]
pub(crate) struct Rack {
    folder: PathBuf,
    /// Addresses for load balancers.
    pub(crate) addresses: Vec<IpAddr>,
    changing: Mutex<()>,
}

impl Rack {
    /// Reads the configuration. All problems are reported at once, each with its key.
    pub(crate) fn new(config: &CloudConfig, folder: &str) -> Result<Self, DocumentError> {
        let tree = document::parse(&config.text)?;
        let problems = Problems::default();
        let (mut directory, mut addresses) = (None, Vec::new());
        if let Some(mut fields) = Value::root(&tree, &problems).fields() {
            directory = fields.text("directory");
            for value in fields.list("addresses") {
                match value.text().unwrap_or_default().parse() {
                    Ok(address) => addresses.push(address),
                    Err(_) => value.problem("expected an IP address"),
                }
            }
            if directory.is_none() && folder.is_empty() {
                fields.problem("directory", "is needed: the folder of the rack");
            }
        }
        problems.into_result()?;
        let folder = if folder.is_empty() { directory.unwrap_or_default() } else { folder.to_owned() };
        let beside = config.path.parent().unwrap_or(Path::new(""));
        Ok(Self { folder: beside.join(folder), addresses, changing: Mutex::default() })
    }

    /// Held from a read to the dependent write: two Services must not get the same address. Never over an `await`.
    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One object. `None` is positive knowledge: the folder exists, and the file does not.
    pub(crate) fn read<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Result<Option<T>, ProviderError> {
        Ok(self.list(kind)?.into_iter().find(|(other, _)| other == name).map(|(_, object)| object))
    }

    /// All objects of a kind, by name. A missing folder or an unreadable file is an error of the whole read: a list
    /// that may be incomplete must never look complete.
    pub(crate) fn list<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<(String, T)>, ProviderError> {
        let folder = self.folder.join(kind);
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            ProviderError::unknown(format!("cannot read {}: {error}", path.display()))
        };
        let mut objects = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) else { continue };
            let text = std::fs::read(&path).map_err(|error| failed(&path, &error))?;
            objects.push((name.to_owned(), serde_json::from_slice(&text).map_err(|error| failed(&path, &error))?));
        }
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(objects)
    }

    /// Writes an object atomically.
    pub(crate) fn write(&self, kind: &str, name: &str, object: &impl Serialize) -> Result<(), ProviderError> {
        let path = self.folder.join(kind).join(format!("{name}.json"));
        let next = path.with_extension("next");
        let text = serde_json::to_vec_pretty(object).map_err(|error| ProviderError::bug(error.to_string()))?;
        std::fs::write(&next, text)
            .and_then(|()| std::fs::rename(&next, &path))
            .map_err(|error| ProviderError::unknown(format!("cannot write {}: {error}", path.display())))
    }

    /// Removes an object that was read before.
    pub(crate) fn remove(&self, kind: &str, name: &str) -> Result<(), ProviderError> {
        let path = self.folder.join(kind).join(format!("{name}.json"));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ProviderError::unknown(format!("cannot remove {}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }
}
