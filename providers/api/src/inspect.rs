//! Diagnosis by a provider: why a node or Service is in its state, what leaked, what breaks in a migration.
//!
//! For `ccm explain`, `ccm orphans` and `ccm migrate-check`; no controller uses it. Only [`Inspect::delete_orphan`]
//! writes to the cloud. The answers must come from the same tables and decisions that the provider itself uses.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ProviderError;
use crate::node::{Node, NodeRef};
use crate::plan::{Finding, Severity, Step};
use crate::service::Service;

/// Diagnosis by a provider. By default, each method returns nothing.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The chain from a node to the cloud, nearest first: instance, its state, its location, its tags.
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        let _ = (cluster, node);
        Ok(Vec::new())
    }

    /// The chain from a Service to the cloud, nearest first: balancer, listeners, hosts and their health, firewall rules.
    async fn explain_service(&self, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
        let _ = (cluster, service);
        Ok(Vec::new())
    }

    /// Cloud objects that belong to this cluster and that no object in it claims, in an order in which they can be
    /// deleted (an object comes after those that refer to it). Must be complete or an error: a partial read can't show
    /// orphans.
    async fn orphans(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        let _ = (cluster, claims);
        Ok(Vec::new())
    }

    /// Deletes one orphan that [`Inspect::orphans`] returned in this process. Reads it again first: refuses an object
    /// that no longer belongs to the cluster or is in use. An object that no longer exists is a success.
    ///
    /// The caller has shown [`Orphan::step`], and the user has confirmed. Never called in a dry run.
    async fn delete_orphan(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        let _ = (cluster, orphan);
        Err(ProviderError::NotImplemented)
    }

    /// What in the cloud would break or change when this program takes over: missing permissions (found with dry-run
    /// calls), ownership tags, names of instances, balancers of the Go program. An error of one check is a [`Check`]
    /// too.
    async fn migration_checks(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        let _ = (cluster, claims);
        Vec::new()
    }
}

/// Everything in the cluster that may claim a cloud object.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// All nodes.
    pub nodes: Vec<NodeRef>,
    /// All Services, of every type.
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
    /// What was observed.
    pub text: String,
    /// The remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

/// The state of a link of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactState {
    /// In order, or for information only.
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

    /// A link that only needs time.
    pub fn waiting(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { state: FactState::Waiting, ..Self::good(about, text) }
    }

    /// A link that is broken, and the remedy.
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
    /// Its name, where that differs from the identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The object for which it was made, by its tags, name or description: `service default/web`.
    pub owner: String,
    /// Why it is an orphan, and by which properties it belongs to the cluster.
    pub reason: String,
    /// When it was created, if the cloud reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// A rough text about its cost, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// Why it is not deleted although it is an orphan; `None` when `--delete` removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Its deletion as a plan step.
    pub step: Step,
    /// Data that the provider needs to find it again.
    #[serde(skip)]
    pub handle: Value,
}

/// A finding of `ccm migrate-check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// [`Severity::Error`]: the migration breaks something; [`Severity::Warning`]: something changes; [`Severity::Info`]:
    /// checked and good, or good to know.
    pub severity: Severity,
    /// The name of the check, which is stable: `permissions`, `subnet-tags`.
    pub check: String,
    /// The object: `node worker-1`, `flag --cluster-name`; empty for the cluster as a whole.
    pub subject: String,
    /// What was found.
    pub message: String,
    /// The remedy; empty if there is none.
    pub fix: String,
}

impl Check {
    /// A check that found nothing wrong.
    pub fn good(check: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Info,
            check: check.to_owned(),
            subject: subject.into(),
            message: message.into(),
            fix: String::new(),
        }
    }

    /// Something changes.
    pub fn warning(
        check: &str,
        subject: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, fix: fix.into(), ..Self::good(check, subject, message) }
    }

    /// Something breaks.
    pub fn error(check: &str, subject: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::warning(check, subject, message, fix) }
    }
}

/// Checks of files and Services without any cloud, for `ccm lint`. Implemented by the factory, so that it needs no
/// credentials, and reads the same tables as the parsers.
pub trait Lint: Send + Sync {
    /// Problems of the annotations of a Service: unknown keys under this provider's prefixes, with the key that was
    /// probably meant; wrong values; combinations without effect.
    fn service(&self, service: &Service) -> Vec<Finding>;

    /// Problems of a file of `--cloud-config`. A file that cannot be read at all is a finding of severity
    /// [`Severity::Error`] too. Never holds the value of a secret.
    fn config(&self, text: &str) -> Vec<Finding>;
}
