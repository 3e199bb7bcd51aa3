//! Options of a server.

use crate::clock::Clock;
use std::time::Duration;

/// How a watch with `sendInitialEvents`, a streaming list, is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingLists {
    /// As requested.
    #[default]
    Served,
    /// With 200 and an ERROR event: the etcd below cannot report progress (before 3.4.31 and 3.5.13).
    NoProgress,
    /// With 422: the feature `WatchList` is off.
    Forbidden,
}

/// Options of the server; `Options::default()` is a current API server that keeps the history of a whole test.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of changes of each kind that are kept for watches and old lists.
    pub history: usize,
    /// Seeds uids; random when unset.
    pub seed: Option<u64>,
    /// The time on objects.
    pub clock: Clock,
    /// How often a watch that allows bookmarks gets one.
    pub bookmark_interval: Duration,
    /// How streaming lists are answered.
    pub streaming_lists: StreamingLists,
    /// Whether Services can have two address families.
    pub dual_stack: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            history: 100_000,
            seed: None,
            clock: Clock::default(),
            bookmark_interval: Duration::from_secs(60),
            streaming_lists: StreamingLists::Served,
            dual_stack: false,
        }
    }
}
