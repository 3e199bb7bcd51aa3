//! From a node to its instance, and on to what marks and surrounds that.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Lookup, Node, ProviderError, address};

use super::{Inspector, group_for_balancers, unreadable};
use crate::client::Query;
use crate::client::ec2::{Instance, RouteTable};
use crate::node::fargate;
use crate::node::fleet::Member;
use crate::node::identity::{self, BadProviderId, InstanceId, Machine, Wanted};
use crate::node::instances::describe::{Instances, LIVE_STATES, Seen};
use crate::routes;

/// # Errors
///
/// EC2 could not be asked about the instance.
pub(super) async fn explain(of: &Inspector, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
    match identity::wanted(node, of.settings.own.as_ref()) {
        Wanted::Never(error) => Ok(vec![no_instance(node, &error)]),
        Wanted::Machine(Machine::Fargate(address)) => fargate_node(of, node, address).await,
        Wanted::Machine(Machine::Ec2(id)) => by_id(of, cluster, node, &id).await,
        Wanted::Name(name) => by_name(of, cluster, node, &name).await,
    }
}

fn no_instance(node: &Node, error: &BadProviderId) -> Fact {
    let about = format!("provider ID {}", node.provider_id_or_empty());
    match error {
        BadProviderId::Foreign(_) => {
            Fact::good(about, "belongs to another cloud: nothing is done to the node from here")
        }
        BadProviderId::Malformed(_) => Fact::bad(
            about,
            error.to_string(),
            "spec.providerID cannot be changed: delete the Node and let the kubelet register it again, with the right \
             --provider-id or none",
        ),
    }
}

async fn fargate_node(of: &Inspector, node: &Node, address: Ipv4Addr) -> Result<Vec<Fact>, ProviderError> {
    let found = fargate::interfaces(&*of.api, &of.settings.vpc, &BTreeSet::from([address])).await?;
    let vpc = &of.settings.vpc;
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
        _ => gone(of, node, about, &format!("no attached network interface in {vpc} has this address")).await,
    };
    Ok(vec![id_fact(node, "names a Fargate node"), fact])
}

fn id_fact(node: &Node, names: &str) -> Fact {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Fact::good(format!("provider ID {id}"), names),
        None if node.has_taint(TAINT_UNINITIALIZED) => Fact::waiting(
            "provider ID",
            "not set yet: it is set when the node is initialized, from the instance that its name leads to",
        ),
        None => Fact::good("provider ID", "not set: the instance is the one that the node's name leads to"),
    }
}

/// What the controllers make of a missing instance.
async fn gone(of: &Inspector, node: &Node, about: String, seen: &str) -> Fact {
    let answer = of.instances.lookup(&[Arc::new(node.clone())], Aspects::LIFECYCLE).await.into_iter().next();
    let hint = format!(
        "if the machine is there, it is in another account or region than this program looks at (region {}): correct region \
         or credentials; if it is gone, leave the node to the controllers or delete it",
        of.settings.region
    );
    let text = match answer {
        Some(Lookup::Gone(evidence)) => format!(
            "{seen}: {evidence}. The node is deleted once it is not Ready and older than {} s",
            evidence.grace.as_secs()
        ),
        Some(Lookup::Unknown(error)) => format!("{seen}: {error}. Nothing is done to the node for that"),
        _ => format!("{seen}, in one of two reads: EC2 does not answer alike yet"),
    };
    Fact::bad(about, text, hint)
}

async fn by_id(of: &Inspector, cluster: &str, node: &Node, id: &InstanceId) -> Result<Vec<Fact>, ProviderError> {
    let mut facts = vec![id_fact(node, &format!("names instance {id}"))];
    let answers = Instances(of.api.clone()).by_ids(&BTreeSet::from([id.clone()])).await;
    let Some((_, answer)) = answers.into_iter().next() else { return Ok(facts) };
    match answer?.remove(id) {
        Some(Seen::Instance(instance)) => facts.extend(around(of, cluster, node, &instance).await),
        Some(Seen::Denied) | None => {
            facts.push(gone(of, node, format!("instance {id}"), "EC2 does not show it").await);
        }
    }
    Ok(facts)
}

async fn by_name(of: &Inspector, cluster: &str, node: &Node, name: &str) -> Result<Vec<Fact>, ProviderError> {
    // Without the cluster's mark too: an instance that merely lacks it is the likeliest reason.
    let query = Query::by("private-dns-name", [name]).and("instance-state-name", LIVE_STATES);
    let found = of.api.instances(&query).await?;
    let mut facts = vec![id_fact(node, "")];
    match &*found {
        [instance] => facts.extend(around(of, cluster, node, instance).await),
        [] => {
            let about = format!("instance named {name}");
            let seen = "no live instance has the node's name as its private DNS name";
            facts.push(match gone(of, node, about, seen).await {
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

async fn around(of: &Inspector, cluster: &str, node: &Node, instance: &Instance) -> Vec<Fact> {
    let mut facts = vec![state(node, instance)];
    if instance.state.as_deref() == Some("terminated") {
        return facts;
    }
    facts.extend(vpc(of, instance));
    facts.push(name(node, instance));
    facts.extend(mark(of, instance));
    facts.push(security_groups(of, node, instance).await);
    facts.extend(pod_routes(of, cluster, node, instance).await);
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
            "start the instance, or terminate it: then the node goes",
        ),
        Some(other) => Fact::waiting(about, format!("{other}, {place}")),
        None => Fact::waiting(about, "EC2 gives no state: nothing follows from that, it is asked again"),
    }
}

fn vpc(of: &Inspector, instance: &Instance) -> Option<Fact> {
    let ours = &of.settings.vpc;
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
        format!(
            "not the private DNS name ({}); the provider ID leads to the instance all the same",
            instance.private_dns_name
        ),
    )
}

fn mark(of: &Inspector, instance: &Instance) -> Option<Fact> {
    let key = of.settings.ownership.cluster_key()?;
    let about = format!("tag {key}");
    if of.settings.ownership.is_member(&instance.tags) {
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

async fn security_groups(of: &Inspector, node: &Node, instance: &Instance) -> Fact {
    let about = "security groups";
    if of.env().node_groups_untouched {
        return Fact::good(about, "DisableSecurityGroupIngress is set: their rules are left alone");
    }
    let groups = match of.groups(&instance.security_groups).await {
        Ok(groups) => groups,
        Err(error) => return unreadable(about, error),
    };
    match group_for_balancers(instance, &node.name, &groups, of.env()) {
        Ok(Some(id)) => {
            let name = groups.get(&id).map(|group| format!(" ({})", group.name)).unwrap_or_default();
            Fact::good(format!("security group {id}"), format!("gets the rules that let load balancers in{name}"))
        }
        Ok(None) => Fact::bad(
            about,
            "the instance has none: no rule lets load balancers in",
            "give the instance a security group",
        ),
        Err(error) => Fact::bad(about, error.to_string(), format!("tag exactly one of them {} = owned", of.mark())),
    }
}

/// The routes to the node's pods, where the cluster keeps routes at all.
async fn pod_routes(of: &Inspector, cluster: &str, node: &Node, instance: &Instance) -> Vec<Fact> {
    let tables = match routes::tables(&*of.api, &of.routes).await {
        Ok(tables) => tables,
        Err(error) if of.routes.table.is_some() => return vec![unreadable("route table", error)],
        // Who makes no routes needs no right to see them.
        Err(error) => return vec![Fact::good("pod routes", format!("not looked at: {}", ProviderError::from(error)))],
    };
    match routes::only_table(&tables, cluster, &of.routes) {
        Ok(table) => of_table(table, node, instance),
        // Named, so it is meant to be there.
        Err(error) if of.routes.table.is_some() => {
            vec![Fact::bad(
                "route table",
                error.to_string(),
                "correct RouteTableID in section [Global] of the cloud config",
            )]
        }
        // A cluster without pod routes has none, or marks all of its tables.
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
                Some(Fact::waiting(about, format!("leads nowhere in {}: the route controller replaces it", table.id)))
            }
            Some(route) if route.instance.as_ref() == Some(&instance.id) => {
                Some(Fact::good(about, format!("leads to the instance in {}", table.id)))
            }
            Some(route) => {
                let to = [route.instance.as_ref(), route.interface.as_ref(), Some(&route.gateway)];
                let to = to.into_iter().flatten().find(|to| !to.is_empty()).map_or("something else", |to| to);
                let hint = format!("remove the route from {} if it is not needed", table.id);
                Some(Fact::bad(about, format!("leads to {to} in {}, not to this instance", table.id), hint))
            }
            None if to_instances => Some(Fact::waiting(about, format!("not in {} yet", table.id))),
            // No routes to any node: they are not made here.
            None => None,
        });
    }
    facts.extend(forwarding(table, instance));
    facts
}

/// Packets for pods are dropped where the check is on.
fn forwarding(table: &RouteTable, instance: &Instance) -> Option<Fact> {
    table.routes.iter().find(|route| route.instance.as_ref() == Some(&instance.id))?;
    let member = Member::of(InstanceId::parse(&instance.id)?, instance);
    let interface = member.primary_interface.unwrap_or_default();
    match member.source_dest_check {
        Some(true) => Some(Fact::bad(
            "source/destination check",
            "on, though a route leads to the instance: EC2 drops packets for its pods",
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
