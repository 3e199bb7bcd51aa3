//! Misspelt annotation keys. A provider checks those with its own prefixes; this module checks the keys that all
//! providers share.

use ccm_controllers::service::lint::DOMAINS;
use ccm_kit::annotations::misspelt;
use ccm_kit::document::nearest;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{Finding, Service};

/// Misspelt annotations of a Service.
pub(super) fn lint(service: &Service) -> Vec<Finding> {
    let annotations = service.metadata.annotations.iter();
    annotations.filter_map(|(key, value)| Some(misspelt(key, value, Some(&meant(key)?)))).collect()
}

/// The key that was probably meant; `None` if this one is correct.
fn meant(key: &str) -> Option<String> {
    let (domain, name) = key.split_once('/')?;
    if key != ANNOTATION_SOURCE_RANGES && nearest(key, &[ANNOTATION_SOURCE_RANGES]).is_some() {
        return Some(ANNOTATION_SOURCE_RANGES.to_owned());
    }
    let known = DOMAINS.contains(&domain);
    nearest(domain, &DOMAINS).filter(|_| !known).map(|domain| format!("{domain}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_or_domain_names_the_intended_one() {
        let rows = [
            ("service.beta.kubernetes.io/load-balancer-source-range", Some(ANNOTATION_SOURCE_RANGES)),
            ("service.beta.kubernetes.io/Load-Balancer-Source-Ranges", Some(ANNOTATION_SOURCE_RANGES)),
            (
                "service.beta.kubernets.io/aws-load-balancer-type",
                Some("service.beta.kubernetes.io/aws-load-balancer-type"),
            ),
            ("services.kubernetes.io/topology-mode", Some("service.kubernetes.io/topology-mode")),
            (ANNOTATION_SOURCE_RANGES, None),
            ("service.beta.kubernetes.io/azure-load-balancer-internal", None),
            ("loadbalancer.openstack.org/proxy-protocol", None),
            ("networking.gke.io/load-balancer-type", None),
            ("service.alpha.kubernetes.io/tolerate-unready-endpoints", None),
            ("prometheus.io/scrape", None),
            ("note", None),
        ];
        for (key, expected) in rows {
            assert_eq!(meant(key).as_deref(), expected, "{key}");
        }
    }
}
