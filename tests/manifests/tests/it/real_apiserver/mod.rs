//! The manifests on the real API server.

mod accepted;
mod field_roles;
mod least_privilege;
mod metrics;
mod trial;
mod way_back;
