//! Feature gates.
//!
//! The gates in the table of this module have an effect. All others that Kubernetes has or had are accepted with a
//! warning, so that manifests of the Go program work; an unknown name is an error.

mod known;

use std::collections::BTreeMap;
use std::fmt;

use crate::logging::LoggingGates;

/// The maturity of a gate's feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// On by default.
    Beta,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
        })
    }
}

/// The enabled features. `Default` applies without the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// `AllAlpha`: enables alpha features that are not listed.
    pub all_alpha: bool,
    /// `AllBeta`, if given: enables beta features that are not listed.
    pub all_beta: bool,
    /// `CloudControllerManagerWatchBasedRoutesReconciliation`: routes are reconciled when nodes change, not only
    /// periodically.
    pub watch_based_routes: bool,
    /// `CloudControllerManagerWebhook`: the webhooks of `--webhooks` are served.
    pub webhook: bool,
    /// `ControllerManagerReleaseLeaderElectionLockOnExit`: the lease is released on SIGTERM, so that the next leader
    /// does not wait for its expiry. Upstream it is off by default, because work may still be in progress when the
    /// lease is released. Here all work has ended by then.
    pub release_lease_on_exit: bool,
    /// `CloudNodeAdditionalLabelsReconciliation`: labels that the cloud gives nodes follow the cloud, not only when a
    /// node is initialized.
    pub additional_labels: bool,
    /// `CloudProviderNodeOwnership` (KEP-5778): several cloud controller managers share the cluster. Without the gate,
    /// nodes of others are ignored too; with it, only the scheme of the provider ID decides, and they are counted.
    pub node_ownership: bool,
    /// `ServiceLoadBalancerConditions`: Services have conditions with the state of their load balancer. Not a gate of
    /// upstream, where KEP-4631 is not implemented.
    pub service_conditions: bool,
    /// `ContextualLogging`: no effect; logs always have their context.
    pub contextual_logging: bool,
    /// `LoggingAlphaOptions` and `LoggingBetaOptions`: the logging flags that may be used.
    pub logging: LoggingGates,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            all_alpha: false,
            all_beta: false,
            watch_based_routes: false,
            webhook: false,
            release_lease_on_exit: true,
            additional_labels: false,
            node_ownership: false,
            service_conditions: false,
            contextual_logging: true,
            logging: LoggingGates::default(),
        }
    }
}

struct Row {
    name: &'static str,
    stage: Stage,
    on: fn(&mut Gates) -> &mut bool,
}

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

/// In alphabetical order.
const TABLE: [Row; 11] = [
    Row { name: ALL_ALPHA, stage: Stage::Alpha, on: |gates| &mut gates.all_alpha },
    Row { name: ALL_BETA, stage: Stage::Beta, on: |gates| &mut gates.all_beta },
    Row {
        name: "CloudControllerManagerWatchBasedRoutesReconciliation",
        stage: Stage::Alpha,
        on: |gates| &mut gates.watch_based_routes,
    },
    Row { name: "CloudControllerManagerWebhook", stage: Stage::Alpha, on: |gates| &mut gates.webhook },
    Row {
        name: "CloudNodeAdditionalLabelsReconciliation",
        stage: Stage::Alpha,
        on: |gates| &mut gates.additional_labels,
    },
    Row { name: "CloudProviderNodeOwnership", stage: Stage::Alpha, on: |gates| &mut gates.node_ownership },
    Row { name: "ContextualLogging", stage: Stage::Beta, on: |gates| &mut gates.contextual_logging },
    Row {
        name: "ControllerManagerReleaseLeaderElectionLockOnExit",
        stage: Stage::Beta,
        on: |gates| &mut gates.release_lease_on_exit,
    },
    Row { name: "LoggingAlphaOptions", stage: Stage::Alpha, on: |gates| &mut gates.logging.alpha },
    Row { name: "LoggingBetaOptions", stage: Stage::Beta, on: |gates| &mut gates.logging.beta },
    Row { name: "ServiceLoadBalancerConditions", stage: Stage::Alpha, on: |gates| &mut gates.service_conditions },
];

impl Gates {
    /// The gates of a list of `Name=true`, as returned by the parser; a later entry overrides an earlier one. Also
    /// returns the known names without effect.
    pub fn parse(pairs: &[String]) -> (Self, Vec<String>) {
        let named: BTreeMap<&str, bool> =
            pairs.iter().filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name, value == "true")).collect();
        let mut gates = Self::default();
        for row in &TABLE {
            let all = match row.stage {
                _ if [ALL_ALPHA, ALL_BETA].contains(&row.name) => None,
                Stage::Alpha => named.get(ALL_ALPHA),
                Stage::Beta => named.get(ALL_BETA),
            };
            if let Some(on) = named.get(row.name).or(all) {
                *(row.on)(&mut gates) = *on;
            }
        }
        let idle = named.keys().filter(|name| TABLE.iter().all(|row| row.name != **name));
        (gates, idle.map(|name| (*name).to_owned()).collect())
    }

    /// Name, stage, and whether it is on, of every gate that has an effect.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Stage, bool)> {
        let mut gates = *self;
        TABLE.iter().map(move |row| (row.name, row.stage, *(row.on)(&mut gates)))
    }
}

/// Rejects names that are not gates of Kubernetes.
pub(crate) fn check(pairs: &[String]) -> Result<(), String> {
    for name in pairs.iter().filter_map(|pair| pair.split('=').next()) {
        let ours = TABLE.iter().any(|row| row.name == name);
        if !ours && !known::known().any(|known| known == name) {
            let all: Vec<&str> = TABLE.iter().map(|row| row.name).chain(known::known()).collect();
            let hint = ccm_kit::document::did_you_mean(name, &all).unwrap_or_default();
            return Err(format!("unrecognized feature gate: {name}{hint}"));
        }
    }
    Ok(())
}

/// One line for each gate that has an effect.
pub(crate) fn help() -> Vec<String> {
    let line = |(name, stage, on)| format!("{name}=true|false ({stage} - default={on})");
    Gates::default().iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(text: &str) -> (Gates, Vec<String>) {
        Gates::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_tables_are_sorted_and_name_nothing_twice() {
        let ours: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
        assert!(ours.is_sorted() && known::known().is_sorted());
        assert!(ours.iter().all(|name| !known::known().any(|known| known == *name)));
        for (name, stage, on) in Gates::default().iter() {
            assert!(on == (stage == Stage::Beta) || name == ALL_BETA, "{name}");
        }
    }

    #[test]
    fn a_gate_that_is_named_overrides_its_stage() {
        let (all, _) = gates("AllAlpha=true,CloudControllerManagerWebhook=false");
        assert!(all.watch_based_routes && all.logging.alpha && !all.webhook);
        let (none, _) = gates("AllBeta=false,LoggingBetaOptions=true");
        assert!(!none.release_lease_on_exit && !none.contextual_logging && none.logging.beta);
        assert_eq!(gates("CloudControllerManagerWebhook=true,CloudControllerManagerWebhook=false").0, Gates::default());
    }

    #[test]
    fn gates_that_mean_nothing_here_are_accepted_and_unknown_words_are_not() {
        let pairs =
            ["StableLoadBalancerNodeSet=true", "CloudDualStackNodeIPs=true", "WatchList=false"].map(str::to_owned);
        assert_eq!(check(&pairs), Ok(()));
        let (same, idle) = Gates::parse(&pairs);
        assert_eq!(
            (same, idle),
            (
                Gates::default(),
                ["CloudDualStackNodeIPs", "StableLoadBalancerNodeSet", "WatchList"].map(str::to_owned).into()
            )
        );
        assert_eq!(check(&["NoSuchThingAtAll=true".into()]), Err("unrecognized feature gate: NoSuchThingAtAll".into()));
        assert_eq!(
            check(&["CloudControllerManagerWebhok=true".into()]),
            Err("unrecognized feature gate: CloudControllerManagerWebhok; did you mean \"CloudControllerManagerWebhook\"?".into())
        );
    }
}
