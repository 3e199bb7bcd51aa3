//! Flags: the table, the parser, and the typed options.

pub mod componentconfig;
pub(crate) mod help;
pub mod migration;
mod names;
mod obsolete;
pub mod parse;
pub mod reference;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use ccm_provider::flag::FlagValues;
use ccm_provider::{CloudProvider, Registry, Schemes};
use ccm_runtime::client::{Access, Rate};
use ccm_runtime::election::ElectionConfig;

use crate::controllers::{Configured, Controller};
use crate::exit::Failure;
use crate::flags::{Check, Gates};
use crate::logging::{LoggingOptions, Routing, parse_buffer_size, parse_vmodule};
use crate::program::Program;
use crate::serve::{Authentication, Authorization, Serving};
use crate::webhook::Webhook;
pub(crate) use help::summary;
use migration::Migration;
use names::{Name, switched_on};
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
    /// `--min-resync-period`
    pub min_resync: Duration,
    /// `--controller-start-interval`: the delay after each started controller.
    pub start_interval: Duration,
    /// All controllers.
    pub controllers: Vec<Chosen>,
    /// The webhooks to serve: those of `--webhooks`; none without the gate.
    pub webhooks: Vec<Webhook>,
    /// Classes of Services that a separate enabled controller handles, each with the name of that controller.
    pub classes: Vec<(&'static str, &'static str)>,
    /// `--feature-gates`
    pub gates: Gates,
    /// `--cloud-provider-platforms`; empty: the schemes of the provider.
    pub platforms: Vec<String>,
    /// `None` with `--leader-elect=false`. A dry run takes part in no election, and its commands read the lease.
    pub election: Option<ElectionConfig>,
    /// `None` without `--enable-leader-migration`, or without election.
    pub migration: Option<Migration>,
    /// `--dry-run`
    pub dry_run: bool,
    /// `--profiling`: whether `/debug/flags/v` is served.
    pub profiling: bool,
    /// Settings of the clients of the API server.
    pub clients: Clients,
    /// Format and verbosity of the logs.
    pub logging: LoggingOptions,
    /// The secure port: health, metrics, state.
    pub serving: Serving,
    /// Authentication of its clients.
    pub authentication: Authentication,
    /// Authorization of its clients.
    pub authorization: Authorization,
    /// The port of the webhooks; 0 disables serving.
    pub webhook_serving: Serving,
    /// `--master`
    pub master: String,
    /// `--kubeconfig`
    pub kubeconfig: String,
    /// The access flags of a command; the manager has none.
    pub access: Access,
    /// The version that the program reports: its own, or that of `--version=vX.Y.Z…`.
    pub version: String,
    /// All flags, including those of providers and added controllers.
    pub values: FlagValues,
    /// Accepted values that do not have the expected effect. Logged once.
    pub warnings: Vec<String>,
}

/// A controller with its settings, and whether it is enabled.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The entry of the table.
    pub controller: Controller,
    /// Whether `--controllers` enables it.
    pub on: bool,
    /// Its settings, with which it starts.
    pub configured: Configured,
}

/// Settings of the API server clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Clients {
    /// The limit of each client; `None` leaves limits to the API server's priority and fairness.
    pub rate: Option<Rate>,
    /// `--use-service-account-credentials`: each controller uses its own service account.
    pub use_service_account_credentials: bool,
}

impl Options {
    /// Validates all values and reports all errors at once, in the order of the Go program.
    ///
    /// # Errors
    ///
    /// One line with all errors; exit code 1.
    pub fn new(values: &FlagValues, program: &Program) -> Result<Self, Failure> {
        let mut warnings = Vec::new();
        let gates = gates(values, &mut warnings);
        let mut check = Check { values, gates, errors: Vec::new(), classes: Vec::new() };
        let logging = logging(values);
        check.errors.extend(logging.validate(gates.logging));
        let election = election(&mut check);
        let controllers = controllers(program, &mut check);
        let (address, port) = (check.address("bind-address"), secure_port(&mut check));
        let serving = Serving::from_values(values, address, port, &mut check.errors);
        let authentication = Authentication::from_values(values, &mut check.errors);
        let authorization = Authorization::from_values(values, &mut check.errors);
        let mut webhooks = webhooks(program, &mut check);
        let (address, port) = (check.address("webhook-bind-address"), webhook_port(port, &mut check));
        warnings.extend(unserved(&webhooks, gates, port));
        webhooks.retain(|_| gates.webhook);
        let webhook_serving = Serving::of_webhooks(values, address, port, &mut check.errors);
        if values.text("cloud-provider").is_empty() {
            check.error("--cloud-provider cannot be empty");
        }
        let platforms = platforms(&mut check);
        let migration = election.as_ref().and_then(|election| migrate(&election.name, &mut check));
        warnings.extend(migration.iter().flat_map(|migration| unmatched(migration, program)));
        warnings.extend(content_type(values));
        warnings.extend(absent(program, values));
        let options = Self {
            cloud_provider: values.text("cloud-provider"),
            cloud_config: values.text("cloud-config"),
            allow_untagged_cloud: values.bool("allow-untagged-cloud"),
            cluster_name: values.text("cluster-name"),
            min_resync: values.duration("min-resync-period"),
            start_interval: values.duration("controller-start-interval"),
            controllers,
            classes: check.classes.clone(),
            webhooks,
            gates,
            platforms,
            election,
            migration,
            dry_run: values.bool("dry-run"),
            profiling: values.bool("profiling"),
            clients: clients(values),
            logging,
            serving,
            authentication,
            authorization,
            webhook_serving,
            master: values.text("master"),
            kubeconfig: values.text("kubeconfig"),
            access: Access::default(),
            version: reported_version(values),
            values: values.clone(),
            warnings,
        };
        // The same name may be wrong twice (`foo,-foo`); as in the Go program, each text is reported once.
        let mut seen = BTreeSet::new();
        check.errors.retain(|error| seen.insert(error.clone()));
        match &check.errors[..] {
            [] => Ok(options),
            [one] => Err(Failure::error(one.clone())),
            all => Err(Failure::error(format!("[{}]", all.join(", ")))),
        }
    }

    /// Options of the default program from its arguments, without the program's name.
    ///
    /// # Errors
    ///
    /// The error with which the program would exit.
    pub fn from_args(args: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Failure> {
        Self::with_providers(&Registry::new(), args)
    }

    /// The same for a program with these providers.
    ///
    /// # Errors
    ///
    /// The error with which the program would exit.
    pub fn with_providers(
        registry: &Registry,
        args: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Failure> {
        let mut program = Program::default();
        program.complete(registry)?;
        let name = std::iter::once(program.name.into());
        let args: Vec<OsString> = name.chain(args.into_iter().map(|arg| arg.as_ref().into())).collect();
        match parse::parse(&program, args)? {
            Asked::Run(values) => Self::new(&values, &program),
            Asked::Print(text) => Err(Failure::error(text)),
        }
    }

    /// The schemes of the provider IDs of nodes that this program owns.
    pub(crate) fn schemes(&self, provider: &dyn CloudProvider) -> Schemes {
        match (self.gates.node_ownership, &self.platforms[..]) {
            (false, _) => provider.provider_id_schemes(),
            (true, []) => provider.provider_id_schemes().strict(),
            (true, some) if some.iter().any(|platform| platform == ALL_PLATFORMS) => Schemes::new([]).strict(),
            (true, some) => Schemes::new(some.iter().map(String::as_str)).strict(),
        }
    }

    /// The controllers to run.
    pub fn switched_on(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.iter().filter(|chosen| chosen.on).map(|chosen| &chosen.controller)
    }
}

fn gates(values: &FlagValues, warnings: &mut Vec<String>) -> Gates {
    let (gates, idle) = Gates::parse(&values.list("feature-gates"));
    if !idle.is_empty() {
        warnings.push(format!("feature gates that have no effect in this program: {}", idle.join(", ")));
    }
    gates
}

/// The parser has validated the single values; [`LoggingOptions::validate`] validates their combination.
pub(crate) fn logging(values: &FlagValues) -> LoggingOptions {
    let routing = |format: &str| Routing {
        split_stream: values.bool(&format!("log-{format}-split-stream")),
        info_buffer_size: parse_buffer_size(&values.text(&format!("log-{format}-info-buffer-size")))
            .unwrap_or_default(),
    };
    LoggingOptions {
        format: values.text("logging-format"),
        flush_frequency: values.duration("log-flush-frequency"),
        verbosity: values.int("v").and_then(|v| u32::try_from(v).ok()).unwrap_or_default(),
        vmodule: parse_vmodule(&values.list("vmodule").join(",")).unwrap_or_default(),
        quiet: false,
        text: routing("text"),
        json: routing("json"),
    }
}

fn clients(values: &FlagValues) -> Clients {
    let (qps, burst) = (values.float("kube-api-qps"), values.int("kube-api-burst"));
    let rate = (qps.is_some() || burst.is_some()).then(|| {
        let qps = values.text("kube-api-qps").parse().unwrap_or(DEFAULT_QPS);
        let burst = burst.and_then(|burst| i32::try_from(burst).ok()).unwrap_or(DEFAULT_BURST);
        Rate::new(qps, burst)
    });
    Clients { rate: rate.flatten(), use_service_account_credentials: values.bool("use-service-account-credentials") }
}

/// The default of the Go program for its clients.
const DEFAULT_QPS: f32 = 20.0;
const DEFAULT_BURST: i32 = 30;

fn content_type(values: &FlagValues) -> Option<String> {
    let asked = values.text("kube-api-content-type");
    let other = values.given("kube-api-content-type") && asked != "application/json";
    other.then(|| {
        format!("--kube-api-content-type={asked} is accepted and has no effect: requests are application/json")
    })
}

/// The controllers that a list such as `*,-route` enables with this provider, in their order.
pub(crate) fn controllers_on(
    program: &Program,
    provider: &str,
    list: &[String],
    errors: &mut Vec<String>,
) -> Vec<bool> {
    let by_default = |known: &Controller| {
        let with = |(named, controller): &(&str, &str)| *named == provider && *controller == known.name;
        known.on_by_default || program.on_by_default.iter().any(with)
    };
    let name = |known: &'_ Controller| Name { name: known.name, aliases: known.aliases, by_default: by_default(known) };
    let known: Vec<Name<'_>> = program.controllers.iter().map(name).collect();
    let is_present = |entry: &&String| !program.absent_controllers.contains(&entry.trim_start_matches('-'));
    let list: Vec<String> = list.iter().filter(is_present).cloned().collect();
    switched_on(&known, &list, "controllers", errors)
}

/// Warnings about enabled controllers of a replaced program that do not exist here.
fn absent(program: &Program, values: &FlagValues) -> Vec<String> {
    let enabled = values.list("controllers").into_iter().filter(|name| program.absent_controllers.contains(&&**name));
    enabled.map(|name| format!("--controllers enables {name:?}, which this program does not have: no effect")).collect()
}

fn controllers(program: &Program, check: &mut Check<'_>) -> Vec<Chosen> {
    let provider = check.values.text("cloud-provider");
    let on = controllers_on(program, &provider, &check.values.list("controllers"), &mut check.errors);
    let runs = |name: &str| program.controllers.iter().zip(&on).any(|(known, on)| *on && known.name == name);
    let others = program.service_controllers.iter().filter(|(of, spec)| *of == provider && runs(spec.name));
    check.classes = others.flat_map(|(_, spec)| spec.classes.iter().map(|class| (*class, spec.name))).collect();
    let choose = |(controller, on): (&Controller, bool)| {
        let found = check.errors.len();
        let configured = (controller.parse)(check);
        // Flags of the program are always checked; those of a disabled controller have no effect.
        if !on && !controller.flags.is_empty() {
            check.errors.truncate(found);
        }
        Chosen { controller: controller.clone(), on, configured }
    };
    program.controllers.iter().zip(on).map(choose).collect()
}

/// In `--cloud-provider-platforms`: the nodes of all clouds.
const ALL_PLATFORMS: &str = "*";

fn platforms(check: &mut Check<'_>) -> Vec<String> {
    let platforms = check.values.list("cloud-provider-platforms");
    if !platforms.is_empty() && !check.gates.node_ownership {
        check.error("--cloud-provider-platforms requires the CloudProviderNodeOwnership feature gate to be enabled");
    }
    for platform in &platforms {
        if platform.is_empty() || platform.contains([':', '/']) || platform.contains(char::is_whitespace) {
            check.error(format!(
                "--cloud-provider-platforms contains invalid platform identifier {platform:?}, it must be a non-empty \
                 ProviderID scheme without \"://\" or whitespace"
            ));
        }
    }
    platforms
}

fn secure_port(check: &mut Check<'_>) -> u16 {
    // Both texts are those of the Go program.
    check.port("secure-port", |port| {
        let text = if port < 0 {
            "between 0 and 65535, inclusive. 0 for turning off secure port"
        } else {
            "between 1 and 65535, inclusive. It cannot be turned off with 0"
        };
        text.to_owned()
    })
}

fn webhooks(program: &Program, check: &mut Check<'_>) -> Vec<Webhook> {
    let name = |webhook: &Webhook| Name { name: webhook.name, aliases: &[], by_default: true };
    let known: Vec<Name<'_>> = program.webhooks.iter().map(name).collect();
    let on = switched_on(&known, &check.values.list("webhooks"), "webhooks", &mut check.errors);
    let on = program.webhooks.iter().zip(on).filter(|(_, on)| *on);
    on.map(|(webhook, _)| webhook.clone()).collect()
}

/// A warning if webhooks are enabled but not served: the API server could then block the objects they review.
fn unserved(asked: &[Webhook], gates: Gates, port: u16) -> Option<String> {
    let missing = match gates.webhook {
        false => "without --feature-gates=CloudControllerManagerWebhook=true",
        true if port == 0 => "with --webhook-secure-port=0",
        true => return None,
    };
    (!asked.is_empty()).then(|| format!("--webhooks has no effect {missing}: no webhook is served"))
}

fn webhook_port(secure_port: u16, check: &mut Check<'_>) -> u16 {
    let found = check.errors.len();
    let port = check.port("webhook-secure-port", |_| {
        "between 0 and 65535, inclusive. A value of 0 disables the webhook endpoint entirely.".into()
    });
    if port == secure_port && port != 0 && check.errors.len() == found {
        check.error("--webhook-secure-port cannot be the same value as --secure-port");
    }
    port
}

fn election(check: &mut Check<'_>) -> Option<ElectionConfig> {
    let values = check.values;
    if !values.bool("leader-elect") {
        return None;
    }
    if values.text("leader-elect-resource-lock") != "leases" {
        check.error("resourceLock value must be \"leases\"");
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
        check.errors.extend(found);
    }
    Some(config)
}

fn migrate(main_lease: &str, check: &mut Check<'_>) -> Option<Migration> {
    if !check.values.bool("enable-leader-migration") {
        return None;
    }
    let read = Migration::read(&check.values.text("leader-migration-config"));
    let migration = read.map_err(|error| check.error(error)).ok()?;
    if migration.lease_name == main_lease {
        check.error(format!(
            "leaderName {main_lease:?} of the leader migration is the name of the main lease too (--leader-elect-resource-name): \
             a process cannot hold both"
        ));
    }
    Some(migration)
}

fn unmatched(migration: &Migration, program: &Program) -> Vec<String> {
    let known: Vec<(&str, &[&str])> = program.controllers.iter().map(|known| (known.name, known.aliases)).collect();
    let text = |name| format!("the leader migration lists {name:?}, which is not a controller of this program");
    migration.unmatched(&known).into_iter().map(text).collect()
}

fn reported_version(values: &FlagValues) -> String {
    match values.text("version") {
        asked if asked.starts_with('v') => asked,
        _ => crate::version::VERSION.to_owned(),
    }
}

/// The kernel's host name.
fn hostname() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = read.trim().to_owned();
    if name.is_empty() { std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".into()) } else { name }
}
