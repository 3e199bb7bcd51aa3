//! Names that Kubernetes defines and that all providers and tools use.
//! Source: `kubernetes/cloud-provider` `api/well_known_*.go`, `ports.go`.

/// Taint that the kubelet sets with `--cloud-provider=external`; the node controller removes it after initialization.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taint (effect `NoSchedule`, no value) on a node whose instance is stopped.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Taint of the cluster autoscaler on a node that it is about to remove; such a node gets no load balancer traffic.
pub const TAINT_TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// Reason of a node's condition `NetworkUnavailable` = `False`: all its routes exist.
pub const REASON_ROUTE_CREATED: &str = "RouteCreated";
/// Reason of a node's condition `NetworkUnavailable` = `True`: a route is missing.
pub const REASON_NO_ROUTE: &str = "NoRouteCreated";
/// Node annotation in which the kubelet writes its `--node-ip`.
pub const ANNOTATION_PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Service annotation, older form of `spec.loadBalancerSourceRanges`.
pub const ANNOTATION_SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// PersistentVolume annotation that names the provisioner of a dynamically provisioned volume.
pub const ANNOTATION_PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Finalizer that keeps a Service until its load balancer is deleted.
pub const FINALIZER_LOAD_BALANCER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Label that excludes a node from all external load balancers.
pub const LABEL_EXCLUDE_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Zone of a node or volume.
pub const LABEL_ZONE: &str = "topology.kubernetes.io/zone";
/// Older spelling of [`LABEL_ZONE`], still written and read.
pub const LABEL_ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
/// Region of a node or volume.
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";
/// Older spelling of [`LABEL_REGION`], still written and read.
pub const LABEL_REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";
/// Instance type of a node.
pub const LABEL_INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Older spelling of [`LABEL_INSTANCE_TYPE`], still written and read.
pub const LABEL_INSTANCE_TYPE_BETA: &str = "beta.kubernetes.io/instance-type";
/// Volume name or ID of a volume that is still being provisioned; it gets no labels.
pub const VOLUME_PLACEHOLDER: &str = "placeholder-for-provisioning";
/// Separator of several zones in one label value.
pub const ZONE_DELIMITER: &str = "__";
