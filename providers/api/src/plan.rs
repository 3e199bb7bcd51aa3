//! Plans: writes before their execution, with their reasons and risks.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An ordered list of writes for one subject. The same input produces the same plan, byte for byte; the process may
/// be interrupted after any prefix of it. An empty plan means that no change is needed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The subject: `node worker-1`, `service default/web`, `routes`.
    pub subject: String,
    /// The writes, in order.
    pub steps: Vec<Step>,
    /// Findings about the input.
    pub findings: Vec<Finding>,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The action.
    pub verb: Verb,
    /// Kind of the object: `Node`, `LoadBalancer`, `Route`, …
    pub kind: Cow<'static, str>,
    /// Its identity.
    pub id: String,
    /// The fields that change.
    pub changes: Vec<Change>,
    /// The reason.
    pub reason: String,
    /// The effect that users may notice.
    pub risk: Risk,
}

/// One field that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the field.
    pub field: Cow<'static, str>,
    /// The old value; `None` if absent or unknown.
    pub before: Option<String>,
    /// The new value; `None` if removed.
    pub after: Option<String>,
}

/// The action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Create an object.
    Create,
    /// Change an object.
    Update,
    /// Delete an object.
    Delete,
    /// Attach one object to another.
    Attach,
    /// Detach one object from another.
    Detach,
}

impl Verb {
    /// The word in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Attach => "attach",
            Self::Detach => "detach",
        }
    }
}

/// The effect of a step that users may notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// No effect.
    None,
    /// A short interruption.
    Brief,
    /// Traffic or data may be lost.
    Disruptive,
}

/// A problem of the input: an unknown key, an invalid value, an ignored combination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The annotation, field or flag.
    pub key: String,
    /// Its value, if it may be shown.
    pub value: Option<String>,
    /// The problem and the remedy.
    pub message: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informational.
    Info,
    /// Works, but not as written.
    Warning,
    /// Does not work until changed.
    Error,
}

impl Plan {
    /// An empty plan.
    pub fn new(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..Self::default() }
    }

    /// The plan with one more step.
    #[must_use]
    pub fn with(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Whether the plan has no writes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether the plan has neither steps nor findings.
    pub fn is_silent(&self) -> bool {
        self.steps.is_empty() && self.findings.is_empty()
    }
}

impl Finding {
    /// A finding about a key whose value is absent or not shown.
    pub fn new(severity: Severity, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity, key: key.into(), value: None, message: message.into() }
    }

    /// A warning about a key whose value is absent or not shown.
    pub fn warning(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, key, message)
    }

    /// The finding with the value of its key.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }
}

impl Severity {
    /// `info`, `warning`, `error`
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            write!(f, "{}: nothing to do", self.subject)?;
        } else {
            write!(f, "{}:", self.subject)?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "\n  {}. {step}", number + 1)?;
        }
        for finding in &self.findings {
            write!(f, "\n  note: {finding}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb.as_str(), self.kind, self.id)?;
        for (i, change) in self.changes.iter().enumerate() {
            write!(f, "{}{change}", if i == 0 { ": " } else { ", " })?;
        }
        write!(f, " (because {})", self.reason)?;
        match self.risk {
            Risk::None => Ok(()),
            Risk::Brief => f.write_str(" [brief interruption]"),
            Risk::Disruptive => f.write_str(" [disruptive]"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (None, Some(after)) => write!(f, "{} = {after}", self.field),
            (Some(before), Some(after)) => write!(f, "{} {before} -> {after}", self.field),
            (Some(before), None) => write!(f, "{} {before} removed", self.field),
            (None, None) => write!(f, "{}", self.field),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} {value:?}: {}", self.key, self.message),
            None => write!(f, "{}: {}", self.key, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_prints_verb_object_changes_reason_and_risk() {
        let step = Step {
            verb: Verb::Delete,
            kind: "Node".into(),
            id: "worker-1".into(),
            changes: vec![Change { field: "taints".into(), before: Some("a".into()), after: None }],
            reason: "the instance is gone".into(),
            risk: Risk::Disruptive,
        };
        let mut plan = Plan::new("node worker-1").with(step);
        plan.findings.push(Finding {
            severity: Severity::Warning,
            key: "example.com/x".into(),
            value: Some("y".into()),
            message: "ignored".into(),
        });
        assert_eq!(
            plan.to_string(),
            "node worker-1:\n  1. delete Node worker-1: taints a removed (because the instance is gone) [disruptive]\n  \
             note: example.com/x \"y\": ignored"
        );
        assert_eq!(Plan::new("routes").to_string(), "routes: nothing to do");
    }
}
