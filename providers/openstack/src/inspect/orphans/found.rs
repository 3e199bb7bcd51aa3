//! Finds orphans, with the reason and whether they may be deleted.

use ccm_kit::inspect::orphans::{self, Unclaimed};
use ccm_provider::Risk;
use futures::future::try_join_all;

use super::*;
use crate::client::network::Port;
use crate::loadbalancer::claim::{Claim, Evidence, utc};
use crate::loadbalancer::observed::service_tags;
use crate::loadbalancer::plan::namesake;

/// Maximum number of concurrent reads.
const AT_ONCE: usize = 20;

pub(super) async fn orphans(
    openstack: &Inspector,
    inventory: &Inventory,
    claimed: &Claimed<'_>,
) -> Result<Vec<Orphan>, ProviderError> {
    let mut orphans = Vec::new();
    let balancers: Vec<(&LoadBalancer, Marks)> =
        inventory.balancers.iter().filter_map(|lb| Some((lb, balancer(lb, inventory.has_tags, claimed)?))).collect();
    for some in balancers.chunks(AT_ONCE) {
        let made = some.iter().map(|(lb, marks)| async {
            let kept = match &marks.doubt {
                Some(doubt) => Some(doubt.clone()),
                None => not_our_balancer(openstack, lb, &marks.service, claimed).await?,
            };
            Ok::<_, ProviderError>(of_balancer(lb, marks, kept, claimed))
        });
        orphans.extend(try_join_all(made).await?);
    }
    let going: BTreeSet<&str> =
        orphans.iter().filter(|orphan| orphan.kept.is_none()).map(|orphan| &*orphan.id).collect();
    let ports: BTreeSet<&str> =
        inventory.balancers.iter().filter(|lb| going.contains(&*lb.id)).map(|lb| &*lb.vip_port_id).collect();
    let ips: Vec<Orphan> = inventory.floating_ips.iter().filter_map(|ip| floating_ip(ip, &ports, claimed)).collect();
    orphans.extend(ips);
    let groups: Vec<(&SecurityGroup, Marks)> =
        inventory.security_groups.iter().filter_map(|group| Some((group, group_marks(group, claimed)?))).collect();
    for some in groups.chunks(AT_ONCE) {
        let made = some.iter().map(|(group, marks)| async {
            let ports = openstack.client.ports(Query::default().with("security_groups", &group.id)).await?;
            let kept = marks.doubt.clone().or_else(|| not_our_ports(&ports, claimed));
            Ok::<_, ProviderError>(of_group(group, marks, kept, claimed))
        });
        orphans.extend(try_join_all(made).await?);
    }
    Ok(orphans)
}

/// The owner of an object, from its name and description.
#[derive(Debug)]
pub(super) struct Marks {
    /// `namespace/name`
    service: String,
    /// The Service's UID, in the name of a security group.
    uid: String,
    /// The reason for doubt about the owner.
    doubt: Option<String>,
}

/// The owner of an unclaimed balancer of this cluster.
fn balancer(lb: &LoadBalancer, has_tags: bool, claimed: &Claimed<'_>) -> Option<Marks> {
    let (cluster, namespace, name) = names::fields(&lb.name)?;
    let is_going = matches!(&*lb.provisioning_status, "PENDING_DELETE" | "DELETED");
    let mut tags = service_tags(&lb.tags);
    let is_claimed = claimed.names.contains(&lb.name)
        || claimed.ids.contains(&*lb.id)
        || tags.clone().any(|tag| claimed.names.contains(tag));
    if cluster != claimed.cluster || is_going || is_claimed {
        return None;
    }
    let service = format!("{namespace}/{name}");
    let doubt = if names::is_cut(&lb.name) {
        Some("its name was cut, so that its Service is not certain; remove it by hand".to_owned())
    } else if lb.description != names::Descriptions::of(cluster, &service).balancer {
        Some("its description is not that of this cluster's load balancer; remove it by hand".to_owned())
    } else if has_tags && !lb.tags.contains(&lb.name) {
        Some(format!("it lacks the tag {}; remove it by hand", lb.name))
    } else {
        tags.find(|tag| **tag != lb.name).map(|tag| format!("another cluster uses it: it has the tag {tag}"))
    };
    Some(Marks { service, uid: String::new(), doubt })
}

/// The reason why a balancer may belong to another cluster with the same name.
async fn not_our_balancer(
    openstack: &Inspector,
    lb: &LoadBalancer,
    service: &str,
    claimed: &Claimed<'_>,
) -> Result<Option<String>, ProviderError> {
    let former = orphans::former(service, "")?;
    let balancers = openstack.balancers()?;
    Ok(match balancers.claim_of(claimed.cluster, &former, lb, &claimed.addresses).await? {
        (_, Evidence::Empty) => claimed.unsure(),
        (_, Evidence::Nothing) if claimed.addresses.is_empty() => claimed.unsure(),
        (Claim::Own, _) => None,
        _ => Some(namesake(lb)),
    })
}

fn of_balancer(lb: &LoadBalancer, marks: &Marks, kept: Option<String>, claimed: &Claimed<'_>) -> Orphan {
    let (id, name, service) = (lb.id.clone(), lb.name.clone(), marks.service.clone());
    let unclaimed = Unclaimed {
        kind: "LoadBalancer",
        owner: format!("service {service}"),
        why: claimed.services.why(&service),
        marks: "its name, description and tag".to_owned(),
        kept,
        risk: Risk::Disruptive,
        handle: OrphanRef::LoadBalancer { id: id.clone(), name: name.clone(), service },
        id,
        name,
    };
    Orphan { created: utc(&lb.created_at), ..unclaimed.into() }
}

fn floating_ip(ip: &FloatingIp, going: &BTreeSet<&str>, claimed: &Claimed<'_>) -> Option<Orphan> {
    let rest = ip.description.strip_prefix("Floating IP for Kubernetes external service ")?;
    let (service, cluster) = rest.split_once(" from cluster ")?;
    if cluster != claimed.cluster || claimed.services.claims(service) {
        return None;
    }
    let port = ip.port_id.clone().filter(|port| !port.is_empty());
    let kept = match &port {
        _ if names::is_cut(&ip.description) => Some("its description was cut; remove it by hand".to_owned()),
        Some(port) if going.contains(&**port) => None,
        Some(port) => Some(format!("it is bound to the port {port}")),
        None => claimed.unsure(),
    };
    let unclaimed = Unclaimed {
        kind: "FloatingIP",
        id: ip.id.clone(),
        name: ip.floating_ip_address.clone(),
        owner: format!("service {service}"),
        why: claimed.services.why(service),
        marks: "its description. The annotation keep-floatingip may have kept it on purpose: a deleted address does not come back"
            .to_owned(),
        kept,
        risk: Risk::Disruptive,
        handle: OrphanRef::FloatingIp { id: ip.id.clone(), description: ip.description.clone(), port },
    };
    Some(unclaimed.into())
}

/// The owner of an unclaimed security group of this cluster.
fn group_marks(group: &SecurityGroup, claimed: &Claimed<'_>) -> Option<Marks> {
    let rest = group.description.strip_prefix("Security Group for ")?;
    let (service, cluster) = rest.split_once(" Service LoadBalancer in cluster ")?;
    let (namespace, name) = service.split_once('/')?;
    let uid = group.name.strip_prefix("lb-sg-")?.strip_suffix(&format!("-{namespace}-{name}"))?;
    if cluster != claimed.cluster || uid.is_empty() || claimed.groups.contains(&group.name) {
        return None;
    }
    let doubt = claimed.services.namesake(service);
    Some(Marks { service: service.to_owned(), uid: uid.to_owned(), doubt })
}

/// The reason why a group may belong to another cluster with the same name.
fn not_our_ports(ports: &[Port], claimed: &Claimed<'_>) -> Option<String> {
    if ports.is_empty() || claimed.servers.is_empty() {
        return claimed.unsure();
    }
    let foreign = ports.iter().find(|port| !claimed.servers.contains(&port.device_id))?;
    Some(format!("port {} has it, which is not that of a node of this cluster; remove it by hand", foreign.id))
}

fn of_group(group: &SecurityGroup, marks: &Marks, kept: Option<String>, claimed: &Claimed<'_>) -> Orphan {
    let (id, name) = (group.id.clone(), group.name.clone());
    let (uid, service) = (marks.uid.clone(), marks.service.clone());
    let unclaimed = Unclaimed {
        kind: "SecurityGroup",
        owner: format!("service {service}"),
        why: claimed.services.why(&service),
        marks: "its name and description".to_owned(),
        kept,
        risk: Risk::None,
        handle: OrphanRef::SecurityGroup { id: id.clone(), name: name.clone(), uid, service },
        id,
        name,
    };
    unclaimed.into()
}
