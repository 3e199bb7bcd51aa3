//! Load balancers for Services (upstream: `LoadBalancer`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use serde_json::Value;

use crate::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use crate::error::ProviderError;
use crate::node::{Node, NodeRef, Pairs};
use crate::plan::{Change, Finding, Plan, Risk, Severity, Step, Verb};
use crate::scope::Scope;
use crate::service::{LoadBalancerStatus, Service};

/// Load balancers of the cloud, for the service controller. `cluster` is the value of `--cluster-name`.
///
/// A provider that plans its writes uses the engine of the kit (`ccm_kit::balancer`). If its Services share no cloud
/// objects, it may implement [`SingleLoadBalancer`], wrapped in [`OneByOneBalancers`].
///
/// The controller never runs two calls of [`LoadBalancer::reconcile`] for the same [`GroupKey`] concurrently.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// The name of the load balancer. Pure.
    fn name(&self, cluster: &str, service: &Service) -> String {
        let _ = cluster;
        service.default_load_balancer_name()
    }

    /// The cloud objects that this Service shares with others: Services with a common group are passed together or
    /// handled sequentially. Not empty. Pure; by default every Service is its own group.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        [GroupKey(service.key().to_string())].into()
    }

    /// The properties of a node that matter for the load balancer of this Service, as a text to compare; `None` if the
    /// node is not one of its hosts. When a text changes, the hosts are updated. Pure, and called often.
    ///
    /// It may depend on labels, annotations, addresses and the provider ID. The default is the provider ID. A cloud
    /// that registers addresses returns the address; a cloud whose Services select nodes by label returns `None` for
    /// other nodes, and one that registers its own machines `None` for nodes of other clouds, which must not keep the
    /// controller from noticing that a load balancer loses all hosts. Never called for nodes that are excluded, deleted
    /// or about to be removed.
    fn backend<'n>(&self, _service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        Some(node.provider_id_or_empty().into())
    }

    /// The objects besides nodes and Services that the load balancers depend on, according to the configuration. Called
    /// once, before the first call of [`LoadBalancer::reconcile`].
    fn related(&self) -> Related {
        Related::default()
    }

    /// Whether only nodes with a ready endpoint of this Service are hosts of its load balancer. The hosts are updated
    /// when endpoints move to other nodes. Pure. Requires [`Related::endpoint_slices`]; ignored without it.
    fn only_nodes_with_endpoints(&self, _service: &Service) -> bool {
        false
    }

    /// The Service without what selects its nodes by their labels; `None` if nothing does. After a restart, a load
    /// balancer may lose all hosts if they are nodes of the cluster that the Service leaves out. Pure.
    fn unselective(&self, _service: &Service) -> Option<Service> {
        None
    }

    /// The status, as long as any part of the Service's load balancer exists; otherwise `None`. "Not found" is never an
    /// error.
    ///
    /// Called before a deletion and after a failed host update. After an error the finalizer stays.
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError>;

    /// The provider's own finalizers, each with whether the Service currently needs it. The core adds needed ones
    /// before the first call for the Service, unless the provider [adds](LoadBalancer::adds_finalizers) them; it removes
    /// the others after a successful call or [`ProviderError::ImplementedElsewhere`], and all after the load balancer is
    /// deleted. Pure. For a Service that another controller implements, which may use finalizers with the same names,
    /// only those of what the provider deletes.
    fn finalizers(&self, _service: &Service) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    /// Whether the provider adds its finalizers itself, with [`Scope::begins`], once it knows that the load balancer is
    /// not another controller's.
    fn adds_finalizers(&self) -> bool {
        false
    }

    /// Does the work of one group: one answer per item, in order. `Ok(None)` for an ensure violates the contract and
    /// counts as an error.
    ///
    /// Items are ensured when a Service is created or changes, once per Service after each start, and after a failed
    /// host update; hosts are updated when the backends change; items are deleted when a Service is deleted or no
    /// longer requests a load balancer. The list of nodes may be empty. [`ProviderError::ImplementedElsewhere`] is a
    /// success without status; a delay in an error is applied exactly.
    ///
    /// A write begins only while [`Scope::may_write`] succeeds; a wait for the cloud is a [`Scope::waiting`].
    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], scope: &Scope) -> Vec<ServiceAnswer>;

    /// The cloud state that a plan for this item depends on, as a value that can be stored and used by another process
    /// (`ccm snapshot`). Must not contain secrets. Reads the cloud, writes nothing. `null`: another controller provides the
    /// load balancer, and the plan is empty. The default contains only whether a load balancer exists.
    async fn observe(&self, cluster: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        Ok(Value::Bool(self.get(cluster, &item.service).await?.is_some()))
    }

    /// The plan of [`LoadBalancer::reconcile`] for such a value. Pure: the same input produces the same plan in any
    /// process.
    ///
    /// # Errors
    ///
    /// The Service is invalid, or [`LoadBalancer::observe`] cannot have returned the value.
    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        let mut plan = Plan::new(format!("service {}", item.service.key()));
        let verb = match (item.action, observed.as_bool()) {
            (_, None) => {
                return Err(ProviderError::unknown("the observed state does not show whether a load balancer exists"));
            }
            (ServiceAction::Delete, Some(true)) => Verb::Delete,
            (ServiceAction::Delete, Some(false)) => return Ok(plan),
            (_, Some(false)) => Verb::Create,
            (_, Some(true)) => {
                let text = "the provider cannot compare the load balancer with the Service; it would be ensured";
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

/// Convenience methods that call a [`LoadBalancer`] for one item.
#[async_trait]
pub trait LoadBalancerExt: LoadBalancer {
    /// The plan for one item, for `--dry-run` and `ccm plan`. Reads the cloud, writes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`LoadBalancer::observe`] and [`LoadBalancer::plan_observed`].
    async fn plan(&self, cluster: &str, item: &ServiceWork) -> Result<Plan, ProviderError> {
        let observed = self.observe(cluster, item).await?;
        self.plan_observed(cluster, item, &observed)
    }

    /// [`LoadBalancer::reconcile`] of one item.
    async fn reconcile_one(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
        action: ServiceAction,
    ) -> ServiceAnswer {
        let work = [ServiceWork::new(service, nodes, action)];
        let answers = self.reconcile(cluster, &work, &Scope::default()).await;
        answers.into_iter().next().unwrap_or_else(|| Err(ProviderError::bug("reconcile() gave no answer")).into())
    }

    /// [`ServiceAction::Ensure`] of one Service.
    ///
    /// # Errors
    ///
    /// Those of [`LoadBalancer::reconcile`].
    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.reconcile_one(cluster, service, nodes, ServiceAction::Ensure).await.result
    }

    /// [`ServiceAction::UpdateHosts`] of one Service.
    ///
    /// # Errors
    ///
    /// Those of [`LoadBalancer::reconcile`].
    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        self.reconcile_one(cluster, service, nodes, ServiceAction::UpdateHosts).await.result.map(drop)
    }

    /// [`ServiceAction::Delete`] of one Service.
    ///
    /// # Errors
    ///
    /// Those of [`LoadBalancer::reconcile`].
    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError> {
        self.reconcile_one(cluster, service, &[], ServiceAction::Delete).await.result.map(drop)
    }
}

impl<B: LoadBalancer + ?Sized> LoadBalancerExt for B {}

/// Load balancers of a cloud whose Services share no objects, as in upstream's interface; [`OneByOneBalancers`] adapts
/// it to [`LoadBalancer`]. Plans show only whether a load balancer exists.
#[async_trait]
pub trait SingleLoadBalancer: Send + Sync {
    /// [`LoadBalancer::name`]
    fn name(&self, cluster: &str, service: &Service) -> String {
        let _ = cluster;
        service.default_load_balancer_name()
    }

    /// [`LoadBalancer::get`]
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError>;

    /// Creates or updates the load balancer. `nodes` may be empty. `Ok(None)` violates the contract.
    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError>;

    /// Updates only the hosts of the load balancer. `nodes` may be empty.
    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError>;

    /// Deletes the load balancer and all its parts, including those of an interrupted creation; succeeds if nothing
    /// exists.
    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError>;
}

/// [`LoadBalancer::reconcile`] item by item, concurrently, each with its own deadline.
pub async fn reconcile_one_by_one<B: SingleLoadBalancer>(
    balancers: &B,
    cluster: &str,
    work: &[ServiceWork],
) -> Vec<ServiceAnswer> {
    join_all(work.iter().map(|ServiceWork { service, nodes, action, .. }| async move {
        let result = match action {
            ServiceAction::Ensure => {
                let ensure = balancers.ensure(cluster, service, nodes);
                deadline::within("EnsureLoadBalancer", WRITE_DEADLINE, ensure).await
            }
            ServiceAction::UpdateHosts => {
                let update = balancers.update(cluster, service, nodes);
                deadline::within("UpdateLoadBalancer", READ_DEADLINE, update).await.map(|()| None)
            }
            ServiceAction::Delete => {
                let delete = balancers.ensure_deleted(cluster, service);
                deadline::within("EnsureLoadBalancerDeleted", WRITE_DEADLINE, delete).await.map(|()| None)
            }
        };
        result.into()
    }))
    .await
}

/// The adapter from [`SingleLoadBalancer`] to [`LoadBalancer`].
///
/// ```
/// use std::sync::Mutex;
/// use async_trait::async_trait;
/// use ccm_provider::{LoadBalancerExt as _, LoadBalancerStatus, NodeRef, OneByOneBalancers, ProviderError, Service};
/// use ccm_provider::{ServiceAction, ServiceWork, SingleLoadBalancer};
///
/// #[derive(Default)]
/// struct Table(Mutex<Vec<String>>);
///
/// #[async_trait]
/// impl SingleLoadBalancer for Table {
///     async fn get(&self, _: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
///         let there = self.0.lock().unwrap().contains(&service.key().to_string());
///         Ok(there.then(LoadBalancerStatus::default))
///     }
///     async fn ensure(&self, _: &str, s: &Service, _: &[NodeRef]) -> Result<Option<LoadBalancerStatus>, ProviderError> {
///         self.0.lock().unwrap().push(s.key().to_string());
///         Ok(Some(LoadBalancerStatus::default()))
///     }
///     async fn update(&self, _: &str, _: &Service, _: &[NodeRef]) -> Result<(), ProviderError> {
///         Ok(())
///     }
///     async fn ensure_deleted(&self, _: &str, service: &Service) -> Result<(), ProviderError> {
///         self.0.lock().unwrap().retain(|key| *key != service.key().to_string());
///         Ok(())
///     }
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let balancers = OneByOneBalancers(Table::default());
/// let item = ServiceWork::new(&Service::default(), &[], ServiceAction::Ensure);
/// assert_eq!(balancers.plan("c", &item).await?.steps.len(), 1);
/// assert!(balancers.ensure("c", &item.service, &[]).await?.is_some());
/// assert_eq!(balancers.plan("c", &item).await?.steps.len(), 0);
/// balancers.ensure_deleted("c", &item.service).await?;
/// assert!(balancers.0.0.lock().unwrap().is_empty());
/// # Ok::<(), ProviderError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct OneByOneBalancers<B>(pub B);

#[async_trait]
impl<B: SingleLoadBalancer> LoadBalancer for OneByOneBalancers<B> {
    fn name(&self, cluster: &str, service: &Service) -> String {
        self.0.name(cluster, service)
    }

    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.0.get(cluster, service).await
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        reconcile_one_by_one(&self.0, cluster, work).await
    }
}

/// The batches that the controller passes to [`LoadBalancer::reconcile`]: the indexes of all items that are connected
/// by common groups, directly or through other items.
pub fn batches(balancers: &dyn LoadBalancer, work: &[ServiceWork]) -> Vec<Vec<usize>> {
    let mut batches: Vec<(BTreeSet<GroupKey>, Vec<usize>)> = Vec::new();
    for (place, item) in work.iter().enumerate() {
        let own = balancers.groups(&item.service);
        let joined = batches.extract_if(.., |(groups, _)| !groups.is_disjoint(&own));
        let (mut groups, mut places) = joined.reduce(join).unwrap_or_default();
        groups.extend(own);
        places.push(place);
        batches.push((groups, places));
    }
    batches.into_iter().map(|(_, places)| places).collect()
}

fn join(
    (mut groups, mut places): (BTreeSet<GroupKey>, Vec<usize>),
    (more_groups, more_places): (BTreeSet<GroupKey>, Vec<usize>),
) -> (BTreeSet<GroupKey>, Vec<usize>) {
    groups.extend(more_groups);
    places.extend(more_places);
    (groups, places)
}

/// Names a cloud object that one or more Services share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(pub String);

/// The objects besides nodes and Services that a provider's load balancers depend on. The service controller watches
/// them, which requires the permission to list and watch them, and starts after they are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Related {
    /// EndpointSlices, for [`LoadBalancer::only_nodes_with_endpoints`].
    pub endpoint_slices: bool,
    /// Namespaces, for [`ServiceWork::namespace`].
    pub namespaces: bool,
}

/// One item of [`LoadBalancer::reconcile`].
#[derive(Debug, Clone)]
pub struct ServiceWork {
    /// The Service as the controller read it.
    pub service: Arc<Service>,
    /// The hosts of the load balancer; empty for deletions.
    pub nodes: Arc<[NodeRef]>,
    /// The action.
    pub action: ServiceAction,
    /// The labels of the Service's namespace; `None` without [`Related::namespaces`], or if the namespace does not
    /// exist. A change of the labels alone does not cause a call.
    pub namespace: Option<Pairs>,
}

impl ServiceWork {
    /// An item from copies of its arguments.
    pub fn new(service: &Service, nodes: &[NodeRef], action: ServiceAction) -> Self {
        Self { service: service.clone().into(), nodes: nodes.into(), action, namespace: None }
    }
}

/// The result of one item.
#[derive(Debug, Clone)]
pub struct ServiceAnswer {
    /// The status after an ensure, or the error. [`ProviderError::in_progress`] is not a failure and is retried later.
    pub result: Result<Option<LoadBalancerStatus>, ProviderError>,
    /// The status if it is known although the work failed: a failed part does not withhold the address.
    pub status: Option<LoadBalancerStatus>,
    /// The delay of another sync although the work succeeded: something that is not visible yet is still missing.
    pub again: Option<Duration>,
    /// The annotations and conditions that the provider writes on the Service, whatever the result.
    pub notes: Notes,
}

impl From<Result<Option<LoadBalancerStatus>, ProviderError>> for ServiceAnswer {
    fn from(result: Result<Option<LoadBalancerStatus>, ProviderError>) -> Self {
        Self { result, status: None, again: None, notes: Notes::default() }
    }
}

/// Annotations and conditions that a provider writes on a Service besides its status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Annotations to set; `None` for those to remove. Others stay unchanged.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Conditions of the provider. Others stay unchanged.
    pub conditions: Vec<Note>,
}

/// A condition without the fields that the controller fills in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// `type`
    pub kind: &'static str,
    /// `status`: `True` or `False`
    pub status: bool,
    /// `reason`
    pub reason: &'static str,
    /// `message`
    pub message: String,
}

/// The action for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceAction {
    /// Create or update the load balancer.
    Ensure,
    /// Update only the hosts of the load balancer.
    UpdateHosts,
    /// Delete the load balancer and all its parts, including those of an interrupted creation; succeeds if nothing
    /// exists.
    Delete,
}
