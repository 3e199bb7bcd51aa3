//! `[ServiceOverride "…"]`: custom endpoints of services.

use ccm_provider::{Finding, Severity};
use http::Uri;

use crate::client::operation::Service;

/// The endpoint that an override replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Endpoint {
    Of(Service),
    /// The instance metadata service.
    Metadata,
}

impl Endpoint {
    pub(super) const ALL: [Self; 5] = [
        Self::Of(Service::Ec2),
        Self::Of(Service::Elb),
        Self::Of(Service::ElbV2),
        Self::Of(Service::Sts),
        Self::Metadata,
    ];

    /// The name in current SDKs.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Of(service) => service.id(),
            Self::Metadata => "ec2imds",
        }
    }

    /// The name in the SDK of the in-tree provider.
    fn old_id(self) -> &'static str {
        match self {
            Self::Of(service) => service.iam(),
            Self::Metadata => "ec2metadata",
        }
    }

    fn is_called(self, word: &str) -> bool {
        word.eq_ignore_ascii_case(self.id()) || word.eq_ignore_ascii_case(self.old_id())
    }
}

/// Services that upstream or the in-tree provider had clients for, but that this program never calls.
const NEVER_CALLED: [&str; 2] = ["KMS", "autoscaling"];

/// A custom endpoint of a service, trimmed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ServiceOverride {
    pub(crate) name: String,
    pub(crate) service: String,
    pub(crate) region: String,
    /// With scheme and host.
    pub(crate) url: String,
    pub(crate) signing_region: String,
    /// Has no effect.
    pub(super) signing_method: String,
    /// The name that requests are signed for; if empty, the service's own name.
    pub(crate) signing_name: String,
}

impl ServiceOverride {
    /// Whether the override applies to a service in a region. The metadata service has no region.
    pub(crate) fn is_for(&self, endpoint: Endpoint, region: &str) -> bool {
        endpoint.is_called(&self.service) && (endpoint == Endpoint::Metadata || self.region == region)
    }
}

/// Checks the parsed overrides and leaves out those with mistakes.
pub(super) fn check(read: Vec<(String, ServiceOverride)>, findings: &mut Vec<Finding>) -> Vec<ServiceOverride> {
    let mut checked: Vec<ServiceOverride> = Vec::new();
    for (name, mut candidate) in read {
        let before = findings.len();
        candidate.name = name;
        let ServiceOverride { service, region, url, signing_region, signing_name, .. } = &mut candidate;
        for text in [service, region, url, signing_region, signing_name] {
            *text = text.trim().to_owned();
        }
        candidate.missing(findings);
        candidate.check_url(findings);
        candidate.check_twice(&checked, findings);
        candidate.check_service(&checked, findings);
        let method = &candidate.signing_method;
        if !matches!(method.trim().to_ascii_lowercase().as_str(), "" | "v4" | "sigv4" | "aws4-hmac-sha256") {
            let text = "no effect: requests are signed with version 4; remove the key";
            candidate.note(findings, Severity::Warning, "SigningMethod", method, text);
        }
        let is_good = findings.iter().skip(before).all(|finding| finding.severity != Severity::Error);
        if is_good {
            checked.push(candidate);
        }
    }
    checked
}

impl ServiceOverride {
    fn note(&self, findings: &mut Vec<Finding>, severity: Severity, key: &str, value: &str, message: &str) {
        let key = format!("[ServiceOverride {:?}] {key}", self.name);
        findings.push(Finding { severity, key, value: Some(value.to_owned()), message: message.to_owned() });
    }

    fn missing(&self, findings: &mut Vec<Finding>) {
        let keys = [
            ("Service", &self.service, "service name", "Service = EC2"),
            ("Region", &self.region, "service region", "Region = us-west-2"),
            ("URL", &self.url, "url", "URL = https://ec2.example.com"),
            ("SigningRegion", &self.signing_region, "signingRegion", "SigningRegion = us-west-2"),
        ];
        for (key, value, what, example) in keys {
            if value.is_empty() {
                let text =
                    format!("{what} is missing [{key} is \"\"] in override {}; add for example {example}", self.name);
                self.note(findings, Severity::Error, key, value, &text);
            }
        }
    }

    fn check_url(&self, findings: &mut Vec<Finding>) {
        let is_usable = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
        if !self.url.is_empty() && !self.url.parse().is_ok_and(|uri: Uri| is_usable(&uri) && uri.query().is_none()) {
            let text = format!(
                "could not parse override URL in override {}; expected http[s]://host[:port][/path]",
                self.name
            );
            self.note(findings, Severity::Error, "URL", &self.url, &text);
        }
    }

    fn check_twice(&self, others: &[Self], findings: &mut Vec<Finding>) {
        if others.iter().any(|other| other.service == self.service && other.region == self.region) {
            let (name, service, region) = (&self.name, &self.service, &self.region);
            let text =
                format!("duplicate entry found for service override [{name}] ({service} in {region}); remove one");
            self.note(findings, Severity::Error, "Service", service, &text);
        }
    }

    fn check_service(&self, others: &[Self], findings: &mut Vec<Finding>) {
        let known: Vec<Endpoint> =
            Endpoint::ALL.into_iter().filter(|endpoint| endpoint.is_called(&self.service)).collect();
        let is_never_called = NEVER_CALLED.iter().any(|word| word.eq_ignore_ascii_case(&self.service));
        if is_never_called {
            self.note(findings, Severity::Info, "Service", &self.service, "no effect: this service is not called");
        } else if known.is_empty() && !self.service.is_empty() {
            let words = Endpoint::ALL.map(Endpoint::id);
            let hint = ccm_kit::document::did_you_mean(&self.service, &words).unwrap_or_default();
            let text = format!("no effect: unknown service; expected one of {}{hint}", words.join(", "));
            self.note(findings, Severity::Warning, "Service", &self.service, &text);
        }
        // A file may use both vocabularies, so that either program can read it.
        let twin = others.iter().find(|other| {
            other.service != self.service && known.iter().any(|endpoint| other.is_for(*endpoint, &self.region))
        });
        if let Some(twin) = twin {
            let text = format!(
                "about the same service and region as override {} ({:?}); the spelling of the current SDK wins",
                twin.name, twin.service
            );
            self.note(findings, Severity::Info, "Service", &self.service, &text);
        }
    }
}
