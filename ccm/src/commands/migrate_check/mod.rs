//! `ccm migrate-check`: finds what would break or change if this program took over a cluster.
//!
//! Reads are separate from the checks, which are pure functions of: flags of running components, nodes, Services,
//! leases, permissions, webhooks. The controllers' own pass plans the writes; the provider reads the cloud's state.

mod flags;
mod granted;
mod installed;
mod leases;
mod nodes;
mod objects;
mod pods;
mod rbac;
mod read;
mod running;
mod services;
mod source;
#[cfg(test)]
mod tests;
mod variables;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ccm_controllers::persistent_volume;
use ccm_controllers::preview::Scope;
use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::flag::{Flag, Kind};
use ccm_provider::{Aspects, Check, Clock as _, ConfigMapSpec, Lookup, NodeRef, Service, Severity};
use ccm_runtime::clock::timestamp;
use ccm_runtime::permission::SYSTEM_NAMESPACE;
use ccm_runtime::{Client, SystemClock};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

pub(super) use self::granted::Granted;
pub(super) use self::installed::{run_inside, take_flags};
pub(crate) use self::source::ConfigOfPod;
use super::kubeconfig;
use super::output::{self, Color, Format, Mark, Output, counted, flat};
use super::page;
use super::previewed::Previewed;
use super::progress::Progress;
use super::world::World;
use super::{Call, Command, SECTION};
use crate::Controller;
use crate::exit::{Exit, Failure, Verdict};
use crate::options::Options;
use crate::providers::Configuration;

pub(super) const ACCOUNT: Flag = Flag::new(
    SECTION,
    "account",
    Kind::Text,
    "",
    "The account whose permissions are checked. By default that of the workload in the files of --rbac, else of the cloud-controller-manager that runs now, or system:serviceaccount:kube-system:cloud-controller-manager. The user of a kubeconfig must be named.",
);
pub(super) const RBAC: Flag = Flag::new(
    SECTION,
    "rbac",
    Kind::Repeated,
    "",
    "A file or folder with manifests that will be applied, or - for stdin: what their roles grant counts as granted, and the account of their workload is checked. Roles and bindings without a namespace are in that of -n or of the context.",
);
/// The finding of the providers about what a Service would get.
const LOAD_BALANCERS: &str = "load-balancers";
const DEFAULT_ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";
pub(super) const SUPPRESS: Flag = Flag::new(
    SECTION,
    "suppress",
    Kind::List,
    "",
    "Codes of findings to leave out: the word behind the severity, such as host-network. A * at the end stands for any text.",
);

pub(super) const NAMESPACE: Flag =
    kubeconfig::namespace_flag("The namespace in which pods are looked for. By default all.");

pub(super) const COMMAND: Command = Command {
    name: "migrate-check",
    words: "",
    about: "Reports what would break or change when this program takes over. Compares with kube-controller-manager, or with a Go cloud-controller-manager; writes nothing.",
    details: "\
Give it the flags that the program will run with. One finding per line with the fix, errors first: flags of what
runs now, nodes, Services, leases, permissions, webhooks, and what the provider sees in the cloud.

Exit codes: 0 no error and no warning, 2 some, 1 could not check, 255 no such provider.

  ccm migrate-check --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf
  ccm migrate-check --account=system:serviceaccount:kube-system:aws-ccm -o json …
  kubectl kustomize manifests/overlays/aws | ccm migrate-check --rbac=- …",
    flags: &[ACCOUNT, RBAC, SUPPRESS],
    namespace: &NAMESPACE,
    formats: &[],
    like_running: true,
    run,
};

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        if !call.words.is_empty() {
            return Err(Failure::error(format!("migrate-check takes no arguments, got {:?}", call.words.join(" "))));
        }
        let granted = Granted::read(&call.values)?;
        let checks = {
            let progress = Progress::at("reading the flags");
            sorted(match World::open(&call, &progress).await {
                Ok(world) => look(&call, &world, &granted, &progress).await,
                Err(failure) if failure.exit == Exit::Fatal => {
                    without_provider(&call, failure, &granted, &progress).await?
                }
                Err(failure) => return Err(failure),
            })
        };
        report("MigrateCheck", checks, &call)
    }
    .boxed()
}

/// Prints the findings, except the suppressed ones.
pub(super) fn report(kind: &str, mut checks: Vec<Check>, call: &Call) -> Result<Verdict, Failure> {
    let suppress = call.values.list(SUPPRESS.name);
    let all = checks.len();
    checks.retain(|check| !output::is_suppressed(&suppress, &check.check));
    super::deliver(&match call.output.format {
        Format::Json | Format::Yaml => call.output.document(kind, json(&checks)),
        _ => text(&checks, all - checks.len(), call.output),
    })?;
    let good = checks.iter().all(|check| check.severity == Severity::Info);
    Ok(if good { Verdict::Clean } else { Verdict::Findings })
}

/// What the cluster shows where the provider does not start, for example without a region or credentials.
async fn without_provider(
    call: &Call,
    failure: Failure,
    granted: &Granted,
    progress: &Progress,
) -> Result<Vec<Check>, Failure> {
    let (options, client) = World::reach(call, progress).await?;
    let mut checks = vec![provider_fails(call, &options, &client, failure)?];
    progress.go_on("reading pods, leases and webhooks");
    let mut cluster = read::cluster(&client, &namespace(call), lease_namespace(&options)).await;
    checks.append(&mut cluster.unread);
    let account = account(call, granted, cluster.running.as_deref());
    let routes = options.values.bool("configure-cloud-routes");
    let runs = |name: &str| {
        let is_on = options.switched_on().any(|controller| controller.name == name);
        is_on && (routes || name != ccm_controllers::route::NAME)
    };
    let ours = flags::Ours { program: &call.program, options: &options, runs: &runs };
    checks.extend(of_cluster(&cluster, &ours, &account));
    Ok(checks)
}

/// The finding about a provider that does not start. One that does not exist stays an error.
pub(super) fn provider_fails(
    call: &Call,
    options: &Options,
    client: &Client,
    failure: Failure,
) -> Result<Check, Failure> {
    Configuration::of(&call.registry, options, client)?;
    let fix = "correct what the message names: plans and permissions are not checked before, and the program does not \
               start either";
    Ok(Check::error("provider", options.cloud_provider.clone(), failure.message, fix))
}

/// The namespace of pods, empty for all.
fn namespace(call: &Call) -> String {
    kubeconfig::namespace_asked(&call.values).unwrap_or_default()
}

fn lease_namespace(options: &Options) -> &str {
    options.election.as_ref().map_or(SYSTEM_NAMESPACE, |election| &election.namespace)
}

/// The findings about the programs that run now and their leases.
fn of_cluster(cluster: &read::Cluster, ours: &flags::Ours<'_>, account: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(running) = &cluster.running {
        checks.extend(flags::checks(running, ours));
        checks.extend(pods::checks(running, account, ours.program));
    }
    if let Some(found) = &cluster.leases {
        checks.extend(leases::checks(found, ours.options, timestamp(SystemClock.wall())));
    }
    checks
}

async fn look(call: &Call, world: &World, granted: &Granted, progress: &Progress) -> Vec<Check> {
    let options = &world.options;
    progress.go_on("reading pods, leases and webhooks");
    let mut cluster = read::cluster(&world.client, &namespace(call), lease_namespace(options)).await;
    let mut checks = std::mem::take(&mut cluster.unread);
    progress.go_on("planning");
    let previewed = world.preview(&Scope::All, progress).await.unwrap_or_else(|failure| {
        let text = format!("the controllers would not start: {}", failure.message);
        checks.push(Check::error("start", "", text, "correct the flags, then check what else would change"));
        Previewed::default()
    });
    let controllers = running_controllers(world, &previewed);
    let runs = |name: &str| controllers.iter().any(|controller| controller.name == name);
    let account = account(call, granted, cluster.running.as_deref());

    checks.extend(of_cluster(&cluster, &flags::Ours { program: &call.program, options, runs: &runs }, &account));
    progress.go_on("looking nodes up in the cloud");
    let listed = world.shared.nodes.list();
    let answers = instances(world, &listed).await;
    let schemes = world.provider.provider_id_schemes();
    let seen = nodes::Nodes { nodes: &listed, answers: answers.as_deref(), schemes, previewed: &previewed };
    checks.extend(nodes::checks(&seen));
    let services = world.shared.services.list();
    let lint = |service: &Service| super::lint::service(service, &call.registry, options);
    let standard = runs(ccm_controllers::service::NAME);
    checks.extend(services::checks(&services, &lint, &previewed, standard, &options.classes));
    let others = services::others(&previewed, |unplanned| {
        seen.is_reported(&unplanned.subject) || checks.iter().any(|check| services::is_cause(check, unplanned))
    });
    checks.extend(others);
    let written = webhooks::Written {
        nodes: &listed,
        services: &services,
        lease: lease_namespace(options),
        namespaces: &cluster.namespaces,
        volumes: runs(persistent_volume::NAME),
        all: cluster.all_webhooks,
    };
    checks.extend(webhooks::checks(&cluster.webhooks, &written));
    progress.go_on("checking permissions");
    checks.extend(rights(call, world, &account, &controllers, granted).await);
    progress.go_on("looking at the cloud");
    once(checks, cloud(world).await)
}

/// The findings of this program and those of the provider, without those of both about the same problem: the provider's
/// say more. A planned write that is an error stays one.
fn once(mut ours: Vec<Check>, mut theirs: Vec<Check>) -> Vec<Check> {
    ours.retain(|check| {
        let same = |other: &&mut Check| other.subject == check.subject && other.severity > Severity::Info;
        match &*check.check {
            services::PLAN => match theirs.iter_mut().filter(same).find(|other| other.check == LOAD_BALANCERS) {
                Some(other) => {
                    if check.severity > other.severity {
                        other.severity = check.severity;
                        other.message.push_str(services::LOSS);
                    }
                    false
                }
                None => true,
            },
            "plan" => !theirs.iter_mut().filter(same).any(|other| check.message.contains(&other.message)),
            nodes::INSTANCE => !theirs.iter_mut().filter(same).any(|other| other.severity == Severity::Error),
            _ => true,
        }
    });
    ours.append(&mut theirs);
    ours
}

/// The account of `--account`, that of the program in the files of `--rbac`, or that of the one that runs. Empty for the
/// user of a kubeconfig, and if pods cannot be listed (`None`): a guessed account could be anybody's.
fn account(call: &Call, granted: &Granted, running: Option<&[running::Running]>) -> String {
    let named = Some(call.values.text(ACCOUNT.name)).filter(|named| !named.is_empty());
    let of_pods = || running.map_or_else(|| Some(String::new()), pods::account);
    let account = named.or_else(|| granted.account.clone()).or_else(of_pods);
    account.unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned())
}

/// The missing permissions of the account of the installation.
pub(super) async fn permissions(call: &Call, world: &World, previewed: &Previewed, granted: &Granted) -> Vec<Check> {
    let controllers = running_controllers(world, previewed);
    let mut found = running::Found::default();
    let listed = page::each(&world.client, &read::pods(&namespace(call)), |pod| found.add(&pod)).await;
    let running = listed.ok().map(|()| found.finish());
    rights(call, world, &account(call, granted, running.as_deref()), &controllers, granted).await
}

fn running_controllers<'a>(world: &'a World, previewed: &Previewed) -> Vec<&'a Controller> {
    // The program itself may be allowed to list what the user of this command may not.
    let skipped = |name: &str| {
        previewed.skipped.iter().any(|(skipped, why)| *skipped == name && !why.starts_with(persistent_volume::REFUSED))
    };
    let on = world.options.switched_on();
    on.filter(|controller| !skipped(controller.name) && (controller.applies)(&*world.provider).is_ok()).collect()
}

async fn instances(world: &World, nodes: &[NodeRef]) -> Option<Vec<Lookup>> {
    let view = world.shared.view.as_ref()?;
    Some(view.get(nodes, Aspects::LIFECYCLE).await)
}

async fn rights(
    call: &Call,
    world: &World,
    account: &str,
    controllers: &[&Controller],
    granted: &Granted,
) -> Vec<Check> {
    let factory = call.registry.get(world.provider.name());
    let provider = rbac::Provider {
        config_maps: stored(&world.client, factory.map(|factory| factory.config_maps()).unwrap_or_default()).await,
        secret: factory.and_then(|factory| factory.config_source(&call.values).secret),
        related: world.provider.load_balancer().map(|balancers| balancers.related()).unwrap_or_default(),
    };
    let needs = rbac::needs(account, &world.options, controllers, &provider);
    match rbac::ask(&world.client, needs.questions()).await {
        Ok(mut answers) => {
            for (question, is_granted) in &mut answers.granted {
                *is_granted |= granted.allows(question);
            }
            rbac::checks(&needs, &answers)
        }
        Err(error) => {
            let text = format!("the permissions could not be checked: {error}");
            let fix = format!("{}; see also kubectl auth can-i --list --as=…", read::again(&error));
            vec![Check::warning("rbac", "", text, fix)]
        }
    }
}

/// The ConfigMaps, and whether each is there, if the user of this command may see that.
async fn stored(client: &Client, specs: &'static [ConfigMapSpec]) -> Vec<(&'static ConfigMapSpec, Option<bool>)> {
    join_all(specs.iter().map(async |spec| {
        let collection = format!("/api/v1/namespaces/{}/configmaps", spec.namespace);
        let found = client.read_named::<IgnoredAny>(&collection, spec.name).await;
        (spec, found.ok().map(|found| found.is_some()))
    }))
    .await
}

async fn cloud(world: &World) -> Vec<Check> {
    let Some(inspect) = world.provider.inspect() else {
        let text = format!("the provider {} has no checks of its own", world.provider.name());
        return vec![Check::good("cloud", "", text)];
    };
    let claims = world.claims();
    let look = async { Ok(inspect.migration_checks(&world.shared.cluster, &claims).await) };
    deadline::within("the checks of the provider", READ_DEADLINE * 5, look).await.unwrap_or_else(|error| {
        let class = error.class();
        vec![Check::error("cloud", "", format!("{error} ({})", class.as_str()), class.remediation())]
    })
}

/// Errors first, then by check and subject; duplicates are removed.
pub(super) fn sorted(checks: Vec<Check>) -> Vec<Check> {
    let mut checks = shared(checks);
    checks.sort_by(|a, b| {
        let key = |check: &Check| (check.check.clone(), check.subject.clone(), check.message.clone());
        b.severity.cmp(&a.severity).then_with(|| key(a).cmp(&key(b)))
    });
    checks.dedup();
    checks
}

/// Merges equal findings of several nodes or Services: a missing permission can affect every object of a large cluster.
fn shared(checks: Vec<Check>) -> Vec<Check> {
    let mut others = Vec::new();
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for found in checks {
        match found.subject.split_once(' ') {
            Some((kind @ ("node" | "service"), name)) => {
                let (kind, name) = (kind.to_owned(), name.to_owned());
                let Check { severity, check, message, fix, .. } = found;
                groups.entry((severity, check, message, fix, kind)).or_default().push(name);
            }
            _ => others.push(found),
        }
    }
    let groups = groups.into_iter().map(|((severity, check, message, fix, kind), mut names)| {
        names.dedup();
        Check { severity, check, subject: format!("{kind} {}", joined(&names)), message, fix }
    });
    groups.chain(others).collect()
}

fn count(checks: &[Check], severity: Severity) -> usize {
    checks.iter().filter(|check| check.severity == severity).count()
}

/// A cause of this length is printed once.
const LONG_CAUSE: usize = 60;

/// The message without a cause that is printed already: `a: b: cause` ends with `as above`.
fn without_repeated_cause(message: &str, printed: &mut BTreeSet<String>) -> String {
    let causes = message.match_indices(": ").filter_map(|(at, _)| Some((at, message.get(at + 2..)?)));
    let causes: Vec<(usize, &str)> = causes.filter(|(_, cause)| cause.len() >= LONG_CAUSE).collect();
    let known = causes.iter().find(|(_, cause)| printed.contains(*cause)).and_then(|(at, _)| message.get(..*at));
    let short = known.map(|head| format!("{head}: as above"));
    printed.extend(causes.into_iter().map(|(_, cause)| cause.to_owned()));
    short.unwrap_or_else(|| message.to_owned())
}

fn text(checks: &[Check], hidden: usize, output: Output) -> String {
    let mut text = String::new();
    let mut group = "";
    let mut printed = BTreeSet::new();
    let width = checks.iter().map(|check| check.check.len()).max().unwrap_or_default();
    let mut ordered: Vec<&Check> = checks.iter().collect();
    if output.has_groups() {
        // Each group once, at the place of its first finding, which is its worst.
        ordered.sort_by_key(|check| checks.iter().position(|first| first.check == check.check));
    }
    for check in ordered {
        let mark = match check.severity {
            Severity::Error => Mark::Bad,
            Severity::Warning => Mark::Warning,
            // A note with a fix is to be done by hand.
            Severity::Info if !check.fix.is_empty() => Mark::Unknown,
            Severity::Info => Mark::good(&check.message),
        };
        let subject = if check.subject.is_empty() { String::new() } else { format!("{}: ", check.subject) };
        let fix = Some(&*check.fix).filter(|fix| !fix.is_empty());
        let message = without_repeated_cause(&check.message, &mut printed);
        if let Some(item) = output.item(mark, &format!("{subject}{message}"), fix) {
            if group != check.check {
                let _ = writeln!(text, "{}", output.paint(Color::Bold, &check.check));
            }
            group = &check.check;
            text.push_str(&item);
            continue;
        }
        let word = output.severity(check.severity);
        let gap = " ".repeat("warning".len() - check.severity.as_str().len());
        let _ = write!(text, "{word}{gap}  {:width$}  ", check.check);
        if !check.subject.is_empty() {
            let _ = write!(text, "{}: ", output.paint(Color::Bold, &check.subject));
        }
        text.push_str(&flat(&message));
        if !check.fix.is_empty() {
            let _ = write!(text, " {} {}", output.paint(Color::Green, "->"), flat(&check.fix));
        }
        text.push('\n');
    }
    let of = |severity: Severity| counted(count(checks, severity), severity.as_str());
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let hidden = if hidden == 0 { String::new() } else { format!(", {hidden} hidden by --suppress") };
    let _ = writeln!(text, "\n{errors}, {warnings}, {}{hidden}.", counted(count(checks, Severity::Info), "note"));
    text
}

fn json(checks: &[Check]) -> Value {
    json!({
        "errors": count(checks, Severity::Error),
        "warnings": count(checks, Severity::Warning),
        "checks": checks,
    })
}

/// `a, b, c`
fn join(words: &[impl AsRef<str>]) -> String {
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

/// The first of many names: `a, b, c and 40 more`
pub(super) fn joined(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 3;
    match names.get(..SHOWN).filter(|_| names.len() > SHOWN) {
        Some(first) => format!("{} and {} more", join(first), names.len() - SHOWN),
        None => join(names),
    }
}
