//! The ports of the process and their content.

use std::sync::Arc;

use ccm_runtime::Metrics;
use serde_json::{Value, json};

use super::Manager;
use crate::exit::Failure;
use crate::options::{Options, componentconfig};
use crate::{clients, page, serve, webhook};

/// Ports that are bound but not served yet.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    secure: Option<serve::Listening>,
    webhooks: Option<webhook::Listening>,
}

impl Ports {
    /// Binds the ports that the flags enable.
    pub(crate) async fn bind(options: &Options, metrics: &Metrics) -> Result<Self, Failure> {
        let Options { serving, authentication, authorization, .. } = options;
        let agent = clients::user_agent("cloud-controller-manager");
        let secure = serve::bind(serving, authentication, authorization, &agent, metrics).await?;
        let webhooks = webhook::bind(&options.webhook_serving, options.webhooks.clone(), metrics)?;
        Ok(Self { secure, webhooks })
    }
}

impl Manager {
    /// Starts serving, also on a standby: the API server cannot know which replica leads.
    pub(crate) fn serve(&mut self, ports: Ports) {
        if let Some(listening) = ports.secure {
            let (debug, nodes, services) = (self.state(), self.nodes.clone(), self.services.clone());
            let state = serve::State {
                metrics: self.metrics.clone(),
                health: self.health.clone(),
                configz: json!({ componentconfig::GROUP: componentconfig::componentconfig(&self.options) }),
                debug: debug.clone(),
                page: Arc::new(move || page::live::page(&debug(), &nodes.list(), &services.list()).html()),
                profiling: self.options.profiling,
            };
            self.keep_running("the secure port", listening.serve(state));
        }
        if let Some(listening) = ports.webhooks {
            let serve = listening.serve(self.providers.subscribe(), self.options.dry_run);
            self.keep_running("the port of the webhooks", serve);
        }
    }

    /// The content of `/debug/state`: the values that the controllers use.
    fn state(&self) -> Arc<dyn Fn() -> Value + Send + Sync> {
        let (nodes, services) = (self.nodes.clone(), self.services.clone());
        let (leadership, metrics) = (self.leadership.clone(), self.metrics.clone());
        let (options, started) = (self.options.clone(), tokio::time::Instant::now());
        let provider = self.provider().name().to_owned();
        Arc::new(move || {
            let queues: Vec<Value> = metrics
                .queues()
                .into_iter()
                .map(|queue| {
                    json!({
                        "name": queue.name,
                        "ready": queue.ready,
                        "working": queue.working,
                        "waiting": queue.waiting,
                        "oldestReadySeconds": queue.oldest.as_secs_f64(),
                        "longestWorkSeconds": queue.longest.as_secs_f64(),
                    })
                })
                .collect();
            let seen = metrics.observations().into_iter();
            let seen: serde_json::Map<String, Value> =
                seen.map(|(of, age)| (of.to_owned(), json!({"ageSeconds": age.as_secs_f64()}))).collect();
            let enabled: Vec<&str> = options.switched_on().map(|controller| controller.name).collect();
            json!({
                "version": options.version,
                "provider": provider,
                "clusterName": options.cluster_name,
                "dryRun": options.dry_run,
                "uptimeSeconds": started.elapsed().as_secs(),
                "leadership": {
                    "state": leadership.state().as_str(),
                    "identity": options.election.as_ref().map(|election| &election.identity),
                    "lease": options.election.as_ref().map(|e| format!("{}/{}", e.namespace, e.name)),
                    "leftSeconds": leadership.left().map(|left| left.as_secs_f64()),
                },
                "enabledControllers": enabled,
                "stores": {
                    "nodes": {"objects": nodes.len(), "synced": nodes.is_synced()},
                    "services": {"objects": services.len(), "synced": services.is_synced()},
                },
                "queues": queues,
                "observations": seen,
                "calls": calls(&metrics),
                "drift": drift(&metrics),
                "recentPlans": metrics.plans().list(),
                "recentFailures": metrics.failures().list(),
            })
        })
    }
}

/// The calls of the core to the provider, by call and outcome.
fn calls(metrics: &Metrics) -> Vec<Value> {
    let samples = metrics.samples("ccm_provider_calls_total").into_iter();
    samples
        .filter_map(|(labels, count)| {
            let [call, outcome] = &*labels else { return None };
            Some(json!({"call": call, "outcome": outcome, "count": count}))
        })
        .collect()
}

/// The changes of the cloud by others that controllers found: those of the last check, and all.
fn drift(metrics: &Metrics) -> Vec<Value> {
    let total = metrics.samples("ccm_drift_steps_total");
    let now = metrics.samples("ccm_drift_steps").into_iter();
    now.map(|(controller, steps)| {
        let total = total.iter().find(|(of, _)| *of == controller).map(|(_, total)| total);
        json!({"controller": controller.concat(), "steps": steps, "total": total})
    })
    .collect()
}
