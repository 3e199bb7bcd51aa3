//! Checks of every plan, regardless of its inputs. Pure.

use ccm_provider::{ProviderError, ServiceAction};

use super::claim::claim;
use super::desired::Desired;
use super::names;
use super::observed::{Observed, service_tags};
use super::step::{Step, Write};
use crate::client::octavia::{ERROR, Listener};
use crate::client::operation::{LISTENER_DELETE, LISTENER_UPDATE};

/// Rejects a plan that changes objects that are not ours.
pub(super) fn guard(observed: &Observed, desired: &Desired, steps: &[Step]) -> Result<(), ProviderError> {
    for step in steps {
        let Some(item) = desired.items.get(&step.item) else {
            return Err(ProviderError::bug("a step is for no Service"));
        };
        let claim = claim(observed, step.item, item);
        match &step.write {
            Write::DeleteBalancer { id, .. } => {
                let lb = observed.balancers.get(id).map(|balancer| &balancer.lb);
                let may = lb.is_some_and(|lb| {
                    let made_by_us = names::is_service_tag(&lb.name) || lb.name == item.legacy;
                    let is_over = item.action == ServiceAction::Delete || lb.provisioning_status == ERROR;
                    is_over && made_by_us && claim.is_user() && service_tags(&lb.tags).all(|tag| claim.owns(item, tag))
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
                // A balancer goes with all its listeners.
                let goes =
                    |step: &Step| matches!(&step.write, Write::DeleteBalancer { id, .. } if *id == balancer.lb.id);
                let foreign = |listener: &&Listener| listener.id == id && !claim.has_listener(item, listener);
                if balancer.listeners.iter().any(|listener| foreign(&listener)) && !steps.iter().any(goes) {
                    return Err(ProviderError::bug(format!("listener {id} is another Service's: not changed")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
