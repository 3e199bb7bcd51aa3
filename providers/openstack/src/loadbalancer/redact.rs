//! Removes from an observation, before it is written to a file (`ccm snapshot`), all tags and descriptions that plans
//! do not read: they may contain anything.

use std::collections::BTreeSet;

use super::names;
use super::observed::{Balancer, Group, Observed};
use super::wanted::Wanted;

/// Keeps only what plans for this desired state read.
pub(super) fn redact(wanted: &Wanted, observed: &mut Observed) {
    let settings = wanted.items.values().filter_map(|item| item.settings.as_ref());
    let asked = settings.flat_map(|settings| {
        let tags = &settings.tags;
        [&tags.balancer, &tags.listener, &tags.pool].into_iter().flatten()
    });
    let asked: BTreeSet<&str> = asked.map(String::as_str).collect();
    let tags = |tags: &mut Vec<String>| tags.retain(|tag| names::is_service_tag(tag) || asked.contains(tag.as_str()));
    // Every field is listed, so that a new one is considered here.
    let Observed {
        version: _,
        balancer_of: _,
        balancers,
        evidence: _,
        left_behind: _,
        left_namesakes: _,
        floating_ips,
        places: _,
        elsewhere: _,
        groups,
        bad_certificates: _,
        unread: _,
        group_problems: _,
        hidden: _,
        busy_for: _,
        short: _,
        leaving: _,
        unsettled: _,
    } = observed;
    for balancer in balancers.values_mut() {
        let Balancer { lb, is_unread: _, listeners, pools, members: _, whole: _, monitors: _, unread_monitors: _ } =
            balancer;
        description(&mut lb.description);
        tags(&mut lb.tags);
        for listener in listeners {
            listener.description.clear();
            tags(&mut listener.tags);
        }
        pools.iter_mut().for_each(|pool| tags(&mut pool.tags));
    }
    floating_ips.iter_mut().for_each(|ip| description(&mut ip.description));
    for group in groups.values_mut() {
        let Group { group, subnet, kept_subnets, has_unknown_subnets: _, ports: _, with_group: _, unknown_node: _ } =
            group;
        group.iter_mut().for_each(|group| group.description.clear());
        subnet.iter_mut().chain(kept_subnets).for_each(|subnet| subnet.name.clear());
    }
}

fn description(text: &mut String) {
    if !names::is_description(text) {
        text.clear();
    }
}
