//! Whose a balancer and its listeners are. Pure.
//!
//! Names, tags and descriptions contain only the cluster name, which several clusters of a project may share: the
//! default is `kubernetes`. So a name alone proves nothing. What proves it: the Service notes the ID of the balancer or
//! publishes its address, this process created it, or a node of this cluster is a member. Annotations are copied by backups, so they do not
//! prove it against the age of the objects: a balancer, or a listener on one that is shared, is never older than the
//! Service that it was created for. The clocks of the cloud and of the API server may differ, so if it is little older,
//! the members decide.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::names;
pub(crate) use super::observed::Evidence;
use super::observed::{Balancer, Observed, service_tags};
use super::wanted::Item;
use crate::client::network::FloatingIp;
use crate::client::octavia::{Listener, LoadBalancer, Member};

/// The maximum clock difference between the cloud and the API server.
pub(super) const SKEW: SignedDuration = SignedDuration::from_secs(60);

/// What a balancer is to a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Created for the Service.
    Own,
    /// Created for another Service, or by a user, and used by this one: it has its tag.
    Shared,
    /// A listener has the tag of the Service, and the balancer has not: a join was interrupted.
    HalfMade,
    /// The Service's under another cluster name: created for it, or used by it.
    FormerName { is_owner: bool },
    /// It has the name or tag of the Service's, and nothing shows that it belongs to this cluster.
    Namesake,
    /// Nothing of the Service is on it.
    Foreign,
    /// It has the name or tag of the Service's, and what would prove more was not read.
    Unread,
}

/// The claim of an item to its balancer. An item without one owns what will be created for it.
pub(crate) fn claim(observed: &Observed, place: usize, item: &Item) -> Claim {
    let Some(balancer) = observed.balancer(place) else { return Claim::Own };
    let (lb, evidence) = (&balancer.lb, observed.evidence.get(&place).copied());
    let (is_copied, is_old) = (may_be_copied(item, balancer), is_old_name(item, lb));
    let is_older = match is_copied || is_old && !item.has_made(lb) {
        true => listeners_of(item, balancer, is_old).any(|listener| item.is_younger_than(&listener.created_at, SKEW)),
        false => item.is_younger_than(&lb.created_at, SKEW),
    };
    if lb.name == item.legacy {
        // It contains the UID of the Service.
        return Claim::Own;
    }
    let proven = |claim| match evidence {
        Some(Evidence::Created | Evidence::Published | Evidence::Member) => claim,
        Some(Evidence::Empty) if !is_older => claim,
        Some(Evidence::Empty | Evidence::Nothing) => Claim::Namesake,
        None => Claim::Unread,
    };
    let checked = |claim| if is_copied { proven(claim) } else { claim };
    if lb.name == item.name {
        return if item.notes(lb) { Claim::Own } else { proven(Claim::Own) };
    }
    if lb.tags.contains(&item.name) {
        return checked(Claim::Shared);
    }
    if is_old {
        return proven(Claim::FormerName { is_owner: names::renamed(&lb.name, &item.name).is_some() });
    }
    match joined(item, balancer).next() {
        Some(_) => checked(Claim::HalfMade),
        None => Claim::Foreign,
    }
}

/// Whether only the members of a balancer, or of what the Service has on it, show that it is the Service's.
pub(super) fn needs_evidence(item: &Item, balancer: &Balancer) -> bool {
    let lb = &balancer.lb;
    is_old_name(item, lb)
        || lb.name == item.name && lb.name != item.legacy && !item.notes(lb)
        || may_be_copied(item, balancer)
}

/// Whether what has the Service's tag on the balancer of another may be that of a Service in another cluster, of which
/// this one is a copy. A copy has no status yet, and a listener can be made again after it.
pub(super) fn may_be_copied(item: &Item, balancer: &Balancer) -> bool {
    let is_new = item.published.is_empty();
    let is_older = |listener: &Listener| item.is_younger_than(&listener.created_at, SKEW);
    item.noted_address.is_some()
        && is_of_another(item, &balancer.lb)
        && joined(item, balancer).any(|listener| is_new || is_older(listener))
}

/// Whether a balancer on which the Service has something was created for another Service, or by a user.
fn is_of_another(item: &Item, lb: &LoadBalancer) -> bool {
    let is_own = [&item.name, &item.legacy].contains(&&lb.name);
    !is_own && (lb.tags.contains(&item.name) || !item.has_made(lb))
}

/// The listeners with the tag of the Service.
fn joined<'b>(item: &'b Item, balancer: &'b Balancer) -> impl Iterator<Item = &'b Listener> {
    listeners_of(item, balancer, false)
}

/// The same, or also those with its tag under an older cluster name.
fn listeners_of<'b>(item: &'b Item, balancer: &'b Balancer, is_old: bool) -> impl Iterator<Item = &'b Listener> {
    balancer.listeners.iter().filter(move |listener| listener.tags.iter().any(|tag| is_tag_of(item, tag, is_old)))
}

/// Whether a tag is that of the Service, also under an older cluster name if `is_old`: a rename may be incomplete.
fn is_tag_of(item: &Item, tag: &str, is_old: bool) -> bool {
    tag == item.name || is_old && names::renamed(tag, &item.name).is_some()
}

/// What is known to be this cluster's when the members have shown it: the balancer, or what the Service has on it.
pub(super) fn known(item: &Item, lb: &LoadBalancer) -> String {
    if is_of_another(item, lb) { format!("{} {}", lb.id, item.name) } else { lb.id.clone() }
}

/// What the members of a balancer that was read show, as far as they may be those of the Service.
pub(super) fn evidence(item: &Item, balancer: &Balancer, is_node: &impl Fn(&Member) -> bool) -> Evidence {
    let is_old = is_old_name(item, &balancer.lb);
    let is_named = balancer.lb.name == item.name || names::renamed(&balancer.lb.name, &item.name).is_some();
    // Others may share the balancer.
    let may_be_ours = |listener: &&Listener| {
        let mut tags = service_tags(&listener.tags).peekable();
        is_named && tags.peek().is_none() || tags.any(|tag| is_tag_of(item, tag, is_old))
    };
    // Other Services of this cluster may keep the balancer while this one is made again.
    let cluster = names::fields(&item.name).map(|(cluster, ..)| cluster);
    let is_of_cluster = |listener: &&Listener| {
        let mut tags = service_tags(&listener.tags);
        !is_old && tags.any(|tag| names::fields(tag).is_some_and(|(of, ..)| Some(of) == cluster))
    };
    match behind(balancer, is_node, may_be_ours) {
        Evidence::Empty if behind(balancer, is_node, is_of_cluster) == Evidence::Member => Evidence::Member,
        found => found,
    }
}

/// What the members behind these listeners show.
fn behind(balancer: &Balancer, is_node: &impl Fn(&Member) -> bool, which: impl Fn(&&Listener) -> bool) -> Evidence {
    let listeners = balancer.listeners.iter().filter(which);
    let pools: BTreeSet<&str> =
        listeners.filter_map(|listener| balancer.pool_of(listener)).map(|pool| &*pool.id).collect();
    let of_pools = balancer.members.iter().filter(|(pool, _)| pools.contains(&***pool));
    let mut members = of_pools.flat_map(|(_, members)| members).peekable();
    match () {
        () if members.peek().is_none() => Evidence::Empty,
        () if members.any(is_node) => Evidence::Member,
        () => Evidence::Nothing,
    }
}

/// Whether the balancer has the Service's name (or, if shared, tag) under an older cluster name, and the Service notes
/// it. A Service of the same name in another cluster may share it.
fn is_old_name(item: &Item, lb: &LoadBalancer) -> bool {
    let is_old = |name: &String| names::renamed(name, &item.name).is_some();
    item.noted_address.is_some()
        && item.annotated.as_ref() == Some(&lb.id)
        && lb.name != item.name
        && !lb.tags.contains(&item.name)
        && (is_old(&lb.name) || lb.tags.iter().any(is_old))
}

impl Item {
    /// Whether the Service notes the balancer's ID: this or the Go program wrote it, or its user did. A copy of the
    /// Service in another cluster has the annotations too, but is younger than the balancer, if only by a second.
    pub(super) fn notes(&self, lb: &LoadBalancer) -> bool {
        // A copy has no status yet. The clocks of the cloud and of the cluster may differ.
        let by = if self.published.is_empty() { SignedDuration::ZERO } else { SKEW };
        let is_copy = self.noted_address.is_some() && self.is_younger_than(&lb.created_at, by);
        self.annotated.as_ref() == Some(&lb.id) && !is_copy
    }

    /// Whether the Service publishes this address of the balancer, and notes none: its annotations were removed.
    pub(super) fn publishes(&self, lb: &LoadBalancer, address: &String) -> bool {
        let is_copy = self.is_younger_than(&lb.created_at, SKEW);
        self.annotated.is_none() && !is_copy && self.published.contains(address)
    }

    /// Whether the name of the balancer says that it was created for the Service.
    pub(super) fn has_made(&self, lb: &LoadBalancer) -> bool {
        [&self.name, &self.legacy].contains(&&lb.name) || names::renamed(&lb.name, &self.name).is_some()
    }

    /// What shows that a balancer may be the Service's: the name, or the tag of a shared one.
    pub(crate) fn mark(&self, lb: &LoadBalancer) -> String {
        let is_former = |tag: &&String| names::renamed(tag, &self.name).is_some();
        match self.has_made(lb) {
            true => format!("name {}", lb.name),
            false => format!("tag {}", lb.tags.iter().find(is_former).unwrap_or(&self.name)),
        }
    }

    /// Whether the members that are there show their subnet, and nothing else does. The client that made them chose it.
    pub(super) fn keeps_subnets(&self, lb: &LoadBalancer) -> bool {
        let hosts = &self.hosts;
        hosts.is_class_unknown || hosts.member_subnet.is_none() && hosts.vip.follows_nodes() && !self.has_made(lb)
    }

    fn is_younger_than(&self, created_at: &str, by: SignedDuration) -> bool {
        utc(created_at).zip(self.created).is_some_and(|(made, service)| service.duration_since(made) > by)
    }

    /// Whether the Service notes or publishes an address.
    pub(super) fn has_had(&self, address: &String) -> bool {
        self.noted_address.as_ref() == Some(address) || self.published.contains(address)
    }

    /// Whether a floating IP that is bound to nothing was created for this Service: its description says so, it is not
    /// older than the Service, and the Service notes or publishes its address.
    pub(super) fn has_floating_ip(&self, ip: &FloatingIp) -> bool {
        let made = ip.created_at.parse::<Timestamp>().ok().zip(self.created);
        let is_older = made.is_some_and(|(ip, service)| service.duration_since(ip) > SKEW);
        let is_known = self.has_had(&ip.floating_ip_address);
        let descriptions = [&self.descriptions.floating_ip, &self.descriptions.replaced_ip];
        descriptions.contains(&&ip.description) && is_known && !is_older
    }
}

impl Claim {
    /// Whether the balancer was created for the Service.
    pub(crate) fn is_owner(self) -> bool {
        matches!(self, Self::Own | Self::FormerName { is_owner: true })
    }

    /// Whether the balancer has this Service's parts under another cluster name.
    pub(crate) fn is_former(self) -> bool {
        matches!(self, Self::FormerName { .. })
    }

    /// Whether the Service has anything on the balancer.
    pub(crate) fn is_user(self) -> bool {
        matches!(self, Self::Own | Self::Shared | Self::HalfMade | Self::FormerName { .. })
    }

    /// Whether `tag`, a name or tag of the balancer or its parts, belongs to the Service.
    pub(crate) fn owns(self, item: &Item, tag: &str) -> bool {
        is_tag_of(item, tag, self.is_former())
    }

    /// Whether a listener belongs to the Service: by its tag; one without any tags, as older programs left them, to the
    /// owner of the balancer.
    pub(crate) fn has_listener(self, item: &Item, listener: &Listener) -> bool {
        self.is_user()
            && (listener.tags.iter().any(|tag| self.owns(item, tag)) || self.is_owner() && listener.tags.is_empty())
    }
}

/// Octavia's times are in UTC, without a time zone.
pub(crate) fn utc(text: &str) -> Option<Timestamp> {
    let time: DateTime = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}
