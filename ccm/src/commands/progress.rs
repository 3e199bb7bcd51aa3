//! Prints on stderr the current operation of a command that takes longer than a second.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// The delay of the first line, and the interval of further lines if lines cannot be overwritten.
const SOON: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10);

/// The current operation of a command. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    at: watch::Sender<String>,
    terminal: bool,
    _printer: AbortOnDropHandle<()>,
}

impl Progress {
    /// Starts with this operation; must be called within a runtime.
    pub(crate) fn at(what: impl Into<String>) -> Self {
        let (at, seen) = watch::channel(what.into());
        let terminal = std::io::stderr().is_terminal();
        Self { at, terminal, _printer: AbortOnDropHandle::new(tokio::spawn(print(seen, terminal))) }
    }

    pub(crate) fn go_on(&self, what: impl Into<String>) {
        self.at.send_replace(what.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            // Clears the line, so that only the result remains.
            drop(write!(std::io::stderr(), "\r\u{1b}[K"));
        }
    }
}

async fn print(mut seen: watch::Receiver<String>, terminal: bool) {
    let began = Instant::now();
    tokio::time::sleep(SOON).await;
    loop {
        let what = seen.borrow_and_update().clone();
        let took = began.elapsed().as_secs();
        let mut err = std::io::stderr();
        // A write error cannot be reported.
        drop(match terminal {
            true => write!(err, "\r\u{1b}[K{what} … {took}s").and_then(|()| err.flush()),
            false => writeln!(err, "{what} … {took}s"),
        });
        let pause = if terminal { SOON } else { AGAIN };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = seen.changed() => if changed.is_err() {
                return;
            },
        }
    }
}
