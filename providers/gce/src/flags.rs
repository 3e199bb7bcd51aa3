//! Flags of this provider, on top of the program's.

use ccm_provider::address::parse_cidr;
use ccm_provider::flag::{Flag, FlagValues, Kind};
use ccm_provider::{ProviderError, ServiceControllerSpec};
use ipnet::IpNet;

use crate::ownership::CLASSES;
use crate::start::invalid;

/// The service controllers of this provider, for `--controllers`.
pub const SERVICE_CONTROLLERS: [ServiceControllerSpec; 1] = [ServiceControllerSpec {
    name: "gke-service-lb-controller",
    aliases: &["gke-service"],
    client_name: "gke-service-controller",
    classes: &CLASSES,
    metrics_prefix: "gke",
}];

const SECTION: &str = "GCE Cloud Provider";
const MULTI_PROJECT: &str = "enable-multi-project";
const RBS_DEFAULT: &str = "enable-rbs-default-l4-netlb";
const LB_ANNOTATIONS: &str = "enable-l4-lb-annotations";
const DENY_FIREWALL: &str = "enable-l4-deny-firewall";
const DENY_CLEANUP: &str = "enable-l4-deny-firewall-rollback-cleanup";
const TENANTS: &str = "enable-gke-tenant-controller";
const FINE_LOCK: &str = "enable-l4-ilb-fine-grained-lock";
const DISCRETE_PORTS: &str = "enable-discrete-port-forwarding";
const L4_RANGES: &str = "cloud-provider-gce-lb-src-cidrs";
const L7_RANGES: &str = "cloud-provider-gce-l7lb-src-cidrs";
const NODE_IPAM: &str = "nodeipam controller";
const MULTI_SUBNET: &str = "enable-multi-subnet-cluster";
const MULTI_NETWORK: &str = "enable-multi-networking";
const TAINT_STOPPED: &str = "gce-taint-stopped-instances";

const L4_DEFAULT: &str = "130.211.0.0/22,35.191.0.0/16,209.85.152.0/22,209.85.204.0/22";
const L7_DEFAULT: &str = "130.211.0.0/22,35.191.0.0/16";

const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag::new(SECTION, name, Kind::Bool, "false", help)
}

pub(crate) static FLAGS: [Flag; 13] = [
    switch(
        MULTI_PROJECT,
        "Read instances in the projects that the provider IDs of nodes name. Has no effect with --enable-gke-tenant-controller.",
    ),
    switch(
        RBS_DEFAULT,
        "Leave external Services without a class or finalizer to the controller of load balancers with backend services (RBS).",
    ),
    switch(LB_ANNOTATIONS, "Write the names of created objects into annotations of Services."),
    switch(
        DENY_FIREWALL,
        "Add a firewall rule for each external load balancer that denies what its rule does not allow. Needs --enable-l4-deny-firewall-rollback-cleanup.",
    ),
    switch(DENY_CLEANUP, "Delete the denying firewall rules of external load balancers."),
    switch(TENANTS, "Start controllers for the projects of tenants. Accepted; this program does not have them."),
    switch(
        FINE_LOCK,
        "Lock single objects of internal load balancers. Accepted without effect: Services that share objects are planned together.",
    ),
    Flag {
        hidden: true,
        ..switch(
            DISCRETE_PORTS,
            "Of releases 1.33 and 1.34. New rules of external load balancers name up to five ports.",
        )
    },
    Flag::new(
        SECTION,
        L4_RANGES,
        Kind::Repeated,
        L4_DEFAULT,
        "CIDRs from which the health checks of passthrough load balancers come, separated by commas. IPv6 ranges are left out.",
    ),
    Flag::new(
        SECTION,
        L7_RANGES,
        Kind::Repeated,
        L7_DEFAULT,
        "CIDRs from which proxies and health checks of application load balancers come, separated by commas.",
    ),
    switch(TAINT_STOPPED, "Taint nodes of stopped and suspended instances as shut down. The Go program does not."),
    Flag::new(
        NODE_IPAM,
        MULTI_SUBNET,
        Kind::Bool,
        "false",
        "Maintain the NodeTopology of GKE. Accepted; this program does not have it.",
    ),
    Flag::new(
        NODE_IPAM,
        MULTI_NETWORK,
        Kind::Bool,
        "false",
        "Pod ranges in several networks of GKE. Accepted; this program does not have them.",
    ),
];

/// The checked flags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    pub(crate) multi_project: bool,
    /// External Services without class or finalizer are left to another controller.
    pub(crate) rbs_default: bool,
    pub(crate) lb_annotations: bool,
    pub(crate) deny_firewall: bool,
    pub(crate) deny_cleanup: bool,
    pub(crate) discrete_ports: bool,
    pub(crate) taint_stopped: bool,
    /// Whether `--controllers` names the controller for Services of our classes.
    pub(crate) serves_classes: bool,
    /// Has no effect, except on a metric.
    pub(crate) fine_lock: bool,
    /// The source ranges of health checks.
    pub(crate) l4_ranges: Vec<IpNet>,
    pub(crate) l7_ranges: Vec<IpNet>,
}

impl Options {
    pub(crate) fn read(flags: &FlagValues) -> Result<Self, ProviderError> {
        let is_of_classes =
            |name: &String| SERVICE_CONTROLLERS.iter().any(|it| it.name == name || it.aliases.contains(&&**name));
        let options = Self {
            multi_project: flags.bool(MULTI_PROJECT) && !flags.bool(TENANTS),
            rbs_default: flags.bool(RBS_DEFAULT),
            lb_annotations: flags.bool(LB_ANNOTATIONS),
            deny_firewall: flags.bool(DENY_FIREWALL),
            deny_cleanup: flags.bool(DENY_CLEANUP),
            discrete_ports: flags.bool(DISCRETE_PORTS),
            taint_stopped: flags.bool(TAINT_STOPPED),
            serves_classes: flags.list("controllers").iter().any(is_of_classes),
            fine_lock: flags.bool(FINE_LOCK),
            l4_ranges: ipv4(ranges(flags, L4_RANGES, L4_DEFAULT)?)?,
            l7_ranges: ranges(flags, L7_RANGES, L7_DEFAULT)?,
        };
        match options.deny_firewall && !options.deny_cleanup {
            true => Err(invalid(format!("--{DENY_FIREWALL} needs --{DENY_CLEANUP}"))),
            false => Ok(options),
        }
    }
}

/// The ranges of a flag. Upstream refuses a second list.
fn ranges(flags: &FlagValues, name: &str, default: &str) -> Result<Vec<IpNet>, ProviderError> {
    let given = flags.list(name);
    let text = match &*given {
        [] => default,
        [text] => text,
        _ => return Err(invalid(format!("--{name} is given more than once: write one list"))),
    };
    let range = |cidr: &str| {
        parse_cidr(cidr.trim())
            .ok_or_else(|| invalid(format!("--{name}: {cidr:?} is not a CIDR such as 130.211.0.0/22")))
    };
    text.split(',').map(range).collect()
}

/// The IPv4 ranges: load balancers made here have IPv4 addresses, and a firewall rule cannot mix families.
fn ipv4(ranges: Vec<IpNet>) -> Result<Vec<IpNet>, ProviderError> {
    let (ours, others): (Vec<_>, Vec<_>) = ranges.into_iter().partition(|range| range.addr().is_ipv4());
    if ours.is_empty() {
        return Err(invalid(format!(
            "--{L4_RANGES} has no IPv4 range, and health checks come from such ones: add them"
        )));
    }
    if !others.is_empty() {
        tracing::warn!(flag = L4_RANGES, ?others, "health checks come from IPv4 ranges only: the others are left out");
    }
    Ok(ours)
}

/// The given flags whose function is not implemented.
pub(crate) fn missing(flags: &FlagValues) -> Vec<&'static str> {
    [TENANTS, MULTI_SUBNET, MULTI_NETWORK].into_iter().filter(|name| flags.bool(name)).collect()
}

/// The user agent. Upstream's contains the version of its Kubernetes libraries; servers may look only for `Kubernetes`.
pub(crate) fn user_agent() -> String {
    format!("Kubernetes/{} ({} {}) ccm/{}", KUBERNETES, os(), arch(), env!("CARGO_PKG_VERSION"))
}

/// The version of Kubernetes whose behavior this program has.
const KUBERNETES: &str = "1.36.0";

/// In Go's spelling.
fn os() -> &'static str {
    if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS }
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The flags as a table in Markdown.
pub(crate) fn reference() -> String {
    let row = |flag: &&Flag| (!flag.hidden).then(|| format!("| `--{}` | {} |\n", flag.name, flag.help));
    let rows: String = FLAGS.iter().filter_map(|flag| row(&flag)).collect();
    format!("| Flag | Meaning |\n| --- | --- |\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&'static str, &str)]) -> Result<Options, ProviderError> {
        let mut values = FlagValues::default();
        for (name, value) in pairs {
            values.insert(name, value.split(';').map(str::to_owned).collect(), true);
        }
        Options::read(&values)
    }

    #[test]
    fn tenants_switch_multi_project_off() {
        assert!(options(&[(MULTI_PROJECT, "true")]).unwrap().multi_project);
        assert!(!options(&[(MULTI_PROJECT, "true"), (TENANTS, "true")]).unwrap().multi_project);
    }

    #[test]
    fn denying_needs_the_clean_up() {
        assert!(options(&[(DENY_FIREWALL, "true")]).unwrap_err().to_string().contains(DENY_CLEANUP));
        assert!(options(&[(DENY_FIREWALL, "true"), (DENY_CLEANUP, "true")]).unwrap().deny_firewall);
    }

    #[test]
    fn ranges_have_defaults_and_are_checked() {
        let default = options(&[]).unwrap();
        assert_eq!((default.l4_ranges.len(), default.l7_ranges.len()), (4, 2));
        let own = options(&[(L4_RANGES, "10.0.0.0/8")]).unwrap();
        assert_eq!(own.l4_ranges, ["10.0.0.0/8".parse().unwrap()]);
        assert!(options(&[(L4_RANGES, "10.0.0.0/8;11.0.0.0/8")]).unwrap_err().to_string().contains("more than once"));
        assert!(options(&[(L7_RANGES, "10.0.0.0/8,x")]).unwrap_err().to_string().contains(L7_RANGES));
    }

    /// Google's page lists the ranges of both families. Load balancers made here have IPv4 addresses.
    #[test]
    fn probes_come_from_the_ipv4_ranges() {
        let both = options(&[(L4_RANGES, "2600:2d00:1:b029::/64,130.211.0.0/22")]).unwrap();
        assert_eq!(both.l4_ranges, ["130.211.0.0/22".parse().unwrap()]);
        let error = options(&[(L4_RANGES, "2600:2d00:1:b029::/64")]).unwrap_err().to_string();
        assert!(error.contains(L4_RANGES) && error.contains("IPv4"), "{error}");
    }

    #[test]
    fn the_user_agent_has_upstreams_form() {
        let agent = user_agent();
        assert!(agent.starts_with("Kubernetes/1.") && agent.contains(" ccm/"), "{agent}");
        assert!(reference().contains("`--enable-multi-project`") && !reference().contains(DISCRETE_PORTS));
    }
}
