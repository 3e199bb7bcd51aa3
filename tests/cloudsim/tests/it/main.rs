//! Compares the simulated clouds with others: the same cases run on them and on moto or a real OpenStack, and the
//! vendors' own clients call the simulated AWS and Compute Engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod azure;
mod boto3;
mod calls;
mod case;
mod cases;
mod deviations;
mod gce;
mod http;
mod long_lane;
mod openstack;
mod scene;
mod suite;
mod values;
