//! Checks of configuration files and Services without a cloud.

use ccm_kit::annotations::Annotations;
use ccm_provider::{Finding, Lint, Service};

use crate::annotations::{lint, scheme_of};
use crate::start::config::Config;
use crate::start::identity::problems;

/// [`Lint`] of Azure, with the tables and checks that the provider uses at run time.
#[derive(Debug)]
pub(crate) struct Checks;

impl Lint for Checks {
    fn service(&self, service: &Service) -> Vec<Finding> {
        if !service.is_load_balancer() || service.spec.load_balancer_class.is_some() {
            return Vec::new();
        }
        let annotations = Annotations::read(&service.metadata.annotations);
        lint(annotations, scheme_of(annotations))
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        let (config, mut findings) = Config::read(text, &|_| None);
        findings.extend(problems(&config.identity));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_checked_with_its_login() {
        let keys: Vec<String> =
            Checks.config("resourceGroup: g\nlocation: l\n").into_iter().map(|found| found.key).collect();
        assert_eq!(keys, ["subscriptionId", "aadClientId"]);
    }
}
