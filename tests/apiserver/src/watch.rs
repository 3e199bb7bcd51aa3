//! Watches: a cursor over the history of a kind. Nothing is queued per watcher, so a slow watcher costs nothing.

use crate::admission;
use crate::error::{ApiError, Cause};
use crate::kind::Kind;
use crate::options::StreamingLists;
use crate::signal::Listener;
use crate::store::{Core, ListOptions, Record, Scope, Snapshot, State, Stored};
use crate::value::set;
use bytes::Bytes;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum number of events that are collected and written to a connection at once.
pub(crate) const BATCH: usize = 256;

/// Kind of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// The object is new to this watch.
    Added,
    /// The object changed.
    Modified,
    /// The object is deleted, or no longer selected.
    Deleted,
    /// Only a version, up to which all events were sent.
    Bookmark,
    /// The watch ends with a `Status`.
    Error,
}

impl EventType {
    /// The name in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// The kind of event.
    pub event: EventType,
    /// The object as JSON.
    pub object: Bytes,
}

impl WatchEvent {
    /// The object as a JSON value.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_slice(&self.object).unwrap_or_default()
    }
}

/// An open watch.
#[derive(Debug)]
pub struct Watch {
    core: Arc<Core>,
    kind: &'static Kind,
    scope: Scope,
    /// The version up to which all changes have been processed.
    cursor: u64,
    signal: Listener,
    ready: VecDeque<WatchEvent>,
    bookmarks: bool,
    ended: bool,
}

impl Watch {
    /// Opens a watch; `view` is the initial state of a stale cache. An error after the parameters were accepted becomes
    /// the first event of the watch, an ERROR.
    pub(crate) fn open(
        core: &Arc<Core>,
        kind: &'static Kind,
        options: &ListOptions,
        view: Option<&Snapshot>,
    ) -> Result<Watch, ApiError> {
        let scope = options.scope(kind)?;
        check_initial(core, options)?;
        let asked = crate::store::parse_version(&options.resource_version)?;
        let state = core.lock();
        let signal = state.of(kind).signal.listen();
        let mut watch = Watch {
            core: Arc::clone(core),
            kind,
            scope,
            cursor: 0,
            signal,
            ready: VecDeque::new(),
            bookmarks: options.allow_bookmarks,
            ended: false,
        };
        let streaming = options.send_initial_events == Some(true);
        let newest = view.map_or(state.version, |view| view.version);
        match asked {
            _ if streaming && core.options.streaming_lists == StreamingLists::NoProgress => {
                watch.fail(&ApiError::no_progress());
            }
            Some(asked) if streaming && asked > newest => watch.fail(&ApiError::too_large(asked, newest)),
            Some(asked) if asked > 0 && !streaming => {
                watch.cursor = asked;
                if asked < state.of(kind).floor {
                    watch.fail(&crate::store::too_old(asked, &state, kind));
                }
            }
            _ if options.send_initial_events == Some(false) => watch.cursor = state.version,
            _ => watch.begin_with_objects(&state, view, streaming),
        }
        drop(state);
        Ok(watch)
    }

    fn fail(&mut self, error: &ApiError) {
        let object = error.to_status().to_string().into();
        self.ready.push_back(WatchEvent { event: EventType::Error, object });
        self.ended = true;
    }

    fn begin_with_objects(&mut self, state: &State, view: Option<&Snapshot>, streaming: bool) {
        let (objects, version) = match view {
            Some(view) => (&view.objects, view.version),
            None => (&state.of(self.kind).objects, state.version),
        };
        for stored in objects.values().filter(|stored| stored.matches(&self.scope)) {
            self.ready.push_back(WatchEvent { event: EventType::Added, object: stored.bytes.clone() });
        }
        self.cursor = version;
        if streaming && self.bookmarks {
            let end = bookmark(self.kind, version, true);
            self.ready.push_back(end);
        }
    }

    /// The next event; `None` after the watch has ended.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.signal.changed().await;
        }
    }

    /// The next event, if one is available.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        if self.ready.is_empty() && !self.ended {
            self.collect();
        }
        self.ready.pop_front()
    }

    /// Whether the watch has ended and all events are read.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// A bookmark at the current version of this watch, if it allows bookmarks and no event is pending. A watch from a
    /// future version gets none.
    pub(crate) fn bookmark(&mut self) -> Option<WatchEvent> {
        if !self.bookmarks || self.ended {
            return None;
        }
        self.collect();
        if self.cursor > self.core.lock().version {
            return None;
        }
        if self.ready.is_empty() { Some(bookmark(self.kind, self.cursor, false)) } else { self.ready.pop_front() }
    }

    /// Resolves when something may have changed.
    pub(crate) async fn changed(&mut self) {
        self.signal.changed().await;
    }

    /// Advances the cursor until enough events are ready or the end is reached.
    fn collect(&mut self) {
        self.signal.catch_up();
        let core = Arc::clone(&self.core);
        let state = core.lock();
        let collection = state.of(self.kind);
        if self.cursor < collection.dropped {
            self.fail(&crate::store::too_old(self.cursor, &state, self.kind));
            return;
        }
        let seen = self.cursor;
        let first = collection.history.partition_point(|record| record.version <= seen);
        for record in collection.history.range(first..) {
            self.cursor = record.version;
            self.ready.extend(translate(record, &self.scope));
            if self.ready.len() >= BATCH {
                return;
            }
        }
        self.cursor = self.cursor.max(state.version);
    }
}

fn check_initial(core: &Core, options: &ListOptions) -> Result<(), ApiError> {
    let refuse = |causes: &[Cause]| Err(ApiError::invalid_options(causes));
    let matching = options.resource_version_match.as_str();
    match options.send_initial_events {
        None if !matching.is_empty() => refuse(&[Cause::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )]),
        None => Ok(()),
        Some(_) if matching != "NotOlderThan" => {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let mut causes = vec![Cause::forbidden("resourceVersionMatch", detail)];
            if !matching.is_empty() {
                causes.push(Cause::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
            }
            refuse(&causes)
        }
        Some(_) if core.options.streaming_lists == StreamingLists::Forbidden => {
            let detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            refuse(&[Cause::forbidden("sendInitialEvents", detail)])
        }
        Some(_) => Ok(()),
    }
}

/// The event of a record for a watch with this scope.
fn translate(record: &Record, scope: &Scope) -> Option<WatchEvent> {
    let now = !record.deleted && record.object.matches(scope);
    let before = record.previous.as_ref().filter(|previous| previous.matches(scope));
    let (event, object) = match (before, now) {
        (None, false) => return None,
        (None, true) => (EventType::Added, record.object.bytes.clone()),
        (Some(_), true) => (EventType::Modified, record.object.bytes.clone()),
        (Some(_), false) if record.deleted => (EventType::Deleted, record.object.bytes.clone()),
        // No longer selected: the last selected state, with the version of the change.
        (Some(last), false) => (EventType::Deleted, Stored::new(last.kind, last.value(), record.version).bytes),
    };
    Some(WatchEvent { event, object })
}

fn bookmark(kind: &'static Kind, version: u64, initial_end: bool) -> WatchEvent {
    let mut object = admission::empty_shape(kind);
    if initial_end {
        set(&mut object, "/metadata/annotations", json!({"k8s.io/initial-events-end": "true"}));
    }
    WatchEvent { event: EventType::Bookmark, object: Stored::new(kind, object, version).bytes }
}
