//! The overlay and the chart for Azure.

use serde_json::{Value, json};

use crate::rendered::{args, chart, documents, kustomize, overlay, template, workload};
use crate::tools::{helm, manifests};

fn named(list: &Value, name: &str) -> Value {
    list.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn the_overlay_has_its_file_where_the_go_program_has_it() {
    let Some(text) = overlay("azure") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    for arg in ["--cloud-provider=azure", "--cloud-config=/etc/kubernetes/azure.json", "--configure-cloud-routes=false"]
    {
        assert!(args.iter().any(|one| one == arg), "{arg}: {args:?}");
    }
    let pod = &workload(&documents)["spec"]["template"]["spec"];
    let mount = named(&pod["containers"][0]["volumeMounts"], "cloud-config");
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!("/etc/kubernetes"), &json!(true)));
    let secret = documents.iter().find(|document| document["kind"] == "Secret").unwrap();
    assert!(secret["data"]["azure.json"].is_string());
    assert_eq!(named(&pod["volumes"], "cloud-config")["secret"]["secretName"], secret["metadata"]["name"]);
}

#[test]
fn the_chart_takes_the_file() {
    let Some(text) = chart("azure") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    for arg in ["--cloud-provider=azure", "--cluster-name=prod"] {
        assert!(args.iter().any(|one| one == arg), "{arg}: {args:?}");
    }
    assert!(args.iter().any(|arg| arg.starts_with("--cloud-config=")), "{args:?}");
}

/// The accounts that may list and watch EndpointSlices.
fn watchers_of_slices(documents: &[Value]) -> Vec<String> {
    let rule = json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]});
    let of_kind = |kind: &'static str| documents.iter().filter(move |one| one["kind"] == kind);
    let role = of_kind("ClusterRole").find(|one| one["rules"].as_array().is_some_and(|rules| rules.contains(&rule)));
    let Some(role) = role else { return Vec::new() };
    let is_of = |one: &&Value| one["roleRef"]["name"] == role["metadata"]["name"];
    let subjects = of_kind("ClusterRoleBinding").filter(is_of).flat_map(|one| one["subjects"].as_array().unwrap());
    subjects.map(|subject| subject["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_process_may_watch_endpoint_slices() {
    let Some(text) = overlay("azure") else { return };
    assert_eq!(watchers_of_slices(&documents(&text)), ["cloud-controller-manager"]);
    let Some(helm) = helm() else { return };
    let chart = |settings: &str| {
        let settings = format!("image.repository=a,clusterName=k,{settings}");
        watchers_of_slices(&documents(&template(&helm, &["--set", &settings]).unwrap()))
    };
    let inline = "cloudProvider=azure,cloudConfig.inline=a";
    assert_eq!(chart(inline), ["test-cloud-controller-manager"]);
    assert_eq!(chart(&format!("{inline},trial=true,serviceAccountCredentials=true")).len(), 1);
    assert_eq!(chart(&format!("{inline},serviceAccountCredentials=true")), ["test-cloud-controller-manager"]);
    assert_eq!(chart("cloudProvider=gce"), [""; 0]);
}

/// Namespace, name and account of the Secrets that may be read.
fn readable_secrets(documents: &[Value]) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_kind = |kind: &'static str| documents.iter().filter(move |one| one["kind"] == kind);
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    let of_role = |role: &Value| {
        let mut rule = role["rules"][0].clone();
        let names = rule.as_object_mut().unwrap().remove("resourceNames")?;
        let binding = of_kind("RoleBinding").find(|one| one["roleRef"]["name"] == role["metadata"]["name"])?;
        assert_eq!(binding["metadata"]["namespace"], role["metadata"]["namespace"]);
        let found = [&role["metadata"]["namespace"], &names[0], &binding["subjects"][0]["name"]].map(text);
        (rule == secrets).then_some(found)
    };
    of_kind("Role").filter_map(of_role).collect()
}

#[test]
fn the_secret_with_the_configuration_may_be_read() {
    let file = |name: &str| std::fs::read_to_string(manifests().join("overlays/azure").join(name)).unwrap();
    let text =
        file("kustomization.yaml").replace("#- secret", "- secret").replace("#- path", "- path").replace("#  t", "  t");
    let names = ["azure.json", "endpoint-slices.yaml", "flags.yaml", "mounts.yaml", "secret.yaml", "secret-flags.yaml"];
    let mut files: Vec<(&str, String)> = names.iter().map(|name| (*name, file(name))).collect();
    files.push(("kustomization.yaml", text));
    let Some(text) = kustomize(&files) else { return };
    let documents = documents(&text);
    let account = "cloud-controller-manager".to_owned();
    assert_eq!(readable_secrets(&documents), [["kube-system".into(), "azure-cloud-provider".into(), account]]);
    let args = args(workload(&documents));
    let last = args.iter().rev().find(|arg| arg.starts_with("--cloud-config=")).unwrap();
    assert_eq!(last, "--cloud-config=");
    assert!(args.contains(&"--cloud-config-secret-name=azure-cloud-provider".to_owned()), "{args:?}");

    let Some(helm) = helm() else { return };
    let chart = |settings: &str| {
        let settings = format!("image.repository=a,clusterName=k,{settings}");
        readable_secrets(&crate::rendered::documents(&template(&helm, &["--set", &settings]).unwrap()))
    };
    let named = "flags.cloud-config-secret-name=s";
    let of = |namespace: &str, account: &str| [[namespace.to_owned(), "s".to_owned(), account.to_owned()]];
    let account = "test-cloud-controller-manager";
    assert_eq!(chart(&format!("cloudProvider=azure,{named}")), of("kube-system", account));
    assert_eq!(
        chart(&format!("cloudProvider=azure,{named},trial=true")),
        of("kube-system", &format!("{account}-trial"))
    );
    let elsewhere = format!("cloudProvider=azure,{named},flags.cloud-config-secret-namespace=cloud");
    assert_eq!(chart(&elsewhere), of("cloud", account));
    assert_eq!(chart("cloudProvider=azure"), [[""; 3]; 0]);
}
