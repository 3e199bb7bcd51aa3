//! Recent plans and failures, for `/debug/state`. Bounded, and for display only. What still fails is kept longest: an
//! object without an entry looks healthy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{ErrorClass, Plan};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::metrics::{Metrics, Part};

/// The maximum number of entries of one kind, unless more objects still fail.
const KEPT: usize = 100;
/// The maximum number of entries of objects that still fail. One that was deleted meanwhile may never settle.
const MOST: usize = 10_000;
/// The longest text of an entry, in characters.
const LONGEST: usize = 2000;
/// Names of error classes that need no action.
const PASSING: &[&str] = &["throttled", "transient", "in-progress", "conflict"];

/// An event that happened once or several times. `ccm explain` reads it back from `/debug/state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecentEntry {
    /// The object: `service default/web`.
    pub subject: String,
    /// The latest text.
    pub text: String,
    /// The number of occurrences for the subject since the first one; for failures, since the last success.
    pub count: u64,
    /// Seconds since the last occurrence.
    pub seconds_ago: u64,
    /// Details of a failure.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failed>,
}

/// Details of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The controller that failed.
    pub controller: String,
    /// The error class as in [`ErrorClass::as_str`], if the provider returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The remedy: [`ErrorClass::remediation`].
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "wayOut")]
    pub remediation: Option<String>,
    /// Seconds until the retry; 0 when it is due. Absent when only a change of the object causes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_seconds: Option<u64>,
    /// Whether the controller has succeeded since.
    pub settled: bool,
}

impl Failed {
    /// Whether the failure is of a kind that usually passes without a change.
    pub fn is_passing(&self) -> bool {
        self.class.as_deref().is_some_and(|class| PASSING.contains(&class))
    }
}

/// A plan is formatted only when somebody looks at it.
#[derive(Debug)]
enum Text {
    Error(String),
    Plan(Plan),
}

impl Text {
    fn shown(&self) -> String {
        match self {
            Self::Error(text) => text.clone(),
            Self::Plan(plan) => shortened(&plan.to_string()),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[derive(Debug)]
struct Entry {
    subject: String,
    text: Text,
    count: u64,
    at: Instant,
    failure: Option<Failure>,
}

impl Entry {
    fn still_fails(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| !failure.settled)
    }
}

#[derive(Debug)]
struct Failure {
    controller: &'static str,
    class: Option<ErrorClass>,
    next: Option<Instant>,
    settled: bool,
}

/// The recent entries of one kind, one per subject; for failures, one per controller and subject.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Entry>>);

impl Recent {
    /// Records a plan.
    pub fn planned(&self, plan: &Plan) {
        self.push(plan.subject.to_string(), Text::Plan(plan.clone()), None);
    }

    /// Records a failure of a controller, and the time of its retry.
    pub fn failed(
        &self,
        controller: &'static str,
        subject: String,
        (error, class): (&str, Option<ErrorClass>),
        next: Option<Duration>,
    ) {
        let next = next.map(|next| Instant::now() + next);
        self.push(subject, Text::Error(shortened(error)), Some(Failure { controller, class, next, settled: false }));
    }

    /// Records that a failed sync has succeeded.
    pub fn settled(&self, controller: &str, subject: &str) {
        for entry in self.0.lock().iter_mut().filter(|entry| entry.subject == subject) {
            if let Some(failure) = entry.failure.as_mut().filter(|failure| failure.controller == controller) {
                (failure.settled, failure.next) = (true, None);
            }
        }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The entries, the latest first.
    pub fn list(&self) -> Vec<RecentEntry> {
        let failed = |failure: &Failure| Failed {
            controller: failure.controller.to_owned(),
            class: failure.class.as_ref().map(|class| class.as_str().to_owned()),
            remediation: failure.class.as_ref().map(ErrorClass::remediation),
            next_try_seconds: failure.next.map(|next| next.saturating_duration_since(Instant::now()).as_secs()),
            settled: failure.settled,
        };
        let happened = |entry: &Entry| RecentEntry {
            subject: entry.subject.clone(),
            text: entry.text.shown(),
            count: entry.count,
            seconds_ago: entry.at.elapsed().as_secs(),
            failure: entry.failure.as_ref().map(failed),
        };
        self.0.lock().iter().rev().map(happened).collect()
    }

    fn push(&self, subject: String, text: Text, failure: Option<Failure>) {
        let mut entries = self.0.lock();
        let controller = |failure: &Option<Failure>| failure.as_ref().map(|failure| failure.controller);
        let same = |entry: &Entry| entry.subject == subject && controller(&entry.failure) == controller(&failure);
        let known = entries.iter().position(same).and_then(|at| entries.remove(at));
        let known = known.filter(|entry| entry.failure.is_none() || entry.still_fails());
        let count = known.map_or(0, |entry| entry.count) + 1;
        let mut surplus = (entries.len() + 1).saturating_sub(KEPT);
        entries.retain(|entry| {
            let goes = surplus > 0 && !entry.still_fails();
            surplus -= usize::from(goes);
            !goes
        });
        if entries.len() >= MOST {
            entries.pop_front();
        }
        entries.push_back(Entry { subject, text, count, at: Instant::now(), failure });
    }
}

/// The recent plans and failures of a process.
#[derive(Default)]
struct Last {
    plans: Arc<Recent>,
    failures: Arc<Recent>,
}

impl Part for Last {
    fn new(_: &Metrics) -> Self {
        Self::default()
    }
}

impl Metrics {
    /// The recent plans.
    pub fn plans(&self) -> Arc<Recent> {
        self.part::<Last>().plans.clone()
    }

    /// The recent failures of syncs.
    pub fn failures(&self) -> Arc<Recent> {
        self.part::<Last>().failures.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm_provider::Finding;

    use super::*;

    fn plan(subject: &str, text: &str) -> Plan {
        let mut plan = Plan::new(subject);
        plan.findings.push(Finding::warning("key", text));
        plan
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_comes_first_and_a_subject_has_one_entry() {
        let recent = Recent::default();
        recent.planned(&plan("a", "one"));
        recent.planned(&plan("b", "two"));
        recent.planned(&plan("a", "three"));
        tokio::time::advance(Duration::from_secs(7)).await;
        let list = recent.list();
        let short: Vec<_> = list.iter().map(|h| (&*h.subject, h.count, h.seconds_ago)).collect();
        assert_eq!(short, [("a", 2, 7), ("b", 1, 7)]);
        let texts = [plan("a", "three").to_string(), plan("b", "two").to_string()];
        assert_eq!(list.iter().map(|entry| &*entry.text).collect::<Vec<_>>(), texts);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_shows_its_class_and_its_next_try_until_it_is_settled() {
        let recent = Recent::default();
        let denied = ccm_provider::ProviderError::new(ErrorClass::Denied { action: "ec2:Do".into() }, "no");
        let name = "some-controller";
        let error = || ("cannot do: no", Some(denied.class().clone()));
        let fail = || recent.failed(name, "node a".into(), error(), Some(Duration::from_secs(30)));
        recent.failed("other-controller", "node a".into(), ("x", None), None);
        fail();
        fail();
        tokio::time::advance(Duration::from_secs(10)).await;
        let list = recent.list();
        assert_eq!(
            serde_json::to_value(&list).unwrap(),
            serde_json::json!([
                {"subject": "node a", "text": "cannot do: no", "count": 2, "secondsAgo": 10, "controller": name,
                    "class": "denied", "remediation": "grant ec2:Do to the identity of the controller manager",
                    "nextTrySeconds": 20, "settled": false},
                {"subject": "node a", "text": "x", "count": 1, "secondsAgo": 10, "controller": "other-controller",
                    "settled": false},
            ])
        );
        let read: Vec<RecentEntry> = serde_json::from_value(serde_json::to_value(&list).unwrap()).unwrap();
        assert_eq!(read, list);
        recent.settled(name, "node a");
        let settled = |happened: &RecentEntry| happened.failure.as_ref().unwrap().settled;
        assert_eq!(recent.list().iter().map(settled).collect::<Vec<_>>(), [true, false]);
        fail();
        assert_eq!(recent.list()[0].count, 1, "it counts from 1 again");
        recent.planned(&plan("node a", "a plan"));
        assert!(serde_json::to_value(recent.list()).unwrap()[0].get("settled").is_none());
    }

    #[test]
    fn what_still_fails_outlives_what_has_settled() {
        let recent = Recent::default();
        let fail = |number: usize| recent.failed("c", format!("service many/{number}"), ("no", None), None);
        (0..KEPT).for_each(fail);
        recent.settled("c", "service many/31");
        (KEPT..KEPT + 31).for_each(fail);
        let list = recent.list();
        assert_eq!(list.len(), KEPT + 30, "only the settled one is gone");
        assert!(list.iter().all(|entry| entry.failure.as_ref().is_some_and(|failure| !failure.settled)), "{list:#?}");
        list.iter().for_each(|entry| recent.settled("c", &entry.subject));
        fail(0);
        assert_eq!(recent.list().len(), KEPT, "the others have settled");
    }

    #[test]
    fn of_very_many_that_still_fail_the_oldest_goes_first() {
        let recent = Recent::default();
        let failing = |number: usize| Entry {
            subject: format!("node {number}"),
            text: Text::Error("no".into()),
            count: 1,
            at: Instant::now(),
            failure: Some(Failure { controller: "c", class: None, next: None, settled: false }),
        };
        *recent.0.lock() = (0..MOST).map(failing).collect();
        recent.failed("c", "node new".into(), ("no", None), None);
        let list = recent.list();
        assert_eq!((list.len(), &*list[0].subject, &*list[MOST - 1].subject), (MOST, "node new", "node 1"));
    }

    #[test]
    fn a_storm_keeps_only_the_last_subjects_and_short_texts() {
        let recent = Recent::default();
        for number in 0..1000 {
            recent.planned(&plan(&format!("node {number}"), &"é".repeat(10_000)));
        }
        let list = recent.list();
        assert_eq!((list.len(), &*list[0].subject), (KEPT, "node 999"));
        assert_eq!(list[0].text.chars().count(), LONGEST);
    }
}
