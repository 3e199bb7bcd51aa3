//! The fault injector.

use super::throttle::matches;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A fault of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// An error of the cloud; no effect.
    Code {
        status: u16,
        code: String,
        #[serde(default)]
        message: String,
    },
    /// A bare HTTP answer with a text body, as from a proxy; no effect.
    Status {
        status: u16,
        #[serde(default)]
        body: String,
    },
    /// An HTML error page; no effect.
    Html { status: u16 },
    /// The connection is reset; no effect.
    ResetBefore,
    /// The call takes effect, then the connection is reset.
    ResetAfter,
    /// The call takes effect; the body of the answer is truncated.
    Truncate,
    /// The call takes effect; the answer has unknown elements.
    UnknownElements,
    /// The caller's credentials have expired; no effect.
    ExpiredCredentials,
    /// The service throttles the call; no effect.
    Throttle,
    /// The service's error for a missing permission; no effect.
    Deny,
    /// There is never an answer; no effect.
    Hang,
    /// The call is accepted, but the change that it began fails later; no effect, except that the changed object may
    /// show the failure. For clouds whose writes are asynchronous.
    Operation {
        /// The HTTP status of the operation.
        status: u16,
        code: String,
        #[serde(default)]
        message: String,
    },
}

impl Fault {
    /// Whether the call takes effect despite the fault.
    pub fn applies_effect(&self) -> bool {
        matches!(self, Fault::ResetAfter | Fault::Truncate | Fault::UnknownElements)
    }

    /// The name of the fault in the ledger.
    pub fn name(&self) -> String {
        match self {
            Fault::Code { code, .. } => code.clone(),
            Fault::Status { status, .. } => format!("status {status}"),
            Fault::Html { status } => format!("html {status}"),
            Fault::ResetBefore => "reset before".to_owned(),
            Fault::ResetAfter => "reset after".to_owned(),
            Fault::Truncate => "truncate".to_owned(),
            Fault::UnknownElements => "unknown elements".to_owned(),
            Fault::ExpiredCredentials => "expired credentials".to_owned(),
            Fault::Throttle => "throttle".to_owned(),
            Fault::Deny => "deny".to_owned(),
            Fault::Hang => "hang".to_owned(),
            Fault::Operation { code, .. } => format!("operation {code}"),
        }
    }
}

/// The conditions of a fault. All conditions that are set must match.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    #[serde(default)]
    pub service: Option<String>,
    /// The action name; a trailing `*` matches any suffix.
    #[serde(default)]
    pub action: Option<String>,
    /// Only writes (true) or only reads (false).
    #[serde(default)]
    pub mutating: Option<bool>,
    /// Only calls whose parameters (`k=v` joined by `&`) contain this text.
    #[serde(default)]
    pub params: Option<String>,
    /// The number of matching calls that pass first.
    #[serde(default)]
    pub skip: u64,
    /// The maximum number of times that it applies; `None`: unlimited.
    #[serde(default)]
    pub times: Option<u64>,
    pub fault: Fault,
}

impl Rule {
    /// A rule for every call.
    pub fn every(fault: Fault) -> Self {
        Rule { service: None, action: None, mutating: None, params: None, skip: 0, times: None, fault }
    }

    /// A rule for every write from the `nth` on (1 is the first): as if the process had died before that write.
    pub fn writes_from(nth: u64, fault: Fault) -> Self {
        Rule { mutating: Some(true), skip: nth.saturating_sub(1), ..Rule::every(fault) }
    }

    /// Limits the rule to an action.
    #[must_use]
    pub fn on(mut self, service: &str, action: &str) -> Self {
        self.service = Some(service.to_owned());
        self.action = Some(action.to_owned());
        self
    }

    /// Limits the rule to `times` calls after the first `skip`.
    #[must_use]
    pub fn window(mut self, skip: u64, times: u64) -> Self {
        self.skip = skip;
        self.times = Some(times);
        self
    }
}

#[derive(Debug)]
struct Armed {
    rule: Rule,
    seen: u64,
    struck: u64,
}

/// Sees every call before the rules, and may choose its fault.
pub type Watch = Box<dyn FnMut(Seen<'_>) -> Option<Fault> + Send>;

/// The active rules. The first one that applies is used; the rules before it have counted the call.
#[derive(Default)]
pub struct Faults {
    rules: Vec<Armed>,
    watch: Option<Watch>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The properties of a call that rules depend on.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub service: &'a str,
    pub action: &'a str,
    pub mutating: bool,
    /// Whether the call requests a further page.
    pub continued: bool,
    /// The parameters as in the ledger, but not truncated. For a watch: also the names of the objects that they refer to.
    pub params: &'a str,
}

impl Faults {
    /// Adds a rule after the others.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(Armed { rule, seen: 0, struck: 0 });
    }

    /// Replaces the watch.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Removes all rules; the watch stays.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// The rules, each with the number of times it applied.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.rules.iter().map(|armed| (&armed.rule, armed.struck))
    }

    /// Whether a rule depends on parameters, so that the caller must provide them.
    pub fn reads_params(&self) -> bool {
        self.is_watched() || self.rules.iter().any(|armed| armed.rule.params.is_some())
    }

    /// Whether there is a watch, for which the caller must provide the names of objects.
    pub fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns the fault for this call, if any.
    pub fn strike(&mut self, call: Seen<'_>) -> Option<Fault> {
        if let Some(fault) = self.watch.as_mut().and_then(|watch| watch(call)) {
            return Some(fault);
        }
        for armed in &mut self.rules {
            let rule = &armed.rule;
            let matching = rule.service.as_deref().is_none_or(|service| service == call.service)
                && rule.action.as_deref().is_none_or(|pattern| matches(pattern, call.action))
                && rule.mutating.is_none_or(|mutating| mutating == call.mutating)
                && rule.params.as_deref().is_none_or(|text| call.params.contains(text));
            if !matching {
                continue;
            }
            armed.seen += 1;
            if armed.seen <= rule.skip || rule.times.is_some_and(|times| armed.struck >= times) {
                continue;
            }
            armed.struck += 1;
            return Some(armed.rule.fault.clone());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(action: &'a str, mutating: bool) -> Seen<'a> {
        Seen { service: "ec2", action, mutating, continued: false, params: "GroupId=sg-1" }
    }

    #[test]
    fn every_write_from_the_nth_on_fails_and_reads_do_not() {
        let mut faults = Faults::default();
        faults.add(Rule::writes_from(2, Fault::ResetBefore));
        assert_eq!(faults.strike(call("CreateTags", true)), None);
        assert_eq!(faults.strike(call("DescribeTags", false)), None);
        assert_eq!(faults.strike(call("CreateTags", true)), Some(Fault::ResetBefore));
        assert_eq!(faults.strike(call("DeleteTags", true)), Some(Fault::ResetBefore));
    }

    #[test]
    fn a_window_strikes_only_inside() {
        let mut faults = Faults::default();
        faults.add(Rule::every(Fault::Throttle).on("ec2", "Describe*").window(1, 2));
        let struck: Vec<bool> = (0..5).map(|_| faults.strike(call("DescribeVpcs", false)).is_some()).collect();
        assert_eq!(struck, [false, true, true, false, false]);
    }

    #[test]
    fn parameters_narrow_a_rule() {
        let mut faults = Faults::default();
        faults.add(Rule { params: Some("sg-2".to_owned()), ..Rule::every(Fault::Throttle) });
        assert_eq!(faults.strike(call("DeleteSecurityGroup", true)), None);
    }

    #[test]
    fn rules_are_written_as_json() {
        let rule: Rule = serde_json::from_str(
            r#"{"action":"CreateTags","times":1,"fault":{"code":{"status":503,"code":"Unavailable"}}}"#,
        )
        .unwrap();
        assert_eq!(rule.fault, Fault::Code { status: 503, code: "Unavailable".to_owned(), message: String::new() });
    }
}
