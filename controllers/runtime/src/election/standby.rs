//! Waiting for a lease that another process holds.
//!
//! The watch is only a hint that wakes the candidate early: it reads the Lease again before it writes. Roles for
//! upstream allow no watch on leases; then the candidate only polls, as upstream does.

use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Candidate, Lease};
use crate::client::ApiError;

/// The duration of a watch before it is opened again.
const WATCH_TIME: Duration = Duration::from_secs(300);
/// Pause after a 403 for the watch; roles change rarely.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(600);
/// Maximum size of a Lease.
const MAX_LINE: usize = 1 << 20;

/// A watch of the Lease, or the time before which no watch is opened.
#[derive(Default)]
pub(super) struct Watch {
    open: Option<Open>,
    not_before: Option<Instant>,
}

type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

struct Open {
    // Never locked: the mutex only makes the type `Sync`, so that the election can run on any thread.
    frames: Mutex<Frames>,
    buffer: Vec<u8>,
    until: Instant,
}

enum Seen {
    Changed(Lease),
    Deleted,
    Ended(Option<ApiError>),
}

impl Open {
    /// Cancel-safe.
    async fn next(&mut self) -> Seen {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(event) => return read_event(event),
                    Err(_) => return Seen::Ended(None),
                }
            }
            match self.frames.get_mut().next().await {
                Some(Ok(frame)) if self.buffer.len() + frame.len() <= MAX_LINE => self.buffer.extend_from_slice(&frame),
                Some(Err(error)) => return Seen::Ended(Some(error)),
                Some(Ok(_)) | None => return Seen::Ended(None),
            }
        }
    }
}

fn read_event(mut event: Value) -> Seen {
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    match (event.get("type").and_then(Value::as_str), Lease::from_value(object)) {
        (Some("ADDED" | "MODIFIED"), Some(lease)) => Seen::Changed(lease),
        (Some("DELETED"), _) => Seen::Deleted,
        _ => Seen::Ended(None),
    }
}

impl Candidate {
    /// Waits for the next attempt: until the pause is over, the foreign lease has expired, or it was released.
    pub(super) async fn stand_by(&mut self, pause: Duration) {
        let poll = self.now() + pause;
        let waiting_since = self.now();
        self.open_watch();
        let (leadership, release) = (self.parts.leadership.clone(), self.parts.release.clone());
        loop {
            // A lease that had already expired before the last attempt is no reason to retry early.
            let expiry = self.foreign_until().filter(|until| *until > waiting_since);
            let wake = expiry.map_or(poll, |expiry| expiry.min(poll));
            let seen = tokio::select! {
                biased;
                () = release.cancelled() => return,
                () = leadership.ended() => return,
                () = tokio::time::sleep(wake.saturating_duration_since(self.parts.clock.now())) => return,
                seen = next(&mut self.watch.open) => seen,
            };
            match seen {
                Seen::Changed(lease) => {
                    self.observe(lease);
                    if self.foreign_until().is_none() {
                        return;
                    }
                }
                Seen::Deleted => return,
                Seen::Ended(error) => self.end_watch(error.as_ref()),
            }
        }
    }

    /// Prepares the watch; the first wait for a change opens the connection.
    fn open_watch(&mut self) {
        let now = self.now();
        if self.watch.open.as_ref().is_some_and(|open| open.until <= now) {
            self.watch.open = None;
        }
        let Some(observed) = &self.observed else { return };
        if self.watch.open.is_some() || self.watch.not_before.is_some_and(|moment| now < moment) {
            return;
        }
        let (client, call) = self.leases.watch(observed.lease.version(), WATCH_TIME);
        let opening = async move { client.stream(&call).await };
        let frames: Frames = Box::pin(futures::stream::once(opening).try_flatten());
        let frames = Mutex::new(frames);
        // The server ends a watch by itself; a silently dead connection must end here.
        self.watch.open = Some(Open { frames, buffer: Vec::new(), until: now + WATCH_TIME + WATCH_TIME / 10 });
    }

    fn end_watch(&mut self, error: Option<&ApiError>) {
        let forbidden = matches!(error, Some(ApiError::Status { code: 401 | 403 | 404 | 405, .. }));
        let pause = if forbidden { FORBIDDEN_PAUSE } else { Duration::ZERO };
        self.watch = Watch { open: None, not_before: Some(self.now() + pause) };
        if let Some(error) = error {
            tracing::debug!(lease = self.leases.label(), %error, "the lease is not watched but polled");
        }
    }
}

async fn next(open: &mut Option<Open>) -> Seen {
    match open {
        Some(open) => open.next().await,
        None => std::future::pending().await,
    }
}
