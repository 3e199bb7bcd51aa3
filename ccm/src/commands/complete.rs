//! `__complete PREFIX`: the objects of the cluster whose names begin like this, for the completion of shells.

use std::ffi::OsString;

use ccm_provider::flag::Flag;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::output::flat;
use super::{COMMANDS, Call, Command, completion, kubeconfig, page, summaries};
use crate::exit::{Failure, Verdict};
use crate::options::parse;
use crate::program::Program;

pub(super) const COMMAND: Command = Command {
    name: "__complete",
    words: "node/PREFIX | service/NAMESPACE/PREFIX",
    about: "Prints the objects whose names begin like this.",
    details: "The scripts of `completion` call it.",
    flags: &[],
    namespace: &kubeconfig::NO_NAMESPACE,
    formats: &[],
    like_running: false,
    run,
};

/// The arguments of this program for those of `kubectl_complete-ccm`, which kubectl runs to complete the last word.
pub(crate) fn of_kubectl(args: &[OsString]) -> Vec<OsString> {
    let (own, words) = args.split_first().map_or((OsString::new(), &[][..]), |(own, words)| (own.clone(), words));
    let (last, before) = words.split_last().map_or((OsString::new(), &[][..]), |(last, before)| (last.clone(), before));
    // An empty argument counts as none.
    let mut marked = OsString::from(LAST);
    marked.push(last);
    let all = [own, COMMAND.name.into(), "--".into()].into_iter().chain(before.iter().cloned());
    all.chain([marked]).collect()
}

/// Stands before the word that kubectl completes.
const LAST: &str = "=";

/// Cobra's directives behind the results: names of files may follow, they may not, and not even a blank.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";
const NO_BLANK: &str = ":6";

/// What the last word of a command line may be, with the directive; `None` for the name of an object.
fn of_words(program: &Program, before: &[String], last: &str) -> Option<(Vec<String>, &'static str)> {
    let named = before.iter().find_map(|word| COMMANDS.iter().find(|command| command.name == *word));
    let flags = named.map_or_else(|| program.flags.clone(), |command| command.all_flags(program));
    let flag = |word: &str| {
        let of_name = |flag: &&Flag| match word.strip_prefix("--") {
            Some(name) => flag.name == name,
            None => flag.short.is_some_and(|short| word == format!("-{short}")),
        };
        flags.iter().find(of_name).filter(|flag| parse::bare(flag.kind).is_none())
    };
    let (all, directive) = if let Some(flag) = before.last().and_then(|word| flag(word)) {
        let values = completion::values(program, flag, named.map_or(&[], |command| command.formats));
        let directive = if values.is_empty() { FILES } else { NO_FILES };
        (values.into_iter().map(str::to_owned).collect::<Vec<_>>(), directive)
    } else if last.starts_with('-') {
        let shown = flags.iter().filter(|flag| !flag.hidden);
        (shown.map(|flag| format!("--{}", flag.name)).collect(), NO_FILES)
    } else {
        match named {
            None => (summaries().map(|(name, _)| name.to_owned()).collect(), NO_FILES),
            Some(command) if !command.words.contains("node/NAME") => (Vec::new(), FILES),
            Some(_) if last.contains('/') => return None,
            Some(_) => (["node/", "service/"].map(str::to_owned).to_vec(), NO_BLANK),
        }
    };
    let mut all: Vec<String> = all.into_iter().filter(|name| name.starts_with(last)).collect();
    all.sort_unstable();
    Some((all, directive))
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

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let (last, before) = call.words.split_last().map_or(("", &[][..]), |(last, before)| (&**last, before));
        let prefix = match last.strip_prefix(LAST) {
            None => last.to_owned(),
            Some(last) => match of_words(&call.program, before, last) {
                None => last.to_owned(),
                Some((all, directive)) => {
                    super::print(&all.iter().map(|one| format!("{one}\n")).collect::<String>());
                    super::print(&format!("{directive}\n"));
                    return Ok(Verdict::Clean);
                }
            },
        };
        let Some((kind, _)) = prefix.split_once('/') else {
            super::print("node/\nservice/\n");
            return Ok(Verdict::Clean);
        };
        let path = match kind {
            "node" | "nodes" | "no" => "/api/v1/nodes",
            "service" | "services" | "svc" => "/api/v1/services",
            _ => return Ok(Verdict::Clean),
        };
        let client = kubeconfig::client(&call).await?;
        let found = page::all::<Object>(&client, path).await;
        let found = found.map_err(|error| Failure::error(error.to_string()))?;
        let mut names: Vec<String> = found.iter().filter_map(|object| name(kind, object)).collect();
        // `svc/web` is in the namespace of the context.
        if prefix.matches('/').count() == 1 && !prefix.ends_with('/') {
            let short = format!("{kind}/{}/", kubeconfig::namespace(&call.values));
            names
                .extend(names.clone().iter().filter_map(|name| Some(format!("{kind}/{}", name.strip_prefix(&short)?))));
        }
        let names = names.iter().filter(|name| name.starts_with(&prefix));
        super::print(&names.map(|name| format!("{}\n", flat(name))).collect::<String>());
        Ok(Verdict::Clean)
    }
    .boxed()
}

/// `node/NAME` or `service/NAMESPACE/NAME`; `None` for a Service without load balancer.
fn name(kind: &str, Object { metadata, spec }: &Object) -> Option<String> {
    match &*metadata.namespace {
        "" => Some(format!("{kind}/{}", metadata.name)),
        namespace => (spec.kind == "LoadBalancer").then(|| format!("{kind}/{namespace}/{}", metadata.name)),
    }
}
