//! Load balancers as the commands see them: one Service at a time.

use std::collections::BTreeSet;

use ccm_kit::inspect::{Current, Explained};
use ccm_provider::Service;

use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::Wanted;
use crate::loadbalancer::{Balancers, names};

/// The index of the only Service in its work.
pub(super) const PLACE: usize = 0;

/// The state of one Service.
pub(super) type Seen = Current<Wanted, Observed>;

impl Explained for Balancers {
    const NOT_FOUND: &'static str = "check whether it has another name (--cluster-name) or is in another project";

    fn name(cluster: &str, service: &Service) -> String {
        names::balancer(cluster, service)
    }

    fn in_words(wanted: &Wanted) -> Option<String> {
        let item = wanted.items.get(&PLACE)?;
        let settings = item.settings.as_ref()?;
        let ports = settings.ports.iter().map(|port| match port.node_port {
            0 => format!("{} {} without members", port.protocol, port.port),
            node_port => format!("{} {} to node port {node_port}", port.protocol, port.port),
        });
        let scheme = if settings.is_internal { "internal" } else { "external" };
        let ports: Vec<String> = ports.collect();
        Some(format!("a load balancer {}, {scheme}: {}", item.name, ports.join(", ")))
    }

    fn is_there(_: &Wanted, observed: &Observed) -> bool {
        observed.balancer(PLACE).is_some()
    }

    /// Reads the parts of the balancer regardless of the record.
    fn read_all(wanted: &mut Wanted) {
        wanted.items.values_mut().for_each(|item| item.applied = None);
    }

    fn keep_registered(wanted: &mut Wanted, observed: &Observed) {
        let members = observed.balancer(PLACE).into_iter().flat_map(|balancer| balancer.members.values().flatten());
        let registered: BTreeSet<&str> = members.map(|member| &*member.address).collect();
        let item = wanted.items.get_mut(&PLACE).filter(|_| !registered.is_empty());
        if let Some(item) = item {
            item.hosts.members.retain(|target| registered.contains(&*target.address));
        }
    }
}
