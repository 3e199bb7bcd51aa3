//! Load balancers as the commands see them: one Service at a time.

use std::collections::BTreeSet;

use ccm_kit::inspect::{Current, DESIRED, Explained};
use ccm_provider::{Fact, Service, ServiceAction};

use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::step::scheme;
use crate::loadbalancer::wanted::{Goal, Wanted, previous_balancer};
use crate::loadbalancer::{Balancers, Observation};

/// One Service. Both lists are empty if another controller manages its load balancer and this program has none left.
pub(super) type Seen = Current<Vec<Wanted>, Vec<Observation>>;

impl Explained for Balancers {
    const NOT_FOUND: &'static str = "check whether it has another name or is in another account";
    const WHILE_INVALID: &'static str = "only the nodes behind its load balancer are updated";
    // A deletion does not read the health of targets.
    const READ_WHILE_INVALID: ServiceAction = ServiceAction::UpdateHosts;

    fn elsewhere(service: &Service) -> Vec<Fact> {
        let text = "the annotation …-type leaves the Service to the AWS Load Balancer Controller";
        let desired = match service.status.load_balancer.ingress.is_empty() && !service.needs_cleanup() {
            true => Fact {
                hint: Some("check that it runs, and its events and logs about the Service".to_owned()),
                ..Fact::waiting(DESIRED, format!("{text}, which has not shown an address yet"))
            },
            false => Fact::good(DESIRED, text),
        };
        let behind = previous_balancer(service).map(|finding| {
            let hint = "delete the Service and create it again to remove it";
            Fact::bad("previous load balancer", finding.to_string(), hint)
        });
        [desired].into_iter().chain(behind).collect()
    }

    fn in_words(desired: &Vec<Wanted>) -> Option<String> {
        let desired = desired.first()?;
        let port = |protocol: &str, port, node_port| format!("{protocol} {port} to node port {node_port}");
        let (kind, ports): (_, Vec<String>) = match &desired.goal {
            Goal::Absent => return None,
            Goal::Classic(classic) => {
                let ports = classic.listeners.iter().map(|one| port(&one.protocol, one.port, one.instance_port));
                ("classic", ports.collect())
            }
            Goal::Network(network) => {
                let ports = network.ports.iter().map(|one| port(&one.protocol, one.port, one.node_port));
                ("network", ports.collect())
            }
        };
        let scheme = scheme(desired.goal.common()?.internal);
        Some(format!("a {kind} load balancer {}, {scheme}: {}", desired.name, ports.join(", ")))
    }

    fn is_there(_: &Vec<Wanted>, observed: &Vec<Observation>) -> bool {
        observed.iter().any(|seen| is_there(&seen.observed))
    }

    fn keep_registered(desired: &mut Vec<Wanted>, observed: &Vec<Observation>) {
        for (desired, seen) in desired.iter_mut().zip(observed) {
            let registered = registered(&seen.observed);
            if let Some(common) = desired.goal.common_mut().filter(|_| !registered.is_empty()) {
                common.targets.retain(|id, _| registered.contains(id));
            }
        }
    }
}

pub(super) fn is_there(observed: &Observed) -> bool {
    observed.classic.is_some() || observed.network.is_some()
}

/// The instances behind the balancer now.
fn registered(observed: &Observed) -> BTreeSet<String> {
    let classic = observed.classic.iter().flat_map(|classic| classic.balancer.instances.iter().cloned());
    let groups = observed.network.iter().flat_map(|network| &network.target_groups);
    let targets = groups.flat_map(|group| &group.targets).filter(|target| target.state != "draining");
    classic.chain(targets.map(|health| health.target.id.clone())).collect()
}
