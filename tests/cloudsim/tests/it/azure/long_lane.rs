//! Runs all cases with Microsoft's own Python clients.

use super::cases;
use super::run::{Case, Got, Step, cloud};
use ccm_cloudsim::azure::{Azure, cache_folder};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn the_official_client_passes_every_case() {
    let Some(folder) = cache_folder().expect("python") else { return };
    let (cases, clouds): (Vec<Case>, Vec<Azure>) = cases::all().into_iter().map(|case| (case, cloud())).unzip();
    let input: Vec<Value> = cases
        .iter()
        .zip(&clouds)
        .map(|(case, azure)| {
            let steps: Vec<Value> = case.steps.iter().map(Step::json).collect();
            json!({"root": azure.root(), "token": azure.token(), "steps": steps})
        })
        .collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/azure/drive.py");
    let mut python = Command::new(folder.join("bin/python"));
    let mut child = python.arg("-B").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python");
    child.stdin.take().expect("a pipe").write_all(json!(input).to_string().as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", output.status);
    let answers: Vec<Vec<(String, Value)>> = serde_json::from_slice(&output.stdout).expect("answers");
    assert_eq!(answers.len(), cases.len());
    let mut report = Vec::new();
    for ((case, azure), answers) in cases.iter().zip(&clouds).zip(answers) {
        let got: Vec<Got> = answers.into_iter().map(|(code, json)| Got { code, json }).collect();
        report.extend(case.judge(&got));
        report.extend(azure.take_violations().into_iter().map(|text| format!("{}: {text}", case.name)));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}
