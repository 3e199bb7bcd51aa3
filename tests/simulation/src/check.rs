//! Checks that the cluster has converged and remains so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_provider::well_known::{FINALIZER_LOAD_BALANCER, TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use serde_json::Value;

use crate::cloud::{Balancer, FOREIGN_ROUTE, Instance, Power, SIZE, State};
use crate::managers::CLUSTER_CIDR;
use crate::simulation::Simulation;
use crate::trace::Invariant;
use crate::world::{World, text};

fn list<'a>(object: &'a Value, pointer: &str) -> Vec<&'a Value> {
    object.pointer(pointer).and_then(Value::as_array).map(|list| list.iter().collect()).unwrap_or_default()
}

fn has_taint(node: &Value, key: &str) -> bool {
    list(node, "/spec/taints").iter().any(|taint| taint["key"] == key)
}

fn condition<'a>(node: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let found = list(node, "/status/conditions").into_iter().find(|condition| condition["type"] == kind);
    found.map_or(("", ""), |condition| (text(condition, "/status"), text(condition, "/reason")))
}

fn is_excluded(node: &Value) -> bool {
    !node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"].is_null()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Whether a node can serve behind balancers.
pub(crate) fn has_candidate(world: &World) -> bool {
    let nodes = world.store.objects("nodes").unwrap_or_default();
    let cloud = world.cloud().lock();
    nodes.iter().any(|node| !is_excluded(node) && cloud.living(name(node)).is_some_and(|(_, i)| i.power == Power::On))
}

/// The first deviation from the desired state.
pub(crate) fn lacking(simulation: &Simulation) -> Option<String> {
    let world = &*simulation.world;
    let nodes = world.store.objects("nodes").unwrap_or_default();
    let services = world.store.objects("services").unwrap_or_default();
    if simulation.managers.leader().is_none() {
        return Some("no process leads".into());
    }
    let cloud = world.cloud().lock();
    let routes = simulation.profile.routes;
    let lacking = nodes.iter().find_map(|node| {
        let what = node_lacks(world, &cloud, node, routes)?;
        Some(format!("node {}: {what}", name(node)))
    });
    let lacking = lacking.or_else(|| {
        // Every running machine has a node.
        let missing = cloud.instances.values().find(|i| !i.is_gone() && !nodes.iter().any(|node| name(node) == i.name));
        missing.map(|instance| format!("node {}: it is missing", instance.name))
    });
    let hosts = hosts(&nodes);
    let lacking = lacking.or_else(|| {
        services.iter().find_map(|service| {
            let what = service_lacks(&cloud, service, &hosts)?;
            Some(format!("service {}: {what}", name(service)))
        })
    });
    lacking.or_else(|| orphan(&cloud, &services, &nodes, routes)).or_else(|| foreign(world, &cloud))
}

fn node_lacks(world: &World, cloud: &State, node: &Value, routes: bool) -> Option<String> {
    let owner = world.lock().instance_of.get(text(node, "/metadata/uid")).cloned()?;
    let instance = cloud.instances.get(&owner)?;
    if instance.is_gone() {
        return Some(format!("its instance {owner} is gone"));
    }
    if has_taint(node, TAINT_UNINITIALIZED) {
        return Some("it is not initialized".into());
    }
    let provider_id = format!("sim:///{owner}");
    if text(node, "/spec/providerID") != provider_id {
        return Some(format!("its provider ID is not {provider_id}"));
    }
    let zone = instance.zone();
    let labels = [
        ("topology.kubernetes.io/zone", &*zone),
        ("failure-domain.beta.kubernetes.io/zone", &zone),
        ("topology.kubernetes.io/region", "sim-1"),
        ("failure-domain.beta.kubernetes.io/region", "sim-1"),
        ("node.kubernetes.io/instance-type", "sim.large"),
        ("beta.kubernetes.io/instance-type", "sim.large"),
        ("sim.example/rack", &format!("r{}", instance.number)),
    ];
    for (key, value) in labels {
        if node["metadata"]["labels"][key] != value {
            return Some(format!("label {key} is not {value}"));
        }
    }
    let wanted = addresses(instance, name(node));
    let found: Vec<(String, String)> = list(node, "/status/addresses")
        .iter()
        .map(|address| (text(address, "/type").to_owned(), text(address, "/address").to_owned()))
        .collect();
    if found != wanted {
        return Some(format!("its addresses are {found:?} and not {wanted:?}"));
    }
    let (ready, _) = condition(node, "Ready");
    let stopped = has_taint(node, TAINT_SHUTDOWN);
    match (ready, instance.power) {
        ("True", Power::On) if stopped => return Some("it is Ready and has the shutdown taint".into()),
        ("True", Power::Off) => return Some("its instance is stopped and it is still Ready".into()),
        ("True", _) => {}
        (_, Power::Off) if !stopped => return Some("its instance is stopped and it has no taint".into()),
        (_, Power::On) => return Some("its instance runs and it is not Ready".into()),
        _ => {}
    }
    if !routes {
        return None;
    }
    let condition = condition(node, "NetworkUnavailable");
    if condition != ("False", "RouteCreated") {
        return Some(format!("its network condition is {condition:?}"));
    }
    let cidr = text(node, "/spec/podCIDR");
    let route = cloud.routes.values().find(|row| row.cidr == cidr && row.node.as_deref() == Some(name(node)));
    match route {
        None => Some(format!("it has no route for {cidr}")),
        Some(row) if world.cloud().traits.route_addresses => {
            let of = |pair: &(String, String)| {
                row.addresses.iter().any(|a| a.kind.as_str() == pair.0 && *a.address == *pair.1)
            };
            (!(wanted.iter().all(of) && row.addresses.len() == wanted.len()))
                .then(|| format!("its route has the addresses {:?}", row.addresses))
        }
        Some(_) => None,
    }
}

fn addresses(instance: &Instance, host: &str) -> Vec<(String, String)> {
    let mut addresses: Vec<(String, String)> =
        instance.addresses().into_iter().map(|(kind, address)| (kind.to_owned(), address)).collect();
    addresses.push(("Hostname".into(), host.to_owned()));
    addresses
}

fn hosts(nodes: &[Value]) -> BTreeMap<String, String> {
    let serving = nodes.iter().filter(|node| !is_excluded(node) && node["metadata"]["deletionTimestamp"].is_null());
    serving.map(|node| (name(node).to_owned(), text(node, "/spec/providerID").to_owned())).collect()
}

fn wants(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && service["spec"]["loadBalancerClass"].is_null()
        && service["metadata"]["deletionTimestamp"].is_null()
}

fn service_lacks(cloud: &State, service: &Value, hosts: &BTreeMap<String, String>) -> Option<String> {
    let uid = text(service, "/metadata/uid");
    let finalizer = list(service, "/metadata/finalizers").iter().any(|f| *f == FINALIZER_LOAD_BALANCER);
    let ingress = list(service, "/status/loadBalancer/ingress");
    let balancer = cloud.balancers.values().find(|balancer| balancer.owner == uid);
    if !wants(service) {
        return match () {
            () if !service["metadata"]["deletionTimestamp"].is_null() => Some("it is still being deleted".into()),
            () if finalizer => Some("it has a finalizer that it does not want".into()),
            () if !ingress.is_empty() => Some("it has an address that it does not want".into()),
            () if balancer.is_some() => Some("it has a balancer that it does not want".into()),
            () => None,
        };
    }
    let Some(balancer) = balancer else { return Some("it has no balancer".into()) };
    if !finalizer {
        return Some("it has no finalizer".into());
    }
    let ips: Vec<&str> = ingress.iter().map(|ingress| text(ingress, "/ip")).collect();
    if ips != [&*balancer.ip] {
        return Some(format!("it shows {ips:?} and not {:?}", balancer.ip));
    }
    let ports: BTreeSet<i64> = list(service, "/spec/ports").iter().filter_map(|port| port["port"].as_i64()).collect();
    if ports != balancer.ports.iter().map(|port| i64::from(*port)).collect() {
        return Some(format!("its balancer listens on {:?} and not {ports:?}", balancer.ports));
    }
    let size = service["metadata"]["annotations"][SIZE].as_str().unwrap_or_default();
    if balancer.size != size {
        return Some(format!("its balancer has the size {:?} and not {size:?}", balancer.size));
    }
    (balancer.hosts != *hosts).then(|| format!("its balancer has the hosts {:?} and not {hosts:?}", balancer.hosts))
}

fn orphan(cloud: &State, services: &[Value], nodes: &[Value], routes: bool) -> Option<String> {
    let owned = |balancer: &Balancer| {
        services.iter().any(|service| wants(service) && text(service, "/metadata/uid") == balancer.owner)
    };
    let balancer = cloud.balancers.iter().find(|(name, balancer)| *name != "theirs" && !owned(balancer));
    if let Some((name, balancer)) = balancer {
        return Some(format!("balancer {name} belongs to no Service: {balancer:?}"));
    }
    let cluster: ipnet::IpNet = CLUSTER_CIDR.parse().unwrap();
    let leads = |node: &Value, cidr: &str, target: &str| name(node) == target && text(node, "/spec/podCIDR") == cidr;
    let orphan = cloud.routes.values().find(|row| {
        let within = row.cidr.parse::<ipnet::IpNet>().is_ok_and(|cidr| cluster.contains(&cidr));
        routes && within && !nodes.iter().any(|node| leads(node, &row.cidr, row.node.as_deref().unwrap_or_default()))
    });
    orphan.map(|row| format!("route {} to {:?} belongs to no node", row.cidr, row.node))
}

/// Foreign objects are unchanged.
fn foreign(world: &World, cloud: &State) -> Option<String> {
    let theirs = Balancer { owner: "somebody-else".into(), ..Balancer::default() };
    let routes = cloud.routes.keys().filter(|name| name.starts_with(FOREIGN_ROUTE)).count();
    if cloud.balancers.get("theirs") != Some(&theirs) || routes != 3 {
        world.trace.violated(Invariant::Foreign, "a balancer or route of somebody else has changed");
    }
    for (kind, name) in world.lock().foreign.clone() {
        if world.get(&kind, &name).is_none_or(|object| text(&object, "/metadata/generation") > "1") {
            world.trace.violated(Invariant::Foreign, format_args!("{kind}/{name} has changed"));
        }
    }
    None
}

/// Checks that nothing was written to the cluster or the cloud since `since`, and no event since `events_since`. Leases
/// do not count.
pub(crate) fn nothing_written(world: &World, since: Duration, events_since: Duration) {
    let inner = world.lock();
    let effects = inner.effects.iter().filter(|e| e.at >= if e.event { events_since } else { since });
    let mut written: Vec<String> = effects.map(|effect| effect.line.clone()).collect();
    drop(inner);
    let cloud = world.cloud().lock();
    written.extend(cloud.writes.iter().filter(|write| write.at >= since).map(|write| write.what.clone()));
    drop(cloud);
    if !written.is_empty() {
        world
            .trace
            .violated(Invariant::Quiet, format_args!("at rest since {since:?}, and yet: {}", written.join("; ")));
    }
}

/// Checks the number of calls after convergence: only the periods determine it.
pub(crate) fn calls_at_rest(world: &World, since: Duration) {
    let time = (world.trace.now() - since).as_secs();
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for record in world.cloud().lock().calls.iter().filter(|record| record.at >= since) {
        *calls.entry(record.call).or_default() += 1;
    }
    for (call, count) in calls {
        let allowed = match call {
            // One pass over nodes that are not Ready every 5 seconds, and one refresh of addresses every 5 minutes.
            "lookup" | "list" => time / 5 + time / 300 + 2,
            "list routes" => time / 10 + 2,
            _ => 0,
        };
        if count > allowed {
            let text = format!("{count} calls of {call:?} in {time}s at rest, {allowed} are allowed");
            world.trace.violated(Invariant::Calls, text);
        }
    }
}

/// Even during failures, the number of lookups depends on the time and on the failures, not on the number of nodes.
pub(crate) fn calls_in_all(world: &World) {
    const WINDOW: Duration = Duration::from_secs(10);
    // Seven while the time between batches doubles from 25 ms to a second; that begins again after two seconds without
    // a lookup, so at most three times. Three passes of the monitor, and a refresh.
    const WITHOUT_FAILURES: usize = 3 * 7 + 3 + 1;
    // A failed batch of up to eight nodes is looked up one by one the next time, a larger one in two halves.
    const PER_FAILURE: usize = 8;
    // The longest time until the next lookup of a node: the longest delay of a retry.
    const NEXT: Duration = Duration::from_secs(60);
    let cloud = world.cloud().lock();
    let mut recent: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for record in cloud.calls.iter().filter(|record| matches!(record.call, "lookup" | "list")) {
        let times = recent.entry(&record.by).or_default();
        times.retain(|at| *at + WINDOW > record.at);
        times.push(record.at);
        let from = record.at.saturating_sub(WINDOW + NEXT);
        let failures = cloud.failed_lookups.iter().filter(|at| (from..=record.at).contains(*at)).count();
        let allowed = WITHOUT_FAILURES + PER_FAILURE * failures;
        if times.len() > allowed {
            let by = &record.by;
            let text = format!("{} look-ups of {by} in {WINDOW:?} until {:?}, not {allowed}", times.len(), record.at);
            world.trace.violated(Invariant::Calls, text);
            return;
        }
    }
}

/// Checks that all queues are empty after convergence.
pub(crate) fn queues_are_empty(simulation: &Simulation) {
    for (_, running) in simulation.managers.running() {
        let text = running.metrics.text();
        let full = text.lines().find(|line| {
            let sized = ["workqueue_depth{", "workqueue_unfinished_work_seconds{"];
            sized.iter().any(|start| line.starts_with(start)) && !line.ends_with(" 0")
        });
        if let Some(line) = full {
            simulation.world.trace.violated(Invariant::Baseline, format_args!("{}: {line}", running.life));
        }
    }
}
