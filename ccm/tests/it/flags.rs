//! Arguments and exit codes.

use crate::process::run;

#[test]
fn help_lists_the_sections_and_ends_with_0() {
    let ended = run(&["--help"]);
    assert_eq!(ended.code, Some(0));
    for text in
        ["Generic flags", "Secure serving flags", "--cloud-provider", "--node-deletion-budget", "--leader-elect"]
    {
        assert!(ended.stdout.contains(text), "{text} is missing:\n{}", ended.stdout);
    }
}

#[test]
fn a_wrong_flag_ends_with_1_and_names_it() {
    let ended = run(&["--cloud-provider=fake", "--clod-config=x"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "Error: unknown flag: --clod-config (did you mean --cloud-config?)\n");
}

#[test]
fn arguments_are_refused() {
    let ended = run(&["--cloud-provider=fake", "x"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "Error: \"cloud-controller-manager\" does not take any arguments, got [\"x\"]\n");
}

#[test]
fn an_empty_provider_ends_with_1_and_an_unknown_one_with_255() {
    let ended = run(&["--kubeconfig=/nonexistent"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), "Error: --cloud-provider cannot be empty\n"));
    let ended = run(&["--cloud-provider=nowhere", "--kubeconfig=/nonexistent"]);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("unknown cloud provider \"nowhere\""), "{}", ended.stderr);
    let ended = run(&["--cloud-provider=external", "--kubeconfig=/nonexistent"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(255), "Error: Cloud provider is nil\n"));
}

#[test]
fn without_any_configuration_the_error_says_what_to_give() {
    let ended = run(&["--cloud-provider=fake"]);
    assert_eq!(ended.code, Some(1));
    let expected =
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable";
    assert!(ended.stderr.contains(expected) && ended.stderr.contains("--kubeconfig"), "{}", ended.stderr);
}

#[test]
fn a_missing_cloud_config_ends_with_255_and_names_the_file() {
    let ended = run(&["--cloud-provider=fake", "--cloud-config=/nonexistent.yaml", "--kubeconfig=/nonexistent"]);
    assert_eq!(ended.code, Some(255));
    assert!(
        ended.stderr.contains("Couldn't open cloud provider configuration /nonexistent.yaml: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn inconsistent_election_times_end_with_1() {
    let ended = run(&["--cloud-provider=fake", "--leader-elect-lease-duration=5s"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "Error: leaseDuration must be greater than renewDeadline\n");
}
