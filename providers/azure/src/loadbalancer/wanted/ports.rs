//! The rules and probes that a Service asks for. Pure.

use ccm_kit::annotations::{Annotations, invalid};
use ccm_provider::{ErrorClass, Finding, ProviderError, Service, ServicePort, Severity};

use super::super::env::Env;
use super::super::json::same;
use super::super::names::{Family, Names, SHARED_PROBE};
use crate::annotations::ports::PortAnnotations;
use crate::annotations::{self as keys, Scheme};

/// Interval and number of probes where nothing is given.
const DEFAULT_INTERVAL: u16 = 5;
const DEFAULT_COUNT: u16 = 2;
/// Interval times number must be less.
const MOST_PROBING: u16 = 120;
const DEFAULT_IDLE: u16 = 4;
/// The reason of events about HTTP probes that nobody asked for.
const WITHOUT_PATH: &str = "HealthProbeWithoutPath";

/// A load-balancing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) family: Family,
    /// `Tcp`, `Udp`, `All`
    pub(crate) protocol: &'static str,
    pub(crate) frontend_port: i32,
    pub(crate) backend_port: i32,
    pub(crate) has_floating_ip: bool,
    pub(crate) idle_minutes: u16,
    /// `Default`, `SourceIP`
    pub(crate) distribution: &'static str,
    /// `None` for UDP.
    pub(crate) resets: Option<bool>,
    /// The name of its probe.
    pub(crate) probe: Option<String>,
}

/// A health probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) name: String,
    /// `Tcp`, `Http`, `Https`
    pub(crate) protocol: &'static str,
    pub(crate) port: i32,
    pub(crate) interval: u16,
    pub(crate) count: u16,
    /// `None` for TCP.
    pub(crate) path: Option<String>,
}

/// Rules and probes of a Service, with what a user should know about them.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    pub(crate) rules: Vec<Rule>,
    pub(crate) probes: Vec<Probe>,
    /// Keys with remarks.
    pub(crate) remarks: Vec<(&'static str, String)>,
}

struct Builder<'a> {
    env: &'a Env,
    service: &'a Service,
    names: &'a Names,
    scheme: Scheme,
    annotations: Annotations<'a>,
}

/// Remarks about ports whose `appProtocol` alone makes an HTTP probe. Also for Services that have no node ports yet.
pub(crate) fn probes_without_path(service: &Service) -> Vec<String> {
    let env = Env::default();
    let service = with_node_ports(service);
    let scheme = keys::scheme_of(Annotations::read(&service.metadata.annotations));
    let families = Family::of_service(&service);
    let ports = ports(&env, &service, &Names::new(&service, None), scheme, families.get(..1).unwrap_or_default());
    let remarks = ports.map(|ports| ports.remarks).unwrap_or_default().into_iter();
    remarks.filter(|(reason, _)| *reason == WITHOUT_PATH).map(|(_, text)| text).collect()
}

/// A Service as it is when the API server has allocated its node ports.
pub(super) fn with_node_ports(service: &Service) -> Service {
    let mut service = service.clone();
    for port in service.spec.ports.iter_mut().filter(|port| port.node_port == 0) {
        port.node_port = 30_000;
    }
    service
}

/// The rules and probes of a Service for its families.
pub(super) fn ports(
    env: &Env,
    service: &Service,
    names: &Names,
    scheme: Scheme,
    families: &[Family],
) -> Result<Ports, ProviderError> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let builder = Builder { env, service, names, scheme, annotations };
    let mut ports = Ports::default();
    let asks_ha = annotations.readable(&keys::HA_PORTS) == Some(true);
    let has_ha = asks_ha && scheme == Scheme::Internal;
    for family in families {
        match has_ha {
            true => builder.all_ports(*family, &mut ports)?,
            false => builder.each_port(*family, &mut ports)?,
        }
    }
    Ok(ports)
}

impl Builder<'_> {
    fn ports(&self) -> &[ServicePort] {
        &self.service.spec.ports
    }

    fn port(&self, port: i32) -> PortAnnotations<'_> {
        PortAnnotations::of(&self.service.metadata.annotations, port)
    }

    fn rule(
        &self,
        name: String,
        family: Family,
        protocol: &'static str,
        port: &ServicePort,
    ) -> Result<Rule, ProviderError> {
        let is_tcp = protocol != "Udp";
        let resets = self.annotations.readable(&keys::NO_TCP_RESET) != Some(true);
        // Azure has no secondary addresses in IPv6 pools of internal load balancers, which floating IP needs.
        let has_node_port = self.scheme == Scheme::Internal && family == Family::V6;
        Ok(Rule {
            name,
            family,
            protocol,
            frontend_port: port.port,
            backend_port: if has_node_port { port.node_port } else { port.port },
            has_floating_ip: !has_node_port,
            idle_minutes: self.annotations.get(&keys::IDLE_TIMEOUT)?.unwrap_or(DEFAULT_IDLE),
            distribution: if self.service.spec.session_affinity == "ClientIP" { "SourceIP" } else { "Default" },
            resets: is_tcp.then_some(resets),
            probe: None,
        })
    }

    fn each_port(&self, family: Family, ports: &mut Ports) -> Result<(), ProviderError> {
        let common = self.common_probe(family)?;
        for port in self.ports() {
            let own = self.port(port.port);
            if own.has_no_rule() {
                continue;
            }
            let protocol = self.protocol(port)?;
            let mut rule = self.rule(self.names.rule(&port.protocol, port.port, family), family, protocol, port)?;
            if !own.has_no_probe() {
                let probe = match self.own_probe(port, &rule.name, common.as_ref(), &mut ports.remarks)? {
                    Some(probe) => Some(probe),
                    None => common.clone(),
                };
                rule.probe = probe.as_ref().map(|probe| probe.name.clone());
                ports.probes.extend(probe.filter(|probe| !ports.probes.contains(probe)));
            }
            if self.annotations.readable(&keys::NO_FLOATING_IP) == Some(true) {
                rule.backend_port = port.node_port;
                rule.has_floating_ip = false;
            }
            if rule.backend_port == 0 {
                return Err(no_node_port(port));
            }
            ports.rules.push(rule);
        }
        Ok(())
    }

    /// High-availability ports: one rule for everything.
    fn all_ports(&self, family: Family, ports: &mut Ports) -> Result<(), ProviderError> {
        let Some(first) = self.ports().first() else { return Ok(()) };
        let name = self.names.rule(&first.protocol, first.port, family);
        let mut rule = self.rule(name.clone(), family, "All", &ServicePort::default())?;
        let probe = match self.common_probe(family)? {
            Some(probe) => Some(probe),
            // One valid probe is enough.
            None => {
                self.ports().iter().find_map(|port| self.own_probe(port, &name, None, &mut Vec::new()).ok().flatten())
            }
        };
        rule.probe = probe.as_ref().map(|probe| probe.name.clone());
        ports.probes.extend(probe.filter(|probe| !ports.probes.contains(probe)));
        ports.rules.push(rule);
        Ok(())
    }

    fn protocol(&self, port: &ServicePort) -> Result<&'static str, ProviderError> {
        match (&*port.protocol, self.scheme) {
            ("TCP", _) => Ok("Tcp"),
            ("UDP", _) => Ok("Udp"),
            ("SCTP", Scheme::External) => Err(refused(
                "spec.ports",
                port,
                "SCTP is only supported on an internal load balancer with high-availability ports",
            )),
            ("SCTP", Scheme::Internal) => {
                let text =
                    format!("Azure has no rules for single SCTP ports; set {} to \"true\"", keys::HA_PORTS.row.key);
                Err(refused("spec.ports", port, &text))
            }
            _ => Err(refused("spec.ports", port, "only TCP, UDP and SCTP are supported")),
        }
    }

    /// The probe of the whole Service, if it has one: of the local endpoints, or the one that all Services share.
    fn common_probe(&self, family: Family) -> Result<Option<Probe>, ProviderError> {
        let has = |key: &ccm_kit::annotations::Key<bool, Scheme>| self.annotations.readable(key) == Some(true);
        let is_local = self.service.spec.external_traffic_policy == "Local";
        if let Some((port, path)) = self.env.shared_probe.as_ref().filter(|_| !is_local) {
            return Ok(Some(Probe {
                name: SHARED_PROBE.to_owned(),
                protocol: "Http",
                port: i32::from(*port),
                interval: DEFAULT_INTERVAL,
                count: DEFAULT_COUNT,
                path: Some(path.clone()),
            }));
        }
        let (path, port) = self.service.health_check_path_port();
        if port == 0 || has(&keys::PLS_CREATE) && has(&keys::PLS_PROXY) {
            return Ok(None);
        }
        let (interval, count) = self.timing(port)?;
        let name = self.names.rule("TCP", port, family);
        Ok(Some(Probe { name, protocol: "Http", port, interval, count, path: Some(path.to_owned()) }))
    }

    /// The probe of one port, if it has its own.
    fn own_probe(
        &self,
        port: &ServicePort,
        name: &str,
        common: Option<&Probe>,
        remarks: &mut Vec<(&'static str, String)>,
    ) -> Result<Option<Probe>, ProviderError> {
        let is_shared = common.is_some_and(|probe| probe.name == SHARED_PROBE);
        if port.protocol != "TCP" || is_shared {
            return Ok(None);
        }
        let own = self.port(port.port);
        let probed = match own.probe("port") {
            Some(text) => self.probed_port(text).map_err(|problem| own.wrong("port", &problem))?,
            None if common.is_some() => return Ok(None),
            None => port.node_port,
        };
        if probed == 0 {
            return Err(no_node_port(port));
        }
        let global = self.annotations.text(keys::PROBE_PROTOCOL.row);
        let word = own.probe("protocol").or(port.app_protocol.as_deref()).or(global).unwrap_or_default().trim();
        let protocol = match word {
            _ if same(word, "http") => "Http",
            _ if same(word, "https") => "Https",
            _ => "Tcp",
        };
        let asked = own.probe("request-path").or(self.annotations.text(keys::PROBE_PATH.row));
        if protocol != "Tcp" && asked.is_none() && own.probe("protocol").is_none() && port.app_protocol.is_some() {
            let text = format!(
                "appProtocol {word:?} of port {} makes an {} probe on \"/\"; if the pods do not answer it with 200, set {}",
                port.port,
                word.to_uppercase(),
                keys::PROBE_PATH.row.key
            );
            remarks.push((WITHOUT_PATH, text));
        }
        let path = (protocol != "Tcp").then(|| asked.unwrap_or("/").to_owned());
        if path.as_deref() == Some("") {
            let text = "an HTTP probe needs a path; write for example \"/\"";
            return Err(match own.probe("request-path") {
                Some(_) => own.wrong("request-path", text),
                None => self.annotations.refuse(keys::PROBE_PATH.row, text),
            });
        }
        let (interval, count) = self.timing(port.port)?;
        Ok(Some(Probe { name: name.to_owned(), protocol, port: probed, interval, count, path }))
    }

    /// The node port that a text means: the name or the number of a port of the Service, or a port of the node.
    fn probed_port(&self, text: &str) -> Result<i32, String> {
        let named = self.ports().iter().find(|port| !port.name.is_empty() && same(&port.name, text));
        if let Some(port) = named {
            return Ok(port.node_port);
        }
        let number: u16 = text.parse().map_err(|_| {
            "neither the name of a port of the Service nor a number from 1 to 65535; write for example \"8080\""
                .to_owned()
        })?;
        let own = self.ports().iter().find(|port| port.port == i32::from(number));
        match own.map_or(i32::from(number), |port| port.node_port) {
            0 => Err("port 0 cannot be probed; write a number from 1 to 65535".to_owned()),
            port => Ok(port),
        }
    }

    /// Interval and number of the probes of a port.
    fn timing(&self, port: i32) -> Result<(u16, u16), ProviderError> {
        let own = self.port(port);
        let interval = match own.probe_number("interval", 5)? {
            Some(interval) => interval,
            None => self.annotations.get(&keys::PROBE_INTERVAL)?.unwrap_or(DEFAULT_INTERVAL),
        };
        let count = match own.probe_number("num-of-probe", 2)? {
            Some(count) => count,
            None => self.annotations.get(&keys::PROBE_COUNT)?.unwrap_or(DEFAULT_COUNT),
        };
        if interval.saturating_mul(count) >= MOST_PROBING {
            let text = format!(
                "interval {interval} times number of probes {count} must be less than {MOST_PROBING} seconds; lower one of {} and {}",
                keys::PROBE_INTERVAL.row.key,
                keys::PROBE_COUNT.row.key
            );
            return Err(ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text));
        }
        Ok((interval, count))
    }
}

fn refused(key: &str, port: &ServicePort, message: &str) -> ProviderError {
    let value = Some(format!("{}/{}", port.port, port.protocol));
    invalid(Finding { severity: Severity::Error, key: key.to_owned(), value, message: message.to_owned() })
}

fn no_node_port(port: &ServicePort) -> ProviderError {
    let text = "the port needs a node port; remove spec.allocateLoadBalancerNodePorts: false, or set \
                port_<port>_no_probe_rule";
    refused("spec.ports", port, text)
}
