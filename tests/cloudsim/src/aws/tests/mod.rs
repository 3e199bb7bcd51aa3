//! The running services over HTTP, and the fixture of the load balancer tests.

mod http;
pub(super) mod scene;
