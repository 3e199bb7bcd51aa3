//! Arguments and exit codes.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Ended, ended, run};

#[test]
fn help_lists_the_sections_and_ends_with_0() {
    for flag in ["--help", "-h"] {
        let ended = run(&[flag]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        ended.prints(&[
            "Generic flags",
            "Secure serving flags",
            "Leader-migration flags",
            "--cloud-provider string",
            "--node-deletion-budget int",
            "--leader-elect-retry-period duration",
            "All controllers: ",
            "cloud-node-controller, cloud-node-lifecycle-controller, ",
        ]);
    }
}

#[test]
fn the_help_of_a_command_names_its_words_its_flags_and_the_exit_codes() {
    let rows: [(&str, &str, &[&str]); 5] = [
        ("lint", "[FILE | FOLDER | - …] [flags]", &["--cluster", "--fail-on string"]),
        (
            "plan",
            "[node/NAME | service/NAMESPACE/NAME | routes] [flags]",
            &["-o, --output string", "--from-snapshot string"],
        ),
        ("explain", "node/NAME | service/NAMESPACE/NAME [flags]", &["port-forward"]),
        ("snapshot", "[flags]", &["It holds no Secrets", "-f, --file string"]),
        (
            "migrate-check",
            "[flags]",
            &[
                "--account string",
                "system:serviceaccount:kube-system:cloud-controller-manager",
                "-n, --namespace string",
            ],
        ),
    ];
    for (command, words, parts) in rows {
        let ended = run(&[command, "--help"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        ended.prints(&[&format!("ccm {command} {words}"), "Exit codes: 0 "]);
        ended.prints(parts);
    }
}

#[test]
fn help_is_also_a_command_and_takes_the_name_of_another() {
    let all = run(&["help"]);
    assert_eq!((all.code, &*all.stdout), (Some(0), &*run(&["--help"]).stdout));
    assert!(all.stdout.contains("\n\nCommands:\n  check "), "{}", all.stdout);
    assert!(!all.stdout.contains("__complete"), "{}", all.stdout);
    let plan = run(&["help", "plan"]);
    assert_eq!((plan.code, &*plan.stdout), (Some(0), &*run(&["plan", "--help"]).stdout));
    plan.prints(&["--context string", "--as string", "-A, --all-namespaces", "Values of -o: text, json, yaml, name"]);
    for words in [["help", "--help"], ["help", "-h"], ["help", "help"]] {
        let own = run(&words);
        assert_eq!((own.code, &*own.stdout, &*own.stderr), (Some(0), &*all.stdout, ""), "{words:?}");
    }
    let wrong = run(&["help", "plna"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("unknown command \"plna\" (did you mean \"plan\"?)"), "{}", wrong.stderr);
}

#[test]
fn the_examples_in_the_help_of_a_command_are_indented() {
    let all = run(&["help"]).stdout;
    let (_, list) = all.split_once("Commands:\n").unwrap();
    for name in list.lines().map_while(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        let help = run(&["help", name]).stdout;
        let (_, details) = help.split_once("Usage:\n").unwrap();
        let flush = details.lines().find(|line| line.starts_with("ccm ") || line.starts_with("kubectl "));
        assert_eq!(flush, None, "{name}");
    }
}

#[test]
fn a_namespace_is_in_the_help_of_the_commands_that_use_it_and_the_others_refuse_it() {
    for name in ["explain", "plan", "lint", "migrate-check"] {
        assert!(run(&[name, "--help"]).stdout.contains("-n, --namespace string"), "{name}");
    }
    for name in ["migrate-check", "check"] {
        let of_pods = run(&[name, "--help"]).stdout;
        let of_pods = of_pods.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(of_pods.contains("-n, --namespace string The namespace in which pods are looked for."), "{of_pods}");
    }
    for name in ["snapshot", "orphans", "migrate-values", "version"] {
        assert!(!run(&[name, "--help"]).stdout.contains("--namespace"), "{name}");
        let refused = run(&[name, "-n", "shop", "--cloud-provider=fake", "--master=http://127.0.0.1:1"]);
        assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{name}");
        refused.reports(&[&format!("--namespace=shop: {name} is not about one namespace; leave it out")]);
    }
}

#[test]
fn flags_may_stand_before_the_command_and_a_misspelt_command_names_the_right_one() {
    let behind = run(&["lint", "/nonexistent.yaml", "-o", "json", "--cloud-provider=fake"]);
    assert_eq!(behind.code, Some(1), "{}", behind.stderr);
    let before = run(&["-o", "json", "--cloud-provider", "fake", "lint", "/nonexistent.yaml"]);
    assert_eq!((before.code, before.stdout), (behind.code, behind.stdout));
    let wrong = run(&["--cloud-provider=fake", "plna"]);
    assert_eq!((wrong.code, &*wrong.stdout), (Some(1), ""));
    assert_eq!(wrong.stderr, "See `ccm --help`.\nError: unknown command \"plna\" (did you mean \"plan\"?)\n");
}

#[test]
fn the_version_names_providers_and_tested_versions_for_programs_too() {
    let json = run(&["version", "-o", "json"]).stdout;
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["programVersion"], format!("v{}", env!("CARGO_PKG_VERSION")));
    assert!(document["providers"].as_array().unwrap().contains(&"fake".into()), "{json}");
    for key in ["platform", "testedKubernetes"] {
        assert!(!document[key].is_null(), "{key}: {json}");
    }
    // A build by cargo alone does not know them.
    for (key, known) in [("commit", option_env!("CCM_GIT_COMMIT")), ("buildDate", option_env!("CCM_BUILD_DATE"))] {
        assert_eq!(document[key], serde_json::json!(known), "{key}: {json}");
    }
    let text = run(&["version"]).stdout;
    assert_eq!(text.contains("\ncommit "), option_env!("CCM_GIT_COMMIT").is_some(), "{text}");
    assert!(run(&["version", "-o", "yaml"]).stdout.contains("kind: \"Version\"\n"));
    assert!(run(&["version", "--color=blue"]).stderr.contains("--color=blue: expected always, auto or never"));
}

#[test]
fn an_unknown_value_names_the_nearest_valid_one() {
    for (args, meant) in [
        (&["--cloud-provider=faek", "--master=http://127.0.0.1:1"][..], "fake"),
        (&["lint", "--cloud-provider=faek", "-"], "fake"),
        (&["--cloud-provider=fake", "--controllers=*,-nod-lifecycle"], "cloud-node-lifecycle"),
        (&["--cloud-provider=fake", "--controllers=cloud-nod"], "cloud-node"),
        (&["--cloud-provider=fake", "--controllers=srevice"], "service"),
        (&["--cloud-provider=fake", "--logging-format=jsn"], "json"),
        (&["--cloud-provider=fake", "--tls-min-version=Version-TLS13"], "VersionTLS13"),
        (&["--cloud-provider=fake", "--tls-cipher-suites=TLS_AES128_GCM_SHA256"], "TLS_AES_128_GCM_SHA256"),
        (&["version", "-o", "jsn"], "json"),
        (&["version", "--color=alway"], "always"),
        (&["lint", "--fail-on=warn", "-"], "warning"),
        (&["migrate-values", "--from=opnestack", "-"], "openstack"),
        (&["completion", "bahs"], "bash"),
    ] {
        let ended = run(args);
        let hint = format!("; did you mean {meant:?}?");
        assert!(ended.code != Some(0) && ended.stderr.contains(&hint), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn help_is_there_at_once() {
    let fastest = (0..5)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(run(&["--help"]).code, Some(0));
            began.elapsed()
        })
        .min();
    assert!(fastest < Some(Duration::from_millis(500)), "{fastest:?}");
}

#[test]
fn a_wrong_flag_ends_with_1_behind_the_usage_and_names_it() {
    let ended = run(&["--cloud-provider=fake", "--clod-config=x"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
    assert!(ended.stderr.starts_with("Usage:\n  ccm [flags]\n"), "{}", ended.stderr);
    let last = "\n\nError: unknown flag: --clod-config (did you mean --cloud-config?)\n";
    assert!(ended.stderr.ends_with(last), "{}", ended.stderr);
}

#[test]
fn arguments_are_refused_unless_they_are_empty() {
    let ended = run(&["--cloud-provider=fake", "x"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "Error: \"cloud-controller-manager\" does not take any arguments, got [\"x\"]\n");
    let ended = run(&["", "--cloud-provider=", ""]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), "Error: --cloud-provider cannot be empty\n"));
}

#[test]
fn the_version_is_printed_and_only_its_suffix_can_be_replaced() {
    let ended = run(&["--version"]);
    let expected = format!("Kubernetes v{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), &*expected, ""));
    let ended = run(&["--version=raw"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.starts_with("version.Info{Major:"), "{}", ended.stdout);
    let ended = run(&["--version=v99.0.0"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("must match major/minor/patch of default version"), "{}", ended.stderr);
    let suffixed = format!("--version=v{}-mine", env!("CARGO_PKG_VERSION"));
    let ended = run(&[&suffixed]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), "Error: --cloud-provider cannot be empty\n"));
}

#[test]
fn without_any_configuration_the_error_names_the_flags() {
    let ended = run(&["--cloud-provider=fake"]);
    assert_eq!(ended.code, Some(1));
    let expected =
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable";
    assert!(ended.stderr.contains(expected) && ended.stderr.contains("--kubeconfig"), "{}", ended.stderr);
    for command in ["plan", "check"] {
        let ended = run(&[command, "--cloud-provider=fake"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        ended.reports(&["KUBECONFIG is not set, and there is no ~/.kube/config; give --kubeconfig or --master"]);
        assert!(!ended.stderr.contains("KUBERNETES_MASTER"), "{}", ended.stderr);
    }
}

#[test]
fn a_command_without_provider_names_the_providers_and_the_plugin() {
    for words in [&["explain", "svc/web"][..], &["plan"], &["check"], &["snapshot"], &["orphans"], &["migrate-check"]] {
        let ended = run(words);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        ended.reports(&[
            "--cloud-provider=NAME is missing (",
            "fake",
            "`kubectl ccm` takes it from the program in the cluster",
        ]);
    }
}

#[test]
fn deprecated_flags_idle_gates_and_every_value_are_logged() {
    let ended = run(&[
        "--cloud-provider=fake",
        "--kubeconfig=/nonexistent",
        "--allow_untagged_cloud",
        "--node-sync-period=10s",
        "--feature-gates=CloudDualStackNodeIPs=true",
        "-v1",
        "--node-monitor-period=90s",
    ]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    ended.reports(&[
        "Flag --allow-untagged-cloud has been deprecated, This flag is deprecated and will be removed in a future",
        "Flag --node-sync-period has been deprecated, This flag is currently no-op and will be deleted.\n",
        "] feature gates that have no effect in this program: CloudDualStackNodeIPs\n",
        "] FLAG: --node-monitor-period=\"1m30s\"\n",
        "] FLAG: --controllers=\"[*]\"\n",
        "] FLAG: --feature-gates=\"CloudDualStackNodeIPs=true\"\n",
    ]);
}

#[test]
fn a_reader_of_the_help_may_stop_reading() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_ccm")).arg("--help").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

/// The program under the name by which kubectl runs it.
pub(crate) fn called(name: &str, words: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ccm"), &program).unwrap();
    ended(Command::new(program).args(words).output().unwrap())
}

#[test]
fn the_plugin_without_a_command_runs_no_controllers() {
    let help = called("kubectl-ccm", &[]);
    assert_eq!(help.code, Some(0), "{}", help.stderr);
    assert!(help.stdout.contains("kubectl ccm COMMAND --help"), "{}", help.stdout);
    assert!(!help.stdout.contains("runs the controllers"), "{}", help.stdout);
    let refused = called("kubectl-ccm", &["--cloud-provider=fake", "--kubeconfig=/nonexistent"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    refused.reports(&["which command? The controllers run in the cluster, or as `ccm` with these flags"]);
}
