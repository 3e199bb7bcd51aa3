//! What users get, committed, so that a change of it is seen in review. `UPDATE=1` writes it anew.

use std::fs;

use ccm_test_manifests::workspace;

use crate::rendered::{chart, components, overlay, overlays, template, values, with_components};
use crate::tools::helm;

fn check(name: &str, text: &str) {
    let path = workspace().join("tests/manifests/goldens").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(text.lines()).find(|(golden, now)| golden != now);
    assert!(
        golden == text,
        "{name} is no longer what it was ({} lines, now {}); first difference: {differs:?}. If that is wanted: \
         UPDATE=1 cargo test -p ccm-test-manifests goldens",
        golden.lines().count(),
        text.lines().count(),
    );
}

#[test]
fn kustomize_prints_what_was_reviewed() {
    for name in overlays() {
        let Some(text) = overlay(&name) else { return };
        check(&format!("overlay-{name}.yaml"), &text);
    }
    // The others are part of an overlay. The first is for the time of a migration only, the second needs a certificate.
    for name in ["leader-migration", "volume-webhook-aws"] {
        assert!(components().contains(&name.to_owned()));
        if let Some(text) = with_components(&[name]) {
            check(&format!("component-{name}.yaml"), &text);
        }
    }
}

#[test]
fn helm_prints_what_was_reviewed() {
    for name in values() {
        let Some(text) = chart(&name) else { return };
        check(&format!("chart-{name}.yaml"), &text);
    }
}

#[test]
fn the_chart_refuses_bad_values_and_names_them() {
    let Some(helm) = helm() else { return };
    for (settings, named) in [
        ("kind=DaemonSet", "/cloudProvider"),
        ("cloudProvider=fake,kind=Pod", "/kind"),
        ("cloudProvider=fake,routes.enabled=true", "/routes/clusterCIDR"),
        ("cloudProvider=fake,cloudConfig.inline=a,cloudConfig.existingSecret=b", "/cloudConfig"),
        ("cloudProvider=fake,imag.tag=v1", "imag"),
        ("cloudProvider=fake,securePort=70000", "/securePort"),
        ("cloudProvider=fake,image.repository=", "/image/repository"),
        ("cloudProvider=fake,image.digest=abc", "/image/digest"),
        ("cloudProvider=fake,volumeWebhook.enabled=true,volumeWebhook.caBundle=a", "/volumeWebhook/tlsSecret"),
        ("cloudProvider=fake,volumeWebhook.enabled=true,volumeWebhook.tlsSecret=a", "/volumeWebhook"),
        ("cloudProvider=aws,serviceAccount.annotations.a=1", "/serviceAccount/annotations/a"),
    ] {
        let said = template(&helm, &["--set", settings]).unwrap_err();
        assert!(said.contains(named), "{settings}: {said}");
    }
    template(&helm, &["--set", "cloudProvider=fake"]).unwrap();
}

#[test]
fn gates_of_the_user_leave_the_gate_of_the_webhook_on() {
    let Some(helm) = helm() else { return };
    let webhook = "cloudProvider=aws,volumeWebhook.enabled=true,volumeWebhook.tlsSecret=a,volumeWebhook.caBundle=b";
    let gates = |flags: &str| {
        let text = template(&helm, &["--set", &format!("{webhook},{flags}")]).unwrap();
        let gates = text.lines().filter_map(|line| line.trim().strip_prefix("- \"--feature-gates="));
        gates.map(|gate| gate.trim_end_matches('"').to_owned()).collect::<Vec<_>>()
    };
    const OURS: &str = "CloudControllerManagerWebhook=true";
    assert_eq!(gates("flags.v=3"), [OURS]);
    assert_eq!(gates("flags.feature-gates=A=true"), [OURS, "A=true"]);
    assert_eq!(gates("flags.feature-gates={A=true,B=false}"), [OURS, "A=true", "B=false"]);
    assert_eq!(gates("flags.feature-gates=null"), [""; 0]);
    // Who switches it off has the last word.
    let off = "CloudControllerManagerWebhook=false";
    assert_eq!(gates(&format!("flags.feature-gates={off}")), [OURS, off]);
}
