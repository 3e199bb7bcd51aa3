//! Load balancers as the commands see them: one Service at a time.

use std::collections::BTreeSet;

use ccm_kit::inspect::{Current, DESIRED, Explained};
use ccm_provider::{Fact, Service};

use crate::annotations::Scheme;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::hosts::Host;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::{Item, Wanted};
use crate::ownership::CLASSES;

/// The position of the only Service in its work.
pub(super) const PLACE: usize = 0;

/// One Service.
pub(super) type Seen = Current<Wanted, Observed>;

impl Explained for Balancers {
    const NOT_FOUND: &'static str = "check whether it is in another project or region";
    const CLASSES: &'static [&'static str] = &CLASSES;

    fn elsewhere(_: &Service) -> Vec<Fact> {
        let text = "its class, an annotation or a finalizer leaves the load balancer to another controller";
        vec![Fact::good(DESIRED, text)]
    }

    fn in_words(desired: &Wanted) -> Option<String> {
        let item = desired.items.get(&PLACE)?;
        let settings = item.settings.as_ref()?;
        let ports: Vec<String> = settings.ports.iter().map(ToString::to_string).collect();
        let scheme = match item.scheme {
            Scheme::External => "external",
            Scheme::Internal => "internal",
        };
        let (name, protocol) = (&item.names.balancer, &settings.protocol);
        Some(format!("a load balancer {name}, {scheme}: {protocol} {}", ports.join(", ")))
    }

    fn is_there(desired: &Wanted, observed: &Observed) -> bool {
        desired.items.get(&PLACE).is_some_and(|item| observed.rule(&item.names).is_some())
    }

    fn keep_registered(desired: &mut Wanted, observed: &Observed) {
        let Some(item) = desired.items.get_mut(&PLACE) else { return };
        let registered = members(item, observed);
        if item.settings.is_some() && !registered.is_empty() {
            item.hosts.known.retain(|host, _| registered.contains(host));
        }
    }
}

/// The instances behind the balancer.
pub(super) fn members(item: &Item, observed: &Observed) -> BTreeSet<Host> {
    let pool = observed.pools.get(&item.names.balancer).into_iter();
    let of_pool = pool.flat_map(|pool| pool.instances.iter().filter_map(|url| Host::of_url(url)));
    let of_groups = observed.groups.values().flat_map(|zone| zone.values()).flatten().cloned();
    of_pool.chain(of_groups).collect()
}
