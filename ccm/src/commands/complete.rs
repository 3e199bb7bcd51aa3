//! `__complete WORD…`: what the last word of a command line may be, for the completion of shells and of kubectl.

use std::ffi::OsString;
use std::time::Duration;

use ccm_provider::flag::{Flag, Kind};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::output::{Format, Output, flat};
use super::{
    Asked, COMMANDS, Call, Command, HELP, completion, every_flag, kubeconfig, migrate_values, page, summaries,
};
use crate::exit::{Failure, Verdict};
use crate::options::{parse, summary};
use crate::program::Program;

pub(super) const COMMAND: Command = Command {
    name: "__complete",
    words: "WORD…",
    about: "Prints what the last word of a command line may be.",
    details: "The scripts of `completion` call it, and kubectl.",
    flags: &[],
    namespace: &kubeconfig::NO_NAMESPACE,
    formats: &[],
    like_running: false,
    run,
};

/// How long a shell waits for the cluster.
const PATIENCE: Duration = Duration::from_secs(3);

/// Cobra's directives behind the results: names of files may follow, they may not, and not even a blank.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";
const NO_BLANK: &str = ":6";

/// The arguments of this program for those of `kubectl_complete-ccm`, which kubectl runs to complete the last word.
pub(crate) fn of_kubectl(args: &[OsString]) -> Vec<OsString> {
    let (own, words) = args.split_at_checked(1).unwrap_or_default();
    own.iter().cloned().chain([COMMAND.name.into()]).chain(words.iter().cloned()).collect()
}

/// The call with these words. The flags among them are not its own, but they tell where to look.
pub(super) fn asked(program: &Program, words: &[OsString]) -> Result<Asked, Failure> {
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    let (values, _) = parse::read_on(&every_flag(program), before.iter().cloned());
    let output = Output::new(Format::Text, "never").map_err(Failure::error)?;
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(Asked::Run(&COMMAND, values, words, output))
}

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let (last, before) = call.words.split_last().map_or(("", &[][..]), |(last, before)| (&**last, before));
        let Replies { prefix, mut all, directive } = replies(&call, before, last).await?;
        all.retain(|(name, _)| name.starts_with(prefix));
        all.sort_unstable();
        let line = |(name, about): &(String, &str)| match *about {
            "" => format!("{}\n", flat(name)),
            about => format!("{}\t{}\n", flat(name), flat(about)),
        };
        super::print(&format!("{}{directive}\n", all.iter().map(line).collect::<String>()));
        Ok(Verdict::Clean)
    }
    .boxed()
}

struct Replies<'a> {
    /// What they must begin with.
    prefix: &'a str,
    /// Each with a description, which may be empty.
    all: Vec<(String, &'static str)>,
    directive: &'static str,
}

impl<'a> Replies<'a> {
    fn of(prefix: &'a str, names: impl IntoIterator<Item = impl Into<String>>, directive: &'static str) -> Self {
        Self { prefix, all: names.into_iter().map(|name| (name.into(), "")).collect(), directive }
    }

    fn described(prefix: &'a str, all: impl Iterator<Item = (String, &'static str)>) -> Self {
        Self { prefix, all: all.collect(), directive: NO_FILES }
    }
}

async fn replies<'a>(call: &Call, before: &[String], last: &'a str) -> Result<Replies<'a>, Failure> {
    let known = every_flag(&call.program);
    let words: Vec<OsString> = before.iter().map(OsString::from).collect();
    let at = parse::first_word(&known, &words);
    let name = at.and_then(|at| before.get(at)).map(String::as_str);
    let command = COMMANDS.iter().find(|command| name == Some(command.name));
    if let Some((flag, value)) = flag_of(&known, before, last) {
        return values(call, command, flag, value).await;
    }
    if last.starts_with('-') {
        let flags = command.map_or_else(|| call.program.flags.clone(), |command| command.all_flags(&call.program));
        let shown = flags.iter().filter(|flag| !flag.hidden);
        return Ok(Replies::described(last, shown.map(|flag| (format!("--{}", flag.name), summary(flag)))));
    }
    let summaries = || summaries().map(|(name, about)| (name.to_owned(), about));
    let none = Vec::<String>::new;
    let has_operand =
        at.and_then(|at| words.get(at + 1..)).is_some_and(|rest| parse::first_word(&known, rest).is_some());
    Ok(match (name, command) {
        (None, _) => Replies::described(last, summaries()),
        (_, Some(command)) if command.words.contains("FILE") => Replies::of(last, none(), FILES),
        _ if has_operand => Replies::of(last, none(), NO_FILES),
        (Some(HELP), _) => Replies::described(last, summaries().filter(|(name, _)| name != HELP)),
        (Some(completion::NAME), _) => Replies::of(last, completion::SHELLS.map(|(name, _)| name), NO_FILES),
        (_, Some(command)) if command.words.contains("node/NAME") => match last.contains('/') {
            true => Replies::of(last, objects(call, last).await?, NO_FILES),
            false => {
                let routes = command.words.contains("routes").then_some("routes");
                Replies::of(last, ["node/", "service/"].into_iter().chain(routes), NO_BLANK)
            }
        },
        _ => Replies::of(last, none(), NO_FILES),
    })
}

/// The flag whose value is completed, and the value so far.
fn flag_of<'f, 'v>(known: &'f [Flag], before: &[String], last: &'v str) -> Option<(&'f Flag, &'v str)> {
    let named = |word: &str| {
        known.iter().find(|flag| match word.strip_prefix("--") {
            Some(name) => flag.name == name.replace('_', "-"),
            None => flag.short.is_some_and(|short| word == format!("-{short}")),
        })
    };
    match last.split_once('=').filter(|_| last.starts_with('-')) {
        Some((word, value)) => Some((named(word)?, value)),
        None => named(before.last()?).filter(|flag| parse::bare(flag.kind).is_none()).map(|flag| (flag, last)),
    }
}

/// The known values of a flag; names of files if there are none.
async fn values<'a>(
    call: &Call,
    command: Option<&Command>,
    flag: &Flag,
    value: &'a str,
) -> Result<Replies<'a>, Failure> {
    let program = &call.program;
    let names: Vec<String> = match flag.name {
        "context" => kubeconfig::contexts(&call.values),
        "namespace" => list(call, "/api/v1/namespaces").await?.into_iter().map(|found| found.metadata.name).collect(),
        "controllers" => items(program.controllers.iter().map(|known| known.name), value),
        "webhooks" => items(program.webhooks.iter().map(|known| known.name), value),
        name => {
            let words = match name {
                "cloud-provider" => program.providers.clone(),
                "output" => Format::words(command.map_or(&[], |command| command.formats)),
                "color" => vec!["always", "auto", "never"],
                "fail-on" => vec!["error", "warning", "never"],
                "from" => migrate_values::charts().collect(),
                "logging-format" => vec!["json", "text"],
                // Codes of findings: no files, and too many to list.
                "suppress" => Vec::new(),
                _ if flag.kind == Kind::Bool => vec!["false", "true"],
                _ => return Ok(Replies::of(value, Vec::<String>::new(), FILES)),
            };
            words.into_iter().map(str::to_owned).collect()
        }
    };
    Ok(Replies::of(value, names, NO_FILES))
}

/// A list of names, such as `a,-b`, with each possible last item.
fn items(names: impl Iterator<Item = &'static str>, value: &str) -> Vec<String> {
    let item = value.rsplit(',').next().unwrap_or_default();
    let before = value.strip_suffix(item).unwrap_or_default();
    let off = if item.starts_with('-') { "-" } else { "" };
    names.map(|name| format!("{before}{off}{name}")).collect()
}

#[derive(Deserialize)]
struct Object {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "type")]
    kind: String,
}

async fn list(call: &Call, path: &str) -> Result<Vec<Object>, Failure> {
    let look = async {
        let client = kubeconfig::client(call).await?;
        page::all::<Object>(&client, path).await.map_err(|error| Failure::error(error.to_string()))
    };
    let late = |_| Err(Failure::error("the API server did not answer in time"));
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(late)
}

/// The objects of the kind of `node/…` or `service/…`. Services without load balancer are left out.
async fn objects(call: &Call, word: &str) -> Result<Vec<String>, Failure> {
    let (kind, name) = word.split_once('/').unwrap_or((word, ""));
    let asked = kubeconfig::namespace_asked(&call.values);
    let path = match (kind, &asked) {
        ("node" | "nodes" | "no", _) => "/api/v1/nodes".to_owned(),
        ("service" | "services" | "svc", None) => "/api/v1/services".to_owned(),
        ("service" | "services" | "svc", Some(namespace)) => format!("/api/v1/namespaces/{namespace}/services"),
        _ => return Ok(Vec::new()),
    };
    let found = list(call, &path).await?;
    // `svc/web` is in the namespace of -n, or else in that of the context.
    let default = kubeconfig::namespace(&call.values);
    let with_namespace = asked.is_none() || name.contains('/');
    let without = asked.is_some() || !name.is_empty() && !name.contains('/');
    let mut names = Vec::new();
    for Object { metadata: Meta { name, namespace }, spec } in found {
        if namespace.is_empty() {
            names.push(format!("{kind}/{name}"));
        } else if spec.kind == "LoadBalancer" {
            names.extend(with_namespace.then(|| format!("{kind}/{namespace}/{name}")));
            names.extend((without && namespace == default).then(|| format!("{kind}/{name}")));
        }
    }
    Ok(names)
}
