//! Explains a Service: its balancer, listeners, targets and security groups.

use ccm_kit::inspect::service;
use ccm_provider::{Fact, NodeReader, ProviderError, Service};

use super::{Inspector, health};
use crate::loadbalancer::claim::{self, Claim, Marks, READS_TAGS, Unread};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{Classic, Network, Observed};
use crate::loadbalancer::plan::network::KIND;
use crate::loadbalancer::rules::shared::is_for;
use crate::loadbalancer::rules::{Rule, split};
use crate::loadbalancer::wanted::Wanted;

pub(super) async fn explain(aws: &Inspector, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
    let nodes = aws.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    service::explain(aws.balancers(), cluster, service, &nodes).await
}

pub(super) fn balancers(env: &Env, service: &Service, desired: &Wanted, observed: &Observed) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(found) = &observed.classic {
        facts.extend(classic(env, service, found));
        facts.extend(own_groups(observed, &found.balancer.security_groups));
        facts.extend(rules(desired, observed, &found.balancer.security_groups));
    }
    if let Some(found) = &observed.network {
        facts.extend(network(env, service, found));
        facts.extend(own_groups(observed, &found.balancer.security_groups));
        facts.extend(rules(desired, observed, &[]));
    }
    let leftovers = observed.unattached_target_groups.iter().map(|unattached| {
        let text = "left over from an interrupted sync; it is deleted by the next sync, or with the Service";
        Fact::waiting(format!("target group {}", unattached.group.name), text)
    });
    facts.extend(leftovers);
    if observed.classic.is_none()
        && observed.network.is_none()
        && desired.goal.common().is_some_and(|common| !common.must_exist)
    {
        facts.push(Fact::waiting(format!("load balancer {}", desired.name), "AWS has none with this name yet"));
    }
    facts
}

fn classic(env: &Env, service: &Service, found: &Classic) -> Vec<Fact> {
    let balancer = &found.balancer;
    let about = format!("load balancer {}", balancer.name);
    let mut facts = vec![Fact::good(&about, format!("classic, {}, {}", balancer.scheme, balancer.dns_name))];
    facts.extend(ownership(env, &about, &found.tags));
    facts.extend(shown(service, &about, &balancer.dns_name));
    let listeners = balancer.listeners.iter().filter_map(|description| description.listener.as_ref());
    facts.extend(listeners.map(|listener| {
        let text = format!("to {} on node port {}", listener.instance_protocol, listener.instance_port);
        Fact::good(format!("listener {} {}", listener.protocol, listener.port), text)
    }));
    let check =
        balancer.health_check.as_ref().map(|check| format!(", health check {}", check.target)).unwrap_or_default();
    facts.push(match balancer.instances.len() {
        0 => Fact::bad("instances", "no node is registered", "check that the Service has nodes: `ccm plan` shows them"),
        count => Fact::good("instances", format!("{count} registered{check}")),
    });
    facts
}

fn network(env: &Env, service: &Service, found: &Network) -> Vec<Fact> {
    let balancer = &found.balancer;
    let about = format!("load balancer {}", balancer.name);
    if balancer.kind != KIND {
        let text =
            format!("AWS has one with this name, of type {}: it was not created for this Service", balancer.kind);
        return vec![Fact::bad(about, text, "delete or rename it")];
    }
    let what = format!("network, {}, {}", balancer.scheme, balancer.dns_name);
    let mut facts = vec![match &*balancer.state {
        "active" => Fact::good(&about, what),
        "provisioning" => Fact::waiting(&about, format!("{what}: provisioning, which takes some minutes")),
        "active_impaired" => Fact::bad(
            &about,
            format!("{what}: active_impaired: it works, but cannot scale up"),
            "free addresses in its subnets: each needs at least 8",
        ),
        "failed" => Fact::bad(
            &about,
            format!("{what}: failed: AWS could not create it"),
            "delete the Service and create it again; check that its subnets have free addresses",
        ),
        other => Fact::waiting(&about, format!("{what}: {other}")),
    }];
    facts.extend(ownership(env, &about, &found.tags));
    facts.extend(shown(service, &about, &balancer.dns_name));
    facts.extend(found.listeners.iter().map(|listener| {
        let arn = listener.target_group.as_deref().unwrap_or_default();
        let group = found.target_groups.iter().find(|group| group.group.arn == arn);
        let about = format!("listener {} {}", listener.protocol, listener.port);
        match group {
            Some(group) => {
                Fact::good(about, format!("to target group {}, port {}", group.group.name, group.group.port))
            }
            None => Fact::bad(about, "forwards to no target group", "the next sync corrects it; see the plan"),
        }
    }));
    let local = service.requests_only_local_traffic();
    facts.extend(found.target_groups.iter().map(|group| health::of_group(group, local)));
    facts
}

fn ownership(env: &Env, about: &str, marks: &Marks) -> Option<Fact> {
    let key = env.ownership.cluster_key().unwrap_or_default();
    match claim::balancer(marks, env) {
        Claim::Unread(Unread::Denied) => Some(Fact::bad(
            about,
            format!("{READS_TAGS} is not granted: its name shows that it is this cluster's"),
            "add the permission to the policy of the role (manifests/aws/iam)",
        )),
        Claim::Unread(Unread::Unsupported) => {
            Some(Fact::good(about, format!("AWS does not know {READS_TAGS}: its name shows that it is this cluster's")))
        }
        Claim::Unread(Unread::NotShown | Unread::Hidden) => {
            Some(Fact::waiting(about, "AWS does not show its tags yet"))
        }
        claim if claim.is_ours() => None,
        _ => Some(Fact::bad(
            about,
            format!("lacks the tag {key}: it may be another cluster's, so it is neither changed nor deleted"),
            format!("tag it {key} = owned if it is this cluster's; else delete the Service or the load balancer"),
        )),
    }
}

fn shown(service: &Service, about: &str, dns_name: &str) -> Option<Fact> {
    let shown = service.status.load_balancer.ingress.iter().any(|ingress| ingress.hostname == dns_name);
    let wanted = service.is_load_balancer() && service.metadata.deletion_timestamp.is_none();
    (wanted && !shown).then(|| Fact::waiting(about, "the status of the Service does not show its name yet"))
}

/// The groups that let clients reach the balancer.
fn own_groups(observed: &Observed, attached: &[String]) -> Vec<Fact> {
    let summary = |id: &String| {
        let group = observed.groups.get(id)?;
        let about = format!("security group {id}");
        Some(match split(&group.ingress).len() {
            0 => Fact::bad(
                about,
                format!("of the load balancer ({}): no rule allows clients", group.name),
                "open it for the clients, or leave the group to this program by removing the annotation that names it",
            ),
            count => Fact::good(about, format!("of the load balancer ({}), rules for clients: {count}", group.name)),
        })
    };
    attached.iter().filter_map(summary).collect()
}

/// The groups that let the balancer reach the nodes.
fn rules(desired: &Wanted, observed: &Observed, attached: &[String]) -> Vec<Fact> {
    let is_ours = |rule: &Rule| is_for(rule, &desired.name) || attached.iter().any(|group| rule.is_from(group));
    let groups = observed.groups.values().filter(|group| !attached.contains(&group.id));
    let with = groups.filter_map(|group| {
        let count = split(&group.ingress).iter().filter(|rule| is_ours(rule)).count();
        let text = format!("allows the load balancer, rules: {count}");
        (count > 0).then(|| Fact::good(format!("security group {}", group.id), text))
    });
    with.collect()
}
