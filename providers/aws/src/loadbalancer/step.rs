//! A step of a plan: one write, its purpose, and its text for the user.

use std::borrow::Cow;
use std::sync::Arc;

pub(crate) use ccm_kit::balancer::Kind;
use ccm_kit::balancer::Part;
use ccm_provider::{Change, Finding, ProviderError, Risk, Verb};

use super::rules::Rule;
use super::rules::shared::SharedRules;
use super::wanted::shortened;
use crate::client::Write;
use crate::client::elb::Listener;

/// The needs of a step that takes a security group from a balancer: the rules of the others let the clients in.
pub(crate) const AFTER_RULES: &[Kind] = &[Kind::Claim, Kind::Frame, Kind::Rules];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) write: Write,
    pub(crate) summary: ccm_provider::Step,
    pub(crate) purpose: Purpose,
    pub(crate) part: Part,
    /// The kinds of parts without which it is not sent; `None`: those of its kind.
    pub(crate) needs: Option<&'static [Kind]>,
    pub(crate) besides: Besides,
    /// Creates again what was deleted for this write, if AWS refuses it.
    pub(crate) restore: Option<Write>,
}

/// What else a write needs when it is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Besides {
    #[default]
    Nothing,
    /// The rules of a group that several balancers share: the write that is sent is computed from the group's state at
    /// that time.
    Shared(Arc<SharedRules>),
    /// A group of the user that the balancer gives up, with the steps that close its rules first. Neither they nor a
    /// write that closes rules itself are sent if another balancer has the group at that time.
    Users { group: String, close: Vec<Step> },
    /// What may be removed from the group if it is full.
    Room(Room),
    /// The listeners that were deleted for the new ones: each is created again if its successor is refused.
    Former(Vec<Former>),
    /// The instances that replace all that serve. With `waits` others are leaving a target group already, and may still
    /// count: nothing more leaves to make room.
    Successors { ids: Vec<String>, waits: bool },
    /// The registration that fills the target group to which a listener moves, if that has no target yet. The listener
    /// stays if AWS refuses all of them.
    Filling(Box<Write>),
    /// The policies of a new listener. The former one of its port has them too, and is back with them if AWS refuses
    /// the new one.
    OfNewListener,
    /// A listener before and after the change, which can also be made by deleting and creating it.
    Listener { former: Former, wanted: Listener },
}

/// A listener and its policies.
pub(crate) type Former = (Listener, Vec<String>);

/// Rules of a group that may be removed if it is full.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Nobody needs them.
    pub(crate) surplus: Vec<Rule>,
    /// Those for "fragmentation needed", without which clients are served, and of ports that do not fit whole.
    pub(crate) spare: Vec<Rule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Purpose {
    pub(crate) balancer: String,
    /// Whether the balancer stays; otherwise it is being deleted.
    pub(crate) keeps: bool,
    /// The operation without which the write is useless.
    pub(crate) towards: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Planned {
    pub(crate) steps: Vec<Step>,
    /// Settings that an existing balancer cannot get, and ignored combinations.
    pub(crate) findings: Vec<Finding>,
    /// Errors of parts that cannot be planned; the steps are those of the others.
    pub(crate) errors: Vec<ProviderError>,
}

impl Planned {
    pub(crate) fn extend(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.findings.extend(other.findings);
        self.errors.extend(other.errors);
    }
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
        Self {
            write,
            summary,
            purpose: Purpose::default(),
            part: Part::new(Kind::Frame),
            needs: None,
            besides: Besides::Nothing,
            restore: None,
        }
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
    pub(crate) fn part(mut self, kind: Kind, of: impl Into<Cow<'static, str>>) -> Self {
        self.part = Part::of(kind, of);
        self
    }

    #[must_use]
    pub(crate) fn needs(mut self, needs: &'static [Kind]) -> Self {
        self.needs = Some(needs);
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
