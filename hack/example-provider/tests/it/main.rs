//! The contract, and the program over a Kubernetes API in memory.

mod guide;
mod harness;
mod program;

ccm_provider_contract::contract!(harness::rack);
