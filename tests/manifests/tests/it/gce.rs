//! The overlay and the chart for Compute Engine.

use serde_json::{Value, json};

use crate::rendered::{args, chart, documents, overlay, template, with_components, workload};
use crate::tools::helm;

/// The rules of the role that is bound to the program's account and has a rule for ConfigMaps.
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

/// The permissions of the account of `gke-service-lb-controller`, and the service accounts that the process may use.
fn of_gke_service(documents: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let rules = |document: &Value| document["rules"].as_array().cloned().unwrap_or_default();
    let bound = |name: &Value| {
        let binding = documents.iter().find(|one| {
            one["kind"] == "ClusterRoleBinding"
                && one["subjects"] == json!([{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}])
        });
        let role = binding.map(|binding| binding["roleRef"]["name"].clone());
        let role = documents
            .iter()
            .find(|one| one["kind"] == "ClusterRole" && Some(&one["metadata"]["name"]) == role.as_ref());
        role.map(rules).unwrap_or_default()
    };
    let names = documents.iter().filter(|one| one["kind"] == "Role").flat_map(rules);
    let named = names.filter(|rule| rule["resourceNames"] == json!(["gke-service-controller"]));
    (bound(&json!("gke-service-controller")), named.map(|rule| rule["resources"][0].clone()).collect())
}

#[test]
fn the_controller_of_the_classes_of_gke_has_an_account_where_each_controller_has_one() {
    let component = ["service-account-credentials-gce"];
    let Some(with) = with_components(&component) else { return };
    let with = documents(&with);
    let accounts = [json!("serviceaccounts"), json!("serviceaccounts/token")];
    let (of_account, of_process) = of_gke_service(&with);
    assert_eq!(of_process, accounts);
    assert!(of_account.iter().any(|rule| rule["resources"] == json!(["services/status"])), "{of_account:?}");
    assert!(args(workload(&with)).iter().any(|arg| arg == "--use-service-account-credentials=true"));
    let Some(helm) = helm() else { return };
    let chart = |settings: &str| {
        let common = "cloudProvider=gce,image.repository=a,serviceAccountCredentials=true";
        documents(&template(&helm, &["--set", &format!("{common},{settings}")]).unwrap())
    };
    for named in ["controllers={*,gke-service-lb-controller}", "controllers={*,gke-service}", "flags.controllers=a"] {
        assert_eq!(of_gke_service(&chart(named)), (of_account.clone(), accounts.to_vec()), "{named}");
    }
    // If the controller is disabled, nothing is granted.
    assert_eq!(of_gke_service(&chart("controllers={*}")), (Vec::new(), Vec::new()));
}
