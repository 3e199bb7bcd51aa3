//! Wanted state of a network balancer. All mistakes are found here, before any call.

use ccm_provider::{Finding, ProviderError, Service};

use super::{Common, Network, Port, check};
use crate::annotations::{
    ACCESS_LOG_PREFIX, Annotations, BACKEND_PROTOCOL, BackendProtocol, CROSS_ZONE, EIP_ALLOCATIONS, HEALTH_INTERVAL,
    HEALTH_PATH, HEALTH_PORT, HEALTH_PROTOCOL, HEALTH_TIMEOUT, HEALTHY_THRESHOLD, HealthPort, HealthProtocol,
    PRIVATE_IPV4, SSL_CERT, SSL_POLICY, SSL_PORTS, TARGET_GROUP_ATTRIBUTES, UNHEALTHY_THRESHOLD, network_timeout,
};
use crate::client::elbv2::{Attributes, HealthCheck};
use crate::start::config::SharedProbe;

/// Balancer attributes that every sync compares.
const CROSS_ZONE_ENABLED: &str = "load_balancing.cross_zone.enabled";
/// Begins the attributes of access logs.
pub(crate) const LOGS: &str = "access_logs.";
const LOGS_ENABLED: &str = "access_logs.s3.enabled";
const LOGS_BUCKET: &str = "access_logs.s3.bucket";
const LOGS_PREFIX: &str = "access_logs.s3.prefix";

/// Health-check port that means the target's own port.
pub(crate) const TRAFFIC_PORT: &str = "traffic-port";

/// The desired balancer, and findings that are not about annotations.
pub(crate) fn network(
    service: &Service,
    common: Common,
    probe: Option<&SharedProbe>,
) -> Result<(Network, Vec<Finding>), ProviderError> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let health_check = health_check(service, annotations, probe)?;
    let mut findings = Vec::new();
    let ports = ports(service, annotations, &health_check, &mut findings)?;
    let (private_ipv4, no_addresses) = match annotations.get_or_default(&PRIVATE_IPV4) {
        Ok(addresses) => (addresses, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let network = Network {
        common,
        ports,
        allocations: annotations.get_or_default(&EIP_ALLOCATIONS)?,
        private_ipv4,
        no_addresses,
        attributes: attributes(annotations)?,
        target_group_attributes: annotations.get(&TARGET_GROUP_ATTRIBUTES)?,
    };
    Ok((network, findings))
}

/// One per Service port with a node port, sorted.
fn ports(
    service: &Service,
    annotations: Annotations<'_>,
    health_check: &HealthCheck,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Port>, ProviderError> {
    let certificate = annotations.get(&SSL_CERT)?;
    let covered = annotations.get_or_default(&SSL_PORTS)?;
    let ssl_policy = annotations.get(&SSL_POLICY)?;
    let tls_to_nodes = annotations.get(&BACKEND_PROTOCOL)? == Some(BackendProtocol::Ssl);
    let mut ports = Vec::new();
    for port in &service.spec.ports {
        if !["TCP", "UDP"].contains(&&*port.protocol) {
            let problem = format!("a network load balancer takes TCP and UDP only (port {})", port.port);
            return Err(check::about("spec.ports[].protocol", Some(&port.protocol), &problem));
        }
        if port.node_port == 0 {
            findings.push(check::without_node_port(port));
            continue;
        }
        let certificate =
            certificate.clone().filter(|_| port.protocol == "TCP" && covered.cover(port.port, &port.name));
        let tls = certificate.is_some();
        let protocol = if tls { "TLS" } else { &*port.protocol };
        let traffic_protocol = if tls && tls_to_nodes { "TLS" } else { &*port.protocol };
        ports.push(Port {
            port: port.port,
            protocol: protocol.to_owned(),
            node_port: port.node_port,
            traffic_protocol: traffic_protocol.to_owned(),
            certificate,
            ssl_policy: ssl_policy.clone().filter(|_| tls),
            health_check: health_check.clone(),
        });
    }
    if ports.is_empty() {
        return Err(check::no_usable_ports());
    }
    ports.sort_by(|a, b| (a.port, &a.protocol).cmp(&(b.port, &b.protocol)));
    Ok(ports)
}

/// The health check of the nodes, the same for each port.
///
/// Upstream: `buildNLBHealthCheckConfiguration` in `pkg/providers/v1/aws.go`. With a [`SharedProbe`] the
/// annotations for protocol, port and path have no effect (kept: clusters rely on one probe for all Services).
fn health_check(
    service: &Service,
    annotations: Annotations<'_>,
    probe: Option<&SharedProbe>,
) -> Result<HealthCheck, ProviderError> {
    let local = service.spec.external_traffic_policy == "Local";
    // Without a health-check node port, upstream would probe port 0.
    let (local_path, local_port) = service.health_check_path_port();
    let (protocol, path, port, interval, threshold) = if local && local_port != 0 {
        (HealthProtocol::Http, local_path, local_port.to_string(), 10, 2)
    } else {
        (HealthProtocol::Tcp, "/", TRAFFIC_PORT.to_owned(), 30, 3)
    };
    let protocol = annotations.get(&HEALTH_PROTOCOL)?.unwrap_or(protocol);
    if protocol == HealthProtocol::Ssl {
        let problem = "a network load balancer checks health with TCP, HTTP or HTTPS; write one of them";
        return Err(annotations.refuse(HEALTH_PROTOCOL.row, problem));
    }
    let path = annotations.get(&HEALTH_PATH)?.unwrap_or_else(|| path.to_owned());
    let port = match annotations.get(&HEALTH_PORT)? {
        Some(HealthPort::Traffic) => TRAFFIC_PORT.to_owned(),
        Some(HealthPort::Number(number)) => number.to_string(),
        None => port,
    };
    let (protocol, port, path) = match probe {
        Some(SharedProbe { port, path }) if !local => (HealthProtocol::Http, port.to_string(), path.clone()),
        _ => (protocol, port, path),
    };
    Ok(HealthCheck {
        protocol: protocol.as_str().to_owned(),
        port,
        path: protocol.has_path().then_some(path),
        interval: annotations.get(&HEALTH_INTERVAL)?.unwrap_or(interval),
        // Upstream reads this annotation and never sends it, so a value that AWS refuses must not stop anything. Without
        // it, AWS's default applies, which depends on the protocol.
        timeout: annotations.get(&HEALTH_TIMEOUT)?.and_then(|_| network_timeout(service, annotations)),
        healthy_threshold: annotations.get(&HEALTHY_THRESHOLD)?.unwrap_or(threshold),
        unhealthy_threshold: annotations.get(&UNHEALTHY_THRESHOLD)?.unwrap_or(threshold),
    })
}

/// The balancer's attributes. Bucket and prefix only while logs are on: AWS refuses an empty bucket, so they keep their
/// values when logs are off.
fn attributes(annotations: Annotations<'_>) -> Result<Attributes, ProviderError> {
    let cross_zone = annotations.get_or_default(&CROSS_ZONE)?;
    let (logs, bucket) = check::access_log(annotations)?;
    let mut attributes = Attributes::from([
        (CROSS_ZONE_ENABLED.to_owned(), cross_zone.to_string()),
        (LOGS_ENABLED.to_owned(), logs.to_string()),
    ]);
    if let Some(bucket) = bucket.filter(|_| logs) {
        attributes.insert(LOGS_BUCKET.to_owned(), bucket);
        attributes.insert(LOGS_PREFIX.to_owned(), annotations.get_or_default(&ACCESS_LOG_PREFIX)?);
    }
    Ok(attributes)
}
