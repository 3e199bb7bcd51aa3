//! A step of a plan: one write, its purpose, and its text for the user.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Change, Finding, ProviderError, Risk, Verb};

use super::desired::shortened;
use super::rules::shared::SharedRules;
use crate::client::Write;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) write: Write,
    pub(crate) summary: ccm_provider::Step,
    pub(crate) purpose: Purpose,
    /// Set for rules of a group that several balancers share: the write that is sent is computed from the group's state
    /// at that time.
    pub(crate) shared: Option<Arc<SharedRules>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Purpose {
    pub(crate) balancer: String,
    /// Whether the balancer stays; otherwise it is being deleted.
    pub(crate) keeps: bool,
    /// Set if the balancer must be read again afterwards.
    pub(crate) recheck: Option<Recheck>,
}

/// Delay and reason of another read, because AWS does not show everything yet.
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) steps: Vec<Step>,
    /// Settings that an existing balancer cannot get, and ignored combinations.
    pub(crate) findings: Vec<Finding>,
}

impl Step {
    /// A step with its reason; the methods below add changed fields and the risk.
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

    #[must_use]
    pub(crate) fn risk(mut self, risk: Risk) -> Self {
        self.summary.risk = risk;
        self
    }
}

pub(crate) fn scheme(internal: bool) -> &'static str {
    if internal { "internal" } else { "internet-facing" }
}

/// Up to eight targets, and how many more there are.
pub(crate) fn abbreviated<T>(targets: &[T], text: impl Fn(&T) -> String) -> String {
    shortened(targets.iter().map(text).collect(), 8, " ")
}
