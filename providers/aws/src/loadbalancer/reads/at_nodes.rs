//! Serializes changes of the nodes' security groups, and remembers recent ones and the clients and health checks that
//! need rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ccm_kit::Cluster;
use ccm_provider::ProviderError;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{LONG, SETTLED};
use crate::client::Id;
use crate::client::write::Ec2Write;
use crate::loadbalancer::rules::shared::Recent;
use crate::loadbalancer::rules::{Port, Rule, Tuple};

#[derive(Debug)]
pub(in crate::loadbalancer) struct AtNodes {
    cluster: Cluster,
    turns: Semaphore,
    /// In order, with the group's ID and whether EC2 answered.
    written: Mutex<Vec<(Instant, String, Ec2Write, bool)>>,
    /// The ports that network balancers check, by their names.
    probed: Mutex<BTreeMap<String, (Instant, BTreeSet<i32>)>>,
    /// The rules that network balancers want for their clients, by their names.
    clients: Mutex<BTreeMap<String, BTreeSet<Tuple>>>,
    /// The ports for which a full group has not all rules, by group and balancer.
    incomplete: Mutex<BTreeMap<(Id, String), BTreeSet<Port>>>,
}

impl AtNodes {
    pub(super) fn new(cluster: Cluster) -> Self {
        let (written, probed, clients, incomplete) = Default::default();
        Self { cluster, turns: Semaphore::new(1), written, probed, clients, incomplete }
    }

    /// Waits for other changes to finish. The write's deadline bounds the wait.
    pub(in crate::loadbalancer) async fn turn(&self) -> Result<SemaphorePermit<'_>, ProviderError> {
        self.turns.acquire().await.map_err(|closed| ProviderError::bug(closed.to_string()))
    }

    pub(in crate::loadbalancer) fn wrote(&self, write: &Ec2Write, is_answered: bool) {
        let (Ec2Write::AuthorizeSecurityGroupIngress { group, .. }
        | Ec2Write::RevokeSecurityGroupIngress { group, .. }
        | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, .. }) = write
        else {
            return;
        };
        let now = self.cluster.now();
        let mut written = self.written.lock();
        written.retain(|(at, ..)| now.saturating_duration_since(*at) < SETTLED);
        written.push((now, group.to_string(), write.clone(), is_answered));
    }

    /// Recent writes to a group, which EC2 may not show yet.
    pub(in crate::loadbalancer) fn recent(&self, group: &str) -> Recent {
        let mut recent = Recent::default();
        let (now, written) = (self.cluster.now(), self.written.lock());
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < SETTLED;
        let of_group = written.iter().filter(|(at, of, ..)| of == group && is_recent(at));
        of_group.for_each(|(.., write, is_answered)| recent.add(write, *is_answered));
        recent
    }

    /// Records which ports a balancer will check, before its sync looks at the rules: AWS knows these checks only after
    /// its last write, and another balancer that gives up the rules must not revoke them until then. `None`: it is not
    /// wanted any more.
    pub(in crate::loadbalancer) fn will_probe(&self, balancer: &str, ports: Option<BTreeSet<i32>>) {
        let now = self.cluster.now();
        let mut probed = self.probed.lock();
        probed.retain(|name, (at, _)| name != balancer && now.saturating_duration_since(*at) < LONG);
        probed.extend(ports.map(|ports| (balancer.to_owned(), (now, ports))));
    }

    /// Records which rules a balancer wants for its clients, before its sync looks at those that are there: it opens
    /// none that is there for another one, which must not revoke it then. AWS does not know the clients of a balancer.
    pub(in crate::loadbalancer) fn will_serve(&self, balancer: &str, rules: &[Rule]) {
        let mut clients = self.clients.lock();
        match rules {
            [] => drop(clients.remove(balancer)),
            rules => drop(clients.insert(balancer.to_owned(), rules.iter().map(Rule::tuple).collect())),
        }
    }

    /// Those of the rules that other balancers want for their clients, with the name of one of them.
    pub(in crate::loadbalancer) fn clients(&self, rules: &[Rule], except: &str) -> BTreeMap<Tuple, String> {
        let clients = self.clients.lock();
        let wanted = |rule: &Rule| {
            let mut others = clients.iter().filter(|(name, _)| *name != except);
            let (name, _) = others.find(|(_, wanted)| wanted.contains(&rule.tuple()))?;
            Some((rule.tuple(), name.clone()))
        };
        rules.iter().filter_map(wanted).collect()
    }

    /// Whether a rule that a balancer wants for its clients was closed a moment ago: its sync may have found it.
    pub(in crate::loadbalancer) fn has_closed(&self, balancer: &str) -> bool {
        let groups: BTreeSet<String> = self.written.lock().iter().map(|(_, group, ..)| group.clone()).collect();
        let recent: Vec<Recent> = groups.iter().map(|group| self.recent(group)).collect();
        let clients = self.clients.lock();
        let mut wanted = clients.get(balancer).into_iter().flatten();
        wanted.any(|rule| recent.iter().any(|recent| recent.has_closed(rule)))
    }

    /// Records the ports of a balancer for which the group has not all rules: those that it has make room for others.
    pub(in crate::loadbalancer) fn incomplete(&self, group: &Id, balancer: &str, ports: BTreeSet<Port>) {
        let (mut incomplete, key) = (self.incomplete.lock(), (group.clone(), balancer.to_owned()));
        if ports.is_empty() { drop(incomplete.remove(&key)) } else { drop(incomplete.insert(key, ports)) }
    }

    /// Records that a balancer has all rules in all groups.
    pub(in crate::loadbalancer) fn complete(&self, balancer: &str) {
        self.incomplete.lock().retain(|(_, name), _| name != balancer);
    }

    /// The ports for which a group has not all rules, by balancer.
    pub(in crate::loadbalancer) fn all_incomplete(
        &self,
        group: &Id,
        except: Option<&str>,
    ) -> BTreeMap<String, BTreeSet<Port>> {
        let incomplete = self.incomplete.lock();
        let of_group = incomplete.iter().filter(|((of, name), _)| of == group && except != Some(&**name));
        of_group.map(|((_, name), ports)| (name.clone(), ports.clone())).collect()
    }

    pub(in crate::loadbalancer) fn probed(&self) -> BTreeMap<String, BTreeSet<i32>> {
        let (now, probed) = (self.cluster.now(), self.probed.lock());
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < LONG;
        let recent = probed.iter().filter(|(_, (at, _))| is_recent(at));
        recent.map(|(name, (_, ports))| (name.clone(), ports.clone())).collect()
    }
}
