//! The number of load balancers, in upstream's metrics.
//!
//! Upstream counts the results of its last syncs every ten minutes. Here the watched Services are counted every minute:
//! one of this provider with an address is a success. Also those count that are refused before the first write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::metric::{Def, IntGaugeVec, Registry};
use ccm_provider::{ProviderContext, Service, ServiceAction};

use crate::annotations::{Annotations, GLOBAL_ACCESS, SUBNET, Scheme};
use crate::loadbalancer::claim::{self, Owner};
use crate::loadbalancer::env::Options;

const INTERVAL: Duration = Duration::from_secs(60);
const FEATURES: [&str; 5] =
    ["L4ILBService", "L4ILBGlobalAccess", "L4ILBCustomSubnet", "L4ILBInSuccess", "L4ILBInError"];
const FEATURE_GATE: &str = "finegrainedlock";

ccm_provider::metrics! {
    /// Upstream's metrics. Cheap to clone.
    pub(crate) struct BalancerMetrics {
        internal: IntGaugeVec = Def::gauge("number_of_l4_ilbs", &["feature"], "Number of L4 ILBs");
        external: IntGaugeVec = Def::gauge(
            "number_of_l4_netlbs",
            &["status", "deny_firewall"],
            "Number of L4 NetLBs by status and by their rule that denies",
        );
        features: IntGaugeVec = Def::gauge(
            "ccm_feature_gate_info",
            &["name", "enabled"],
            "Information about the status of feature gates in CCM",
        );
    }
}

/// The numbers, by label.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    internal: BTreeMap<&'static str, i64>,
    /// By status.
    external: BTreeMap<&'static str, i64>,
}

impl BalancerMetrics {
    /// Exports the metrics. `fine_lock`: the flag of that name, which has no effect here.
    pub(crate) fn start(registry: &Registry, fine_lock: bool) -> Self {
        let metrics = Self::new(registry);
        metrics.features.with_label_values(&[FEATURE_GATE, if fine_lock { "true" } else { "false" }]).set(1);
        metrics
    }

    /// Counts while this process leads.
    pub(crate) async fn keep(self, context: ProviderContext, options: Options) {
        let rules = deny_rules(options.denies, options.removes_deny_rules);
        let mut ticks = tokio::time::interval(INTERVAL);
        let lost = context.leader.lost();
        tokio::pin!(lost);
        loop {
            tokio::select! {
                () = &mut lost => return,
                _ = ticks.tick() => self.set(&count(&options, &context.services.list()), rules),
            }
        }
    }

    fn set(&self, counts: &Counts, [success, error]: [&str; 2]) {
        let of = |counts: &BTreeMap<&str, i64>, key: &str| counts.get(key).copied().unwrap_or_default();
        for feature in FEATURES {
            self.internal.with_label_values(&[feature]).set(of(&counts.internal, feature));
        }
        for (status, rule) in [("Success", success), ("Error", error)] {
            self.external.with_label_values(&[status, rule]).set(of(&counts.external, status));
        }
    }
}

/// The values of `deny_firewall` for load balancers that succeeded and failed: whether they have a rule that denies, or
/// it was switched off again.
fn deny_rules(denies: bool, removes: bool) -> [&'static str; 2] {
    match (denies, removes) {
        (true, _) => ["IPv4", ""],
        (false, true) => ["DISABLED", "DISABLED"],
        (false, false) => ["", ""],
    }
}

/// Counts the Services of this provider.
fn count(options: &Options, services: &[Arc<Service>]) -> Counts {
    let mut counts = Counts::default();
    for service in services.iter().filter(|service| service.wants_load_balancer()) {
        let scheme = claim::scheme(service);
        if claim::owner(options, service, ServiceAction::Ensure) != Owner::Us {
            continue;
        }
        let succeeded = !service.status.load_balancer.ingress.is_empty();
        if scheme == Scheme::External {
            *counts.external.entry(if succeeded { "Success" } else { "Error" }).or_default() += 1;
            continue;
        }
        let annotations = Annotations::read(&service.metadata.annotations);
        let has = [
            ("L4ILBService", true),
            ("L4ILBInError", !succeeded),
            ("L4ILBInSuccess", succeeded),
            ("L4ILBGlobalAccess", succeeded && annotations.readable(&GLOBAL_ACCESS) == Some(true)),
            ("L4ILBCustomSubnet", succeeded && annotations.readable(&SUBNET).is_some()),
        ];
        for (feature, _) in has.into_iter().filter(|(_, has)| *has) {
            *counts.internal.entry(feature).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(annotations: &Value, finalizer: Option<&str>, ip: Option<&str>) -> Arc<Service> {
        let finalizers: Vec<&str> = finalizer.into_iter().collect();
        let ingress: Vec<Value> = ip.into_iter().map(|ip| json!({"ip": ip})).collect();
        let service = json!({
            "metadata": {"annotations": annotations, "finalizers": finalizers},
            "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ingress}}});
        Arc::new(serde_json::from_value(service).unwrap())
    }

    #[test]
    fn services_count_by_their_status() {
        const ILB: Option<&str> = Some("gke.networking.io/l4-ilb-v1");
        const NETLB: Option<&str> = Some("gke.networking.io/l4-netlb-v1");
        let internal = json!({"networking.gke.io/load-balancer-type": "Internal"});
        let wide = json!({"networking.gke.io/load-balancer-type": "Internal",
            "networking.gke.io/internal-load-balancer-allow-global-access": "true",
            "networking.gke.io/internal-load-balancer-subnet": "s"});
        let services = [
            service(&internal, ILB, Some("10.0.0.7")),
            service(&wide, ILB, Some("10.0.0.8")),
            service(&internal, ILB, None),
            service(&internal, None, None),
            service(&json!({}), NETLB, Some("203.0.113.7")),
            service(&json!({}), NETLB, None),
            service(&json!({}), None, None),
            service(&json!({"cloud.google.com/l4-rbs": "enabled"}), None, None),
        ];
        let internal = [
            ("L4ILBService", 4),
            ("L4ILBInError", 2),
            ("L4ILBInSuccess", 2),
            ("L4ILBGlobalAccess", 1),
            ("L4ILBCustomSubnet", 1),
        ];
        let expected = Counts { internal: internal.into(), external: [("Success", 1), ("Error", 2)].into() };
        assert_eq!(count(&Options::default(), &services), expected);
        let registry = Registry::new();
        let metrics = BalancerMetrics::start(&registry, true);
        metrics.set(&expected, deny_rules(true, true));
        assert_eq!(registry.value("number_of_l4_ilbs", &[("feature", "L4ILBService")]), Some(4.0));
        let labels = [("status", "Success"), ("deny_firewall", "IPv4")];
        assert_eq!(registry.value("number_of_l4_netlbs", &labels), Some(1.0));
        assert_eq!(deny_rules(false, true), ["DISABLED"; 2]);
        metrics.set(&expected, deny_rules(false, false));
        for (status, expected) in [("Success", 1.0), ("Error", 2.0)] {
            let labels = [("status", status), ("deny_firewall", "")];
            assert_eq!(registry.value("number_of_l4_netlbs", &labels), Some(expected), "{status}");
        }
        let labels = [("name", "finegrainedlock"), ("enabled", "true")];
        assert_eq!(registry.value("ccm_feature_gate_info", &labels), Some(1.0));
    }
}
