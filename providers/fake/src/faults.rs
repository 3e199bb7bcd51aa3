//! Rules that delay calls, change their answers or make them fail.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ccm_kit::document::{self, DocumentError};
use ccm_kit::{Fields, Glob, Problems, Value};
use ccm_provider::{ErrorClass, ProviderError, duration};
use serde_json::Value as Json;

use crate::answer;
use crate::method::Method;

#[cfg(test)]
mod tests;

/// The interval at which a file that holds calls is checked.
const HOLD_INTERVAL: Duration = Duration::from_millis(20);

/// One entry of `faults`.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// The rule as written, with keys in a fixed order: the key of its counter.
    content: String,
    pub(crate) id: String,
    calls: Vec<Glob>,
    node: Option<Glob>,
    provider_id: Option<Glob>,
    service: Option<Glob>,
    cidr: Option<Glob>,
    volume: Option<Glob>,
    after: u64,
    times: Option<u64>,
    delay: Duration,
    hold: Option<PathBuf>,
    failure: Option<Failure>,
    /// Whether the call takes effect although it fails.
    pub(crate) applied: bool,
    /// Replaces a successful answer.
    pub(crate) result: Option<Json>,
    /// Given keys that have no effect in this rule.
    idle: Vec<&'static str>,
}

#[derive(Debug, Clone)]
struct Failure {
    kind: Kind,
    text: String,
    retry_after: Duration,
    wrap: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    InstanceNotFound,
    NotImplemented,
    NotOwned,
    ImplementedElsewhere,
    DiskNotFound,
    Retry,
    Throttled,
    InProgress,
    Denied,
    Invalid,
    Other,
}

/// The subject of a call. `None` if the call has no such subject; an empty text is a subject.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Subject<'a> {
    pub(crate) node: Option<&'a str>,
    pub(crate) provider_id: Option<&'a str>,
    pub(crate) service: Option<&'a str>,
    pub(crate) cidr: Option<&'a str>,
    pub(crate) volume: Option<&'a str>,
}

impl Rule {
    pub(crate) fn read(value: &Value<'_>, folder: &Path) -> Option<Self> {
        let mut content = value.json().clone();
        content.sort_all_objects();
        let mut f = value.fields()?;
        let pattern = |f: &mut Fields<'_>, key| f.text(key).map(|text| Glob::new(&text));
        let rule = Self {
            content: content.to_string(),
            id: f.text("id").unwrap_or_default(),
            calls: read_calls(&mut f),
            node: pattern(&mut f, "node"),
            provider_id: pattern(&mut f, "providerID"),
            service: pattern(&mut f, "service"),
            cidr: pattern(&mut f, "cidr"),
            volume: pattern(&mut f, "volume"),
            after: f.count("after").unwrap_or(0),
            times: f.count("times"),
            delay: f.duration("delay").unwrap_or_default(),
            hold: f.text("hold").filter(|path| !path.is_empty()).map(|path| folder.join(path)),
            applied: f.flag("applied").unwrap_or(false),
            failure: None,
            result: None,
            idle: Vec::new(),
        };
        let mut idle = Vec::new();
        let failure = Failure::read(&mut f, rule.applied, &mut idle);
        // Null is also an answer, for example for "no metadata".
        let result = f.value_or_null("result");
        if let Some(result) = &result {
            rule.check_result(result);
        }
        if result.is_some() && failure.is_some() {
            idle.push("result");
        }
        Some(Self { failure, result: result.map(|result| result.json().clone()), idle, ..rule })
    }

    /// A result that is invalid for all calls of the rule is an error in the file.
    fn check_result(&self, result: &Value<'_>) {
        let mut first = None;
        for (method, name) in Method::ALL.iter().filter(|(method, _)| self.is_for(*method)) {
            match decode(result.json(), |value| answer::fits(*method, value)) {
                Ok(()) => return,
                Err(error) => first = first.or(Some((name, error))),
            }
        }
        if let Some((name, error)) = first {
            result.problem(format_args!("no answer of {name}: {error}"));
        }
    }

    fn is_for(&self, method: Method) -> bool {
        self.calls.iter().any(|call| call.matches(method.name()))
    }

    fn matches(&self, methods: &[Method], subject: &Subject<'_>) -> bool {
        let filter = |pattern: &Option<Glob>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => pattern.matches(text),
            (Some(_), None) => false,
        };
        methods.iter().any(|method| self.is_for(*method))
            && filter(&self.node, subject.node)
            && filter(&self.provider_id, subject.provider_id)
            && filter(&self.service, subject.service)
            && filter(&self.cidr, subject.cidr)
            && filter(&self.volume, subject.volume)
    }

    /// The methods to which the rule applies for this subject.
    pub(crate) fn hits(&self, methods: &[Method], subject: &Subject<'_>) -> Vec<Method> {
        methods.iter().copied().filter(|method| self.matches(&[*method], subject)).collect()
    }

    /// The effect of the rule on a call, as text.
    pub(crate) fn effect(&self) -> String {
        let mut words = Vec::new();
        if !self.delay.is_zero() {
            words.push(format!("wait {}", duration::format(self.delay)));
        }
        if let Some(hold) = &self.hold {
            words.push(format!("wait as long as {} exists", hold.display()));
        }
        match (self.error(), &self.result) {
            (Some(error), _) if self.applied => words.push(format!("take effect and fail: {error}")),
            (Some(error), _) => words.push(format!("fail: {error}")),
            (None, Some(_)) => words.push("have their answer replaced".to_owned()),
            (None, None) => {}
        }
        let what = if words.is_empty() { "go on as without the rule".to_owned() } else { words.join(", then ") };
        let after = (self.after > 0).then(|| format!("not the first {}", self.after));
        let times = self.times.map(|times| format!("{times} times in each process"));
        let limits: Vec<String> = after.into_iter().chain(times).collect();
        if limits.is_empty() { what } else { format!("{what} ({})", limits.join(", ")) }
    }

    /// Whether the rule delays calls or changes answers without failing them.
    pub(crate) fn disturbs(&self) -> bool {
        !self.delay.is_zero() || self.hold.is_some() || self.result.is_some()
    }

    /// Settings without effect: key within the rule, value, problem.
    pub(crate) fn doubts(&self) -> Vec<(&'static str, Option<String>, String)> {
        let mut doubts: Vec<_> = self.idle.iter().map(|key| (*key, None, idle(key).to_owned())).collect();
        // Not an error: a rule may be written for a call of another version of the program.
        let unknown = self.calls.iter().filter(|call| !Method::ALL.iter().any(|(_, name)| call.matches(name)));
        doubts.extend(unknown.map(|call| {
            let known: Vec<&str> = Method::ALL.iter().map(|(_, name)| *name).collect();
            let hint = document::did_you_mean(&call.pattern(), &known).unwrap_or_default();
            ("call", Some(call.pattern()), format!("no call has such a name{hint}"))
        }));
        if let Some(service) = self.service.as_ref().filter(|pattern| names_no_service(pattern)) {
            doubts.push(("service", Some(service.pattern()), NO_SERVICE.to_owned()));
        }
        if self.times == Some(0) {
            doubts.push(("times", Some("0".to_owned()), "the rule never applies".to_owned()));
        }
        doubts
    }

    /// The error to return instead of the answer, if the rule has one.
    pub(crate) fn error(&self) -> Option<ProviderError> {
        let failure = self.failure.as_ref()?;
        let text = failure.text.clone();
        let error = match failure.kind {
            Kind::InstanceNotFound => ProviderError::InstanceNotFound,
            Kind::NotImplemented => ProviderError::NotImplemented,
            Kind::NotOwned => ProviderError::NotOwned,
            Kind::ImplementedElsewhere => ProviderError::ImplementedElsewhere,
            Kind::DiskNotFound => ProviderError::DiskNotFound,
            Kind::Retry => ProviderError::retry(text, failure.retry_after),
            Kind::Throttled => ProviderError::new(ErrorClass::Throttled { after: Some(failure.retry_after) }, text),
            Kind::InProgress => ProviderError::in_progress(text, failure.retry_after),
            Kind::Denied => ProviderError::new(ErrorClass::Denied { action: text.clone() }, text),
            Kind::Invalid => ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text),
            Kind::Other => ProviderError::unknown(text),
        };
        Some(match &failure.wrap {
            Some(context) => error.wrap(context.clone()),
            None => error,
        })
    }
}

impl Failure {
    fn read(f: &mut Fields<'_>, applied: bool, idle: &mut Vec<&'static str>) -> Option<Self> {
        let words = [
            ("InstanceNotFound", Kind::InstanceNotFound),
            ("NotImplemented", Kind::NotImplemented),
            ("NotOwned", Kind::NotOwned),
            ("ImplementedElsewhere", Kind::ImplementedElsewhere),
            ("DiskNotFound", Kind::DiskNotFound),
            ("Retry", Kind::Retry),
            ("Throttled", Kind::Throttled),
            ("InProgress", Kind::InProgress),
            ("Denied", Kind::Denied),
            ("Invalid", Kind::Invalid),
            ("Other", Kind::Other),
        ];
        let not_empty = |text: &String| !text.is_empty();
        let text = f.text("error").filter(not_empty);
        let kind = f.word("kind", &words).unwrap_or(Kind::Other);
        let retry_after = f.duration("retryAfter").unwrap_or_default();
        let wrap = f.text("wrap").filter(not_empty);
        // A kind or `applied` without a text also means a failure.
        let fails = text.is_some() || kind != Kind::Other || applied;
        let delays = matches!(kind, Kind::Retry | Kind::Throttled | Kind::InProgress);
        let unused = [("retryAfter", !retry_after.is_zero() && !delays), ("wrap", wrap.is_some() && !fails)];
        idle.extend(unused.into_iter().filter_map(|(key, unused)| unused.then_some(key)));
        let text = text.unwrap_or_else(|| "injected fault".to_owned());
        fails.then_some(Self { kind, text, retry_after, wrap })
    }
}

fn idle(key: &str) -> &'static str {
    match key {
        "retryAfter" => "no effect without kind: Retry, Throttled or InProgress",
        "wrap" => "no effect without an error",
        _ => "no effect beside an error",
    }
}

/// The problem of a pattern for which [`names_no_service`] is true.
pub(crate) const NO_SERVICE: &str = "no Service is named like this; write namespace/name";

/// Whether a pattern of Services can never match.
pub(crate) fn names_no_service(pattern: &Glob) -> bool {
    !pattern.pattern().contains(['/', '*', '?'])
}

fn read_calls(f: &mut Fields<'_>) -> Vec<Glob> {
    let Some(value) = f.value("call") else {
        f.problem("call", "needed");
        return Vec::new();
    };
    let values = match value.json() {
        Json::Array(_) => value.list().unwrap_or_default(),
        _ => vec![value.clone()],
    };
    if values.is_empty() {
        value.problem("needed: a method name, or a list of them");
    }
    values.iter().filter_map(Value::text).map(|text| Glob::new(&text)).collect()
}

/// Parses a single value.
pub(crate) fn decode<T>(json: &Json, read: impl FnOnce(&Value<'_>) -> Option<T>) -> Result<T, DocumentError> {
    let problems = Problems::default();
    let read = read(&Value::at(json, "result".to_owned(), &problems));
    if read.is_none() && problems.is_empty() {
        problems.add("result", "not of the right form");
    }
    match (problems.into_result(), read) {
        (Err(error), _) => Err(error),
        (Ok(()), Some(value)) => Ok(value),
        // Unreachable: the problem was added above.
        (Ok(()), None) => Err(DocumentError::default()),
    }
}

/// The number of uses of the rules. A counter lasts as long as the process and the rule's content.
#[derive(Debug, Default)]
pub(crate) struct Counters(HashMap<String, Counter>);

#[derive(Debug, Default)]
struct Counter {
    /// Calls that were skipped because of `after`.
    passed: u64,
    used: u64,
}

impl Counters {
    /// Removes the counters of rules that are no longer active.
    pub(crate) fn retain(&mut self, rules: &[Rule]) {
        self.0.retain(|content, _| rules.iter().any(|rule| rule.content == *content));
    }

    /// The rule to apply to a call, counted. `methods` are the names of the call: for a subject of a batch call, those
    /// of the single call and of the batch.
    pub(crate) fn choose<'r>(
        &mut self,
        rules: &'r [Rule],
        methods: &[Method],
        subject: &Subject<'_>,
    ) -> Option<&'r Rule> {
        // Equal rules are one rule with one counter, which a call increments once.
        let mut passed: Vec<&str> = Vec::new();
        for rule in rules.iter().filter(|rule| rule.matches(methods, subject)) {
            if passed.contains(&rule.content.as_str()) {
                continue;
            }
            let counter = self.0.entry(rule.content.clone()).or_default();
            if counter.passed < rule.after {
                counter.passed += 1;
                passed.push(&rule.content);
            } else if rule.times.is_none_or(|times| counter.used < times) {
                counter.used += 1;
                return Some(rule);
            }
        }
        None
    }
}

/// Waits as the rules of one call require: the longest delay, then until no file holds the call.
pub(crate) async fn wait(rules: &[&Rule]) {
    let delay = rules.iter().map(|rule| rule.delay).max().unwrap_or_default();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    for hold in rules.iter().filter_map(|rule| rule.hold.as_deref()) {
        while hold.exists() {
            tokio::time::sleep(HOLD_INTERVAL).await;
        }
    }
}
