//! A case: requests and the expected answers. Differences are recorded as lines and not asserted, because one of the
//! servers is expected to differ.

use std::net::SocketAddr;

use ccm_cloudsim::aws::client::call;
use ccm_cloudsim::aws::model::Element;
use wildmatch::WildMatch;

use crate::values::{Values, fill, named};

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    operation: &'static str,
    form: String,
    /// The expected error code.
    fails: Option<&'static str>,
    checks: Vec<Check>,
}

#[derive(Debug)]
enum Check {
    Is(&'static str, String),
    Like(&'static str, String),
    Absent(&'static str),
    Count(&'static str, usize),
    Each(&'static str, &'static str, String),
    Save(&'static str, &'static str),
}

/// A new case. The name begins with the service.
pub(crate) fn case(name: &'static str) -> Case {
    Case { name, steps: Vec::new() }
}

impl Case {
    /// Adds a request that must succeed.
    pub(crate) fn ok(mut self, operation: &'static str, form: impl Into<String>) -> Self {
        self.steps.push(Step { operation, form: form.into(), fails: None, checks: Vec::new() });
        self
    }

    /// Adds a request that must fail with this code.
    pub(crate) fn fails(mut self, operation: &'static str, form: impl Into<String>, code: &'static str) -> Self {
        self.steps.push(Step { operation, form: form.into(), fails: Some(code), checks: Vec::new() });
        self
    }

    fn check(mut self, check: Check) -> Self {
        self.steps.last_mut().expect("a step before its checks").checks.push(check);
        self
    }

    /// Expects this text at a path of the last answer; `{name}` is replaced by a value.
    pub(crate) fn is(self, path: &'static str, text: impl Into<String>) -> Self {
        self.check(Check::Is(path, text.into()))
    }

    /// Expects a text at a path that matches the pattern; `*` matches anything.
    pub(crate) fn like(self, path: &'static str, pattern: impl Into<String>) -> Self {
        self.check(Check::Like(path, pattern.into()))
    }

    /// Expects that a path is missing, or an empty element.
    pub(crate) fn absent(self, path: &'static str) -> Self {
        self.check(Check::Absent(path))
    }

    /// Expects this many child elements at a path.
    pub(crate) fn count(self, path: &'static str, count: usize) -> Self {
        self.check(Check::Count(path, count))
    }

    /// Expects these texts at a path inside each element of a list, sorted and joined by blanks. An empty inner path
    /// means the element itself.
    pub(crate) fn each(self, list: &'static str, path: &'static str, texts: impl Into<String>) -> Self {
        self.check(Check::Each(list, path, texts.into()))
    }

    /// Saves the text at a path under a name.
    pub(crate) fn save(self, name: &'static str, path: &'static str) -> Self {
        self.check(Check::Save(name, path))
    }

    /// Runs the case: one line per difference. A request that fails unexpectedly ends the case.
    pub(crate) fn run(&self, address: SocketAddr, values: &Values) -> Vec<String> {
        let mut values = values.clone();
        let mut found = Vec::new();
        for (number, step) in (1..).zip(&self.steps) {
            let answer = call(address, step.operation, &fill(&step.form, &values));
            let mut say = |what: String| found.push(format!("{}: step {number} {}: {what}", self.name, step.operation));
            match (answer, step.fails) {
                (Err(code), None) => {
                    say(format!("answers {code}"));
                    return found;
                }
                (Ok(_), Some(code)) => say(format!("succeeds, instead of {code}")),
                (Err(code), Some(wanted)) if code != wanted => say(format!("answers {code}, instead of {wanted}")),
                (Err(_), Some(_)) => {}
                (Ok(answer), None) => {
                    for check in &step.checks {
                        if let Some(wrong) = check.look(&answer, &mut values) {
                            say(named(&wrong, &values));
                        }
                    }
                }
            }
        }
        found
    }
}

impl Check {
    fn look(&self, answer: &Element, values: &mut Values) -> Option<String> {
        let at = |path: &str| answer.at(path).map(|element| element.text.as_str());
        match self {
            Check::Is(path, text) => {
                let wanted = fill(text, values);
                let is = at(path);
                (is != Some(wanted.as_str())).then(|| format!("{path} is {is:?}, not {wanted:?}"))
            }
            Check::Like(path, pattern) => {
                let wanted = fill(pattern, values);
                let is = at(path);
                (!is.is_some_and(|is| WildMatch::new(&wanted).matches(is)))
                    .then(|| format!("{path} is {is:?}, not like {wanted:?}"))
            }
            Check::Absent(path) => {
                let found = answer.at(path).filter(|found| !found.text.is_empty() || !found.children.is_empty());
                found.map(|found| format!("{path} is {:?}", found.text))
            }
            Check::Count(path, count) => {
                let is = answer.at(path).map_or(0, |list| list.children.len());
                (is != *count).then(|| format!("{path} has {is} entries, not {count}"))
            }
            Check::Each(list, path, texts) => {
                let mut wanted: Vec<String> = fill(texts, values).split_whitespace().map(str::to_owned).collect();
                let entries = answer.at(list).map(|list| list.children.as_slice()).unwrap_or_default();
                let text = |entry: &Element| {
                    if path.is_empty() { Some(entry.text.clone()) } else { entry.at(path).map(|e| e.text.clone()) }
                };
                let mut is: Vec<String> = entries.iter().filter_map(text).collect();
                wanted.sort_unstable();
                is.sort_unstable();
                (is != wanted).then(|| format!("{list}/{path} are {is:?}, not {wanted:?}"))
            }
            Check::Save(name, path) => match at(path) {
                Some(text) if !text.is_empty() => {
                    values.insert((*name).to_owned(), text.to_owned());
                    None
                }
                _ => Some(format!("{path} is absent, and is needed later")),
            },
        }
    }
}
