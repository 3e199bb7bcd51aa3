//! `ccm explain`: the reasons for the state of a node or Service, link by link from the object to the cloud.
//!
//! Everything is read once; the evaluation is pure and uses the controllers' decisions.

mod cluster;
mod events;
mod leader;
mod object;
mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ccm_controllers::preview::Scope;
use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::flag::{Flag, Kind};
use ccm_provider::{Aspects, FactState, Lookup, NodeRef, NodeTaskSpec, Service};
use ccm_runtime::clock::timestamp;
use ccm_runtime::election;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::output::Format;
use super::previewed::Previewed;
use super::progress::Progress;
use super::world::World;
use super::{Call, Command, SECTION, kubeconfig, lint, target};
use crate::exit::{Failure, Verdict};
use crate::options::Options;
use leader::Leader;
use report::Story;

const LEADER: Flag = Flag::new(
    SECTION,
    "leader",
    Kind::Text,
    "",
    "Address of the secure port of the replica that leads, such as https://127.0.0.1:10258: its /debug/state is asked too, with the credentials of the kubeconfig.",
);
const LEADER_CA: Flag = Flag::new(
    SECTION,
    "leader-ca",
    Kind::Text,
    "",
    "With --leader: PEM file of the authority that signed its certificate. Without it, the authority of the API server.",
);
const LEADER_INSECURE: Flag = Flag::new(
    SECTION,
    "leader-insecure",
    Kind::Bool,
    "false",
    "With --leader: take any certificate. The server at this address gets the credentials: only through a tunnel of your own.",
);

const WATCH: Flag = Flag::new(
    SECTION,
    "watch",
    Kind::Bool,
    "false",
    "Look again every 5 seconds until the object is healthy, and print what has changed.",
)
.short('w');
const NAMESPACE: Flag =
    kubeconfig::namespace_flag("The namespace of a Service without one. By default that of the context.");
/// The pause with `--watch`.
const AGAIN: Duration = Duration::from_secs(5);

pub(super) const COMMAND: Command = Command {
    name: "explain",
    words: "node/NAME | service/NAMESPACE/NAME",
    about: "Explains why a node is tainted or a Service is pending. Shows each link from the object to the cloud, what is waited for, what is broken, and how to fix it. Writes nothing.",
    details: "\
Works with and without a controller manager that runs. Give it the flags of the controller manager, so that it sees
the same cluster and cloud.

Exit codes: 0 healthy, 2 pending or broken, 1 could not check, 255 no provider.

  ccm explain svc/web -n shop --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf
  ccm explain node/worker-1 -o json …

What the leader itself says (queues, last failures, next try), through a tunnel to the pod that holds the lease:

  kubectl -n kube-system port-forward pod/cloud-controller-manager-abc 10258 &
  ccm explain service/default/web --leader=https://127.0.0.1:10258 --leader-insecure …",
    flags: &[LEADER, LEADER_CA, LEADER_INSECURE, WATCH],
    namespace: &NAMESPACE,
    formats: &[],
    like_running: true,
    run,
};

pub(super) use cluster::lease;

enum Object {
    Node(NodeRef),
    Service(Arc<Service>),
}

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let scope = target::object(&call.words, &call.values)?;
        let leader = leader::flags(&call.values)?;
        let watch = call.values.bool(WATCH.name);
        let mut printed = String::new();
        loop {
            let looked = look(&call, &scope, leader.as_ref()).await;
            let (state, text, verdict) = match looked {
                Ok(story) => (ageless(&story.conclusion()), report::print(&story, call.output), Some(story.verdict())),
                // The object was there: the API server may answer again.
                Err(Unseen::Cluster(failure)) if !printed.is_empty() => {
                    super::eprint(&format!("{}; looking again in {}s", failure.message, AGAIN.as_secs()));
                    (printed.clone(), String::new(), None)
                }
                Err(Unseen::Cluster(failure) | Unseen::Object(failure)) => return Err(failure),
            };
            // As kubectl separates documents.
            let next = if call.output.format == Format::Yaml && !printed.is_empty() { "---\n" } else { "" };
            let reader_is_there = printed == state || super::deliver(&format!("{next}{text}"))?;
            printed = state;
            match verdict {
                Some(verdict) if !watch || verdict == Verdict::Clean || !reader_is_there => return Ok(verdict),
                _ => tokio::time::sleep(AGAIN).await,
            }
        }
    }
    .boxed()
}

/// Why nothing can be explained.
enum Unseen {
    /// The cluster or the provider cannot be reached.
    Cluster(Failure),
    /// The object does not exist, or cannot be explained.
    Object(Failure),
}

async fn look(call: &Call, scope: &Scope, leader: Option<&Leader>) -> Result<Story, Unseen> {
    let progress = Progress::at("reading the flags");
    let world = World::open(call, &progress).await.map_err(Unseen::Cluster)?;
    world.check(scope).map_err(Unseen::Object)?;
    collect(call, &world, scope, leader, &progress).await.map_err(Unseen::Object)
}

/// The text without its ages, which change while the state stays.
fn ageless(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let is_age = |at: usize| words.get(at + 1).is_some_and(|next| next.starts_with("ago"));
    words.iter().enumerate().filter(|(at, _)| !is_age(*at)).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// Reads everything, nearest to the object first, and collects the facts.
async fn collect(
    call: &Call,
    world: &World,
    scope: &Scope,
    leader: Option<&Leader>,
    progress: &Progress,
) -> Result<Story, Failure> {
    let Some(object) = find(world, scope) else {
        return Err(Failure::error("the object was deleted"));
    };
    let now = timestamp(world.shared.clock.wall());
    let class = match &object {
        Object::Service(service) => service.spec.load_balancer_class.as_deref(),
        Object::Node(_) => None,
    };
    let of_class =
        world.options.classes.iter().find(|(known, _)| class == Some(known)).map(|(_, controller)| *controller);
    let mut story = match &object {
        Object::Node(node) => match world.shared.unmanaged.label_on(node) {
            Some(label) => object::unmanaged(node, &label, now),
            None => object::node(node, world.shared.view.as_deref(), &tasks(call, &world.options), now),
        },
        Object::Service(service) => object::service(service, class.is_none() || of_class.is_some(), now),
    };
    if let Object::Service(service) = &object
        && story.not_ours.is_none()
    {
        story.lint(&lint::service(service, &call.registry, &world.options));
    }
    let mut previewed = world.preview(scope, progress).await?;
    if let Object::Node(node) = &object
        && story.not_ours.is_none()
        && cluster::unreachable(node).is_some()
    {
        match world.preview(&Scope::Routes, progress).await {
            Ok(routes) => cluster::add_routes(&mut previewed, routes, &node.name),
            // Flags that are rejected only when this controller starts do not affect the rest.
            Err(failure) => previewed.skipped.push((ccm_controllers::route::NAME, failure.message)),
        }
    }
    let mut nobody = false;
    if story.not_ours.is_none() {
        let mut needed = cluster::needed(&object);
        if let Some(controller) = of_class {
            needed.iter_mut().for_each(|needed| needed.name = controller);
        }
        story.facts.extend(cluster::controllers(&world.options, &previewed.skipped, &needed));
        nobody = leases(world, &mut story, &needed, progress).await;
    }
    if let Some(leader) = leader {
        progress.go_on("asking the leader");
        leader.ask(&world.options, scope, &mut story).await?;
    }
    story.previewed(&previewed, world.options.dry_run, nobody);
    if let Object::Service(service) = &object
        && story.not_ours.is_none()
        && service.is_load_balancer()
        && !ccm_controllers::service::decide::is_leaving(service)
    {
        story.facts.push(cluster::hosts(&world.shared.nodes.list(), world.shared.view.as_deref()));
    }
    // Like the controllers, do not look up nodes of other clouds.
    if !(matches!(object, Object::Node(_)) && story.not_ours.is_some()) {
        progress.go_on(format!("asking the provider {}", world.provider.name()));
        provider(world, &object, &mut story).await;
    }
    progress.go_on("listing events");
    match events::list(&world.client, &object).await {
        Ok(events) => story.events(events, now),
        Err(error) => story.unseen.push(error),
    }
    story.plan = Some(previewed);
    Ok(story)
}

/// The provider's own controllers that are enabled.
fn tasks(call: &Call, options: &Options) -> Vec<&'static NodeTaskSpec> {
    let runs = |task: &&NodeTaskSpec| options.switched_on().any(|known| known.name == task.name);
    let factory = call.registry.get(&options.cloud_provider);
    factory.into_iter().flat_map(|factory| factory.node_tasks()).filter(runs).collect()
}

fn find(world: &World, scope: &Scope) -> Option<Object> {
    match scope {
        Scope::Node(name) => world.shared.nodes.get(name).map(Object::Node),
        Scope::Service(key) => world.shared.services.get(key).map(Object::Service),
        Scope::All | Scope::Routes => None,
    }
}

/// Adds the holder of each relevant lease. True if one of them has no holder.
async fn leases(world: &World, story: &mut Story, needed: &[cluster::Needed], progress: &Progress) -> bool {
    let Some(own) = &world.options.election else {
        let text = "--leader-elect=false: there is no lease that shows whether the controller manager runs";
        story.unseen.push(text.to_owned());
        return false;
    };
    let mut nobody = false;
    for name in cluster::leases(&world.options, own, needed) {
        let label = format!("{}/{name}", own.namespace);
        progress.go_on(format!("reading the lease {label}"));
        let seen = election::look(&world.client, &own.namespace, &name).await;
        // Read after the answer, so that the time is not before the last renewal.
        let now = timestamp(world.shared.clock.wall());
        match lease(&label, seen, own.lease_duration, now) {
            Ok(fact) => {
                nobody |= fact.state != FactState::Good;
                story.facts.push(fact);
            }
            Err(unseen) => story.unseen.push(unseen),
        }
    }
    nobody
}

/// Adds the cloud's data about the object.
async fn provider(world: &World, object: &Object, story: &mut Story) {
    let name = world.provider.name();
    if let (Object::Node(node), Some(view)) = (object, &world.shared.view) {
        let asked = view.get(std::slice::from_ref(node), Aspects::ALL).await;
        for answer in &asked {
            match cluster::lookup(answer) {
                // The provider's own facts explain better why the instance is not found.
                Ok(fact) if matches!(answer, Lookup::Gone(_)) => story.effects.push(fact),
                Ok(fact) => story.facts.push(fact),
                Err(error) if story.reports(&error.to_string()) => {}
                Err(error) => story.failed("the cloud", &format!("gave no answer: {error}"), Some(&error.class())),
            }
        }
    }
    let Some(inspect) = world.provider.inspect() else {
        story.unseen.push(format!("the provider {name} explains nothing of its own"));
        return;
    };
    let cluster = &world.shared.cluster;
    let read = async {
        match object {
            Object::Node(node) => inspect.explain_node(cluster, node).await,
            Object::Service(service) => inspect.explain_service(cluster, service).await,
        }
    };
    match deadline::within("the explanation of the provider", READ_DEADLINE, read).await {
        Ok(facts) => story.facts.extend(facts),
        Err(error) if story.reports(&error.to_string()) => {}
        Err(error) => story.failed(name, &error.to_string(), Some(&error.class())),
    }
}
