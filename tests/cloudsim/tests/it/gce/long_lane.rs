//! Runs all cases with the official Python client, which is built from Google's description.

use super::run::{got, written};
use super::suite::noticed;
use super::{cases, scene};
use crate::calls::{Case, Got, drive};
use ccm_cloudsim::gce::{Gce, cache_folder};
use serde_json::{Value, json};

#[test]
fn the_official_client_passes_every_case() {
    let Some(folder) = cache_folder().expect("python") else { return };
    let (cases, clouds): (Vec<Case>, Vec<Gce>) = cases::all().into_iter().map(|case| (case, scene::cloud())).unzip();
    let input: Vec<Value> = cases.iter().zip(&clouds).map(|(case, gce)| input(case, gce)).collect();
    let answers: Vec<Vec<(u16, Value)>> = drive(&folder, "gce/drive.py", &json!(input));
    assert_eq!(answers.len(), cases.len());
    let mut report = Vec::new();
    for ((case, gce), answers) in cases.iter().zip(&clouds).zip(answers) {
        let got: Vec<Got> = answers.into_iter().map(|(status, json)| got(status, json)).collect();
        report.extend(case.judge(&got));
        report.extend(noticed(case, gce));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

fn input(case: &Case, gce: &Gce) -> Value {
    let steps: Vec<Value> = case.steps.iter().map(written).collect();
    json!({"root": gce.root(), "token": gce.token(), "steps": steps})
}
