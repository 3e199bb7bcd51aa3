//! Amazon Web Services.
#![allow(dead_code)] // until all layers stand

mod client;
mod loadbalancer;
mod ownership;
