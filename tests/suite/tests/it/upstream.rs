//! This program beside Go's cloud-controller-manager of each minor version of Kubernetes, by the table of
//! `hack/upstream.sh`: what manifests, roles, dashboards and alerts of one of them name works here, with the type and default of
//! the newest version that has it. Each difference is listed with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm::Program;
use ccm::flags::Gates;
use ccm::options::{Options, componentconfig};
use ccm_provider::Registry;
use ccm_provider::flag::{Flag, Kind};
use serde_json::Value;

use crate::metrics;

/// The last column has the versions that a row holds for; the first rows name the modules.
const TABLE: &str = include_str!("../../../../hack/upstream/tables.tsv");

/// From the oldest to the newest.
fn versions() -> Vec<&'static str> {
    let modules = TABLE.lines().filter(|line| line.starts_with('#'));
    let versions: Vec<&str> = modules.map(|line| line.rsplit('\t').next().unwrap()).collect();
    assert!(versions.len() >= 6, "{versions:?}");
    versions
}

/// Name and reason.
type Differences = &'static [(&'static str, &'static str)];

const UNLIMITED: &str = "without the flag, the API server's priority and fairness and the cloud's pace decide";
/// Flags with another default.
const FLAG_DEFAULTS: Differences = &[
    ("concurrent-node-lifecycle-syncs", UNLIMITED),
    ("concurrent-node-syncs", UNLIMITED),
    ("concurrent-service-syncs", UNLIMITED),
    ("kube-api-burst", UNLIMITED),
    ("kube-api-qps", UNLIMITED),
];
const CONTROLLER_MANAGER: &str = "kube-controller-manager's, for the controller that allocates pod ranges";
const OWNERSHIP: &str = "KEP-5778, which no release has yet";
/// Flags that Go does not have.
const OWN_FLAGS: Differences = &[
    ("allow-emptying-load-balancers", "a guard that Go does not have"),
    ("cloud-provider-platforms", OWNERSHIP),
    ("drift-check-period", "Go does not compare load balancers with the cloud"),
    ("drift-repair", "Go does not compare load balancers with the cloud"),
    ("dry-run", "Go has no dry run"),
    ("node-cidr-mask-size", CONTROLLER_MANAGER),
    ("node-cidr-mask-size-ipv4", CONTROLLER_MANAGER),
    ("node-cidr-mask-size-ipv6", CONTROLLER_MANAGER),
    ("node-deletion-budget", "a guard that Go does not have"),
    ("node-deletion-budget-percent", "a guard that Go does not have"),
    ("node-lifecycle-wait-timeout", OWNERSHIP),
    ("service-cluster-ip-range", CONTROLLER_MANAGER),
];
/// Gates with an effect whose stage or default is another one.
const GATE_DEFAULTS: Differences = &[(
    "ControllerManagerReleaseLeaderElectionLockOnExit",
    "all work has ended when this program releases the lease, so that nothing speaks against it",
)];
/// Gates with an effect that Go does not have.
const OWN_GATES: Differences = &[
    ("CloudProviderNodeOwnership", OWNERSHIP),
    ("ServiceLoadBalancerConditions", "KEP-4631, which is not implemented upstream"),
];
/// Fields of `/configz` that are missing here.
const MISSING_FIELDS: Differences = &[
    ("Generic.LeaderMigration.apiVersion", "empty, and left out by Go too"),
    ("Generic.LeaderMigration.kind", "empty, and left out by Go too"),
];
const GO: &str = "about Go's own metrics framework";
const INFORMERS: &str = "about client-go's informers; the stores have ccm_store_age_seconds and others";
const PLUGINS: &str = "about client-go's credential plugins";
const TRANSPORTS: &str = "about client-go's cache of transports, which this program does not have";
/// Metrics that are missing here.
const MISSING_METRICS: Differences = &[
    ("cardinality_enforcement_unexpected_categorizations_total", GO),
    ("disabled_metrics_total", GO),
    ("hidden_metrics_total", GO),
    ("informer_processing_latency_seconds", INFORMERS),
    ("informer_queued_items", INFORMERS),
    ("informer_store_resource_version", INFORMERS),
    ("registered_metrics_total", GO),
    ("rest_client_dns_resolution_duration_seconds", "the HTTP client does not tell this time apart"),
    ("rest_client_exec_plugin_call_total", PLUGINS),
    ("rest_client_exec_plugin_certificate_rotation_age", PLUGINS),
    ("rest_client_exec_plugin_policy_call_total", PLUGINS),
    ("rest_client_exec_plugin_ttl_seconds", PLUGINS),
    ("rest_client_transport_ca_reload_total", TRANSPORTS),
    ("rest_client_transport_cache_entries", TRANSPORTS),
    ("rest_client_transport_cache_gc_calls_total", TRANSPORTS),
    ("rest_client_transport_cert_rotation_gc_calls_total", TRANSPORTS),
    ("rest_client_transport_create_calls_total", TRANSPORTS),
    ("version_info", "about versions that a server emulates"),
];

/// The rows of one kind of the newest version that has them, by name.
fn newest(kind: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut rows = BTreeMap::new();
    for version in versions() {
        rows.extend(rows_of(version, kind));
    }
    rows
}

fn rows_of(version: &str, kind: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = TABLE.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row[0] == kind)
        .filter(|row| row[row.len() - 1].split(' ').any(|one| one == version))
        .map(|row| (row[1], row[2..row.len() - 1].to_vec()))
        .collect()
}

/// The names on the left are those of the list, no more and no less.
#[track_caller]
fn are_listed<'a>(found: impl IntoIterator<Item = &'a str>, listed: Differences) {
    let found: Vec<&str> = found.into_iter().collect();
    let listed: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, listed);
}

/// The type of pflag.
fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::List => "stringSlice",
        Kind::Version => "version",
        kind => kind.as_str(),
    }
}

/// The default as pflag prints it.
fn default_of(flag: &Flag) -> String {
    match flag.kind {
        Kind::List | Kind::Pairs | Kind::Ints | Kind::CertKey => format!("[{}]", flag.default),
        _ => flag.default.to_owned(),
    }
}

#[test]
fn every_flag_is_known_with_type_and_default() {
    let program = Program::default();
    let ours: BTreeMap<&str, &Flag> = program.flags.iter().map(|flag| (flag.name, flag)).collect();
    let mut other_defaults = Vec::new();
    for (name, row) in newest("flag") {
        let [kind, default, short, deprecated] = row[..] else { panic!("{name}: {row:?}") };
        let flag = ours.get(name).unwrap_or_else(|| panic!("--{name} is missing"));
        assert_eq!(type_of(flag.kind), kind, "--{name}");
        assert_eq!(flag.short.map(String::from).unwrap_or_default(), short, "--{name}");
        assert_eq!(flag.deprecated.is_some().to_string(), deprecated, "--{name}");
        if format!("{:?}", default_of(flag)) != default {
            other_defaults.push(name);
        }
    }
    are_listed(other_defaults, FLAG_DEFAULTS);
    let theirs = newest("flag");
    are_listed(ours.into_keys().filter(|name| !theirs.contains_key(name)), OWN_FLAGS);
}

#[test]
fn every_gate_is_accepted_and_those_with_an_effect_have_the_newest_default() {
    for version in versions() {
        for (name, row) in rows_of(version, "gate") {
            let gate = format!("--feature-gates={name}={}", row[1]);
            if let Err(refused) = Options::from_args(["--cloud-provider=fake", &gate]) {
                panic!("{}", refused.message);
            }
        }
    }
    let (theirs, mut others, mut own) = (newest("gate"), Vec::new(), Vec::new());
    for (name, stage, on) in Gates::default().iter() {
        match theirs.get(name) {
            None => own.push(name),
            // The table shows the value that is given, if any.
            Some(_) if name == "AllBeta" => {}
            Some(row) if *row != [stage.to_string(), on.to_string()] => others.push(name),
            Some(_) => {}
        }
    }
    are_listed(others, GATE_DEFAULTS);
    are_listed(own, OWN_GATES);
}

#[test]
fn the_configuration_has_every_field() {
    let options = Options::from_args(["--cloud-provider=fake"]).unwrap();
    let ours = componentconfig::componentconfig(&options);
    let mut missing = Vec::new();
    let newest = rows_of(versions().last().unwrap(), "config");
    for (path, row) in &newest {
        let Some(value) = ours.pointer(&format!("/{}", path.replace('.', "/"))) else {
            missing.push(*path);
            continue;
        };
        let fits = match row[0] {
            "bool" => value.is_boolean(),
            "int32" => value.is_i64(),
            "float32" => value.is_f64(),
            "string" | "v1.Duration" => value.is_string(),
            _ => value.is_array() || value.is_null(),
        };
        assert!(fits, "{path} is {value}, and of type {}", row[0]);
    }
    are_listed(missing, MISSING_FIELDS);
    let theirs: BTreeSet<&str> = newest.iter().map(|(path, _)| *path).collect();
    let mut paths = Vec::new();
    leaves("", &ours, &mut paths);
    let more: Vec<&String> = paths.iter().filter(|path| !theirs.contains(path.as_str())).collect();
    assert_eq!(more, Vec::<&String>::new(), "no field of Go");
}

fn leaves(path: &str, value: &Value, found: &mut Vec<String>) {
    match value.as_object() {
        None => found.push(path.to_owned()),
        Some(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&path, value, found);
            }
        }
    }
}

#[test]
fn every_metric_has_the_newest_type_and_labels() {
    let table = metrics::table();
    let mut missing = Vec::new();
    for (name, row) in newest("metric") {
        let [kind, _stability, labels] = row[..] else { panic!("{name}: {row:?}") };
        let Some(def) = table.iter().find(|def| def.name == name) else {
            missing.push(name);
            continue;
        };
        if kind != "desc" {
            assert_eq!(def.kind.to_string(), kind, "{name}");
        }
        // What the sources do not say.
        if labels != "?" {
            let ours: BTreeSet<&str> = def.labels.iter().copied().collect();
            let theirs: BTreeSet<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
            assert_eq!(ours, theirs, "{name}");
        }
    }
    are_listed(missing, MISSING_METRICS);
}

#[test]
fn every_event_is_documented_with_its_type() {
    let page = include_str!("../../../../ccm/docs/events.md");
    for version in versions() {
        let events = rows_of(version, "event");
        assert!(events.len() > 10, "{version}: {events:?}");
        for (reason, row) in events {
            let documented = format!("\n- `{reason}` (type: {})\n", row[0]);
            assert!(page.contains(&documented), "{version}: {reason}, {}", row[0]);
        }
    }
}

/// The controllers of each Go program, with aliases, and whether `*` includes them: `main.go` of cloud-provider-aws, -gcp and
/// -openstack, `controllermanager.go` of cloud-provider-azure.
const CORE: [(&str, bool); 8] = [
    ("cloud-node-controller", true),
    ("cloud-node", true),
    ("cloud-node-lifecycle-controller", true),
    ("cloud-node-lifecycle", true),
    ("node-route-controller", true),
    ("route", true),
    ("service-lb-controller", true),
    ("service", true),
];
const PROVIDERS: &[(&str, &[(&str, bool)])] = &[
    #[cfg(feature = "aws")]
    ("aws", &[("tagging", false)]),
    ("azure", &[("node-ipam", true)]),
    (
        "gce",
        &[
            ("node-ipam-controller", true),
            ("nodeipam", true),
            ("gke-service-lb-controller", false),
            ("gke-service", false),
            ("gkenetworkparamset", false),
            ("gke-tenant-controller-manager", false),
        ],
    ),
    ("openstack", &[]),
];

/// Their names are only accepted.
const ABSENT: [&str; 2] = ["gkenetworkparamset", "gke-tenant-controller-manager"];

/// An unknown name ends the start. With another default, nobody does the work of a controller, or two programs do.
#[test]
fn every_controller_of_the_go_programs_is_known_and_on_where_it_is_on_there() {
    let mut registry = Registry::new();
    #[cfg(feature = "aws")]
    registry.register(Arc::new(ccm_provider_aws::Factory)).unwrap();
    registry.register(Arc::new(ccm_provider_azure::Factory::default())).unwrap();
    registry.register(Arc::new(ccm_provider_gce::Factory::default())).unwrap();
    registry.register(Arc::new(ccm_provider_openstack::Factory)).unwrap();
    for (provider, own) in PROVIDERS {
        for (name, on) in CORE.iter().chain(*own) {
            let given = |list: &str| {
                let args = [format!("--cloud-provider={provider}"), format!("--controllers={list}")];
                let options = Options::with_providers(&registry, args).unwrap_or_else(|refused| {
                    panic!("{provider}: {list}: {}", refused.message);
                });
                options.switched_on().map(|known| known.name).collect::<Vec<_>>()
            };
            let (all, without) = (given("*"), given(&format!("*,-{name}")));
            assert_eq!(all != without, *on, "{provider}: {name}: {all:?}");
            assert_eq!(given(&format!("-{name}")), [""; 0], "{provider}: {name}");
            let with = given(&format!("*,{name}"));
            assert_eq!(with != all, !on && !ABSENT.contains(name), "{provider}: {name}: {with:?}");
        }
    }
}
