//! Cloud state that would break or change after a migration to this program.

use ccm_provider::{Check, Claims, LoadBalancerStatus, Node, Service};

use super::FakeInspect;
use super::explain::Machine;
use crate::config::Config;
use crate::load_balancer::words;

const CLUSTER_ID: &str = "cluster-id";
const INSTANCES: &str = "instances";
const PROVIDER_IDS: &str = "provider-ids";
const LOAD_BALANCERS: &str = "load-balancers";

impl FakeInspect {
    pub(super) async fn checks(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        let mut checks = Vec::new();
        if !self.cloud.start.has_cluster_id {
            let text = "hasClusterID is false: the process stops at its start";
            checks.push(Check::error(CLUSTER_ID, "", text, "set hasClusterID: true, or give --allow-untagged-cloud"));
        }
        let config = self.cloud.config();
        checks.extend(of_nodes(&config, &self.cloud.start.provider_name, claims));
        if self.cloud.start.interfaces.load_balancer {
            checks.extend(self.of_services(cluster, claims).await);
            checks.extend(self.left_over(cluster, claims).await);
        }
        checks
    }

    async fn of_services(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        let wanting: Vec<&Service> =
            claims.services.iter().map(|service| &**service).filter(|service| service.wants_load_balancer()).collect();
        let mut checks = Vec::new();
        for service in &wanting {
            checks.extend(self.of_service(cluster, service).await);
        }
        if checks.is_empty() {
            let text = format!("Services that keep or get their addresses: {}", wanting.len());
            checks.push(Check::good(LOAD_BALANCERS, "", text));
        }
        checks
    }

    async fn of_service(&self, cluster: &str, service: &Service) -> Option<Check> {
        let subject = format!("service {}", service.key());
        let look = self.balancers.look(cluster, service).await;
        let next = look.and_then(|seen| seen.offer.ingress(seen.balancer.as_ref(), service));
        let next = match next {
            Ok(next) => LoadBalancerStatus { ingress: next.unwrap_or_default() },
            Err(error) => {
                let fix = "correct loadBalancers or faults in the cloud config";
                return Some(Check::error(LOAD_BALANCERS, subject, error.to_string(), fix));
            }
        };
        let has = &service.status.load_balancer;
        let new = has.ingress.is_empty() || has.same_as(&next);
        (!new).then(|| {
            let word = |status: &LoadBalancerStatus| words(&status.ingress).unwrap_or_else(|| "nothing".to_owned());
            let text = format!("it has {} now and gets {}", word(has), word(&next));
            let fix = "list it with its ingress under loadBalancers.initial or loadBalancers.statuses";
            Check::warning(LOAD_BALANCERS, subject, text, fix)
        })
    }

    async fn left_over(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        match self.unclaimed(cluster, claims).await {
            Ok(orphans) => {
                let check = |orphan: ccm_provider::Orphan| {
                    let subject = format!("{} {}", orphan.kind, orphan.id);
                    Check::warning("orphans", subject, orphan.reason, "see ccm orphans")
                };
                orphans.into_iter().map(check).collect()
            }
            Err(error) => {
                let fix = "remove the fault from the cloud config";
                vec![Check::error("orphans", "", format!("they cannot be listed: {error}"), fix)]
            }
        }
    }
}

fn of_nodes(config: &Config, provider_name: &str, claims: &Claims) -> Vec<Check> {
    let (mut listed, mut invented) = (0_usize, 0_usize);
    let mut checks = Vec::new();
    for node in &claims.nodes {
        let machine = Machine::of(config, provider_name, node);
        match &machine {
            Machine::Listed(_) => listed += 1,
            Machine::Invented => invented += 1,
            _ => checks.extend(of_machine(&machine, node)),
        }
    }
    let known = format!("nodes listed: {listed}, invented: {invented}");
    checks.push(Check::good(INSTANCES, "", known));
    checks
}

fn of_machine(machine: &Machine<'_>, node: &Node) -> Option<Check> {
    let (text, fix) = machine.problem(node)?;
    let subject = format!("node {}", node.name);
    Some(match machine {
        Machine::Foreign(_) => Check::warning(PROVIDER_IDS, subject, text, fix),
        Machine::Other(_) => Check::error(PROVIDER_IDS, subject, text, fix),
        _ => Check::error(INSTANCES, subject, text, fix),
    })
}
