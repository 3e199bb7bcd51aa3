//! The README lists the versions of Kubernetes and etcd on which the tests run.

use std::fs;
use std::path::Path;

use ccm_test_manifests::workspace;

use crate::tools::{read, version};

/// The first two columns of the table.
fn listed() -> Vec<(String, String)> {
    let readme = fs::read_to_string(workspace().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## Tested versions\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    rows.map(|row| row.split(" | ").map(str::to_owned).collect::<Vec<_>>())
        .map(|cells| (cells[0].clone(), cells[1].split([' ', ',']).next().unwrap().to_owned()))
        .collect()
}

fn parts(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("{version}"))).collect()
}

/// Every folder with a Go module is a version that the tests can select.
#[test]
fn every_version_that_the_tests_build_is_in_the_readme() {
    let listed = listed();
    let folder = Path::new("hack/k8s");
    let modules = fs::read_dir(workspace().join(folder)).unwrap().map(|entry| folder.join(entry.unwrap().file_name()));
    let modules = modules.filter(|path| workspace().join(path).join("go.mod").exists()).chain([folder.to_owned()]);
    for module in modules {
        let file = module.join("go.mod");
        let etcd = module.file_name().unwrap().to_string_lossy().starts_with("etcd");
        let name = if etcd { "go.etcd.io/etcd/server/v3" } else { "k8s.io/kubernetes" };
        let version = version(file.to_str().unwrap(), name);
        let found = listed.iter().any(|(kubernetes, of_etcd)| version == *if etcd { of_etcd } else { kubernetes });
        assert!(found, "{}: {version} is not in the tested versions of README.md: {listed:?}", file.display());
    }
}

#[test]
fn the_chart_claims_no_version_below_the_tested_ones() {
    let oldest = listed().into_iter().map(|(kubernetes, _)| parts(&kubernetes)).min().unwrap();
    let chart = read("charts/ccm/Chart.yaml");
    let claimed = chart.lines().find_map(|line| line.strip_prefix("kubeVersion: \">=")).unwrap();
    let claimed = parts(claimed.trim_end_matches("-0\""));
    assert_eq!(claimed, [oldest[0], oldest[1], 0]);
}
