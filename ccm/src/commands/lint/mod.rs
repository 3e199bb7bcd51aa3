//! `ccm lint`: finds errors in Services and cloud configs before they are applied. For files it needs neither a
//! cluster nor a cloud account.

mod check;
mod object;
mod report;
mod source;
mod spelling;
mod tree;

use ccm_controllers::service::lint::Class;
use ccm_kit::document::did_you_mean;
use ccm_provider::flag::{Flag, Kind};
use ccm_provider::{Lint, Registry, Service, ServiceControllerSpec, Severity};
use ccm_runtime::store::FieldFilter;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use self::check::{Linters, Looked};
use self::report::Report;
use self::source::Unread;
use super::output::{self, Format};
use super::progress::Progress;
use super::{Call, Command, SECTION, kubeconfig, page, world};
use crate::exit::{Failure, Verdict};
use crate::options::{self, Options};
use crate::providers::{OPTIONAL, fatal};

const CLUSTER: Flag = Flag::new(SECTION, "cluster", Kind::Bool, "false", "Look at the Services of the cluster too.");
const NAMESPACE: Flag = kubeconfig::namespace_flag("With --cluster: only the Services of this namespace.");
const FAIL_ON: Flag = Flag::new(
    SECTION,
    "fail-on",
    Kind::Text,
    "warning",
    "Lowest severity that makes the exit code 2: error, warning, or never.",
);

const SUPPRESS: Flag = Flag::new(
    SECTION,
    "suppress",
    Kind::List,
    "",
    "Codes of findings to leave out, which stand in brackets at the end of each: RULES/KEY, such as core/spec.loadBalancerIP. A * at the end stands for any text.",
);

pub(super) const COMMAND: Command = Command {
    name: "lint",
    words: "[FILE | FOLDER | - …]",
    about: "Checks Services and cloud configs before they are applied. Finds misspelt annotations and keys, wrong values, settings without effect.",
    details: "\
Files hold YAML or JSON, of any number of documents; objects other than Services are skipped and counted. Folders are
read recursively (.yaml, .yml, .json). - is stdin. Neither a cluster nor a cloud account is needed, except for --cluster.

With --cloud-provider, Services are checked for that cloud. Without it, each compiled-in provider is asked about the
annotations with its own prefix, and nothing is said on keys of other clouds.

Exit codes: 0 no finding at or above --fail-on, 2 at least one, 1 an input could not be read, 255 no such provider.

  ccm lint manifests/
  helm template web | ccm lint --cloud-provider=aws -
  ccm lint --cluster
  ccm lint --cloud-provider=aws --cloud-config=cloud.conf
  ccm lint -o github .            in a workflow: findings show beside the lines of the change",
    flags: &[CLUSTER, FAIL_ON, SUPPRESS],
    namespace: &NAMESPACE,
    formats: &[Format::Github, Format::Name, Format::Sarif],
    like_running: false,
    run,
};

/// The documents in files and folders, and of stdin for `-`, for other commands.
///
/// # Errors
///
/// The first file that cannot be read, or is no YAML or JSON.
pub(super) fn documents(words: &[String]) -> Result<Vec<serde_json::Value>, String> {
    let (sources, unread) = source::read(words);
    if let Some(Unread { name, error }) = unread.first() {
        return Err(format!("{name}: {error}"));
    }
    let mut documents = Vec::new();
    for source in sources {
        let parsed = tree::parse(&source.text);
        if let Some(broken) = parsed.broken.first() {
            return Err(format!("{}:{}: {}", source.name, broken.line, broken.message));
        }
        documents.extend(parsed.documents.iter().map(|(_, document)| document.json()));
    }
    Ok(documents)
}

/// The findings of one Service with the rules of the selected provider, for other commands.
pub(super) fn service(service: &Service, registry: &Registry, options: &Options) -> Vec<ccm_provider::Finding> {
    let factory = registry.get(&options.cloud_provider);
    let rules = factory.and_then(|factory| Some((factory.name(), factory.lint()?)));
    let of_class = |(name, controller): &(&'static str, &'static str)| Class {
        name,
        controller,
        provider: factory.map_or("", |factory| factory.name()),
        is_on: true,
    };
    let classes = options.classes.iter().map(of_class).collect();
    let linters = Linters { all: rules.into_iter().collect(), chosen: true, classes };
    check::of_service(service, Vec::new(), &linters).into_iter().map(|(_, finding)| finding).collect()
}

/// The documents of a text, for tests.
#[cfg(test)]
pub(super) fn parse(text: &str) -> Vec<serde_json::Value> {
    tree::parse(text).documents.iter().map(|(_, document)| document.json()).collect()
}

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let threshold = threshold(&call.values.text(FAIL_ON.name))?;
        let mut report = look(&call).await?;
        let suppress = call.values.list(SUPPRESS.name);
        let all = report.looked.found.len();
        report.looked.found.retain(|found| !output::is_suppressed(&suppress, &found.code()));
        report.hidden = all - report.looked.found.len();
        super::deliver(&report::render(&report, call.output))?;
        match report.unread.len() {
            0 => Ok(verdict(&report.looked, threshold)),
            1 => Err(Failure::error("one of the inputs could not be read")),
            many => Err(Failure::error(format!("{many} of the inputs could not be read"))),
        }
    }
    .boxed()
}

/// The lowest severity that fails the command; `None`: no severity does.
fn threshold(word: &str) -> Result<Option<Severity>, Failure> {
    match word {
        "error" => Ok(Some(Severity::Error)),
        "warning" => Ok(Some(Severity::Warning)),
        "never" => Ok(None),
        _ => {
            let hint = did_you_mean(word, &["error", "warning", "never"]).unwrap_or_default();
            Err(Failure::error(format!("--fail-on={word}: expected error, warning or never{hint}")))
        }
    }
}

fn verdict(looked: &Looked, threshold: Option<Severity>) -> Verdict {
    let fails = threshold.zip(looked.worst()).is_some_and(|(threshold, worst)| worst >= threshold);
    if fails { Verdict::Findings } else { Verdict::Clean }
}

async fn look(call: &Call) -> Result<Report, Failure> {
    let (cluster, config) = (call.values.bool(CLUSTER.name), call.values.text("cloud-config"));
    if call.words.is_empty() && !cluster && config.is_empty() {
        return Err(Failure::error(
            "nothing to look at: name files, folders or - for stdin, or give --cluster or --cloud-config",
        ));
    }
    let mut report = Report::default();
    let mut linters = linters(&call.registry, &call.values.text("cloud-provider"), &mut report.notes)?;
    linters.classes = classes(call)?;
    if !config.is_empty() && !linters.chosen {
        return Err(Failure::error(format!(
            "--cloud-config={config}: which cloud the file is for is not known; add --cloud-provider=NAME ({})",
            call.registry.names().collect::<Vec<_>>().join(", ")
        )));
    }
    let progress = Progress::at("reading the files");
    let (sources, unread) = source::read(&call.words);
    report.unread = unread;
    for source in &sources {
        report.looked.at_source(source, &linters);
    }
    if let Some((provider, lint)) = linters.all.first().filter(|_| !config.is_empty()) {
        let (sources, unread) = source::read_one(&config);
        report.unread.extend(unread);
        for source in &sources {
            report.looked.at_config(source, provider, *lint);
        }
    }
    if cluster {
        progress.go_on("listing the Services of the cluster");
        match services(call).await {
            Ok(services) => services.iter().for_each(|service| report.looked.at_service(service, &linters)),
            Err(failure) => report.unread.push(Unread { name: "cluster".to_owned(), error: failure.message }),
        }
    }
    Ok(report)
}

/// The checks of the selected provider, or of all providers.
fn linters<'a>(registry: &'a Registry, chosen: &str, notes: &mut Vec<String>) -> Result<Linters<'a>, Failure> {
    if chosen.is_empty() {
        let all = registry.names().filter_map(|name| Some((name, registry.get(name)?.lint()?)));
        return Ok(Linters { all: all.collect(), chosen: false, classes: Vec::new() });
    }
    let factory = registry.choose(chosen, &OPTIONAL).map_err(|error| fatal(&error))?;
    let own: Option<&dyn Lint> = factory.lint();
    if own.is_none() {
        notes.push(format!(
            "The provider {chosen} has no checks of its own: its annotations and its cloud config were not looked at."
        ));
    }
    let all = own.map(|lint| (factory.name(), lint)).into_iter().collect();
    Ok(Linters { all, chosen: true, classes: Vec::new() })
}

/// The classes that the program's controllers handle, and whether these are enabled.
fn classes(call: &Call) -> Result<Vec<Class>, Failure> {
    let (program, chosen) = (&call.program, call.values.text("cloud-provider"));
    let mut errors = Vec::new();
    let on = options::controllers_on(program, &chosen, &call.values.list("controllers"), &mut errors);
    if let Some(error) = errors.into_iter().next() {
        return Err(Failure::error(error));
    }
    let runs = |name: &str| program.controllers.iter().zip(&on).any(|(known, on)| *on && known.name == name);
    let of = |&(provider, spec): &(&'static str, &'static ServiceControllerSpec)| {
        let is_on = provider == chosen && runs(spec.name);
        spec.classes.iter().map(move |name| Class { name, controller: spec.name, provider, is_on })
    };
    Ok(program.service_controllers.iter().flat_map(of).collect())
}

/// The Services of the cluster, by name.
async fn services(call: &Call) -> Result<Vec<std::sync::Arc<Service>>, Failure> {
    let client = kubeconfig::client(call).await?;
    // A user who may list only one namespace can check that one.
    let mut services = match kubeconfig::namespace_asked(&call.values) {
        Some(namespace) => {
            kubeconfig::check_namespace(&client, &call.values).await?;
            let listed = page::all::<Service>(&client, &format!("/api/v1/namespaces/{namespace}/services")).await;
            listed.map_err(|error| world::unlisted("services", &error))?.into_iter().map(Into::into).collect()
        }
        None => world::list::<Service>(&client, FieldFilter::default()).await?.list(),
    };
    services.sort_by_key(|service| service.key());
    Ok(services)
}
