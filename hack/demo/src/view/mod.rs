//! The output for users.

pub(crate) mod live;
mod plain;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use self::live::{Frame, SMALLEST, Screen};
use crate::feed::Feed;
use crate::world::World;

/// Interval of frames, or of polls for new lines.
const FRAME: Duration = Duration::from_millis(100);
/// Maximum line length, for readability.
const WIDTH: usize = 110;
/// The number of past items in a frame.
const BACK: usize = 100;

/// Whether the output can show a live view.
pub(crate) fn is_terminal() -> bool {
    let capable = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
    io::stdout().is_terminal() && capable && size().0 >= SMALLEST.0 && size().1 >= SMALLEST.1
}

/// Columns and rows.
fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()))
}

/// Width of paragraphs, on a terminal and elsewhere.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0).clamp(40, WIDTH))
}

/// The view; runs in the background until [`View::end`].
pub(crate) struct View {
    feed: Arc<Feed>,
    task: tokio::task::JoinHandle<()>,
    screen: Option<Arc<Screen>>,
}

impl View {
    /// Shows new items, on a screen or as a log. `footer` is at the bottom of the screen.
    pub(crate) fn start(
        live: bool,
        feed: &Arc<Feed>,
        world: &Arc<World>,
        acts: usize,
        footer: Vec<String>,
    ) -> io::Result<Self> {
        let screen = if live { Some(Arc::new(Screen::take()?)) } else { None };
        let task = match screen.clone() {
            Some(screen) => tokio::spawn(draw(screen, feed.clone(), world.clone(), acts, footer)),
            None => tokio::spawn(print(feed.clone())),
        };
        Ok(Self { feed: feed.clone(), task, screen })
    }

    /// Shows the remaining items and restores the terminal.
    pub(crate) async fn end(self) {
        self.task.abort();
        let _aborted = self.task.await;
        match self.screen {
            Some(screen) => drop(screen),
            // The reader has closed: ignore the error.
            None => drop(plain::print(&mut io::stdout().lock(), width(), &self.feed.take(true))),
        }
    }
}

async fn print(feed: Arc<Feed>) {
    loop {
        if plain::print(&mut io::stdout().lock(), width(), &feed.take(false)).is_err() {
            return;
        }
        tokio::time::sleep(FRAME).await;
    }
}

async fn draw(screen: Arc<Screen>, feed: Arc<Feed>, world: Arc<World>, acts: usize, footer: Vec<String>) {
    let color = std::env::var("NO_COLOR").is_ok_and(|no| !no.is_empty());
    loop {
        let entries = feed.last(BACK);
        let frame =
            Frame { size: size(), color: !color, elapsed: feed.elapsed(), acts, footer: &footer, entries: &entries };
        let lines = world.look(|state| frame.lines(state));
        if screen.draw(&lines).is_err() {
            return;
        }
        tokio::time::sleep(FRAME).await;
    }
}

/// Prints a line outside any view; a closed pipe is not an error.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _closed = writeln!(out, "{text}").and_then(|()| out.flush());
}
