//! What can be chosen when a server starts.

use crate::clock::Clock;
use std::time::Duration;

/// How a watch with `sendInitialEvents`, a streaming list, is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingLists {
    /// As asked.
    #[default]
    Served,
    /// With 200 and an ERROR event: the etcd below cannot report progress (before 3.4.31 and 3.5.13).
    NoProgress,
    /// With 422: the feature `WatchList` is off.
    Forbidden,
}

/// How the server behaves; `Options::default()` is a current API server that forgets nothing during a test.
#[derive(Debug, Clone)]
pub struct Options {
    /// Port on 127.0.0.1; 0 takes any.
    pub port: u16,
    /// When set, requests without this bearer token get 401.
    pub token: Option<String>,
    /// How many changes of each kind are kept for watches and old lists.
    pub history: usize,
    /// Seeds uids and generated names; random when unset.
    pub seed: Option<u64>,
    /// The time on objects.
    pub clock: Clock,
    /// How often a watch that allows bookmarks gets one.
    pub bookmark_interval: Duration,
    /// How streaming lists are answered.
    pub streaming_lists: StreamingLists,
    /// Whether Services can have two address families.
    pub dual_stack: bool,
    /// How many events an HTTP watch writes at once, at most.
    pub watch_batch: usize,
    /// Whether the log keeps the bodies of writes: off for long runs with large objects.
    pub log_bodies: bool,
    /// How many writes the log keeps; the oldest go first.
    pub log_limit: usize,
    /// What `/version` says.
    pub version: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            port: 0,
            token: None,
            history: 100_000,
            seed: None,
            clock: Clock::default(),
            bookmark_interval: Duration::from_secs(60),
            streaming_lists: StreamingLists::Served,
            dual_stack: false,
            watch_batch: 256,
            log_bodies: true,
            log_limit: 200_000,
            version: "v1.36.3".to_owned(),
        }
    }
}
