//! Flags: the table, the parser, and the typed options.

pub mod migration;
pub mod parse;
pub mod table;

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use ccm_controllers::{lifecycle, node, route, service};
use ccm_provider::flag::{FlagValues, go_bool};
use ccm_runtime::election::ElectionConfig;
use ipnet::IpNet;

use crate::controllers::Controller;
use crate::exit::Failure;
use crate::program::Program;
use parse::Asked;

/// Every flag, parsed and validated.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cloud-provider`
    pub cloud_provider: String,
    /// `--cloud-config`
    pub cloud_config: String,
    /// `--allow-untagged-cloud`
    pub allow_untagged_cloud: bool,
    /// `--cluster-name`
    pub cluster_name: String,
    /// `--cluster-cidr`, as given: only the route controller needs it to be right.
    pub cluster_cidr: String,
    /// `--configure-cloud-routes`
    pub configure_cloud_routes: bool,
    /// `--route-reconciliation-period`
    pub route_period: Duration,
    /// Gate `CloudControllerManagerWatchBasedRoutesReconciliation`
    pub watch_based_routes: bool,
    /// `--min-resync-period`
    pub min_resync: Duration,
    /// All controllers, and whether they are to run.
    pub controllers: Vec<(Controller, bool)>,
    /// `None` with `--leader-elect=false`.
    pub election: Option<ElectionConfig>,
    /// `--dry-run`
    pub dry_run: bool,
    /// Settings of the node controller.
    pub node: node::Config,
    /// Settings of the lifecycle controller.
    pub lifecycle: lifecycle::Config,
    /// Settings of the service controller.
    pub service: service::Config,
    /// `--bind-address`
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 serves nothing.
    pub secure_port: u16,
    /// `--master`
    pub master: String,
    /// `--kubeconfig`
    pub kubeconfig: String,
    /// `-v`
    pub verbosity: u8,
    /// All flags, those of providers and added controllers included.
    pub values: FlagValues,
}

impl Options {
    /// Checks all values and reports all that is wrong at once.
    pub fn new(values: &FlagValues, program: &Program) -> Result<Self, Failure> {
        let mut errors = Vec::new();
        let controllers = controllers(&program.controllers, &values.list("controllers"), &mut errors);
        for (controller, _) in controllers.iter().filter(|(_, on)| *on) {
            errors.extend((controller.check)(values));
        }
        let verbosity = u8::try_from(values.int("v").unwrap_or_default().clamp(0, 10)).unwrap_or_default();
        let secure_port = secure_port(values.int("secure-port").unwrap_or_default(), &mut errors);
        let text = values.text("bind-address");
        let bind_address = text.parse().unwrap_or_else(|_| {
            errors.push(format!("--bind-address {text:?} is not an IP address"));
            IpAddr::from([0, 0, 0, 0])
        });
        if values.text("cloud-provider").is_empty() {
            errors.push("--cloud-provider cannot be empty".into());
        }
        let node = node::Config {
            concurrent_syncs: at_least_one(values, "concurrent-node-syncs", &mut errors),
            concurrent_status_updates: status_updates(values, &mut errors),
            status_update_period: positive(values, "node-status-update-frequency", &mut errors),
        };
        let lifecycle = lifecycle::Config {
            period: positive(values, "node-monitor-period", &mut errors),
            budget: lifecycle::decide::Budget {
                nodes: not_negative(values, "node-deletion-budget", &mut errors),
                percent: not_negative(values, "node-deletion-budget-percent", &mut errors).min(100),
            },
        };
        let service = service::Config {
            concurrent_syncs: at_least_one(values, "concurrent-service-syncs", &mut errors),
            allow_emptying: values.bool("allow-emptying-load-balancers"),
        };
        let election = election(values, &mut errors);
        let watch_based_routes = watch_based_routes(&values.list("feature-gates"), &mut errors);
        let options = Self {
            cloud_provider: values.text("cloud-provider"),
            cloud_config: values.text("cloud-config"),
            allow_untagged_cloud: values.bool("allow-untagged-cloud"),
            cluster_name: values.text("cluster-name"),
            cluster_cidr: values.text("cluster-cidr"),
            configure_cloud_routes: values.bool("configure-cloud-routes"),
            route_period: positive(values, "route-reconciliation-period", &mut errors),
            watch_based_routes,
            min_resync: values.duration("min-resync-period"),
            controllers,
            election,
            dry_run: values.bool("dry-run"),
            node,
            lifecycle,
            service,
            bind_address,
            secure_port,
            master: values.text("master"),
            kubeconfig: values.text("kubeconfig"),
            verbosity,
            values: values.clone(),
        };
        match &errors[..] {
            [] => Ok(options),
            [one] => Err(Failure::error(one.clone())),
            _ => Err(Failure::error(format!("[{}]", errors.join(", ")))),
        }
    }

    /// Options of the default program from its arguments, the program's name left out.
    pub fn from_args(args: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Failure> {
        let program = Program::default();
        let name = std::iter::once(program.name.into());
        let args: Vec<OsString> = name.chain(args.into_iter().map(|arg| arg.as_ref().into())).collect();
        match parse::parse(&program, args)? {
            Asked::Run(values) => Self::new(&values, &program),
            Asked::Print(text) => Err(Failure::error(text)),
        }
    }

    /// The pod ranges for the route controller.
    pub fn cluster_cidrs(&self) -> Result<Vec<IpNet>, String> {
        route::parse_cluster_cidrs(&self.cluster_cidr)
    }
}

/// The gate of watch-based route reconciliation, the only one that changes anything here.
fn watch_based_routes(gates: &[String], errors: &mut Vec<String>) -> bool {
    let mut on = false;
    for gate in gates {
        match gate.split_once('=') {
            Some(("CloudControllerManagerWatchBasedRoutesReconciliation", value)) => match go_bool(value) {
                Ok(value) => on = value,
                Err(error) => errors.push(format!("invalid value of feature gate {gate}: {error}")),
            },
            Some((name, _)) => errors.push(format!("unrecognized feature gate: {name}")),
            None => errors.push(format!("missing bool value for feature gate {gate}")),
        }
    }
    on
}

fn secure_port(port: i64, errors: &mut Vec<String>) -> u16 {
    u16::try_from(port).unwrap_or_else(|_| {
        errors.push(if port < 0 {
            format!("--secure-port {port} must be between 0 and 65535, inclusive. 0 for turning off secure port")
        } else {
            format!("--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0")
        });
        0
    })
}

fn at_least_one(values: &FlagValues, name: &str, errors: &mut Vec<String>) -> Option<usize> {
    match values.int(name) {
        None => None,
        Some(number) => match usize::try_from(number) {
            Ok(number) if number > 0 => Some(number),
            _ => {
                errors.push(format!("{name} must be a positive number"));
                None
            }
        },
    }
}

fn status_updates(values: &FlagValues, errors: &mut Vec<String>) -> Option<usize> {
    let name = "concurrent-node-status-updates";
    match values.int(name) {
        Some(number) if number < 0 => {
            errors.push(format!("{name} cannot be a negative number"));
            None
        }
        number => number.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0),
    }
}

fn not_negative(values: &FlagValues, name: &str, errors: &mut Vec<String>) -> usize {
    let number = values.int(name).unwrap_or_default();
    usize::try_from(number).unwrap_or_else(|_| {
        errors.push(format!("--{name} {number} cannot be negative"));
        0
    })
}

fn positive(values: &FlagValues, name: &str, errors: &mut Vec<String>) -> Duration {
    let duration = values.duration(name);
    if duration.is_zero() {
        errors.push(format!("--{name} must be greater than 0"));
    }
    duration
}

fn election(values: &FlagValues, errors: &mut Vec<String>) -> Option<ElectionConfig> {
    if !values.bool("leader-elect") {
        return None;
    }
    if values.text("leader-elect-resource-lock") != "leases" {
        errors.push("resourceLock value must be \"leases\"".into());
    }
    let config = ElectionConfig {
        namespace: values.text("leader-elect-resource-namespace"),
        name: values.text("leader-elect-resource-name"),
        identity: ccm_runtime::election::identity(&hostname()),
        lease_duration: values.duration("leader-elect-lease-duration"),
        renew_deadline: values.duration("leader-elect-renew-deadline"),
        retry_period: values.duration("leader-elect-retry-period"),
    };
    if let Err(found) = config.validate() {
        errors.extend(found);
    }
    Some(config)
}

/// The kernel's name of this machine.
fn hostname() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = read.trim().to_owned();
    if name.is_empty() { std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".into()) } else { name }
}

/// Which controllers `--controllers` switches on: aliases are replaced, the first entry for a name wins, and without `*`
/// only those named run.
fn controllers(known: &[Controller], list: &[String], errors: &mut Vec<String>) -> Vec<(Controller, bool)> {
    let canonical = |word: &str| {
        known.iter().find(|known| known.name == word || known.aliases.contains(&word)).map(|known| known.name)
    };
    let mut decided: Vec<(&'static str, bool)> = Vec::new();
    let mut all = false;
    for entry in list {
        if entry == "*" {
            all = true;
            continue;
        }
        let (word, on) = entry.strip_prefix('-').map_or((entry.as_str(), true), |word| (word, false));
        match canonical(word) {
            Some(name) if decided.iter().all(|(known, _)| *known != name) => decided.push((name, on)),
            Some(_) => {}
            None => errors.push(format!("{word:?} is not in the list of known controllers")),
        }
    }
    let on = |controller: &Controller| {
        let said = decided.iter().find(|(name, _)| *name == controller.name);
        said.map_or(all && controller.on_by_default, |(_, on)| *on)
    };
    known.iter().map(|controller| (controller.clone(), on(controller))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        Options::from_args(["--cloud-provider=fake"].iter().chain(args)).map_err(|failure| failure.message)
    }

    #[test]
    fn the_first_entry_for_a_controller_wins_and_without_a_star_only_named_ones_run() {
        let on = |list: &str| {
            let table = options(&[&format!("--controllers={list}")]).unwrap().controllers;
            table.iter().filter(|(_, on)| *on).map(|(controller, _)| controller.name).collect::<Vec<_>>()
        };
        assert_eq!(on("*,-route,route"), [node::NAME, lifecycle::NAME, service::NAME]);
        assert_eq!(on("service"), [service::NAME]);
        assert_eq!(on("-service-lb-controller,*").len(), 3);
        assert_eq!(options(&["--controllers=-foo"]).unwrap_err(), "\"foo\" is not in the list of known controllers");
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let text = options(&["--cloud-provider=", "--concurrent-service-syncs=0", "--secure-port=70000"]).unwrap_err();
        assert!(text.starts_with('[') && text.ends_with(']'), "{text}");
        assert!(text.contains("--cloud-provider cannot be empty"), "{text}");
        assert!(text.contains("concurrent-service-syncs must be a positive number"), "{text}");
        assert!(text.contains("It cannot be turned off with 0"), "{text}");
    }

    #[test]
    fn election_times_are_checked_only_when_electing() {
        assert!(options(&["--leader-elect-renew-deadline=20s"]).is_err());
        assert!(options(&["--leader-elect-renew-deadline=20s", "--leader-elect=false"]).unwrap().election.is_none());
        assert_eq!(
            options(&["--leader-elect-resource-lock=endpoints"]).unwrap_err(),
            "resourceLock value must be \"leases\""
        );
    }

    #[test]
    fn limits_that_are_not_given_are_left_to_the_pace() {
        let options = options(&["--concurrent-node-status-updates=0"]).unwrap();
        assert_eq!((options.node.concurrent_syncs, options.node.concurrent_status_updates), (None, None));
        assert_eq!(options.lifecycle.budget, lifecycle::decide::Budget::DEFAULT);
    }
}
