//! The manager's log: all entries are written to a file, the important ones also to the feed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::feed::{Feed, Source};
use crate::world::World;

/// Entries at INFO that record a decision.
const DECISIONS: [&str; 2] = ["deleting node", "node is not deleted yet"];
/// The prefix of the message of a dry-run step; `1/3: create …` follows.
const PLAN: &str = "Plan (dry run, nothing is written) ";

/// Accepts one entry per write.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    file: Arc<Mutex<File>>,
    feed: Arc<Feed>,
    world: Arc<World>,
    /// Incomplete plans, by subject.
    partial: Arc<Mutex<HashMap<String, Vec<String>>>>,
}

impl Log {
    pub(crate) fn create(path: &Path, feed: Arc<Feed>, world: Arc<World>) -> io::Result<Self> {
        Ok(Self { file: Arc::new(Mutex::new(File::create(path)?)), feed, world, partial: Arc::default() })
    }

    fn step(&self, step: Step) {
        let mut partial = self.partial.lock();
        let lines = partial.entry(step.subject.clone()).or_default();
        if step.number == 1 {
            lines.clear();
        }
        lines.push(format!("{}. {}", step.number, step.text));
        if step.number == step.of {
            self.world.planned(step.subject, std::mem::take(lines));
        }
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().write_all(bytes)?;
        match read(&String::from_utf8_lossy(bytes)) {
            Some(Line::Fact(text)) => self.feed.fact_once(Source::Manager, "", text),
            Some(Line::Plan(step)) => self.step(step),
            None => {}
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().flush()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Fact(String),
    Plan(Step),
}

#[derive(Debug, PartialEq, Eq)]
struct Step {
    subject: String,
    number: usize,
    of: usize,
    text: String,
}

/// Converts an entry in klog's format for the viewer.
fn read(entry: &str) -> Option<Line> {
    let (head, text) = entry.trim_end().split_once("] ")?;
    // Without fields the message is unquoted; with fields it is quoted and precedes them.
    let (message, fields) = match text.strip_prefix('"') {
        Some(rest) => unquote(rest)?,
        None => (text.to_owned(), ""),
    };
    if let Some(step) = message.strip_prefix(PLAN) {
        let (position, text) = step.split_once(": ")?;
        let (number, of) = position.split_once('/')?;
        let (subject, _) = unquote(fields.strip_prefix(" subject=\"")?)?;
        return Some(Line::Plan(Step {
            subject,
            number: number.parse().ok()?,
            of: of.parse().ok()?,
            text: text.into(),
        }));
    }
    let shown = head.starts_with(['E', 'W']) || DECISIONS.iter().any(|start| message.starts_with(start));
    shown.then(|| Line::Fact(format!("{message}{fields}")))
}

/// The text up to its closing quotation mark, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((plain, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => plain.push('\n'),
                other => plain.push(other),
            },
            _ => plain.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_decisions_and_plans_are_shown_and_the_rest_is_not() {
        let entry = |text: &str| read(&format!("{text}\n"));
        assert_eq!(entry("I0102 15:04:05.000006    4242 a.rs:1] Started \"x\""), None);
        assert_eq!(entry("W0102 15:04:05.000006    4242 a.rs:1] bad"), Some(Line::Fact("bad".into())));
        let error = "E0102 15:04:05.000006    4242 a.rs:1] \"a \\\"bad\\\" thing\" x=\"y\"";
        assert_eq!(entry(error), Some(Line::Fact("a \"bad\" thing x=\"y\"".into())));
        let deletion = "I0102 15:04:05.000006    4242 a.rs:1] \"deleting node\" node=\"a\"";
        assert!(matches!(entry(deletion), Some(Line::Fact(_))));
        let plan = "I0102 15:04:05.000006    4242 a.rs:1] \"Plan (dry run, nothing is written) 2/3: create Route x \
                    (because \\\"y\\\")\" subject=\"routes\"";
        let text = "create Route x (because \"y\")".into();
        assert_eq!(entry(plan), Some(Line::Plan(Step { subject: "routes".into(), number: 2, of: 3, text })));
    }
}
