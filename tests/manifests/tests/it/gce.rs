//! The overlay and the chart for Compute Engine.

use serde_json::{Value, json};

use crate::rendered::{args, chart, documents, overlay, workload};

/// The rules of the role that is bound to the account of the program and has a rule for ConfigMaps.
fn config_map_rules(documents: &[Value]) -> Value {
    let has_rule = |role: &&Value| {
        role["rules"].as_array().into_iter().flatten().any(|rule| rule["resources"] == json!(["configmaps"]))
    };
    let role =
        documents.iter().filter(|document| document["kind"] == "Role").find(has_rule).expect("a role for ConfigMaps");
    let bound = |document: &&Value| {
        document["kind"] == "RoleBinding" && document["roleRef"]["name"] == role["metadata"]["name"]
    };
    let binding = documents.iter().find(bound).expect("a binding of that role");
    assert_eq!(
        (&role["metadata"]["namespace"], &binding["metadata"]["namespace"]),
        (&json!("kube-system"), &json!("kube-system"))
    );
    role["rules"].clone()
}

fn only_the_cluster_id() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["ingress-uid"], "verbs": ["get"]},
    ])
}

#[test]
fn the_overlay_needs_no_file_and_may_keep_the_cluster_id() {
    let Some(text) = overlay("gce") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    assert!(args.iter().any(|arg| arg == "--cloud-provider=gce"), "{args:?}");
    assert!(!args.iter().any(|arg| arg.starts_with("--cloud-config")), "{args:?}");
    assert_eq!(config_map_rules(&documents), only_the_cluster_id());
}

#[test]
fn the_chart_does_the_same_with_a_file() {
    let Some(text) = chart("gce") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    for arg in ["--cloud-provider=gce", "--cluster-name=prod"] {
        assert!(args.iter().any(|one| one == arg), "{arg}: {args:?}");
    }
    assert!(args.iter().any(|arg| arg.starts_with("--cloud-config=")), "{args:?}");
    assert_eq!(config_map_rules(&documents), only_the_cluster_id());
}
