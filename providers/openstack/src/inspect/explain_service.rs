//! Explains a Service: its balancer, listeners, members, floating IP and security group.

use ccm_provider::{Fact, NodeReader, ProviderError, Service, ServiceAction};

use super::current::{self, Current, PLACE};
use super::{Inspector, about, members, remediation};
use crate::client::octavia::{ACTIVE, ERROR, Listener, LoadBalancer};
use crate::loadbalancer::desired::{Item, Settings};
use crate::loadbalancer::names;
use crate::loadbalancer::observed::{Balancer, service_tags};

pub(super) async fn explain(
    openstack: &Inspector,
    cluster: &str,
    service: &Service,
) -> Result<Vec<Fact>, ProviderError> {
    if let Some(class) = service.spec.load_balancer_class.as_deref().filter(|_| !service.needs_cleanup()) {
        let text = format!("loadBalancerClass {class:?}: another controller makes the load balancer");
        return Ok(vec![Fact::good("desired state", text)]);
    }
    if let Err(off) = openstack.balancers() {
        return Ok(vec![Fact::good("desired state", off.to_string())]);
    }
    let nodes = openstack.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    let action = current::action(service);
    match current::load(openstack, cluster, service, &nodes, action).await {
        Ok(current) => Ok(facts(service, &current)),
        // Nothing was called if the Service itself is refused: what it has is shown as for a deletion.
        Err(error) if action == ServiceAction::Ensure => {
            let there = current::load(openstack, cluster, service, &nodes, ServiceAction::Delete).await?;
            let refused = Fact::bad("desired state", error.to_string(), remediation(&error));
            Ok([refused].into_iter().chain(balancer(service, &there)).collect())
        }
        Err(error) => Err(error),
    }
}

fn facts(service: &Service, current: &Current) -> Vec<Fact> {
    let mut facts = vec![desired(&current.item)];
    facts.extend(balancer(service, current));
    match &current.plan {
        Err(error) if error.is_in_progress() => facts.push(Fact::waiting("plan", error.to_string())),
        Err(error) => facts.push(Fact::bad("plan", error.to_string(), remediation(error))),
        // The command that asks for the plan prints steps and findings.
        Ok((steps, _)) => facts.push(match steps.len() {
            0 => Fact::good("plan", "nothing is left to do in the cloud"),
            left => Fact::waiting("plan", format!("writes left: {left}")),
        }),
    }
    facts
}

fn desired(item: &Item) -> Fact {
    let Some(settings) = &item.settings else {
        return Fact::good("desired state", "no load balancer (any more)");
    };
    let ports = settings.ports.iter().map(|port| match port.node_port {
        0 => format!("{} {} without members", port.protocol, port.port),
        node_port => format!("{} {} to node port {node_port}", port.protocol, port.port),
    });
    let scheme = if settings.is_internal { "internal" } else { "external" };
    let ports: Vec<String> = ports.collect();
    Fact::good("desired state", format!("a load balancer {}, {scheme}: {}", item.name, ports.join(", ")))
}

fn balancer(service: &Service, current: &Current) -> Vec<Fact> {
    let item = &current.item;
    let mut facts = Vec::new();
    match current.balancer() {
        None if item.settings.is_some() => {
            facts.push(Fact::waiting(
                format!("load balancer {}", item.name),
                "Octavia has none with this name or ID yet",
            ));
        }
        None => {}
        Some(found) => {
            facts.push(status(&found.lb));
            facts.extend(noted(item, &found.lb));
            facts.extend(shared(item, &found.lb));
            facts.extend(
                found.listeners.iter().filter(|one| is_of(one, item, &found.lb)).map(|one| listener(found, one)),
            );
            let local = service.requests_only_local_traffic();
            let pools = found.pools.iter().filter(|pool| {
                let is_its = |one: &&Listener| is_of(one, item, &found.lb);
                let mut listeners = found.listeners.iter().filter(is_its);
                listeners.any(|one| pool.listeners.iter().any(|of| of.id == one.id) || one.default_pool_id == pool.id)
            });
            let of = |id: &String| found.members.get(id).map(Vec::as_slice).unwrap_or_default();
            facts.extend(pools.map(|pool| members::of_pool(pool, of(&pool.id), local)));
            facts.extend(item.settings.as_ref().and_then(|settings| address(service, current, &found.lb, settings)));
        }
    }
    facts.extend(group(current));
    facts
}

/// Whether a listener is that of the Service: one without any Service belongs to the owner of the balancer.
fn is_of(listener: &Listener, item: &Item, lb: &LoadBalancer) -> bool {
    let mut tags = service_tags(&listener.tags);
    let has_none = tags.clone().next().is_none();
    tags.any(|tag| tag == item.name) || has_none && lb.name == item.name
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

/// The annotation names another balancer than the one that was found.
fn noted(item: &Item, lb: &LoadBalancer) -> Option<Fact> {
    let noted = item.annotated.as_ref().filter(|noted| **noted != lb.id)?;
    let text = format!("names {noted}, which does not exist: the load balancer was found by its name");
    Some(Fact::waiting("annotation load-balancer-id", format!("{text}; the next sync corrects it")))
}

fn shared(item: &Item, lb: &LoadBalancer) -> Option<Fact> {
    let others: Vec<&str> = service_tags(&lb.tags).filter(|tag| *tag != item.name).collect();
    (!others.is_empty()).then(|| {
        let owner = if lb.name == item.name { "made for this Service" } else { "not made for this Service" };
        Fact::good(about(lb), format!("{owner}, used by {} too", members::first_few(&others)))
    })
}

fn listener(found: &Balancer, listener: &Listener) -> Fact {
    let about = format!("listener {} {}", listener.protocol, listener.protocol_port);
    let pool = found
        .pools
        .iter()
        .find(|pool| pool.listeners.iter().any(|of| of.id == listener.id) || pool.id == listener.default_pool_id);
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

/// The address that clients use, and whether the Service shows it.
fn address(service: &Service, current: &Current, lb: &LoadBalancer, settings: &Settings) -> Option<Fact> {
    let floating = current.observed.floating_ip_of(PLACE);
    let address = floating.map_or(&lb.vip_address, |ip| &ip.floating_ip_address);
    let whose = match floating {
        None if settings.is_internal || lb.vip_address.contains(':') => "the address of the load balancer",
        None => {
            let problem = current.observed.places.get(&PLACE).and_then(|places| match &places.external {
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

fn group(current: &Current) -> Option<Fact> {
    let observed = current.observed.groups.get(&PLACE)?;
    let manages = current.item.settings.as_ref().is_some_and(|settings| settings.manages_group);
    let about = format!("security group {}", current.item.group);
    Some(match (&observed.group, manages) {
        (Some(group), true) => {
            let (rules, ports) = (group.security_group_rules.len(), observed.with_group.len());
            Fact::good(about, format!("allows the load balancer; rules: {rules}, ports of nodes: {ports}"))
        }
        (Some(_), false) => Fact::waiting(about, "not needed any more: the next sync deletes it"),
        (None, _) => Fact::waiting(about, "not made yet"),
    })
}
