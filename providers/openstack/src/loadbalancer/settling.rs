//! Recent writes of this process that a read may not show yet.
//!
//! An API may have several servers and databases, one of which may lag. Until reads show a write, no plan is made for
//! its Service: it could create a second balancer, skip deleting a new one, or record the ID of a deleted one. A read
//! right after a write that finds nothing to do may also be older than that write.

use std::time::Duration;

use ccm_kit::Cluster;
use ccm_kit::balancer::Journal;
use ccm_provider::{ProviderError, ServiceAction};

use super::observed::Observed;
use super::wanted::{Item, Wanted};

/// Maximum time until reads show a write.
const SETTLED: Duration = Duration::from_secs(5);
/// Interval between reads until they show a write.
const AGAIN: Duration = Duration::from_secs(1);

/// A write, keyed by the name of the Service's own balancer unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trace {
    /// A balancer was created.
    Balancer(String),
    /// A balancer was deleted; keyed by its ID.
    Deleted(String),
    /// A floating IP was created for it.
    FloatingIp(String),
    /// A security group was created; keyed by its own name.
    Group(String),
    /// Any write that no read has shown since.
    Any(String),
}

/// The recent writes.
#[derive(Debug)]
pub(super) struct Settling(Journal<Trace>);

impl Settling {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self(Journal::new(cluster, SETTLED))
    }

    /// The time until reads show what the process that led before has written.
    pub(super) fn former(&self) -> Option<Duration> {
        self.0.former()
    }

    pub(super) fn wrote(&self, trace: Trace) {
        self.0.wrote([trace]);
    }

    /// Drops a write that was shown or undone.
    pub(super) fn forget(&self, trace: &Trace) {
        self.0.forget(|known| known == trace);
    }

    fn is_recent(&self, trace: &Trace) -> bool {
        self.0.hidden(|known| known == trace).is_some()
    }

    /// Marks the items whose writes an observation does not show.
    pub(super) fn mark(&self, observed: &mut Observed, wanted: &Wanted) {
        for (place, item) in &wanted.items {
            let is_deleted = |id: &&String| self.is_recent(&Trace::Deleted((*id).clone()));
            if observed.balancer_of.get(place).filter(is_deleted).is_some() {
                observed.balancer_of.remove(place);
                observed.hidden.insert(*place);
            } else if self.hides(observed, *place, item) {
                observed.hidden.insert(*place);
            }
            if self.is_recent(&Trace::Any(item.name.clone())) {
                observed.unsettled.insert(*place);
            }
        }
    }

    fn hides(&self, observed: &Observed, place: usize, item: &Item) -> bool {
        let is_recent = |trace: fn(String) -> Trace, name: &str| self.is_recent(&trace(name.to_owned()));
        let wants_group = item.action == ServiceAction::Delete || item.hosts.manages_group;
        let has_group = observed.groups.get(&place).is_some_and(|group| group.group.is_some());
        let ips = &observed.floating_ips;
        let has_ip = observed.floating_ip_of(place).is_some()
            || ips.iter().any(|ip| ip.description == item.descriptions.floating_ip);
        observed.balancer(place).is_none() && is_recent(Trace::Balancer, &item.name)
            || wants_group && !has_group && is_recent(Trace::Group, &item.group)
            || item.action != ServiceAction::UpdateHosts && !has_ip && is_recent(Trace::FloatingIp, &item.name)
    }
}

const NOT_SHOWN: &str = "OpenStack does not show yet what was written a moment ago";

/// The error until reads have caught up.
pub(super) fn not_shown() -> ProviderError {
    ProviderError::in_progress(NOT_SHOWN, AGAIN)
}

pub(super) fn is_not_shown(error: &ProviderError) -> bool {
    error.to_string() == NOT_SHOWN
}

#[cfg(test)]
mod tests {
    use ccm_provider::{Service, ServiceWork};

    use super::*;
    use crate::loadbalancer::env::Env;
    use crate::loadbalancer::wanted::wanted;

    #[test]
    fn a_write_is_looked_for_until_reads_have_caught_up() {
        let settling = Settling::new(Cluster::default());
        let work = ["web", "api"].map(|name| {
            let mut service = Service::default();
            service.metadata.name = name.into();
            ServiceWork::new(&service, &[], ServiceAction::Delete)
        });
        let wanted = wanted(&Env::default(), "kube", &work, &Vec::new).0;
        let [web, api] = [0, 1].map(|place| wanted.items[&place].name.clone());
        let marked = || {
            let mut observed = Observed::default();
            settling.mark(&mut observed, &wanted);
            (observed.hidden.into_iter().collect::<Vec<_>>(), observed.unsettled.into_iter().collect::<Vec<_>>())
        };
        settling.wrote(Trace::Balancer(web.clone()));
        settling.wrote(Trace::Any(api.clone()));
        assert_eq!(marked(), (vec![0], vec![1]));
        settling.forget(&Trace::Any(api.clone()));
        assert_eq!(marked(), (vec![0], vec![]));
        settling.forget(&Trace::Balancer(web));
        settling.wrote(Trace::Deleted("lb-1".to_owned()));
        let mut observed = Observed { balancer_of: [(0, "lb-1".to_owned())].into(), ..Observed::default() };
        settling.mark(&mut observed, &wanted);
        assert_eq!((observed.hidden, observed.balancer_of), ([0].into(), [].into()));
    }
}
