//! Load balancers for Services (upstream: `LoadBalancer`).

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use serde_json::Value;

use crate::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use crate::error::ProviderError;
use crate::node::NodeRef;
use crate::plan::{Change, Finding, Plan, Risk, Severity, Step, Verb};
use crate::service::{LoadBalancerStatus, Service};

/// Load balancers of the cloud. `cluster` is the value of `--cluster-name`; Services and nodes are read-only.
///
/// The caller is the service controller. It never has two calls for one [`GroupKey`] under way.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// The status, as long as any part of a balancer made for this Service remains; `None` when nothing does. Not found
    /// is never an error.
    ///
    /// Called before a deletion and after a failed host update. An error keeps the finalizer.
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError>;

    /// The name of the balancer. Pure.
    fn name(&self, cluster: &str, service: &Service) -> String {
        let _ = cluster;
        service.default_load_balancer_name()
    }

    /// Makes or changes the balancer so that it matches. `nodes` may be empty. `Ok(None)` breaks the contract and counts
    /// as an error.
    ///
    /// Called when a Service appears or changes, once per Service after each start, and after a failed host update.
    /// [`ProviderError::ImplementedElsewhere`] is a success without status; a delay in the error is honoured exactly.
    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError>;

    /// Changes only the hosts behind the balancer. `nodes` may be empty. Called when the set of nodes changes.
    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError>;

    /// Removes the balancer and all its parts, also those of an interrupted creation; succeeds when nothing is there.
    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError>;

    /// Services that share a cloud object have one group; the core hands the waiting Services of a group over together
    /// and never works on a group twice at once. By default every Service is a group of its own.
    fn group(&self, service: &Service) -> GroupKey {
        GroupKey(service.key().to_string())
    }

    /// Does the work of one group: one answer per item, in order. A provider whose Services share objects plans and
    /// writes once here; the default goes through the methods above, item by item, each with its own deadline.
    async fn reconcile(
        &self,
        cluster: &str,
        work: &[ServiceWork],
    ) -> Vec<Result<Option<LoadBalancerStatus>, ProviderError>> {
        join_all(work.iter().map(|item| self.reconcile_one(cluster, item))).await
    }

    /// One item of [`LoadBalancer::reconcile`].
    async fn reconcile_one(
        &self,
        cluster: &str,
        item: &ServiceWork,
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let service = &item.service;
        let (call, limit) = match item.action {
            ServiceAction::Ensure => ("EnsureLoadBalancer", WRITE_DEADLINE),
            ServiceAction::UpdateHosts => ("UpdateLoadBalancer", READ_DEADLINE),
            ServiceAction::Delete => ("EnsureLoadBalancerDeleted", WRITE_DEADLINE),
        };
        let answer = async {
            match item.action {
                ServiceAction::Ensure => self.ensure(cluster, service, &item.nodes).await,
                ServiceAction::UpdateHosts => self.update(cluster, service, &item.nodes).await.map(|()| None),
                ServiceAction::Delete => self.ensure_deleted(cluster, service).await.map(|()| None),
            }
        };
        deadline::within(call, limit, answer).await
    }

    /// What [`LoadBalancer::reconcile`] would do, without doing it: for `--dry-run` and `ccm plan`. Reads the cloud, writes
    /// nothing. The same as [`LoadBalancer::observe`] followed by [`LoadBalancer::plan_observed`].
    async fn plan(&self, cluster: &str, item: &ServiceWork) -> Result<Plan, ProviderError> {
        let observed = self.observe(cluster, item).await?;
        self.plan_observed(cluster, item, &observed)
    }

    /// Everything that a plan for this item must know of the cloud, as a value that can be kept and planned from elsewhere
    /// (`ccm snapshot`). Holds no secret. Reads the cloud, writes nothing. The default knows only whether a balancer exists.
    async fn observe(&self, cluster: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        let status = self.get(cluster, &item.service).await?;
        serde_json::to_value(status).map_err(|error| ProviderError::bug(format!("the status is no JSON: {error}")))
    }

    /// The plan from such a value. Pure: the same input gives the same plan, in any process.
    ///
    /// # Errors
    ///
    /// What the Service asks wrongly, and a value that [`LoadBalancer::observe`] cannot have given.
    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        let exists = !observed.is_null();
        let mut plan = Plan::new(format!("service {}", item.service.key()));
        let verb = match (item.action, exists) {
            (ServiceAction::Delete, true) => Verb::Delete,
            (ServiceAction::Delete, false) => return Ok(plan),
            (_, false) => Verb::Create,
            (_, true) => {
                let text = "the provider cannot tell whether the load balancer is as the Service wants it; it would be ensured";
                plan.findings.push(Finding::new(Severity::Info, "load balancer", text));
                return Ok(plan);
            }
        };
        let hosts = item.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" ");
        plan.steps.push(Step {
            verb,
            kind: "LoadBalancer".into(),
            id: self.name(cluster, &item.service),
            changes: match verb {
                Verb::Delete => Vec::new(),
                _ => vec![Change { field: "hosts".into(), before: None, after: Some(hosts) }],
            },
            reason: match item.action {
                ServiceAction::Ensure => "the Service wants a load balancer".into(),
                ServiceAction::UpdateHosts => "the set of nodes changed".into(),
                ServiceAction::Delete => "the Service wants no load balancer any more".into(),
            },
            risk: if verb == Verb::Delete { Risk::Disruptive } else { Risk::None },
        });
        Ok(plan)
    }
}

/// Names a cloud object that one or more Services share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(pub String);

/// One item of [`LoadBalancer::reconcile`].
#[derive(Debug, Clone)]
pub struct ServiceWork {
    /// The Service as the controller saw it.
    pub service: Arc<Service>,
    /// The nodes that shall get traffic; empty for deletions.
    pub nodes: Arc<[NodeRef]>,
    /// What to do.
    pub action: ServiceAction,
}

/// What to do for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceAction {
    /// [`LoadBalancer::ensure`]
    Ensure,
    /// [`LoadBalancer::update`]
    UpdateHosts,
    /// [`LoadBalancer::ensure_deleted`]
    Delete,
}
