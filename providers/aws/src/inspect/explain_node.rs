//! Explains a node: its instance, and that instance's VPC, tags, security group and routes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ccm_kit::inspect::node as links;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Node, ProviderError};

use super::{Inspector, unreadable};
use crate::client::Query;
use crate::client::ec2::{Instance, RouteTable};
use crate::loadbalancer::plan::security_groups::nodes;
use crate::node::fargate;
use crate::node::fleet::Member;
use crate::node::identity::{self, BadProviderId, InstanceId, Machine, Wanted};
use crate::node::instances::describe::{Instances, LIVE_STATES, Seen};
use crate::routes;

pub(super) async fn explain(aws: &Inspector, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
    match identity::wanted(node, aws.settings.own.as_ref()) {
        Wanted::Never(BadProviderId::Foreign(_)) => Ok(vec![links::foreign(node)]),
        Wanted::Never(error) => Ok(vec![links::malformed(node, error)]),
        Wanted::Machine(Machine::Fargate(address)) => fargate_node(aws, node, address).await,
        Wanted::Machine(Machine::Ec2(id)) => by_id(aws, cluster, node, &id).await,
        Wanted::Name(name) => by_name(aws, cluster, node, &name).await,
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
    Ok(vec![links::provider_id(node, "a Fargate node", "instance"), fact])
}

/// Explains the controllers' reaction to a missing instance.
async fn gone(aws: &Inspector, node: &Node, about: String, seen: &str) -> Fact {
    let answer = aws.instances.lookup(&[Arc::new(node.clone())], Aspects::LIFECYCLE).await.into_iter().next();
    let elsewhere = format!(
        "another account or region than this program uses (region {}): correct region or credentials",
        aws.settings.region
    );
    links::missing(about, seen, answer.as_ref(), "EC2", &elsewhere)
}

async fn by_id(aws: &Inspector, cluster: &str, node: &Node, id: &InstanceId) -> Result<Vec<Fact>, ProviderError> {
    let mut facts = vec![links::provider_id(node, &format!("instance {id}"), "instance")];
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
    let mut facts = vec![links::provider_id(node, "", "instance")];
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
    // No routes to any node: the route controller is off.
    let none = to_instances.then(|| format!("not in {} yet", table.id));
    let hops: Vec<InstanceId> = InstanceId::parse(&instance.id).into_iter().collect();
    let mut facts = links::routes(node, &hops, &routes::entries(table, "").entries, &table.id, none.as_deref());
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
