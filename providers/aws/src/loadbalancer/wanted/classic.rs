//! Wanted state of a classic balancer. All mistakes are found here, before any call; upstream finds mistakes in the
//! health check after it created balancer and groups.

use ccm_provider::{Finding, ProviderError, Service, ServicePort};

use super::{Classic, Common, check};
use crate::annotations::{
    ACCESS_LOG_INTERVAL, ACCESS_LOG_PREFIX, Annotations, BACKEND_PROTOCOL, BackendProtocol, CLASSIC_INTERVAL,
    CLASSIC_TIMEOUT, CROSS_ZONE, DRAINING, DRAINING_TIMEOUT, HEALTH_INTERVAL, HEALTH_PATH, HEALTH_PORT,
    HEALTH_PROTOCOL, HEALTH_TIMEOUT, HEALTHY_THRESHOLD, HealthPort, HealthProtocol, IDLE_TIMEOUT, Key, PROXY_PROTOCOL,
    SSL_CERT, SSL_POLICY, SSL_PORTS, UNHEALTHY_THRESHOLD,
};
use crate::client::elb::{AccessLog, Attributes, ConnectionDraining, HealthCheck, Listener};
use crate::start::config::SharedProbe;

/// Upstream's default for closing idle connections, in seconds.
pub(crate) const IDLE_TIMEOUT_DEFAULT: i32 = 60;
/// AWS's default draining time, in seconds.
pub(crate) const DRAINING_TIMEOUT_DEFAULT: i32 = 300;
/// AWS's default interval of access logs, in minutes.
pub(crate) const EMIT_INTERVAL_DEFAULT: i32 = 60;

/// The desired balancer, and findings that are not about annotations.
pub(crate) fn classic(
    service: &Service,
    common: Common,
    probe: Option<&SharedProbe>,
) -> Result<(Classic, Vec<Finding>), ProviderError> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let (ports, findings) = usable_ports(service)?;
    let mut listeners = ports.iter().map(|port| listener(port, annotations)).collect::<Result<Vec<_>, _>>()?;
    let first = ports.first().map(|port| port.node_port).unwrap_or_default();
    let classic = Classic {
        proxy_protocol: annotations.get_or_default(&PROXY_PROTOCOL)?,
        attributes: attributes(annotations)?,
        health_check: health_check(service, annotations, probe, first)?,
        ssl_policy: annotations.get(&SSL_POLICY)?,
        // As upstream, including ports that no listener serves.
        open_ports: service.spec.ports.iter().map(|port| ("tcp".to_owned(), port.port)).collect(),
        listeners: {
            listeners.sort();
            listeners
        },
        common,
    };
    Ok((classic, findings))
}

/// The ports that can be served, in the order of the Service.
fn usable_ports(service: &Service) -> Result<(Vec<&ServicePort>, Vec<Finding>), ProviderError> {
    let (mut usable, mut findings) = (Vec::new(), Vec::new());
    for port in &service.spec.ports {
        if port.protocol != "TCP" {
            let problem = format!(
                "a classic load balancer takes TCP only (port {}); use TCP, or ask for a network load balancer",
                port.port
            );
            return Err(check::about("spec.ports[].protocol", Some(&port.protocol), &problem));
        }
        match port.node_port {
            0 => findings.push(check::without_node_port(port)),
            _ => usable.push(port),
        }
    }
    if usable.is_empty() { Err(check::no_usable_ports()) } else { Ok((usable, findings)) }
}

fn listener(port: &ServicePort, annotations: Annotations<'_>) -> Result<Listener, ProviderError> {
    let covered = annotations.get_or_default(&SSL_PORTS)?;
    let certificate = annotations.get(&SSL_CERT)?.filter(|_| covered.cover(port.port, &port.name));
    let backend = annotations.get(&BACKEND_PROTOCOL)?;
    let (protocol, instance_protocol) = match (&certificate, &backend) {
        (Some(_), None) => ("ssl", "tcp"),
        (Some(_), Some(BackendProtocol::Http)) => ("https", "http"),
        (Some(_), Some(BackendProtocol::Https)) => ("https", "https"),
        (Some(_), Some(BackendProtocol::Tcp)) => ("ssl", "tcp"),
        (Some(_), Some(BackendProtocol::Ssl)) => ("ssl", "ssl"),
        (Some(certificate), Some(BackendProtocol::Other(_))) => {
            let problem =
                format!("not known together with the certificate {certificate}; write http, https, ssl or tcp");
            return Err(annotations.refuse(BACKEND_PROTOCOL.row, problem));
        }
        (None, Some(BackendProtocol::Http)) => ("http", "http"),
        (None, _) => ("tcp", "tcp"),
    };
    Ok(Listener {
        port: port.port,
        protocol: protocol.to_owned(),
        instance_port: port.node_port,
        instance_protocol: instance_protocol.to_owned(),
        certificate,
    })
}

/// Every field that upstream sends, with upstream's defaults.
fn attributes(annotations: Annotations<'_>) -> Result<Attributes, ProviderError> {
    let (enabled, bucket) = check::access_log(annotations)?;
    let drains = annotations.get_or_default(&DRAINING)?;
    Ok(Attributes {
        access_log: Some(AccessLog {
            enabled,
            emit_interval: annotations.get(&ACCESS_LOG_INTERVAL)?.or(enabled.then_some(EMIT_INTERVAL_DEFAULT)),
            bucket,
            prefix: annotations.get(&ACCESS_LOG_PREFIX)?,
        }),
        connection_draining: Some(ConnectionDraining {
            enabled: drains,
            timeout: annotations.get(&DRAINING_TIMEOUT)?.or(drains.then_some(DRAINING_TIMEOUT_DEFAULT)),
        }),
        idle_timeout: Some(annotations.get(&IDLE_TIMEOUT)?.unwrap_or(IDLE_TIMEOUT_DEFAULT)),
        cross_zone: Some(annotations.get_or_default(&CROSS_ZONE)?),
    })
}

/// The health check of all nodes; `first` is the first node port.
fn health_check(
    service: &Service,
    annotations: Annotations<'_>,
    probe: Option<&SharedProbe>,
    first: i32,
) -> Result<HealthCheck, ProviderError> {
    let annotated_port = annotations.get(&HEALTH_PORT)?;
    let (protocol, port, path) = match (service.health_check_path_port(), probe) {
        ((path, port), _) if port != 0 => match annotated_port {
            Some(HealthPort::Traffic) => (HealthProtocol::Http, first, path.to_owned()),
            _ => (HealthProtocol::Http, port, path.to_owned()),
        },
        (_, Some(SharedProbe { port, path })) => (HealthProtocol::Http, i32::from(*port), path.clone()),
        (_, None) => (backend_probe(annotations), first, "/".to_owned()),
    };
    let protocol = annotations.get(&HEALTH_PROTOCOL)?.unwrap_or(protocol);
    let port = match annotated_port {
        Some(HealthPort::Number(number)) => number,
        Some(HealthPort::Traffic) | None => port,
    };
    let path = annotations.get(&HEALTH_PATH)?.unwrap_or(path);
    let path = if protocol.has_path() { path } else { String::new() };
    Ok(HealthCheck {
        // Upper case, as AWS returns it; otherwise it would always differ.
        target: format!("{}:{port}{path}", protocol.as_str()),
        interval: at_least(5, annotations, &HEALTH_INTERVAL, CLASSIC_INTERVAL)?,
        timeout: at_least(2, annotations, &HEALTH_TIMEOUT, CLASSIC_TIMEOUT)?,
        healthy_threshold: at_least(2, annotations, &HEALTHY_THRESHOLD, 2)?,
        unhealthy_threshold: at_least(2, annotations, &UNHEALTHY_THRESHOLD, 6)?,
    })
}

/// TLS if the backends speak it. Case-insensitive, unlike the listener's protocol.
fn backend_probe(annotations: Annotations<'_>) -> HealthProtocol {
    match annotations.text(BACKEND_PROTOCOL.row).map(str::to_lowercase).as_deref() {
        Some("https" | "ssl") => HealthProtocol::Ssl,
        _ => HealthProtocol::Tcp,
    }
}

fn at_least(least: i32, annotations: Annotations<'_>, key: &Key<i32>, default: i32) -> Result<i32, ProviderError> {
    match annotations.get(key)? {
        Some(number) if number < least => {
            Err(annotations.refuse(key.row, format!("must be at least {least} on a classic load balancer")))
        }
        number => Ok(number.unwrap_or(default)),
    }
}
