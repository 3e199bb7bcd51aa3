//! The hosts of an existing load balancer. Pure.
//!
//! They follow the nodes whatever else the Service asks for: the names come from the objects that exist, and nothing but
//! members, groups and the tags of firewall rules changes.

use ccm_provider::{ErrorClass, ProviderError};

use super::super::claim::{is_foreign, real_scheme};
use super::super::observed::Observed;
use super::super::wanted::Item;
use super::{Draft, backend_name, shared_backend_name};
use crate::annotations::Scheme;
use crate::client::balancing::ForwardingRule;
use crate::client::resource::Collection;

/// The kind of the load balancer that exists: that of its rule, else that of what is behind it.
pub(in super::super) fn existing(observed: &Observed, item: &Item) -> Option<Scheme> {
    let is_there = |kind: &Scheme| match kind {
        Scheme::External => observed.pools.contains_key(&item.names.balancer),
        Scheme::Internal => observed.backends.contains_key(&backend_of(observed, item, None)),
    };
    match observed.rule(&item.names) {
        Some(rule) => (!is_foreign(rule)).then(|| real_scheme(rule)),
        None => [item.scheme, item.scheme.other()].into_iter().find(is_there),
    }
}

/// The backend service of an internal balancer: that of its rule, else the shared one, if the Service uses it, or its own.
fn backend_of(observed: &Observed, item: &Item, rule: Option<&ForwardingRule>) -> String {
    let shared = || item.settings.as_ref().and_then(|settings| shared_backend_name(observed, settings));
    let is_there = |name: &String| observed.backends.contains_key(name);
    let of_rule = rule.and_then(backend_name);
    of_rule.or_else(|| shared().filter(is_there)).unwrap_or_else(|| item.names.balancer.clone())
}

/// Whether the objects that hold the hosts were found.
pub(in super::super) fn is_found(observed: &Observed, item: &Item) -> bool {
    match existing(observed, item) {
        Some(Scheme::External) => observed.pools.contains_key(&item.names.balancer),
        Some(Scheme::Internal) => {
            observed.backends.contains_key(&backend_of(observed, item, observed.rule(&item.names)))
        }
        None => false,
    }
}

impl Draft<'_> {
    /// Whether the members of the groups behind an internal balancer are known, although its backend service is not.
    pub(super) fn groups_are_known(&self) -> bool {
        let (observed, item) = (self.observed, self.item);
        let follows = item.hosts_only() || item.follows();
        let backend = backend_of(observed, item, observed.rule(&item.names));
        follows
            && existing(observed, item).unwrap_or(item.scheme) == Scheme::Internal
            && observed.unread(Collection::BackendServices, &backend).is_some()
            && observed.unread(Collection::Networks, "").is_none()
    }

    /// Plans the hosts of what exists.
    pub(super) fn hosts(&mut self) -> Result<(), ProviderError> {
        let (observed, item) = (self.observed, self.item);
        let rule = observed.rule(&item.names);
        if rule.is_some_and(is_foreign) {
            return Err(ProviderError::ImplementedElsewhere);
        }
        let lost = |what: &str, of: Collection, name: &str| {
            let rule = || observed.unread(Collection::ForwardingRules, &item.names.balancer);
            let missing = || ProviderError::new(ErrorClass::NotFound, format!("{what} {name} does not exist"));
            Err(observed.unread(of, name).or_else(rule).cloned().unwrap_or_else(missing))
        };
        let kind = existing(observed, item).unwrap_or(item.scheme);
        // The subnetwork selects among hosts whose nodes name one.
        let is_selected = kind == Scheme::Internal && item.hosts.are_selected();
        if let Some(error) = observed.unread(Collection::Networks, "").filter(|_| is_selected) {
            return Err(error.clone());
        }
        let members = match kind {
            Scheme::External => match observed.pools.get(&item.names.balancer) {
                Some(pool) => self.pool_members(pool),
                None => lost("target pool", Collection::TargetPools, &item.names.balancer),
            },
            Scheme::Internal => {
                let name = backend_of(observed, item, rule);
                match observed.backends.get(&name) {
                    Some(found) => {
                        self.change_backends(found);
                        Ok(())
                    }
                    None => lost("backend service", Collection::BackendServices, &name),
                }
            }
        };
        self.tags_follow(kind, rule)?;
        members
    }
}
