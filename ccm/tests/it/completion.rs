//! Completion: what a shell makes of a line when the user asks for it, and what kubectl gets.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::flags::called;
use crate::process::{Ended, ended, run};
use crate::scene::{Scene, create, create_service};

/// Runs a shell command with a terminal of its own, on which this is typed.
pub(crate) fn on_terminal(command: &str, typed: &str, environment: &[(&str, &Path)]) -> Ended {
    let mut script = Command::new("timeout");
    script.args(["120", "script", "--quiet", "--return", "--command", command, "/dev/null"]);
    script.envs(environment.iter().copied()).env("SHELL", "/bin/sh").env("TERM", "xterm").env("INPUTRC", "/dev/null");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = script.spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    ended(child.wait_with_output().unwrap())
}

/// What these keys make of each line, in a shell that has the script of the program.
fn completed(shell: &str, keys: &str, lines: &[&str], kubeconfig: &Path) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ccm", "kubectl-ccm"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ccm"), folder.path().join(name)).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut typed = match shell {
        "bash" => "bind 'set enable-bracketed-paste off'\n".to_owned(),
        _ => "autoload -Uz compinit; compinit -uD\n".to_owned(),
    };
    for name in ["ccm", "kubectl-ccm"] {
        typed.push_str(&format!("source <({name} completion {shell})\n"));
    }
    for line in lines {
        // Control-A and control-E go to the begin and the end of the line.
        typed.push_str(&format!("{line}{keys}\u{1}printf 'LINE[%s]\\n' \"\u{5}\"\n"));
    }
    typed.push_str("exit 0\n");
    let start = match shell {
        "bash" => "bash --noprofile --norc -i",
        _ => "zsh -f -i",
    };
    let environment = [("PATH", Path::new(&path)), ("KUBECONFIG", kubeconfig), ("HOME", folder.path())];
    let shown = on_terminal(start, &typed, &environment).stdout;
    let printed = shown.split("LINE[").skip(1).filter(|part| !part.starts_with('%'));
    printed.map(|part| part.split(']').next().unwrap().to_owned()).collect()
}

#[test]
fn an_interactive_bash_completes_commands_flags_values_and_files() {
    // Escape and * put in all that is possible.
    let rows = [
        ("ccm pl", "ccm plan "),
        ("kubectl-ccm pl", "kubectl-ccm plan "),
        ("ccm plan --cloud-provider=fa", "ccm plan --cloud-provider=fake "),
        ("ccm plan --cloud-provider fa", "ccm plan --cloud-provider fake "),
        ("ccm plan --output=j", "ccm plan --output=json "),
        ("ccm plan -o ", "ccm plan -o json name text yaml "),
        ("ccm completion ", "ccm completion bash fish powershell zsh "),
        ("ccm help mig", "ccm help migrate-check migrate-values "),
        ("ccm -v 2 pl", "ccm -v 2 plan "),
        ("ccm explain ", "ccm explain node/ service/ "),
        ("ccm migrate-values --from=o", "ccm migrate-values --from=openstack "),
        (
            "ccm --controllers=service-lb-controller,-cloud-node-l",
            "ccm --controllers=service-lb-controller,-cloud-node-lifecycle-controller ",
        ),
        ("ccm --leader-elect-retry", "ccm --leader-elect-retry-period "),
        (
            concat!("ccm check --rbac=", env!("CARGO_MANIFEST_DIR"), "/Cargo.t"),
            concat!("ccm check --rbac=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml "),
        ),
    ];
    let lines = rows.map(|(line, _)| line);
    assert_eq!(completed("bash", "\u{1b}*", &lines, Path::new("/nonexistent")), rows.map(|(_, expected)| expected));
}

#[test]
fn every_shell_gets_a_script_that_asks_the_program() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let ended = called("kubectl-ccm", &["completion", shell]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{shell}");
        assert!(ended.stdout.contains("kubectl-ccm __complete"), "{}", ended.stdout);
    }
    for words in [&["completion", "tcsh"][..], &["completion"], &["completion", "bash", "zsh"]] {
        let ended = run(words);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{words:?}");
        ended.reports(&["expected the name of one shell: bash, zsh, fish or powershell"]);
    }
    assert_eq!(run(&["--v=1", "completion", "bash"]).code, Some(0));
    run(&["completion", "--help"]).prints(&["source <(ccm completion bash)"]);
}

/// What kubectl gets for these words: the names, without descriptions, and the directive.
fn of_kubectl(words: &[&str]) -> String {
    let text = called("kubectl_complete-ccm", words).stdout;
    text.lines().map(|line| line.split('\t').next().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn kubectl_completes_the_commands_flags_and_values_of_the_plugin() {
    assert_eq!(of_kubectl(&["ex"]), "explain :4");
    assert!(of_kubectl(&[""]).contains(" plan "), "{}", of_kubectl(&[""]));
    assert_eq!(of_kubectl(&["explain", "svc/web", "--leader-c"]), "--leader-ca :4");
    assert_eq!(of_kubectl(&["plan", "--cloud-provider-p"]), "--cloud-provider-platforms :4");
    assert_eq!(of_kubectl(&["plan", "-o", ""]), "json name text yaml :4");
    assert_eq!(of_kubectl(&["plan", "--cloud-provider", "fa"]), "fake :4");
    assert_eq!(of_kubectl(&["plan", "--cloud-provider=fa"]), "fake :4");
    assert_eq!(of_kubectl(&["plan", "--cloud_provider=fa"]), "fake :4");
    assert_eq!(of_kubectl(&["plan", "--cloud-config", ""]), ":0", "names of files");
    assert_eq!(of_kubectl(&["plan", "--dry-run="]), "false true :4");
    assert_eq!(of_kubectl(&["explain", ""]), "node/ service/ :6");
    assert_eq!(of_kubectl(&["plan", "r"]), "routes :6");
    assert_eq!(of_kubectl(&["explain", "r"]), ":6");
    assert_eq!(of_kubectl(&["--cluster-name", "plan", "li"]), "lint :4", "plan is the value of a flag");
    assert_eq!(of_kubectl(&["check", ""]), ":4", "no argument");
    assert_eq!(of_kubectl(&["lint", ""]), ":0", "files");
    assert_eq!(of_kubectl(&["help", "explain", ""]), ":4");
    let described = called("kubectl_complete-ccm", &["ver"]).stdout;
    assert!(described.starts_with("version\tPrints version, "), "{described}");
}

mod real_apiserver {
    use super::*;

    #[tokio::test]
    async fn names_of_contexts_namespaces_and_objects_come_from_the_kubeconfig_and_the_cluster() {
        let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        create(&scene.bed, "/api/v1/namespaces", shop).await;
        create_service(&scene.bed, "web", json!({})).await;
        let ports = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        let till = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "till"}, "spec": ports});
        create(&scene.bed, "/api/v1/namespaces/shop/services", till).await;
        let text = std::fs::read_to_string(scene.bed.kubeconfig()).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
        let mut other = kubeconfig["contexts"][0].clone();
        (other["name"], other["context"]["namespace"]) = (json!("arn:aws:eks:x:1:cluster/prod"), json!("shop"));
        kubeconfig["contexts"].as_array_mut().unwrap().push(other);
        kubeconfig["contexts"][0]["name"] = json!("bed");
        kubeconfig["current-context"] = json!("bed");
        std::fs::write(scene.path("contexts.json"), kubeconfig.to_string()).unwrap();

        let file = scene.text("contexts.json");
        let rows = [
            ("ccm plan --context=b", "ccm plan --context=bed "),
            ("ccm --context ", "ccm --context arn:aws:eks:x:1:cluster/prod bed "),
            ("ccm plan --context=arn:aws:e", "ccm plan --context=arn:aws:eks:x:1:cluster/prod "),
            ("ccm plan -n sh", "ccm plan -n shop "),
            ("ccm plan --namespace=sh", "ccm plan --namespace=shop "),
            ("ccm explain svc/", "ccm explain svc/default/web svc/shop/till "),
            ("ccm explain svc/w", "ccm explain svc/web "),
            ("ccm explain -n shop svc/", "ccm explain -n shop svc/till "),
            (
                "ccm explain --context=arn:aws:eks:x:1:cluster/prod svc/t",
                "ccm explain --context=arn:aws:eks:x:1:cluster/prod svc/till ",
            ),
        ];
        let lines = rows.map(|(line, _)| line);
        let found = completed("bash", "\u{1b}*", &lines, Path::new(&file));
        assert_eq!(found, rows.map(|(_, expected)| expected));
    }
}

mod long_lane {
    use super::*;

    const FILE: &str = concat!("ccm check --rbac=", env!("CARGO_MANIFEST_DIR"), "/Cargo.t");
    const WHOLE_FILE: &str = concat!("ccm check --rbac=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

    fn is_there(shell: &str) -> bool {
        let is_there = Command::new(shell).args(["-c", ":"]).output().is_ok();
        if !is_there {
            ccm_test_bed::not_run(&format!("no {shell} on PATH; Debian's package {shell} has it")).unwrap();
        }
        is_there
    }

    #[test]
    fn commands_flags_values_and_files_are_completed_in_other_shells_zsh() {
        if !is_there("zsh") {
            return;
        }
        let rows = [
            ("ccm pl", "ccm plan"),
            ("kubectl-ccm pl", "kubectl-ccm plan"),
            ("ccm plan --cloud-provider=fa", "ccm plan --cloud-provider=fake"),
            ("ccm plan -o ya", "ccm plan -o yaml"),
            ("ccm explain no", "ccm explain node/"),
            ("ccm completion po", "ccm completion powershell"),
            (FILE, WHOLE_FILE),
        ];
        let found = completed("zsh", "\t", &rows.map(|(line, _)| line), Path::new("/nonexistent"));
        // Zsh takes the blank away again when the line goes on elsewhere.
        let found: Vec<&str> = found.iter().map(|line| line.trim_end()).collect();
        assert_eq!(found, rows.map(|(_, expected)| expected));
    }

    #[test]
    fn commands_flags_values_and_files_are_completed_in_other_shells_fish() {
        if !is_there("fish") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ccm"), folder.path().join("ccm")).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let rows = [
            ("ccm pl", "plan"),
            ("ccm plan --cloud-provider=fa", "--cloud-provider=fake"),
            ("ccm plan -o ya", "yaml"),
            ("ccm explain no", "node/"),
            ("ccm completion ", "bash fish powershell zsh"),
            (FILE, WHOLE_FILE.rsplit(' ').next().unwrap()),
        ];
        for (line, expected) in rows {
            let mut fish = Command::new("fish");
            fish.args(["--no-config", "-c", &format!("ccm completion fish | source; complete -C '{line}'")]);
            let found = ended(fish.env("PATH", &path).env("HOME", folder.path()).output().unwrap());
            let names: Vec<&str> = found.stdout.lines().map(|line| line.split('\t').next().unwrap()).collect();
            assert_eq!(names.join(" "), expected, "{line}: {}", found.stderr);
        }
    }
}
