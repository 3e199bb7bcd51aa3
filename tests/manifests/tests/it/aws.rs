//! The overlay and the chart for AWS.

use serde_json::{Value, json};

use crate::rendered::{args, aws_with_every_choice, chart, documents, overlay, workload};

/// The value of a flag; the last of repeated ones applies.
fn flag<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let start = format!("--{name}=");
    args.iter().rev().find_map(|arg| arg.strip_prefix(&start))
}

fn account(documents: &[Value]) -> &Value {
    documents.iter().find(|document| document["kind"] == "ServiceAccount").unwrap()
}

#[test]
fn the_overlay_needs_no_configuration_and_makes_no_routes() {
    let Some(text) = overlay("aws") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    assert_eq!(flag(&args, "cloud-provider"), Some("aws"));
    assert_eq!(flag(&args, "configure-cloud-routes"), Some("false"));
    assert_eq!((flag(&args, "cloud-config"), flag(&args, "use-service-account-credentials")), (None, None));
    let pod = &workload(&documents)["spec"]["template"]["spec"];
    // By default the metadata service returns credentials only to clients within one hop.
    assert_eq!((&pod["hostNetwork"], &pod["volumes"]), (&json!(true), &Value::Null));
    assert_eq!(account(&documents)["metadata"]["annotations"], Value::Null);
}

#[test]
fn every_option_of_the_overlay_has_the_described_effect() {
    let Some(text) = aws_with_every_choice() else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    assert_eq!(flag(&args, "configure-cloud-routes"), Some("true"));
    assert_eq!(flag(&args, "cloud-config"), Some("/etc/cloud/cloud.conf"));
    assert_eq!(flag(&args, "use-service-account-credentials"), Some("true"));
    let role = "arn:aws:iam::123456789012:role/ccm";
    assert_eq!(account(&documents)["metadata"]["annotations"]["eks.amazonaws.com/role-arn"], role);
    let pod = &workload(&documents)["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let named = |list: &Value, name: &str| list.as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    assert_eq!(named(&container["env"], "AWS_ROLE_ARN").unwrap()["value"], role);
    let token = named(&container["env"], "AWS_WEB_IDENTITY_TOKEN_FILE").unwrap();
    let mount = named(&container["volumeMounts"], "sts-token").unwrap();
    let source = &named(&pod["volumes"], "sts-token").unwrap()["projected"]["sources"][0]["serviceAccountToken"];
    let path = format!("{}/{}", mount["mountPath"].as_str().unwrap(), source["path"].as_str().unwrap());
    assert_eq!((token["value"].as_str(), &source["audience"]), (Some(&*path), &json!("sts.amazonaws.com")));
    assert!(named(&pod["volumes"], "cloud-config").is_some());
}

#[test]
fn the_chart_passes_on_configuration_role_and_environment() {
    let Some(text) = chart("aws") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    assert_eq!((flag(&args, "cloud-provider"), flag(&args, "configure-cloud-routes")), (Some("aws"), Some("false")));
    assert_eq!(flag(&args, "cloud-config"), Some("/etc/cloud/cloud.conf"));
    assert!(account(&documents)["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].is_string());
    let env = &workload(&documents)["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env[0], json!({"name": "AWS_USE_DUALSTACK_ENDPOINT", "value": "true"}));
}
