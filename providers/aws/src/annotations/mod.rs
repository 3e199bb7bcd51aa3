//! The annotations of Services, each defined once in [`TABLE`].

mod lint;
mod parse;
mod unknown;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ccm_kit::annotations::{BalancerKind, On, Spelling, Table, value};

pub(crate) use ccm_kit::annotations::{Annotations, invalid};
pub(crate) use lint::{
    CLASSIC_INTERVAL, CLASSIC_TIMEOUT, LintContext, check_tags, lint, lint_other_controller, network_timeout, refused,
};
pub(crate) use parse::{BackendProtocol, HealthPort, HealthProtocol, SslPorts, hides_client_ip};

pub(crate) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

pub(crate) type Key<T> = ccm_kit::annotations::Key<T, Kind>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Classic,
    Network,
}

impl BalancerKind for Kind {
    const ALL: &'static [Self] = &[Self::Classic, Self::Network];

    fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic load balancer",
            Self::Network => "network load balancer",
        }
    }
}

pub(crate) static TABLE: Table<Kind> = Table {
    spelling: Some(Spelling { prefix: PREFIX, cloud: "aws", names: &["loadbalancer", "elb", "nlb", "lb"] }),
    rows: ROWS,
};

const BOTH: On<Kind> = On::All;
const CLASSIC: On<Kind> = On::Only(Kind::Classic);
const NETWORK: On<Kind> = On::Only(Kind::Network);
const FIXED: &str = "Read only when the load balancer is created.";

ccm_kit::annotation_table! {
    pub(crate) static ROWS: Kind;
    "service.beta.kubernetes.io/aws-load-balancer-" {
        TYPE: String = value::text, "type", BOTH, "`nlb`, `external`, `nlb-ip`", "classic", FIXED,
            "`nlb` creates a network load balancer; `external` and `nlb-ip` leave the Service to another controller; anything else creates a classic load balancer. A change on an existing load balancer is refused.";
        INTERNAL: bool = parse::internal, "internal", BOTH, "text", "`false`", FIXED,
            "Any text but `false` creates an internal load balancer.";
        SUBNETS: Vec<String> = parse::subnets, "subnets", BOTH, "list of subnet IDs or `Name` tags", "found by tags and routes", "",
            "The subnets of the load balancer, one per availability zone. In a `Name`, `*` stands for any characters and `?` for one. On a network load balancer they are fixed at creation.";
        TARGET_NODE_LABELS: BTreeMap<String, String> = parse::without_third_part, "target-node-labels", BOTH, "list of `key=value` or `key`", "all nodes", "",
            "Only nodes with all these labels get traffic; a key alone matches any value.";
        ADDITIONAL_TAGS: BTreeMap<String, String> = value::pairs, "additional-resource-tags", BOTH, "list of `key=value` or `key`", "", "",
            "Tags of the created objects. On a network load balancer, its listeners and target groups they are set only at creation; tags are never removed. The ownership tags of cluster and Service cannot be set.";
        SECURITY_GROUPS: Vec<String> = value::list, "security-groups", BOTH, "list of security group IDs", "a managed group", "",
            "These groups instead of a managed one; their rules are not changed. Network load balancers read it only with `NLBSecurityGroupMode = Managed`.";
        EXTRA_SECURITY_GROUPS: Vec<String> = value::list, "extra-security-groups", On::Strictly(Kind::Classic), "list of security group IDs", "", "",
            "Groups in addition to the managed or named ones.";
        SSL_CERT: String = value::text, "ssl-cert", BOTH, "ARN of an ACM or IAM certificate", "", "",
            "TLS on the ports of `ssl-ports`.";
        SSL_PORTS: SslPorts = parse::ssl_ports, "ssl-ports", BOTH, "list of port numbers or names, or `*`", "`*`", "",
            "Which ports get the certificate. Names are compared without regard to case.";
        SSL_POLICY: String = value::text, "ssl-negotiation-policy", BOTH, "name of a predefined policy", "AWS's", "",
            "Protocols and ciphers of the TLS listeners. Removing the annotation changes nothing.";
        BACKEND_PROTOCOL: BackendProtocol = parse::backend_protocol, "backend-protocol", BOTH, "`http`, `https`, `ssl`, `tcp`", "`tcp`", "",
            "What the pods speak. Network load balancers support only `ssl`, together with a certificate: TLS to the nodes.";
        CROSS_ZONE: bool = value::go_bool, "cross-zone-load-balancing-enabled", BOTH, "boolean", "`false`", "",
            "Traffic to the nodes of all zones. Set back to `false` when the annotation is removed.";
        ACCESS_LOG: bool = value::go_bool, "access-log-enabled", BOTH, "boolean", "`false`", "",
            "Access logs. Set back to `false` when the annotation is removed.";
        ACCESS_LOG_BUCKET: String = value::text, "access-log-s3-bucket-name", BOTH, "name of an S3 bucket", "", "",
            "The bucket for access logs.";
        ACCESS_LOG_PREFIX: String = value::text, "access-log-s3-bucket-prefix", BOTH, "text", "", "",
            "Prefix of the log objects in the bucket.";
        ACCESS_LOG_INTERVAL: i32 = value::integer, "access-log-emit-interval", CLASSIC, "minutes: `5` or `60`", "`60`", "",
            "How often access logs are written.";
        DRAINING: bool = value::go_bool, "connection-draining-enabled", CLASSIC, "boolean", "`false`", "",
            "Whether open connections to a node that is removed may finish.";
        DRAINING_TIMEOUT: i32 = value::integer, "connection-draining-timeout", CLASSIC, "seconds", "`300`", "",
            "How long they may take.";
        IDLE_TIMEOUT: i32 = value::integer, "connection-idle-timeout", CLASSIC, "seconds", "`60`", "",
            "When idle connections are closed.";
        PROXY_PROTOCOL: bool = parse::proxy_protocol, "proxy-protocol", CLASSIC, "`*`", "off", "",
            "Proxy protocol version 1 to all node ports.";
        TARGET_GROUP_ATTRIBUTES: BTreeMap<String, String> = parse::target_group_attributes, "target-group-attributes", On::Strictly(Kind::Network), "list of `preserve_client_ip.enabled` and `proxy_protocol_v2.enabled`, each `=true` or `=false`", "left as they are", "",
            "Attributes of the target groups. They keep their values when the annotation is removed.";
        EIP_ALLOCATIONS: Vec<String> = value::list, "eip-allocations", NETWORK, "list of allocation IDs, one per subnet", "", FIXED,
            "Elastic IPs, in the order of the subnets.";
        PRIVATE_IPV4: Vec<String> = parse::ipv4_list, "private-ipv4-addresses", NETWORK, "list of IPv4 addresses, one per subnet", "", FIXED,
            "Private addresses, in the order of the subnets.";
        HEALTH_PROTOCOL: HealthProtocol = parse::health_protocol, "healthcheck-protocol", BOTH, "`tcp`, `http`, `https`; classic also `ssl`", "`tcp`; `http` with `externalTrafficPolicy: Local`", "",
            "Protocol of the health check.";
        HEALTH_PORT: HealthPort = parse::health_port, "healthcheck-port", BOTH, "number or `traffic-port`", "`traffic-port`; the health check's node port with `externalTrafficPolicy: Local`", "",
            "Port of the health check.";
        HEALTH_PATH: String = value::text, "healthcheck-path", BOTH, "path", "`/`; `/healthz` with `externalTrafficPolicy: Local`", "",
            "Path of the health check with `http` and `https`.";
        HEALTHY_THRESHOLD: i32 = value::number, "healthcheck-healthy-threshold", BOTH, "number", "classic `2`; network `3`, or `2` with `externalTrafficPolicy: Local`", "",
            "Successes until a node gets traffic.";
        UNHEALTHY_THRESHOLD: i32 = value::number, "healthcheck-unhealthy-threshold", BOTH, "number", "classic `6`; network `3`, or `2` with `externalTrafficPolicy: Local`", "",
            "Failures until a node gets none.";
        HEALTH_TIMEOUT: i32 = value::number, "healthcheck-timeout", BOTH, "seconds", "classic `5`; network AWS's", "",
            "How long a health check may take.";
        HEALTH_INTERVAL: i32 = value::number, "healthcheck-interval", BOTH, "seconds", "classic `10`; network `30`, or `10` with `externalTrafficPolicy: Local`", "",
            "Interval of the health check. On network load balancers a change creates new target groups.";
    }
}
