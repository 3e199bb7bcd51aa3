//! Checks of every plan, regardless of its inputs. Pure.

use ccm_provider::{ProviderError, ServiceAction};

use super::claim::claim;
use super::names;
use super::observed::Observed;
use super::step::{Order, Step, Write};
use super::wanted::Wanted;
use crate::client::octavia::{ERROR, Listener};
use crate::client::operation::{LISTENER_DELETE, LISTENER_UPDATE};

/// The steps that change objects that are not ours, with the reason.
pub(super) fn guard(observed: &Observed, wanted: &Wanted, steps: &[Step]) -> Vec<(usize, ProviderError)> {
    let refusal = |step: &Step| refusal(observed, wanted, steps, &step.write);
    steps.iter().enumerate().filter_map(|(index, step)| Some((index, refusal(step)?))).collect()
}

fn refusal(observed: &Observed, wanted: &Wanted, steps: &[Step], order: &Order) -> Option<ProviderError> {
    let Some(item) = wanted.items.get(&order.place) else {
        return Some(ProviderError::bug("a step is for no Service"));
    };
    let claim = claim(observed, order.place, item);
    match &order.write {
        Write::DeleteBalancer { id, .. } => {
            let may = observed.balancers.get(id).is_some_and(|balancer| {
                let lb = &balancer.lb;
                let made_by_us = names::is_service_tag(&lb.name) || lb.name == item.legacy;
                let is_over = item.action == ServiceAction::Delete || lb.provisioning_status == ERROR;
                let is_ours = claim.is_user() || observed.has_left(order.place, id);
                is_over && made_by_us && is_ours && !observed.is_shared(balancer, |tag| claim.owns(item, tag))
            });
            (!may).then(|| ProviderError::bug(format!("load balancer {id} is not this Service's alone: not deleted")))
        }
        Write::Octavia { balancer, operation, path, .. } if [LISTENER_DELETE, LISTENER_UPDATE].contains(operation) => {
            let id = path.rsplit('/').next().unwrap_or_default();
            let balancer = observed.balancers.get(balancer)?;
            // A balancer goes with all its listeners.
            let goes = |step: &Step| {
                matches!(&step.write.write, Write::DeleteBalancer { id, .. } if *id == balancer.lb.id)
                    && refusal(observed, wanted, steps, &step.write).is_none()
            };
            let is_left = observed.has_left(order.place, &balancer.lb.id);
            let foreign = |listener: &&Listener| {
                let is_ours = claim.has_listener(item, listener)
                    || is_left && listener.tags.iter().any(|tag| claim.owns(item, tag));
                listener.id == id && !is_ours
            };
            (balancer.listeners.iter().any(|listener| foreign(&listener)) && !steps.iter().any(goes))
                .then(|| ProviderError::bug(format!("listener {id} is another Service's: not changed")))
        }
        _ => None,
    }
}
