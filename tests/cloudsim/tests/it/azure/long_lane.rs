//! Runs all cases with Microsoft's own Python clients.

use super::cases;
use super::run::{cloud, written};
use crate::calls::{Case, Got, drive};
use ccm_cloudsim::azure::{Azure, cache_folder};
use serde_json::{Value, json};

#[test]
fn the_official_client_passes_every_case() {
    let Some(folder) = cache_folder().expect("python") else { return };
    let (cases, clouds): (Vec<Case>, Vec<Azure>) = cases::all().into_iter().map(|case| (case, cloud())).unzip();
    let input: Vec<Value> = cases
        .iter()
        .zip(&clouds)
        .map(|(case, azure)| {
            let steps: Vec<Value> = case.steps.iter().map(written).collect();
            json!({"root": azure.root(), "token": azure.token(), "steps": steps})
        })
        .collect();
    let answers: Vec<Vec<(String, Value)>> = drive(&folder, "azure/drive.py", &json!(input));
    assert_eq!(answers.len(), cases.len());
    let mut report = Vec::new();
    for ((case, azure), answers) in cases.iter().zip(&clouds).zip(answers) {
        let got: Vec<Got> = answers.into_iter().map(|(problem, json)| Got { problem, json }).collect();
        report.extend(case.judge(&got));
        report.extend(azure.take_violations().into_iter().map(|text| format!("{}: {text}", case.name)));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}
