//! The requests of clients: every write in full, everything as counts.

use crate::lock;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

/// How many writes are kept; the oldest go first.
const LIMIT: usize = 200_000;

/// One write request.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteEntry {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// `status` or empty.
    pub subresource: String,
    /// `User-Agent`, or [`crate::IN_PROCESS`].
    pub user_agent: String,
    /// `Content-Type` of the request; empty for in-process ones.
    pub content_type: String,
    /// The body as sent; null when there was none.
    pub body: Value,
    /// HTTP status of the answer; if a fault dropped the answer, the status that it had.
    pub status: u16,
}

/// The key of the request counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// Plural name of the resource, or the path of a request without one.
    pub resource: String,
    /// HTTP status of the answer; 0 when there was none.
    pub status: u16,
}

/// The log of requests.
#[derive(Debug, Default)]
pub struct RequestLog {
    writes: Mutex<VecDeque<WriteEntry>>,
    counts: Mutex<BTreeMap<CountKey, u64>>,
}

impl RequestLog {
    pub(crate) fn write(&self, entry: WriteEntry) {
        let mut writes = lock(&self.writes);
        if writes.len() == LIMIT {
            writes.pop_front();
        }
        writes.push_back(entry);
    }

    pub(crate) fn count(&self, verb: &str, resource: &str, status: u16) {
        let key = CountKey { verb: verb.to_owned(), resource: resource.to_owned(), status };
        *lock(&self.counts).entry(key).or_default() += 1;
    }

    /// Every write since the last [`RequestLog::clear`], in-process ones included.
    pub fn writes(&self) -> Vec<WriteEntry> {
        lock(&self.writes).iter().cloned().collect()
    }

    /// The writes that came over HTTP.
    pub fn remote_writes(&self) -> Vec<WriteEntry> {
        self.writes().into_iter().filter(|entry| entry.user_agent != crate::IN_PROCESS).collect()
    }

    /// HTTP requests by verb, resource and status.
    pub fn counts(&self) -> BTreeMap<CountKey, u64> {
        lock(&self.counts).clone()
    }

    /// HTTP requests of this verb on this resource, with any answer.
    pub fn count_of(&self, verb: &str, resource: &str) -> u64 {
        self.counts().iter().filter(|(key, _)| key.verb == verb && key.resource == resource).map(|(_, n)| n).sum()
    }

    /// Forgets writes and counts.
    pub fn clear(&self) {
        lock(&self.writes).clear();
        lock(&self.counts).clear();
    }
}
