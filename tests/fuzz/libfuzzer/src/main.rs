//! libFuzzer for the target in `CCM_FUZZ_TARGET`.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("CCM_FUZZ_TARGET").unwrap_or_default();
    ccm_fuzz::target(&name).unwrap_or_else(|| panic!("CCM_FUZZ_TARGET={name:?} is no target"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
