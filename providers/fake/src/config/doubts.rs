//! Settings without effect in a file.

use ccm_kit::Glob;
use ccm_provider::{Finding, Severity};

use super::{Config, StatusRule};
use crate::faults::{NO_SERVICE, names_no_service};

/// Findings by the path of a key.
#[derive(Default)]
struct Doubts(Vec<Finding>);

impl Doubts {
    fn add(&mut self, key: impl Into<String>, value: Option<String>, message: impl Into<String>) {
        self.0.push(Finding { severity: Severity::Warning, key: key.into(), value, message: message.into() });
    }
}

impl Config {
    /// Valid settings without the apparent effect, in the order of the reference.
    pub(crate) fn doubts(&self) -> Vec<Finding> {
        let mut doubts = Doubts::default();
        self.of_interfaces(&mut doubts);
        for (index, entry) in self.instances.list().iter().enumerate() {
            if !entry.exists && entry.shutdown {
                doubts.add(format!("instances[{index}].shutdown"), None, "no effect beside exists: false");
            }
        }
        of_statuses(&self.load_balancers.statuses, &mut doubts);
        for (index, initial) in self.load_balancers.initial.iter().enumerate() {
            if !initial.service.contains('/') {
                let key = format!("loadBalancers.initial[{index}].service");
                doubts.add(key, Some(initial.service.clone()), NO_SERVICE);
            }
        }
        for (index, rule) in self.faults.iter().enumerate() {
            for (key, value, message) in rule.doubts() {
                doubts.add(format!("faults[{index}].{key}"), value, message);
            }
        }
        doubts.0
    }

    /// Settings of a disabled part of the cloud.
    fn of_interfaces(&self, doubts: &mut Doubts) {
        let on = &self.start.interfaces;
        let balancers = &self.load_balancers;
        let off = [
            ("instances", !self.instances.list().is_empty(), on.instances || on.instances_v2, "instancesV2"),
            (
                "loadBalancers",
                !balancers.statuses.is_empty() || !balancers.initial.is_empty(),
                on.load_balancer,
                "loadBalancer",
            ),
            ("routes", !self.routes.initial.is_empty() || self.routes.node_addresses, on.routes, "routes"),
            ("volumes", !self.volumes.is_empty(), on.pv_labels, "pvLabels"),
            ("clusters", !self.clusters.is_empty(), on.clusters, "clusters"),
        ];
        for (key, given, on, switch) in off {
            if given && !on {
                doubts.add(key, None, format!("no effect without interfaces.{switch}: true"));
            }
        }
        let older = [("interfaces.instances", on.instances), ("interfaces.zones", on.zones)];
        for (key, asked) in older {
            if asked && on.instances_v2 {
                doubts.add(key, Some("true".to_owned()), "no effect without interfaces.instancesV2: false");
            }
        }
    }
}

fn of_statuses(statuses: &[StatusRule], doubts: &mut Doubts) {
    let mut all = None;
    for (index, rule) in statuses.iter().enumerate() {
        let key = format!("loadBalancers.statuses[{index}]");
        if let Some(first) = all {
            let message = format!("never used: loadBalancers.statuses[{first}] matches every Service; put it last");
            doubts.add(&key, None, message);
        }
        let matches_all = rule.service.as_ref().is_none_or(|pattern| pattern.pattern() == "*");
        all = all.or(matches_all.then_some(index));
        if rule.missing && !rule.ingress.is_empty() {
            doubts.add(format!("{key}.ingress"), None, "no effect beside missing: true");
        }
        if let Some(pattern) = rule.service.as_ref().filter(|pattern: &&Glob| names_no_service(pattern)) {
            doubts.add(format!("{key}.service"), Some(pattern.pattern()), NO_SERVICE);
        }
    }
}
