//! The rendered manifests are committed, so that reviews show their changes. `UPDATE=1` rewrites them.

use std::fs;
use std::process::Command;

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

/// The lines in which a text differs from another one, without context.
fn difference(from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let output = Command::new("diff").arg("-U0").arg(file("from", from)).arg(file("to", to)).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The first two lines have the files with their times.
    text.split_inclusive('\n').skip(2).collect()
}

/// The overlays of the other clouds have nearly all lines of the one for AWS: their goldens are the differences.
#[test]
fn kustomize_prints_the_reviewed_manifests() {
    let Some(aws) = overlay("aws") else { return };
    check("overlay-aws.yaml", &aws);
    check("overlay-full.yaml", &overlay("full").unwrap());
    for name in ["azure", "gce", "openstack"] {
        check(&format!("overlay-{name}.diff"), &difference(&aws, &overlay(name).unwrap()));
    }
}

#[test]
fn helm_prints_the_reviewed_manifests() {
    let Some(text) = chart("full") else { return };
    check("chart-full.yaml", &text);
}
