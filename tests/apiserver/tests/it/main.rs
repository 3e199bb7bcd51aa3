//! One binary for the integration tests: the conformance suite, run against the in-memory server and a real one, and what
//! only the in-memory one can do.
//!
//! The modules are marked as tests for the lints that permit panics in tests only.

#[cfg(test)]
mod api;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod handle;
