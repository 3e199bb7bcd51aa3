//! Names, tags and descriptions of the objects of a Service, and the owners of objects.
//!
//! Upstream: `pkg/openstack/loadbalancer.go` and `loadbalancer_rename.go`.

use ccm_provider::Service;

/// The prefix of the name of every balancer created for a Service; such a name is also the tag of the Service.
pub(crate) const PREFIX: &str = "kube_service_";
/// The prefix of the description of a floating IP that made way for another one.
const REPLACED: &str = "Replaced: ";
/// The default of `--cluster-name`.
pub(crate) const DEFAULT_CLUSTER: &str = "kubernetes";
/// The risk of that name, and what to do.
pub(crate) const SHARED_NAME: [&str; 2] = [
    "--cluster-name is the default, which other clusters of the project may have: then they have load balancers of the \
     same names, which only their members tell apart",
    "give each cluster of the project its own --cluster-name; the load balancers of Services are renamed",
];
/// The maximum length of a name or description, in bytes.
const LONGEST: usize = 255;

/// Truncates at a character boundary.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// The name of the balancer, which is also the tag of the Service.
pub(crate) fn balancer(cluster: &str, service: &Service) -> String {
    cut(uncut(cluster, service))
}

/// The same at any length. Truncated, it may be that of another Service, too.
pub(crate) fn uncut(cluster: &str, service: &Service) -> String {
    let (namespace, name) = (&service.metadata.namespace, &service.metadata.name);
    format!("{PREFIX}{cluster}_{namespace}_{name}")
}

/// The reason why no balancer can have this name.
pub(crate) fn too_long(name: &str) -> Option<String> {
    let length = name.len();
    (length > LONGEST).then(|| {
        format!(
            "the name of its load balancer has {length} bytes, and Octavia takes {LONGEST}: choose a shorter --cluster-name, or \
             shorter names of namespace and Service"
        )
    })
}

/// `listener_0_…`, `pool_0_…`, `monitor_0_…`
pub(crate) fn part(kind: &str, index: usize, balancer: &str) -> String {
    cut(format!("{kind}_{index}_{balancer}"))
}

/// Whether this is the name of a part of the balancer.
pub(crate) fn is_part(name: &str, kind: &str, balancer: &str) -> bool {
    let index = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('_')).and_then(|rest| rest.split('_').next());
    index.and_then(|index| index.parse().ok()).is_some_and(|index| name == part(kind, index, balancer))
}

/// The name of a member in serial mode.
pub(crate) fn serial_member(node: &str, address: &str, port: i32) -> String {
    cut(format!("member_{node}_{address}_{port}"))
}

/// The name of the security group of a Service.
pub(crate) fn security_group(service: &Service) -> String {
    let metadata = &service.metadata;
    cut(format!("lb-sg-{}-{}-{}", metadata.uid, metadata.namespace, metadata.name))
}

/// The descriptions of a Service's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Descriptions {
    pub(crate) balancer: String,
    pub(crate) floating_ip: String,
    /// That of one that made way for another one, and may be deleted.
    pub(crate) replaced_ip: String,
    pub(crate) security_group: String,
}

impl Descriptions {
    pub(crate) fn new(cluster: &str, service: &Service) -> Self {
        Self::of(cluster, &service.key().to_string())
    }

    /// The descriptions for the Service with this `namespace/name`.
    pub(crate) fn of(cluster: &str, key: &str) -> Self {
        let floating_ip = cut(format!("Floating IP for Kubernetes external service {key} from cluster {cluster}"));
        Self {
            balancer: cut(format!("Kubernetes external service {key} from cluster {cluster}")),
            replaced_ip: cut(format!("{REPLACED}{floating_ip}")),
            floating_ip,
            security_group: cut(format!("Security Group for {key} Service LoadBalancer in cluster {cluster}")),
        }
    }
}

/// The description of a floating IP before it made way for another one.
pub(crate) fn before_replaced(text: &str) -> &str {
    text.strip_prefix(REPLACED).unwrap_or(text)
}

/// Whether a description is that of one of our balancers or floating IPs.
pub(crate) fn is_description(text: &str) -> bool {
    let text = before_replaced(text);
    text.strip_prefix("Floating IP for ").unwrap_or(text).starts_with("Kubernetes external service ")
}

/// The description of the floating IP that was created for a balancer with this description.
pub(crate) fn floating_ip_of(balancer_description: &str) -> String {
    cut(format!("Floating IP for {balancer_description}"))
}

/// Whether a tag is that of a Service.
pub(crate) fn is_service_tag(tag: &str) -> bool {
    tag.starts_with(PREFIX)
}

/// Cluster, namespace and Service in the name of a balancer.
pub(crate) fn fields(name: &str) -> Option<(&str, &str, &str)> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplitn(3, '_');
    let (service, namespace, cluster) = (parts.next()?, parts.next()?, parts.next()?);
    Some((cluster, namespace, service))
}

/// Whether a name or description may be truncated.
pub(crate) fn is_cut(text: &str) -> bool {
    // Truncation at a character boundary removes up to three more bytes.
    text.len() + 3 >= LONGEST
}

/// Converts our name under another cluster name to the name under this one; `None` for any other name. Namespaces and
/// Service names have no underscore, so the last two fields are theirs, and the rest is the cluster.
pub(crate) fn renamed(name: &str, ours: &str) -> Option<String> {
    let at = name.find(PREFIX)?;
    let (head, tail) = name.split_at(at);
    let ((cluster, namespace, service), (our_cluster, our_namespace, our_service)) = (fields(tail)?, fields(ours)?);
    // A truncated name keeps the beginning of its last field.
    let is_cut = name.len() == LONGEST || ours.len() == LONGEST;
    let same_service =
        service == our_service || (is_cut && (service.starts_with(our_service) || our_service.starts_with(service)));
    (namespace == our_namespace && same_service && cluster != our_cluster).then(|| cut(format!("{head}{ours}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str) -> Service {
        let mut service = Service::default();
        service.metadata.namespace = namespace.into();
        service.metadata.name = name.into();
        service.metadata.uid = "u-1".into();
        service
    }

    #[test]
    fn names_are_upstreams() {
        let web = service("default", "web");
        assert_eq!(balancer("k8s", &web), "kube_service_k8s_default_web");
        assert_eq!(part("listener", 0, "kube_service_k8s_default_web"), "listener_0_kube_service_k8s_default_web");
        assert_eq!(security_group(&web), "lb-sg-u-1-default-web");
        let texts = Descriptions::new("k8s", &web);
        assert_eq!(texts.balancer, "Kubernetes external service default/web from cluster k8s");
        assert_eq!(texts.floating_ip, "Floating IP for Kubernetes external service default/web from cluster k8s");
        assert_eq!(floating_ip_of(&texts.balancer), texts.floating_ip);
        assert_eq!(texts.security_group, "Security Group for default/web Service LoadBalancer in cluster k8s");
        let long = balancer(&"ü".repeat(200), &web);
        assert_eq!(long.len(), 255);
        assert!(long.ends_with('ü'), "cut between characters");
    }

    #[test]
    fn a_name_is_ours_under_another_cluster_only_if_namespace_and_service_are() {
        let ours = "kube_service_new_one_default_web";
        for (name, expected) in [
            ("kube_service_old_one_default_web", Some(ours)),
            ("kube_service_a_b_c_default_web", Some(ours)),
            ("kube_service_new_one_default_web", None),
            ("kube_service_old_default_other", None),
            ("kube_service_old_kube-system_web", None),
            ("by-hand", None),
            ("kube_service_web", None),
        ] {
            assert_eq!(renamed(name, ours).as_deref(), expected, "{name}");
        }
        let listener = renamed("listener_0_kube_service_old_default_web", "kube_service_new_default_web");
        assert_eq!(listener.as_deref(), Some("listener_0_kube_service_new_default_web"));
    }

    #[test]
    fn a_name_that_was_cut_is_renamed_once() {
        let web = service("default", &"w".repeat(63));
        let (old, new) = (balancer(&"a".repeat(220), &web), balancer(&"b".repeat(220), &web));
        assert_eq!((old.len(), new.len()), (255, 255));
        // The namespace is truncated too: such a name has no owner, and there is no loop.
        assert_eq!(renamed(&new, &new), None);
        let (old, new) = (balancer(&"a".repeat(180), &web), balancer(&"b".repeat(178), &web));
        assert_eq!(renamed(&old, &new).as_deref(), Some(&*new));
        assert_eq!(renamed(&new, &new), None);
    }
}
