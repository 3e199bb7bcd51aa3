//! Calls the simulation with boto3, the vendor's client, so that the protocol is not only checked by our own client.

use std::process::Command;

use ccm_cloudsim::aws::Aws;
use ccm_cloudsim::aws::options::{Delays, Options};
use ccm_cloudsim::moto;

#[test]
fn boto3_finds_its_objects() {
    let Some(python) = moto::python().expect("python") else { return };
    let aws = Aws::start(Options { delays: Delays::none(), ..Options::default() }).expect("a simulated AWS");
    let certificate = "arn:aws:acm:us-west-2:123456789012:certificate/1";
    aws.world(|world| world.elb.add_certificate(certificate));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/drive.py");
    let output = Command::new(python).arg("-B").arg(script).arg(aws.url()).arg(certificate).output().expect("python");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(aws.violations(), Vec::<String>::new());
    let services: Vec<String> = aws.ledger(|ledger| ledger.totals().into_keys().collect());
    assert!(services.len() >= 45, "only {} operations were driven: {services:?}", services.len());
}
