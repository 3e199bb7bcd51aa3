//! Command line and files.

use std::ffi::OsString;
use std::path::PathBuf;

use ccm::Program;
use ccm::options::migration::Migration;
use ccm::options::parse::{self, Asked};
use ccm::options::Options;
use ccm_provider::CloudConfig;

/// Arguments, one a line.
pub(crate) fn flags(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let program = Program::default();
    let args = std::iter::once("ccm").chain(text.lines()).map(OsString::from);
    let values = match parse::parse(&program, args) {
        Ok(Asked::Run(values)) => values,
        Ok(Asked::Print(text)) => return assert!(!text.is_empty()),
        Err(failure) => return assert!(!failure.message.is_empty()),
    };
    match Options::new(&values, &program) {
        Ok(options) => assert!(!options.cloud_provider.is_empty()),
        Err(failure) => assert!(!failure.message.is_empty()),
    }
}

/// The file of `--leader-migration-config`.
pub(crate) fn migration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Migration::parse(text) {
        Ok(migration) => {
            let known: [(&str, &[&str]); 2] = [("service-lb-controller", &["service"]), ("node-route-controller", &[])];
            for (name, aliases) in known {
                assert_eq!(migration.lease_of(name, aliases), migration.lease_of(name, aliases));
            }
            let unmatched = migration.unmatched(&known);
            assert!(unmatched.len() <= migration.entries.len());
        }
        Err(error) => assert!(!error.is_empty()),
    }
}

/// YAML as all configuration files are read.
pub(crate) fn document(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match ccm_kit::document::parse(text) {
        Ok(tree) => {
            let json = tree.to_string();
            let again = ccm_kit::document::parse(&json).expect("JSON is YAML");
            assert_eq!(tree, again, "read again from {json}");
        }
        Err(error) => assert!(!error.problems().is_empty()),
    }
}

/// The file of the fake cloud.
pub(crate) fn cloud_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // These name files that would be written.
    let files = ["callLog", "stateFile"];
    match ccm_kit::document::parse(text) {
        Ok(tree) if files.iter().any(|key| tree.get(key).is_some_and(|value| !value.is_null())) => return,
        _ => {}
    }
    let config = CloudConfig { path: PathBuf::from("/nowhere/cloud.yaml"), text: text.to_owned() };
    if let Err(error) = ccm_provider_fake::Fake::new(Some(&config)) {
        assert!(error.to_string().starts_with("/nowhere/cloud.yaml: "), "{error}");
    }
}
