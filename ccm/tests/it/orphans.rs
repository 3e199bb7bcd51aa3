//! `ccm orphans` as a process: invalid input, untrusted texts, and the output when nothing is deleted.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::process::{Ended, refused, run, run_with};

#[test]
fn flags_that_contradict_each_other_are_refused_with_the_fix() {
    let rows: [(&[&str], &str); 7] = [
        (&["x"], "orphans takes no arguments, got \"x\""),
        (&["--yes"], "--yes is about --delete, which is not given"),
        (
            &["--cluster-is-gone", "--kubeconfig=/etc/k"],
            "--cluster-is-gone and --kubeconfig=/etc/k contradict each other",
        ),
        (&["--cluster-is-gone", "--master=https://a"], "as long as there is an API server to ask, else --master"),
        (&["--cluster-is-gone", "--context=prod"], "--cluster-is-gone and --context=prod contradict each other"),
        (&["-n", "shop", "--delete", "--yes"], "--namespace=shop: orphans is not about one namespace; leave it out"),
        (&["--master=http://127.0.0.1:1"], "nothing listens at 127.0.0.1:1"),
    ];
    refused("orphans", &["--cloud-provider=fake"], &rows);
}

/// A cloud with orphans.
struct Cloud(tempfile::TempDir);

impl Cloud {
    fn new(config: &str, balancers: &Value) -> Self {
        let cloud = Self(tempfile::tempdir().unwrap());
        let state = json!({"loadBalancers": balancers, "routes": []});
        std::fs::write(cloud.state(), state.to_string()).unwrap();
        std::fs::write(cloud.config(), format!("stateFile: state.json\n{config}\n")).unwrap();
        cloud
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("cloud.yaml")
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state.json")
    }

    fn has(&self, service: &str) -> bool {
        std::fs::read_to_string(self.state()).unwrap().contains(service)
    }

    /// `ccm orphans` with this text on stdin.
    fn orphans(&self, words: &[&str], answer: &str) -> Ended {
        let config = format!("--cloud-config={}", self.config().display());
        let all = [&["orphans", "--cloud-provider=fake", &*config], words].concat();
        if answer.is_empty() { run(&all) } else { run_with(&all, answer) }
    }
}

fn balancer(service: &str, name: &str) -> Value {
    json!({"service": service, "name": name, "ingress": [{"ip": "203.0.113.2"}], "nodes": ["n"]})
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[test]
fn texts_of_others_cannot_steer_the_terminal_and_the_plan_shows_every_change() {
    let cloud = Cloud::new("", &json!({"default/a": balancer("default/a", "x\u{1b}[2J\ny")}));
    let listed = cloud.orphans(&["--cluster-is-gone"], "");
    assert_eq!((listed.code, &*listed.stderr), (Some(2), ""));
    assert!(listed.stdout.starts_with("LoadBalancer default/a (x [2J y)\n"), "{}", listed.stdout);
    let planned = cloud.orphans(&["--cluster-is-gone", "--delete", "--yes", "--dry-run"], "");
    assert_eq!((planned.code, &*planned.stderr), (Some(2), "--dry-run: nothing is deleted.\n"));
    assert_eq!(
        planned.stdout,
        "- delete LoadBalancer default/a [disruptive]\n      ingress 203.0.113.2 removed\n      because there is no Service \
         default/a; recognized by its entry in the table of load balancers\n"
    );
    assert!(cloud.has("default/a"));
}

#[test]
fn one_document_is_printed_however_a_deletion_ends() {
    let all = json!({"default/a": balancer("default/a", "a"), "default/b": balancer("default/b", "b")});
    let cloud = Cloud::new("faults: [{call: EnsureLoadBalancerDeleted, service: default/b, error: 'in use'}]", &all);
    let delete = ["--cluster-is-gone", "--delete", "-o", "json"];
    let declined = cloud.orphans(&delete, "no\n");
    assert_eq!(declined.code, Some(2), "{}", declined.stderr);
    let document = parsed(&declined.stdout);
    assert_eq!((&document["kind"], document["orphans"].as_array().unwrap().len()), (&json!("Orphans"), 2));
    declined.reports(&["- delete LoadBalancer default/a", "Delete 2 objects in the cloud?", "Nothing is deleted.\n"]);
    let dry = cloud.orphans(&[&delete[..], &["--yes", "--dry-run"]].concat(), "");
    assert_eq!((dry.code, &parsed(&dry.stdout)["kind"]), (Some(2), &json!("Orphans")), "{}", dry.stderr);

    let ended = cloud.orphans(&delete, "yes\n");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("Error: 1 of 2 objects were not deleted"), "{}", ended.stderr);
    let document = parsed(&ended.stdout);
    assert_eq!((&document["kind"], &document["version"]), (&json!("OrphansDeleted"), &json!(1)));
    let results: Vec<(&Value, &Value)> = document["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| (&result["orphan"]["id"], &result["deleted"]))
        .collect();
    assert_eq!(results, [(&json!("default/a"), &json!(true)), (&json!("default/b"), &json!(false))]);
    assert_eq!(document["results"][1]["error"], "in use");
    assert!(!cloud.has("default/a") && cloud.has("default/b"));

    std::fs::write(cloud.config(), "stateFile: state.json\n").unwrap();
    let rest = cloud.orphans(&delete, "yes\n");
    assert_eq!(rest.code, Some(0), "{}", rest.stderr);
    assert!(rest.stderr.contains("Delete 1 object in the cloud?"), "{}", rest.stderr);
    let none = cloud.orphans(&delete, "");
    assert_eq!((none.code, parsed(&none.stdout)["results"].clone()), (Some(0), json!([])), "{}", none.stderr);
}

#[test]
fn steps_longer_than_a_second_are_reported_on_stderr() {
    let cloud = Cloud::new(
        "faults: [{call: GetLoadBalancer, delay: 3s, times: 1}]",
        &json!({"default/a": balancer("default/a", "a")}),
    );
    let ended = cloud.orphans(&["--cluster-is-gone"], "");
    assert_eq!((ended.code, &*ended.stderr), (Some(2), ""));
    assert!(ended.progress.contains("listing the cluster's objects in the cloud … "), "{:?}", ended.progress);
    assert!(ended.stdout.starts_with("LoadBalancer default/a (a)\n"), "{}", ended.stdout);
}

#[test]
fn a_result_that_finds_no_room_is_an_error_and_nothing_is_deleted_that_was_not_shown() {
    let cloud = Cloud::new("", &json!({"default/a": balancer("default/a", "a")}));
    let config = format!("--cloud-config={}", cloud.config().display());
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for words in [&["-o", "json"][..], &[], &["--delete", "--yes"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ccm"));
        command.args(["orphans", "--cluster-is-gone", "--cloud-provider=fake", &config]).args(words);
        let output = command.stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), cloud.has("default/a")), (Some(1), true), "{words:?}: {stderr}");
        assert!(
            stderr.contains("Error: the result could not be written to stdout: No space left"),
            "{words:?}: {stderr}"
        );
    }
}

mod real_apiserver {
    use super::*;

    use ccm_test_bed::{Bed, Options};

    use crate::scene::create_node;

    fn listed_with(cloud: &Cloud, kubeconfig: &Path, words: &[&str]) -> Ended {
        cloud.orphans(&[&[&*format!("--kubeconfig={}", kubeconfig.display())], words].concat(), "")
    }

    #[tokio::test]
    async fn without_proof_that_the_objects_belong_to_the_cluster_nothing_is_deleted() {
        let Some(bed) = Bed::reused(Options::default()).await.unwrap() else { return };
        let cloud = Cloud::new("", &json!({"default/a": balancer("default/a", "a")}));
        let delete = || listed_with(&cloud, &bed.kubeconfig(), &["--delete", "--yes"]);
        let refused = |text: &str| {
            let ended = delete();
            assert_eq!((ended.code, cloud.has("default/a")), (Some(1), true), "{}{}", ended.stdout, ended.stderr);
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        };
        refused("none of the 0 nodes of this cluster has an instance in this cloud");
        create_node(&bed, "n", json!({"providerID": "fake://n"})).await;

        // An error of the cloud is not evidence that the instance is missing.
        let fault = "stateFile: state.json\nfaults: [{call: Lookup, error: 'try later'}]\n";
        std::fs::write(cloud.config(), fault).unwrap();
        refused("the cloud gave no answer whether it has the nodes of this cluster: try later\n");
        std::fs::write(cloud.config(), "stateFile: state.json\ninterfaces: {instancesV2: false}\n").unwrap();
        refused("the provider fake knows no instances");
        std::fs::write(cloud.config(), "stateFile: state.json\nunlisted: missing\n").unwrap();
        refused("none of the 1 nodes of this cluster has an instance in this cloud");
        std::fs::write(cloud.config(), "stateFile: state.json\n").unwrap();
        let ended = delete();
        assert_eq!((ended.code, cloud.has("default/a")), (Some(0), false), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.ends_with("\ndeleted LoadBalancer default/a\n"), "{}", ended.stdout);

        let reader = bed.kubeconfig_for_user("nobody", &[]).unwrap();
        let ended = listed_with(&cloud, &reader, &[]);
        ended.assert_may_not_list_nodes();
    }
}
