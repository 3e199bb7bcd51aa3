//! What of an observation gets into a file that is handed on (`ccm snapshot`): tags and descriptions that plans read, and none
//! of those that users write for themselves.

use std::collections::BTreeSet;

use super::desired::{Common, Desired, Goal, Subnets};
use super::names;
use super::observe::{Observed, TargetGroup};
use super::security_groups::nodes::DESCRIPTIONS;
use super::subnets::{NAME, ROLE_INTERNAL, ROLE_PUBLIC};
use crate::client::Tags;
use crate::client::ec2::SecurityGroup;
use crate::ownership::{CLUSTER_PREFIX, LEGACY_KEY, SERVICE_KEY};

/// Leaves what plans for this wish read.
pub(super) fn strip(desired: &Desired, observed: &mut Observed) {
    let common = match &desired.goal {
        Goal::Absent => None,
        Goal::Classic(classic) => Some(&classic.common),
        Goal::Network(network) => Some(&network.common),
    };
    let read = Read::new(common);
    // All fields by name: what is added to the observation must be looked at here, too.
    let Observed {
        classic,
        network,
        unattached_target_groups,
        groups,
        subnets,
        route_tables,
        zones: _,
        instances: _,
        other_balancers: _,
        unseen: _,
    } = observed;
    if let Some(classic) = classic {
        read.strip(&mut classic.tags);
    }
    let mut target_groups: Vec<&mut TargetGroup> = unattached_target_groups.iter_mut().collect();
    if let Some(network) = network {
        read.strip(&mut network.tags);
        target_groups.extend(&mut network.target_groups);
    }
    target_groups.into_iter().for_each(|group| read.strip(&mut group.tags));
    groups.values_mut().for_each(|group| read.strip_group(group));
    for subnet in subnets.values_mut() {
        let name = subnet.tags.remove_entry(NAME).filter(|(_, name)| read.names.contains(name.as_str()));
        read.strip(&mut subnet.tags);
        subnet.tags.extend(name);
    }
    route_tables.iter_mut().for_each(|table| read.strip(&mut table.tags));
}

/// What plans read of tags.
struct Read<'a> {
    /// Keys that the Service asks for.
    keys: BTreeSet<&'a str>,
    /// Names of subnets that the Service asks for.
    names: BTreeSet<&'a str>,
}

impl<'a> Read<'a> {
    fn new(common: Option<&'a Common>) -> Self {
        let keys = common.map(|common| common.tags.keys().map(String::as_str).collect());
        let names = common.and_then(|common| match &common.subnets {
            Subnets::Named(names) => Some(names.iter().map(String::as_str).collect()),
            Subnets::Discover => None,
        });
        Self { keys: keys.unwrap_or_default(), names: names.unwrap_or_default() }
    }

    fn strip(&self, tags: &mut Tags) {
        let ours = [LEGACY_KEY, SERVICE_KEY, ROLE_PUBLIC, ROLE_INTERNAL];
        tags.retain(|key, _| {
            ours.contains(&key.as_str()) || key.starts_with(CLUSTER_PREFIX) || self.keys.contains(key.as_str())
        });
    }

    fn strip_group(&self, group: &mut SecurityGroup) {
        self.strip(&mut group.tags);
        if !names::is_group_description(&group.description) {
            group.description.clear();
        }
        let sources = group.ingress.iter_mut().flat_map(|permission| &mut permission.sources);
        for source in sources.filter(|source| !DESCRIPTIONS.iter().any(|ours| source.description.contains(ours))) {
            source.description.clear();
        }
    }
}
