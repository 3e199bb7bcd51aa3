//! The way back from the manifests, with the commands of its page.

use std::path::Path;
use std::process::Command;

use ccm_test_bed::Bed;

use super::accepted::apply;
use crate::tools::{kubectl, manifests, read};

const NAME: &str = "cloud-controller-manager";

/// Objects of a Go program, with names that some of those here have too.
const OLD: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: cloud-controller-manager, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cloud-controller-manager}
rules: [{apiGroups: [""], resources: [nodes], verbs: [list, watch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cloud-controller-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cloud-controller-manager}
subjects: [{kind: ServiceAccount, name: cloud-controller-manager, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "cloud-controller-manager:apiserver-authentication-reader", namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: cloud-controller-manager, namespace: kube-system}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cloud-controller-manager, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: old}}
  template:
    metadata: {labels: {k8s-app: old}}
    spec: {serviceAccountName: cloud-controller-manager, containers: [{name: old, image: registry.invalid/old}]}
"#;

/// The block of commands of the page that contains this text.
fn block(page: &str, text: &str) -> String {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks
        .into_iter()
        .find(|block| block.contains(text))
        .unwrap_or_else(|| panic!("no commands with {text}"))
        .to_owned()
}

/// Runs commands of the page as the administrator.
fn shell(bed: &Bed, kubectl: &Path, folder: &Path, commands: &str) {
    let overlay = manifests().join("overlays/fake");
    let commands = commands.replace("ACCOUNT", NAME).replace("NAME", NAME);
    let commands = commands.replace("<your overlay>", overlay.to_str().unwrap());
    let found = std::env::var("PATH").unwrap();
    let path = format!("{}:{found}", kubectl.parent().unwrap().display());
    let mut shell = Command::new("sh");
    shell.args(["-ec", &commands]).current_dir(folder);
    let output = shell.env("PATH", path).env("KUBECONFIG", bed.kubeconfig()).env("HOME", folder).output().unwrap();
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_gives_the_old_account_its_roles_again() {
    let Some(bed) = Bed::start().await.unwrap() else { return };
    let Some(kubectl) = kubectl() else { return };
    let (folder, page) = (tempfile::tempdir().unwrap(), read("migration/README.md"));
    let shell = |commands: &str| shell(&bed, &kubectl, folder.path(), commands);
    let lists = || {
        let account = format!("--as=system:serviceaccount:kube-system:{NAME}");
        apply(&bed, &kubectl, &["auth", "can-i", "list", "nodes", &account], "")
    };
    apply(&bed, &kubectl, &["create", "-f", "-"], OLD).unwrap();
    lists().unwrap();
    shell(&block(&page, ">old-manifests.yaml"));
    shell("kubectl -n kube-system delete daemonset NAME\nkubectl delete clusterrolebinding NAME");
    shell("kubectl apply -k <your overlay>");
    let back = block(&page, "kubectl delete -k");
    let back = back.lines().find(|line| line.contains("old-manifests.yaml")).unwrap();
    shell(back);
    let said = lists().unwrap();
    assert!(said.starts_with("yes"), "{said}");
}
