//! Runs all cases: the simulation must pass each.

use std::fmt::Write as _;

use ccm_cloudsim::aws::Aws;
use ccm_cloudsim::aws::model::Models;
use ccm_cloudsim::aws::options::{Delays, Options};

use crate::deviations::moto::OF_MOTO;
use crate::deviations::{self, Deviation};
use crate::{cases, scene};

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/11111111-2222-3333-4444-555555555555";

#[test]
fn case_names_are_unique_and_the_table_names_cases() {
    let names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    deviations::check_names(&names, OF_MOTO);
    let has_document = |entry: &Deviation| entry.document.starts_with("https://docs.aws.amazon.com/");
    assert!(OF_MOTO.iter().all(has_document));
}

#[test]
fn the_double_passes_every_case_and_follows_the_vendors_models() {
    let checked = Models::shared().expect("models that can be read").is_some();
    let mut report = String::new();
    for case in cases::all() {
        let aws = Aws::start(Options { delays: Delays::none(), ..Options::default() }).expect("a simulated AWS");
        let address = aws.url().strip_prefix("http://").and_then(|text| text.parse().ok()).expect("an address");
        aws.world(|world| world.elb.add_certificate(CERTIFICATE));
        let mut values = scene::make(address);
        values.insert("cert".to_owned(), CERTIFICATE.to_owned());
        assert_eq!(aws.take_violations(), Vec::<String>::new(), "while making the scene");
        for line in case.run(address, &values) {
            let _ = writeln!(report, "{line}");
        }
        let on_purpose = cases::BREAKS_THE_MODEL.iter().filter(|(name, _)| *name == case.name);
        let on_purpose: Vec<&str> = on_purpose.map(|(_, part)| *part).collect();
        let violations = aws.violations();
        for line in violations.iter().filter(|line| !on_purpose.iter().any(|part| line.contains(part))) {
            let _ = writeln!(report, "{}: against the model: {line}", case.name);
        }
        for part in on_purpose.iter().filter(|part| !violations.iter().any(|line| line.contains(*part))) {
            if checked {
                let _ = writeln!(report, "{}: the model has no objection about {part:?}", case.name);
            }
        }
        let ignored = aws.ledger(|ledger| {
            let done = ledger.since(0).filter(|entry| entry.applied);
            done.flat_map(|entry| entry.unread.iter().map(|name| format!("{} of {}", name, entry.action)))
                .collect::<Vec<_>>()
        });
        for what in ignored {
            let _ = writeln!(report, "{}: nothing looked at {what}", case.name);
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Otherwise no test would notice that the checks of the simulation are disabled.
#[test]
fn without_models_that_can_be_read_nothing_starts() {
    let empty = env!("CARGO_TARGET_TMPDIR");
    for (variables, says) in [
        (vec![("CCM_AWS_MODELS", empty)], "ec2.json"),
        (vec![("XDG_CACHE_HOME", empty), ("CI", "true")], "no models of the AWS services"),
    ] {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_ccm-cloudsim"));
        program
            .args(["aws", "--until-eof"])
            .stdin(std::process::Stdio::null())
            .env_remove("CCM_AWS_MODELS")
            .env_remove("CI");
        let output = program.envs(variables).output().expect("a process");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(says), "{errors}");
    }
}
