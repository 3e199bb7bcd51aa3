//! The overlay and the chart for OpenStack.

use serde_json::{Value, json};

use crate::rendered::{args, chart, documents, overlay, workload};

fn named(list: &Value, name: &str) -> Value {
    list.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn the_overlay_has_its_files_where_the_go_program_has_them() {
    let Some(text) = overlay("openstack") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    for arg in ["--cloud-provider=openstack", "--cloud-config=/etc/config/cloud.conf", "--configure-cloud-routes=false"]
    {
        assert!(args.iter().any(|one| one == arg), "{arg}: {args:?}");
    }
    let pod = &workload(&documents)["spec"]["template"]["spec"];
    let mounts = &pod["containers"][0]["volumeMounts"];
    for (name, path) in [("cloud-config", "/etc/config"), ("node-certificates", "/etc/ssl/certs")] {
        let mount = named(mounts, name);
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &json!(true)));
    }
    let secret = documents.iter().find(|document| document["kind"] == "Secret").unwrap();
    assert!(secret["data"]["cloud.conf"].is_string());
    assert_eq!(named(&pod["volumes"], "cloud-config")["secret"]["secretName"], secret["metadata"]["name"]);
    assert_eq!((&pod["hostNetwork"], &pod["securityContext"]["runAsNonRoot"]), (&json!(true), &json!(true)));
}

#[test]
fn the_chart_takes_the_secret_that_is_there() {
    let Some(text) = chart("openstack") else { return };
    let documents = documents(&text);
    let args = args(workload(&documents));
    assert!(args.iter().any(|arg| arg == "--cloud-provider=openstack"), "{args:?}");
    assert!(args.iter().any(|arg| arg == "--cluster-name=prod"), "{args:?}");
    let volumes = &workload(&documents)["spec"]["template"]["spec"]["volumes"];
    assert_eq!(named(volumes, "cloud-config")["secret"]["secretName"], "cloud-config");
    assert_eq!(named(volumes, "node-certificates")["hostPath"]["path"], "/etc/ssl/certs");
}
