//! Accepted values that have an unexpected effect, or that OpenStack rejects later.

use std::time::Duration;

use ccm_provider::{Finding, Severity, duration};

use crate::pattern::NamePattern;

use super::{Config, Global, LoadBalancerConfig, Networking, method_problem};

fn finding(severity: Severity, key: &str, value: &str, message: impl Into<String>) -> Finding {
    Finding { severity, key: key.to_owned(), value: Some(value.to_owned()), message: message.into() }
}

fn warning(key: &str, value: &str, message: impl Into<String>) -> Finding {
    finding(Severity::Warning, key, value, message)
}

/// Findings about combinations of keys.
pub(super) fn doubts(config: &Config) -> Vec<Finding> {
    let (mut findings, lb) = (global(&config.global), &config.load_balancer);
    findings.extend(load_balancer(lb));
    findings.extend(pattern("[LoadBalancer]", &lb.floating_subnet_id, &lb.floating_subnet));
    findings.extend(config.classes.iter().filter_map(|(name, class)| {
        pattern(&format!("[LoadBalancerClass {name:?}]"), &class.floating_subnet_id, &class.floating_subnet)
    }));
    findings
}

/// The pattern counts without an ID.
fn pattern(section: &str, id: &str, pattern: &str) -> Option<Finding> {
    let problem = NamePattern::parse(pattern).err().filter(|_| id.is_empty())?;
    let text = format!("{problem}: Services get no new floating IP");
    Some(warning(&format!("{section} floating-subnet"), pattern, text))
}

/// Removes networks without a name. Upstream keeps them; an empty internal-network-name then leaves nodes no addresses.
pub(super) fn unnamed_networks(networking: &mut Networking) -> Vec<Finding> {
    let lists = [
        ("[Networking] public-network-name", &mut networking.public_networks),
        ("[Networking] internal-network-name", &mut networking.internal_networks),
    ];
    let mut findings = Vec::new();
    for (key, names) in lists {
        let all = names.len();
        names.retain(|name| !name.is_empty());
        if names.len() < all {
            findings.push(warning(key, "", "empty: no network, ignored; write the name of one or remove the line"));
        }
    }
    findings
}

fn global(global: &Global) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !global.use_clouds && !global.cloud.is_empty() {
        let message = "clouds.yaml is read because of this key; write use-clouds = true to say so";
        findings.push(warning("[Global] cloud", &global.cloud, message));
    }
    if !global.reads_clouds() && !global.clouds_file.is_empty() {
        findings.push(warning("[Global] clouds-file", &global.clouds_file, "no effect without use-clouds = true"));
    }
    if global.cert_file.is_empty() != global.key_file.is_empty() {
        let (key, value, other) = match global.key_file.is_empty() {
            true => ("[Global] cert-file", &global.cert_file, "key-file"),
            false => ("[Global] key-file", &global.key_file, "cert-file"),
        };
        findings.push(warning(key, value, format!("no effect without {other}")));
    }
    findings
}

fn load_balancer(config: &LoadBalancerConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !["", "v2"].contains(&config.lb_version.as_str()) {
        // Upstream checks it only when a load balancer is requested.
        let severity = if config.enabled { Severity::Error } else { Severity::Warning };
        findings.push(finding(
            severity,
            "[LoadBalancer] lb-version",
            &config.lb_version,
            "only v2, which is Octavia, is supported; remove the key",
        ));
    }
    if let Some(problem) = method_problem(&config.lb_provider, &config.lb_method) {
        findings.push(warning("[LoadBalancer] lb-method", &config.lb_method, problem));
    }
    let show = |time: Duration| duration::format(time);
    let (delay, timeout) = (config.monitor_delay, config.monitor_timeout);
    if timeout > delay {
        let message = format!("longer than monitor-delay = {}: Octavia refuses such health monitors", show(delay));
        findings.push(warning("[LoadBalancer] monitor-timeout", &show(timeout), message));
    }
    findings
}
