//! The desired state of Services, from their specs and annotations and from the nodes. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use ccm_kit::annotations::{Annotations, Key, invalid};
use ccm_provider::address::parse_ip;
use ccm_provider::{ErrorClass, Finding, ProviderError, Service, ServiceAction, ServiceWork};
use serde_json::Value;

use super::env::{Env, Several};
use super::names::{self, Family, Names};
use super::tags::{self, Tags};
use crate::annotations::{self as keys, Scheme};

pub(crate) mod access;
pub(crate) mod hosts;
pub(crate) mod links;
pub(crate) mod ports;
#[cfg(test)]
mod tests;

use access::Access;
use hosts::Hosts;
use links::Link;
use ports::{Probe, Rule};

/// The reason of events about the configuration of a Service.
pub(super) const CONFIGURATION: &str = "LoadBalancerConfiguration";

/// The desired state of a group of Services.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) cluster: String,
    /// By position in the work; refused Services are absent.
    pub(crate) items: BTreeMap<usize, Item>,
    /// The nodes; `None` if the work knows only those with endpoints, or is deletions.
    pub(crate) hosts: Option<Hosts>,
}

/// One Service.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// `namespace/name`
    pub(crate) key: String,
    /// See [`super::refused`].
    pub(crate) fingerprint: u64,
    pub(crate) action: ServiceAction,
    pub(crate) names: Names,
    pub(crate) scheme: Scheme,
    pub(crate) families: Vec<Family>,
    /// The addresses in its status.
    pub(crate) published: Vec<IpAddr>,
    /// The requested addresses.
    pub(crate) addresses: BTreeMap<Family, String>,
    /// The requested public IP addresses, by name.
    pub(crate) public_ips: BTreeMap<Family, Given>,
    /// The resource group of the public IP addresses.
    pub(crate) public_ip_group: String,
    pub(crate) access: Destinations,
    pub(crate) placing: Placing,
    /// Whether it may have a private link service, and the resource group of that.
    pub(crate) may_have_link: bool,
    pub(crate) link_group: String,
    /// The names of the pools that it may have for itself.
    pub(crate) own_pools: Vec<String>,
    /// The nodes with its endpoints, if it is to have such pools.
    pub(crate) own_hosts: Option<Hosts>,
    /// `None` for a deletion, and for an update of hosts of a Service that cannot be ensured.
    pub(crate) settings: Option<Settings>,
    pub(crate) findings: Vec<Finding>,
}

/// The text of an annotation, and its key: one of the two that a family may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) key: &'static str,
    pub(crate) text: String,
}

/// What chooses among several load balancers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Placing {
    /// The names in the annotation, in lower case.
    pub(crate) named: Option<Vec<String>>,
    /// Those with selectors that match the Service.
    pub(crate) selected: Vec<String>,
}

/// The destinations of security rules of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Destinations {
    /// More addresses that lead to it.
    pub(crate) additional: Vec<IpAddr>,
    /// Whether traffic arrives at the nodes with the address of the load balancer.
    pub(crate) has_floating_ip: bool,
    /// By protocol of security rules: `Tcp`, `Udp`, `*`.
    pub(crate) ports: BTreeMap<String, Vec<i32>>,
}

/// The settings of a Service.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The subnet of an internal load balancer, and whether the Service names it.
    pub(crate) subnet: String,
    pub(crate) names_subnet: bool,
    pub(crate) rules: Vec<Rule>,
    pub(crate) probes: Vec<Probe>,
    /// `None`: no security rules.
    pub(crate) access: Option<Access>,
    pub(crate) public_ip: PublicIp,
    pub(crate) link: Option<Link>,
}

/// The settings of public IP addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PublicIp {
    /// IDs of prefixes.
    pub(crate) prefixes: BTreeMap<Family, Given>,
    pub(crate) ip_tags: Option<Vec<(String, String)>>,
    pub(crate) tags: Tags,
    /// An empty text removes it.
    pub(crate) dns_label: Option<String>,
}

/// The desired state for the work, and one result for each item.
pub(super) fn wanted(env: &Env, cluster: &str, work: &[ServiceWork]) -> (Wanted, Vec<Result<(), ProviderError>>) {
    let mut wanted = Wanted { cluster: cluster.to_owned(), ..Wanted::default() };
    let mut verdicts = Vec::with_capacity(work.len());
    let mut seen: Vec<*const ccm_provider::NodeRef> = Vec::new();
    for (place, work) in work.iter().enumerate() {
        verdicts.push(one(env, cluster, work).map(|item| drop(wanted.items.insert(place, item))));
        let has_all = work.action != ServiceAction::Delete && !has_own_pools(env, &work.service);
        // Nearly all Services have the same list of nodes.
        if has_all && !seen.contains(&work.nodes.as_ptr()) {
            seen.push(work.nodes.as_ptr());
            wanted.hosts.get_or_insert_default().extend(hosts::hosts(env, &work.nodes));
        }
    }
    (wanted, verdicts)
}

/// Whether only nodes with endpoints of a Service are behind it, in pools of its own.
pub(super) fn has_own_pools(env: &Env, service: &Service) -> bool {
    !env.several.is_empty() && service.requests_only_local_traffic()
}

fn one(env: &Env, cluster: &str, work: &ServiceWork) -> Result<Item, ProviderError> {
    let service = &*work.service;
    if service.spec.load_balancer_class.is_some() && work.action != ServiceAction::Delete {
        return Err(ProviderError::ImplementedElsewhere);
    }
    let annotations = Annotations::read(&service.metadata.annotations);
    let scheme = keys::scheme_of(annotations);
    let subnet = annotations.readable(&keys::LB_SUBNET).filter(|_| scheme == Scheme::Internal);
    let families = Family::of_service(service);
    let ingress = service.status.load_balancer.ingress.iter();
    let group = annotations.readable(&keys::LB_GROUP).unwrap_or_else(|| env.group.clone());
    let key = service.key().to_string();
    // One with the name of that of all nodes cannot be its own.
    let own_pool = |family: &Family| {
        let name = names::own_pool(&key, *family);
        (!env.several.is_empty() && !names::is_pool_of_all(cluster, &name)).then_some(name)
    };
    let mut item = Item {
        own_pools: [Family::V4, Family::V6].iter().filter_map(own_pool).collect(),
        own_hosts: None,
        key,
        fingerprint: fingerprint(service, &placing(env, work), work.action),
        action: work.action,
        names: Names::new(service, subnet.clone()),
        scheme,
        published: ingress.filter_map(|ingress| parse_ip(&ingress.ip)).collect(),
        addresses: addresses(annotations, service),
        public_ips: by_family(annotations, &families, &keys::PIP_NAME, &keys::PIP_NAME_IPV6),
        public_ip_group: group,
        access: destinations(service),
        placing: placing(env, work),
        may_have_link: links::is_mentioned(service.metadata.annotations.keys()),
        link_group: annotations.readable(&keys::PLS_GROUP).unwrap_or_else(|| env.link_group.clone()),
        families,
        settings: None,
        findings: Vec::new(),
    };
    if work.action != ServiceAction::Delete && has_own_pools(env, service) && item.own_pools.len() == 2 {
        item.own_hosts = Some(hosts::hosts(env, &work.nodes));
    }
    match work.action {
        ServiceAction::Delete => {}
        // Hosts follow the nodes, whatever else the Service asks for by now.
        ServiceAction::UpdateHosts => item.settings = settings(env, service, &mut item, subnet).ok(),
        ServiceAction::Ensure => item.settings = Some(settings(env, service, &mut item, subnet)?),
    }
    if work.action != ServiceAction::Ensure {
        item.findings.clear();
    }
    Ok(item)
}

impl Item {
    /// A finding that becomes an event with this reason.
    pub(super) fn finding(&self, reason: &str, text: impl Into<String>) -> Finding {
        Finding { value: Some(self.key.clone()), ..Finding::warning(reason, text) }
    }

    /// The pool of a family behind its rules.
    pub(super) fn pool(&self, cluster: &str, family: Family) -> String {
        match &self.own_hosts {
            Some(_) => names::own_pool(&self.key, family),
            None => names::pool(cluster, family),
        }
    }

    /// Whether a load balancer with all its parts is wanted.
    pub(super) fn is_whole(&self) -> bool {
        self.action == ServiceAction::Ensure && self.settings.is_some()
    }

    /// The IP tags that cannot be set on an existing public IP address.
    pub(super) fn fixed_ip_tags(&self, env: &Env) -> Option<&[(String, String)]> {
        let wanted = self.settings.as_ref()?.public_ip.ip_tags.as_deref();
        wanted.filter(|_| !env.changes_ip_tags)
    }

    /// Whether a public IP address must be replaced because of its IP tags.
    pub(super) fn wants_other_ip_tags(&self, env: &Env, ip: &Value) -> bool {
        self.fixed_ip_tags(env).is_some_and(|wanted| tags::lacks_ip(ip, wanted))
    }
}

fn placing(env: &Env, work: &ServiceWork) -> Placing {
    let metadata = &work.service.metadata;
    let selects = |one: &&Several| {
        let by_service =
            one.services.as_ref().is_none_or(|it| it.matches(|key| metadata.labels.get(key).map(String::as_str)));
        let labels = work.namespace.as_ref();
        let by_namespace =
            one.namespaces.as_ref().is_none_or(|it| labels.is_some_and(|labels| it.matches_pairs(labels)));
        (one.services.is_some() || one.namespaces.is_some()) && by_service && by_namespace
    };
    // Upstream compares the key without case.
    let is_key = |key: &str| key.eq_ignore_ascii_case(keys::LB_CONFIGURATIONS.row.key);
    let named = metadata
        .annotations
        .iter()
        .find(|(key, _)| is_key(key))
        .map(|(_, text)| ccm_kit::annotations::value::items(text).map(str::to_lowercase).collect());
    Placing { named, selected: env.several.iter().filter(selects).map(|one| one.name.clone()).collect() }
}

/// The requested addresses. An annotation wins over the field, which serves the family of its address only.
fn addresses(annotations: Annotations<'_>, service: &Service) -> BTreeMap<Family, String> {
    let field = service.spec.load_balancer_ip.trim();
    let of_field = (!field.is_empty()).then(|| (parse_ip(field).map_or(Family::V4, Family::of), field.to_owned()));
    let given = [(Family::V4, &keys::LB_IPV4), (Family::V6, &keys::LB_IPV6)];
    let annotated = given.into_iter().filter_map(|(family, key)| Some((family, annotations.readable(key)?)));
    of_field.into_iter().chain(annotated).collect()
}

/// The texts of two keys by family: a Service of one family uses the plain key, an IPv6 one that of its family first.
fn by_family(
    annotations: Annotations<'_>,
    families: &[Family],
    plain: &Key<String, Scheme>,
    ipv6: &Key<String, Scheme>,
) -> BTreeMap<Family, Given> {
    let is_dual = families.len() == 2;
    let given = |key: &Key<String, Scheme>| Some(Given { key: key.row.key, text: annotations.readable(key)? });
    let of = |family: &Family| {
        let own = given(ipv6).filter(|_| *family == Family::V6);
        Some((*family, own.or_else(|| given(plain).filter(|_| *family == Family::V4 || !is_dual))?))
    };
    families.iter().filter_map(of).collect()
}

/// The destinations of the security rules of a Service, without validation.
pub(crate) fn destinations(service: &Service) -> Destinations {
    let annotations = Annotations::read(&service.metadata.annotations);
    let has_floating_ip = annotations.readable(&keys::NO_FLOATING_IP) != Some(true);
    let mut ports = BTreeMap::<String, Vec<i32>>::new();
    for port in &service.spec.ports {
        let protocol = match &*port.protocol {
            "TCP" => "Tcp",
            "UDP" => "Udp",
            _ => "*",
        };
        let number = if has_floating_ip { port.port } else { port.node_port };
        ports.entry(protocol.to_owned()).or_default().push(number);
    }
    Destinations { additional: annotations.readable(&keys::ADDITIONAL_IPS).unwrap_or_default(), has_floating_ip, ports }
}

/// Why a Service is refused with a usual configuration, whatever the cloud has. Its node ports need not be allocated yet.
pub(crate) fn refusal(service: &Service) -> Option<ProviderError> {
    let env = Env { subnet: "any".to_owned(), ..Env::default() };
    let service = match service.spec.allocate_load_balancer_node_ports {
        Some(false) => service.clone(),
        _ => ports::with_node_ports(service),
    };
    one(&env, "any", &ServiceWork::new(&service, &[], ServiceAction::Ensure)).err()
}

fn settings(env: &Env, service: &Service, item: &mut Item, subnet: Option<String>) -> Result<Settings, ProviderError> {
    let annotations = Annotations::read(&service.metadata.annotations);
    if service.spec.ports.is_empty() {
        return Err(refused("the Service has no ports; add one to spec.ports"));
    }
    // A wrong value of a key that is read stops the Service, before anything is made.
    let mut review = keys::TABLE.review(annotations, item.scheme);
    for finding in review.iter_mut().filter(|finding| !is_read(annotations, item, &finding.key)) {
        finding.severity = finding.severity.min(ccm_provider::Severity::Warning);
    }
    if let Some(error) = review.iter().find(|finding| finding.severity == ccm_provider::Severity::Error) {
        return Err(invalid(error.clone()));
    }
    check_addresses(env, item)?;
    check_own_pools(item)?;
    if item.scheme == Scheme::Internal && subnet.is_none() && env.subnet.is_empty() {
        let text = format!("an internal load balancer needs a subnet: set {} or subnetName", keys::LB_SUBNET.row.key);
        return Err(refused(text));
    }
    let ports = ports::ports(env, service, &item.names, item.scheme, &item.families)?;
    let (access, remarks) = access::access(service, item.scheme, &item.families)?;
    item.findings = ports.remarks.into_iter().chain(remarks).map(|(reason, text)| item.finding(reason, text)).collect();
    item.findings.extend(review);
    item.findings.extend(keys::ports::review(service));
    let own_subnet = subnet.as_ref().unwrap_or(&env.subnet);
    let link = links::link(annotations, item.scheme, &item.families, &item.access, own_subnet)?;
    Ok(Settings {
        link,
        names_subnet: subnet.is_some(),
        subnet: subnet.unwrap_or_else(|| env.subnet.clone()),
        rules: ports.rules,
        probes: ports.probes,
        access: (annotations.readable(&keys::NO_NSG_RULE) != Some(true)).then_some(access),
        public_ip: PublicIp {
            prefixes: by_family(annotations, &item.families, &keys::PIP_PREFIX, &keys::PIP_PREFIX_IPV6),
            ip_tags: annotations.text(keys::PIP_IP_TAGS.row).map(keys::pairs_of_ip_tags),
            tags: tags::parse(annotations.text(keys::PIP_TAGS.row).unwrap_or_default()).0,
            dns_label: annotations.readable(&keys::DNS_LABEL),
        },
    })
}

/// Whether a Service needs the value of a key of its kind of load balancer.
fn is_read(annotations: Annotations<'_>, item: &Item, key: &str) -> bool {
    let is_made = |family: Family| item.families.contains(&family) && !item.public_ips.contains_key(&family);
    match key {
        _ if links::is_key(key) => annotations.readable(&keys::PLS_CREATE) == Some(true),
        _ if key == keys::PIP_PREFIX_IPV6.row.key => is_made(Family::V6),
        _ if key == keys::PIP_PREFIX.row.key => item.families.len() == 1 && is_made(Family::V6) || is_made(Family::V4),
        // The ports say whether they need these.
        _ => key != keys::PROBE_INTERVAL.row.key && key != keys::PROBE_COUNT.row.key,
    }
}

/// Whether Azure takes the names of the pools that a Service has for itself.
fn check_own_pools(item: &Item) -> Result<(), ProviderError> {
    let mut names = item.families.iter().map(|family| names::own_pool(&item.key, *family));
    match names.find(|name| name.len() > names::LONGEST).filter(|_| item.own_hosts.is_some()) {
        None => Ok(()),
        Some(name) => Err(refused(format!(
            "spec.externalTrafficPolicy \"Local\": with several load balancers the Service has a pool {name:?}, and Azure allows \
             {} characters; choose a shorter name of the Service or its namespace, or write \"Cluster\"",
            names::LONGEST
        ))),
    }
}

/// Whether the requested addresses can be those of a load balancer of this kind.
fn check_addresses(env: &Env, item: &Item) -> Result<(), ProviderError> {
    for (family, text) in item.addresses.iter().filter(|(family, _)| item.families.contains(family)) {
        let key = if *family == Family::V4 { keys::LB_IPV4.row.key } else { keys::LB_IPV6.row.key };
        let ip = parse_ip(text).filter(|ip| Family::of(*ip) == *family);
        let Some(ip) = ip else {
            return Err(refused(format!(
                "the requested address {text:?} ({key} or spec.loadBalancerIP) is not an {} address; correct it",
                family.as_str()
            )));
        };
        if item.scheme == Scheme::External && !env.is_stack && !is_public(ip) {
            let text = format!(
                "the requested address {text:?} ({key} or spec.loadBalancerIP) is not a public one, and the load balancer is \
                 external; use the address of a public IP address, or set {} to \"true\"",
                keys::LB_INTERNAL.row.key
            );
            return Err(refused(text));
        }
    }
    Ok(())
}

fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_local = ip.is_private() || ip.is_link_local() || ip.is_loopback() || ip.is_unspecified();
            let is_many = ip.is_multicast() || ip.is_broadcast();
            !is_local && !is_many && !is_shared && ip.octets() != [168, 63, 129, 16]
        }
        IpAddr::V6(ip) => {
            let is_local =
                ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_loopback() || ip.is_unspecified();
            !is_local && !ip.is_multicast()
        }
    }
}

pub(super) fn refused(message: impl Into<String>) -> ProviderError {
    ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, message)
}

/// Another one after a change of what a plan reads of the Service, and for its deletion: it asks for something else.
fn fingerprint(service: &Service, placing: &Placing, action: ServiceAction) -> u64 {
    let mut hasher = DefaultHasher::new();
    let is_read = |key: &str| key.to_ascii_lowercase().starts_with(keys::DOMAIN);
    let read: Vec<_> = service.metadata.annotations.iter().filter(|(key, _)| is_read(key)).collect();
    (action == ServiceAction::Delete).hash(&mut hasher);
    format!("{} {:?} {read:?} {placing:?}", service.metadata.uid, service.spec).hash(&mut hasher);
    hasher.finish()
}
