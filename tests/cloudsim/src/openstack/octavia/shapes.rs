//! Shapes of the request bodies of Octavia.

use crate::core::shape::{Field, Kind, may, must};

const TEXT: Kind = Kind::Text(255);
const TEXTS: Kind = Kind::List(&TEXT);
const PORT: Kind = Kind::Int(1, 65535);
const TIMEOUT: Kind = Kind::Int(0, 31_536_000_000);
const RETRIES: Kind = Kind::Int(1, 10);
const ANY_INT: Kind = Kind::Int(0, i64::MAX);
const METHODS: Kind = Kind::OneOf(&["GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "CONNECT", "PATCH"]);
const ALGORITHM: Kind = Kind::OneOf(&["SOURCE_IP_PORT", "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"]);
const PERSISTENCE: Kind = Kind::Object(&[
    must("type", Kind::OneOf(&["HTTP_COOKIE", "APP_COOKIE", "SOURCE_IP"])),
    may("cookie_name", TEXT),
    may("persistence_timeout", ANY_INT),
    may("persistence_granularity", TEXT),
]);
const AUTHENTICATION: Kind = Kind::OneOf(&["NONE", "OPTIONAL", "MANDATORY"]);

macro_rules! listener {
    ($($more:expr),*) => {
        &[
            may("name", TEXT),
            may("description", TEXT),
            may("admin_state_up", Kind::Bool),
            may("connection_limit", Kind::Int(-1, i64::MAX)),
            may("default_tls_container_ref", TEXT),
            may("sni_container_refs", TEXTS),
            may("insert_headers", Kind::Texts),
            may("timeout_client_data", TIMEOUT),
            may("timeout_member_connect", TIMEOUT),
            may("timeout_member_data", TIMEOUT),
            may("timeout_tcp_inspect", TIMEOUT),
            may("tags", TEXTS),
            may("client_ca_tls_container_ref", TEXT),
            may("client_authentication", AUTHENTICATION),
            may("client_crl_container_ref", TEXT),
            may("allowed_cidrs", Kind::List(&Kind::Cidr)),
            may("tls_ciphers", Kind::Text(2048)),
            may("tls_versions", TEXTS),
            may("alpn_protocols", TEXTS),
            may("hsts_max_age", ANY_INT),
            may("hsts_include_subdomains", Kind::Bool),
            may("hsts_preload", Kind::Bool),
            may("default_pool_id", Kind::Uuid),
            $($more),*
        ]
    };
}

const LISTENER_PROTOCOL: Field =
    must("protocol", Kind::OneOf(&["UDP", "HTTP", "TCP", "SCTP", "TERMINATED_HTTPS", "PROMETHEUS", "HTTPS"]));

pub(super) const LISTENER: &[Field] = listener![
    LISTENER_PROTOCOL,
    must("protocol_port", PORT),
    must("loadbalancer_id", Kind::Uuid),
    may("project_id", Kind::Text(36))
];
pub(super) const LISTENER_PUT: &[Field] = listener![];
const LISTENER_INSIDE: &[Field] =
    listener![LISTENER_PROTOCOL, must("protocol_port", PORT), may("default_pool", Kind::Object(POOL_INSIDE))];

macro_rules! pool {
    ($($more:expr),*) => {
        &[
            may("name", TEXT),
            may("description", TEXT),
            may("admin_state_up", Kind::Bool),
            may("session_persistence", PERSISTENCE),
            may("tags", TEXTS),
            may("tls_enabled", Kind::Bool),
            may("tls_container_ref", TEXT),
            may("ca_tls_container_ref", TEXT),
            may("crl_container_ref", TEXT),
            may("tls_ciphers", Kind::Text(2048)),
            may("tls_versions", TEXTS),
            may("alpn_protocols", TEXTS),
            $($more),*
        ]
    };
}

const POOL_PROTOCOL: Field =
    must("protocol", Kind::OneOf(&["UDP", "HTTP", "TCP", "SCTP", "PROXYV2", "PROXY", "HTTPS"]));

pub(super) const POOL: &[Field] = pool![
    POOL_PROTOCOL,
    must("lb_algorithm", ALGORITHM),
    may("listener_id", Kind::Uuid),
    may("loadbalancer_id", Kind::Uuid),
    may("project_id", Kind::Text(36))
];
pub(super) const POOL_PUT: &[Field] = pool![may("lb_algorithm", ALGORITHM)];
const POOL_INSIDE: &[Field] = pool![
    POOL_PROTOCOL,
    must("lb_algorithm", ALGORITHM),
    may("members", Kind::List(&Kind::Object(MEMBER))),
    may("healthmonitor", Kind::Object(MONITOR_INSIDE))
];

pub(super) const MEMBER: &[Field] = &[
    may("name", TEXT),
    may("admin_state_up", Kind::Bool),
    may("weight", Kind::Int(0, 256)),
    may("backup", Kind::Bool),
    may("monitor_port", PORT),
    may("monitor_address", Kind::Address),
    may("tags", TEXTS),
    must("address", Kind::Address),
    must("protocol_port", PORT),
    may("subnet_id", Kind::Uuid),
    may("project_id", Kind::Text(36)),
    may("vnic_type", TEXT),
];
/// The list of a batch update.
pub(super) const MEMBERS: &[Field] = &[must("members", Kind::List(&Kind::Object(MEMBER)))];

macro_rules! monitor {
    ($need:ident; $($more:expr),*) => {
        &[
            may("name", TEXT),
            may("admin_state_up", Kind::Bool),
            $need("delay", ANY_INT),
            $need("timeout", ANY_INT),
            $need("max_retries", RETRIES),
            may("max_retries_down", RETRIES),
            may("http_method", METHODS),
            may("url_path", TEXT),
            may("expected_codes", TEXT),
            may("http_version", Kind::Any),
            may("domain_name", TEXT),
            may("tags", TEXTS),
            $($more),*
        ]
    };
}

const MONITOR_TYPE: Field =
    must("type", Kind::OneOf(&["TLS-HELLO", "HTTP", "TCP", "SCTP", "PING", "UDP-CONNECT", "HTTPS"]));

pub(super) const MONITOR: &[Field] =
    monitor![must; MONITOR_TYPE, must("pool_id", Kind::Uuid), may("project_id", Kind::Text(36))];
pub(super) const MONITOR_PUT: &[Field] = monitor![may;];
const MONITOR_INSIDE: &[Field] = monitor![must; MONITOR_TYPE];

pub(super) const BALANCER: &[Field] = &[
    may("name", TEXT),
    may("description", TEXT),
    may("admin_state_up", Kind::Bool),
    may("vip_address", Kind::Address),
    may("vip_port_id", Kind::Uuid),
    may("vip_subnet_id", Kind::Uuid),
    may("vip_network_id", Kind::Uuid),
    may("vip_qos_policy_id", Kind::Uuid),
    may("vip_sg_ids", Kind::List(&Kind::Uuid)),
    may(
        "additional_vips",
        Kind::List(&Kind::Object(&[
            must("subnet_id", Kind::Uuid),
            may("ip_address", Kind::Address),
            may("port_id", Kind::Uuid),
        ])),
    ),
    may("project_id", Kind::Text(36)),
    may("listeners", Kind::List(&Kind::Object(LISTENER_INSIDE))),
    may("provider", Kind::Text(64)),
    may("tags", TEXTS),
    may("flavor_id", Kind::Uuid),
    may("availability_zone", TEXT),
];
pub(super) const BALANCER_PUT: &[Field] = &[
    may("name", TEXT),
    may("description", TEXT),
    may("admin_state_up", Kind::Bool),
    may("vip_qos_policy_id", Kind::Uuid),
    may("vip_sg_ids", Kind::List(&Kind::Uuid)),
    may("tags", TEXTS),
];
