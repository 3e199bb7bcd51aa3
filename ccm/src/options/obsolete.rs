//! Flags of older versions of the Go program, with their replacements.

const GLOG: &str = "removed in Kubernetes 1.26: logs go to stderr; leave it out";
const INSECURE: &str =
    "removed in Kubernetes 1.24 together with insecure serving: use --secure-port and --bind-address, or leave it out";
const GCE: &str =
    "a flag of the provider gce since Kubernetes 1.31: use a build with the cargo feature \"gce\", or leave it out";

const GONE: [(&str, &str); 17] = [
    ("add-dir-header", GLOG),
    ("address", INSECURE),
    ("alsologtostderr", GLOG),
    ("cloud-provider-gce-l7lb-src-cidrs", GCE),
    ("cloud-provider-gce-lb-src-cidrs", GCE),
    ("concurrent-serviceaccount-token-syncs", "a flag of kube-controller-manager: leave it out"),
    (
        "config",
        "there is no configuration file for the flags: give them one by one; the provider's file is --cloud-config",
    ),
    ("log-backtrace-at", GLOG),
    ("log-dir", GLOG),
    ("log-file", GLOG),
    ("log-file-max-size", GLOG),
    ("logtostderr", GLOG),
    ("one-output", GLOG),
    ("port", INSECURE),
    ("skip-headers", GLOG),
    ("skip-log-headers", GLOG),
    ("stderrthreshold", GLOG),
];

pub(super) fn replacement(name: &str) -> Option<&'static str> {
    GONE.iter().find(|(gone, _)| *gone == name).map(|(_, instead)| *instead)
}
