//! The names of all objects of a Service. Pure.
//!
//! Objects of the Go program are taken over by them, so they must not change.

use ccm_provider::Service;

/// The longest name to which the suffix of a family may be added.
const MOST: usize = 75;
/// The longest name that Azure takes.
pub(crate) const LONGEST: usize = 80;
const IPV6: &str = "-IPv6";
/// The end of the names of internal load balancers.
pub(crate) const INTERNAL: &str = "-internal";
/// The probe of all Services with `externalTrafficPolicy: Cluster`, if they share one.
pub(crate) const SHARED_PROBE: &str = "cluster-service-shared-health-probe";

/// The family of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(ip: std::net::IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// `IPv4`, `IPv6`
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The families of a Service, IPv4 first whatever its order: the status has the addresses in the order of the frontends.
    /// Without any it is IPv4.
    pub(crate) fn of_service(service: &Service) -> Vec<Self> {
        let families = service.spec.ip_families.iter().filter_map(|family| match &**family {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        });
        let mut families: Vec<Self> = families.collect();
        families.sort();
        if families.is_empty() { vec![Self::V4] } else { families }
    }
}

/// The names of the objects of one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// `a` and the UID: how all its names begin.
    pub(crate) base: String,
    is_dual: bool,
    /// The subnet of the annotation, of an internal load balancer.
    subnet: Option<String>,
}

impl Names {
    pub(crate) fn new(service: &Service, subnet: Option<String>) -> Self {
        let is_dual = service.spec.ip_families.len() == 2;
        Self { base: service.default_load_balancer_name(), is_dual, subnet }
    }

    fn of_family(&self, name: String, family: Family) -> String {
        if self.is_dual && family == Family::V6 { name + IPV6 } else { name }
    }

    pub(crate) fn frontend(&self, family: Family) -> String {
        let Some(subnet) = &self.subnet else { return self.of_family(self.base.clone(), family) };
        let whole = format!("{}-{subnet}", self.base);
        let mut name = cut(&whole, MOST).to_owned();
        if name.len() < whole.len() && !name.ends_with(|last: char| last.is_alphabetic() || last == '_') {
            name.pop();
            name.push('_');
        }
        self.of_family(name, family)
    }

    /// The name of a rule, and of its probe. `protocol` is that of Kubernetes.
    pub(crate) fn rule(&self, protocol: &str, port: i32, family: Family) -> String {
        let plain = format!("{}-{protocol}-{port}", self.base);
        let Some(subnet) = &self.subnet else { return self.of_family(plain, family) };
        let subnet = cut(subnet, MOST.saturating_sub(plain.len() + 1));
        self.of_family(format!("{}-{subnet}-{protocol}-{port}", self.base), family)
    }

    /// The default name of the public IP address. `prefix`: the ID of the prefix from which it is taken.
    pub(crate) fn public_ip(&self, cluster: &str, prefix: Option<&str>, family: Family) -> String {
        let plain = format!("{cluster}-{}", self.base);
        let whole = match prefix.and_then(|id| id.rsplit('/').next()).filter(|name| !name.is_empty()) {
            Some(prefix) => format!("{plain}-{prefix}"),
            None => plain,
        };
        self.of_family(cut(&whole, MOST).to_owned(), family)
    }

    /// Whether an object is one of this Service, by its name.
    pub(crate) fn own(&self, name: &str) -> bool {
        is_of(name, &self.base)
    }
}

/// Whether an object is of the Service whose names begin with `base`.
pub(crate) fn is_of(name: &str, base: &str) -> bool {
    let rest = name.get(base.len()..);
    starts_with(name, base) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whether a text begins with another one, without case.
pub(crate) fn starts_with(text: &str, begin: &str) -> bool {
    text.get(..begin.len()).is_some_and(|start| start.eq_ignore_ascii_case(begin))
}

/// The beginning of a text, of at most this many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// The pool of all nodes.
pub(crate) fn pool(cluster: &str, family: Family) -> String {
    match family {
        Family::V4 => cluster.to_owned(),
        Family::V6 => format!("{cluster}{IPV6}"),
    }
}

/// Whether a pool is that of all nodes.
pub(crate) fn is_pool_of_all(cluster: &str, name: &str) -> bool {
    [Family::V4, Family::V6].iter().any(|family| name.eq_ignore_ascii_case(&pool(cluster, *family)))
}

/// The pool of one Service, for the nodes with its endpoints. `key`: `namespace/name`
pub(crate) fn own_pool(key: &str, family: Family) -> String {
    let name = key.replace('/', "-").to_lowercase();
    match family {
        Family::V4 => name,
        Family::V6 => format!("{name}-ipv6"),
    }
}

/// The name of a load balancer without the end of internal ones, and whether it is one.
pub(crate) fn without_internal(name: &str) -> (&str, bool) {
    let at = name.len().saturating_sub(INTERNAL.len());
    match name.split_at_checked(at) {
        Some((begin, end)) if end.eq_ignore_ascii_case(INTERNAL) => (begin, true),
        _ => (name, false),
    }
}

/// The private link service of a frontend.
pub(crate) fn private_link(frontend: &str) -> String {
    format!("pls-{frontend}")
}

/// The IP configuration of a private link service: `end` is `static-10.0.0.4` or `dynamic-0`.
pub(crate) fn private_link_ip(subnet: &str, service: &str, end: &str) -> String {
    let begin = format!("{subnet}-{service}");
    format!("{}-{end}", cut(&begin, LONGEST.saturating_sub(end.len() + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "257b9655-5137-4ad2-b091-ef3f07043ad3";

    fn names(families: &[&str], subnet: Option<&str>) -> Names {
        let service = serde_json::json!({"metadata": {"uid": UID}, "spec": {"ipFamilies": families}});
        Names::new(&serde_json::from_value(service).unwrap(), subnet.map(str::to_owned))
    }

    #[test]
    fn names_of_a_plain_service() {
        let names = names(&[], None);
        assert_eq!(names.base, "a257b965551374ad2b091ef3f07043ad");
        assert_eq!(names.frontend(Family::V4), names.base);
        assert_eq!(names.rule("TCP", 80, Family::V4), "a257b965551374ad2b091ef3f07043ad-TCP-80");
        assert_eq!(names.public_ip("kubernetes", None, Family::V4), "kubernetes-a257b965551374ad2b091ef3f07043ad");
        assert!(names.own("A257B965551374AD2B091EF3F07043AD-udp-53") && !names.own("a257"));
        let without_uid = Names::new(&Service::default(), None);
        assert!(!without_uid.own(&names.base), "a Service without a UID owns nothing of others");
    }

    #[test]
    fn only_a_service_of_both_families_has_the_suffix() {
        assert_eq!(names(&["IPv6"], None).frontend(Family::V6), "a257b965551374ad2b091ef3f07043ad");
        let dual = names(&["IPv4", "IPv6"], None);
        assert_eq!(dual.frontend(Family::V4), "a257b965551374ad2b091ef3f07043ad");
        assert_eq!(dual.frontend(Family::V6), "a257b965551374ad2b091ef3f07043ad-IPv6");
        assert_eq!(dual.rule("UDP", 53, Family::V6), "a257b965551374ad2b091ef3f07043ad-UDP-53-IPv6");
        assert_eq!(dual.public_ip("k", None, Family::V6), "k-a257b965551374ad2b091ef3f07043ad-IPv6");
        assert_eq!((pool("k", Family::V4), pool("k", Family::V6)), ("k".to_owned(), "k-IPv6".to_owned()));
        assert!(is_pool_of_all("k", "K-ipv6") && !is_pool_of_all("k", "k-web"));
        assert_eq!(own_pool("Shop/Web", Family::V4), "shop-web");
        assert_eq!(own_pool("shop/web", Family::V6), "shop-web-ipv6");
    }

    #[test]
    fn a_subnet_is_part_of_the_names_and_cut() {
        let short = names(&[], Some("subnet"));
        assert_eq!(short.frontend(Family::V4), "a257b965551374ad2b091ef3f07043ad-subnet");
        assert_eq!(short.rule("TCP", 80, Family::V4), "a257b965551374ad2b091ef3f07043ad-subnet-TCP-80");
        let long = "s".repeat(41) + "-0123456789";
        let names = names(&[], Some(&long));
        let frontend = names.frontend(Family::V4);
        assert_eq!(
            (frontend.len(), frontend.ends_with("ss_")),
            (75, true),
            "{frontend}: a cut name ends with a letter"
        );
        let rule = names.rule("TCP", 80, Family::V4);
        assert_eq!((rule.len(), rule.ends_with("-TCP-80")), (75, true), "{rule}");
    }

    #[test]
    fn the_prefix_is_part_of_the_name_of_the_public_ip() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPPrefixes/pre";
        let names = names(&[], None);
        assert_eq!(names.public_ip("k", Some(id), Family::V4), "k-a257b965551374ad2b091ef3f07043ad-pre");
        assert_eq!(names.public_ip(&"k".repeat(60), Some(id), Family::V4).len(), 75);
    }

    #[test]
    fn names_of_load_balancers_and_links() {
        assert_eq!(without_internal("lb-Internal"), ("lb", true));
        assert_eq!(without_internal("internal"), ("internal", false));
        assert_eq!(private_link("a1"), "pls-a1");
        assert_eq!(private_link_ip("sub", "pls-a1", "dynamic-0"), "sub-pls-a1-dynamic-0");
        assert_eq!(private_link_ip(&"s".repeat(90), "p", "static-10.0.0.4").len(), 80);
    }
}
