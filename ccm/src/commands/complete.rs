//! `__complete PREFIX`: the objects of the cluster whose names begin like this, for the completion of shells.

use std::ffi::OsString;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::output::flat;
use super::{COMMANDS, Call, Command, kubeconfig, page, summaries};
use crate::exit::{Failure, Verdict};

pub(super) const COMMAND: Command = Command {
    name: "__complete",
    words: "node/PREFIX | service/NAMESPACE/PREFIX",
    about: "Prints the objects whose names begin like this.",
    details: "The scripts of `completion` call it.",
    flags: &[],
    formats: &[],
    like_running: false,
    run,
};

/// The arguments of this program for those of `kubectl_complete-ccm`, which kubectl runs to complete the last word.
pub(crate) fn of_kubectl(args: &[OsString]) -> Vec<OsString> {
    let (own, words) = args.split_first().map_or((OsString::new(), &[][..]), |(own, words)| (own.clone(), words));
    [own, COMMAND.name.into(), "--".into()].into_iter().chain(words.iter().cloned()).collect()
}

/// The commands, or the flags of the command, that begin like the last word; `None` if it is an object.
fn of_words(words: &[String]) -> Option<Vec<String>> {
    let (last, before) = words.split_last()?;
    let named = before.iter().find_map(|word| COMMANDS.iter().find(|command| command.name == *word));
    let all: Vec<String> = match named {
        Some(command) if last.starts_with("--") => command.own_flags().map(|flag| format!("--{}", flag.name)).collect(),
        None if !last.contains('/') && !last.starts_with('-') => summaries().map(|(name, _)| name.to_owned()).collect(),
        _ => return None,
    };
    Some(all.into_iter().filter(|name| name.starts_with(last)).collect())
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
        if let Some(names) = of_words(&call.words).filter(|_| call.is_plugin) {
            // Cobra's directive for kubectl: no names of files.
            super::print(&names.iter().map(|name| format!("{name}\n")).chain([":4\n".to_owned()]).collect::<String>());
            return Ok(Verdict::Clean);
        }
        let prefix = call.words.last().cloned().unwrap_or_default();
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
        let short = format!("{kind}/{}/", kubeconfig::namespace(&call.values));
        names.extend(names.clone().iter().filter_map(|name| Some(format!("{kind}/{}", name.strip_prefix(&short)?))));
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
