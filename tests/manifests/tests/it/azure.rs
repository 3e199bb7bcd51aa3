//! The overlay and the chart for Azure.

use serde_json::{Value, json};

use crate::rendered::{args, chart, documents, overlay, workload};

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
