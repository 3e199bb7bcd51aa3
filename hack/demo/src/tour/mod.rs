//! The tour: actions on the cluster and the cloud, and their expected results.

mod acts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use crate::act::Act;
use crate::args::{Args, Pace};
use crate::feed::{Feed, Item, Source};
use crate::scene::Scene;
use crate::scene::manager::Running;
use crate::world::{Calls, State};

/// Poll interval of waits.
const LOOK: Duration = Duration::from_millis(20);
/// The time limit of each wait; large clusters get more (see [`crate::scene::cloud::Profile`]).
const LIMIT: Duration = Duration::from_secs(20);
/// Width of a command line.
const COMMAND: usize = 70;

#[derive(Debug)]
pub(crate) struct Tour {
    pub(crate) scene: Scene,
    pub(crate) findings: Findings,
    args: Args,
    pace: Pace,
    feed: Arc<Feed>,
    manager: Option<Running>,
}

/// The results of the tour.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) acts: Vec<String>,
    pub(crate) initialized_after: Duration,
    pub(crate) services: usize,
    pub(crate) services_deleted: usize,
    pub(crate) deleted: Vec<String>,
    /// Nodes without an answer from the cloud, and the number of lookups.
    pub(crate) kept: Vec<(String, u64)>,
}

impl Tour {
    pub(crate) fn new(scene: Scene, args: Args, feed: Arc<Feed>) -> Self {
        Self { scene, findings: Findings::default(), args, pace: args.pace(), feed, manager: None }
    }

    pub(crate) async fn run(&mut self) -> Result<()> {
        for (number, act) in (1..).zip(self.scene.cloud.profile().acts) {
            let before = self.calls();
            match act {
                Act::LookFirst => self.look_first(number).await?,
                Act::ForReal => self.for_real(number).await?,
                Act::Changed => self.changed(number).await?,
                Act::Terminated => self.terminated(number).await?,
                Act::CannotTell => self.cannot_tell(number).await?,
                Act::Restarted => self.restarted(number).await?,
                Act::Deleted => self.deleted(number).await?,
            }
            self.block("calls to the cloud in this act:", self.calls().since(&before));
        }
        Ok(())
    }

    fn act(&self, number: usize, title: &'static str, text: String) {
        self.feed.add(Item::Act { number, title, text });
    }

    fn result(&mut self, text: String) {
        self.findings.acts.push(text.clone());
        self.feed.add(Item::Result(text));
    }

    fn block(&self, title: impl Into<String>, lines: Vec<String>) {
        self.feed.add(Item::Block { title: title.into(), lines });
    }

    fn calls(&self) -> Calls {
        self.scene.world.look(|state| state.calls.clone())
    }

    /// Describes an action of the demo.
    fn does(&self, text: impl Into<String>) {
        self.feed.fact(Source::Demo, "", text);
    }

    /// Waits for the user to read.
    async fn pause(&self, share: f64) {
        tokio::time::sleep(self.pace.read.mul_f64(share)).await;
    }

    /// Waits until `look` finds the expected result.
    async fn until<T>(&self, what: &str, mut look: impl FnMut(&State) -> Option<T>) -> Result<T> {
        let began = Instant::now();
        let limit = LIMIT + self.scene.cloud.profile().per_node * u32::try_from(self.args.nodes).unwrap_or(u32::MAX);
        loop {
            if let Some(found) = self.scene.world.look(&mut look) {
                return Ok(found);
            }
            if self.manager.as_ref().is_some_and(Running::has_ended) {
                bail!("the manager exited; expected: {what}");
            }
            if began.elapsed() > limit {
                bail!("this did not happen within {}s: {what}\n{}", limit.as_secs(), self.state());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the manager is done, so that no act observes work of the previous one.
    async fn settled(&self) -> Result<()> {
        let (mut seen, mut since) = (None, Instant::now());
        self.until("the manager is done", |state| {
            let now = (state.calls.changes, self.writes().objects);
            if seen != Some(now) {
                (seen, since) = (Some(now), Instant::now());
            }
            (since.elapsed() >= self.scene.cloud.profile().settles).then_some(())
        })
        .await
    }

    /// The state as text, for an error.
    fn state(&self) -> String {
        self.scene.world.look(|state| {
            let odd = state.nodes.values().filter(|node| !node.routed || node.uninitialized).take(3);
            format!(
                "nodes: {}, of them tainted: {}, with route: {}; routes: {}; Services: {:?}; calls: {:?}; some nodes: {:?}",
                state.nodes.len(),
                state.count(|node| node.uninitialized),
                state.count(|node| node.routed),
                state.routes.len(),
                state.services,
                state.calls,
                odd.collect::<Vec<_>>(),
            )
        })
    }

    async fn start_manager(&mut self, dry_run: bool) -> Result<()> {
        let args = self.scene.manager_args(dry_run);
        self.does("starts the manager, as this command would:");
        self.block(String::new(), command(&args));
        self.manager = Some(Running::start(&args, &*self.scene.cloud.factory()).await?);
        Ok(())
    }

    pub(crate) async fn stop_manager(&mut self) -> Result<()> {
        match self.manager.take() {
            Some(manager) => manager.stop().await,
            None => Ok(()),
        }
    }

    fn create_service(&self, name: &str, port: u16) -> Result<()> {
        let annotations = self.scene.cloud.profile().annotations.iter().filter(|(of, ..)| *of == name);
        let annotations: BTreeMap<&str, &str> = annotations.map(|(_, key, value)| (*key, *value)).collect();
        let service = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "type": "LoadBalancer", "selector": {"app": name}, "sessionAffinity": "None",
                "externalTrafficPolicy": "Cluster", "ports": [port_of("main", port)],
            },
        });
        match self.scene.store().create("services", "default", service) {
            Ok(_) => Ok(()),
            Err(error) => bail!("cannot create Service {name}: {}", error.message),
        }
    }

    /// The writes of managers so far, over HTTP.
    pub(crate) fn writes(&self) -> Writes {
        let mut writes = Writes::default();
        for (key, count) in self.scene.store().log().counts() {
            let is_write = matches!(key.verb.as_str(), "create" | "update" | "patch" | "delete");
            match key.resource.as_str() {
                "nodes" | "services" if is_write && key.status == 409 => writes.conflicts += count,
                "nodes" | "services" if is_write => writes.objects += count,
                "events" | "leases" if is_write => writes.notes += count,
                _ => {}
            }
        }
        writes
    }
}

/// A port of a Service.
fn port_of(name: &str, port: u16) -> serde_json::Value {
    json!({"name": name, "port": port, "targetPort": 8080, "protocol": "TCP"})
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Writes {
    pub(crate) objects: u64,
    pub(crate) conflicts: u64,
    /// Writes of events and leases.
    pub(crate) notes: u64,
}

/// A command line, wrapped.
fn command(args: &[String]) -> Vec<String> {
    let mut lines = vec!["ccm".to_owned()];
    for arg in args {
        match lines.last_mut() {
            Some(line) if line.chars().count() + arg.chars().count() < COMMAND => {
                line.push(' ');
                line.push_str(arg);
            }
            _ => lines.push(format!("  {arg}")),
        }
    }
    let last = lines.len().saturating_sub(1);
    lines.iter_mut().take(last).for_each(|line| line.push_str(" \\"));
    lines
}
