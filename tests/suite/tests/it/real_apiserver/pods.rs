//! The pods of the Go programs as they are in the field (July and August 2026), with only the image replaced: command,
//! arguments, environment, mounts and probes. Each runs with this program on a real API server and a simulated cloud.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ccm_test_suite::{LONG, Object, Process, Rig, deadline};

/// The container of a Go program.
pub(super) struct Pod {
    /// Who publishes it.
    of: &'static str,
    provider: &'static str,
    /// Empty: the entry point of the image.
    command: &'static str,
    /// Separated by spaces.
    args: &'static str,
    environment: &'static [(&'static str, &'static str)],
    mounts: &'static [&'static str],
    /// Path and port of the probe.
    probe: Option<(&'static str, u16)>,
}

const OWN_SERVER: &[(&str, &str)] = &[("KUBERNETES_SERVICE_HOST", "127.0.0.1")];
const OCCM: &[(&str, &str)] = &[("CLOUD_CONFIG", "/etc/config/cloud.conf"), ("CLUSTER_NAME", "kubernetes")];
const AZURE_MOUNTS: &[&str] = &["/etc/kubernetes", "/etc/ssl", "/var/lib/waagent/ManagedIdentity-Settings"];

const PODS: [Pod; 11] = [
    Pod {
        of: "the chart of cloud-provider-aws",
        provider: "aws",
        command: "",
        // Without the last one, which is not its default, the Go program ends too: there is no --cluster-cidr.
        args: "--v=2 --cloud-provider=aws --configure-cloud-routes=false",
        environment: &[],
        mounts: &[],
        probe: None,
    },
    Pod {
        of: "the example of cloud-provider-aws",
        provider: "aws",
        command: "",
        args: "--v=2 --cloud-provider=aws --use-service-account-credentials=true --configure-cloud-routes=false",
        environment: &[],
        mounts: &[],
        probe: None,
    },
    Pod {
        of: "kOps on AWS",
        provider: "aws",
        command: "",
        args: "--allocate-node-cidrs=true --cluster-cidr=100.96.0.0/11 --cluster-name=c.example.com \
               --configure-cloud-routes=false --leader-elect=true --v=2 --cloud-provider=aws \
               --use-service-account-credentials=true --cloud-config=/etc/kubernetes/cloud.config",
        environment: OWN_SERVER,
        mounts: &["/etc/kubernetes/cloud.config"],
        probe: None,
    },
    Pod {
        of: "kOps on Google Cloud, and the manifest of cloud-provider-gcp",
        provider: "gce",
        command: "",
        args: "--allocate-node-cidrs=true --cidr-allocator-type=CloudAllocator --cluster-cidr=100.96.0.0/11 \
               --cluster-name=c-example-com --controllers=* --leader-elect=true --v=2 --cloud-provider=gce \
               --use-service-account-credentials=true --cloud-config=/etc/kubernetes/cloud.config",
        environment: OWN_SERVER,
        mounts: &["/etc/kubernetes/cloud.config"],
        probe: Some(("/healthz", 10258)),
    },
    Pod {
        of: "kube-up of cloud-provider-gcp",
        provider: "gce",
        command: "",
        args: "--log-file=/var/log/cloud-controller-manager.log --also-stdout=false --redirect-stderr=true \
               /cloud-controller-manager --v=4 --cloud-config=/etc/gce.conf --secure-port=10258 \
               --use-service-account-credentials --cloud-provider=gce --concurrent-node-syncs=10 \
               --kubeconfig=/etc/srv/kubernetes/cloud-controller-manager/kubeconfig \
               --authorization-kubeconfig=/etc/srv/kubernetes/cloud-controller-manager/kubeconfig \
               --authentication-kubeconfig=/etc/srv/kubernetes/cloud-controller-manager/kubeconfig \
               --cluster-name=e2e --cluster-cidr=10.64.0.0/14 --concurrent-service-syncs=5 \
               --allocate-node-cidrs=true --cidr-allocator-type=CloudAllocator --configure-cloud-routes=false \
               --controllers=*,-gkenetworkparamset",
        environment: &[],
        mounts: &["/etc/srv/kubernetes", "/etc/gce.conf", "/var/log/cloud-controller-manager.log"],
        probe: Some(("/healthz", 10258)),
    },
    Pod {
        of: "the manifests of cloud-provider-openstack",
        provider: "openstack",
        command: "",
        args: "/bin/openstack-cloud-controller-manager --v=1 --cluster-name=$(CLUSTER_NAME) \
               --cloud-config=$(CLOUD_CONFIG) --cloud-provider=openstack --use-service-account-credentials=false \
               --bind-address=127.0.0.1",
        environment: OCCM,
        mounts: &["/etc/kubernetes/pki", "/etc/ssl/certs", "/etc/config"],
        probe: None,
    },
    Pod {
        of: "the chart of cloud-provider-openstack",
        provider: "openstack",
        command: "",
        args: "/bin/openstack-cloud-controller-manager --v=2 --cloud-config=$(CLOUD_CONFIG) \
               --cluster-name=$(CLUSTER_NAME) --cloud-provider=openstack --use-service-account-credentials=false \
               --controllers=cloud-node,cloud-node-lifecycle,route,service --bind-address=127.0.0.1",
        environment: OCCM,
        mounts: &["/etc/config", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/etc/kubernetes/pki"],
        probe: None,
    },
    Pod {
        of: "kOps on OpenStack",
        provider: "openstack",
        command: "",
        args: "/bin/openstack-cloud-controller-manager --cluster-name=c.example.com --leader-elect=true --v=2 \
               --cloud-provider=openstack --use-service-account-credentials=true \
               --cloud-config=/etc/kubernetes/cloud.config",
        environment: &[],
        mounts: &["/etc/kubernetes"],
        probe: None,
    },
    Pod {
        of: "the chart of cloud-provider-azure",
        provider: "azure",
        command: "cloud-controller-manager",
        args: "--allocate-node-cidrs=true --cloud-config=/etc/kubernetes/azure.json --cloud-provider=azure \
               --cluster-cidr=10.244.0.0/16 --cluster-name=kubernetes --configure-cloud-routes=true \
               --controllers=*,-cloud-node --leader-elect=true --route-reconciliation-period=10s \
               --secure-port=10268 --v=2",
        environment: &[],
        mounts: AZURE_MOUNTS,
        probe: Some(("/healthz", 10268)),
    },
    Pod {
        of: "the example of cloud-provider-azure",
        provider: "azure",
        command: "cloud-controller-manager",
        args: "--allocate-node-cidrs=true --cloud-config=/etc/kubernetes/cloud-config/azure.json \
               --cloud-provider=azure --cluster-cidr=10.244.0.0/16 --cluster-name=k8s --controllers=*,-cloud-node \
               --configure-cloud-routes=true --leader-elect=true --route-reconciliation-period=10s --v=4 \
               --secure-port=10267",
        environment: &[],
        mounts: AZURE_MOUNTS,
        probe: Some(("/healthz", 10267)),
    },
    Pod {
        of: "kOps on Azure",
        provider: "azure",
        command: "cloud-controller-manager",
        args: "--allocate-node-cidrs=false --cloud-config= --cloud-config-secret-name=azure-cloud-provider \
               --cloud-provider=azure --cluster-cidr=100.96.0.0/11 --cluster-name=c.example.com \
               --configure-cloud-routes=false --controllers=*,-cloud-node --enable-dynamic-reloading=true \
               --leader-elect=true --route-reconciliation-period=10s --secure-port=10268 --v=2",
        environment: OWN_SERVER,
        mounts: AZURE_MOUNTS,
        probe: Some(("/healthz", 10268)),
    },
];

/// Paths of the program in manifests that replace the entry point: those of OpenShift, HyperShift and KubeOne.
const PATHS: [&str; 6] = [
    "bin/aws-cloud-controller-manager",
    "bin/azure-cloud-controller-manager",
    "bin/gcp-cloud-controller-manager",
    "bin/openstack-cloud-controller-manager",
    "usr/bin/openstack-cloud-controller-manager",
    "usr/local/bin/cloud-controller-manager",
];

/// The program in such a pod; killed when dropped.
pub(super) struct Started {
    pod: &'static Pod,
    process: Process,
    port: u16,
}

/// A file of the project.
fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// The paths that the script links to the program.
fn linked(script: &str) -> impl Iterator<Item = &str> {
    script.split_once("for path in ").unwrap().1.split_once("; do").unwrap().0.split_whitespace()
}

/// The folder of the image, with this program at all paths that `hack/image.sh` links.
fn image(rig: &Rig, program: &str) -> PathBuf {
    let folder = rig.cloud.path("image");
    let script = file("hack/image.sh").replace("\\\n", " ");
    for link in linked(&script).chain(["ccm"]) {
        let path = folder.join(link);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            symlink(program, path).unwrap();
        }
    }
    folder
}

#[test]
fn the_image_has_the_program_where_manifests_look_for_it() {
    let script = file("hack/image.sh").replace("\\\n", " ");
    let links: Vec<&str> = linked(&script).collect();
    for path in PATHS {
        assert!(links.contains(&path), "{path}: {links:?}");
    }
}

impl Pod {
    pub(super) fn all_of(provider: &str) -> impl Iterator<Item = (usize, &'static Self)> {
        PODS.iter().filter(move |pod| pod.provider == provider).enumerate()
    }

    /// Whether the node controller runs in another program.
    pub(super) fn initializes_nodes(&self) -> bool {
        !self.args.contains("-cloud-node")
    }

    /// Whether it assigns pod ranges to nodes.
    pub(super) fn allocates(&self) -> bool {
        self.args.contains("--allocate-node-cidrs=true")
    }

    /// The program that a container runtime finds in the image.
    fn program(&self, image: &Path) -> PathBuf {
        let docker = file("Dockerfile");
        let line = |name: &str| docker.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        if self.command.is_empty() {
            return image.join(line("ENTRYPOINT [\"/").trim_end_matches("\"]"));
        }
        let mut found = line("ENV PATH=").split(':').map(|folder| image.join(&folder[1..]).join(self.command));
        found.find(|path| path.exists()).unwrap_or_else(|| panic!("{}: {} is not in the image", self.of, self.command))
    }

    /// Runs it. Only what a pod supplies differs: the files of the mounts, a free port, the kubeconfig.
    pub(super) fn start(
        &'static self,
        rig: &Rig,
        program: &str,
        config: &str,
        environment: &[(&str, String)],
    ) -> Started {
        let program = self.program(&image(rig, program));
        let kubeconfig = rig.bed().kubeconfig().display().to_string();
        let mut text = self.args.to_owned();
        for (name, value) in self.environment {
            text = text.replace(&format!("$({name})"), value);
        }
        let (mut args, mut port) = (Vec::new(), 10258);
        for arg in text.split_whitespace() {
            let path = arg.split_once("=/").map(|(_, path)| format!("/{path}"));
            if let Some(path) = path {
                let is_mounted = self.mounts.iter().any(|mount| Path::new(&path).starts_with(mount));
                assert!(is_mounted, "{}: {path} is not mounted", self.of);
            }
            args.push(match arg.split_once('=') {
                Some(("--cloud-config", path)) if !path.is_empty() => {
                    let file = rig.cloud.path("mounts").join(&path[1..]);
                    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                    std::fs::write(&file, config).unwrap();
                    format!("--cloud-config={}", file.display())
                }
                Some((flag, _)) if flag.ends_with("kubeconfig") => format!("{flag}={kubeconfig}"),
                Some(("--secure-port", given)) => {
                    port = given.parse().unwrap();
                    arg.to_owned()
                }
                _ => arg.to_owned(),
            });
        }
        assert!(self.probe.is_none_or(|(_, probed)| probed == port), "{}: the probe asks another port", self.of);
        let port = ccm_test_bed::free_port().unwrap();
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            args.push(format!("--{flag}={kubeconfig}"));
        }
        args.extend([format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_owned()]);
        let given = self.environment.iter().map(|&(name, value)| (name, value.to_owned()));
        let environment: Vec<(&str, String)> = given.chain(environment.iter().cloned()).collect();
        let log = rig.cloud.path(&format!("{port}.log"));
        let process = Process::start_with(program.to_str().unwrap(), &args, &environment, &log);
        Started { pod: self, process, port }
    }
}

impl Started {
    /// Waits until the node is initialized, with its addresses.
    pub(super) async fn initialized(&self, rig: &Rig, name: &str) -> Object {
        let explain = || format!("{}: {name} is not initialized\n{}", self.pod.of, self.process.output());
        let is_complete = |node: &Object| !node.is_uninitialized() && !node.addresses().is_empty();
        deadline(LONG, explain, async || rig.node(name).await.as_ref().is_some_and(is_complete)).await;
        rig.node(name).await.unwrap()
    }

    /// The probe succeeds; then the pod ends, and releases the lease for the next one.
    pub(super) async fn end(self, rig: &Rig) {
        let Self { pod, process, port } = self;
        if let Some((path, _)) = pod.probe {
            let (status, text) = rig.bed().get_from(port, path).await.unwrap();
            assert_eq!((status, &*text), (200, "ok"), "{}", pod.of);
        }
        let output = process.output();
        assert_eq!(output.contains("is a flag of go-runner"), pod.args.contains("--redirect-stderr"), "{output}");
        process.stop().await;
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
        rig.until(LONG, "the lease is free", async |rig| {
            let lease = rig.bed().get(lease).await.unwrap().1;
            let lease: serde_json::Value = serde_json::from_str(&lease).unwrap();
            lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty().then_some(())
        })
        .await;
    }
}
