//! The contract, and the program with an in-memory Kubernetes API.

mod harness;
mod program;

ccm_provider_contract::contract!(harness::rack);

mod simple {
    ccm_provider_contract::contract!(crate::harness::simple);
}
