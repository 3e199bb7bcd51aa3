//! Simulated clouds that implement the vendors' own protocols over HTTP.
//!
//! Each cloud is a set of pure handlers over one owned state; [`core`] has the common parts: the virtual clock, the
//! fault injector, the throttles, the ledger of calls and the HTTP servers. Behavior that the vendors do not document
//! is marked `unverified` in the code: no test may rely on it.

pub mod aws;
pub mod azure;
mod cache;
pub mod core;
pub mod gce;
pub mod moto;
pub mod openstack;
