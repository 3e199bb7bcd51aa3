//! The cloud's side: calls, load balancers, routes. For the fake provider the source is its call log.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{State, World};
use crate::feed::{Feed, Source};

/// Poll interval of the log.
const LOOK: Duration = Duration::from_millis(50);

/// Finished calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// The total.
    pub(crate) all: u64,
    /// Lookups of instances, each for many nodes.
    pub(crate) batches: u64,
    /// Nodes in these lookups: the number of calls of a manager that looks up one node at a time.
    pub(crate) asked: u64,
    /// Writes to the cloud.
    pub(crate) changes: u64,
    /// By name of the call: the writes first, then the reads.
    pub(crate) by_name: BTreeMap<(Effect, String), u64>,
    /// "Unknown" answers by node; those for all nodes have an empty name.
    pub(crate) unknown: BTreeMap<String, u64>,
    /// Created and deleted routes.
    pub(crate) routes: (u64, u64),
}

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    Write,
    Read,
}

/// A load balancer in the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Balancer {
    /// Its kind as text.
    pub(crate) kind: &'static str,
    /// Its nodes.
    pub(crate) hosts: BTreeSet<String>,
    /// Its ports, if known.
    pub(crate) ports: BTreeSet<u16>,
}

impl Calls {
    /// The calls since `before`: two lines, `writes: 2 CreateRoute, …` and `reads: …`.
    pub(crate) fn since(&self, before: &Self) -> Vec<String> {
        let line = |effect: Effect, head: &str| {
            let of = self.by_name.iter().filter(|((one, _), _)| *one == effect);
            let grown = of.filter_map(|(key, count)| {
                let count = count - before.by_name.get(key).copied().unwrap_or_default();
                (count > 0).then(|| format!("{count} {}", key.1))
            });
            let grown: Vec<String> = grown.collect();
            format!("{head}: {}", if grown.is_empty() { "none".to_owned() } else { grown.join(", ") })
        };
        vec![line(Effect::Write, "writes"), line(Effect::Read, "reads")]
    }

    /// The number of calls of a read.
    pub(crate) fn reads(&self, name: &str) -> u64 {
        self.by_name.get(&(Effect::Read, name.to_owned())).copied().unwrap_or_default()
    }

    /// The number of "unknown" answers for a node.
    pub(crate) fn doubts(&self, node: &str) -> u64 {
        [node, ""].iter().filter_map(|key| self.unknown.get(*key)).sum()
    }
}

/// Follows the log until dropped.
pub(crate) async fn follow(path: PathBuf, world: Arc<World>, feed: Arc<Feed>) {
    let mut offset = 0;
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let grown = std::fs::File::open(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(offset))?;
            file.read_to_end(&mut rest)
        });
        // The file does not exist before the first provider is started.
        offset += grown.ok().and_then(|grown| u64::try_from(grown).ok()).unwrap_or_default();
        if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
            let whole: Vec<u8> = rest.drain(..=end).collect();
            let mut state = world.lock();
            for line in whole.split(|byte| *byte == b'\n') {
                if let Ok(line) = serde_json::from_slice::<Value>(line) {
                    state.call(&line, &feed);
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned))
}

impl State {
    fn call(&mut self, line: &Value, feed: &Feed) {
        let text = |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let at = text("/time").parse::<jiff::Timestamp>().map_or(feed.elapsed(), |time| feed.when(time.into()));
        if text("/event") == "reload" {
            match text("/error") {
                "" => feed.fact_at(at, Source::Cloud, "", "cloud.yaml changed and is read again"),
                error => feed.fact_at(
                    at,
                    Source::Cloud,
                    "",
                    format!("cloud.yaml is invalid, the last valid one stays in use: {error}"),
                ),
            }
        }
        if text("/phase") != "end" {
            return;
        }
        let (call, error, service) = (text("/call"), text("/error"), text("/args/service"));
        let is_write = matches!(
            call,
            "EnsureLoadBalancer" | "UpdateLoadBalancer" | "EnsureLoadBalancerDeleted" | "CreateRoute" | "DeleteRoute"
        );
        self.called(call, is_write);
        if call == "Lookup" {
            self.looked_up(line, text("/as"), at, feed);
            return;
        }
        if !error.is_empty() {
            feed.fact_once_at(at, Source::Cloud, "", format!("{call} fails: {error}"));
            return;
        }
        let (range, node) = (text("/args/route/destinationCIDR"), text("/args/route/targetNode"));
        match call {
            "EnsureLoadBalancer" | "UpdateLoadBalancer" => {
                let hosts = line.pointer("/args/nodes").map(|nodes| texts(nodes).collect()).unwrap_or_default();
                self.balancer_is(service, Balancer { kind: "load balancer", hosts, ports: BTreeSet::new() }, at, feed);
            }
            "EnsureLoadBalancerDeleted" => self.balancer_gone(service, at, feed),
            "CreateRoute" => self.route_made(range, node, at, feed),
            "DeleteRoute" => self.route_gone(range, node, at, feed),
            _ => {}
        }
    }

    pub(crate) fn called(&mut self, name: &str, is_write: bool) {
        self.calls.all += 1;
        self.calls.changes += u64::from(is_write);
        let effect = if is_write { Effect::Write } else { Effect::Read };
        *self.calls.by_name.entry((effect, name.to_owned())).or_default() += 1;
    }

    /// Records a call that looked up this many instances.
    pub(crate) fn asked(&mut self, instances: u64) {
        self.calls.batches += 1;
        self.calls.asked += instances;
    }

    /// Records that the cloud had no answer for a node, or for anything if the name is empty.
    pub(crate) fn doubted(&mut self, node: &str) {
        *self.calls.unknown.entry(node.to_owned()).or_default() += 1;
    }

    /// Sets the current load balancers and routes.
    pub(crate) fn cloud_has(
        &mut self,
        balancers: BTreeMap<String, Balancer>,
        routes: &BTreeMap<String, String>,
        at: Duration,
        feed: &Feed,
    ) {
        let gone: Vec<String> = self.balancers.keys().filter(|key| !balancers.contains_key(*key)).cloned().collect();
        gone.iter().for_each(|service| self.balancer_gone(service, at, feed));
        balancers.into_iter().for_each(|(service, balancer)| self.balancer_is(&service, balancer, at, feed));
        let old = self.routes.clone();
        for (range, node) in old.iter().filter(|(range, _)| !routes.contains_key(*range)) {
            self.route_gone(range, node, at, feed);
        }
        for (range, node) in routes.iter().filter(|(range, node)| old.get(*range) != Some(node)) {
            self.route_made(range, node, at, feed);
        }
    }

    fn balancer_is(&mut self, service: &str, balancer: Balancer, at: Duration, feed: &Feed) {
        let (kind, count, ports) = (balancer.kind, balancer.hosts.len(), balancer.ports.clone());
        let hosts = crate::text::count(count, "host");
        let Some(old) = self.balancers.insert(service.to_owned(), balancer) else {
            feed.fact_at(at, Source::Cloud, service, format!("{kind} made, {hosts}"));
            return;
        };
        if old.hosts.len() != count {
            feed.fact_at(at, Source::Cloud, service, format!("{kind} has {hosts}, before {}", old.hosts.len()));
        }
        if old.ports != ports {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            feed.fact_at(at, Source::Cloud, service, format!("{kind} listens on {}", ports.join(", ")));
        }
    }

    fn balancer_gone(&mut self, service: &str, at: Duration, feed: &Feed) {
        if let Some(old) = self.balancers.remove(service) {
            feed.fact_at(at, Source::Cloud, service, format!("{} removed", old.kind));
        }
    }

    fn route_made(&mut self, range: &str, node: &str, at: Duration, feed: &Feed) {
        self.calls.routes.0 += 1;
        feed.fact_at(at, Source::Cloud, &format!("{node} ({range})"), "route to its pods made");
        self.routes.insert(range.to_owned(), node.to_owned());
    }

    fn route_gone(&mut self, range: &str, node: &str, at: Duration, feed: &Feed) {
        self.calls.routes.1 += 1;
        feed.fact_at(at, Source::Cloud, &format!("{node} ({range})"), "route to its pods removed");
        self.routes.remove(range);
    }

    fn looked_up(&mut self, line: &Value, stands_for: &str, at: Duration, feed: &Feed) {
        let nodes: Vec<String> = line.pointer("/args/nodes").map(|nodes| texts(nodes).collect()).unwrap_or_default();
        self.asked(u64::try_from(nodes.len()).unwrap_or_default());
        let answers = line.get("result").and_then(Value::as_array).into_iter().flatten();
        for (node, answer) in nodes.into_iter().zip(answers) {
            if let Some(error) = answer.get("error").and_then(Value::as_str) {
                feed.fact_once_at(at, Source::Cloud, &node, format!("{stands_for} fails: {error}"));
                self.doubted(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_become_balancers_routes_and_counts() {
        let feed = Feed::new();
        let mut state = State::default();
        let route = json!({"destinationCIDR": "10.0.0.0/24", "targetNode": "a"});
        for line in [
            json!({"phase": "start", "call": "Lookup", "as": "InstanceExists", "args": {"nodes": ["a", "b"]}}),
            json!({"phase": "end", "call": "Lookup", "as": "InstanceExists", "args": {"nodes": ["a", "b"]},
                   "result": [{"result": true}, {"error": "down"}]}),
            json!({"phase": "end", "call": "EnsureLoadBalancer", "args": {"service": "default/web", "nodes": ["a", "b"]}}),
            json!({"phase": "end", "call": "CreateRoute", "args": {"route": route}}),
            json!({"phase": "end", "call": "CreateRoute", "args": {"route": route}, "error": "exists"}),
        ] {
            state.call(&line, &feed);
        }
        let Calls { all, batches, asked, changes, unknown, routes, .. } = state.calls.clone();
        assert_eq!((all, batches, asked, changes, unknown["b"], routes), (4, 1, 2, 3, 1, (1, 0)));
        assert_eq!((state.hosts("default/web"), state.routes["10.0.0.0/24"].as_str()), (Some(2), "a"));
        let before = state.calls.clone();
        assert_eq!(before.since(&Calls::default()), ["writes: 2 CreateRoute, 1 EnsureLoadBalancer", "reads: 1 Lookup"]);
        state.call(&json!({"phase": "end", "call": "DeleteRoute", "args": {"route": route}}), &feed);
        assert_eq!(state.calls.since(&before), ["writes: 1 DeleteRoute", "reads: none"]);
        state.call(
            &json!({"phase": "end", "call": "EnsureLoadBalancerDeleted", "args": {"service": "default/web"}}),
            &feed,
        );
        assert!(state.balancers.is_empty() && state.routes.is_empty());
    }
}
