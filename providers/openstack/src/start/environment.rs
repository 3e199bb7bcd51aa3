//! Environment variables that have no flag or key.

use ccm_provider::{Finding, Severity};

use super::clouds::Variable;

const REGIONAL: &str = "OS_CCM_REGIONAL";
const WAIT_STEPS: &str = "OCCM_WAIT_LB_ACTIVE_STEPS";

/// The settings from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Environment {
    /// Whether provider IDs contain the region.
    pub(crate) is_regional: bool,
    /// Maximum number of polls of a load balancer that is not ready; `None`: the default.
    pub(crate) wait_steps: Option<u32>,
}

impl Environment {
    /// Reads the environment. An ignored value is a warning.
    pub(crate) fn read(variable: Variable<'_>) -> (Self, Vec<Finding>) {
        let mut findings = Vec::new();
        let mut warn = |key: &str, value: String, message: &str| {
            findings.push(Finding { value: Some(value), ..Finding::new(Severity::Warning, key, message) });
        };
        let regional = variable(REGIONAL).unwrap_or_default();
        let is_regional = regional == "true";
        if !["", "true", "false"].contains(&regional.as_str()) {
            warn(REGIONAL, regional, "no effect: only the exact text true has one");
        }
        let steps = variable(WAIT_STEPS).filter(|steps| !steps.is_empty());
        let wait_steps = steps.as_ref().and_then(|steps| steps.parse().ok());
        if let (Some(steps), None) = (steps, wait_steps) {
            warn(WAIT_STEPS, steps, "not a whole number, 0 or more; the default is used");
        }
        (Self { is_regional, wait_steps }, findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(regional: &str, steps: &str) -> (Environment, Vec<String>) {
        let variable = |name: &str| match name {
            REGIONAL => Some(regional.to_owned()),
            WAIT_STEPS => Some(steps.to_owned()),
            _ => None,
        };
        let (environment, findings) = Environment::read(&variable);
        (environment, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn only_exact_values_count() {
        assert_eq!(Environment::read(&|_| None), (Environment::default(), vec![]));
        assert_eq!(read("true", "0"), (Environment { is_regional: true, wait_steps: Some(0) }, vec![]));
        assert_eq!(read("false", "17").0, Environment { is_regional: false, wait_steps: Some(17) });
        for (regional, steps) in [("True", "-1"), ("1", "x")] {
            let (environment, findings) = read(regional, steps);
            assert_eq!(environment, Environment::default());
            assert_eq!(findings.len(), 2, "{findings:?}");
        }
    }
}
