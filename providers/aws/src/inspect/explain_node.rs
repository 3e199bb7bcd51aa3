//! Explains a node: its instance, and that instance's VPC, tags, security group and routes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Lookup, Node, ProviderError, address};

use super::{Inspector, unreadable};
use crate::client::Query;
use crate::client::ec2::{Instance, RouteTable};
use crate::loadbalancer::security_groups::nodes;
use crate::node::fargate;
use crate::node::fleet::Member;
use crate::node::identity::{self, BadProviderId, InstanceId, Machine, Wanted};
use crate::node::instances::describe::{Instances, LIVE_STATES, Seen};
use crate::routes;

pub(super) async fn explain(aws: &Inspector, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
    match identity::wanted(node, aws.settings.own.as_ref()) {
        Wanted::Never(error) => Ok(vec![no_instance(node, &error)]),
        Wanted::Machine(Machine::Fargate(address)) => fargate_node(aws, node, address).await,
        Wanted::Machine(Machine::Ec2(id)) => by_id(aws, cluster, node, &id).await,
        Wanted::Name(name) => by_name(aws, cluster, node, &name).await,
    }
}

fn no_instance(node: &Node, error: &BadProviderId) -> Fact {
    let about = format!("provider ID {}", node.provider_id_or_empty());
    match error {
        BadProviderId::Foreign(_) => {
            Fact::good(about, "belongs to another cloud: this provider does nothing with the node")
        }
        BadProviderId::Malformed(_) => Fact::bad(
            about,
            error.to_string(),
            "spec.providerID cannot be changed: delete the Node and let the kubelet register it again, with the right \
             --provider-id or none",
        ),
    }
}

async fn fargate_node(aws: &Inspector, node: &Node, address: Ipv4Addr) -> Result<Vec<Fact>, ProviderError> {
    let found = fargate::interfaces(&*aws.api, &aws.settings.vpc, &BTreeSet::from([address])).await?;
    let vpc = &aws.settings.vpc;
    let about = format!("Fargate node {address}");
    let fact = match found.get(&address).map(Vec::as_slice) {
        Some([one]) => {
            Fact::good(about, format!("network interface {} in {}, subnet {}", one.id, one.zone, one.subnet))
        }
        Some([_, _, ..]) => Fact::bad(
            about,
            format!("several attached network interfaces have this address in {vpc}"),
            "correct spec.providerID: delete the Node and let it register again",
        ),
        _ => gone(aws, node, about, &format!("no attached network interface in {vpc} has this address")).await,
    };
    Ok(vec![id_fact(node, "names a Fargate node"), fact])
}

fn id_fact(node: &Node, names: &str) -> Fact {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Fact::good(format!("provider ID {id}"), names),
        None if node.has_taint(TAINT_UNINITIALIZED) => Fact::waiting(
            "provider ID",
            "not set yet: it is set when the node is initialized, from the instance with its name",
        ),
        None => Fact::good("provider ID", "not set: the instance is found by the node's name"),
    }
}

/// What the controllers do about a missing instance.
async fn gone(aws: &Inspector, node: &Node, about: String, seen: &str) -> Fact {
    let answer = aws.instances.lookup(&[Arc::new(node.clone())], Aspects::LIFECYCLE).await.into_iter().next();
    let hint = format!(
        "if the machine exists, it is in another account or region than this program uses (region {}): correct region \
         or credentials; if it no longer exists, leave the node to the controllers or delete it",
        aws.settings.region
    );
    let text = match answer {
        Some(Lookup::Gone(evidence)) => format!(
            "{seen}: {evidence}. The node is deleted once it is not Ready and older than {} s",
            evidence.grace.as_secs()
        ),
        Some(Lookup::Unknown(error)) => format!("{seen}: {error}. The node is left unchanged"),
        _ => format!("{seen}, in one of two reads: EC2 is not consistent yet"),
    };
    Fact::bad(about, text, hint)
}

async fn by_id(aws: &Inspector, cluster: &str, node: &Node, id: &InstanceId) -> Result<Vec<Fact>, ProviderError> {
    let mut facts = vec![id_fact(node, &format!("names instance {id}"))];
    let answers = Instances(aws.api.clone()).by_ids(&BTreeSet::from([id.clone()])).await;
    let Some((_, answer)) = answers.into_iter().next() else { return Ok(facts) };
    match answer?.remove(id) {
        Some(Seen::Instance(instance)) => facts.extend(instance_facts(aws, cluster, node, &instance).await),
        Some(Seen::Denied) | None => {
            facts.push(gone(aws, node, format!("instance {id}"), "EC2 does not show it").await);
        }
    }
    Ok(facts)
}

async fn by_name(aws: &Inspector, cluster: &str, node: &Node, name: &str) -> Result<Vec<Fact>, ProviderError> {
    // Including instances without the cluster's tag: that is the likeliest cause.
    let query = Query::by("private-dns-name", [name]).and("instance-state-name", LIVE_STATES);
    let found = aws.api.instances(&query).await?;
    let mut facts = vec![id_fact(node, "")];
    match &*found {
        [instance] => facts.extend(instance_facts(aws, cluster, node, instance).await),
        [] => {
            let about = format!("instance named {name}");
            let seen = "no live instance has the node's name as its private DNS name";
            facts.push(match gone(aws, node, about, seen).await {
                fact if identity::is_ec2_dns_name(name) => fact,
                fact => Fact {
                    hint: Some(
                        "start the kubelet with --provider-id=aws:///<zone>/<instance ID>, or name the node after the \
                         instance: its private DNS name, or its ID"
                            .to_owned(),
                    ),
                    ..fact
                },
            });
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|instance| &*instance.id).collect();
            facts.push(Fact::bad(
                format!("instance named {name}"),
                format!("several instances have this private DNS name: {}", ids.join(", ")),
                "start the kubelet with --provider-id=aws:///<zone>/<instance ID>",
            ));
        }
    }
    Ok(facts)
}

async fn instance_facts(aws: &Inspector, cluster: &str, node: &Node, instance: &Instance) -> Vec<Fact> {
    let mut facts = vec![state(node, instance)];
    if instance.state.as_deref() == Some("terminated") {
        return facts;
    }
    facts.extend(vpc(aws, instance));
    facts.push(name(node, instance));
    facts.extend(cluster_tag(aws, instance));
    facts.push(security_groups(aws, instance).await);
    facts.extend(pod_routes(aws, cluster, node, instance).await);
    facts
}

fn state(node: &Node, instance: &Instance) -> Fact {
    let about = format!("instance {}", instance.id);
    let place = format!("{} in {}", instance.instance_type, instance.zone);
    match instance.state.as_deref() {
        Some("running") => Fact::good(about, format!("running, {place}")),
        Some("pending") => Fact::waiting(about, format!("pending: it starts, {place}")),
        Some("shutting-down") => {
            Fact::waiting(about, "shutting-down: once it is terminated and the node is not Ready, the node is deleted")
        }
        Some("terminated") => Fact::waiting(
            about,
            match node.ready {
                Some(ccm_provider::node::ConditionStatus::True) => {
                    "terminated: the node is deleted once it is not Ready"
                }
                _ => "terminated: the node is deleted with the next pass",
            },
        ),
        Some(state @ ("stopping" | "stopped")) => Fact::bad(
            about,
            format!("{state}, {place}: a node that is not Ready keeps the taint for stopped instances"),
            "start the instance, or terminate it: then the node is deleted",
        ),
        Some(other) => Fact::waiting(about, format!("{other}, {place}")),
        None => Fact::waiting(about, "EC2 returns no state: it is read again"),
    }
}

fn vpc(aws: &Inspector, instance: &Instance) -> Option<Fact> {
    let ours = &aws.settings.vpc;
    (instance.vpc != *ours).then(|| {
        Fact::bad(
            format!("instance {}", instance.id),
            format!("in VPC {}, but the cluster's is {ours}: neither load balancers nor routes reach it", instance.vpc),
            format!(
                "run the node in {ours}, or set VPC in section [Global] of the cloud config to that of the cluster"
            ),
        )
    })
}

fn name(node: &Node, instance: &Instance) -> Fact {
    let about = format!("name {}", node.name);
    if *node.name == *instance.private_dns_name {
        return Fact::good(about, "the private DNS name of the instance");
    }
    if node.name.split('.').next() == Some(&instance.id) {
        return Fact::good(about, "the ID of the instance, as with resource-based naming");
    }
    Fact::good(
        about,
        format!("not the private DNS name ({}); the instance is found by its provider ID", instance.private_dns_name),
    )
}

fn cluster_tag(aws: &Inspector, instance: &Instance) -> Option<Fact> {
    let key = aws.settings.ownership.cluster_key()?;
    let about = format!("tag {key}");
    if aws.settings.ownership.is_member(&instance.tags) {
        return Some(Fact::good(about, format!("on instance {}: it belongs to this cluster", instance.id)));
    }
    Some(Fact::bad(
        about,
        format!(
            "missing on instance {}: without a provider ID the node is not found, and tags and routes are refused",
            instance.id
        ),
        format!("aws ec2 create-tags --resources {} --tags Key={key},Value=owned", instance.id),
    ))
}

async fn security_groups(aws: &Inspector, instance: &Instance) -> Fact {
    let about = "security groups";
    if aws.env().node_groups_untouched {
        return Fact::good(about, "DisableSecurityGroupIngress is set: their rules are not changed");
    }
    let groups = match aws.groups(&instance.security_groups).await {
        Ok(groups) => groups,
        Err(error) => return unreadable(about, error),
    };
    match nodes::group_of(&instance.id, &instance.security_groups, &groups, aws.env()) {
        Ok(Some(id)) => {
            let name = groups.get(id).map(|group| format!(" ({})", group.name)).unwrap_or_default();
            Fact::good(format!("security group {id}"), format!("gets the rules that allow load balancers{name}"))
        }
        Ok(None) => Fact::bad(
            about,
            "the instance has none: no rule allows load balancers",
            "give the instance a security group",
        ),
        Err(error) => {
            Fact::bad(about, error.to_string(), format!("tag exactly one of them {} = owned", aws.cluster_tag()))
        }
    }
}

/// Routes to the node's pods, if the cluster has routes.
async fn pod_routes(aws: &Inspector, cluster: &str, node: &Node, instance: &Instance) -> Vec<Fact> {
    let tables = match routes::tables(&*aws.api, &aws.routes).await {
        Ok(tables) => tables,
        Err(error) if aws.routes.table.is_some() => return vec![unreadable("route table", error)],
        // Without the route controller the permission is not needed.
        Err(error) => return vec![Fact::good("pod routes", format!("not checked: {}", ProviderError::from(error)))],
    };
    match routes::only_table(&tables, cluster, &aws.routes) {
        Ok(table) => of_table(table, node, instance),
        // Configured, so it must exist.
        Err(error) if aws.routes.table.is_some() => {
            vec![Fact::bad(
                "route table",
                error.to_string(),
                "correct RouteTableID in section [Global] of the cloud config",
            )]
        }
        // A cluster without pod routes has no such table, or tags all of its tables.
        Err(_) => Vec::new(),
    }
}

fn of_table(table: &RouteTable, node: &Node, instance: &Instance) -> Vec<Fact> {
    let to_instances = table.routes.iter().any(|route| route.instance.is_some());
    let mut facts = Vec::new();
    for cidr in &node.pod_cidrs {
        let wanted = address::parse_cidr(cidr);
        let found =
            table.routes.iter().find(|route| wanted.is_some() && address::parse_cidr(&route.destination) == wanted);
        let about = format!("route {cidr}");
        facts.extend(match found {
            Some(route) if routes::leads_nowhere(route) => {
                Some(Fact::waiting(about, format!("a blackhole in {}: the route controller replaces it", table.id)))
            }
            Some(route) if route.instance.as_ref() == Some(&instance.id) => {
                Some(Fact::good(about, format!("targets the instance in {}", table.id)))
            }
            Some(route) => {
                let to = [route.instance.as_ref(), route.interface.as_ref(), Some(&route.gateway)];
                let to = to.into_iter().flatten().find(|to| !to.is_empty()).map_or("something else", |to| to);
                let hint = format!("remove the route from {} if it is not needed", table.id);
                Some(Fact::bad(about, format!("targets {to} in {}, not this instance", table.id), hint))
            }
            None if to_instances => Some(Fact::waiting(about, format!("not in {} yet", table.id))),
            // No routes to any node: the route controller is off.
            None => None,
        });
    }
    facts.extend(forwarding(table, instance));
    facts
}

/// EC2 drops packets for pods while the source/destination check is on.
fn forwarding(table: &RouteTable, instance: &Instance) -> Option<Fact> {
    table.routes.iter().find(|route| route.instance.as_ref() == Some(&instance.id))?;
    let member = Member::of(instance);
    let interface = member.primary_interface.unwrap_or_default();
    match member.source_dest_check {
        Some(true) => Some(Fact::bad(
            "source/destination check",
            "on, although a route targets the instance: EC2 drops packets for its pods",
            format!(
                "aws ec2 modify-network-interface-attribute --network-interface-id {interface} --no-source-dest-check"
            ),
        )),
        Some(false) => {
            Some(Fact::good("source/destination check", "off: the instance may forward packets for its pods"))
        }
        None => None,
    }
}
