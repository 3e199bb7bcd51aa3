//! Scenarios: each test is named after the fact that it shows.

mod nodes;
