//! tests/apiserver
