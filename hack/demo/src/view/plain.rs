//! A chronological log, for pipes and limited terminals.

use std::io::{self, Write};

use crate::feed::{self, Entry, Item};
use crate::text::{hang, wrap};

/// The column of the text of an entry.
const INDENT: usize = 17;

pub(crate) fn lines(entry: &Entry, width: usize) -> Vec<String> {
    let time = format!("{:>6.1}s", entry.at.as_secs_f64());
    match &entry.item {
        Item::Act { number, title, text } => {
            let head = format!("── {number}. {title} ");
            let rule = "─".repeat(width.saturating_sub(head.chars().count()));
            let text = wrap(text, width.saturating_sub(3)).into_iter().map(|line| format!("   {line}"));
            [String::new(), format!("{head}{rule}")].into_iter().chain(text).collect()
        }
        Item::Result(text) => hang(&format!("{time} => "), text, width),
        Item::Block { title, lines } => {
            let head = (!title.is_empty()).then(|| format!("{time}    {title}")).into_iter();
            let body = lines.iter().flat_map(|line| hang(&" ".repeat(INDENT - 4), line, width));
            head.chain(body).collect()
        }
        Item::Fact { source, subjects, text } => {
            let subjects = feed::subjects(subjects);
            let colon = if subjects.is_empty() { "" } else { ": " };
            hang(&format!("{time} {:<8} ", source.name()), &format!("{subjects}{colon}{text}"), width)
        }
    }
}

pub(crate) fn print(out: &mut impl Write, width: usize, entries: &[Entry]) -> io::Result<()> {
    for line in entries.iter().flat_map(|entry| lines(entry, width)) {
        writeln!(out, "{line}")?;
    }
    out.flush()
}
