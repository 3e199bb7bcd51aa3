//! Deletes one orphan after reading it again, with the writes of the controllers.

use ccm_kit::inspect::orphans;

use super::*;
use crate::annotations::{KEEP_FLOATING_IP, LOAD_BALANCER_ID};
use crate::inspect::current::PLACE;
use crate::loadbalancer::observed::{Observed, service_tags};

/// # Errors
///
/// The orphan must be kept, no longer shows its owner, is in use, or OpenStack refused.
pub(in crate::inspect) async fn delete(
    openstack: &Inspector,
    cluster: &str,
    orphan: &Orphan,
) -> Result<(), ProviderError> {
    let balancers = openstack.balancers()?;
    match &orphans::handle(orphan)? {
        OrphanRef::LoadBalancer { id, name, service } => {
            let is_there = |observed: &Observed| match observed.balancer(PLACE).map(|balancer| &balancer.lb) {
                Some(lb) if lb.id == *id => {
                    let tags_are_ours = service_tags(&lb.tags).all(|tag| tag == name);
                    let is_ours = lb.description == names::Descriptions::of(cluster, service).balancer;
                    if lb.name == *name && tags_are_ours && is_ours { Ok(true) } else { Err(lost(orphan)) }
                }
                // Another balancer of this name is another orphan.
                _ => Ok(false),
            };
            let mut made_for = orphans::former(service, "")?;
            let annotations = &mut made_for.metadata.annotations;
            annotations.insert(LOAD_BALANCER_ID.row.key.to_owned(), id.clone());
            // A floating IP is a separate orphan.
            annotations.insert(KEEP_FLOATING_IP.row.key.to_owned(), "true".to_owned());
            let kinds = ["LoadBalancer", "Listener", "Pool", "HealthMonitor"];
            orphans::delete(balancers, cluster, &made_for, is_there, |step| kinds.contains(&&*step.summary.kind)).await
        }
        OrphanRef::SecurityGroup { id, name, uid, service } => {
            let is_there = |observed: &Observed| {
                let found = observed.groups.get(&PLACE).and_then(|group| group.group.as_ref());
                match found.filter(|group| group.id == *id) {
                    Some(group) if group.name == *name => Ok(true),
                    Some(_) => Err(lost(orphan)),
                    None => Ok(false),
                }
            };
            let (made_for, kinds) = (orphans::former(service, uid)?, ["Port", "SecurityGroup"]);
            orphans::delete(balancers, cluster, &made_for, is_there, |step| kinds.contains(&&*step.summary.kind)).await
        }
        OrphanRef::FloatingIp { id, description, port } => {
            let found = openstack.client.floating_ips(Query::default().with("id", id)).await?;
            let Some(ip) = found.into_iter().find(|ip| ip.id == *id) else { return Ok(()) };
            if ip.description != *description {
                return Err(lost(orphan));
            }
            match ip.port_id.filter(|bound| !bound.is_empty() && Some(bound) != port.as_ref()) {
                Some(bound) => Err(orphans::refused(orphan, format!("it is bound to the port {bound}"))),
                None => Ok(openstack.client.delete_floating_ip(id).await?),
            }
        }
    }
}

fn lost(orphan: &Orphan) -> ProviderError {
    orphans::changed(orphan, "name, tags or description")
}
