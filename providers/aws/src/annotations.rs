//! The annotations of Services, each defined once.
//!
//! [`TABLE`] has one row per key: which balancers read it, what its value is, what it does. From the rows come the parsers
//! ([`Annotations::get`]), the reference page ([`reference`]) and the findings ([`lint`]). No key is spelled anywhere else.

mod lint;
mod strange;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};

pub(crate) use lint::{Surroundings, lint, lint_elsewhere};
pub(crate) use value::{BackendProtocol, HealthPort, HealthProtocol, SslPorts, hides_client_ip};

/// What every key of ours begins with.
pub(crate) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// The kinds of balancers that are made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Classic,
    Network,
}

impl Kind {
    /// For messages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic load balancer",
            Self::Network => "network load balancer",
        }
    }
}

/// Which balancers read a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Both,
    /// The other kind ignores it.
    Only(Kind),
    /// The other kind refuses it.
    Strictly(Kind),
}

impl On {
    /// Whether balancers of this kind read it.
    pub(crate) fn reads(self, kind: Kind) -> bool {
        match self {
            Self::Both => true,
            Self::Only(only) | Self::Strictly(only) => only == kind,
        }
    }
}

/// What is told of a key.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) on: On,
    /// The type of the value, in words.
    pub(crate) value: &'static str,
    /// What holds without the key; empty where there is nothing.
    pub(crate) default: &'static str,
    /// Whether the value counts only when the balancer is made.
    pub(crate) fixed: bool,
    /// What it does, in Markdown.
    pub(crate) doc: &'static str,
    /// Says what is wrong with a value.
    check: fn(&str) -> Result<(), String>,
}

/// A key and how its value is read.
#[derive(Debug)]
pub(crate) struct Key<T: 'static> {
    pub(crate) row: &'static Row,
    parse: fn(&str) -> Result<Option<T>, String>,
}

/// The annotations of a Service, read by key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Annotations<'a>(&'a BTreeMap<String, String>);

impl<'a> Annotations<'a> {
    /// Looks at the annotations of a Service; nothing is parsed yet.
    pub(crate) fn read(annotations: &'a BTreeMap<String, String>) -> Self {
        Self(annotations)
    }

    /// The value; `None` when the key is absent, or empty where that is the same.
    ///
    /// # Errors
    ///
    /// The value is not of the key's type: [`ErrorClass::Invalid`], naming key, value and what to write.
    pub(crate) fn get<T>(&self, key: &Key<T>) -> Result<Option<T>, ProviderError> {
        let Some(value) = self.0.get(key.row.key) else { return Ok(None) };
        (key.parse)(value).map_err(|problem| refused(key.row, Some(value), problem))
    }

    /// The value or the default of its type.
    ///
    /// # Errors
    ///
    /// As [`Annotations::get`].
    pub(crate) fn get_or_default<T: Default>(&self, key: &Key<T>) -> Result<T, ProviderError> {
        self.get(key).map(Option::unwrap_or_default)
    }

    /// Whether the key is there, whatever its value.
    pub(crate) fn has<T>(&self, key: &Key<T>) -> bool {
        self.0.contains_key(key.row.key)
    }

    /// The value as written.
    pub(crate) fn text(&self, row: &Row) -> Option<&'a str> {
        self.0.get(row.key).map(String::as_str)
    }

    /// An error about the value of a key that is right by itself.
    pub(crate) fn refuse(&self, row: &Row, problem: impl Into<String>) -> ProviderError {
        refused(row, self.text(row), problem.into())
    }

    /// A warning about the value of a key.
    pub(crate) fn warn(&self, row: &Row, problem: impl Into<String>) -> Finding {
        finding(Severity::Warning, row, self.text(row), problem.into())
    }

    /// The first key of ours that is there, in the order of the table.
    pub(crate) fn first(&self) -> Option<&'static Row> {
        TABLE.iter().copied().find(|row| self.text(row).is_some())
    }

    fn keys(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

fn finding(severity: Severity, row: &Row, value: Option<&str>, message: String) -> Finding {
    Finding { severity, key: row.key.to_owned(), value: value.map(str::to_owned), message }
}

fn refused(row: &Row, value: Option<&str>, problem: String) -> ProviderError {
    invalid(finding(Severity::Error, row, value, problem))
}

/// An error that lasts until the Service changes.
pub(crate) fn invalid(finding: Finding) -> ProviderError {
    let message = finding.to_string();
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message)
}

/// Defines the keys and the table of their rows. Each line: name, type and parser of the value; suffix of the key; who reads
/// it; the value in words; the default; whether it is fixed at creation; what it does.
macro_rules! table {
    ($($name:ident: $type:ty = $parse:path, $suffix:literal, $on:expr, $value:literal, $default:literal, $fixed:literal,
       $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub(crate) static $name: Key<$type> = Key {
                row: &Row {
                    key: concat!("service.beta.kubernetes.io/aws-load-balancer-", $suffix),
                    on: $on,
                    value: $value,
                    default: $default,
                    fixed: $fixed,
                    doc: $doc,
                    check: |text| $parse(text).map(drop),
                },
                parse: $parse,
            };
        )*

        /// All keys, in the order of the reference.
        pub(crate) static TABLE: &[&Row] = &[$($name.row),*];
    };
}

const BOTH: On = On::Both;
const CLASSIC: On = On::Only(Kind::Classic);
const NETWORK: On = On::Only(Kind::Network);

table! {
    TYPE: String = value::text, "type", BOTH, "`nlb`, `external`, `nlb-ip`", "classic", true,
        "`nlb` makes a network load balancer; `external` and `nlb-ip` leave the Service to another controller; anything else makes a classic load balancer. A change on an existing balancer is refused.";
    INTERNAL: bool = value::internal, "internal", BOTH, "text", "`false`", true,
        "Any text but `false` makes an internal balancer.";
    SUBNETS: Vec<String> = value::subnets, "subnets", BOTH, "list of subnet IDs or `Name` tags", "found by tags and routes", false,
        "Where the balancer stands; one subnet per availability zone. A network load balancer takes them when it is made.";
    TARGET_NODE_LABELS: BTreeMap<String, String> = value::pairs, "target-node-labels", BOTH, "list of `key=value` or `key`", "all nodes", false,
        "Only nodes with all these labels get traffic; a key alone asks for any value.";
    ADDITIONAL_TAGS: BTreeMap<String, String> = value::pairs, "additional-resource-tags", BOTH, "list of `key=value` or `key`", "", false,
        "Tags of what is made. A network load balancer, its listeners and target groups take them when they are made; tags are never removed. The tags that mark cluster and Service cannot be set.";
    SECURITY_GROUPS: Vec<String> = value::list, "security-groups", BOTH, "list of security group IDs", "a managed group", false,
        "These groups instead of a managed one; their rules are left alone. Network load balancers read it only with `NLBSecurityGroupMode = Managed`.";
    EXTRA_SECURITY_GROUPS: Vec<String> = value::list, "extra-security-groups", On::Strictly(Kind::Classic), "list of security group IDs", "", false,
        "Groups beside the managed or named ones.";
    SSL_CERT: String = value::text, "ssl-cert", BOTH, "ARN of an ACM or IAM certificate", "", false,
        "TLS on the ports of `ssl-ports`.";
    SSL_PORTS: SslPorts = value::ssl_ports, "ssl-ports", BOTH, "list of port numbers or names, or `*`", "`*`", false,
        "Which ports get the certificate. Names are compared without regard to case.";
    SSL_POLICY: String = value::text, "ssl-negotiation-policy", BOTH, "name of a predefined policy", "AWS's", false,
        "Protocols and ciphers of the TLS listeners. Removing the annotation changes nothing.";
    BACKEND_PROTOCOL: BackendProtocol = value::backend_protocol, "backend-protocol", BOTH, "`http`, `https`, `ssl`, `tcp`", "`tcp`", false,
        "What the pods speak. Network load balancers know only `ssl` together with a certificate: TLS to the nodes.";
    CROSS_ZONE: bool = value::flag, "cross-zone-load-balancing-enabled", BOTH, "boolean", "`false`", false,
        "Traffic to the nodes of all zones. Set back to `false` when the annotation goes.";
    ACCESS_LOG: bool = value::flag, "access-log-enabled", BOTH, "boolean", "`false`", false,
        "Access logs. Set back to `false` when the annotation goes.";
    ACCESS_LOG_BUCKET: String = value::text, "access-log-s3-bucket-name", BOTH, "name of an S3 bucket", "", false,
        "Where access logs go.";
    ACCESS_LOG_PREFIX: String = value::text, "access-log-s3-bucket-prefix", BOTH, "text", "", false,
        "Prefix of the log objects in the bucket.";
    ACCESS_LOG_INTERVAL: i32 = value::integer, "access-log-emit-interval", CLASSIC, "minutes: `5` or `60`", "`60`", false,
        "How often access logs are written.";
    DRAINING: bool = value::flag, "connection-draining-enabled", CLASSIC, "boolean", "`false`", false,
        "Whether connections to a node that leaves may end by themselves.";
    DRAINING_TIMEOUT: i32 = value::integer, "connection-draining-timeout", CLASSIC, "seconds", "`300`", false,
        "How long they may take.";
    IDLE_TIMEOUT: i32 = value::integer, "connection-idle-timeout", CLASSIC, "seconds", "`60`", false,
        "When silent connections are closed.";
    PROXY_PROTOCOL: bool = value::proxy_protocol, "proxy-protocol", CLASSIC, "`*`", "off", false,
        "Proxy protocol version 1 to all node ports.";
    TARGET_GROUP_ATTRIBUTES: BTreeMap<String, String> = value::target_group_attributes, "target-group-attributes", On::Strictly(Kind::Network), "list of `preserve_client_ip.enabled` and `proxy_protocol_v2.enabled`, each `=true` or `=false`", "left as they are", false,
        "Attributes of the target groups. They keep their values when the annotation goes.";
    EIP_ALLOCATIONS: Vec<String> = value::list, "eip-allocations", NETWORK, "list of allocation IDs, one per subnet", "", true,
        "Elastic IPs, in the order of the subnets.";
    PRIVATE_IPV4: Vec<String> = value::ipv4_list, "private-ipv4-addresses", NETWORK, "list of IPv4 addresses, one per subnet", "", true,
        "Private addresses, in the order of the subnets.";
    HEALTH_PROTOCOL: HealthProtocol = value::health_protocol, "healthcheck-protocol", BOTH, "`tcp`, `http`, `https`; classic also `ssl`", "`tcp`; `http` with `externalTrafficPolicy: Local`", false,
        "How nodes are asked.";
    HEALTH_PORT: HealthPort = value::health_port, "healthcheck-port", BOTH, "number or `traffic-port`", "`traffic-port`; the health check's node port with `externalTrafficPolicy: Local`", false,
        "Where nodes are asked.";
    HEALTH_PATH: String = value::text, "healthcheck-path", BOTH, "path", "`/`; `/healthz` with `externalTrafficPolicy: Local`", false,
        "What is asked for with `http` and `https`.";
    HEALTHY_THRESHOLD: i32 = value::health_number, "healthcheck-healthy-threshold", BOTH, "number", "classic `2`; network `3`, or `2` with `externalTrafficPolicy: Local`", false,
        "Successes until a node gets traffic.";
    UNHEALTHY_THRESHOLD: i32 = value::health_number, "healthcheck-unhealthy-threshold", BOTH, "number", "classic `6`; network `3`, or `2` with `externalTrafficPolicy: Local`", false,
        "Failures until a node gets none.";
    HEALTH_TIMEOUT: i32 = value::health_number, "healthcheck-timeout", BOTH, "seconds", "classic `5`; network AWS's", false,
        "How long an answer may take.";
    HEALTH_INTERVAL: i32 = value::health_number, "healthcheck-interval", BOTH, "seconds", "classic `10`; network `30`, or `10` with `externalTrafficPolicy: Local`", false,
        "How often nodes are asked. On network load balancers a change makes new target groups.";
}

/// The table as Markdown.
pub(crate) fn reference() -> String {
    let mut page = String::from("| Annotation | Balancers | Value | Default | Effect |\n|---|---|---|---|---|\n");
    for row in TABLE {
        let kinds = match row.on {
            On::Both => "both",
            On::Only(Kind::Classic) => "classic; ignored by network",
            On::Only(Kind::Network) => "network; ignored by classic",
            On::Strictly(Kind::Classic) => "classic; refused by network",
            On::Strictly(Kind::Network) => "network; refused by classic",
        };
        let fixed = if row.fixed { " Counts only when the balancer is made." } else { "" };
        let default = if row.default.is_empty() { "–" } else { row.default };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {kinds} | {} | {default} | {}{fixed} |", row.key, row.value, row.doc);
    }
    let _ = writeln!(
        page,
        "| `{ANNOTATION_SOURCE_RANGES}` | both | list of CIDRs | `0.0.0.0/0` | Who may connect, where \
         `spec.loadBalancerSourceRanges` is empty. |"
    );
    page
}
