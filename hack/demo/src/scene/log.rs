//! The manager's log: all of it into a file, what a newcomer should see into the feed.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::feed::{Feed, Source};
use crate::world::World;

/// Entries at INFO that tell a decision.
const DECISIONS: [&str; 2] = ["deleting node", "node is not deleted yet"];
/// How an entry with a plan of a dry run begins.
const PLAN: &str = "Plan (dry run, nothing is written): ";

/// Takes one entry per write.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    file: Arc<Mutex<File>>,
    feed: Arc<Feed>,
    world: Arc<World>,
}

impl Log {
    pub(crate) fn create(path: &Path, feed: Arc<Feed>, world: Arc<World>) -> io::Result<Self> {
        Ok(Self { file: Arc::new(Mutex::new(File::create(path)?)), feed, world })
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)?;
        match read(&String::from_utf8_lossy(bytes)) {
            Some(Line::Told(text)) => self.feed.fact_once(Source::Manager, "", text),
            Some(Line::Plan { subject, lines }) => self.world.planned(subject, lines),
            None => {}
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Told(String),
    Plan { subject: String, lines: Vec<String> },
}

/// What an entry in klog's format is to the viewer.
fn read(entry: &str) -> Option<Line> {
    let (head, text) = entry.trim_end().split_once("] ")?;
    if let Some(plan) = text.strip_prefix(PLAN) {
        let (plan, subject) = plan.rsplit_once(" subject=")?;
        let lines = plan.lines().skip(1).map(|line| line.trim().to_owned()).collect();
        return Some(Line::Plan { subject: subject.trim_matches('"').to_owned(), lines });
    }
    let told = head.starts_with(['E', 'W']) || DECISIONS.iter().any(|start| text.starts_with(start));
    told.then(|| Line::Told(text.lines().next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_decisions_and_plans_are_shown_and_the_rest_is_not() {
        let entry = |text: &str| read(&format!("{text}\n"));
        assert_eq!(entry("I0102 15:04:05.000006    4242 a.rs:1] Started \"x\""), None);
        assert_eq!(entry("E0102 15:04:05.000006    4242 a.rs:1] bad x=\"y\""), Some(Line::Told("bad x=\"y\"".into())));
        assert!(matches!(entry("I0102 15:04:05.000006    4242 a.rs:1] deleting node node=\"a\""), Some(Line::Told(_))));
        let plan = "I0102 15:04:05.000006    4242 a.rs:1] Plan (dry run, nothing is written): routes:\n  1. create Route x \
                    (because y) subject=\"routes\"";
        let lines = vec!["1. create Route x (because y)".into()];
        assert_eq!(entry(plan), Some(Line::Plan { subject: "routes".into(), lines }));
    }
}
