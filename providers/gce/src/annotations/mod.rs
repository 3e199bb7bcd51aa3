//! The annotations of Services, each defined once in [`TABLE`].
//!
//! Upstream: `providers/gce/gce_annotations.go` of cloud-provider-gcp. Values are compared exactly; any other value
//! counts as absent.

use ccm_kit::annotations::{BalancerKind, On, Parsed, Table, Wrong, value};
use ccm_provider::Finding;
use serde::{Deserialize, Serialize};

pub(crate) use ccm_kit::annotations::Annotations;

#[cfg(test)]
mod tests;

/// The location of a load balancer's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Scheme {
    /// Anywhere: a forwarding rule with a target pool.
    External,
    /// In the network: a forwarding rule with a backend service.
    Internal,
}

impl BalancerKind for Scheme {
    const ALL: &'static [Self] = &[Self::External, Self::Internal];

    fn as_str(self) -> &'static str {
        match self {
            Self::External => "external load balancer",
            Self::Internal => "internal load balancer",
        }
    }
}

impl Scheme {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::External => Self::Internal,
            Self::Internal => Self::External,
        }
    }
}

/// The network tier of an external address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Premium,
    Standard,
}

impl Tier {
    /// The tier of an object of the API: premium if it names none, and standard also for `FIXED_STANDARD`.
    pub(crate) fn of(text: &str) -> Self {
        if text.ends_with(Self::Standard.as_str()) { Self::Standard } else { Self::Premium }
    }

    /// The value for the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Premium => "PREMIUM",
            Self::Standard => "STANDARD",
        }
    }
}

/// The prefixes of the keys, except `service.beta.kubernetes.io`.
pub(crate) const PREFIXES: [&str; 3] = ["networking.gke.io/", "cloud.google.com/", "alpha.cloud.google.com/"];

/// The keys have no common prefix, and keys of other controllers begin the same.
pub(crate) static TABLE: Table<Scheme> = Table { spelling: None, rows: ROWS };

const EXTERNAL: On<Scheme> = On::Only(Scheme::External);
const INTERNAL: On<Scheme> = On::Only(Scheme::Internal);

ccm_kit::annotation_table! {
    pub(crate) static ROWS: Scheme;
    "networking.gke.io/" {
        LOAD_BALANCER_TYPE: Scheme = scheme, "load-balancer-type", On::All, "`Internal`, `internal`", "external", "A change replaces the load balancer.",
            "An internal load balancer. Any other text is external, an empty one too. Has no effect beside `spec.loadBalancerClass`.";
        GLOBAL_ACCESS: bool = value::exact_bool, "internal-load-balancer-allow-global-access", INTERNAL, "boolean", "`false`", "",
            "Clients in other regions of the network reach the load balancer.";
        SUBNET: String = value::text, "internal-load-balancer-subnet", INTERNAL, "name of a subnetwork", "that of the cluster", "A change gives another address.",
            "The subnetwork of the address, in the region of the cluster and the project of the network.";
        BACKEND_SERVICE: String = value::text_or_empty, "backend-service", On::All, "name", "written by the provider", "Only with `--enable-l4-lb-annotations`.",
            "The backend service of an internal load balancer, for information.";
        TARGET_POOL: String = value::text_or_empty, "target-pool", On::All, "name", "written by the provider", "Only with `--enable-l4-lb-annotations`.",
            "The target pool of an external load balancer, for information.";
    }
    "cloud.google.com/" {
        OLD_LOAD_BALANCER_TYPE: Scheme = scheme, "load-balancer-type", On::All, "`Internal`, `internal`", "external", "",
            "Older spelling, read where `networking.gke.io/load-balancer-type` is absent.";
        NETWORK_TIER: Tier = tier, "network-tier", EXTERNAL, "`Premium`, `Standard`", "that of the load balancer, at first `Premium`", "A change gives another address.",
            "The network tier of the address.";
        L4_RBS: bool = rbs, "l4-rbs", EXTERNAL, "`enabled`", "", "",
            "Leaves the Service to the controller of load balancers with regional backend services.";
    }
    "alpha.cloud.google.com/" {
        BACKEND_SHARE: bool = value::exact_bool, "load-balancer-backend-share", INTERNAL, "boolean", "`false`", "",
            "Services of one protocol and session affinity share a backend service. Has no effect with `externalTrafficPolicy: Local`.";
    }
    "cloud.google.com/" {
        OLD_BACKEND_SHARE: bool = value::exact_bool, "load-balancer-backend-share", INTERNAL, "boolean", "`false`", "",
            "Older spelling of `alpha.cloud.google.com/load-balancer-backend-share`.";
    }
}

fn scheme(text: &str) -> Parsed<Scheme> {
    match text {
        "Internal" | "internal" => Ok(Some(Scheme::Internal)),
        "" | "External" | "external" => Ok(Some(Scheme::External)),
        _ => value::or_default(Err(Wrong::from("makes an external load balancer; write Internal or remove it"))),
    }
}

fn tier(text: &str) -> Parsed<Tier> {
    match text {
        "Premium" => Ok(Some(Tier::Premium)),
        "Standard" => Ok(Some(Tier::Standard)),
        _ => Err(format!("unsupported network tier: {text:?}; write Premium or Standard").into()),
    }
}

fn rbs(text: &str) -> Parsed<bool> {
    match text {
        "enabled" => Ok(Some(true)),
        _ => value::or_default(Err(Wrong::from("not known; write enabled or remove it"))),
    }
}

/// The scheme from the annotations. The first key hides the older one even if it is empty.
pub(crate) fn scheme_of(annotations: Annotations<'_>) -> Scheme {
    let key = if annotations.has(&LOAD_BALANCER_TYPE) { &LOAD_BALANCER_TYPE } else { &OLD_LOAD_BALANCER_TYPE };
    annotations.readable(key).unwrap_or(Scheme::External)
}

/// All findings about the annotations of a Service. A value with an error does not work until it is changed.
pub(crate) fn lint(annotations: Annotations<'_>, scheme: Scheme) -> Vec<Finding> {
    let mut findings = TABLE.review(annotations, scheme);
    if annotations.has(&LOAD_BALANCER_TYPE) && annotations.has(&OLD_LOAD_BALANCER_TYPE) {
        let message = format!("no effect: {} wins; remove one of them", LOAD_BALANCER_TYPE.row.key);
        findings.push(annotations.warn(OLD_LOAD_BALANCER_TYPE.row, message));
    }
    findings.extend(annotations.iter().filter_map(|(key, value)| TABLE.unknown(key, value, &[])));
    findings
}
