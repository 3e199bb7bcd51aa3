//! The writes from observed to desired.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Change, Finding, ProviderError, Risk, Verb};

use super::security_groups::nodes::SharedRules;
use crate::client::Write;
use crate::ownership::Ownership;

/// One write and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) write: Write,
    pub(crate) summary: ccm_provider::Step,
    pub(crate) purpose: Purpose,
    /// The write is one of those that these rules take, as the group was seen. What is sent is made from the group as it is
    /// then.
    pub(crate) shared: Option<Arc<SharedRules>>,
}

/// What a write is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// Name of the balancer.
    pub(crate) balancer: String,
    /// Whether the balancer is wanted; else it goes.
    pub(crate) keeps: bool,
    /// Afterwards it must be looked at again.
    pub(crate) recheck: Option<Recheck>,
}

/// AWS may not show everything yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recheck {
    pub(crate) after: Duration,
    pub(crate) reason: String,
}

impl From<Recheck> for ProviderError {
    fn from(Recheck { after, reason }: Recheck) -> Self {
        Self::in_progress(reason, after)
    }
}

/// The plan of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) steps: Vec<Step>,
    /// What the user should know: wishes that cannot be met on an existing balancer, ignored combinations.
    pub(crate) findings: Vec<Finding>,
}

/// What a plan depends on beside wish and observation: fixed at start.
#[derive(Debug, Clone)]
pub(crate) struct Env {
    pub(crate) ownership: Ownership,
    pub(crate) vpc: String,
    /// Subnet of last resort; empty when there is none.
    pub(crate) self_subnet: String,
    /// `DisableSecurityGroupIngress`
    pub(crate) node_groups_untouched: bool,
    /// `ElbSecurityGroup`
    pub(crate) shared_group: Option<String>,
    /// `NLBSecurityGroupMode = Managed`
    pub(crate) managed_network_groups: bool,
}

impl Step {
    /// A step with its reason; changed fields and the risk are added by the methods below.
    pub(crate) fn new(
        verb: Verb,
        kind: impl Into<Cow<'static, str>>,
        id: impl Into<String>,
        reason: impl Into<String>,
        write: Write,
    ) -> Self {
        let summary = ccm_provider::Step {
            verb,
            kind: kind.into(),
            id: id.into(),
            changes: Vec::new(),
            reason: reason.into(),
            risk: Risk::None,
        };
        Self { write, summary, purpose: Purpose::default(), shared: None }
    }

    /// As a part of the change of a group that balancers share.
    #[must_use]
    pub(crate) fn shared(mut self, rules: &SharedRules) -> Self {
        self.shared = Some(Arc::new(rules.clone()));
        self
    }

    /// With a changed field.
    #[must_use]
    pub(crate) fn change(
        mut self,
        field: impl Into<Cow<'static, str>>,
        before: Option<String>,
        after: Option<String>,
    ) -> Self {
        self.summary.changes.push(Change { field: field.into(), before, after });
        self
    }

    /// With a risk.
    #[must_use]
    pub(crate) fn risk(mut self, risk: Risk) -> Self {
        self.summary.risk = risk;
        self
    }
}

/// The scheme of a balancer as AWS calls it.
pub(crate) fn scheme(internal: bool) -> &'static str {
    if internal { "internal" } else { "internet-facing" }
}

/// The first few of the targets of a step, and how many more.
pub(crate) fn spelled<T>(targets: &[T], text: impl Fn(&T) -> String) -> String {
    const SPELLED_OUT: usize = 8;
    let shown = targets.iter().take(SPELLED_OUT).map(text).collect::<Vec<_>>().join(" ");
    match targets.len().saturating_sub(SPELLED_OUT) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
