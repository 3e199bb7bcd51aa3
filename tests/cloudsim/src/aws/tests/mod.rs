//! The running services over HTTP, and the scene of the load balancers' tests.

mod http;
pub(super) mod scene;
