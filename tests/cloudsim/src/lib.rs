//! Simulated clouds, spoken to over HTTP with the vendors' own protocols.
//!
//! Each cloud is a set of pure handlers over one owned world; [`core`] holds what they share: the virtual clock, the fault
//! injector, the throttles, the ledger of calls and the HTTP servers. What the vendors do not document is marked
//! `unverified` where it is decided: no test should assert on it.

pub mod aws;
pub mod core;
pub mod gce;
pub mod moto;
pub mod openstack;
