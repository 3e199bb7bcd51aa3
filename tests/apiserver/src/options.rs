//! Options of a server.

use crate::clock::Clock;
use std::time::Duration;

/// The response to a watch with `sendInitialEvents`, a streaming list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingLists {
    /// As requested.
    #[default]
    Served,
    /// 200 and an ERROR event: etcd cannot report progress (before 3.4.31 and 3.5.13).
    NoProgress,
    /// 422: the feature `WatchList` is disabled.
    Forbidden,
}

/// Options of the server; `Options::default()` is a current API server that keeps the history of a whole test.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of changes of each kind that are kept for watches and old lists.
    pub history: usize,
    /// Seed of the UIDs; random if unset.
    pub seed: Option<u64>,
    /// The clock for time stamps of objects.
    pub clock: Clock,
    /// The interval of bookmarks in watches that allow them.
    pub bookmark_interval: Duration,
    /// The response to streaming lists.
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
