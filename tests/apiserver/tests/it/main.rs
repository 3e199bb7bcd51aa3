//! One binary for the integration tests.
