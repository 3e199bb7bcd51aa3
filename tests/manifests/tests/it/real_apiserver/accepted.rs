//! The API server accepts every document.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ccm_test_bed::Bed;

use crate::rendered::{all, documents};
use crate::tools::{crds, kubectl};

/// Runs kubectl as the administrator with this standard input.
pub(super) fn apply(bed: &Bed, kubectl: &Path, args: &[&str], input: &str) -> Result<String, String> {
    use std::io::Write as _;
    let mut child = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(bed.kubeconfig())
        .args(args)
        .env("HOME", bed.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// Adds the CRDs of the Prometheus operator.
async fn install_crds(bed: &Bed, kubectl: &Path, folder: &Path) {
    apply(bed, kubectl, &["create", "-f", folder.to_str().unwrap()], "").unwrap();
    for resource in ["servicemonitors", "prometheusrules"] {
        let path = format!("/apis/monitoring.coreos.com/v1/{resource}");
        let began = std::time::Instant::now();
        while bed.get(&path).await.unwrap().0 != 200 {
            assert!(began.elapsed() < Duration::from_secs(30), "{resource} are not served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_document_of_every_overlay_and_of_the_chart_is_accepted() {
    let Some(bed) = Bed::start().await.unwrap() else { return };
    let (Some(kubectl), Some(crds)) = (kubectl(), crds()) else { return };
    install_crds(&bed, &kubectl, &crds).await;
    let mut accepted = 0;
    for (name, text) in all() {
        let args = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = apply(&bed, &kubectl, &args, &text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let count = documents(&text).len();
        assert_eq!(said.matches("(server dry run)").count(), count, "{name}: {said}");
        assert!(!said.contains("Warning"), "{name}: {said}");
        accepted += count;
    }
    assert!(accepted > 80, "{accepted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelled_field_would_be_refused() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let Some(kubectl) = kubectl() else { return };
    let text = crate::tools::read("base/daemonset.yaml").replace("hostNetwork:", "hostNetwrok:");
    let said = apply(bed, &kubectl, &["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &text).unwrap_err();
    assert!(said.contains("hostNetwrok"), "{said}");
}
