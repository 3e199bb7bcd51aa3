//! Command line and files of the program.

use std::ffi::OsString;

use ccm::Program;
use ccm::options::Options;
use ccm::options::migration::Migration;
use ccm::options::parse::{self, Asked};

/// Arguments, one per line.
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
