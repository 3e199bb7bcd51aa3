//! `ccm snapshot`: writes the inputs of a plan to a file, and creates the plan from such a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use ccm_controllers::service::RelatedObjects;
use ccm_controllers::{persistent_volume, preview::Scope};
use ccm_provider::flag::{Flag, Kind};
use ccm_provider::{CloudProvider, PersistentVolume, Related, Schemes};
use ccm_runtime::store::{Cached, FieldFilter};
use ccm_runtime::{Client, Metrics, Store};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::output::{self, Format, counted};
use super::previewed::{self, Previewed, concerns};
use super::progress::Progress;
use super::world::{Objects, World};
use super::{Call, Command, SECTION, kubeconfig};
use crate::exit::{Failure, Verdict};
use crate::options::Options;
use crate::snapshot::record::{Record, Recorder};
use crate::snapshot::replay::Replay;
use crate::snapshot::{Document, KIND, Listed, ListedRelated, Provider, Stopped, VERSION, file, flags, page, redact};
use crate::version;

/// The maximum number of objects with different plans to name.
const NAMED: usize = 10;

const FILE: Flag =
    Flag::new(SECTION, "file", Kind::Text, file::STANDARD, "Where the snapshot is written; - is stdout.").short('f');

const HTML: Flag = Flag::new(
    SECTION,
    "html",
    Kind::Text,
    "",
    "Where a page for a browser with the objects, their errors and the plan is written; - is stdout. The snapshot itself is only written if --file is given too.",
);

pub(super) const COMMAND: Command = Command {
    name: "snapshot",
    words: "",
    about: "Writes the inputs of a plan to a file, without secrets. `ccm plan --from-snapshot` makes the plan again from it, without the cluster, the cloud or any credentials: for a bug report, a test, or a colleague without access.",
    details: "\
Looks at cluster and cloud as `ccm plan` does, and writes to neither. The file is for its owner only (mode 0600).

It holds: nodes and Services, as far as controllers read them; what the cloud answered; the flags that plans depend on;
the plan. It holds no Secrets, credentials, certificates, environment, cloud config or paths, and of annotations and labels
only those that plans read. What still looks like a secret is replaced by [redacted], and counted. Names, addresses and IDs
of cloud objects are in it: read it before you hand it on.

-o is the form of the summary that is printed if the snapshot goes to a file; the snapshot itself is JSON.

Exit codes: 0 written, 1 not written, 255 no provider.

  ccm snapshot -f ccm.json --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf
  ccm plan --from-snapshot ccm.json
  ccm snapshot --html ccm.html",
    flags: &[FILE, HTML],
    namespace: &kubeconfig::NO_NAMESPACE,
    formats: &[],
    like_running: true,
    run,
};

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        if let Some(word) = call.words.first() {
            return Err(Failure::error(format!(
                "{word:?}: a snapshot is of everything; name the object in `ccm plan --from-snapshot`"
            )));
        }
        let asked = |flag: &Flag| call.values.given(flag.name).then(|| call.values.text(flag.name));
        let html = asked(&HTML);
        let path = asked(&FILE).or_else(|| html.is_none().then(|| file::STANDARD.to_owned()));
        let paths: Vec<&str> = [&path, &html].into_iter().flatten().map(String::as_str).collect();
        let has_stdout = paths.iter().any(|path| file::is_stdout(path));
        if paths.iter().all(|path| file::is_stdout(path)) && paths.len() > 1 {
            return Err(Failure::error("--file and --html are both stdout; name a file for one of them"));
        }
        let html_is_stdout = html.as_deref().is_some_and(file::is_stdout);
        match call.output.format {
            Format::Yaml if has_stdout && !html_is_stdout => {
                return Err(not_written("yaml", "the snapshot on stdout is JSON"));
            }
            Format::Yaml | Format::Json if html_is_stdout => {
                let word = call.values.text(super::OUTPUT.name);
                return Err(not_written(&word, "the page on stdout is HTML"));
            }
            _ => {}
        }
        let document = take(&call).await?;
        if let Some(path) = &path {
            write(path, &file::text(&document)?)?;
        }
        if let Some(html) = &html {
            write(html, &page::page(&document).html())?;
        }
        let names = paths.iter().map(|path| if file::is_stdout(path) { "stdout" } else { path });
        let summary = summary(&document, &names.collect::<Vec<_>>().join(" and "));
        if has_stdout {
            super::eprint(&summary);
            return Ok(Verdict::Clean);
        }
        super::deliver(&match call.output.format {
            Format::Json | Format::Yaml => {
                call.output.document("SnapshotTaken", json(&document, path.as_deref(), html.as_deref()))
            }
            _ => format!("{summary}\n"),
        })?;
        Ok(Verdict::Clean)
    }
    .boxed()
}

fn not_written(format: &str, instead: &str) -> Failure {
    Failure::error(format!(
        "--output={format}: {instead}, and -o is the form of the summary that is printed with it in a file; leave one of them out"
    ))
}

fn write(path: &str, text: &str) -> Result<(), Failure> {
    if file::is_stdout(path) { super::deliver(text).map(drop) } else { file::write(path, text) }
}

/// The pass of `ccm plan`, with all answers recorded.
async fn take(call: &Call) -> Result<Document, Failure> {
    let progress = Progress::at("reading the flags");
    let record = Record::default();
    let recorder = |inner| Arc::new(Recorder::new(inner, record.clone())) as _;
    let mut world = World::open_through(call, &progress, recorder).await?;
    let clock = Stopped::at(SystemTime::now());
    world.shared.clock = Arc::new(clock);
    world.volumes = volumes(&world).await;
    world.related = related(&world).await;
    let previewed = world.plan(&Scope::All, &progress).await?;
    let document = Document {
        kind: KIND.into(),
        version: VERSION,
        ccm: version::VERSION.into(),
        taken: clock.timestamp(),
        redacted: 0,
        provider: provider(&*world.provider),
        flags: flags::kept(&call.values, &call.registry, &call.program),
        plan: previewed::json(&previewed),
        nodes: objects(&world.shared.nodes),
        services: objects(&world.shared.services),
        volumes: world.volumes.as_ref().map(|listed| match listed {
            Ok(volumes) => Listed::Volumes(objects(volumes)),
            Err(error) => Listed::Failed(error.clone()),
        }),
        related: world.related.as_ref().map(|listed| match listed {
            Ok(related) => ListedRelated::Objects {
                endpoint_slices: related.slices().map(|slices| objects(slices)),
                namespaces: related.namespaces().map(|namespaces| objects(namespaces)),
            },
            Err(error) => ListedRelated::Failed(error.clone()),
        }),
        answers: record.answers(),
    };
    clean(document, world.provider.service_annotations())
}

/// The volumes, if the labeling controller would list them; its error if that failed.
async fn volumes(world: &World) -> Option<Result<Arc<Store<PersistentVolume>>, String>> {
    let on = world.options.switched_on().any(|known| known.name == persistent_volume::NAME);
    if !on || world.provider.volumes().is_none() {
        return None;
    }
    Some(persistent_volume::list(&world.client).await)
}

/// The objects besides nodes and Services that load balancers depend on.
async fn related(world: &World) -> Option<Result<RelatedObjects, String>> {
    let related = world.provider.load_balancer()?.related();
    if related == Related::default() {
        return None;
    }
    Some(RelatedObjects::list(related, &world.client).await)
}

fn objects<T: Cached + Clone>(store: &Store<T>) -> Vec<T> {
    store.list().iter().map(|object| (**object).clone()).collect()
}

/// Removes unneeded fields and secrets. Parses the result to ensure that a replay can read it.
fn clean(mut document: Document, prefixes: &[&str]) -> Result<Document, Failure> {
    redact::prune(&mut document, prefixes);
    let failed = |error| Failure::error(format!("the snapshot cannot be written as JSON: {error}"));
    let mut value = serde_json::to_value(document).map_err(failed)?;
    let redacted = redact::scrub(&mut value);
    let document: Document = serde_json::from_value(value).map_err(failed)?;
    Ok(Document { redacted, ..document })
}

fn summary(document: &Document, path: &str) -> String {
    let Document { nodes, services, redacted, .. } = document;
    let errors = document.answers.errors();
    let mut text =
        format!("Snapshot in {path}: {}, {}", counted(nodes.len(), "node"), counted(services.len(), "Service"));
    match &document.volumes {
        Some(Listed::Volumes(volumes)) => text.push_str(&format!(", {}", counted(volumes.len(), "volume"))),
        Some(Listed::Failed(_)) => text.push_str(", no volumes because they could not be listed"),
        None => {}
    }
    if errors > 0 {
        text.push_str(&format!(", {} of the provider", counted(errors, "error")));
    }
    text.push_str(&match redacted {
        0 => "; nothing had to be redacted.".to_owned(),
        1 => "; 1 value was redacted: the plan that is made of it may differ there.".to_owned(),
        count => format!("; {count} values were redacted: the plan that is made of it may differ there."),
    });
    text
}

fn json(document: &Document, file: Option<&str>, html: Option<&str>) -> Value {
    json!({
        "file": file,
        "html": html,
        "taken": document.taken,
        "nodes": document.nodes.len(),
        "services": document.services.len(),
        "volumes": match &document.volumes {
            Some(Listed::Volumes(volumes)) => Some(volumes.len()),
            Some(Listed::Failed(_)) | None => None,
        },
        "errors": document.answers.errors(),
        "redacted": document.redacted,
    })
}

/// The plan from the snapshot in this file. Prints on stderr whether it equals the recorded plan.
pub(super) async fn replay(call: &Call, path: &str, scope: &Scope) -> Result<Previewed, Failure> {
    // The error may quote untrusted input.
    let plain = |failure: Failure| Failure { message: output::flat(&failure.message), ..failure };
    let document = file::read(path).map_err(plain)?;
    let (taken, ccm, redacted) = (document.taken, document.ccm.clone(), document.redacted);
    let then = document.plan.clone();
    let previewed = {
        let progress = Progress::at("reading the snapshot");
        let world = world(call, document).await?;
        world.check(scope)?;
        world.plan(scope, &progress).await?
    };
    let different = differences(&then, previewed::json(&previewed), scope);
    let mut text = format!("Snapshot of {taken}, taken by ccm {ccm}: ");
    let more = different.len().saturating_sub(NAMED);
    let subjects = different.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    text.push_str(&match (subjects.is_empty(), more) {
        (true, _) => "the plan equals the recorded one.".to_owned(),
        (false, 0) => format!("the plan differs from the recorded one for {subjects}."),
        (false, more) => format!("the plan differs from the recorded one for {subjects} and {more} more."),
    });
    if redacted > 0 {
        text.push_str(&format!(
            " Of its values {redacted} had to be redacted, so it may differ from what the controllers would do."
        ));
    }
    super::eprint(&output::flat(&text));
    Ok(previewed)
}

/// The world of a snapshot: no cluster, no cloud; the clock is stopped at the time of the snapshot.
async fn world(call: &Call, document: Document) -> Result<World, Failure> {
    let Document { taken, provider, flags, nodes, services, volumes, related, answers, .. } = document;
    let values = flags::read(&flags, &call.registry, &call.program)?;
    let options = Options::new(&values, &call.program)
        .map_err(|failure| Failure { message: format!("the flags of the snapshot: {}", failure.message), ..failure })?;
    let provider = Replay::new(provider, answers, &call.registry, &values);
    let client = Client::without_server("a plan from a snapshot has no cluster", Metrics::new());
    let objects = Objects { nodes: filled(nodes), services: filled(services) };
    let clock = Stopped::at(SystemTime::from(taken));
    let mut world = World::of(options, client, Arc::new(provider), objects, Arc::new(clock)).await?;
    world.volumes = volumes.map(|listed| match listed {
        Listed::Volumes(volumes) => Ok(filled(volumes)),
        Listed::Failed(error) => Err(error),
    });
    world.related = related.map(|listed| match listed {
        ListedRelated::Objects { endpoint_slices, namespaces } => {
            Ok(RelatedObjects::of(endpoint_slices.map(filled), namespaces.map(filled)))
        }
        ListedRelated::Failed(error) => Err(error),
    });
    Ok(world)
}

fn filled<T: Cached>(objects: Vec<T>) -> Arc<Store<T>> {
    let store = Store::new(FieldFilter::default());
    let keys: BTreeSet<T::Key> = objects.iter().map(Cached::key).collect();
    objects.into_iter().for_each(|object| store.replace(object));
    store.complete(&keys, "");
    store
}

/// The subjects whose plans, warnings or errors differ from the recorded ones.
fn differences(then: &Value, mut now: Value, scope: &Scope) -> Vec<String> {
    redact::scrub(&mut now);
    let mut different = BTreeSet::new();
    for section in ["plans", "warnings", "unplanned"] {
        let (then, now) = (by_subject(then, section), by_subject(&now, section));
        let subjects: BTreeSet<&str> = then.keys().chain(now.keys()).copied().collect();
        let differs = |subject: &&str| concerns(scope, subject) && then.get(subject) != now.get(subject);
        different.extend(subjects.into_iter().filter(differs).map(str::to_owned));
    }
    if *scope == Scope::All && then.get("skipped") != now.get("skipped") {
        different.insert("the controllers that do not run".to_owned());
    }
    different.into_iter().collect()
}

fn by_subject<'a>(plan: &'a Value, section: &str) -> BTreeMap<&'a str, Vec<&'a Value>> {
    let mut all: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for item in plan.get(section).and_then(Value::as_array).into_iter().flatten() {
        all.entry(item.get("subject").and_then(Value::as_str).unwrap_or_default()).or_default().push(item);
    }
    all
}

fn provider(of: &dyn CloudProvider) -> Provider {
    let (name, schemes) = (of.name().to_owned(), of.provider_id_schemes());
    let unmanaged = of.unmanaged_label().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let schemes = Some(schemes).filter(|schemes| *schemes != Schemes::new([&*name]));
    Provider { schemes, name, unmanaged, facts: of.facts() }
}
