//! The bed itself, on a real API server.

mod real_apiserver;
