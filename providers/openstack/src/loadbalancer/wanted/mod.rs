//! The desired state of a Service, from its spec, annotations, class and the configuration. Pure.
//!
//! Upstream: `checkService`, `checkServiceUpdate` and `makeSvcConf` in `pkg/openstack/loadbalancer.go`. The order of
//! precedence is always class, annotation, configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_kit::annotations::{Annotations, invalid};
use ccm_provider::source_ranges::SourceRanges;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{ErrorClass, Finding, ProviderError, Service, ServiceAction, ServiceWork};
use ipnet::IpNet;
use jiff::Timestamp;
use serde::Serialize;

use super::names::{self, Descriptions};
use crate::annotations::{self as keys, Key};
use crate::client::keys::Certificate;
use crate::client::network::FloatingIp;
use crate::loadbalancer::env::Env;
use crate::node::identity::ServerId;
use crate::pattern::NamePattern;
use crate::start::config::{Class, Config, OVN};

pub(crate) mod backend;
mod hosts;
mod monitor;
mod problems;

pub(crate) use backend::{backend_of, everywhere};
pub(crate) use hosts::{AllNodes, Hosts, NodePort};
pub(crate) use monitor::Monitor;
pub(crate) use problems::problems;

/// The transport protocols of Services.
const TRANSPORTS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// The only container store whose certificates are checked.
const BARBICAN: &str = "barbican";

/// The desired state of a group of Services.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// By index in the work; rejected items are absent.
    pub(crate) items: BTreeMap<usize, Item>,
    /// `cascade-delete = false`
    pub(crate) deletes_part_by_part: bool,
}

/// The state of one Service.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Item {
    /// `namespace/name`
    pub(crate) key: String,
    #[serde(skip)]
    pub(crate) action: ServiceAction,
    /// The name of the Service's own balancer, and its tag.
    pub(crate) name: String,
    /// The balancer name that older releases used.
    #[serde(skip)]
    pub(crate) legacy: String,
    #[serde(skip)]
    pub(crate) descriptions: Descriptions,
    /// The name of its security group.
    pub(crate) group: String,
    /// The annotation `load-balancer-id`.
    #[serde(skip)]
    pub(crate) annotated: Option<String>,
    /// The annotation `load-balancer-address`: the provider writes it with the ID.
    #[serde(skip)]
    pub(crate) noted_address: Option<String>,
    /// The addresses and host names in the status of the Service.
    #[serde(skip)]
    pub(crate) published: BTreeSet<String>,
    /// The creation time of the Service.
    #[serde(skip)]
    pub(crate) created: Option<Timestamp>,
    /// The annotation written when the balancer last matched.
    #[serde(skip)]
    pub(crate) applied: Option<String>,
    pub(crate) keep_floating_ip: bool,
    /// Empty for a deletion.
    pub(crate) hosts: Hosts,
    /// `None` for a deletion, and for a change of nodes if they are refused.
    pub(crate) settings: Option<Settings>,
    /// Findings to report to the user.
    #[serde(skip)]
    pub(crate) findings: Vec<Finding>,
}

/// The settings that a Service requests.
/// Members and where they are: [`Hosts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    pub(crate) is_internal: bool,
    pub(crate) floating: Floating,
    pub(crate) ports: Vec<Port>,
    pub(crate) connection_limit: i64,
    pub(crate) timeouts: Timeouts,
    pub(crate) forwards_client_address: bool,
    pub(crate) tls_container: String,
    /// The certificate that must exist in Barbican.
    #[serde(skip)]
    pub(crate) certificate: Option<Certificate>,
    /// The allowed source ranges; never empty.
    pub(crate) sources: Vec<IpNet>,
    /// The reason why one of them has no effect.
    pub(crate) bad_sources: Option<String>,
    /// Whether the user set `sources`.
    pub(crate) restricts_sources: bool,
    pub(crate) algorithm: String,
    /// `PROXY`, `PROXYV2`
    pub(crate) proxy_protocol: Option<&'static str>,
    pub(crate) is_sticky: bool,
    pub(crate) monitor: Option<Monitor>,
    pub(crate) flavor: String,
    pub(crate) zone: String,
    pub(crate) tags: MoreTags,
    pub(crate) publish: Publish,
    /// Whether a balancer in ERROR is deleted and recreated.
    #[serde(skip)]
    pub(crate) is_recreated: bool,
    /// What the Service itself asks for that a balancer gets only when it is created.
    #[serde(skip)]
    pub(crate) asked: Asked,
}

/// Settings of a Service that count only when its balancer is created; empty: it asks for none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Asked {
    pub(crate) network: String,
    pub(crate) subnet: String,
    pub(crate) port: String,
    pub(crate) flavor: String,
    pub(crate) zone: String,
    /// `spec.loadBalancerIP`
    pub(crate) address: String,
    pub(crate) floating_network: String,
    /// The annotation that selects the subnet of the floating IP, with its value.
    pub(crate) floating_subnet: String,
}

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Family {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

impl Family {
    pub(crate) fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// The location of the VIP. Without network, subnet and port it is in a subnet of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Vip {
    pub(crate) network: String,
    pub(crate) subnet: String,
    pub(crate) port: String,
    pub(crate) address: String,
}

impl Vip {
    /// Whether the subnet is that of a node.
    pub(crate) fn follows_nodes(&self) -> bool {
        self.network.is_empty() && self.subnet.is_empty()
    }
}

/// The floating IP of an external Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Floating {
    /// Empty: detected.
    pub(crate) network: String,
    /// Empty: chosen by `pattern` and `tags`.
    pub(crate) subnet: String,
    pub(crate) pattern: String,
    pub(crate) tags: String,
    /// `spec.loadBalancerIP`
    pub(crate) address: String,
    /// The reason why `pattern` chooses nothing, with its key.
    #[serde(skip)]
    pub(crate) problem: Option<String>,
}

impl Floating {
    /// Whether a floating IP is in the network, if there is one.
    pub(crate) fn has(&self, ip: &FloatingIp) -> bool {
        self.network.is_empty() || ip.floating_network_id == self.network
    }
}

/// A port of the Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Port {
    /// `TCP`, `UDP`, `SCTP`
    pub(crate) transport: String,
    /// The protocol of the listener.
    pub(crate) protocol: String,
    pub(crate) port: i32,
    /// 0: no node port.
    pub(crate) node_port: i32,
}

impl Port {
    /// The transport of the listener's protocol: a balancer has one listener per transport and port.
    pub(crate) fn transport(&self) -> &str {
        transport(&self.protocol)
    }
}

/// The transport of a listener protocol.
pub(crate) fn transport(protocol: &str) -> &str {
    match protocol {
        "UDP" | "SCTP" => protocol,
        _ => "TCP",
    }
}

/// Listener timeouts in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Timeouts {
    pub(crate) client_data: i64,
    pub(crate) member_connect: i64,
    pub(crate) member_data: i64,
    pub(crate) tcp_inspect: i64,
}

/// Tags in addition to the provider's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct MoreTags {
    pub(crate) balancer: Vec<String>,
    pub(crate) listener: Vec<String>,
    pub(crate) pool: Vec<String>,
}

/// The form of the address in the status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Publish {
    /// Replaces the address.
    pub(crate) hostname: String,
    /// Publishes `<address>.<suffix>` instead.
    pub(crate) suffix: Option<String>,
}

/// A node behind the balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Target {
    pub(crate) node: String,
    pub(crate) address: String,
    /// `None`: the node has no provider ID yet, or that of no server here.
    #[serde(skip)]
    pub(crate) server: Option<ServerId>,
    /// Its machine is in another cloud or region: it has no ports here.
    #[serde(skip)]
    pub(crate) is_elsewhere: bool,
}

/// The sources of settings: the annotations of a Service, its class and the configuration.
struct Source<'a> {
    service: &'a Service,
    annotations: Annotations<'a>,
    class: Option<&'a Class>,
    config: &'a Config,
}

/// The desired state of the work, and one result per item.
pub(crate) fn wanted(
    env: &Env,
    cluster: &str,
    work: &[ServiceWork],
    all: AllNodes<'_>,
) -> (Wanted, Vec<Result<(), ProviderError>>) {
    let deletes_part_by_part = !env.config.load_balancer.cascade_delete;
    let mut wanted = Wanted { items: BTreeMap::new(), deletes_part_by_part };
    let mut verdicts = Vec::with_capacity(work.len());
    for (place, item) in work.iter().enumerate() {
        verdicts.push(one(env, cluster, item, all).map(|item| drop(wanted.items.insert(place, item))));
    }
    (wanted, verdicts)
}

fn one(env: &Env, cluster: &str, work: &ServiceWork, all: AllNodes<'_>) -> Result<Item, ProviderError> {
    let config = &env.config;
    let service = &*work.service;
    let annotations = Annotations::read(&service.metadata.annotations);
    let text = |key: &Key<String>| annotations.text(key.row).map(str::to_owned).filter(|text| !text.is_empty());
    let noted_address = text(&keys::LOAD_BALANCER_ADDRESS);
    let published = published(service);
    // What an earlier version made has a truncated name. A user may have written the ID alone.
    let name = match noted_address.is_some() || !published.is_empty() {
        true => names::balancer(cluster, service),
        false => names::uncut(cluster, service),
    };
    if let Some(problem) = names::too_long(&name).filter(|_| work.action == ServiceAction::Ensure) {
        return Err(refused(problem));
    }
    let mut item = Item {
        key: service.key().to_string(),
        action: work.action,
        name,
        legacy: service.default_load_balancer_name(),
        descriptions: Descriptions::new(cluster, service),
        group: names::security_group(service),
        annotated: text(&keys::LOAD_BALANCER_ID).map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
        noted_address,
        published,
        created: service.metadata.creation_timestamp,
        applied: service.metadata.annotations.get(keys::APPLIED).cloned(),
        keep_floating_ip: match work.action {
            ServiceAction::UpdateHosts => annotations.readable(&keys::KEEP_FLOATING_IP).unwrap_or_default(),
            _ => annotations.get_or_default(&keys::KEEP_FLOATING_IP)?,
        },
        hosts: Hosts::default(),
        settings: None,
        findings: Vec::new(),
    };
    if work.action != ServiceAction::Delete {
        item.hosts = Hosts::new(env, work, all, &mut item.findings);
        let settings = settings(config, service, annotations, &mut item.findings);
        item.settings = match work.action {
            ServiceAction::UpdateHosts => settings.ok(),
            _ => Some(settings?),
        };
    }
    Ok(item)
}

fn settings(
    config: &Config,
    service: &Service,
    annotations: Annotations<'_>,
    findings: &mut Vec<Finding>,
) -> Result<Settings, ProviderError> {
    let class = match annotations.text(keys::CLASS.row).unwrap_or_default() {
        "" => None,
        name => Some(config.classes.get(name).ok_or_else(|| {
            annotations.refuse(
                keys::CLASS.row,
                format!("invalid loadbalancer class {name:?}; cloud.conf has no such [LoadBalancerClass]"),
            )
        })?),
    };
    Source { service, annotations, class, config }.settings(findings)
}

fn published(service: &Service) -> BTreeSet<String> {
    let ingress = service.status.load_balancer.ingress.iter();
    let all = ingress.flat_map(|ingress| [&ingress.ip, &ingress.hostname]).filter(|text| !text.is_empty());
    all.cloned().collect()
}

impl Source<'_> {
    fn settings(&self, findings: &mut Vec<Finding>) -> Result<Settings, ProviderError> {
        let (service, lb) = (self.service, &self.config.load_balancer);
        let get_bool =
            |key: &Key<bool>, default: bool| Ok::<_, ProviderError>(self.annotations.get(key)?.unwrap_or(default));
        if service.spec.ports.is_empty() {
            return Err(refused("no service ports provided"));
        }
        findings.extend(keys::TABLE.review(self.annotations, ()));
        findings.extend(keys::unsupported(self.annotations, &lb.lb_provider));
        let family = self.family();
        let is_internal = lb.internal_lb || get_bool(&keys::INTERNAL, false)?;
        let forwards_client_address = get_bool(&keys::X_FORWARDED_FOR, false)?;
        let proxy_protocol = match self.annotations.get_or_default(&keys::PROXY_PROTOCOL)? {
            keys::ProxyProtocol::Off => None,
            keys::ProxyProtocol::V1 => Some("PROXY"),
            keys::ProxyProtocol::V2 => Some("PROXYV2"),
        };
        if let Some(conflict) = keys::conflict(self.annotations) {
            return Err(invalid(conflict));
        }
        let tls_container = self.text(&keys::DEFAULT_TLS_CONTAINER_REF, &lb.default_tls_container_ref);
        let (sources, restricts_sources, bad_sources) = self.sources(family)?;
        let asks_for_hostname = get_bool(&keys::ENABLE_INGRESS_HOSTNAME, lb.enable_ingress_hostname)?;
        if service.spec.ip_families.len() > 1 {
            let text = "a load balancer has one address: only the first IP family of the Service is served";
            findings.push(Finding::warning("spec.ipFamilies", text));
        }
        Ok(Settings {
            is_internal,
            floating: if is_internal { Floating::default() } else { self.floating() },
            ports: self.ports(forwards_client_address, !tls_container.is_empty(), proxy_protocol.is_some())?,
            connection_limit: self.number(&keys::CONNECTION_LIMIT, -1)?,
            timeouts: Timeouts {
                client_data: self.number(&keys::TIMEOUT_CLIENT_DATA, 50_000)?,
                member_connect: self.number(&keys::TIMEOUT_MEMBER_CONNECT, 5_000)?,
                member_data: self.number(&keys::TIMEOUT_MEMBER_DATA, 50_000)?,
                tcp_inspect: self.number(&keys::TIMEOUT_TCP_INSPECT, 0)?,
            },
            forwards_client_address,
            certificate: self.certificate(&tls_container)?,
            tls_container,
            sources,
            bad_sources,
            restricts_sources,
            // Every pool needs one.
            algorithm: Some(self.text(&keys::LB_METHOD, ""))
                .filter(|text| !text.is_empty())
                .unwrap_or_else(|| lb.lb_method.clone()),
            proxy_protocol,
            is_sticky: service.spec.session_affinity == "ClientIP",
            monitor: match get_bool(&keys::ENABLE_HEALTH_MONITOR, lb.create_monitor)? {
                true => Some(self.monitor(findings)?),
                false => None,
            },
            flavor: self.text(&keys::FLAVOR_ID, &lb.flavor_id),
            zone: self.text(&keys::AVAILABILITY_ZONE, &lb.availability_zone),
            tags: MoreTags {
                balancer: self.annotations.get_or_default(&keys::LOAD_BALANCER_TAGS)?,
                listener: self.annotations.get_or_default(&keys::LISTENER_TAGS)?,
                pool: self.annotations.get_or_default(&keys::POOL_TAGS)?,
            },
            publish: Publish {
                hostname: self.annotations.get_or_default(&keys::HOSTNAME)?,
                suffix: (proxy_protocol.is_some() && asks_for_hostname).then(|| lb.ingress_hostname_suffix.clone()),
            },
            is_recreated: get_bool(&keys::RECREATE_IN_ERROR, false)?,
            asked: Asked {
                network: self.asked(&keys::NETWORK_ID, |class| &class.network_id),
                subnet: self.asked(&keys::SUBNET_ID, |class| &class.subnet_id),
                port: self.text(&keys::PORT_ID, ""),
                flavor: self.text(&keys::FLAVOR_ID, ""),
                zone: self.text(&keys::AVAILABILITY_ZONE, ""),
                address: service.spec.load_balancer_ip.clone(),
                floating_network: self.asked(&keys::FLOATING_NETWORK_ID, |class| &class.floating_network_id),
                floating_subnet: self.asked_subnet(),
            },
        })
    }

    /// The annotation, even if it is empty; else the default.
    fn text(&self, key: &Key<String>, default: &str) -> String {
        self.annotations.text(key.row).unwrap_or(default).to_owned()
    }

    /// A network or subnet: from the class, else the annotation, else the configuration.
    fn place(&self, key: &Key<String>, of_class: impl Fn(&Class) -> &String, default: &str) -> String {
        match self.class.map(of_class).filter(|place| !place.is_empty()) {
            Some(place) => place.clone(),
            None => self.text(key, default),
        }
    }

    /// The annotation of a network or subnet, if the class does not replace it.
    fn asked(&self, key: &Key<String>, of_class: impl Fn(&Class) -> &String) -> String {
        let is_replaced = self.class.is_some_and(|class| !of_class(class).is_empty());
        if is_replaced { String::new() } else { self.text(key, "") }
    }

    /// The annotation that selects the subnet of the floating IP, if the class does not.
    fn asked_subnet(&self) -> String {
        let of_class = |class: &Class| {
            [&class.floating_subnet_id, &class.floating_subnet, &class.floating_subnet_tags]
                .iter()
                .any(|it| !it.is_empty())
        };
        let keys = [&keys::FLOATING_SUBNET_ID, &keys::FLOATING_SUBNET, &keys::FLOATING_SUBNET_TAGS];
        let set = keys.into_iter().map(|key| (key, self.text(key, ""))).find(|(_, value)| !value.is_empty());
        let asked = set.filter(|_| !self.class.is_some_and(of_class));
        asked.map(|(key, value)| format!("{} {value}", key.row.key)).unwrap_or_default()
    }

    fn number(&self, key: &Key<i32>, default: i64) -> Result<i64, ProviderError> {
        Ok(self.annotations.get(key)?.map_or(default, i64::from))
    }

    fn certificate(&self, reference: &str) -> Result<Option<Certificate>, ProviderError> {
        if reference.is_empty() || self.config.load_balancer.container_store != BARBICAN {
            return Ok(None);
        }
        let refuse = |problem| self.annotations.refuse(keys::DEFAULT_TLS_CONTAINER_REF.row, problem);
        Certificate::parse(reference).map(Some).map_err(refuse)
    }

    fn family(&self) -> Option<Family> {
        match &**self.service.spec.ip_families.first()? {
            "IPv6" => Some(Family::V6),
            _ => Some(Family::V4),
        }
    }

    fn ports(&self, forwards: bool, terminates_tls: bool, proxies: bool) -> Result<Vec<Port>, ProviderError> {
        let port = |port: &ccm_provider::ServicePort| {
            let transport = if port.protocol.is_empty() { "TCP" } else { &*port.protocol };
            if !TRANSPORTS.contains(&transport) {
                return Err(refused(format!("spec.ports protocol {transport:?} of port {} is not known", port.port)));
            }
            let protocol = match () {
                () if terminates_tls => "TERMINATED_HTTPS",
                () if forwards => "HTTP",
                () => transport,
            };
            let (transport, protocol) = (transport.to_owned(), protocol.to_owned());
            Ok(Port { transport, protocol, port: port.port, node_port: port.node_port })
        };
        let ports: Vec<Port> = self.service.spec.ports.iter().map(port).collect::<Result<_, _>>()?;
        // Rejected here, because each rejection by Octavia leaves a port in Neutron.
        if let Some(port) = ports.iter().find(|port| proxies && port.transport() != "TCP") {
            let text = format!(
                "the port {} is of {}, which has no PROXY protocol; remove the annotation, or make another Service of the port",
                port.port, port.transport
            );
            return Err(self.annotations.refuse(keys::PROXY_PROTOCOL.row, text));
        }
        let is_taken = |(at, port): &(usize, &Port)| {
            ports.iter().take(*at).any(|other| (other.port, other.transport()) == (port.port, port.transport()))
        };
        if let Some((_, port)) = ports.iter().enumerate().find(is_taken) {
            let row = if terminates_tls { keys::DEFAULT_TLS_CONTAINER_REF.row } else { keys::X_FORWARDED_FOR.row };
            let text = format!(
                "makes listeners of {} of all ports, and the port {} is there twice; make another Service of one of them",
                port.protocol, port.port
            );
            return Err(self.annotations.refuse(row, text));
        }
        Ok(ports)
    }

    /// The allowed source ranges, whether the user set them, and which of them has no effect: the provider ovn does
    /// without them, all others refuse them.
    fn sources(&self, family: Option<Family>) -> Result<(Vec<IpNet>, bool, Option<String>), ProviderError> {
        let is_v6 = family == Some(Family::V6);
        let ranges = SourceRanges::of(self.service).map_err(|error| refused(error.to_string()))?;
        let all = if is_v6 { "::/0" } else { "0.0.0.0/0" };
        let annotation = self.service.metadata.annotations.get(ANNOTATION_SOURCE_RANGES);
        let is_in_spec =
            self.service.spec.load_balancer_source_ranges.as_ref().is_some_and(|ranges| !ranges.is_empty());
        if !is_in_spec && annotation.is_none_or(|ranges| ranges.trim().is_empty()) {
            return Ok((all.parse().into_iter().collect(), false, None));
        }
        let other = ranges.iter().find(|range| range.addr().is_ipv6() != is_v6);
        let problem = other.map(|other| {
            let family = if is_v6 { "IPv6" } else { "IPv4" };
            let key = if is_in_spec { "spec.loadBalancerSourceRanges" } else { ANNOTATION_SOURCE_RANGES };
            format!("{key} {other}: not a range of {family}, the first IP family of the Service; remove it")
        });
        match problem {
            Some(problem) if self.config.load_balancer.lb_provider != OVN => Err(refused(problem)),
            problem => Ok((ranges.iter().copied().collect(), true, problem)),
        }
    }

    /// The subnet comes from the first of class, annotations and configuration that sets any of its keys.
    fn floating(&self) -> Floating {
        let lb = &self.config.load_balancer;
        let name = self.annotations.text(keys::CLASS.row).unwrap_or_default();
        let of_class = self.class.map(|class| {
            let (id, pattern, tags) = (&class.floating_subnet_id, &class.floating_subnet, &class.floating_subnet_tags);
            (format!("[LoadBalancerClass {name:?}] floating-subnet"), id.clone(), pattern.clone(), tags.clone())
        });
        let of_annotations = (
            keys::FLOATING_SUBNET.row.key.to_owned(),
            self.text(&keys::FLOATING_SUBNET_ID, ""),
            self.text(&keys::FLOATING_SUBNET, ""),
            self.text(&keys::FLOATING_SUBNET_TAGS, ""),
        );
        let (id, pattern, tags) = (&lb.floating_subnet_id, &lb.floating_subnet, &lb.floating_subnet_tags);
        let of_config = ("[LoadBalancer] floating-subnet".to_owned(), id.clone(), pattern.clone(), tags.clone());
        let said = |(_, id, pattern, tags): &(String, String, String, String)| {
            ![id, pattern, tags].iter().all(|text| text.is_empty())
        };
        let levels = of_class.into_iter().chain([of_annotations, of_config]);
        let (key, subnet, pattern, tags) = levels.into_iter().find(said).unwrap_or_default();
        let problem = NamePattern::parse(&pattern).err().map(|why| format!("{key}: {why}"));
        Floating {
            network: self.place(
                &keys::FLOATING_NETWORK_ID,
                |class| &class.floating_network_id,
                &lb.floating_network_id,
            ),
            subnet,
            pattern,
            tags,
            address: self.service.spec.load_balancer_ip.clone(),
            problem,
        }
    }
}

impl Settings {
    /// The protocol of the pool of a port.
    pub(crate) fn pool_protocol(&self, port: &Port) -> String {
        match self.proxy_protocol {
            Some(proxy) => proxy.to_owned(),
            None if self.forwards_client_address || !self.tls_container.is_empty() => "HTTP".to_owned(),
            None => port.protocol.clone(),
        }
    }
}

pub(super) fn refused(message: impl Into<String>) -> ProviderError {
    ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, message)
}
