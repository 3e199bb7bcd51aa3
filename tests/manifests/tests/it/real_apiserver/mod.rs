//! The manifests on the real API server.

mod accepted;
mod least_privilege;
mod metrics;
