//! What is wrong with a Service without its cloud, for `ccm lint`. Pure.

use ccm_kit::annotations::Annotations;
use ccm_provider::source_ranges::SourceRanges;
use ccm_provider::{ErrorClass, Finding, ProviderError, Service, Severity};

use super::Source;
use crate::annotations as keys;
use crate::start::config::Config;

/// What is wrong with a Service with the default configuration, as far as its annotations ask for it.
pub(crate) fn problems(service: &Service) -> Vec<Finding> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let forwards = annotations.readable(&keys::X_FORWARDED_FOR) == Some(true);
    let has_tls = annotations.text(keys::DEFAULT_TLS_CONTAINER_REF.row).is_some_and(|text| !text.is_empty());
    let proxies = annotations.readable(&keys::PROXY_PROTOCOL).is_some_and(|it| it != keys::ProxyProtocol::Off);
    let source = Source { service, annotations, class: None, config: &Config::default() };
    let mut findings = Vec::new();
    let mut refuse = |error: ProviderError| {
        if let ErrorClass::Invalid { findings: refused } = error.class() {
            findings.extend(refused);
        }
    };
    if forwards || has_tls || proxies {
        source.ports(forwards, has_tls, proxies).err().into_iter().for_each(&mut refuse);
    }
    source
        .certificate(annotations.text(keys::DEFAULT_TLS_CONTAINER_REF.row).unwrap_or_default())
        .err()
        .into_iter()
        .for_each(&mut refuse);
    // The API server chooses the families that are not set.
    let ranges = match service.spec.ip_families.is_empty() {
        true => SourceRanges::of(service).map(drop).map_err(|error| error.to_string()),
        false => source.sources(source.family()).map(drop).map_err(|error| error.to_string()),
    };
    if let Err(error) = ranges {
        findings.push(Finding::new(Severity::Error, "spec.loadBalancerSourceRanges", error));
    }
    if annotations.readable(&keys::ENABLE_HEALTH_MONITOR) != Some(false) {
        // What cannot be read is found by the table.
        let _ = source.monitor(&mut findings);
    }
    findings
}
