//! The machines behind load balancers: scale sets with their instances, interfaces, and the sets of other machines.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::balancer::{Kind, Plan};
use ccm_kit::http::Query;
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

use super::Reads;
use crate::client::ApiError;
use crate::client::id::ArmId;
use crate::client::operation::{NIC_LIST, VM_LIST, VMSS, VMSS_GET, VMSS_VM_LIST};
use crate::loadbalancer::env::{Env, PoolKind};
use crate::loadbalancer::machines::{Interfaces, Machine, groups_of_interfaces, model_part, set_of};
use crate::loadbalancer::members::{Missing, names_pool};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::plan::MOST_SETS;
use crate::loadbalancer::plan::step::Write;
use crate::loadbalancer::wanted::Wanted;
use crate::loadbalancer::wanted::hosts::Host;

impl Reads {
    /// What earlier reads say of machines.
    pub(super) fn recall_machines(&self, env: &Env, wanted: &Wanted, interfaces: &mut Interfaces) {
        interfaces.owners.clone_from(&self.owners.lock());
        let hosts = hosts_by_machine(wanted);
        let mut settled = self.settled.lock();
        settled.retain(|_, (at, _)| at.elapsed() < env.ages.balancers);
        let is_same = |(id, (_, host)): &(&String, &(Instant, Option<Host>))| hosts.get(*id).copied() == host.as_ref();
        interfaces.settled = settled.iter().filter(is_same).map(|(id, _)| id.clone()).collect();
    }

    /// Remembers the machines that a plan leaves as they are, although the pools do not have the wanted members. Where a
    /// Service fails, its members may wait for it.
    pub(in super::super) fn settle(&self, env: &Env, wanted: &Wanted, observed: &Observed, plan: &Plan<Write>) {
        let mut settled = self.settled.lock();
        if plan.steps.iter().any(|step| step.part.kind == Kind::Members) {
            settled.clear();
        } else if plan.failed.is_empty() && wanted.hosts.is_some() && observed.interfaces.unread.is_empty() {
            let hosts = hosts_by_machine(wanted);
            // A new machine may not be listed yet.
            let is_read = |id: &String| {
                Machine::of(&format!("azure://{id}")).is_some_and(|it| observed.interfaces.of(&it).is_some())
            };
            let machines = Missing::of(env, observed, wanted).machines.into_iter().filter(is_read);
            settled.extend(machines.map(|id| {
                let host = hosts.get(&id).map(|host| Host::clone(host));
                (id, (Instant::now(), host))
            }));
        }
    }

    /// The machines whose membership changes.
    pub(super) async fn read_machines(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
        self.recall_machines(env, wanted, &mut observed.interfaces);
        let mut missing = Missing::of(env, observed, wanted);
        self.find_models(env, wanted, observed).await;
        // Only a plan with the nodes writes models.
        let plans_models = wanted.hosts.is_some();
        missing.sets.extend(self.due_models.lock().iter().filter(|_| plans_models).cloned());
        self.read_sets(env, wanted, &missing, &mut observed.interfaces).await;
        let far = groups_of_interfaces(&missing.machines, &self.owners.lock(), &self.sets.lock());
        missing.groups.extend(far.keys().cloned());
        let sets = join_all(missing.sets.iter().map(|set| self.read_set(set, &missing)));
        let keep = &|interface| Some(missing.interface(interface));
        let groups = join_all(missing.groups.iter().map(|(subscription, group)| async move {
            let read = self.client.list(NIC_LIST, subscription, group, Query::default(), keep).await;
            ((subscription, group), read.map(Option::unwrap_or_default))
        }));
        let (sets, groups) = futures::join!(sets, groups);
        for (set, model, instances) in sets {
            let interfaces = &mut observed.interfaces;
            match (model, instances) {
                (Ok(model), Ok(instances)) => {
                    // It stays due until it names no pool of addresses, whatever fails in the meantime.
                    let names = |model: &Value| names_pool(env, wanted, &observed.balancers, model);
                    match env.pools == PoolKind::Addresses && model.iter().any(names) {
                        true => self.model_is_due(set),
                        false if plans_models => drop(self.due_models.lock().remove(set)),
                        false => {}
                    }
                    interfaces.models.extend(model.map(|model| (set.folded(), model_part(&model))));
                    interfaces.instances.extend(instances.unwrap_or_default());
                }
                (Err(error), _) | (_, Err(error)) => drop(interfaces.unread.insert(set.folded(), error.into())),
            }
        }
        let mut owners = self.owners.lock();
        for ((subscription, group), read) in groups {
            match read {
                Ok(list) => {
                    // Those that are not in the list do not exist: they are not asked for again.
                    let prefix = format!("/resourcegroups/{group}/");
                    let unknown = missing.interfaces.iter().filter(|id| id.contains(&prefix));
                    owners.extend(unknown.map(|id| (id.clone(), String::new())));
                    for (id, machine, interface) in list {
                        let interface = interface.map(|interface| (id.clone(), interface));
                        observed.interfaces.interfaces.extend(interface);
                        owners.insert(id, machine);
                    }
                }
                Err(error) => {
                    let machines = far.get(&(subscription.clone(), group.clone())).into_iter().flatten();
                    let unread = machines.chain([group]).map(|id| (id.clone(), error.clone().into()));
                    observed.interfaces.unread.extend(unread);
                }
            }
        }
        observed.interfaces.owners.clone_from(&owners);
    }

    /// The sets of machines that are no instances: they say behind which of several load balancers a node is, and the
    /// models of flexible ones name the pools of their machines.
    async fn read_sets(&self, env: &Env, wanted: &Wanted, missing: &Missing, interfaces: &mut Interfaces) {
        let mut machines: Vec<Machine> = machines_outside(wanted).collect();
        // The sets of all say whether a pool has a place for more.
        let needs_all = !env.several.is_empty() || !missing.machines.is_empty() && machines.len() > MOST_SETS;
        machines.retain(|it| needs_all || missing.machines.contains(&it.id().folded()));
        let place = |it: &Machine| (it.id().subscription().to_lowercase(), it.id().group().to_lowercase());
        let unknown: BTreeSet<(String, String)> = {
            let sets = self.sets.lock();
            machines.iter().filter(|it| !sets.contains_key(&it.id().folded())).map(place).collect()
        };
        let lists = join_all(unknown.into_iter().map(|(subscription, group)| async move {
            let set = |machine: Value| Some(set_of(&machine));
            let read = self.client.list(VM_LIST, &subscription, &group, Query::default(), set).await;
            (group, read)
        }));
        for (group, read) in lists.await {
            match read {
                Ok(list) => {
                    let mut sets = self.sets.lock();
                    sets.retain(|id, _| !id.contains(&format!("/resourcegroups/{group}/")));
                    sets.extend(list.unwrap_or_default());
                }
                Err(error) => drop(interfaces.unread.insert(group, error.into())),
            }
        }
        let machines: Vec<String> = machines.iter().map(|it| it.id().folded()).collect();
        interfaces.sets = self.sets_of(machines.iter());
        let joining = interfaces.sets.iter().filter(|(machine, _)| missing.machines.contains(*machine));
        let flexible: BTreeSet<ArmId> =
            joining.filter_map(|(_, set)| ArmId::parse(set).ok()).filter(|set| set.is(VMSS.kind)).collect();
        let models =
            join_all(flexible.iter().map(|set| async { (set.folded(), self.client.get(VMSS_GET, set).await) }));
        // Without its model, a machine still joins.
        let read = models.await.into_iter().filter_map(|(set, model)| Some((set, model_part(&model.ok()??))));
        interfaces.models.extend(read);
    }

    /// The sets of these machines, as far as they are known.
    pub(super) fn sets_of<'m>(&self, machines: impl Iterator<Item = &'m String>) -> BTreeMap<String, String> {
        let sets = self.sets.lock();
        machines.filter_map(|id| Some((id.clone(), sets.get(id)?.0.clone()))).collect()
    }

    async fn read_set<'s>(&self, set: &'s ArmId, missing: &Missing) -> ReadSet<'s> {
        let query = Query::default().with("$expand", "instanceView");
        let model = self.client.get(VMSS_GET, set);
        let instances = self.client.list_in(VMSS_VM_LIST, set, query, |instance| missing.instance(&instance));
        let (model, instances) = futures::join!(model, instances);
        (set, model, instances)
    }
}

/// A scale set with its model, and the instances that are needed by ID in lower case.
type ReadSet<'s> = (&'s ArmId, Result<Option<Value>, ApiError>, Result<Option<Vec<(String, Value)>>, ApiError>);

/// The nodes, by the ID of their machine in lower case.
fn hosts_by_machine(wanted: &Wanted) -> BTreeMap<String, &Host> {
    let hosts = wanted.hosts.iter().flat_map(|hosts| hosts.values());
    hosts.filter_map(|host| Some((Machine::of(&host.provider_id)?.id().folded(), host))).collect()
}

/// The machines of nodes that are no instances of uniform scale sets: their IDs do not say in which set they are.
pub(super) fn machines_outside(wanted: &Wanted) -> impl Iterator<Item = Machine> {
    let hosts = wanted.hosts.iter().flat_map(|hosts| hosts.values());
    hosts.filter_map(|host| Machine::of(&host.provider_id)).filter(|it| it.set().is_none())
}
