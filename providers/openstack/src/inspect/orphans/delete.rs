//! Deletes one orphan after reading it again, with the writes of the controllers.

use ccm_provider::{Planned as _, ServiceAction, ServiceWork, Steps};

use super::*;
use crate::annotations::{KEEP_FLOATING_IP, LOAD_BALANCER_ID};
use crate::inspect::current::PLACE;
use crate::loadbalancer::observed::{Observed, service_tags};

/// # Errors
///
/// The orphan must be kept, has lost its marks, is in use, or OpenStack refused.
pub(in crate::inspect) async fn delete(
    openstack: &Inspector,
    cluster: &str,
    orphan: &Orphan,
) -> Result<(), ProviderError> {
    let what = format!("{} {}", orphan.kind, orphan.id);
    if let Some(kept) = &orphan.kept {
        return Err(refused(&what, kept));
    }
    let handle = serde_json::from_value(orphan.handle.clone())
        .map_err(|error| ProviderError::bug(format!("{what} was not reported by this program: {error}")))?;
    match &handle {
        OrphanRef::LoadBalancer { id, name, service } => {
            let marked = |observed: &Observed| match observed.balancer(PLACE).map(|balancer| &balancer.lb) {
                Some(lb) if lb.id == *id => {
                    let tags_are_ours = service_tags(&lb.tags).all(|tag| tag == name);
                    let is_ours = lb.description == names::Descriptions::of(cluster, service).balancer;
                    if lb.name == *name && tags_are_ours && is_ours { Ok(true) } else { Err(lost(&what)) }
                }
                // Another one of this name is another orphan.
                _ => Ok(false),
            };
            let mut made_for = self::service(service)?;
            let annotations = &mut made_for.metadata.annotations;
            annotations.insert(LOAD_BALANCER_ID.row.key.to_owned(), id.clone());
            // A floating IP is an orphan of its own.
            annotations.insert(KEEP_FLOATING_IP.row.key.to_owned(), "true".to_owned());
            let kinds = ["LoadBalancer", "Listener", "Pool", "HealthMonitor"];
            write(openstack, cluster, made_for, &kinds, marked).await
        }
        OrphanRef::SecurityGroup { id, name, uid, service } => {
            let marked = |observed: &Observed| {
                let found = observed.groups.get(&PLACE).and_then(|group| group.group.as_ref());
                match found.filter(|group| group.id == *id) {
                    Some(group) if group.name == *name => Ok(true),
                    Some(_) => Err(lost(&what)),
                    None => Ok(false),
                }
            };
            let mut made_for = self::service(service)?;
            made_for.metadata.uid = uid.as_str().into();
            write(openstack, cluster, made_for, &["Port", "SecurityGroup"], marked).await
        }
        OrphanRef::FloatingIp { id, description, port } => {
            let found = openstack.client.floating_ips(Query::default().with("id", id)).await?;
            let Some(ip) = found.into_iter().find(|ip| ip.id == *id) else { return Ok(()) };
            if ip.description != *description {
                return Err(lost(&what));
            }
            match ip.port_id.filter(|bound| !bound.is_empty() && Some(bound) != port.as_ref()) {
                Some(bound) => Err(refused(&what, &format!("it is bound to the port {bound}"))),
                None => Ok(openstack.client.delete_floating_ip(id).await?),
            }
        }
    }
}

fn refused(what: &str, why: &str) -> ProviderError {
    ProviderError::unknown(format!("{what} is not deleted: {why}"))
}

fn lost(what: &str) -> ProviderError {
    refused(what, "its name, tags or description, by which it was recognized, have changed")
}

/// A Service that is no longer there.
fn service(key: &str) -> Result<Service, ProviderError> {
    let (namespace, name) =
        key.split_once('/').ok_or_else(|| ProviderError::bug(format!("{key:?} names no Service")))?;
    let mut service = Service::default();
    service.metadata.namespace = namespace.into();
    service.metadata.name = name.into();
    Ok(service)
}

/// The steps of the controller that delete what a Service left, as far as they are about these kinds.
async fn write(
    openstack: &Inspector,
    cluster: &str,
    service: Service,
    kinds: &[&str],
    marked: impl Fn(&Observed) -> Result<bool, ProviderError>,
) -> Result<(), ProviderError> {
    let work = [ServiceWork::new(&service, &[], ServiceAction::Delete)];
    let balancers = openstack.balancers()?;
    let (desired, verdicts) = balancers.desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    if !marked(&observed)? {
        return Ok(());
    }
    let Steps { mut steps, failed, .. } = balancers.plan(&observed, &desired)?;
    failed.into_values().next().map_or(Ok(()), Err)?;
    steps.retain(|step| kinds.contains(&step.kind));
    balancers.guard(&observed, &desired, &steps)?;
    let outputs = Default::default();
    for step in &steps {
        balancers.apply(step, &outputs).await?;
    }
    balancers.finish(&outputs)
}
