//! The answers of look-ups, for the tests of a provider. Each function panics if the answer is another one.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a part of tests")]

use std::sync::Arc;

use ccm_provider::{Evidence, Instance, InstanceMetadata, Lookup};

/// The instance that was found.
#[track_caller]
pub fn found(answer: &Lookup) -> &Arc<Instance> {
    let Lookup::Found(instance) = answer else { panic!("{answer:?}") };
    instance
}

/// The metadata of the instance that was found.
#[track_caller]
pub fn metadata(answer: &Lookup) -> InstanceMetadata {
    found(answer).metadata.clone().unwrap().unwrap()
}

/// The evidence that there is no instance.
#[track_caller]
pub fn evidence(answer: &Lookup) -> &Evidence {
    let Lookup::Gone(evidence) = answer else { panic!("{answer:?}") };
    evidence
}

/// Why nothing is known.
#[track_caller]
pub fn unknown(answer: &Lookup) -> String {
    let Lookup::Unknown(error) = answer else { panic!("{answer:?}") };
    error.to_string()
}
