//! The log of client requests: complete writes, and counts of all requests.
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

/// The maximum number of writes to keep; the oldest are dropped.
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
    /// The body as sent; null if there was none.
    pub body: Value,
    /// HTTP status of the response; if a fault dropped the response, its status.
    pub status: u16,
}

/// The key of the request counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// Plural name of the resource, or the path of a request without one.
    pub resource: String,
    /// HTTP status of the response; 0 if there was none.
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
        let mut writes = self.writes.lock();
        if writes.len() == LIMIT {
            writes.pop_front();
        }
        writes.push_back(entry);
    }

    pub(crate) fn count(&self, verb: &str, resource: &str, status: u16) {
        let key = CountKey { verb: verb.to_owned(), resource: resource.to_owned(), status };
        *self.counts.lock().entry(key).or_default() += 1;
    }

    /// All writes since the last [`RequestLog::clear`], including in-process ones.
    pub fn writes(&self) -> Vec<WriteEntry> {
        self.writes.lock().iter().cloned().collect()
    }

    /// The writes received over HTTP.
    pub fn remote_writes(&self) -> Vec<WriteEntry> {
        self.writes().into_iter().filter(|entry| entry.user_agent != crate::IN_PROCESS).collect()
    }

    /// HTTP requests by verb, resource and status.
    pub fn counts(&self) -> BTreeMap<CountKey, u64> {
        self.counts.lock().clone()
    }

    /// HTTP requests with this verb on this resource, with any response.
    pub fn count_of(&self, verb: &str, resource: &str) -> u64 {
        self.counts().iter().filter(|(key, _)| key.verb == verb && key.resource == resource).map(|(_, n)| n).sum()
    }

    /// Clears writes and counts.
    pub fn clear(&self) {
        self.writes.lock().clear();
        self.counts.lock().clear();
    }
}
