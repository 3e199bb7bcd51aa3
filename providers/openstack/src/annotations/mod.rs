//! The annotations of Services, each defined once in [`TABLE`].
//!
//! Upstream: `pkg/openstack/loadbalancer.go` of cloud-provider-openstack. An empty text counts too: it replaces the
//! value of `[LoadBalancer]`. A number or boolean that cannot be parsed is a warning, and the default applies.

use ccm_kit::annotations::{On, Parsed, Spelling, Table, Wrong, value};
use ccm_kit::document::did_you_mean;
use ccm_provider::Finding;

use crate::start::config::{LB_METHODS, OVN, method_problem};

pub(crate) use ccm_kit::annotations::Annotations;

#[cfg(test)]
mod tests;

/// The prefix of most keys.
pub(crate) const PREFIX: &str = "loadbalancer.openstack.org/";
/// The annotation that records the last match of the balancer.
pub(crate) const APPLIED: &str = "cloud-controller-manager/openstack-applied";

/// A key of [`TABLE`].
pub(crate) type Key<T> = ccm_kit::annotations::Key<T, ()>;
type Row = ccm_kit::annotations::Row<()>;

pub(crate) static TABLE: Table<()> = Table {
    spelling: Some(Spelling { prefix: PREFIX, cloud: "openstack", names: &["loadbalancer", "lb"] }),
    rows: ROWS,
};

/// The PROXY protocol of pools, if enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ProxyProtocol {
    #[default]
    Off,
    V1,
    V2,
}

const FIXED: &str = "Read only when the load balancer is created.";
const STAY: &str = "They stay when they are not asked for any more.";
const FLOATING: &str = "Read only while no floating IP is attached.";

ccm_kit::annotation_table! {
    pub(crate) static ROWS: ();
    "service.beta.kubernetes.io/" {
        INTERNAL: bool = value::exact_bool, "openstack-internal-load-balancer", On::All, "boolean", "`internal-lb`", "",
            "No floating IP. With `internal-lb = true` the Service is internal regardless of this annotation. The floating IP that the Service had is removed.";
    }
    "loadbalancer.openstack.org/" {
        CLASS: String = value::text_or_empty, "class", On::All, "name", "", FIXED,
            "The section `[LoadBalancerClass \"name\"]` that says where the load balancer is.";
        FLOATING_NETWORK_ID: String = value::text_or_empty, "floating-network-id", On::All, "ID", "`floating-network-id`", FLOATING,
            "External network of the floating IP. Empty: one is searched. The class wins.";
        FLOATING_SUBNET_ID: String = value::text_or_empty, "floating-subnet-id", On::All, "ID", "`floating-subnet-id`", FLOATING,
            "Subnet of the floating IP, one of that network.";
        FLOATING_SUBNET: String = value::text_or_empty, "floating-subnet", On::All, "pattern of names", "`floating-subnet`", FLOATING,
            "The same by name, where no ID is given: `*`, `?`, `[ab]`, `{a,b}`; after `~` a regular expression; `!` in front negates.";
        FLOATING_SUBNET_TAGS: String = value::text_or_empty, "floating-subnet-tags", On::All, "expression of tags", "`floating-subnet-tags`", FLOATING,
            "The same by tags: `a,b` any of them, `&a,b` all, `!a,b` none, `!&a,b` not all.";
        NETWORK_ID: String = value::text_or_empty, "network-id", On::All, "ID", "`network-id`", FIXED,
            "Network of the load balancer's address. The class wins.";
        SUBNET_ID: String = value::text_or_empty, "subnet-id", On::All, "ID", "`subnet-id`", FIXED,
            "Subnet of the load balancer's address. The class wins.";
        MEMBER_SUBNET_ID: String = value::text_or_empty, "member-subnet-id", On::All, "ID", "`member-subnet-id`", "Counts for new members.",
            "Subnet of the members.";
        PORT_ID: String = value::text_or_empty, "port-id", On::All, "ID", "", FIXED,
            "A port of Neutron whose address the load balancer takes, instead of network and subnet. \
             Of several addresses, an internal or IPv6 Service names one in `spec.loadBalancerIP`.";
        LOAD_BALANCER_ID: String = value::text_or_empty, "load-balancer-id", On::All, "ID", "written by the provider", "Must not be changed.",
            "The load balancer of this Service. Naming that of another Service shares it.";
        LOAD_BALANCER_ADDRESS: String = value::text_or_empty, "load-balancer-address", On::All, "address", "written by the provider", "",
            "The address of the load balancer, for information.";
        HOSTNAME: String = host_name, "hostname", On::All, "host name", "", "",
            "Published instead of the address.";
        CONNECTION_LIMIT: i32 = integer, "connection-limit", On::All, "number", "`-1`", "",
            "How many connections a listener takes; `-1`: any number.";
        LB_METHOD: String = value::text_or_empty, "lb-method", On::All, "`ROUND_ROBIN`, `LEAST_CONNECTIONS`, `SOURCE_IP`, `SOURCE_IP_PORT`", "`lb-method`", "",
            "Algorithm of the pools. Empty: the default.";
        PROXY_PROTOCOL: ProxyProtocol = proxy_protocol, "proxy-protocol", On::All, "`true`, `v1`, `v2`, `false`", "`false`", "A change replaces the pools.",
            "Members learn the client's address by the PROXY protocol; `true` is `v1`.";
        X_FORWARDED_FOR: bool = value::exact_bool, "x-forwarded-for", On::All, "boolean", "`false`", "A change replaces the listeners.",
            "Members learn the client's address by the header `X-Forwarded-For`; listeners speak HTTP. Not together with `proxy-protocol`.";
        DEFAULT_TLS_CONTAINER_REF: String = value::text_or_empty, "default-tls-container-ref", On::All, "URL of a container or secret of Barbican", "`default-tls-container-ref`", "",
            "Certificate; listeners end TLS.";
        TIMEOUT_CLIENT_DATA: i32 = integer, "timeout-client-data", On::All, "milliseconds", "`50000`", "",
            "How long a client may be silent.";
        TIMEOUT_MEMBER_CONNECT: i32 = integer, "timeout-member-connect", On::All, "milliseconds", "`5000`", "",
            "How long connecting to a member may take.";
        TIMEOUT_MEMBER_DATA: i32 = integer, "timeout-member-data", On::All, "milliseconds", "`50000`", "",
            "How long a member may be silent.";
        TIMEOUT_TCP_INSPECT: i32 = integer, "timeout-tcp-inspect", On::All, "milliseconds", "`0`", "",
            "How long to wait for content to inspect.";
        FLAVOR_ID: String = value::text_or_empty, "flavor-id", On::All, "ID", "`flavor-id`", FIXED,
            "Flavor of Octavia.";
        AVAILABILITY_ZONE: String = value::text_or_empty, "availability-zone", On::All, "name", "`availability-zone`", FIXED,
            "Availability zone of Octavia.";
        ENABLE_HEALTH_MONITOR: bool = value::exact_bool, "enable-health-monitor", On::All, "boolean", "`create-monitor`", "",
            "A health monitor for each pool.";
        HEALTH_MONITOR_DELAY: i32 = integer, "health-monitor-delay", On::All, "seconds", "`monitor-delay`", "",
            "Interval of health checks.";
        HEALTH_MONITOR_TIMEOUT: i32 = integer, "health-monitor-timeout", On::All, "seconds", "`monitor-timeout`", "",
            "How long a health check may take. Not longer than the interval.";
        HEALTH_MONITOR_MAX_RETRIES: i32 = integer, "health-monitor-max-retries", On::All, "number", "`monitor-max-retries`", "",
            "Successes until a member gets traffic.";
        HEALTH_MONITOR_MAX_RETRIES_DOWN: i32 = integer, "health-monitor-max-retries-down", On::All, "number", "`monitor-max-retries-down`", "",
            "Failures until it gets none. 0: Octavia's default, 3.";
        KEEP_FLOATING_IP: bool = value::exact_bool, "keep-floatingip", On::All, "boolean", "`false`", "",
            "The floating IP stays when the Service goes or becomes internal.";
        NODE_SELECTOR: String = value::text_or_empty, "node-selector", On::All, "list of `key=value` or `key`", "`node-selector`", "",
            "Labels of the nodes that become members.";
        LOAD_BALANCER_TAGS: Vec<String> = value::list, "load-balancer-tags", On::All, "list", "", STAY,
            "More tags of the load balancer.";
        LISTENER_TAGS: Vec<String> = value::list, "listener-tags", On::All, "list", "", STAY,
            "More tags of the listeners.";
        POOL_TAGS: Vec<String> = value::list, "pool-tags", On::All, "list", "", STAY,
            "More tags of the pools.";
        RECREATE_IN_ERROR: bool = value::exact_bool, "recreate-in-error", On::All, "boolean", "`false`", "",
            "A load balancer in ERROR is deleted and made again, unless other Services share it. A floating IP stays; the address behind it may change, so an internal Service may get another one.";
        ENABLE_INGRESS_HOSTNAME: bool = value::exact_bool, "enable-ingress-hostname", On::All, "boolean", "`enable-ingress-hostname`", "",
            "With the PROXY protocol, publish a host name instead of the address.";
    }
}

/// Kubernetes takes no status with another name.
fn host_name(text: &str) -> Parsed<String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label =
        |label: &str| (1..64).contains(&label.len()) && label.chars().all(is_inner) && label.trim_matches('-') == label;
    let is_name = text.len() < 254 && text.split('.').all(is_label);
    // The API server takes numbers with leading zeros for an address, too.
    let numbers: Vec<_> = text.split('.').map(str::parse::<u8>).collect();
    let is_address = numbers.len() == 4 && numbers.iter().all(Result::is_ok);
    match text.is_empty() || is_name && !is_address {
        true => Ok(Some(text.to_owned())),
        false => Err("not a host name in lower case; write for example lb.example.com".into()),
    }
}

/// Decimal; for any other text, also an empty one, the default applies.
fn integer(text: &str) -> Parsed<i32> {
    value::or_default(value::number(text))
}

/// Any other text disables it, as upstream.
fn proxy_protocol(text: &str) -> Parsed<ProxyProtocol> {
    match text {
        "true" | "v1" => Ok(Some(ProxyProtocol::V1)),
        "v2" => Ok(Some(ProxyProtocol::V2)),
        "false" | "" => Ok(Some(ProxyProtocol::Off)),
        _ => value::or_default(Err(Wrong::from("unknown; write true, v1, v2 or false"))),
    }
}

/// All findings about the annotations of a Service: wrong values, contradictions, features that the provider driver
/// lacks, and keys that resemble those of the table. Errors must be corrected.
pub(crate) fn lint(annotations: Annotations<'_>, provider: &str) -> Vec<Finding> {
    let mut findings = TABLE.review(annotations, ());
    if let Some(method) = text(annotations, &LB_METHOD).filter(|method| !LB_METHODS.contains(method)) {
        let hint = did_you_mean(method, &LB_METHODS).unwrap_or_default();
        let message = format!("unknown, Octavia may refuse it; known are {}{hint}", LB_METHODS.join(", "));
        findings.push(annotations.warn(LB_METHOD.row, message));
    }
    let ids = [
        LOAD_BALANCER_ID.row,
        NETWORK_ID.row,
        SUBNET_ID.row,
        MEMBER_SUBNET_ID.row,
        PORT_ID.row,
        FLOATING_NETWORK_ID.row,
        FLOATING_SUBNET_ID.row,
        FLAVOR_ID.row,
    ];
    let is_odd = |row: &&Row| annotations.text(row).is_some_and(|id| !id.is_empty() && !is_uuid(id.trim()));
    findings.extend(ids.into_iter().filter(is_odd).map(|row| annotations.error(row, "not an ID: write a UUID")));
    // The whole value counts, as upstream.
    let never = value::items(annotations.text(NODE_SELECTOR.row).unwrap_or_default());
    let never = never.filter(|item| item.starts_with('=') || item.split('=').count() > 2);
    findings.extend(never.map(|item| {
        let message = format!("{item:?} matches no node: no label has such a key or value; write key=value");
        annotations.warn(NODE_SELECTOR.row, message)
    }));
    findings.extend(conflict(annotations));
    findings.extend(unsupported(annotations, provider));
    findings.extend(annotations.iter().filter_map(|(key, value)| TABLE.unknown(key, value, &[])));
    findings
}

/// With or without hyphens.
fn is_uuid(id: &str) -> bool {
    let digits: Vec<char> = id.chars().filter(|c| *c != '-').collect();
    digits.len() == 32 && digits.iter().all(char::is_ascii_hexdigit)
}

/// The two ways to get the client address, which exclude each other.
pub(crate) fn conflict(annotations: Annotations<'_>) -> Option<Finding> {
    let [header, proxy] = [is_on(annotations, &X_FORWARDED_FOR), has_proxy_protocol(annotations)];
    let message = || {
        format!(
            "annotation {} and {} cannot be used together; remove one",
            PROXY_PROTOCOL.row.key, X_FORWARDED_FOR.row.key
        )
    };
    (header && proxy).then(|| annotations.error(X_FORWARDED_FOR.row, message()))
}

/// Features that Octavia's provider driver lacks: warnings about ignored ones, errors about rejected ones.
pub(crate) fn unsupported(annotations: Annotations<'_>, provider: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let method = text(annotations, &LB_METHOD).and_then(|method| method_problem(provider, method));
    findings.extend(method.map(|problem| annotations.error(LB_METHOD.row, problem)));
    if provider != OVN {
        return findings;
    }
    let refused: [(&Row, bool); 3] = [
        (PROXY_PROTOCOL.row, has_proxy_protocol(annotations)),
        (X_FORWARDED_FOR.row, is_on(annotations, &X_FORWARDED_FOR)),
        (DEFAULT_TLS_CONTAINER_REF.row, text(annotations, &DEFAULT_TLS_CONTAINER_REF).is_some()),
    ];
    for (row, _) in refused.into_iter().filter(|(_, is_there)| *is_there) {
        findings.push(annotations.error(row, "the Octavia provider ovn refuses it; remove it"));
    }
    let ignored = [
        TIMEOUT_CLIENT_DATA.row,
        TIMEOUT_MEMBER_CONNECT.row,
        TIMEOUT_MEMBER_DATA.row,
        TIMEOUT_TCP_INSPECT.row,
        FLAVOR_ID.row,
        AVAILABILITY_ZONE.row,
    ];
    let is_there = |row: &&Row| annotations.text(row).is_some_and(|text| !text.is_empty());
    let message = "no effect: the Octavia provider ovn does not have it; remove it";
    findings.extend(ignored.into_iter().filter(is_there).map(|row| annotations.warn(row, message)));
    findings
}

fn is_on(annotations: Annotations<'_>, key: &Key<bool>) -> bool {
    annotations.readable(key) == Some(true)
}

fn has_proxy_protocol(annotations: Annotations<'_>) -> bool {
    annotations.readable(&PROXY_PROTOCOL).unwrap_or_default() != ProxyProtocol::Off
}

/// A text that is not empty.
fn text<'a>(annotations: Annotations<'a>, key: &Key<String>) -> Option<&'a str> {
    annotations.text(key.row).filter(|text| !text.is_empty())
}
