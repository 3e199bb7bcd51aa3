//! Amazon Web Services.
#![allow(dead_code)] // until all layers stand

mod annotations;
mod client;
mod config;
mod loadbalancer;
mod ownership;
