//! The demo as a user runs it: the whole tour, as a log.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "aws")]
mod aws;
mod azure;
mod gce;
mod openstack;
#[cfg(not(feature = "aws"))]
mod without_aws;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The test takes a few seconds; generous for busy machines.
const LIMIT: Duration = Duration::from_secs(20);

fn demo(temp: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccm-demo"));
    // A separate temporary folder, to check that no file is left behind.
    command.args(args).env("TMPDIR", temp);
    command
}

fn text(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn left(temp: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(temp).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Runs the whole tour, which prints these facts, independent of line breaks, and leaves nothing behind. Returns its log.
#[track_caller]
fn tour(args: &[&str], environment: &[(&str, &str)], limit: Duration, facts: &[&str]) -> String {
    let temp = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let output = demo(temp.path(), args).envs(environment.iter().copied()).output().unwrap();
    let (log, errors) = text(&output);
    assert!(output.status.success(), "{log}\n{errors}");
    assert_eq!(errors, "");
    let words = log.split_whitespace().collect::<Vec<_>>().join(" ");
    for fact in facts {
        assert!(words.contains(fact), "{fact:?} is missing in\n{log}");
    }
    assert_eq!(left(temp.path()), Vec::<PathBuf>::new());
    assert!(began.elapsed() < limit, "{:?}", began.elapsed());
    log
}

#[test]
fn the_whole_tour_goes_as_described_and_leaves_nothing_behind() {
    let facts = [
        "export KUBECONFIG=/",
        "Written to the cluster or the cloud: nothing, not even a lease or an event.",
        "12 nodes initialized, routed and Ready",
        "deleting node node=\"node-02\" evidence=\"the cloud says that the instance does not exist\"",
        "node-02 was deleted on evidence. The load balancers have 11 hosts, the cloud has 11 routes.",
        "InstanceExists fails: 503 Service Unavailable",
        "node-07 is kept",
        "node-07 is Ready again, and nothing was lost.",
        "The load balancer went first, then default/api.",
        "Nodes 12 joined; 12 initialized",
        "1 deleted on evidence (node-02); node-07 kept although the cloud gave no answer",
        "11 remain",
        "2 Services got an address; 1 deleted",
        "Routes 12 made, 1 removed",
        "The dry run wrote none",
    ];
    let log = tour(&["--fast"], &[], LIMIT, &facts);
    assert!(!log.contains('\x1b'), "a log has no escape sequences");
    assert_recommended_files_exist(&log);
}

/// The recommended files of the summary.
fn assert_recommended_files_exist(log: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (_, next) = log.split_once("Read next").unwrap();
    // A line with a deeper indent continues the text about the previous file.
    let files = next.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.starts_with(' '));
    let files: Vec<&str> = files.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(files.len() >= 3, "{next}");
    for file in files {
        assert!(root.join(file).exists(), "{file}");
    }
}

fn interrupt(child: &Child) {
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

#[test]
fn the_last_act_explains_a_service_that_it_creates() {
    let temp = tempfile::tempdir().unwrap();
    let mut child = demo(temp.path(), &["--fast", "--keep"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut text = String::new();
    // The flags are the last words before the wait.
    for line in lines.skip_while(|line| !line.contains("Now you")) {
        text.push_str(&line);
        text.push(' ');
        if line.contains("--cloud-config=") {
            break;
        }
    }
    let mut words = text.split_whitespace();
    let file = words.find(|word| word.contains("/shop.yaml")).unwrap();
    let manifest = std::fs::read_to_string(file.trim_end_matches(';')).unwrap();
    let name = words.find_map(|word| word.strip_prefix("default/")).unwrap().trim_end_matches(',');
    assert!(manifest.contains(&format!("{{name: {name}}}")), "{manifest}");
    interrupt(&child);
    child.wait().unwrap();
}

#[test]
fn an_interrupt_ends_the_tour_cleanly() {
    let temp = tempfile::tempdir().unwrap();
    let mut child = demo(temp.path(), &[]).stdout(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while left(temp.path()).is_empty() {
        assert!(began.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(left(temp.path()), Vec::<PathBuf>::new());
    assert!(began.elapsed() < LIMIT);
}

#[test]
fn help_and_mistakes_start_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let help = demo(temp.path(), &["--help"]).output().unwrap();
    assert!(help.status.success());
    for flag in ["--nodes", "--keep", "--fast", "--cloud-provider"] {
        assert!(text(&help).0.contains(flag), "{flag}");
    }
    let wrong = demo(temp.path(), &["--cloud-provider=hetzner"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong).1.contains("there is: fake, aws, azure, gce, openstack"));
    assert_eq!(left(temp.path()), Vec::<PathBuf>::new());
}
