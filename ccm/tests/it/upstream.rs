//! The arguments of the manifests and charts that the Go projects publish: operators replace only the image.
//!
//! Only the flags are quoted, with the defaults of the charts. Only the providers' own flags are omitted: the
//! provider's crate defines them.

use ccm::options::Options;

/// Sources and arguments, separated by one space: two spaces are an empty argument.
const MANIFESTS: [(&str, &str); 11] = [
    (
        "cloud-provider-aws: examples/existing-cluster/base",
        "--v=2 --cloud-provider=aws --use-service-account-credentials=true --configure-cloud-routes=false",
    ),
    (
        "cloud-provider-aws: examples/existing-cluster-dual-stack/base",
        "--v=2 --cloud-provider=aws --use-service-account-credentials=true --configure-cloud-routes=false \
         --cloud-config=/etc/kubernetes/cloud-config.conf",
    ),
    ("cloud-provider-aws: charts/aws-cloud-controller-manager", "--v=2 --cloud-provider=aws"),
    (
        "cloud-provider-azure: examples/out-of-tree",
        "--allocate-node-cidrs=true --cloud-config=/etc/kubernetes/cloud-config/azure.json \
         --cloud-provider=azure --cluster-cidr=10.244.0.0/16 --cluster-name=k8s --controllers=*,-cloud-node \
         --configure-cloud-routes=true --leader-elect=true --route-reconciliation-period=10s --v=4 \
         --secure-port=10267",
    ),
    (
        "cloud-provider-azure: helm/cloud-provider-azure, every optional value given",
        "--allocate-node-cidrs=true --bind-address=0.0.0.0 --cert-dir=/etc/kubernetes/pki \
         --cloud-config=/etc/kubernetes/azure.json --cloud-provider=azure --cluster-cidr=10.244.0.0/16 \
         --cluster-name=kubernetes --configure-cloud-routes=true --contention-profiling=true \
         --controller-start-interval=2m --controllers=*,-cloud-node --http2-max-streams-per-connection=47 \
         --kube-api-burst=100 --kube-api-content-type=application/vnd.kubernetes.protobuf --kube-api-qps=50.0 \
         --kubeconfig=/etc/kubernetes/kubeconfig --leader-elect=true --leader-elect-lease-duration=30s \
         --leader-elect-renew-deadline=15s --leader-elect-retry-period=5s --leader-elect-resource-lock=leases \
         --leader-elect-resource-lock=leases --master=192.168.4.20 --min-resync-period=100m \
         --node-status-update-frequency=10m --route-reconciliation-period=10s --profiling=false \
         --secure-port=10267 --use-service-account-credentials=true --v=2",
    ),
    (
        "cloud-provider-gcp: cluster/gce/gci/configure-helper.sh",
        "--v=4  --cloud-config=/etc/gce.conf --secure-port=10258 --use-service-account-credentials \
         --cloud-provider=gce --concurrent-node-syncs=10 \
         --kubeconfig=/etc/srv/kubernetes/cloud-controller-manager/kubeconfig \
         --authorization-kubeconfig=/etc/srv/kubernetes/cloud-controller-manager/kubeconfig \
         --authentication-kubeconfig=/etc/srv/kubernetes/cloud-controller-manager/kubeconfig \
         --cluster-name=e2e --cluster-cidr=10.64.0.0/14 --concurrent-service-syncs=5 \
         --allocate-node-cidrs=true --cidr-allocator-type=CloudAllocator --configure-cloud-routes=false \
         --feature-gates=APIServerIdentity=true,WatchList=false",
    ),
    (
        "cloud-provider-openstack: manifests/controller-manager",
        "/bin/openstack-cloud-controller-manager --v=1 --cluster-name=kubernetes \
         --cloud-config=/etc/config/cloud.conf --cloud-provider=openstack \
         --use-service-account-credentials=false --bind-address=127.0.0.1",
    ),
    (
        "cloud-provider-openstack: charts/openstack-cloud-controller-manager",
        "/bin/openstack-cloud-controller-manager --v=2 --cloud-config=/etc/config/cloud.conf \
         --cluster-name=kubernetes --cloud-provider=openstack --use-service-account-credentials=false \
         --controllers=cloud-node,cloud-node-lifecycle,route,service --bind-address=0.0.0.0",
    ),
    (
        "kOps: aws-cloud-controller.addons.k8s.io",
        "--allocate-node-cidrs=true --cluster-cidr=100.96.0.0/11 --cluster-name=minimal-aws.example.com \
         --configure-cloud-routes=false --leader-elect=true --v=2 --cloud-provider=aws \
         --use-service-account-credentials=true --cloud-config=/etc/kubernetes/cloud.config",
    ),
    (
        "kOps: gcp-cloud-controller.addons.k8s.io",
        "--allocate-node-cidrs=true --cidr-allocator-type=CloudAllocator --cluster-cidr=100.96.0.0/11 \
         --cluster-name=minimal-gce-example-com --controllers=* --leader-elect=true --v=2 --cloud-provider=gce \
         --use-service-account-credentials=true --cloud-config=/etc/kubernetes/cloud.config",
    ),
    (
        "kubernetes: the sample with node IPAM",
        "--cloud_provider=gce --allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/48 \
         --service-cluster-ip-range=10.1.0.0/24 --node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=64 \
         --controllers=*,nodeipam",
    ),
];

#[test]
fn flags_of_upstream_manifests_are_accepted() {
    for (place, args) in MANIFESTS {
        let args: Vec<&str> = args.split(' ').collect();
        let options = Options::from_args(&args).unwrap_or_else(|failure| panic!("{place}: {}", failure.message));
        let provider = args.iter().find_map(|arg| arg.split_once("provider=")).map(|(_, name)| name);
        assert_eq!(Some(&*options.cloud_provider), provider, "{place}");
    }
}

#[test]
fn lists_of_controllers_in_upstream_manifests_keep_their_meaning() {
    let on = |place: &str| {
        let (_, args) = MANIFESTS.iter().find(|(known, _)| *known == place).unwrap();
        let options = Options::from_args(args.split(' ')).unwrap();
        let names = options.switched_on().map(|controller| controller.name);
        // When these manifests were written, the API server labeled volumes: the controller may be added to any list
        // with `*`.
        names.filter(|name| *name != "persistentvolume-label-controller").collect::<Vec<_>>()
    };
    let azure = ["cloud-node-lifecycle-controller", "service-lb-controller", "node-route-controller"];
    assert_eq!(on("cloud-provider-azure: examples/out-of-tree"), azure);
    assert_eq!(on("cloud-provider-openstack: charts/openstack-cloud-controller-manager").len(), 4);
    assert_eq!(on("kubernetes: the sample with node IPAM").len(), 5);
}
