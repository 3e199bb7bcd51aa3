//! Checks of the file without a cloud.

use std::path::Path;

use ccm_provider::{Finding, Lint, Service};

use crate::config::Config;

#[cfg(test)]
mod tests;

/// The key of findings about the whole file.
const WHOLE: &str = "cloud-config";

/// [`Lint`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct Checks;

impl Lint for Checks {
    /// The fake cloud reads no annotation and accepts every Service.
    fn service(&self, _: &Service) -> Vec<Finding> {
        Vec::new()
    }

    /// Errors first; warnings only if there are none.
    fn config(&self, text: &str) -> Vec<Finding> {
        match Config::parse(text, Path::new(""), None) {
            Ok(config) => config.doubts(),
            Err(error) => error.findings(WHOLE),
        }
    }
}
