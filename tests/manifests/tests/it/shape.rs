//! The pod is allowed and able to run with the control plane.

use serde_json::Value;

use crate::rendered::{all, args, documents, kustomize, workload};

fn check(name: &str, documents: &[Value]) {
    let workload = workload(documents);
    let pod = &workload["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1, "{name}");
    let account = documents.iter().find(|one| one["kind"] == "ServiceAccount").unwrap();
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"], "{name}");
    // A trial runs beside the other program.
    if !name.starts_with("chart") && !name.contains("trial") {
        // As in the Go programs.
        assert_eq!(pod["serviceAccountName"], "cloud-controller-manager", "{name}");
    }
    assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{name}");

    assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
    assert_eq!(pod["securityContext"]["runAsUser"], 65532, "{name}");
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
    assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
    assert_eq!(security["capabilities"], serde_json::json!({"drop": ["ALL"]}), "{name}");
    assert!(security.get("privileged").is_none(), "{name}");
    // A throttled leader loses its lease.
    assert!(container["resources"]["limits"].get("cpu").is_none(), "{name}");
    assert!(container["resources"]["requests"]["memory"].is_string(), "{name}");

    let tolerates =
        |key: &str| pod["tolerations"].as_array().unwrap().iter().any(|t| t["key"] == key && t["operator"] == "Exists");
    for key in [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "CriticalAddonsOnly",
    ] {
        assert!(tolerates(key), "{name}: {key}");
    }
    // In a cluster with one control-plane node it would keep a replica pending.
    let apart = &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert!(apart.is_null(), "{name}: {apart}");
    let selected = &workload["spec"]["selector"]["matchLabels"];
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    for (key, value) in selected.as_object().unwrap() {
        assert_eq!(&labels[key], value, "{name}: the selector does not match the pods");
    }
}

#[test]
fn every_pod_is_hardened_and_tolerates_the_taint_that_it_removes() {
    let all = all();
    all.iter().for_each(|(name, text)| check(name, &documents(text)));
}

fn image(text: &str) -> String {
    workload(&documents(text))["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

/// An image name without a host belongs to the default registry, where anybody may own it.
#[test]
fn no_manifest_pulls_a_foreign_image() {
    for (name, text) in all().into_iter().filter(|(name, _)| !name.starts_with("chart")) {
        let image = image(&text);
        let (host, _) = image.split_once('/').unwrap_or(("", ""));
        assert!(host.ends_with(".invalid"), "{name}: {image}");
        let own = format!(
            "resources:\n- all.yaml\nimages:\n- {{name: {}, newName: example.com/ccm, newTag: v9}}\n",
            image.split_once(':').unwrap().0
        );
        let Some(text) = kustomize(&[("kustomization.yaml", own), ("all.yaml", text)]) else { return };
        assert_eq!(self::image(&text), "example.com/ccm:v9", "{name}");
    }
}

#[test]
fn the_probes_ask_where_the_program_listens() {
    for (name, text) in all() {
        let documents = documents(&text);
        let workload = workload(&documents);
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        // The last of repeated flags applies.
        let flag = |flag: &str| {
            let start = format!("--{flag}=");
            args(workload).iter().rev().find_map(|arg| arg.strip_prefix(&start).map(str::to_owned))
        };
        let port = flag("secure-port").unwrap_or_else(|| "10258".into());
        if port == "0" {
            assert!(container.get("livenessProbe").is_none() && container.get("ports").is_none(), "{name}");
            continue;
        }
        assert_eq!(container["ports"][0]["containerPort"].to_string(), port, "{name}");
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            let get = &container[probe]["httpGet"];
            assert_eq!(
                (&get["path"], &get["scheme"], &get["port"]),
                (&path.into(), &"HTTPS".into(), &"https".into()),
                "{name}"
            );
            let listens = match get["host"].as_str().unwrap() {
                "127.0.0.1" => ["127.0.0.1", "0.0.0.0", "::"].contains(&&*flag("bind-address").unwrap()),
                "::1" => ["::1", "::"].contains(&&*flag("bind-address").unwrap()),
                other => panic!("{name}: {other}"),
            };
            assert!(listens, "{name}: {get}");
        }
    }
}
