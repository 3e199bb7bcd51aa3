//! An in-memory Kubernetes API for tests and the demo.
//!
//! It serves the kinds that a cloud controller manager reads and writes, with the relevant semantics: versions and
//! conflicts, watches that expire, status as a separate subresource, merge and strategic merge patches, finalizers,
//! allocated addresses and ports of Services. [`RequestLog`] records the requests; [`Faults`] injects failures.
//!
//! It is *not* an API server: it has no authorization, no field ownership and no garbage collection; it rejects
//! unimplemented requests with a 4xx or 501. The conformance suite runs against this server and a real one.
//!
//! ```
//! use ccm_test_apiserver::{ApiServer, Fault, Match, Options};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let server = ApiServer::start(Options::default()).await.unwrap();
//! server.store().create("nodes", "", json!({"metadata": {"name": "a"}})).unwrap();
//! server.faults().add(Fault::too_many_requests(1).on(Match::on("list", "nodes")).times(2));
//! // … point a client at server.url() …
//! assert_eq!(server.store().log().remote_writes(), []);
//! server.stop().await;
//! # });
//! ```

mod admission;
mod clock;
mod discovery;
mod error;
mod faults;
mod http;
mod kind;
mod log;
mod options;
mod patch;
mod schema;
mod selector;
mod server;
mod signal;
mod store;
mod table;
mod value;
mod watch;

pub use clock::Clock;
pub use error::ApiError;
pub use faults::{Effect, Fault, FaultId, Faults, Match};
pub use http::{Body, Closed, Handler};
pub use log::{CountKey, RequestLog, WriteEntry};
pub use options::{Options, StreamingLists};
pub use patch::Patch;
pub use server::ApiServer;
pub use store::{IN_PROCESS, Store};
pub use watch::{EventType, Watch, WatchEvent};
