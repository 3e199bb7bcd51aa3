//! The objects of load balancers, as all reports see them: what they say about their owner, and their state.
//!
//! Names, tags and descriptions contain the cluster name, which several clusters in a project may share: `kubernetes` is
//! the default.

use std::collections::BTreeSet;

use ccm_kit::inspect::{Claim, Explained, LOAD_BALANCER, Object};
use ccm_provider::{Fact, Service};

use super::{PLACE, explain_service as state};
use crate::client::network::{FloatingIp, SecurityGroup};
use crate::client::octavia::LoadBalancer;
use crate::loadbalancer::claim::utc;
use crate::loadbalancer::observed::{Observed, service_tags};
use crate::loadbalancer::wanted::Wanted;
use crate::loadbalancer::{Balancers, names};

pub(super) const FLOATING_IP: &str = "FloatingIP";

impl Explained for Balancers {
    const NOT_FOUND: &'static str = "check whether it has another name (--cluster-name) or is in another project";

    fn name(cluster: &str, service: &Service) -> String {
        names::balancer(cluster, service)
    }

    fn in_words(wanted: &Wanted) -> Option<String> {
        let item = wanted.items.get(&PLACE)?;
        let settings = item.settings.as_ref()?;
        let ports = settings.ports.iter().map(|port| match port.node_port {
            0 => format!("{} {} without members", port.protocol, port.port),
            node_port => format!("{} {} to node port {node_port}", port.protocol, port.port),
        });
        let scheme = if settings.is_internal { "internal" } else { "external" };
        let ports: Vec<String> = ports.collect();
        Some(format!("a load balancer {}, {scheme}: {}", item.name, ports.join(", ")))
    }

    fn inventory(&self, service: &Service, wanted: &Wanted, observed: &Observed) -> Vec<Object> {
        let Some(item) = wanted.items.get(&PLACE) else { return Vec::new() };
        let balancer = match observed.balancer(PLACE) {
            Some(found) => Some(Object {
                state: state::balancer(service, item, found, observed),
                members: found.members.values().flatten().map(|member| member.address.clone()).collect(),
                ..balancer(&found.lb)
            }),
            None => item.settings.as_ref().map(|_| {
                let text = "Octavia has none with this name or ID yet";
                Object::missing(Fact::waiting(format!("load balancer {}", item.name), text))
            }),
        };
        let group = observed.groups.get(&PLACE).map(|seen| Object {
            state: vec![state::group(item, seen)],
            ..seen.group.as_ref().map(security_group).unwrap_or_default()
        });
        balancer.into_iter().chain(group).collect()
    }

    /// Reads the parts of the balancer regardless of the record.
    fn read_all(wanted: &mut Wanted) {
        wanted.items.values_mut().for_each(|item| item.applied = None);
    }

    fn keep_registered(wanted: &mut Wanted, members: &BTreeSet<&str>) {
        wanted.items.values_mut().for_each(|item| item.hosts.members.retain(|one| members.contains(&*one.address)));
    }
}

/// Does not say anything about children.
pub(super) fn balancer(lb: &LoadBalancer) -> Object {
    let marks = [&*lb.name, &lb.description].into_iter().chain(service_tags(&lb.tags));
    let claim = names::fields(&lb.name).map(|(cluster, namespace, name)| Claim {
        cluster: cluster.to_owned(),
        service: format!("{namespace}/{name}"),
        uid: String::new(),
        marks: marks.map(str::to_owned).collect(),
    });
    let (kind, id, alias) = (LOAD_BALANCER, lb.id.clone(), lb.vip_port_id.clone());
    Object { kind, id, alias, name: lb.name.clone(), created: utc(&lb.created_at), claim, ..Object::default() }
}

pub(super) fn floating_ip(ip: &FloatingIp) -> Object {
    let description = names::before_replaced(&ip.description);
    let text = description.strip_prefix("Floating IP for Kubernetes external service ");
    let claim = text.and_then(|text| text.split_once(" from cluster ")).map(|(service, cluster)| Claim {
        cluster: cluster.to_owned(),
        service: service.to_owned(),
        uid: String::new(),
        marks: vec![ip.description.clone()],
    });
    let port = ip.port_id.iter().filter(|port| !port.is_empty());
    let users = port.map(|port| (port.clone(), format!("it is bound to the port {port}"))).collect();
    let (id, name) = (ip.id.clone(), ip.floating_ip_address.clone());
    Object { kind: FLOATING_IP, id, name, claim, users, ..Object::default() }
}

pub(super) fn security_group(group: &SecurityGroup) -> Object {
    let claim = || {
        let text = group.description.strip_prefix("Security Group for ")?;
        let (service, cluster) = text.split_once(" Service LoadBalancer in cluster ")?;
        let suffix = format!("-{}", service.replace('/', "-"));
        let uid = group.name.strip_prefix("lb-sg-")?.strip_suffix(&suffix).filter(|uid| !uid.is_empty())?;
        let marks = vec![group.name.clone(), group.description.clone()];
        Some(Claim { cluster: cluster.to_owned(), service: service.to_owned(), uid: uid.to_owned(), marks })
    };
    let (id, name) = (group.id.clone(), group.name.clone());
    Object { kind: "SecurityGroup", id, name, claim: claim(), ..Object::default() }
}
