//! The manifests as users get them: overlays, each single component with the base, the chart with some values.

use std::path::Path;

use ccm_test_manifests::workspace;
use serde_json::Value;

use crate::tools::{helm, kubectl, manifests, run};

/// The documents of a file.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

pub(crate) fn overlays() -> Vec<String> {
    names(&manifests().join("overlays"))
}

pub(crate) fn components() -> Vec<String> {
    names(&manifests().join("components"))
}

/// Files with values for the chart, without extension.
pub(crate) fn values() -> Vec<String> {
    let names = names(&workspace().join("tests/manifests/values"));
    names.into_iter().map(|name| name.trim_end_matches(".yaml").to_owned()).collect()
}

pub(crate) fn overlay(name: &str) -> Option<String> {
    let folder = manifests().join("overlays").join(name);
    Some(run(&kubectl()?, &["kustomize", folder.to_str().unwrap()]).unwrap())
}

/// The base with some components.
pub(crate) fn with_components(names: &[&str]) -> Option<String> {
    let listed: String = names.iter().map(|name| format!("- ../../components/{name}\n")).collect();
    let components = if names.is_empty() { String::new() } else { format!("components:\n{listed}") };
    kustomize(&[("kustomization.yaml", format!("resources:\n- ../../base\n{components}"))])
}

/// The overlay for AWS with all optional lines enabled.
pub(crate) fn aws_with_every_choice() -> Option<String> {
    let file = |name: &str| crate::tools::read(&format!("overlays/aws/{name}"));
    let taken = |line: &str| match line.strip_prefix('#') {
        Some(choice) if !choice.starts_with(' ') || choice.starts_with("  ") => format!("{choice}\n"),
        _ => format!("{line}\n"),
    };
    let text = file("kustomization.yaml").lines().map(taken).collect();
    let config = "[Global]\nRegion = eu-west-1\n".to_owned();
    kustomize(&[("kustomization.yaml", text), ("flags.yaml", file("flags.yaml")), ("cloud.conf", config)])
}

/// Renders a folder with these files, as if it were one of the overlays.
pub(crate) fn kustomize(files: &[(&str, String)]) -> Option<String> {
    let kubectl = kubectl()?;
    let folder = tempfile::Builder::new().prefix("ccm-kustomize-").tempdir().unwrap();
    // Kustomize accepts only relative paths of folders, so the path goes up to the root and down again.
    let here = folder.path().canonicalize().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let manifests =
        format!("{up}{}/", manifests().canonicalize().unwrap().display().to_string().trim_start_matches('/'));
    for (name, text) in files {
        std::fs::write(here.join(name), text.replace("- ../../", &format!("- {manifests}"))).unwrap();
    }
    Some(run(&kubectl, &["kustomize", here.to_str().unwrap()]).unwrap())
}

/// The chart with the values of a file.
pub(crate) fn chart(values: &str) -> Option<String> {
    let file = workspace().join(format!("tests/manifests/values/{values}.yaml"));
    Some(template(&helm()?, &["--values", file.to_str().unwrap()]).unwrap())
}

/// The chart with some settings, or the error.
pub(crate) fn template(helm: &Path, args: &[&str]) -> Result<String, String> {
    release(helm, "test", args)
}

/// The same for a release with this name.
pub(crate) fn release(helm: &Path, name: &str, args: &[&str]) -> Result<String, String> {
    let chart = manifests().join("charts/ccm");
    run(helm, &[&["template", name, chart.to_str().unwrap(), "--namespace", "kube-system"], args].concat())
}

/// All variants of the manifests, each with a name for messages.
pub(crate) fn all() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: String, text: Option<String>| all.extend(text.map(|text| (name, text)));
    for name in overlays() {
        add(format!("overlay {name}"), overlay(&name));
    }
    add("overlay aws with every choice".into(), aws_with_every_choice());
    add("base".into(), with_components(&[]));
    for name in components() {
        add(format!("component {name}"), with_components(&[&name]));
    }
    for name in values() {
        add(format!("chart with {name}"), chart(&name));
    }
    all
}

/// The DaemonSet or Deployment among the documents.
pub(crate) fn workload(documents: &[Value]) -> &Value {
    let is_workload = |document: &&Value| matches!(document["kind"].as_str(), Some("DaemonSet" | "Deployment"));
    let mut workloads = documents.iter().filter(is_workload);
    let workload = workloads.next().unwrap();
    assert!(workloads.next().is_none(), "two workloads");
    workload
}

/// The arguments of the program.
pub(crate) fn args(workload: &Value) -> Vec<String> {
    let args = workload["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    args.iter().map(|arg| arg.as_str().unwrap().to_owned()).collect()
}
