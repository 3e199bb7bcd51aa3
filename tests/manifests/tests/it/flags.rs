//! The program accepts the arguments in the manifests.

use std::process::Command;

use crate::rendered::{all, args, documents, workload};

/// Runs the program's own check of its flags. The kubeconfig does not exist, which is the error if the flags are valid.
fn complaint(args: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ccm-as-shipped"))
        .args(args)
        .args(["--cloud-config=", "--kubeconfig=/nonexistent/kubeconfig", "--secure-port=0"])
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_program_takes_every_flag_of_the_manifests() {
    for (name, text) in all() {
        let mut args = args(workload(&documents(&text)));
        assert!(args.iter().all(|arg| arg.starts_with("--") && arg.contains('=')), "{name}: {args:?}");
        if !args.iter().any(|arg| arg.starts_with("--cloud-provider=")) {
            args.push("--cloud-provider=fake".into());
        }
        let said = complaint(&args);
        assert!(said.contains("/nonexistent/kubeconfig"), "{name}: {args:?}: {said}");
    }
}

#[test]
fn an_unknown_flag_would_be_noticed() {
    let said = complaint(&["--cloud-provider=fake".into(), "--no-such-flag=1".into()]);
    assert!(said.contains("no-such-flag"), "{said}");
    assert!(!said.contains("/nonexistent/kubeconfig"), "{said}");
}
