//! The log of events, in order and without duplicates: from the tour, the cluster, the cloud and the manager.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// Facts with the same text within this time become one line.
const FOLD: Duration = Duration::from_millis(350);
/// Number of items kept for the live view.
const KEPT: usize = 400;
/// The maximum number of subjects that are all named.
const NAMED: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Demo,
    Kubelet,
    Cluster,
    Cloud,
    Event,
    Manager,
}

impl Source {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Kubelet => "kubelet",
            Self::Cluster => "cluster",
            Self::Cloud => "cloud",
            Self::Event => "event",
            Self::Manager => "manager",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Act { number: usize, title: &'static str, text: String },
    Result(String),
    Block { title: String, lines: Vec<String> },
    Fact { source: Source, subjects: Vec<String>, text: String },
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) item: Item,
}

#[derive(Debug)]
pub(crate) struct Feed {
    began: Instant,
    began_at: SystemTime,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    // The number of removed entries.
    dropped: usize,
    // Number of the first entry to which subjects can still be added.
    open: usize,
    // Number of the first entry that the plain log has not printed.
    printed: usize,
    seen: HashSet<String>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), began_at: SystemTime::now(), state: Mutex::default() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Logs a fact about `subject` (empty for none).
    pub(crate) fn fact(&self, source: Source, subject: &str, text: impl Into<String>) {
        self.state.lock().fact(self.elapsed(), source, subject, text.into());
    }

    /// The same, but logged only once in each act.
    pub(crate) fn fact_once(&self, source: Source, subject: &str, text: impl Into<String>) {
        self.fact_once_at(self.elapsed(), source, subject, text);
    }

    /// The time of an event that is read from a log later.
    pub(crate) fn when(&self, at: SystemTime) -> Duration {
        at.duration_since(self.began_at).unwrap_or_default()
    }

    /// Like [`Feed::fact`], for an earlier fact: it is inserted at its time, if that part has not been printed yet.
    pub(crate) fn fact_at(&self, at: Duration, source: Source, subject: &str, text: impl Into<String>) {
        self.state.lock().fact(at, source, subject, text.into());
    }

    /// Like [`Feed::fact_at`], but logged only once in each act.
    pub(crate) fn fact_once_at(&self, at: Duration, source: Source, subject: &str, text: impl Into<String>) {
        let text = text.into();
        let mut state = self.state.lock();
        if state.seen.insert(format!("{subject} {text}")) {
            state.fact(at, source, subject, text);
        }
    }

    /// Adds any other item; later facts are never inserted before it.
    pub(crate) fn add(&self, item: Item) {
        let mut state = self.state.lock();
        if matches!(item, Item::Act { .. }) {
            state.seen.clear();
        }
        state.push(Entry { at: self.elapsed(), item });
        state.open = state.end();
    }

    /// The next output of the plain log: all final entries, or all entries.
    pub(crate) fn take(&self, all: bool) -> Vec<Entry> {
        let now = self.elapsed();
        let mut state = self.state.lock();
        let (from, open, dropped) = (state.printed, state.open, state.dropped);
        let numbered = state.entries.iter().enumerate().map(|(i, entry)| (i + dropped, entry));
        let ready = numbered.skip_while(|(number, _)| *number < from);
        let done = |(number, entry): &(usize, &Entry)| all || *number < open || now.saturating_sub(entry.at) > FOLD;
        let taken: Vec<Entry> = ready.take_while(done).map(|(_, entry)| entry.clone()).collect();
        state.printed = from.max(dropped) + taken.len();
        taken
    }

    /// The last items, oldest first, for the live view.
    pub(crate) fn last(&self, count: usize) -> Vec<Entry> {
        let state = self.state.lock();
        state.entries.iter().skip(state.entries.len().saturating_sub(count)).cloned().collect()
    }
}

impl State {
    fn end(&self) -> usize {
        self.dropped + self.entries.len()
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        // Keeps entries that are not printed yet.
        while self.entries.len() > KEPT && (self.dropped < self.printed || self.entries.len() > 100 * KEPT) {
            self.entries.pop_front();
            self.dropped += 1;
        }
    }

    fn fact(&mut self, at: Duration, source: Source, subject: &str, text: String) {
        let open = self.open.max(self.printed).saturating_sub(self.dropped);
        let same = self.entries.iter_mut().skip(open).find_map(|entry| match &mut entry.item {
            Item::Fact { source: s, subjects, text: t } if *s == source && *t == text => {
                (at.abs_diff(entry.at) <= FOLD).then_some(subjects)
            }
            _ => None,
        });
        let subject = (!subject.is_empty()).then(|| subject.to_owned());
        match same {
            Some(subjects) => subjects.extend(subject),
            None => {
                let item = Item::Fact { source, subjects: subject.into_iter().collect(), text };
                let later = self.entries.iter().skip(open).rev().take_while(|entry| entry.at > at).count();
                self.push(Entry { at, item });
                // A late entry is inserted before those that happened after it.
                let end = self.entries.len();
                if let Some(moved) = self.entries.make_contiguous().get_mut(end.saturating_sub(later + 1)..) {
                    moved.rotate_right(1);
                }
            }
        }
    }
}

/// `node-01, node-02`, or `node-01 … node-12 (12)`.
pub(crate) fn subjects(names: &[String]) -> String {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    match (&names[..], names.len()) {
        ([first, .., last], count) if count > NAMED => format!("{first} … {last} ({count})"),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(entries: &[Entry]) -> Vec<String> {
        let text = |entry: &Entry| match &entry.item {
            Item::Fact { subjects: names, text, .. } => format!("{}: {text}", subjects(names)),
            Item::Result(text) => text.clone(),
            other => format!("{other:?}"),
        };
        entries.iter().map(text).collect()
    }

    #[test]
    fn facts_of_the_same_words_are_one_line_until_something_else_happens() {
        let feed = Feed::new();
        for name in ["a", "b", "c", "d"] {
            feed.fact(Source::Event, name, "Synced");
            feed.fact(Source::Cluster, name, "ready");
        }
        feed.add(Item::Result("done".into()));
        feed.fact(Source::Event, "e", "Synced");
        assert_eq!(texts(&feed.take(true)), ["a … d (4): Synced", "a … d (4): ready", "done", "e: Synced"]);
        assert!(feed.take(true).is_empty());
    }

    #[test]
    fn a_late_fact_is_inserted_at_its_time_but_not_before_a_heading() {
        let feed = Feed::new();
        let at = Duration::from_secs;
        feed.add(Item::Result("begin".into()));
        feed.fact_at(at(3), Source::Event, "", "third");
        feed.fact_at(at(4), Source::Event, "", "fourth");
        feed.fact_at(at(1), Source::Cloud, "", "first");
        assert_eq!(texts(&feed.take(true)), ["begin", ": first", ": third", ": fourth"]);
    }

    #[test]
    fn entries_are_printed_only_when_final() {
        let feed = Feed::new();
        feed.fact(Source::Event, "a", "Synced");
        assert!(feed.take(false).is_empty());
        assert_eq!(feed.take(true).len(), 1);
        feed.fact(Source::Event, "b", "Synced");
        assert_eq!(texts(&feed.take(true)), ["b: Synced"]);
    }

    #[test]
    fn a_repeated_fact_is_reported_once_in_an_act() {
        let feed = Feed::new();
        feed.fact_once(Source::Manager, "a", "failed");
        feed.fact_once(Source::Manager, "a", "failed");
        feed.add(Item::Act { number: 2, title: "", text: String::new() });
        feed.fact_once(Source::Manager, "a", "failed");
        assert_eq!(feed.take(true).len(), 3);
    }

    #[test]
    fn old_items_are_forgotten_once_they_are_printed() {
        let feed = Feed::new();
        for i in 0..2 * KEPT {
            feed.add(Item::Result(i.to_string()));
        }
        assert_eq!(feed.take(false).len(), 2 * KEPT);
        feed.add(Item::Result("last".into()));
        assert_eq!(texts(&feed.take(false)), ["last"]);
        assert_eq!(feed.last(2 * KEPT).len(), KEPT);
    }
}
