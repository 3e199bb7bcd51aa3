//! The body of a watch.

use super::reply::{Body, Closed, Reply, with_body};
use crate::fair::Receiver;
use crate::faults::{Control, Faults};
use crate::kind::Kind;
use crate::table;
use crate::watch::{EventType, Watch, WatchEvent};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::time::Duration;
use tokio::time::Instant;

/// What a request and its faults say about a watch beyond what it selects.
pub(super) struct Shape {
    pub(super) timeout: Option<Duration>,
    pub(super) bookmark_interval: Duration,
    pub(super) batch: usize,
    pub(super) as_table: bool,
    pub(super) end_after: Option<(u64, bool)>,
}

struct State {
    watch: Watch,
    kind: &'static Kind,
    control: Receiver<Control>,
    drops: u64,
    deadline: Option<Instant>,
    next_bookmark: Instant,
    shape: Shape,
    first_table: bool,
    over: bool,
}

/// The answer to a watch.
pub(super) fn reply(watch: Watch, kind: &'static Kind, faults: &Faults, shape: Shape) -> Reply {
    let control = faults.control();
    let drops = control.borrow().drops.get(kind.index).copied().unwrap_or_default();
    let now = Instant::now();
    let state = State {
        watch,
        kind,
        control,
        drops,
        deadline: shape.timeout.map(|timeout| now + timeout),
        next_bookmark: now + shape.bookmark_interval,
        shape,
        first_table: true,
        over: false,
    };
    let frames = stream::unfold(state, |mut state| async move {
        let frame = state.next().await?;
        Some((frame.map(Frame::data), state))
    });
    let body: Body = BodyExt::boxed_unsync(StreamBody::new(frames));
    with_body(200, "application/json", body)
}

impl State {
    async fn next(&mut self) -> Option<Result<Bytes, Closed>> {
        loop {
            if self.over || self.is_dropped() || self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return None;
            }
            if let Some((0, abrupt)) = self.shape.end_after {
                self.over = true;
                // Pausing once lets the connection write out what was delivered before it breaks.
                tokio::task::yield_now().await;
                return abrupt.then_some(Err(Closed));
            }
            if !self.is_frozen() {
                if let Some(chunk) = self.chunk() {
                    return Some(Ok(chunk));
                }
                if self.watch.is_over() {
                    return None;
                }
            }
            self.wait().await;
        }
    }

    fn is_frozen(&self) -> bool {
        self.control.borrow().frozen.get(self.kind.index).copied().unwrap_or_default()
    }

    fn is_dropped(&self) -> bool {
        self.control.borrow().drops.get(self.kind.index).copied().unwrap_or_default() != self.drops
    }

    /// What can be written now.
    fn chunk(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        for _ in 0..self.shape.batch.max(1) {
            if let Some((left, _)) = &mut self.shape.end_after {
                let Some(fewer) = left.checked_sub(1) else { break };
                *left = fewer;
            }
            match self.watch.try_next() {
                Some(event) => self.put(&mut chunk, &event),
                None => {
                    // Nothing was delivered, so nothing counts.
                    if let Some((left, _)) = &mut self.shape.end_after {
                        *left += 1;
                    }
                    break;
                }
            }
        }
        if chunk.is_empty() && self.next_bookmark <= Instant::now() {
            self.next_bookmark = Instant::now() + self.shape.bookmark_interval;
            if let Some(event) = self.watch.bookmark() {
                self.put(&mut chunk, &event);
            }
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    fn put(&mut self, chunk: &mut BytesMut, event: &WatchEvent) {
        chunk.put_slice(format!("{{\"type\":\"{}\",\"object\":", event.event.as_str()).as_bytes());
        if self.shape.as_table && !matches!(event.event, EventType::Error) {
            let headed = std::mem::take(&mut self.first_table);
            chunk.put_slice(table::event(self.kind, event, headed).to_string().as_bytes());
        } else {
            chunk.put_slice(&event.object);
        }
        chunk.put_slice(b"}\n");
    }

    async fn wait(&mut self) {
        let frozen = self.is_frozen();
        let deadline = self.deadline;
        let until_deadline = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.watch.changed(), if !frozen => {}
            changed = self.control.changed() => {
                // The switches live as long as the server; without them there is nothing to serve.
                self.over |= changed.is_err();
            }
            () = until_deadline => {}
            () = tokio::time::sleep_until(self.next_bookmark), if !frozen => {}
        }
    }
}
