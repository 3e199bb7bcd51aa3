//! The program as a process: arguments, exit codes, connections, invalid input.
// Helpers of tests fail by panicking, like the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bad_input;
mod completion;
mod connect;
mod credentials;
mod drift;
mod explain;
mod flags;
mod https;
mod kubeconfig;
mod lint;
mod migrate_check;
mod orphans;
mod plan;
mod plugin;
mod process;
mod reach;
mod relay;
mod scene;
mod secrets;
mod serving;
mod serving_cluster;
mod snapshot;
mod start;
mod upstream;
mod volumes;
mod webhook;
mod wire;
