//! Checks Services and configuration files without account, credentials or network.

use ccm_provider::{Finding, Lint, Service};

use crate::loadbalancer::wanted::review;
use crate::start::config::Config;

#[cfg(test)]
mod tests;

/// [`Lint`] of AWS, with the tables and checks that the provider uses at run time.
#[derive(Debug)]
pub(crate) struct Checks;

impl Lint for Checks {
    fn service(&self, service: &Service) -> Vec<Finding> {
        review(service)
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        Config::lint(text)
    }
}
