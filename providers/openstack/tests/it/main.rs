//! The provider as a process creates it, from a cloud.conf, over HTTP: on a simulated OpenStack, and on real services
//! in the modules named `real_openstack`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod alone;
mod bed;
mod changes;
mod claims;
mod contract;
mod crash;
mod create;
mod delete;
mod drivers;
mod errors;
mod floating;
mod groups;
mod inspect;
mod late;
mod limits;
mod lives;
mod matrix;
mod measure;
mod members;
mod mistakes;
mod permissions;
mod published;
mod replace;
mod scene;
mod shared;
mod spared;
mod start;
mod subnets;
mod takeover;
mod trunks;
mod unanswered;
