//! The body of a watch.

use super::reply::{Body, Closed, Reply, with_body};
use crate::faults::Faults;
use crate::kind::Kind;
use crate::signal::Listener;
use crate::table::{self, Column};
use crate::watch::{BATCH, EventType, Watch, WatchEvent};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::time::Duration;
use tokio::time::Instant;

/// How a fault ends a watch.
#[derive(Clone)]
pub(super) enum End {
    Regular,
    /// The connection breaks.
    Abrupt,
    /// An ERROR event with this `Status`.
    Error(Bytes),
}

/// The response to a watch while it is sent.
pub(super) struct Stream {
    watch: Watch,
    kind: &'static Kind,
    faults: Faults,
    switched: Listener,
    drops: u64,
    deadline: Option<Instant>,
    bookmark_interval: Duration,
    next_bookmark: Instant,
    /// The columns of a table, if the objects are sent as one.
    columns: Option<&'static [Column]>,
    first_table: bool,
    end_after: Option<(u64, End)>,
    over: bool,
}

pub(super) fn reply(stream: Stream) -> Reply {
    let frames = stream::unfold(stream, |mut stream| async move {
        let frame = stream.next().await?;
        Some((frame.map(Frame::data), stream))
    });
    let body: Body = BodyExt::boxed_unsync(StreamBody::new(frames));
    with_body(200, "application/json", body)
}

impl Stream {
    pub(super) fn new(
        watch: Watch,
        kind: &'static Kind,
        faults: &Faults,
        timeout: Option<Duration>,
        bookmark_interval: Duration,
        columns: Option<&'static [Column]>,
        end_after: Option<(u64, End)>,
    ) -> Stream {
        let (now, switched, drops) = (Instant::now(), faults.switched.listen(), faults.drops(kind));
        let (deadline, next_bookmark) = (timeout.map(|timeout| now + timeout), now + bookmark_interval);
        let (faults, first_table, over) = (faults.clone(), true, false);
        Stream {
            watch,
            kind,
            faults,
            switched,
            drops,
            deadline,
            bookmark_interval,
            next_bookmark,
            columns,
            first_table,
            end_after,
            over,
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, Closed>> {
        loop {
            if self.over
                || self.faults.drops(self.kind) != self.drops
                || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
            {
                return None;
            }
            if let Some((0, end)) = &self.end_after {
                let end = end.clone();
                self.over = true;
                // One pause lets the connection flush the delivered events before it breaks.
                tokio::task::yield_now().await;
                return match end {
                    End::Regular => None,
                    End::Abrupt => Some(Err(Closed)),
                    End::Error(object) => {
                        let mut chunk = BytesMut::new();
                        self.put(&mut chunk, &WatchEvent { event: EventType::Error, object });
                        Some(Ok(chunk.freeze()))
                    }
                };
            }
            if !self.faults.is_frozen(self.kind) {
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

    /// The bytes that can be written now.
    fn chunk(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        for _ in 0..BATCH {
            if matches!(self.end_after, Some((0, _))) {
                break;
            }
            let Some(event) = self.watch.try_next() else { break };
            if let Some((left, _)) = &mut self.end_after {
                *left -= 1;
            }
            self.put(&mut chunk, &event);
        }
        if chunk.is_empty() && self.next_bookmark <= Instant::now() {
            self.next_bookmark = Instant::now() + self.bookmark_interval;
            if let Some(event) = self.watch.bookmark() {
                self.put(&mut chunk, &event);
            }
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    fn put(&mut self, chunk: &mut BytesMut, event: &WatchEvent) {
        chunk.put_slice(format!("{{\"type\":\"{}\",\"object\":", event.event.as_str()).as_bytes());
        match self.columns {
            Some(columns) if event.event != EventType::Error => {
                let headed = std::mem::take(&mut self.first_table);
                chunk.put_slice(table::event(columns, event, headed).to_string().as_bytes());
            }
            _ => chunk.put_slice(&event.object),
        }
        chunk.put_slice(b"}\n");
    }

    async fn wait(&mut self) {
        let frozen = self.faults.is_frozen(self.kind);
        let deadline = self.deadline;
        let until_deadline = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.watch.changed(), if !frozen => {}
            () = self.switched.changed() => {}
            () = until_deadline => {}
            () = tokio::time::sleep_until(self.next_bookmark), if !frozen => {}
        }
    }
}
