//! A screen that is redrawn periodically: nodes, Services, and events.

use std::io::{self, Write};
use std::time::Duration;

use super::plain;
use crate::feed::{Entry, Item};
use crate::text::{clip, count, pad, wrap};
use crate::world::{NodeRow, Ready, State};

const CELL: usize = 40;
/// Wider lines are hard to read.
const WIDEST: usize = 120;
/// Smaller terminals get the plain log.
pub(crate) const SMALLEST: (usize, usize) = (60, 18);

/// The input of a frame besides the state.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) size: (usize, usize),
    pub(crate) color: bool,
    pub(crate) elapsed: Duration,
    pub(crate) acts: usize,
    pub(crate) footer: &'a [String],
    /// The entries, newest last.
    pub(crate) entries: &'a [Entry],
}

/// Takes control of the screen, and restores it when dropped.
#[derive(Debug)]
pub(crate) struct Screen(());

impl Screen {
    pub(crate) fn take() -> io::Result<Self> {
        send("\x1b[?1049h\x1b[?25l")?;
        Ok(Self(()))
    }

    /// Draws a frame in one write, so that nothing flickers.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[?2026h\x1b[H");
        for (i, line) in lines.iter().enumerate() {
            text.push_str(if i == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J\x1b[?2026l");
        send(&text)
    }
}

fn send(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be closed; ignore the error.
        let _gone = send("\x1b[?25h\x1b[?1049l");
    }
}

impl Frame<'_> {
    /// The lines of the screen, at most its height.
    pub(crate) fn lines(&self, state: &State) -> Vec<String> {
        let (width, height) = (self.size.0.min(WIDEST), self.size.1);
        let act = self.entries.iter().rev().find_map(|entry| match &entry.item {
            Item::Act { number, title, text } => Some((*number, *title, text.as_str())),
            _ => None,
        });
        let (number, title, text) = act.unwrap_or((0, "starting", ""));
        let time = self.elapsed.as_secs();
        let right = format!("{}:{:02}  Ctrl-C ends ", time / 60, time % 60);
        let left = match number {
            n if n == 0 || n > self.acts => format!(" ccm demo   {title}"),
            n => format!(" ccm demo   {n} of {}: {title}", self.acts),
        };
        let room = width.saturating_sub(right.chars().count());
        let mut lines = vec![self.paint("7", &format!("{}{right}", pad(&left, room)))];
        // After the tour, the text has instructions for the user: it is never cut.
        let rows = if number > self.acts {
            8
        } else if height >= 30 {
            5
        } else {
            3
        };
        lines.extend(wrap(text, width.saturating_sub(2)).into_iter().take(rows).map(|line| format!(" {line}")));
        lines.push(String::new());
        lines.push(self.paint("1", &clip(&totals(state), width)));
        self.nodes(state, width, (height / 3).max(4), &mut lines);
        self.services(state, width, (height / 6).max(2), &mut lines);
        let rule = "── what happens, and why ";
        lines.push(self.paint("2", &format!("{rule}{}", "─".repeat(width.saturating_sub(rule.chars().count())))));
        let room = height.saturating_sub(lines.len() + self.footer.len());
        let mut happened: Vec<String> = Vec::new();
        for entry in self.entries.iter().rev().filter(|entry| !matches!(entry.item, Item::Act { .. })) {
            if happened.len() >= room {
                break;
            }
            let entry_lines = plain::lines(entry, width);
            happened.extend(entry_lines.into_iter().rev().map(|line| self.highlight(entry, &clip(&line, width))));
        }
        happened.truncate(room);
        happened.reverse();
        happened.resize(room, String::new());
        lines.append(&mut happened);
        lines.extend(self.footer.iter().map(|line| self.paint("2", &clip(line, width))));
        lines.truncate(height);
        lines
    }

    fn paint(&self, code: &str, text: &str) -> String {
        // Reverse video is not a color: it keeps the title visible without colors.
        if self.color || code == "7" { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn highlight(&self, entry: &Entry, line: &str) -> String {
        use crate::feed::Source;
        match &entry.item {
            Item::Result(_) => self.paint("1;32", line),
            Item::Fact { source: Source::Demo, .. } => self.paint("1;36", line),
            Item::Fact { source: Source::Manager, .. } => self.paint("33", line),
            _ => line.to_owned(),
        }
    }

    fn nodes(&self, state: &State, width: usize, rows: usize, lines: &mut Vec<String>) {
        let columns = (width / CELL).max(1);
        let all: Vec<&NodeRow> = state.nodes.values().collect();
        let cell = |node: &NodeRow| {
            let (glyph, color, word) = condition(node);
            let route = if node.routed { "route" } else { "" };
            let address = node.address("InternalIP");
            let rest = format!("{} {} {} {route}", pad(&node.name, 9), pad(word, 8), pad(address, 12));
            format!("{} {}", self.paint(color, glyph), pad(&rest, CELL - 2))
        };
        if all.len() <= rows * columns {
            // Filled by column, as `ls` does.
            let height = all.len().div_ceil(columns);
            for row in 0..height {
                let cells = (0..columns).filter_map(|column| all.get(column * height + row)).map(|node| cell(node));
                lines.push(cells.collect::<String>());
            }
            return;
        }
        // Too many: one symbol per node, and text for those with a problem.
        let glyphs: Vec<String> = all
            .iter()
            .map(|node| {
                let (glyph, color, _) = condition(node);
                self.paint(color, glyph)
            })
            .collect();
        let per_line = width.saturating_sub(2).max(1);
        lines.extend(glyphs.chunks(per_line).take(rows - 2).map(|chunk| format!(" {}", chunk.concat())));
        let unwell = all.iter().filter(|node| !node.uninitialized && node.ready == Ready::Unknown);
        lines.extend(unwell.take(2).map(|node| cell(node)));
    }

    fn services(&self, state: &State, width: usize, rows: usize, lines: &mut Vec<String>) {
        for (key, service) in state.services.iter().take(rows) {
            let address = if service.address.is_empty() { "<pending>" } else { &service.address };
            let hosts = state.hosts(key).map_or("no load balancer".to_owned(), |hosts| count(hosts, "host"));
            let marks = match (service.deleting, service.finalizer) {
                (true, _) => "being deleted",
                (_, true) => "finalizer",
                _ => "",
            };
            let line = format!("  Service {} {} {address:<15}  {hosts}  {marks}", pad(key, 14), pad(&service.ports, 8));
            lines.push(clip(&line, width));
        }
    }
}

fn totals(state: &State) -> String {
    let (nodes, calls) = (state.nodes.len(), &state.calls);
    let ready = state.count(|node| node.ready == Ready::True);
    format!(
        "{}, {ready} ready   {}   {} cloud calls (one call per node: {})",
        count(nodes, "node"),
        count(state.routes.len(), "route"),
        calls.all,
        calls.all - calls.batches + calls.asked,
    )
}

/// Symbol, color and word.
fn condition(node: &NodeRow) -> (&'static str, &'static str, &'static str) {
    match node {
        NodeRow { uninitialized: true, .. } => ("○", "33", "tainted"),
        NodeRow { shutdown: true, .. } => ("◌", "35", "stopped"),
        NodeRow { ready: Ready::Unknown, .. } => ("?", "1;31", "Unknown"),
        NodeRow { ready: Ready::True, .. } => ("●", "32", "Ready"),
        _ => ("◐", "36", "starting"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn state(nodes: usize) -> State {
        let row = |i: usize| {
            let name = format!("node-{i:02}");
            (name.clone(), NodeRow { name, ready: Ready::Unknown, ..NodeRow::default() })
        };
        State { nodes: (0..nodes).map(row).collect::<BTreeMap<_, _>>(), ..State::default() }
    }

    #[test]
    fn a_frame_is_never_larger_than_the_screen() {
        let entry = |item| Entry { at: Duration::ZERO, item };
        let long = "word ".repeat(100);
        let mut entries = vec![entry(Item::Act { number: 1, title: "title", text: long.clone() })];
        entries.extend((0..50).map(|_| entry(Item::Result(long.clone()))));
        for size in [(60, 18), (80, 24), (120, 40), (300, 100)] {
            for nodes in [0, 3, 12, 5000] {
                let footer = ["export KUBECONFIG=x".to_owned()];
                let frame = Frame {
                    size,
                    color: false,
                    elapsed: Duration::from_secs(61),
                    acts: 5,
                    footer: &footer,
                    entries: &entries,
                };
                let lines = frame.lines(&state(nodes));
                assert!(lines.len() == size.1, "{size:?} {nodes}: {}", lines.len());
                for line in lines.iter().skip(1) {
                    assert!(line.chars().count() <= size.0, "{size:?} {nodes}: {line}");
                }
                assert_eq!(lines.last().map(String::as_str), Some("export KUBECONFIG=x"));
            }
        }
    }
}
