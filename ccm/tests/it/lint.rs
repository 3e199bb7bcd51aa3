//! `ccm lint` as a process: files, folders, stdin, the cluster, cloud configs.

use std::path::Path;
use std::process::Command;

use crate::process::{run, run_with};

const MANIFESTS: &str = "tests/it/lint/manifests";
const FAKE: &str = "--cloud-provider=fake";

/// Compares an output with its golden file; `UPDATE=1` writes the file.
fn golden(name: &str, output: &str) {
    let path = Path::new("tests/it/lint").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, output).unwrap();
    }
    assert_eq!(output, std::fs::read_to_string(path).unwrap(), "{name}; UPDATE=1 writes it again");
}

#[test]
fn a_folder_of_mistakes_gives_findings_with_file_and_line_in_every_form() {
    for (form, name) in [("text", "golden.txt"), ("json", "golden.json"), ("github", "golden.github")] {
        let ended = run(&["lint", MANIFESTS, FAKE, "-o", form]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""), "{form}");
        golden(name, &ended.stdout);
    }
    assert_eq!(run(&["lint", MANIFESTS, FAKE, "--fail-on=error"]).code, Some(2));
}

#[test]
fn the_last_line_counts_what_suppress_hides() {
    let [all, rest] = ["x", "core/*"].map(|code| {
        let ended = run(&["lint", MANIFESTS, FAKE, "-o", "json", &format!("--suppress={code}")]);
        serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()["findings"].as_array().unwrap().len()
    });
    assert!(rest < all, "{rest} of {all}");
    let hidden = format!("; {} hidden by --suppress.\n", all - rest);
    run(&["lint", MANIFESTS, FAKE, "--suppress=core/*"]).prints(&[&hidden]);
}

#[test]
fn findings_that_find_no_room_are_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
    let output = command.args(["lint", MANIFESTS, FAKE, "--fail-on=never"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("Error: the result could not be written to stdout: No space left"), "{stderr}");
}

#[test]
fn every_line_in_the_goldens_holds_its_key() {
    let ended = run(&["lint", MANIFESTS, FAKE, "-o", "json"]);
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut held = 0;
    for finding in document["findings"].as_array().unwrap() {
        let (file, line) = (finding["file"].as_str().unwrap(), finding["line"].as_u64().unwrap());
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().nth(usize::try_from(line).unwrap() - 1).unwrap();
        let key = finding["key"].as_str().unwrap();
        let last = key.rsplit(['.', '[', '"']).find(|part| part.len() > 2).unwrap_or_default();
        let is_annotation = key.contains('/');
        let name = if is_annotation { key } else { last.trim_end_matches(']') };
        if !line.contains(name) {
            // A list item, or a missing key, has the line of its parent.
            assert!(key.contains('[') || key.is_empty(), "{finding}: {line}");
            continue;
        }
        held += 1;
    }
    assert!(held > 10, "{held}");
}

#[test]
fn neither_cluster_nor_cloud_is_needed_and_no_finding_ends_with_0() {
    let file = "tests/it/lint/manifests/10-other-clouds.yaml";
    let ended = run(&["lint", file]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", ended.stdout);
    assert_eq!(ended.stdout, "No findings in 1 Service and 1 file.\n");
    // Findings of severity info are printed, but do not fail the command.
    let ended = run(&["lint", "tests/it/lint/manifests/nested", FAKE]);
    assert_eq!(ended.code, Some(0));
    ended.prints(&["class.yml:6: info:    service prod/classy: spec.loadBalancerClass"]);
}

#[test]
fn stdin_is_read_and_the_threshold_decides_the_exit_code() {
    let text = "kind: Service\r\napiVersion: v1\r\nmetadata:\r\n  annotations:\r\n    \"service.beta.kubernetes.io/load-balancer-source-rangs\": x\r\n\
                spec: {type: LoadBalancer, ports: [{port: 80}]}\r\n";
    for (fail_on, code) in [("warning", 2), ("error", 0), ("never", 0)] {
        let ended = run_with(&["lint", "-", "--fail-on", fail_on], text);
        assert_eq!((ended.code, &*ended.stderr), (Some(code), ""), "{fail_on}: {}", ended.stdout);
        assert!(
            ended.stdout.starts_with("<stdin>:5: warning: service without a name: service.beta"),
            "{}",
            ended.stdout
        );
        assert!(ended.stdout.ends_with("1 finding (1 warning) in 1 Service and 1 file.\n"), "{}", ended.stdout);
    }
}

#[test]
fn an_unreadable_input_ends_with_1_after_the_report_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let latin = folder.path().join("latin.yaml").display().to_string();
    std::fs::write(&latin, b"a: \xe9").unwrap();
    let ended = run(&["lint", "/nonexistent.yaml", &latin, MANIFESTS, "-o", "json", "--fail-on=never"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "Error: 2 of the inputs could not be read\n");
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let unread = |at: usize, key: &str| document["unread"][at][key].as_str().unwrap();
    assert_eq!((unread(0, "name"), unread(1, "name")), ("/nonexistent.yaml", &*latin));
    assert!(unread(0, "error").contains("No such file"), "{document}");
    assert_eq!(unread(1, "error"), "not UTF-8 text: byte 4 is none; save it as UTF-8");
    assert!(document["findings"].as_array().unwrap().len() > 10);
}

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_fix() {
    let rows: [(&[&str], &str); 6] = [
        (
            &["lint"],
            "Error: nothing to look at: name files, folders or - for stdin, or give --cluster or --cloud-config",
        ),
        (&["lint", MANIFESTS, "--fail-on=info"], "Error: --fail-on=info: expected error, warning or never"),
        (
            &["lint", MANIFESTS, "-o", "xml"],
            "Error: --output=xml: expected text or json or yaml or github or name or sarif",
        ),
        (&["lint", MANIFESTS, "--fail-at=x"], "Error: unknown flag: --fail-at"),
        (
            &["lint", "--cloud-config=x.conf"],
            "--cloud-config=x.conf: which cloud the file is for is not known; add --cloud-provider=NAME (",
        ),
        (&["lint", "--cloud-config=/nonexistent", FAKE], "Error: one of the inputs could not be read"),
    ];
    for (args, text) in rows {
        let ended = run(args);
        assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
    let ended = run(&["lint", MANIFESTS, "--cloud-provider=nowhere"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(255), ""));
    assert!(ended.stderr.contains("unknown cloud provider \"nowhere\" (compiled in: "), "{}", ended.stderr);
}

#[test]
fn a_cloud_config_is_checked_with_the_line_of_each_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.yaml");
    let shown = path.display().to_string();
    let lint = |text: &str| {
        std::fs::write(&path, text).unwrap();
        run(&["lint", FAKE, &format!("--cloud-config={shown}")])
    };
    let ended = lint("# the cloud\ninstances:\n- name: a\n- name: b\n  shutdwon: true\n");
    assert_eq!((ended.code, &*ended.stderr), (Some(2), ""));
    let expected = format!(
        "{shown}:5: error:   instances[1].shutdwon: unknown key; did you mean \"shutdown\"? [fake/instances.shutdwon]\n\n1 finding (1 error) in 0 Services and 1 file.\n"
    );
    assert_eq!(ended.stdout, expected);
    let ended = lint("instances: [\n");
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stdout.starts_with(&format!("{shown}:")) && ended.stdout.contains(": error:   cloud-config: "),
        "{}",
        ended.stdout
    );
    let ended = lint("instances: [{name: a}]\n");
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "No findings in 0 Services and 1 file.\n"));
}

#[test]
fn the_values_of_broken_manifests_are_not_shown() {
    let broken = [
        "kind: Secret\ndata: {password: Y2FuYXJ5\n",
        "kind: Secret\nstringData:\n  password: canary: x\n",
        "kind: Secret\ndata: *canary\n",
        "kind: Secret\ndata:\n\tpassword: canary\n",
        "kind: Secret\ndata: \"\\canary\"\n",
        "kind: Secret\ndata: !canary!x y\n",
    ];
    for text in broken {
        let ended = run_with(&["lint", "-"], text);
        assert_eq!(ended.code, Some(2), "{text}: {}", ended.stdout);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!all.contains("canary") && !all.contains("Y2FuYXJ5"), "{all}");
    }
}

/// Requires the feature, which takes minutes to build.
#[cfg(feature = "aws")]
#[test]
fn misspelt_annotations_of_aws_name_the_intended_key() {
    for choice in [&["--cloud-provider=aws"][..], &[]] {
        let args = [&["lint", MANIFESTS, "-o", "json"], choice].concat();
        let ended = run(&args);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let of = |file: &str, line: u64| {
            let findings = document["findings"].as_array().unwrap().iter();
            let here = findings.filter(|f| f["file"].as_str().unwrap().ends_with(file) && f["line"] == line);
            here.map(|f| f["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join("\n")
        };
        let typ = of("01-misspelt-type.yaml", 8);
        assert!(typ.contains("did you mean \"service.beta.kubernetes.io/aws-load-balancer-type\"?"), "{typ}");
        assert!(!of("01-misspelt-type.yaml", 9).is_empty(), "{document}");
        assert_eq!(of("10-other-clouds.yaml", 7), "", "keys of other clouds");
    }
}

mod real_apiserver {
    use ccm_test_bed::{Bed, Options};
    use serde_json::{Value, json};

    use crate::process::run;
    use crate::scene::create;

    async fn create_service(bed: &Bed, name: &str, annotations: Value, spec: Value) {
        let metadata = json!({"name": name, "annotations": annotations});
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        create(bed, "/api/v1/namespaces/default/services", object).await;
    }

    #[tokio::test]
    async fn services_of_the_cluster_are_checked_and_nothing_is_written() {
        let Some(bed) = Bed::reused(Options::default().audit()).await.unwrap() else { return };
        let ports = json!([{"port": 80}]);
        let misspelt = json!({"service.beta.kubernetes.io/load-balancer-source-rangez": "10.0.0.0/8"});
        create_service(&bed, "web", misspelt, json!({"type": "LoadBalancer", "ports": ports})).await;
        create_service(&bed, "fine", json!({}), json!({"type": "LoadBalancer", "ports": ports})).await;
        let classy = json!({"type": "LoadBalancer", "loadBalancerClass": "a.example/b", "ports": ports});
        create_service(&bed, "classy", json!({}), classy).await;
        create_service(&bed, "inner", json!({"service.kubernetes.io/load-balancer-x": ""}), json!({"ports": ports}))
            .await;
        let kubeconfig = format!("--kubeconfig={}", bed.kubeconfig().display());
        let ended = run(&["lint", "--cluster", &kubeconfig]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""));
        assert_eq!(
            ended.stdout,
            "service default/classy: info:    spec.loadBalancerClass \"a.example/b\": left to the controller of this class; this \
             program does nothing for it [core/spec.loadBalancerClass]\n\
             service default/inner:  warning: service.kubernetes.io/load-balancer-x \"\": no effect: the type is ClusterIP, not LoadBalancer \
             [core/service.kubernetes.io/load-balancer-x]\n\
             service default/web:    warning: service.beta.kubernetes.io/load-balancer-source-rangez \"10.0.0.0/8\": unknown key, no \
             effect; did you mean \"service.beta.kubernetes.io/load-balancer-source-ranges\"? \
             [aws/service.beta.kubernetes.io/load-balancer-source-rangez]\n\n\
             3 findings (2 warnings, 1 info) in 5 Services.\n"
        );
        let entries = bed.audit().read().unwrap();
        let own: Vec<(&str, &str)> = entries
            .iter()
            .filter(|entry| entry.user_agent.contains("cloud-controller-manager"))
            .map(|entry| (entry.verb.as_str(), entry.resource.as_str()))
            .collect();
        assert!(
            !own.is_empty()
                && own.iter().all(|asked| *asked == ("list", "services") || *asked == ("watch", "services")),
            "{own:?}"
        );
    }

    #[tokio::test]
    async fn without_permissions_or_a_cluster_the_error_names_the_missing_part() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let nobody = bed.kubeconfig_for_user("nobody", &[]).unwrap();
        let ended = run(&["lint", "--cluster", &format!("--kubeconfig={}", nobody.display())]);
        assert_eq!(ended.code, Some(1));
        ended.prints(&["cluster: error: cannot list services: ", "forbidden", "this command needs `get` and `list`"]);
        let ended = run(&["lint", "--cluster", "--master=http://127.0.0.1:1"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.contains("nothing listens at 127.0.0.1:1"), "{}{}", ended.stdout, ended.stderr);
    }
}
