//! Answers to people: `ccm explain`, `ccm orphans`, `ccm migrate-check`.
//!
//! Nothing is decided here a second time: what an instance is comes from [`crate::node::identity`], what a Service wants and what
//! is left to do from [`Balancers`], which group of a node gets rules from `security_groups`, which subnets a balancer stands
//! in from `subnets`, which routes are ours from [`crate::routes`]. Reads only, save [`Inspect::delete_orphan`].

mod current;
mod explain_node;
mod explain_service;
mod health;
pub(crate) mod lint;
mod migration;
mod orphans;
pub(crate) mod replay;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_provider::{
    Check, Claims, ErrorClass, Fact, Inspect, Node, NodeName, Orphan, PlannedLoadBalancer, ProviderError, Service,
};

use crate::client::ec2::{self, SecurityGroup};
use crate::client::{Answer, Api, Query};
use crate::loadbalancer::Balancers;
use crate::loadbalancer::desired::{Common, Subnets, TargetNode};
use crate::loadbalancer::observe::{self, Observed};
use crate::loadbalancer::plan::Env;
use crate::loadbalancer::security_groups::nodes;
use crate::node::instances::{Ec2Instances, Settings};
use crate::routes;

/// The parts of the provider that know the answers.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) instances: Arc<Ec2Instances>,
    pub(crate) balancers: Arc<PlannedLoadBalancer<Balancers>>,
    pub(crate) settings: Settings,
    pub(crate) routes: routes::Settings,
    pub(crate) cluster: Cluster,
}

impl Inspector {
    fn balancers(&self) -> &Balancers {
        &self.balancers.0
    }

    fn env(&self) -> &Env {
        &self.balancers.0.env
    }

    /// `kubernetes.io/cluster/<ID>`; empty without a cluster.
    fn mark(&self) -> String {
        self.settings.ownership.cluster_key().unwrap_or_default()
    }

    /// Security groups by ID; those that are not there are absent.
    async fn groups(&self, ids: impl IntoIterator<Item = &String>) -> Answer<BTreeMap<String, SecurityGroup>> {
        let mut ids: Vec<&String> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let found = self.api.security_groups(&Query::by("group-id", ids)).await?;
        Ok(found.into_iter().map(|group| (group.id.clone(), group)).collect())
    }
}

/// The group of an instance that lets balancers in, as the balancers choose it.
///
/// # Errors
///
/// It cannot be told which one that is.
fn group_for_balancers(
    instance: &ec2::Instance,
    node: &NodeName,
    groups: &BTreeMap<String, SecurityGroup>,
    env: &Env,
) -> Result<Option<String>, ProviderError> {
    let seen = observe::Instance {
        id: instance.id.clone(),
        state: instance.state.clone().unwrap_or_default(),
        zone: instance.zone.clone(),
        vpc: instance.vpc.clone(),
        security_groups: instance.security_groups.clone(),
    };
    let common = Common {
        must_exist: true,
        internal: false,
        source_ranges: Vec::new(),
        subnets: Subnets::Discover,
        tags: BTreeMap::new(),
        targets: [(instance.id.clone(), TargetNode { name: node.to_string() })].into(),
    };
    let instances = [(instance.id.clone(), seen)].into();
    let observed = Observed { instances, groups: groups.clone(), ..Observed::default() };
    Ok(nodes::groups(&common, &observed, env)?.ids.into_iter().next())
}

/// What somebody can do about an error. Those that say nothing about the object name the way out themselves.
fn way_out(error: &ProviderError) -> String {
    match error.class() {
        ErrorClass::Unknown => "do what the message says; it is tried again by itself".to_owned(),
        class => class.remediation(),
    }
}

/// A link of the chain that could not be read.
fn unreadable(about: impl Into<String>, error: impl Into<ProviderError>) -> Fact {
    let error = error.into();
    Fact::bad(about, format!("could not be read: {error}"), way_out(&error))
}

/// A check that could not be made.
fn unchecked(check: &str, subject: impl Into<String>, error: impl Into<ProviderError>) -> Check {
    let error = error.into();
    Check::error(check, subject, format!("could not be checked: {error}"), way_out(&error))
}

#[async_trait]
impl Inspect for Inspector {
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        explain_node::explain(self, cluster, node).await
    }

    async fn explain_service(&self, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
        explain_service::explain(self, cluster, service).await
    }

    async fn orphans(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        orphans::find(self, cluster, claims).await
    }

    async fn delete_orphan(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        orphans::delete(self, cluster, orphan).await
    }

    async fn migration_checks(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        migration::checks(self, cluster, claims).await
    }
}
