//! Checks of every plan, regardless of its inputs. Pure.

use ccm_provider::{ProviderError, ServiceAction};

use super::desired::Desired;
use super::names;
use super::observed::{Observed, service_tags};
use super::step::{Step, Write};
use crate::client::octavia::ERROR;
use crate::client::operation::{LISTENER_DELETE, LISTENER_UPDATE};

/// Rejects a plan that changes objects that are not ours.
pub(super) fn guard(observed: &Observed, desired: &Desired, steps: &[Step]) -> Result<(), ProviderError> {
    for step in steps {
        let Some(item) = desired.items.get(&step.item) else {
            return Err(ProviderError::bug("a step is for no Service"));
        };
        match &step.write {
            Write::DeleteBalancer { id, .. } => {
                let lb = observed.balancers.get(id).map(|balancer| &balancer.lb);
                let may = lb.is_some_and(|lb| {
                    let made_by_us = names::is_service_tag(&lb.name) || lb.name == item.legacy;
                    let is_over = item.action == ServiceAction::Delete || lb.provisioning_status == ERROR;
                    is_over && made_by_us && service_tags(&lb.tags).all(|tag| item.owns(tag, lb))
                });
                if !may {
                    return Err(ProviderError::bug(format!(
                        "load balancer {id} is not this Service's alone: not deleted"
                    )));
                }
            }
            Write::Octavia { balancer, operation, path, .. }
                if [LISTENER_DELETE, LISTENER_UPDATE].contains(operation) =>
            {
                let id = path.rsplit('/').next().unwrap_or_default();
                let Some(balancer) = observed.balancers.get(balancer) else { continue };
                let foreign = balancer.listeners.iter().find(|listener| listener.id == id).is_some_and(|listener| {
                    let mut tags = service_tags(&listener.tags);
                    tags.clone().next().is_some() && !tags.any(|tag| item.owns(tag, &balancer.lb))
                });
                if foreign {
                    return Err(ProviderError::bug(format!("listener {id} is another Service's: not changed")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
