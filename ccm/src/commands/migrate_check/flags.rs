//! Compares the flags of the running components with those given to this command.

use std::collections::BTreeMap;

use ccm_provider::Check;
use ccm_provider::flag::{Flag, FlagValues, go_bool};

use super::join;
use super::running::{Component, Running};
use crate::controllers::Controller;
use crate::options::Options;
use crate::options::parse::{deprecations, read_on};
use crate::program::Program;

const CLOUD_PROVIDER: &str = "cloud-provider";
const CLUSTER_NAME: &str = "cluster-name";
const POD_RANGES: &str = "pod-ranges";
const LEADER_MIGRATION: &str = "leader-migration";
const LEADER_ELECTION: &str = "leader-election";
const FLAG_VALUE: &str = "flag-value";

/// Sections of flags for serving, logging and connections: they differ between installations and do not affect the
/// cluster or the cloud.
const SERVING_SECTIONS: [&str; 8] = [
    "Debugging flags",
    "Secure serving flags",
    "Webhook serving flags",
    "Webhook flags",
    "Authentication flags",
    "Authorization flags",
    "Global flags",
    "Command flags",
];
/// Such flags in other sections. `dry-run` concerns only this check.
const SERVING_FLAGS: [&str; 7] = [
    "dry-run",
    "external-cloud-volume-plugin",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "kubeconfig",
    "master",
];

/// Flags of kube-controller-manager for the work that this program takes over from it; those for names and ranges
/// have their own checks.
const SHARED: [&str; 7] = [
    "allow-untagged-cloud",
    "cloud-config",
    "cloud-provider",
    "concurrent-service-syncs",
    "configure-cloud-routes",
    "node-monitor-period",
    "route-reconciliation-period",
];
/// The default of kube-controller-manager for `--cluster-name`.
const DEFAULT_CLUSTER_NAME: &str = "kubernetes";

pub(super) struct Ours<'a> {
    pub(super) program: &'a Program,
    pub(super) options: &'a Options,
    /// Whether a controller would run here: the provider may not support an enabled one.
    pub(super) runs: &'a dyn Fn(&str) -> bool,
}

impl Ours<'_> {
    fn makes_routes(&self) -> bool {
        (self.runs)(ccm_controllers::route::NAME)
    }
}

pub(super) fn checks(running: &[Running], ours: &Ours<'_>) -> Vec<Check> {
    let of = |component| running.iter().filter(move |running| running.component == component);
    let mut checks = Vec::new();
    let mut has_cloud_controller = false;
    for running in of(Component::CloudControllerManager) {
        has_cloud_controller = true;
        checks.extend(of_cloud_controller(running, ours));
    }
    for running in of(Component::ControllerManager) {
        checks.extend(of_controller_manager(running, ours, has_cloud_controller));
    }
    for running in of(Component::ApiServer) {
        checks.extend(of_api_server(running, ours.options));
    }
    checks.extend(unseen(running));
    checks
}

/// Components that were not found: those of managed control planes, and those that do not run in pods.
fn unseen(running: &[Running]) -> Vec<Check> {
    let seen = |component| running.iter().any(|running| running.component == component);
    let missing =
        [Component::ControllerManager, Component::ApiServer].into_iter().filter(|component| !seen(*component));
    let check = |component: Component| {
        let text = "no pod runs it, so that its flags cannot be read";
        Check { fix: manual(component).into(), ..Check::good("unseen", component.name(), text) }
    };
    missing.map(check).collect()
}

fn manual(component: Component) -> &'static str {
    match component {
        Component::ControllerManager => "see by hand that it has --cloud-provider=external or no such flag",
        _ => {
            "see by hand that it has no --cloud-provider, no --cloud-config and no admission plugin PersistentVolumeLabel"
        }
    }
}

fn of_controller_manager(running: &Running, ours: &Ours<'_>, has_cloud_controller: bool) -> Vec<Check> {
    let (flags, subject, options) = (running.flags(), running.subject(), ours.options);
    let on = |name: &str| go_bool(value(&flags, name)).unwrap_or_default();
    let mut checks = Vec::new();
    let in_tree = match value(&flags, "cloud-provider") {
        "" | "external" => None,
        name => Some(name),
    };
    match in_tree {
        Some(name) => checks.push(Check::error(
            CLOUD_PROVIDER,
            &*subject,
            format!(
                "kube-controller-manager has --cloud-provider={name}: it manages nodes, routes and Services \
                     itself, and newer versions refuse such a flag"
            ),
            "give it --cloud-provider=external before this program leads",
        )),
        None => checks.push(Check::good(CLOUD_PROVIDER, &*subject, "kube-controller-manager leaves the cloud alone")),
    }
    // With an in-tree cloud provider the default name is used.
    let by_default = in_tree.map(|_| DEFAULT_CLUSTER_NAME);
    let theirs = flags.get("cluster-name").map(String::as_str).or(by_default);
    if let Some(theirs) = theirs.filter(|name| **name != options.cluster_name) {
        let text = format!(
            "kube-controller-manager has --cluster-name={theirs}, and here it is {}: names and tags in the cloud \
             contain it",
            options.cluster_name
        );
        let fix = format!("give --cluster-name={theirs}");
        match (in_tree, has_cloud_controller) {
            (Some(_), _) => checks.push(Check::error(CLUSTER_NAME, &*subject, text, fix)),
            (None, false) => checks.push(Check::warning(CLUSTER_NAME, &*subject, text, fix)),
            // The name of that cloud-controller-manager is used, and is checked there.
            (None, true) => {}
        }
    }
    checks.extend(pod_ranges(&subject, ours, &flags, on("allocate-node-cidrs")));
    if in_tree.is_none() && !value(&flags, "cloud-config").is_empty() {
        checks.push(Check::warning(
            "cloud-config",
            &*subject,
            format!(
                "kube-controller-manager has --cloud-config={} without a cloud of its own",
                value(&flags, "cloud-config")
            ),
            "take the flag out; the file is for --cloud-config of this program",
        ));
    }
    checks.extend(leader_migration(&subject, options, on("enable-leader-migration"), in_tree.is_some()));
    if in_tree.is_some() {
        checks.extend(of_in_tree(&subject, &flags, ours));
    }
    checks
}

/// The cloud flags of kube-controller-manager, parsed like our own.
fn of_in_tree(subject: &str, flags: &Flags, ours: &Ours<'_>) -> Vec<Check> {
    let mut args: Vec<String> =
        SHARED.iter().filter_map(|name| Some(format!("--{name}={}", flags.get(*name)?))).collect();
    // Only the controllers that this program has too.
    let list = value(flags, "controllers").split(',').map(str::trim);
    let known = list.filter(|word| {
        let mut unknown = Vec::new();
        crate::options::controllers_on(ours.program, &ours.options.cloud_provider, &[(*word).to_owned()], &mut unknown);
        !word.is_empty() && unknown.is_empty()
    });
    let known: Vec<&str> = known.collect();
    if !known.is_empty() {
        args.push(format!("--controllers={}", known.join(",")));
    }
    let (theirs, wrong) = read_on(&ours.program.flags, args.into_iter().map(Into::into));
    let unread = wrong.into_iter().map(|mistake| {
        let text = format!("kube-controller-manager has a value that this program would not take: {mistake}");
        Check::warning(FLAG_VALUE, subject, text, "correct it when you set it here")
    });
    let differing = ours.program.flags.iter().filter(|flag| theirs.given(flag.name));
    let differing = differing.filter(|flag| differs(flag, &theirs, &ours.options.values));
    unread.chain(differing.map(|flag| difference(subject, flag, &theirs, ours))).collect()
}

/// The program that allocates pod CIDRs: it must be exactly one of the two, with the ranges of the routes.
fn pod_ranges(subject: &str, here: &Ours<'_>, flags: &Flags, allocates: bool) -> Vec<Check> {
    let (options, routes) = (here.options, here.makes_routes());
    let mut checks = Vec::new();
    let off = value(flags, "controllers").split(',').any(|word| matches!(word, "-nodeipam" | "-node-ipam-controller"));
    let theirs = allocates && !off;
    let ours = allocates_here(options);
    if theirs && ours {
        checks.push(Check::error(
            POD_RANGES,
            subject,
            "kube-controller-manager assigns pod ranges, and so would node-ipam-controller here: nodes would get two",
            "give --allocate-node-cidrs=false here, or kube-controller-manager",
        ));
    }
    if !theirs && !ours && routes {
        checks.push(Check::warning(
            POD_RANGES,
            subject,
            "neither kube-controller-manager nor this program assigns pod ranges, and routes lead to nothing else",
            "give kube-controller-manager --allocate-node-cidrs=true, or this program --controllers=*,nodeipam --allocate-node-cidrs=true; \
             without routes in the cloud, --configure-cloud-routes=false",
        ));
    }
    let matters = ours || routes;
    for name in [
        "cluster-cidr",
        "node-cidr-mask-size",
        "node-cidr-mask-size-ipv4",
        "node-cidr-mask-size-ipv6",
        "service-cluster-ip-range",
    ] {
        let matters = if name == "cluster-cidr" { matters } else { ours };
        let (theirs, here) = (value(flags, name), options.values.text(name));
        if matters && !theirs.is_empty() && theirs != here && !(theirs == "0" && here.is_empty()) {
            let text = format!("kube-controller-manager has --{name}={theirs}, and here it is {}", shown(&here));
            checks.push(Check::error(POD_RANGES, subject, text, format!("give --{name}={theirs}")));
        }
    }
    checks
}

fn allocates_here(options: &Options) -> bool {
    let ipam = |controller: &Controller| controller.name == ccm_controllers::ipam::NAME;
    options.switched_on().any(ipam) && options.values.bool("allocate-node-cidrs")
}

fn leader_migration(subject: &str, options: &Options, theirs: bool, in_tree: bool) -> Option<Check> {
    let ours = options.migration.is_some();
    match (theirs, ours) {
        // A trial writes nothing under either lease.
        _ if options.dry_run => None,
        (true, false) => Some(Check::warning(
            LEADER_MIGRATION,
            subject,
            "kube-controller-manager runs with --enable-leader-migration, and this program would not share its second lease",
            "give --enable-leader-migration, with the same --leader-migration-config, until kube-controller-manager has no cloud any more",
        )),
        (false, true) if in_tree => Some(Check::error(
            LEADER_MIGRATION,
            subject,
            "this program would share a second lease that kube-controller-manager does not take: both would be active \
             at the same time",
            "give kube-controller-manager --enable-leader-migration first, or --cloud-provider=external",
        )),
        (false, true) => Some(Check::warning(
            LEADER_MIGRATION,
            subject,
            "kube-controller-manager runs without --enable-leader-migration",
            "leave --enable-leader-migration out",
        )),
        (false, false) | (true, true) => None,
    }
}

fn of_api_server(running: &Running, options: &Options) -> Vec<Check> {
    let (flags, subject) = (running.flags(), running.subject());
    let mut checks = Vec::new();
    for name in ["cloud-provider", "cloud-config"] {
        let Some(value) = flags.get(name) else { continue };
        let text =
            format!("kube-apiserver has --{name}={value}: newer versions do not know the flag and stop at their start");
        let fix = format!("take --{name} out");
        checks.push(match (name, value.as_str()) {
            ("cloud-provider", "" | "external") | ("cloud-config", _) => {
                Check::warning(CLOUD_PROVIDER, &*subject, text, fix)
            }
            _ => Check::error(CLOUD_PROVIDER, &*subject, text, fix),
        });
    }
    let plugins = flags.get("enable-admission-plugins").map(String::as_str).unwrap_or_default();
    if plugins.split(',').any(|plugin| plugin == "PersistentVolumeLabel") {
        checks.push(Check::warning(
            "admission-plugins",
            &*subject,
            "kube-apiserver has the admission plugin PersistentVolumeLabel, which newer versions do not know and stop at",
            "take it out of --enable-admission-plugins: what it did is the work of persistentvolume-label-controller",
        ));
    }
    let (theirs, here) = (flags.get("service-cluster-ip-range"), options.values.text("service-cluster-ip-range"));
    if let Some(theirs) = theirs.filter(|theirs| allocates_here(options) && !here.is_empty() && **theirs != here) {
        let text = format!(
            "kube-apiserver has --service-cluster-ip-range={theirs}, and here it is {here}: pod ranges could meet it"
        );
        checks.push(Check::error(POD_RANGES, &*subject, text, format!("give --service-cluster-ip-range={theirs}")));
    }
    if checks.is_empty() {
        checks.push(Check::good(CLOUD_PROVIDER, subject, "kube-apiserver has no flags of a cloud"));
    }
    checks
}

/// The arguments of the program to replace, parsed by this program's parser.
fn of_cloud_controller(running: &Running, ours: &Ours<'_>) -> Vec<Check> {
    let subject = running.subject();
    let (theirs, wrong) = read_on(&ours.program.flags, running.args.iter().map(Into::into));
    let mut checks: Vec<Check> = wrong
        .into_iter()
        .map(|mistake| {
            let text = format!("this program would not start with the arguments of the pod: {mistake}");
            Check::error("flags", &*subject, text, "remove it, or correct the value")
        })
        .collect();
    for line in deprecations(ours.program, &theirs) {
        checks.push(Check::good("flags", &*subject, line));
    }
    if running.in_shell {
        let text = "a shell script of the pod starts the program, and the image has no shell";
        let fix = "with only the image replaced, replace command too: the path of the program, with the arguments of the script";
        checks.push(Check::warning("flags", &*subject, text, fix));
    }
    checks.extend(election(&subject, &theirs, ours.options));
    let differing = ours.program.flags.iter().filter(|flag| differs(flag, &theirs, &ours.options.values));
    checks.extend(differing.map(|flag| difference(&subject, flag, &theirs, ours)));
    if checks.is_empty() {
        checks.push(Check::good("flags", subject, "the arguments of the pod mean the same here"));
    }
    checks
}

/// The two programs must never be active at the same time: they must share a lease.
fn election(subject: &str, theirs: &FlagValues, options: &Options) -> Option<Check> {
    let lease = |namespace: &str, name: &str| format!("{namespace}/{name}");
    let (text, fix) = match &options.election {
        _ if theirs.bool("dry-run") => {
            return Some(Check::good(LEADER_ELECTION, subject, "it is a trial (--dry-run) and writes nothing"));
        }
        _ if options.dry_run => {
            return Some(Check::good(LEADER_ELECTION, subject, "this is a trial (--dry-run) and writes nothing"));
        }
        _ if !theirs.bool("leader-elect") => (
            "it runs with --leader-elect=false: both could be active at the same time".to_owned(),
            "stop it before this program starts",
        ),
        None => (
            "it holds a lease, and this program would work without one: both would be active at the same \
             time"
                .to_owned(),
            "leave --leader-elect=false out, or stop the other before this program starts",
        ),
        Some(ours) => {
            let theirs =
                lease(&theirs.text("leader-elect-resource-namespace"), &theirs.text("leader-elect-resource-name"));
            let wanted = lease(&ours.namespace, &ours.name);
            if theirs == wanted {
                return None;
            }
            (
                format!("its lease is {theirs}, and here it would be {wanted}: both would be active at the same time"),
                "give the same --leader-elect-resource-namespace and --leader-elect-resource-name, or stop the other first; a trial beside it needs --dry-run",
            )
        }
    };
    Some(Check::error(LEADER_ELECTION, subject, text, fix))
}

/// Whether a given flag differs between the two programs.
fn differs(flag: &Flag, theirs: &FlagValues, ours: &FlagValues) -> bool {
    // Reported by `election`.
    let reported = ["leader-elect", "leader-elect-resource-name", "leader-elect-resource-namespace"];
    let serving =
        SERVING_SECTIONS.contains(&flag.section) || SERVING_FLAGS.contains(&flag.name) || reported.contains(&flag.name);
    let given = theirs.given(flag.name) || ours.given(flag.name);
    given && !serving && theirs.list(flag.name) != ours.list(flag.name)
}

fn difference(subject: &str, flag: &Flag, theirs: &FlagValues, ours: &Ours<'_>) -> Check {
    let value = |values: &FlagValues| shown(&values.list(flag.name).join(","));
    let here = &ours.options.values;
    let text = |effect: &str| format!("--{} is {} there and {} here{effect}", flag.name, value(theirs), value(here));
    let fix = match theirs.given(flag.name) {
        true => {
            format!("give --{}={} here too, unless the change is intended", flag.name, theirs.list(flag.name).join(","))
        }
        false => format!("leave --{} out here, unless the change is intended", flag.name),
    };
    let routes = ours.makes_routes();
    match flag.name {
        "cloud-provider" => Check::error(CLOUD_PROVIDER, subject, text(": another cloud"), fix),
        "cluster-name" => {
            let effect = ": names and tags in the cloud contain it, and existing objects would not be found";
            Check::error(CLUSTER_NAME, subject, text(effect), fix)
        }
        "cluster-cidr" if routes => {
            let effect = ": routes within it that belong to no node are deleted";
            Check::error(POD_RANGES, subject, text(effect), fix)
        }
        "controllers" => Check::warning("controllers", subject, text(&controllers(theirs, ours)), fix),
        "configure-cloud-routes" if routes => {
            Check::warning("routes", subject, text(": this program would make routes"), fix)
        }
        // Enabled here, but the cloud has no routes, or the flags do not show whether it has.
        "configure-cloud-routes" if here.bool("configure-cloud-routes") => {
            Check::good("routes", subject, text("; routes are made in neither case"))
        }
        "configure-cloud-routes" => {
            Check::warning("routes", subject, text(": no program would make routes for new nodes"), fix)
        }
        "cloud-config" if theirs.given(flag.name) && here.given(flag.name) => {
            let text = text(": neither file was compared");
            Check { fix: "see that both hold the same".into(), ..Check::good("cloud-config", subject, text) }
        }
        "cloud-config" => {
            let fix = match theirs.given(flag.name) {
                true => "copy the file of the pod to this machine, and give the copy: --cloud-config=FILE",
                false => {
                    "if only this command needs the file, as outside of the cluster, nothing: --suppress=cloud-config; if the \
                     program will run with it, see that its settings are intended"
                }
            };
            Check::warning("cloud-config", subject, text(": only one of them reads a file"), fix)
        }
        "use-service-account-credentials" => {
            Check::warning(FLAG_VALUE, subject, text(": other accounts need the permissions"), fix)
        }
        "enable-leader-migration" | "leader-migration-config" => {
            Check::warning(LEADER_MIGRATION, subject, text(""), fix)
        }
        _ => Check::warning(FLAG_VALUE, subject, text(""), fix),
    }
}

/// The effect of the two controller lists on each controller.
fn controllers(theirs: &FlagValues, ours: &Ours<'_>) -> String {
    let mut wrong = Vec::new();
    let (program, provider) = (ours.program, &ours.options.cloud_provider);
    let there = crate::options::controllers_on(program, provider, &theirs.list("controllers"), &mut wrong);
    let pairs = || ours.options.controllers.iter().zip(&there);
    let names =
        |here: bool| pairs().filter(move |(c, there)| c.on == here && **there != here).map(|(c, _)| c.controller.name);
    let mut effect = String::new();
    let starting: Vec<&str> = names(true).filter(|name| (ours.runs)(name)).collect();
    let stopping: Vec<&str> = names(false).collect();
    if !starting.is_empty() {
        effect.push_str(&format!("; would start: {}", join(&starting)));
    }
    if !stopping.is_empty() {
        effect.push_str(&format!("; would stop: {}", join(&stopping)));
    }
    for word in wrong {
        effect.push_str(&format!("; {word}"));
    }
    effect
}

/// Flags of a component without a flag table.
type Flags = BTreeMap<String, String>;

fn value<'a>(flags: &'a Flags, name: &str) -> &'a str {
    flags.get(name).map(String::as_str).unwrap_or_default()
}

fn shown(value: &str) -> String {
    if value.is_empty() { "not set".to_owned() } else { value.to_owned() }
}
