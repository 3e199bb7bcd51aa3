//! `__complete PREFIX`: the objects of the cluster whose names begin like this, for the completion of shells.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::output::flat;
use super::{Call, Command, kubeconfig, page};
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
        let prefix = call.words.first().cloned().unwrap_or_default();
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
        let names = found.iter().filter_map(|object| name(kind, object)).filter(|name| name.starts_with(&prefix));
        super::print(&names.map(|name| format!("{}\n", flat(&name))).collect::<String>());
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
