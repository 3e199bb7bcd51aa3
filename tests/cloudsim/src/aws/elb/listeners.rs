//! Listeners of Classic Load Balancers.

use super::{Balancer, Listener, named, named_mut, policies};
use crate::aws::balancing::{contradiction, invalid};
use crate::aws::query::Params;
use crate::aws::{ApiError, Call, World, Xml};
use std::collections::BTreeMap;

/// Parses the listeners of a request: at least one, and no duplicate port.
pub(super) fn read(world: &World, call: &Call) -> Result<BTreeMap<u16, Listener>, ApiError> {
    let items = call.params.items("Listeners");
    if items.is_empty() {
        return Err(invalid("Listeners cannot be empty"));
    }
    let mut listeners = BTreeMap::new();
    for item in items {
        let front = item.required_within("LoadBalancerPort", 1, 65535)?;
        if listeners.insert(front, read_one(world, item)?).is_some() {
            return Err(contradiction(format!("The load balancer port {front} is given twice")));
        }
    }
    check_instance_ports(&listeners)?;
    Ok(listeners)
}

/// Of the listeners with one instance port, all or none have a secure instance protocol (`API_Listener`,
/// `InstanceProtocol`).
fn check_instance_ports(listeners: &BTreeMap<u16, Listener>) -> Result<(), ApiError> {
    let is_secure = |listener: &Listener| is_secure(&listener.instance_protocol);
    let mut secure = BTreeMap::new();
    for listener in listeners.values() {
        if *secure.entry(listener.instance_port).or_insert(is_secure(listener)) != is_secure(listener) {
            return Err(contradiction(format!(
                "If there is another listener with the same InstancePort ({}) whose InstanceProtocol is secure (HTTPS or \
                 SSL), the listener's InstanceProtocol must also be secure. If there is another listener with the same \
                 InstancePort whose InstanceProtocol is HTTP or TCP, the listener's InstanceProtocol must be HTTP or TCP.",
                listener.instance_port
            )));
        }
    }
    Ok(())
}

fn is_secure(protocol: &str) -> bool {
    matches!(protocol, "HTTPS" | "SSL")
}

fn read_one(world: &World, item: &Params) -> Result<Listener, ApiError> {
    let protocol = protocol(item.required("Protocol")?)?;
    // unverified: the default protocol of AWS.
    let instance_protocol = match item.get("InstanceProtocol") {
        Some(text) => self::protocol(text)?,
        None => match protocol.as_str() {
            "HTTPS" => "HTTP".to_owned(),
            "SSL" => "TCP".to_owned(),
            same => same.to_owned(),
        },
    };
    let is_http = |protocol: &str| protocol.starts_with("HTTP");
    if is_http(&protocol) != is_http(&instance_protocol) {
        return Err(invalid(format!(
            "Listener protocol {protocol} and instance protocol {instance_protocol} do not fit"
        )));
    }
    let secure = is_secure(&protocol);
    let certificate = item.get("SSLCertificateId").filter(|arn| !arn.is_empty()).map(str::to_owned);
    match &certificate {
        None if secure => return Err(invalid("A certificate must be specified for HTTPS and SSL listeners")),
        Some(arn) if secure => check_certificate(world, arn)?,
        _ => {}
    }
    Ok(Listener {
        protocol,
        instance_protocol,
        instance_port: item.required_within("InstancePort", 1, 65535)?,
        certificate: certificate.filter(|_| secure),
        policies: Vec::new(),
    })
}

/// Converts a protocol to upper case.
fn protocol(text: &str) -> Result<String, ApiError> {
    let upper = text.to_ascii_uppercase();
    if ["HTTP", "HTTPS", "TCP", "SSL"].contains(&upper.as_str()) {
        return Ok(upper);
    }
    Err(ApiError::new("UnsupportedProtocol", format!("The protocol '{text}' is not supported")))
}

fn check_certificate(world: &World, arn: &str) -> Result<(), ApiError> {
    if world.elb.certificates.contains(arn) {
        return Ok(());
    }
    Err(ApiError::new("CertificateNotFound", format!("Server Certificate not found for the key: {arn}")))
}

impl Balancer {
    /// Adds a listener; a secure one gets AWS's default policy.
    pub(super) fn add_listener(&mut self, port: u16, mut listener: Listener) {
        if listener.certificate.is_some() {
            listener.policies = vec![policies::DEFAULT_SECURITY_POLICY.to_owned()];
            self.policies
                .entry(policies::DEFAULT_SECURITY_POLICY.to_owned())
                .or_insert_with(|| policies::predefined(policies::DEFAULT_SECURITY_POLICY));
        }
        self.listeners.insert(port, listener);
    }

    pub(super) fn write_listeners(&self, xml: &mut Xml) {
        xml.list("ListenerDescriptions", "member", &self.listeners, |xml, (port, listener)| {
            xml.elem("Listener", |xml| {
                xml.text("Protocol", &listener.protocol);
                xml.value("LoadBalancerPort", port);
                xml.text("InstanceProtocol", &listener.instance_protocol);
                xml.value("InstancePort", listener.instance_port);
                xml.opt("SSLCertificateId", listener.certificate.as_deref());
            });
            xml.texts("PolicyNames", "member", &listener.policies);
        });
    }
}

/// Creates all listeners or none. An existing listener with the same settings is not an error.
pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let mut balancer = named(world, call)?.clone();
    for (port, listener) in read(world, call)? {
        match balancer.listeners.get(&port) {
            None => balancer.add_listener(port, listener),
            Some(old) if old.same_settings(&listener) => {}
            Some(_) => {
                let text = format!(
                    "A listener already exists for {} with LoadBalancerPort {port}, but with a different InstancePort, \
                     Protocol, or SSLCertificateId",
                    balancer.name
                );
                return Err(ApiError::new("DuplicateListener", text));
            }
        }
    }
    check_instance_ports(&balancer.listeners)?;
    if balancer.listeners.len() > world.options.limits.classic_listeners {
        return Err(contradiction("The quota for the number of listeners has been reached"));
    }
    *named_mut(world, call)? = balancer;
    Ok(Xml::new())
}

/// Replaces the certificate of a secure listener, whose policies stay.
pub(super) fn set_certificate(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let port = call.params.required_within("LoadBalancerPort", 1, 65535)?;
    let certificate = call.params.required("SSLCertificateId")?.to_owned();
    named(world, call)?;
    check_certificate(world, &certificate)?;
    let Some(listener) = named_mut(world, call)?.listeners.get_mut(&port) else {
        return Err(ApiError::new("ListenerNotFound", format!("There is no listener on port {port}")));
    };
    if listener.certificate.is_none() {
        return Err(contradiction(format!("The listener on port {port} has the protocol {}", listener.protocol)));
    }
    listener.certificate = Some(certificate);
    Ok(Xml::new())
}

impl Listener {
    fn same_settings(&self, other: &Listener) -> bool {
        self.protocol == other.protocol
            && self.instance_protocol == other.instance_protocol
            && self.instance_port == other.instance_port
            && self.certificate == other.certificate
    }
}

/// Ports without a listener are ignored.
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let ports = call.params.list("LoadBalancerPorts");
    let ports: Vec<u16> = ports
        .into_iter()
        .map(|text| text.parse().map_err(|_| ApiError::bad_value("LoadBalancerPorts", text, "It must be a port.")))
        .collect::<Result<_, _>>()?;
    let balancer = named_mut(world, call)?;
    balancer.listeners.retain(|port, _| !ports.contains(port));
    Ok(Xml::new())
}
