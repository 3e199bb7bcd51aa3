//! The objects of load balancers, as all reports see them: what they say about their owner, and their state.

use std::collections::BTreeSet;

use ccm_kit::inspect::{Claim, DESIRED, Explained, LOAD_BALANCER, Object};
use ccm_provider::{Fact, Service, ServiceAction};

use super::explain_service;
use crate::client::ec2::SecurityGroup;
use crate::client::{Tags, elb, elbv2};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::step::scheme;
use crate::loadbalancer::wanted::{Goal, Wanted, previous_balancer};
use crate::loadbalancer::{Balancers, Observation};
use crate::ownership::SERVICE_KEY;

pub(super) const TARGET_GROUP: &str = "TargetGroup";
pub(super) const SECURITY_GROUP: &str = "SecurityGroup";

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

    fn inventory(&self, service: &Service, desired: &Vec<Wanted>, observed: &Vec<Observation>) -> Vec<Object> {
        let ([desired], [Observation { observed, .. }]) = (&**desired, &**observed) else { return Vec::new() };
        let state = explain_service::balancers(&self.env, service, desired, observed);
        let about = Object { state, members: registered(observed), ..Object::default() };
        balancers(&self.env, observed).chain([about]).collect()
    }

    fn keep_registered(desired: &mut Vec<Wanted>, members: &BTreeSet<&str>) {
        let common = desired.iter_mut().filter_map(|desired| desired.goal.common_mut());
        common.for_each(|common| common.targets.retain(|id, _| members.contains(&**id)));
    }
}

/// The instances behind the balancer now.
fn registered(observed: &Observed) -> BTreeSet<String> {
    let classic = observed.classic.iter().flat_map(|classic| classic.balancer.instances.iter().cloned());
    let groups = observed.network.iter().flat_map(|network| &network.target_groups);
    let targets = groups.flat_map(|group| &group.targets).filter(|target| target.state != "draining");
    classic.chain(targets.map(|health| health.target.id.clone())).collect()
}

/// The balancers that were read for a Service.
pub(super) fn balancers(env: &Env, observed: &Observed) -> impl Iterator<Item = Object> {
    let classic = observed.classic.iter().map(|found| classic(env, &found.balancer, found.tags.read()));
    let network = observed.network.iter().map(|found| network(env, &found.balancer, found.tags.read()));
    classic.chain(network)
}

pub(super) fn classic(env: &Env, found: &elb::LoadBalancer, tags: Option<&Tags>) -> Object {
    let (id, created) = (found.name.clone(), found.created);
    Object { kind: LOAD_BALANCER, id, created, claim: claim(env, tags), ..Object::default() }
}

pub(super) fn network(env: &Env, found: &elbv2::LoadBalancer, tags: Option<&Tags>) -> Object {
    let (id, name, created) = (found.arn.clone(), found.name.clone(), found.created);
    Object { kind: LOAD_BALANCER, id, name, created, claim: claim(env, tags), ..Object::default() }
}

pub(super) fn target_group(env: &Env, found: &elbv2::TargetGroup, tags: Option<&Tags>) -> Object {
    let users = found.balancers.iter().map(|arn| (arn.clone(), format!("load balancer {arn} forwards to it")));
    let (id, name, users) = (found.arn.clone(), found.name.clone(), users.collect());
    Object { kind: TARGET_GROUP, id, name, claim: claim(env, tags), users, ..Object::default() }
}

pub(super) fn security_group(env: &Env, found: &SecurityGroup) -> Object {
    let (id, name) = (found.id.clone(), found.name.clone());
    let marks = || vec![found.name.clone(), found.description.clone()];
    let claim = claim(env, Some(&found.tags)).map(|claim| Claim { marks: marks(), ..claim });
    Object { kind: SECURITY_GROUP, id, name, claim, ..Object::default() }
}

/// What tags say; `None` unless the object is owned by the cluster.
fn claim(env: &Env, tags: Option<&Tags>) -> Option<Claim> {
    let tags = tags.filter(|tags| env.ownership.is_owned(tags))?;
    let service = tags.get(SERVICE_KEY).cloned().unwrap_or_default();
    Some(Claim { cluster: env.ownership.cluster.clone(), service, ..Claim::default() })
}
