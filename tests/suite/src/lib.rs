//! tests/suite
