//! The clauses, by area.

mod balancers;
mod groups;
mod instances;
mod recovery;
mod routes;
mod start;
mod volumes;

use std::sync::Arc;

use futures::future::LocalBoxFuture;

use crate::{Harness, Result};

/// A property on which the core relies.
pub struct Clause {
    /// The property, as a test name.
    pub name: &'static str,
    /// The reason why the core relies on it.
    pub text: &'static str,
    pub(crate) check: fn(Arc<dyn Harness>) -> LocalBoxFuture<'static, Result>,
}

impl std::fmt::Debug for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clause").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All clauses.
pub fn clauses() -> &'static [Clause] {
    crate::contract! { @list table () }
}

/// Strings that parsers often get wrong.
pub(crate) const HOSTILE: &[&str] = &[
    "",
    " ",
    "\0",
    "-",
    "--",
    "/",
    "//",
    "://",
    ":",
    "..",
    "../../etc/passwd",
    "%s%n%00",
    "a b\tc\nd",
    "\"'`$(reboot){{}}",
    "\u{feff}\u{202e}ünïcödé\u{1f4a9}",
    "null",
    "true",
    "0",
    "-1",
    "99999999999999999999999999",
    "1e309",
    "NaN",
    "0.0.0.0/0,",
    "300.1.1.1/33",
    "::ffff:1.2.3.4/200",
    "{\"a\":[",
    "a=b,c==d,,=",
];
