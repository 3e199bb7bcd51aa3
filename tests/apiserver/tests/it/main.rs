//! One binary for the integration tests: the conformance suite, run against the in-memory server and a real one, and
//! tests of features that only the in-memory one has.
//!
//! The modules are `cfg(test)` for the lints that permit panics only in tests.

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
