//! The default build, which has no AWS SDK and builds a program with it on demand.

use std::os::unix::fs::PermissionsExt as _;

use crate::{demo, text};

#[test]
fn for_aws_it_prints_the_requirements_and_runs_cargo() {
    let temp = tempfile::tempdir().unwrap();
    let cargo = temp.path().join("cargo");
    std::fs::write(&cargo, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = demo(temp.path(), &["--cloud-provider=aws", "--fast"]).env("CARGO", &cargo).output().unwrap();
    let (asked, said) = text(&output);
    assert_eq!(output.status.code(), Some(7), "the exit code is the other build's");
    assert!(said.contains("7 GB of memory"), "{said}");
    assert!(asked.contains("--package ccm-demo --features aws -- --cloud-provider=aws --fast"), "{asked}");
}
