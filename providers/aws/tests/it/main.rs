//! The provider against a simulated AWS, over HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bed;
mod certificates;
mod claims;
mod classic;
mod contract;
mod crash;
mod inspect;
mod instances;
mod late;
mod leader;
mod limits;
mod matrix;
mod mistakes;
mod moves;
mod network;
mod parts;
mod permissions;
mod policies;
mod ranges;
mod security_groups;
mod settings;
mod shared_rules;
mod simulation;
mod snapshot;
mod tagging;
mod takeover;
mod unanswered;
