//! What happened last: the plans and failures that `/debug/state` shows. Bounded, and without effect on anything.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tokio::time::Instant;

/// Entries of one kind that are kept.
const KEPT: usize = 100;
/// Longest text of an entry, in characters.
const LONGEST: usize = 2000;

/// One thing that happened, perhaps several times.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Happened {
    /// What it happened to: `service default/web`.
    pub subject: String,
    /// What it was, at last.
    pub text: String,
    /// How often something of this kind happened to the subject since it was first noted.
    pub count: u64,
    /// How long ago it was, in seconds.
    pub seconds_ago: u64,
}

#[derive(Debug)]
struct Entry {
    subject: String,
    text: String,
    count: u64,
    at: Instant,
}

/// The last things of one kind, one entry per subject.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Entry>>);

impl Recent {
    /// Notes what happened to a subject.
    pub fn note(&self, subject: impl Into<String>, text: &str) {
        let subject = subject.into();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().position(|entry| entry.subject == subject).and_then(|at| entries.remove(at));
        let count = known.map_or(0, |entry| entry.count) + 1;
        if entries.len() >= KEPT {
            entries.pop_front();
        }
        entries.push_back(Entry { subject, text: text.chars().take(LONGEST).collect(), count, at: Instant::now() });
    }

    /// The latest first.
    pub fn list(&self) -> Vec<Happened> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let happened = |entry: &Entry| Happened {
            subject: entry.subject.clone(),
            text: entry.text.clone(),
            count: entry.count,
            seconds_ago: entry.at.elapsed().as_secs(),
        };
        entries.iter().rev().map(happened).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_latest_comes_first_and_a_subject_has_one_entry() {
        let recent = Recent::default();
        recent.note("a", "one");
        recent.note("b", "two");
        recent.note("a", "three");
        tokio::time::advance(Duration::from_secs(7)).await;
        let list = recent.list();
        let short: Vec<_> = list.iter().map(|h| (&*h.subject, &*h.text, h.count, h.seconds_ago)).collect();
        assert_eq!(short, [("a", "three", 2, 7), ("b", "two", 1, 7)]);
    }

    #[test]
    fn a_storm_keeps_only_the_last_subjects_and_short_texts() {
        let recent = Recent::default();
        for number in 0..1000 {
            recent.note(format!("node {number}"), &"é".repeat(10_000));
        }
        let list = recent.list();
        assert_eq!((list.len(), &*list[0].subject), (KEPT, "node 999"));
        assert_eq!(list[0].text.chars().count(), LONGEST);
    }
}
