//! Removes from an observation, before it is written to a file (`ccm snapshot`), all tags and descriptions that plans
//! do not read: they may contain anything.

use std::collections::BTreeSet;

use super::claim::Marks;
use super::names;
use super::observed::{Observed, TargetGroup};
use super::rules::shared::DESCRIPTIONS;
use super::subnets::{self, NAME, ROLE_INTERNAL, ROLE_PUBLIC};
use super::wanted::{Common, Subnets, Wanted};
use crate::client::Tags;
use crate::client::ec2::SecurityGroup;
use crate::ownership::{CLUSTER_PREFIX, LEGACY_KEY, SERVICE_KEY};

pub(super) fn redact(desired: &Wanted, observed: &mut Observed) {
    let filter = TagFilter::new(desired.goal.common());
    // All fields by name, so that a new field is considered here.
    let Observed {
        classic,
        network,
        unattached_target_groups,
        target_groups_denied: _,
        groups_denied: _,
        groups,
        subnets,
        route_tables,
        zones: _,
        instances: _,
        other_balancers: _,
        own_probes: _,
        network_balancers: _,
        missing_instances: _,
        doubtful_instances: _,
        foreign_instances: _,
        shared_groups: _,
        unread: _,
        unread_groups: _,
        unread_settings: _,
        unread_classic: _,
        unread_network: _,
        only_address: _,
        node_groups: _,
        unread_targets: _,
    } = observed;
    if let Some(classic) = classic {
        filter.redact_marks(&mut classic.tags);
        filter.redact(&mut classic.added_tags);
    }
    let mut target_groups: Vec<&mut TargetGroup> = unattached_target_groups.iter_mut().collect();
    if let Some(network) = network {
        filter.redact_marks(&mut network.tags);
        target_groups.extend(&mut network.target_groups);
    }
    target_groups.into_iter().for_each(|group| filter.redact_marks(&mut group.tags));
    groups.values_mut().for_each(|group| filter.redact_group(group));
    for subnet in subnets.values_mut() {
        let is_meant = |tag: &str| filter.names.iter().any(|name| subnets::matches(name, tag));
        let name = subnet.tags.remove_entry(NAME).filter(|(_, tag)| is_meant(tag));
        filter.redact(&mut subnet.tags);
        subnet.tags.extend(name);
    }
    route_tables.iter_mut().for_each(|table| filter.redact(&mut table.tags));
}

struct TagFilter<'a> {
    /// Keys of the Service's annotation.
    keys: BTreeSet<&'a str>,
    /// Names of subnets in the Service's annotation.
    names: &'a [String],
}

impl<'a> TagFilter<'a> {
    fn new(common: Option<&'a Common>) -> Self {
        let keys = common.map(|common| common.tags.keys().map(String::as_str).collect());
        let names = match common.map(|common| &common.subnets) {
            Some(Subnets::Named(names)) => names,
            Some(Subnets::Discover) | None => &[][..],
        };
        Self { keys: keys.unwrap_or_default(), names }
    }

    fn redact(&self, tags: &mut Tags) {
        let ours = [LEGACY_KEY, SERVICE_KEY, ROLE_PUBLIC, ROLE_INTERNAL];
        tags.retain(|key, _| {
            ours.contains(&key.as_str()) || key.starts_with(CLUSTER_PREFIX) || self.keys.contains(key.as_str())
        });
    }

    fn redact_marks(&self, marks: &mut Marks) {
        if let Marks::Read(tags) = marks {
            self.redact(tags);
        }
    }

    fn redact_group(&self, group: &mut SecurityGroup) {
        self.redact(&mut group.tags);
        if !names::is_group_description(&group.description) {
            group.description.clear();
        }
        let sources = group.ingress.iter_mut().flat_map(|permission| &mut permission.sources);
        for source in sources.filter(|source| !DESCRIPTIONS.iter().any(|ours| source.description.contains(ours))) {
            source.description.clear();
        }
    }
}
