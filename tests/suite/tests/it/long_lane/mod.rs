//! Tests that take minutes.

mod chaos;
