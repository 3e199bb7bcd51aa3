//! `ccm migrate-values`: the chart accepts what it writes.

use std::process::Command;

use serde_json::Value;

use crate::rendered::{args, documents, template, workload};
use crate::tools::helm;

const AWS: &str = r#"
namespace: kube-system
args: [--v=4, --cloud-provider=aws, --cluster-name=c1, --cluster-cidr=10.244.0.0/16, "--controllers=*,-route"]
image: {repository: registry.example.com/old, tag: v1.35.0}
nameOverride: aws-cloud-controller-manager
nodeSelector: {node-role.kubernetes.io/control-plane: ""}
clusterRoleRules: [{apiGroups: [""], resources: [nodes], verbs: ["*"]}]
resources: {requests: {cpu: 200m}}
env: [{name: AWS_REGION, value: eu-west-1}]
securityContext: {}
podAnnotations: {a: b}
tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
dnsPolicy: Default
serviceAccountName: cloud-controller-manager
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/ccm"}}
hostNetworking: true
"#;
const AZURE: &str = r#"
infra: {clusterName: c1}
cloudControllerManager:
  imageRepository: registry.example.com/old
  bindAddress: 0.0.0.0
  logVerbosity: "4"
  kubeAPIQPS: "50.0"
  leaderElectLeaseDuration: 30s
  updateStrategy: {rollingUpdate: {maxSurge: 1}}
  containerResourceManagement: {requestsCPU: 100m, limitsMem: 2Gi}
  tolerations: [{operator: Exists}]
cloudNodeManager: {enabled: true}
"#;
const OPENSTACK: &str = r#"
commonAnnotations: {a: b}
image: {tag: v1.36.0}
extraInitContainers: [{name: wait, image: busybox}]
extraEnv: [{name: OS_CCM_REGIONAL, value: "true"}]
livenessProbe: {httpGet: {path: /metrics, port: 10258}}
podLabels: {c: d}
securityContext: {readOnlyRootFilesystem: true}
controllerExtraArgs: |-
  - --cluster-cidr=10.244.0.0/16
serviceMonitor: {enabled: true, additionalLabels: {release: prometheus}}
logVerbosityLevel: 2
cloudConfig:
  global: {auth-url: "https://keystone.example.com/v3", application-credential-id: a, application-credential-secret: 'b"c'}
  route: {router-id: r1}
hostAliases: [{ip: 10.0.0.1, hostnames: [keystone.example.com]}]
priorityClassName: system-cluster-critical
cluster: {name: c1}
"#;

/// The output, and the exit code.
fn converted(from: &str, values: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccm-as-shipped"));
    let output = command.args(["migrate-values", &format!("--from={from}")]).arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (text, output.status.code())
}

#[test]
fn the_chart_accepts_converted_values() {
    let Some(helm) = helm() else { return };
    for (from, values, listed, wanted) in [
        ("aws", AWS, "clusterRoleRules", "--cluster-cidr=10.244.0.0/16"),
        ("azure", AZURE, "cloudNodeManager", "--kube-api-qps=50.0"),
        ("openstack", OPENSTACK, "image.tag", "--controllers=cloud-node,cloud-node-lifecycle,route,service"),
    ] {
        let (text, code) = converted(from, values);
        assert!(text.contains(&format!("#   {listed}: ")), "{text}");
        assert_eq!(code, Some(2), "{from}: the image is left to do");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.yaml");
        std::fs::write(&file, &text).unwrap();
        let settings = ["--values", file.to_str().unwrap(), "--set", "image.repository=example.com/ccm"];
        let rendered = template(&helm, &settings).unwrap_or_else(|error| panic!("{from}: {error}\n{text}"));
        let documents = documents(&rendered);
        let workload = workload(&documents);
        let args = args(workload);
        for argument in ["--cluster-name=c1", "--configure-cloud-routes=true", wanted] {
            assert!(args.contains(&argument.to_owned()), "{from}: no {argument} in {args:?}");
        }
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], "cloud-controller-manager", "{from}");
        let account: Vec<&Value> = documents.iter().filter(|one| one["kind"] == "ServiceAccount").collect();
        assert_eq!(account.len(), 1, "{from}");
    }
}
