//! Runs all cases with the official Python client, which is built from Google's description.

use super::run::{Case, Got, Step};
use super::suite::noticed;
use super::{cases, scene};
use ccm_cloudsim::gce::{Gce, cache_folder};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn the_official_client_passes_every_case() {
    let Some(folder) = cache_folder().expect("python") else { return };
    let (cases, clouds): (Vec<Case>, Vec<Gce>) = cases::all().into_iter().map(|case| (case, scene::cloud())).unzip();
    let input: Vec<Value> = cases.iter().zip(&clouds).map(|(case, gce)| input(case, gce)).collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/gce/drive.py");
    let mut python = Command::new(folder.join("bin/python"));
    let mut child = python.arg("-B").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python");
    child.stdin.take().expect("a pipe").write_all(json!(input).to_string().as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", output.status);
    let answers: Vec<Vec<(u16, Value)>> = serde_json::from_slice(&output.stdout).expect("answers");
    assert_eq!(answers.len(), cases.len());
    let mut report = Vec::new();
    for ((case, gce), answers) in cases.iter().zip(&clouds).zip(answers) {
        let got: Vec<Got> = answers.into_iter().map(|(status, json)| Got { status, json }).collect();
        report.extend(case.judge(&got));
        report.extend(noticed(case, gce));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

fn input(case: &Case, gce: &Gce) -> Value {
    let steps: Vec<Value> = case.steps.iter().map(Step::json).collect();
    json!({"root": gce.root(), "token": gce.token(), "steps": steps})
}
