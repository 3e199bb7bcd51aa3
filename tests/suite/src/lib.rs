//! The rig of the scenario tests: a Kubernetes API, a cloud and managers in one process.
//!
//! [`Rig::new`] uses no sockets: the in-memory API server answers the manager's client directly, the cloud is the fake
//! provider with a file in a temporary folder, and the manager is the real [`ccm::manager::Manager`] with options from
//! real arguments. With tokio's paused time an hour of the cluster passes in milliseconds. [`Rig::real`] is the same
//! with a real API server, in real time.
//!
//! ```
//! use ccm_test_suite::{Rig, node};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! let rig = Rig::new("instances: [{name: a, type: fake.large}]").await;
//! rig.create(node("a").uninitialized()).await;
//! let manager = rig.start(&[]).await;
//! rig.until_node("a", "initialized", |node| !node.is_uninitialized()).await;
//! assert_eq!(rig.node("a").await.unwrap().provider_id(), "fake://a");
//! manager.stop().await.unwrap();
//! # });
//! ```
//!
//! The helpers panic on failure: they are for tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cloud;
mod manager;
mod network;
mod reloading;
mod rig;

pub use ccm_test_bed::{LONG, Make, Object, Process, deadline, node, service, service_with, tcp_ports, volume};
pub use cloud::Cloud;
pub use manager::Running;
pub use network::Network;
pub use reloading::Reloading;
pub use rig::{Rig, SHORTLY};
