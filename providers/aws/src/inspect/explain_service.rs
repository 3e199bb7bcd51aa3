//! Explains a Service: its balancer, listeners, targets and security groups.

use ccm_provider::{ErrorClass, Fact, NodeReader, ProviderError, Service, ServiceAction};

use super::current::{self, Current};
use super::{Inspector, health, remediation};
use crate::loadbalancer::desired::previous_balancer;
use crate::loadbalancer::desired::{Desired, Goal};
use crate::loadbalancer::network::KIND;
use crate::loadbalancer::observed::{Classic, Network, Observed};
use crate::loadbalancer::rules::shared::is_for;
use crate::loadbalancer::rules::{Rule, split};
use crate::loadbalancer::step::scheme;

pub(super) async fn explain(aws: &Inspector, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
    if let Some(class) = service.spec.load_balancer_class.as_deref().filter(|_| !service.needs_cleanup()) {
        let text = format!("loadBalancerClass {class:?}: another controller makes the load balancer");
        return Ok(vec![Fact::good("desired state", text)]);
    }
    let nodes = aws.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    let action = current::action(service);
    match current::load(aws, cluster, service, &nodes, action).await {
        Ok(Some(current)) => Ok(facts(aws, service, &current)),
        Ok(None) => Ok(vec![Fact::good("desired state", "the Service has no load balancer here and wants none")]),
        Err(error) if error.is_implemented_elsewhere() => {
            let text = "the annotation …-type leaves the Service to the AWS Load Balancer Controller";
            let desired = match service.status.load_balancer.ingress.is_empty() && !service.needs_cleanup() {
                true => Fact {
                    hint: Some("check that it runs, and its events and logs about the Service".to_owned()),
                    ..Fact::waiting("desired state", format!("{text}, which has not shown an address yet"))
                },
                false => Fact::good("desired state", text),
            };
            let behind = previous_balancer(service).map(|finding| {
                let hint = "delete the Service and create it again to remove it";
                Fact::bad("previous load balancer", finding.to_string(), hint)
            });
            Ok([desired].into_iter().chain(behind).collect())
        }
        Err(error) if matches!(error.class(), ErrorClass::Invalid { .. }) => {
            let mut facts = vec![Fact::bad("desired state", error.to_string(), remediation(&error))];
            // The nodes of an existing balancer are still updated.
            let hosts = current::load(aws, cluster, service, &nodes, ServiceAction::UpdateHosts).await;
            if let Ok(Some(current)) = hosts
                && current.is_there()
            {
                facts.extend(balancers(aws, service, &current));
            }
            Ok(facts)
        }
        Err(error) => Err(error),
    }
}

fn facts(aws: &Inspector, service: &Service, current: &Current) -> Vec<Fact> {
    let mut facts = vec![desired(&current.desired)];
    facts.extend(balancers(aws, service, current));
    match &current.plan {
        Err(error) => facts.push(Fact::bad("plan", error.to_string(), remediation(error))),
        // The command that asks for the plan prints steps and findings.
        Ok((steps, _)) => facts.push(match steps.len() {
            0 => Fact::good("plan", "nothing is left to do in the cloud"),
            left => Fact::waiting("plan", format!("writes left: {left}")),
        }),
    }
    facts
}

fn desired(desired: &Desired) -> Fact {
    let port = |protocol: &str, port, node_port| format!("{protocol} {port} to node port {node_port}");
    let (kind, common, ports): (_, _, Vec<String>) = match &desired.goal {
        Goal::Absent => return Fact::good("desired state", "no load balancer (any more)"),
        Goal::Classic(classic) => {
            let ports = classic.listeners.iter().map(|one| port(&one.protocol, one.port, one.instance_port));
            ("classic", &classic.common, ports.collect())
        }
        Goal::Network(network) => {
            let ports = network.ports.iter().map(|one| port(&one.protocol, one.port, one.node_port));
            ("network", &network.common, ports.collect())
        }
    };
    let (name, scheme) = (&desired.name, scheme(common.internal));
    Fact::good("desired state", format!("a {kind} load balancer {name}, {scheme}: {}", ports.join(", ")))
}

fn balancers(aws: &Inspector, service: &Service, current: &Current) -> Vec<Fact> {
    let observed = &current.observed;
    let mut facts = Vec::new();
    if let Some(found) = &observed.classic {
        facts.extend(classic(aws, service, found));
        facts.extend(own_groups(observed, &found.balancer.security_groups));
        facts.extend(rules(&current.desired, observed, &found.balancer.security_groups));
    }
    if let Some(found) = &observed.network {
        facts.extend(network(aws, service, found));
        facts.extend(own_groups(observed, &found.balancer.security_groups));
        facts.extend(rules(&current.desired, observed, &[]));
    }
    let leftovers = observed.unattached_target_groups.iter().map(|unattached| {
        let text = "left over from an interrupted sync; it is deleted by the next sync, or with the Service";
        Fact::waiting(format!("target group {}", unattached.group.name), text)
    });
    facts.extend(leftovers);
    if !current.is_there() && !matches!(current.desired.goal, Goal::Absent) {
        facts.push(Fact::waiting(format!("load balancer {}", current.desired.name), "AWS has none with this name yet"));
    }
    facts
}

fn classic(aws: &Inspector, service: &Service, found: &Classic) -> Vec<Fact> {
    let balancer = &found.balancer;
    let about = format!("load balancer {}", balancer.name);
    let mut facts = vec![Fact::good(&about, format!("classic, {}, {}", balancer.scheme, balancer.dns_name))];
    facts.extend(ownership(aws, &about, &found.tags));
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

fn network(aws: &Inspector, service: &Service, found: &Network) -> Vec<Fact> {
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
    facts.extend(ownership(aws, &about, &found.tags));
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

fn ownership(aws: &Inspector, about: &str, tags: &crate::client::Tags) -> Option<Fact> {
    let key = aws.cluster_tag();
    (!aws.settings.ownership.is_member(tags)).then(|| {
        Fact::bad(
            about,
            format!("lacks the tag {key}: it may be another cluster's, so it is neither changed nor deleted"),
            format!("tag it {key} = owned if it is this cluster's; else delete the Service or the load balancer"),
        )
    })
}

fn shown(service: &Service, about: &str, dns_name: &str) -> Option<Fact> {
    let shown = service.status.load_balancer.ingress.iter().any(|ingress| ingress.hostname == dns_name);
    let wanted = matches!(current::action(service), ServiceAction::Ensure);
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
fn rules(desired: &Desired, observed: &Observed, attached: &[String]) -> Vec<Fact> {
    let is_ours = |rule: &Rule| is_for(rule, &desired.name) || attached.iter().any(|group| rule.is_from(group));
    let groups = observed.groups.values().filter(|group| !attached.contains(&group.id));
    let with = groups.filter_map(|group| {
        let count = split(&group.ingress).iter().filter(|rule| is_ours(rule)).count();
        let text = format!("allows the load balancer, rules: {count}");
        (count > 0).then(|| Fact::good(format!("security group {}", group.id), text))
    });
    with.collect()
}
