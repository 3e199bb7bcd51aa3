//! The rendered manifests are committed, so that reviews show their changes. `UPDATE=1` rewrites them.

use std::fs;

use ccm_test_manifests::workspace;

use crate::rendered::{chart, overlay};

fn check(name: &str, text: &str) {
    let path = workspace().join("tests/manifests/goldens").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(text.lines()).find(|(golden, now)| golden != now);
    assert!(
        golden == text,
        "{name} is no longer what it was ({} lines, now {}); first difference: {differs:?}. If that is wanted: \
         UPDATE=1 cargo test -p ccm-test-manifests goldens",
        golden.lines().count(),
        text.lines().count(),
    );
}

#[test]
fn kustomize_prints_the_reviewed_manifests() {
    for name in ["aws", "azure", "full", "gce", "openstack"] {
        let Some(text) = overlay(name) else { return };
        check(&format!("overlay-{name}.yaml"), &text);
    }
}

#[test]
fn helm_prints_the_reviewed_manifests() {
    let Some(text) = chart("full") else { return };
    check("chart-full.yaml", &text);
}
