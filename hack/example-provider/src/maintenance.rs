//! A custom controller: labels the nodes whose machine has planned maintenance.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ccm::Controller;
use ccm::controllers::{Check, Configured, Preview, Scope, Shared, Start, Unplanned};
use ccm_provider::flag::Kind;
use ccm_provider::{Change, Flag, Node, Plan, Risk, Step, Verb};
use ccm_runtime::client::Call;
use ccm_runtime::runner::{Pace, periodically};
use ccm_runtime::{Gate, GateError, Permission, SyncError};
use serde_json::json;

use crate::machines;
use crate::rack::Rack;

const NAME: &str = "maintenance-controller";
const LABEL: &str = "example.com/maintenance";
const PERIOD: &str = "example-maintenance-period";
const FLAGS: [Flag; 1] =
    [Flag::new("Example flags", PERIOD, Kind::Duration, "30s", "How often to look for machines under maintenance.")];
const PERMISSIONS: [Permission; 1] = [Permission::new("", "nodes", &["patch"], "the label of nodes under maintenance")];

/// The entry in the table of controllers: `--controllers=*,-maintenance` disables it.
pub(crate) fn controller(rack: Arc<OnceLock<Arc<Rack>>>) -> Controller {
    Controller {
        name: NAME,
        aliases: &["maintenance"],
        label: "maintenance",
        client_name: NAME,
        permissions: &PERMISSIONS,
        on_by_default: true,
        flags: &FLAGS,
        parse: Arc::new(move |check: &mut Check<'_>| configured(&rack, check.period(PERIOD))),
        applies: |_| Ok(()),
    }
}

fn configured(rack: &Arc<OnceLock<Arc<Rack>>>, period: Duration) -> Configured {
    let (rack, planned) = (Arc::clone(rack), Arc::clone(rack));
    Configured {
        start: Arc::new(move |start: &Start<'_>| {
            let (shared, rack) = (start.shared.clone(), Arc::clone(&rack));
            let (leadership, metrics) = (shared.leadership.clone(), shared.metrics.clone());
            let pass = move || {
                let (shared, rack) = (shared.clone(), Arc::clone(&rack));
                async move {
                    // The controllers start after the factory has built the provider.
                    let Some(rack) = rack.get() else { return };
                    for node in shared.nodes.list() {
                        if let Err(error) = sync(rack, &shared.gate, &node).await {
                            tracing::warn!(node = %node.name, %error, "cannot read or write the maintenance label");
                        }
                    }
                }
            };
            Ok(Box::pin(periodically(NAME, period, Pace::FromEnd, leadership, metrics, pass)))
        }),
        preview: Some(Arc::new(move |preview: &Preview<'_>| {
            let rack = planned.get().cloned();
            let (shared, scope) = (preview.shared.clone(), preview.scope.clone());
            Ok(scope.has_nodes().then(|| Box::pin(plan_once(rack, shared, scope)) as _))
        })),
    }
}

/// The writes of one pass, for `ccm plan`: the same sync, through a gate that only collects plans.
async fn plan_once(rack: Option<Arc<Rack>>, shared: Shared, scope: Scope) -> Vec<Unplanned> {
    let mut failed = Vec::new();
    let Some(rack) = rack else { return failed };
    for node in shared.nodes.list().into_iter().filter(|node| scope.has_node(&node.name)) {
        if let Err(error) = sync(&rack, &shared.gate, &node).await {
            failed.push(Unplanned { subject: format!("node {}", node.name), error: SyncError::Retry(error) });
        }
    }
    failed
}

/// Observes, decides, writes. An error of the rack changes nothing.
async fn sync(rack: &Rack, gate: &Gate, node: &Node) -> Result<(), String> {
    let machine = machines::find(rack, node).map_err(|error| error.to_string())?;
    let Some(label) = decide(node, machine.is_some_and(|machine| machine.maintenance)) else { return Ok(()) };
    let change = Change { field: LABEL.into(), before: None, after: label.map(str::to_owned) };
    let step = Step {
        verb: Verb::Update,
        kind: "Node".into(),
        id: node.name.to_string(),
        changes: vec![change],
        reason: "the file of the machine says so".into(),
        risk: Risk::None,
    };
    gate.show(&Plan::new(format!("node {} maintenance", node.name)).with(step));
    let patch = json!({"metadata": {"labels": {LABEL: label}}});
    match gate.write(&Call::strategic(format!("/api/v1/nodes/{}", node.name), &patch)).await {
        // No error: it is a dry run, or the node was deleted in the meantime.
        Err(GateError::DryRun) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        written => written.map(drop).map_err(|error| error.to_string()),
    }
}

/// The new value of the label: `None` for no change, `Some(None)` to remove it. Pure.
fn decide(node: &Node, maintenance: bool) -> Option<Option<&'static str>> {
    match (maintenance, node.labels.get(LABEL)) {
        (true, Some("true")) | (false, None) => None,
        (true, _) => Some(Some("true")),
        (false, Some(_)) => Some(None),
    }
}
