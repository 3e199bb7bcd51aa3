//! The cloud's side, from the call log of the fake provider.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{State, World};
use crate::feed::{Feed, Source};

/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(50);

/// Calls that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// All.
    pub(crate) all: u64,
    /// Those that asked about instances, each for many nodes.
    pub(crate) batches: u64,
    /// Nodes in them: as many calls as a manager makes that asks for one node at a time.
    pub(crate) asked: u64,
    /// Those that changed something in the cloud.
    pub(crate) changes: u64,
    /// Answers "could not tell", by node.
    pub(crate) unknown: BTreeMap<String, u64>,
    /// Routes made and removed.
    pub(crate) routes: (u64, u64),
}

/// Follows the log until dropped.
pub(super) async fn follow(path: PathBuf, world: Arc<World>, feed: Arc<Feed>) {
    let mut offset = 0;
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let grown = std::fs::File::open(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(offset))?;
            file.read_to_end(&mut rest)
        });
        // The file is not there before the first provider is.
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
                    format!("cloud.yaml is refused, the last good one holds: {error}"),
                ),
            }
        }
        if text("/phase") != "end" {
            return;
        }
        self.calls.all += 1;
        let (call, error, service) = (text("/call"), text("/error"), text("/args/service"));
        if call == "Lookup" {
            self.looked_up(line, text("/as"), at, feed);
            return;
        }
        if matches!(
            call,
            "EnsureLoadBalancer" | "UpdateLoadBalancer" | "EnsureLoadBalancerDeleted" | "CreateRoute" | "DeleteRoute"
        ) {
            self.calls.changes += 1;
        }
        if !error.is_empty() {
            feed.fact_once_at(at, Source::Cloud, "", format!("{call} fails: {error}"));
            return;
        }
        let route = (text("/args/route/destinationCIDR").to_owned(), text("/args/route/targetNode").to_owned());
        match call {
            "EnsureLoadBalancer" | "UpdateLoadBalancer" => {
                let hosts: std::collections::BTreeSet<String> =
                    line.pointer("/args/nodes").map(|nodes| texts(nodes).collect()).unwrap_or_default();
                let count = hosts.len();
                match self.balancers.insert(service.to_owned(), hosts) {
                    None => feed.fact_at(at, Source::Cloud, service, format!("load balancer made, {count} hosts")),
                    Some(old) if old.len() != count => {
                        feed.fact_at(
                            at,
                            Source::Cloud,
                            service,
                            format!("load balancer has {count} hosts, before {}", old.len()),
                        );
                    }
                    Some(_) => {}
                }
            }
            "EnsureLoadBalancerDeleted" => {
                self.balancers.remove(service);
                feed.fact_at(at, Source::Cloud, service, "load balancer removed");
            }
            "CreateRoute" => {
                self.calls.routes.0 += 1;
                feed.fact_at(at, Source::Cloud, &format!("{} ({})", route.1, route.0), "route to its pods made");
                self.routes.insert(route.0, route.1);
            }
            "DeleteRoute" => {
                self.calls.routes.1 += 1;
                feed.fact_at(at, Source::Cloud, &format!("{} ({})", route.1, route.0), "route to its pods removed");
                self.routes.remove(&route.0);
            }
            _ => {}
        }
    }

    fn looked_up(&mut self, line: &Value, stands_for: &str, at: Duration, feed: &Feed) {
        let nodes: Vec<String> = line.pointer("/args/nodes").map(|nodes| texts(nodes).collect()).unwrap_or_default();
        self.calls.batches += 1;
        self.calls.asked += u64::try_from(nodes.len()).unwrap_or_default();
        let answers = line.get("result").and_then(Value::as_array).into_iter().flatten();
        for (node, answer) in nodes.into_iter().zip(answers) {
            if let Some(error) = answer.get("error").and_then(Value::as_str) {
                feed.fact_once_at(at, Source::Cloud, &node, format!("{stands_for} fails: {error}"));
                *self.calls.unknown.entry(node).or_default() += 1;
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
        let Calls { all, batches, asked, changes, unknown, routes } = state.calls.clone();
        assert_eq!((all, batches, asked, changes, unknown["b"], routes), (4, 1, 2, 3, 1, (1, 0)));
        assert_eq!((state.hosts("default/web"), state.routes["10.0.0.0/24"].as_str()), (Some(2), "a"));
        state.call(&json!({"phase": "end", "call": "DeleteRoute", "args": {"route": route}}), &feed);
        state.call(
            &json!({"phase": "end", "call": "EnsureLoadBalancerDeleted", "args": {"service": "default/web"}}),
            &feed,
        );
        assert!(state.balancers.is_empty() && state.routes.is_empty());
    }
}
