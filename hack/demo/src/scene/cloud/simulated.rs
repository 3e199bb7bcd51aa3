//! The common parts of the clouds of `ccm-cloudsim`: a ledger of calls, and a state that is polled.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::ledger::Entry;

use super::Cloud;
use crate::feed::{Feed, Source};
use crate::world::World;
use crate::world::calls::Balancer;

/// Poll interval of the cloud.
const LOOK: Duration = Duration::from_millis(50);

/// A simulated cloud behind HTTP.
pub(super) trait Simulated: Cloud {
    /// Calls after a position.
    fn calls(&self, mark: u64) -> Vec<Entry>;

    fn look(&self) -> Seen;

    /// The calls that read instances: `service:action`.
    fn about_instances(&self) -> &'static [&'static str];
}

/// The state of a cloud for the tour.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The load balancers by Service.
    pub(super) balancers: BTreeMap<String, Balancer>,
    /// The routes: range to node.
    pub(super) routes: BTreeMap<String, String>,
}

/// Writes the ledger to the file of the calls, and its totals to the world.
pub(super) async fn follow(cloud: Arc<impl Simulated>, world: Arc<World>, feed: Arc<Feed>) {
    let mut file = File::create(cloud.config().with_file_name("calls.jsonl")).ok();
    let mut mark = 0;
    loop {
        let entries = cloud.calls(mark);
        mark = entries.last().map_or(mark, |entry| entry.seq);
        for entry in &entries {
            if let (Some(file), Ok(line)) = (&mut file, serde_json::to_string(entry)) {
                // A full disk must not end the tour.
                let _full = writeln!(file, "{line}");
            }
        }
        let seen = cloud.look();
        world.change(|state| {
            for entry in entries.iter().filter(|entry| entry.service != "imds") {
                let at = feed.when(entry.at.into());
                let name = format!("{}:{}", entry.service, entry.action);
                state.called(&name, entry.mutating);
                if entry.code.is_none() && cloud.about_instances().contains(&&*name) {
                    // A call that is not a list concerns one instance.
                    state.asked(entry.items.max(1));
                }
                if let Some(code) = failure(entry) {
                    state.doubted("");
                    feed.fact_once_at(at, Source::Cloud, "", format!("{name} fails: {code}"));
                }
            }
            state.cloud_has(seen.balancers, &seen.routes, feed.elapsed(), &feed);
        });
        tokio::time::sleep(LOOK).await;
    }
}

/// The reason why a call got no answer. "Not found" is an answer, and so is a conflict (409, 412).
fn failure(entry: &Entry) -> Option<&str> {
    let is_answer = |code: &str| code.ends_with("NotFound") || matches!(entry.status, 404 | 409 | 412);
    entry.code.as_deref().filter(|code| !is_answer(code))
}
