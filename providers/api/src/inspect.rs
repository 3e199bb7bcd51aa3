//! Diagnosis by a provider: the reasons for the state of a node or Service, orphans, and obstacles to a migration.
//!
//! For `ccm explain`, `ccm orphans` and `ccm migrate-check`; no controller uses it. Only [`Inspect::delete_orphan`]
//! writes to the cloud. The answers must use the same tables and decisions as the provider itself.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ProviderError;
use crate::node::{Node, NodeRef};
use crate::plan::{Finding, Severity, Step};
use crate::service::Service;

/// Diagnosis by a provider. The default methods return nothing.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The chain from a node to the cloud, nearest first: the instance, its state, location and tags.
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        let _ = (cluster, node);
        Ok(Vec::new())
    }

    /// The chain from a Service to the cloud, nearest first: load balancer, listeners, hosts and health, firewall.
    async fn explain_service(&self, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
        let _ = (cluster, service);
        Ok(Vec::new())
    }

    /// Cloud objects that belong to this cluster and that no object in it claims, in a valid order of deletion (an
    /// object after those that refer to it). Must be complete or an error: a partial read cannot identify orphans.
    async fn orphans(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        let _ = (cluster, claims);
        Ok(Vec::new())
    }

    /// Deletes one orphan that [`Inspect::orphans`] returned in this process. Reads it again first, and refuses an
    /// object that no longer belongs to the cluster or is in use. An object that no longer exists is a success.
    ///
    /// The caller has shown [`Orphan::step`] and the user has confirmed it. Never called in a dry run.
    async fn delete_orphan(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        let _ = (cluster, orphan);
        Err(ProviderError::NotImplemented)
    }

    /// Cloud state that would break or change after a migration to this program: missing permissions (found with
    /// dry-run calls), ownership tags, names of instances, load balancers of the Go program. An error of one check is
    /// also a [`Check`].
    async fn migration_checks(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        let _ = (cluster, claims);
        Vec::new()
    }
}

/// All objects of the cluster that may claim a cloud object.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// All nodes.
    pub nodes: Vec<NodeRef>,
    /// All Services of every type.
    pub services: Vec<Arc<Service>>,
}

/// One link of the chain from an object to the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    /// The object: `instance i-0123`, `load balancer abc`, `target group abc`.
    pub about: String,
    /// Its state.
    pub state: FactState,
    /// The observation.
    pub text: String,
    /// The remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

/// The state of a link of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactState {
    /// In order, or informational.
    Good,
    /// Not ready yet; no action needed.
    Waiting,
    /// Action needed.
    Bad,
}

impl Fact {
    /// A link that is in order.
    pub fn good(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { about: about.into(), state: FactState::Good, text: text.into(), hint: None }
    }

    /// A link that needs time only.
    pub fn waiting(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { state: FactState::Waiting, ..Self::good(about, text) }
    }

    /// A broken link, with the remedy.
    pub fn bad(about: impl Into<String>, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: FactState::Bad, hint: Some(hint.into()), ..Self::good(about, text) }
    }
}

/// A cloud object of this cluster that no object in the cluster claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    /// The kind: `LoadBalancer`, `SecurityGroup`, `Route`.
    pub kind: String,
    /// Its identity in the cloud.
    pub id: String,
    /// Its name, if different from the identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The object for which it was created, according to its tags, name or description: `service default/web`.
    pub owner: String,
    /// The reason why it is an orphan, and the properties by which it belongs to the cluster.
    pub reason: String,
    /// Creation time, if the cloud reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The approximate cost, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// The reason not to delete it; `None` if `--delete` removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Its deletion as a plan step.
    pub step: Step,
    /// Data with which the provider finds it again.
    #[serde(skip)]
    pub handle: Value,
}

/// A finding of `ccm migrate-check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// [`Severity::Error`]: the migration breaks something; [`Severity::Warning`]: something changes;
    /// [`Severity::Info`]: no problem, or information.
    pub severity: Severity,
    /// The stable name of the check: `permissions`, `subnet-tags`.
    pub check: String,
    /// The object: `node worker-1`, `flag --cluster-name`; empty for the whole cluster.
    pub subject: String,
    /// The finding.
    pub message: String,
    /// The remedy; empty if there is none.
    pub fix: String,
}

impl Check {
    /// A check without problems.
    pub fn good(check: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Info,
            check: check.to_owned(),
            subject: subject.into(),
            message: message.into(),
            fix: String::new(),
        }
    }

    /// A check for which something changes.
    pub fn warning(
        check: &str,
        subject: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, fix: fix.into(), ..Self::good(check, subject, message) }
    }

    /// A check for which something breaks.
    pub fn error(check: &str, subject: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::warning(check, subject, message, fix) }
    }
}

/// Checks of files and Services without a cloud, for `ccm lint`. Implemented by the factory, so it needs no
/// credentials; uses the same tables as the parsers.
pub trait Lint: Send + Sync {
    /// Problems of the annotations of a Service: unknown keys with this provider's prefixes, with the key that was
    /// probably meant; wrong values; combinations without effect.
    fn service(&self, service: &Service) -> Vec<Finding>;

    /// Whether a port without a node port is a problem that [`Lint::service`] does not report itself.
    fn needs_node_ports(&self) -> bool {
        true
    }

    /// Problems of a file of `--cloud-config`. A file that cannot be parsed at all is also a finding, of severity
    /// [`Severity::Error`]. Never contains the value of a secret.
    fn config(&self, text: &str) -> Vec<Finding>;
}
