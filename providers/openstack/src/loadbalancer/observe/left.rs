//! The balancers that Services have left for others.

use ccm_provider::{ProviderError, ServiceAction};

use super::super::address;
use super::super::batched::By;
use super::super::claim;
use super::super::env::Features;
use super::super::observed::{Evidence, Observed};
use super::super::plan::not_ours;
use super::super::wanted::{Item, Target};
use super::{Reads, is_going};
use crate::client::network::FloatingIp;
use crate::client::octavia::LoadBalancer;

impl Reads {
    /// The other balancers that have something of a Service, if a member shows that it is ours: what was created for it,
    /// and what it shared.
    pub(super) async fn left_behind(
        &self,
        item: &Item,
        place: usize,
        observed: &mut Observed,
        nodes: impl Fn() -> Vec<Target>,
    ) -> Result<(), ProviderError> {
        let has_tags = Features::of(observed.version, "").tags;
        let is_over = item.action == ServiceAction::Delete;
        let was_made = |lb: &LoadBalancer| [&item.name, &item.legacy].contains(&&lb.name);
        let by = match item.action {
            ServiceAction::Delete if has_tags => By::Tag(item.name.clone()),
            ServiceAction::Delete if observed.balancer(place).is_some_and(|balancer| !was_made(&balancer.lb)) => {
                By::Name(item.name.clone())
            }
            ServiceAction::Ensure if has_tags && has_moved(item, observed, place) => By::Tag(item.name.clone()),
            _ => return Ok(()),
        };
        for lb in self.balancers.ask_one(by).await?.transpose()?.unwrap_or_default() {
            // Its user may go back to the Service's own one.
            let is_kept = !is_over && was_made(&lb);
            if observed.balancer_of.get(&place) == Some(&lb.id) || is_going(&lb) || is_kept {
                continue;
            }
            let left = self.whole(&lb).await?;
            let is_known = self.ours.lock().contains(&claim::known(item, &lb));
            if is_known || self.evidence(item, &left, &nodes()).await? == Evidence::Member {
                let bound = self.floating_ips.ask_one(lb.vip_port_id.clone()).await?.filter(|_| is_over);
                let is_known = |ip: &FloatingIp| observed.floating_ips.iter().any(|known| known.id == ip.id);
                let new = bound.filter(|ip| !is_known(ip));
                observed.floating_ips.extend(new);
                observed.left_behind.entry(place).or_default().insert(lb.id.clone());
                observed.balancers.insert(lb.id.clone(), left);
            } else if is_over {
                observed.left_namesakes.entry(place).or_default().push(not_ours(&lb.id, &item.mark(&lb)));
            }
        }
        Ok(())
    }
}

/// Whether the noted address is that of another balancer or floating IP than the present ones.
fn has_moved(item: &Item, observed: &Observed, place: usize) -> bool {
    let is_noted = |noted: &String| address(observed, place, item).as_ref() == Some(noted);
    item.noted_address.as_ref().is_some_and(|noted| !is_noted(noted))
}
