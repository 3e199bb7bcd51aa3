//! A stream with its own writer thread, so that a slow reader blocks nothing.

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The maximum number of buffered bytes. Errors and warnings may use twice as much, so that a flood of information does
/// not displace them.
const ROOM: usize = 1 << 20;
/// The delay before a retry of a full non-blocking stream.
const RETRY: Duration = Duration::from_millis(10);

/// The limits of buffering.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Entries are buffered until they have this many bytes …
    pub(super) hold: usize,
    /// … or the oldest has this age.
    pub(super) flush: Duration,
}

#[derive(Debug)]
pub(super) struct Stream {
    state: Mutex<State>,
    wake: Condvar,
    written: Condvar,
    pace: Pace,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    since: Option<Instant>,
    dropped: u64,
    writing: bool,
    /// A flush is waiting: write without delay.
    flushing: bool,
}

impl Stream {
    /// Starts the thread. `notice` creates the entry with the number of dropped entries.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created.
    pub(super) fn start(
        to: impl Write + Send + 'static,
        pace: Pace,
        notice: impl Fn(u64) -> String + Send + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let (state, wake, written) = (Mutex::default(), Condvar::new(), Condvar::new());
        let stream = Arc::new(Self { state, wake, written, pace });
        let writer = stream.clone();
        // Untouched pages cost nothing. 64 KiB are too few for the allocator's first use in a thread.
        std::thread::Builder::new().name("log".into()).stack_size(512 << 10).spawn(move || writer.run(to, notice))?;
        Ok(stream)
    }

    /// Accepts an entry; never blocks. If the buffer is full, the entry is counted and dropped.
    pub(super) fn push(&self, line: &[u8], important: bool) {
        let mut state = self.state.lock();
        let room = (ROOM << u32::from(important)).max(self.pace.hold);
        // An entry larger than the buffer is accepted if the buffer is empty.
        if state.waiting.is_empty() || state.waiting.len() + line.len() <= room {
            state.waiting.extend_from_slice(line);
        } else {
            state.dropped += 1;
        }
        let first = state.since.is_none();
        state.since.get_or_insert_with(Instant::now);
        if first || state.waiting.len() >= self.pace.hold {
            self.wake.notify_one();
        }
    }

    /// Waits until all accepted entries are written, at most `limit`. True if they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let mut state = self.state.lock();
        state.flushing = true;
        self.wake.notify_one();
        self.written.wait_while_for(&mut state, |state| state.writing || !state.is_empty(), limit);
        state.flushing = false;
        !state.writing && state.is_empty()
    }

    fn run(&self, mut to: impl Write, notice: impl Fn(u64) -> String) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.due();
            std::mem::swap(&mut batch, &mut state.waiting);
            let dropped = std::mem::take(&mut state.dropped);
            state.since = None;
            state.writing = true;
            drop(state);
            if dropped > 0 {
                batch.extend_from_slice(notice(dropped).as_bytes());
            }
            write_all(&mut to, &batch);
            batch.clear();
            // The memory of a burst must not be kept forever.
            batch.shrink_to(16 << 10);
            self.state.lock().writing = false;
            self.written.notify_all();
        }
    }

    /// Waits until something must be written.
    fn due(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        loop {
            let oldest = state.since.map_or(Duration::ZERO, |since| since.elapsed());
            let held = state.waiting.len() < self.pace.hold && oldest < self.pace.flush && !state.flushing;
            if !state.is_empty() && !held {
                return state;
            }
            if state.is_empty() {
                self.wake.wait(&mut state);
            } else {
                self.wake.wait_for(&mut state, self.pace.flush.saturating_sub(oldest));
            }
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0
    }
}

/// Writes all, or as much as the stream accepts before a permanent error, which cannot be reported.
fn write_all(to: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(count) if count > 0 => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(RETRY),
            _ => return,
        }
    }
    // As above, an error cannot be reported.
    let _ = to.flush();
}
