//! Explains a Service: its balancer, listeners, members, floating IP and security group.

use ccm_kit::inspect::{DESIRED, Health, Member, first_few, members, service};
use ccm_provider::{Fact, NodeReader, ProviderError, Service};

use super::{Inspector, PLACE, about};
use crate::client::octavia::{self, ACTIVE, ERROR, Listener, LoadBalancer, Pool};
use crate::loadbalancer::claim::{Claim, claim};
use crate::loadbalancer::names;
use crate::loadbalancer::observed::{Balancer, Group, Observed, service_tags};
use crate::loadbalancer::plan::not_ours;
use crate::loadbalancer::wanted::{Item, Settings};

const NO_ANSWER: &str = "check that the node port answers on the node, and that the security groups of its port allow it: \
                         manage-security-groups lets this program do that";

pub(super) async fn explain(
    openstack: &Inspector,
    cluster: &str,
    service: &Service,
) -> Result<Vec<Fact>, ProviderError> {
    let balancers = match openstack.balancers() {
        Ok(balancers) => balancers,
        Err(off) => return Ok(vec![Fact::good(DESIRED, off.to_string())]),
    };
    let nodes = openstack.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    service::explain(balancers, cluster, service, &nodes).await
}

pub(super) fn balancer(service: &Service, item: &Item, found: &Balancer, observed: &Observed) -> Vec<Fact> {
    let mut facts = vec![status(&found.lb)];
    facts.extend(noted(item, &found.lb));
    facts.extend(shared(item, &found.lb));
    let claim = claim(observed, PLACE, item);
    facts.extend(whose(claim, item, &found.lb));
    let listeners = || found.listeners.iter().filter(|one| claim.has_listener(item, one));
    facts.extend(listeners().map(|one| listener(found, one)));
    let local = service.requests_only_local_traffic();
    let of = |pool: &Pool| found.members.get(&pool.id).map(Vec::as_slice).unwrap_or_default();
    facts.extend(listeners().filter_map(|one| found.pool_of(one)).map(|one| pool(one, of(one), local)));
    facts.extend(item.settings.as_ref().and_then(|settings| address(service, observed, &found.lb, settings)));
    facts
}

/// States: `operating_status` in the API reference of Octavia.
fn pool(pool: &Pool, all: &[octavia::Member], local: bool) -> Fact {
    let before = format!("{}, members: ", pool.lb_algorithm);
    let all = all.iter().map(|octavia::Member { name, address, operating_status, .. }| {
        let (health, meaning) = match &**operating_status {
            "ERROR" => (Health::Failing(NO_ANSWER), "the health check fails"),
            "ONLINE" => (Health::Serving, ""),
            "NO_MONITOR" => (Health::Good, "not checked, enable-health-monitor is off"),
            "DRAINING" => (Health::Waiting, "no new connections"),
            "OFFLINE" => (Health::Waiting, "not checked yet, or switched off by hand"),
            _ => (Health::Waiting, ""),
        };
        Member { name: if name.is_empty() { address } else { name }, state: operating_status.clone(), health, meaning }
    });
    members(format!("pool {}", pool.name), &before, local, all)
}

/// A balancer that is not this Service's, or not whole.
fn whose(claim: Claim, item: &Item, lb: &LoadBalancer) -> Option<Fact> {
    match claim {
        Claim::Namesake => {
            let hint = "give each cluster of the project its own --cluster-name";
            Some(Fact::bad(about(lb), not_ours(&lb.id, &item.mark(lb)), hint))
        }
        Claim::HalfMade => {
            let text = "a listener has the tag of the Service, and the load balancer has not: the next sync adds it";
            Some(Fact::waiting(about(lb), text))
        }
        _ => None,
    }
}

fn status(lb: &LoadBalancer) -> Fact {
    let (about, id) = (about(lb), &lb.id);
    let what = format!("{}, {} at {}", lb.provider, lb.operating_status, lb.vip_address);
    match &*lb.provisioning_status {
        ACTIVE => Fact::good(about, what),
        ERROR => Fact::bad(
            about,
            format!("{what}: its last change failed in Octavia, and it takes no other"),
            format!(
                "openstack loadbalancer status show {id} shows the part that failed; openstack loadbalancer failover {id} \
                 repairs it, or delete it and the annotation load-balancer-id: the next sync creates it again, \
                 with another address"
            ),
        ),
        other => Fact::waiting(about, format!("{what}: {other}, an earlier change is at work")),
    }
}

/// The annotation refers to another balancer than the one found.
fn noted(item: &Item, lb: &LoadBalancer) -> Option<Fact> {
    let noted = item.annotated.as_ref().filter(|noted| **noted != lb.id)?;
    let text = format!("names {noted}, which does not exist: the load balancer was found by its name");
    Some(Fact::waiting("annotation load-balancer-id", format!("{text}; the next sync corrects it")))
}

fn shared(item: &Item, lb: &LoadBalancer) -> Option<Fact> {
    let others: Vec<&str> = service_tags(&lb.tags).filter(|tag| *tag != item.name).collect();
    (!others.is_empty()).then(|| {
        let owner = if lb.name == item.name { "made for this Service" } else { "not made for this Service" };
        Fact::good(about(lb), format!("{owner}, used by {} too", first_few(&others)))
    })
}

fn listener(found: &Balancer, listener: &Listener) -> Fact {
    let about = format!("listener {} {}", listener.protocol, listener.protocol_port);
    let pool = found.pool_of(listener);
    let clients = match &*listener.allowed_cidrs {
        [] => String::new(),
        cidrs => format!(", for clients in {}", cidrs.join(", ")),
    };
    match pool {
        _ if listener.provisioning_status == ERROR => Fact::bad(
            about,
            "its last change failed in Octavia",
            "the next sync makes it again; if that fails, delete the listener",
        ),
        Some(pool) => Fact::good(about, format!("to {}{clients}", pool.name)),
        None => Fact::waiting(about, "forwards to no pool: the next sync corrects it; see the plan"),
    }
}

/// The address for clients, and whether the Service shows it.
fn address(service: &Service, observed: &Observed, lb: &LoadBalancer, settings: &Settings) -> Option<Fact> {
    // That of an internal Service is its user's.
    let floating = observed.floating_ip_of(PLACE).filter(|_| !settings.is_internal);
    let address = floating.map_or(&lb.vip_address, |ip| &ip.floating_ip_address);
    let whose = match floating {
        None if settings.is_internal || lb.vip_address.contains(':') => "the address of the load balancer",
        None => {
            let problem = observed.places.get(&PLACE).and_then(|places| match &places.external {
                _ if places.problem.is_some() => places.problem.clone(),
                None => Some("there is no external network; set floating-network-id".to_owned()),
                Some(_) => None,
            });
            return Some(match problem {
                Some(problem) => {
                    let hint =
                        "correct floating-network-id and floating-subnet in cloud.conf, the class or the annotations";
                    Fact::bad("floating IP", problem, hint)
                }
                None => Fact::waiting("floating IP", "none yet"),
            });
        }
        Some(ip) if names::is_description(&ip.description) => "a floating IP that was made for the Service",
        Some(_) => "a floating IP that was not made for the Service, and outlives it",
    };
    let shows = |ingress: &ccm_provider::LoadBalancerIngress| ingress.ip == *address || !ingress.hostname.is_empty();
    let about = format!("address {address}");
    match service.status.load_balancer.ingress.iter().any(shows) {
        true => Some(Fact::good(about, whose)),
        false => Some(Fact::waiting(about, format!("{whose}; the status of the Service does not show it yet"))),
    }
}

pub(super) fn group(item: &Item, seen: &Group) -> Fact {
    let manages = item.settings.is_some() && item.hosts.manages_group;
    let about = format!("security group {}", item.group);
    match (&seen.group, manages) {
        (Some(group), true) => {
            let (rules, ports) = (group.security_group_rules.len(), seen.with_group.len());
            Fact::good(about, format!("allows the load balancer; rules: {rules}, ports of nodes: {ports}"))
        }
        (Some(_), false) => Fact::waiting(about, "not needed any more: the next sync deletes it"),
        (None, _) => Fact::waiting(about, "not made yet"),
    }
}
