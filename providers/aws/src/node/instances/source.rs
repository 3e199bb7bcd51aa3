//! The sources of instances: EC2 by ID, by private DNS name and by network interface, and the list of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Interrupted;
use ccm_kit::directory::{Answer, Seen, Source};
use ccm_provider::ProviderError;

use super::describe::{self, IDS_AT_ONCE, Instances};
use crate::client::ec2::{Instance, NetworkInterface};
use crate::client::{ApiError, FILTER_VALUES};
use crate::node::fargate;
use crate::node::identity::{self, InstanceId, Machine, Wanted};
use crate::ownership::Ownership;

/// Instances per page of a list.
const PAGE: usize = 1000;

#[derive(Debug)]
pub(crate) struct Ec2 {
    pub(super) instances: Instances,
    pub(super) ownership: Ownership,
    pub(super) region: String,
    pub(super) vpc: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Found {
    Ec2(Arc<Instance>),
    Fargate(Arc<NetworkInterface>),
}

impl Found {
    pub(super) fn zone(&self) -> &str {
        match self {
            Self::Ec2(instance) => &instance.zone,
            Self::Fargate(interface) => &interface.zone,
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Ec2(instance) => &instance.id,
            Self::Fargate(interface) => &interface.id,
        }
    }
}

type Answers = Vec<(Wanted, Answer<Ec2>)>;

impl Ec2 {
    async fn by_id(&self, ids: BTreeSet<InstanceId>) -> Answers {
        let mut answers = Vec::with_capacity(ids.len());
        for (some, answer) in self.instances.by_ids(&ids).await {
            answers.extend(some.into_iter().map(|id| {
                let seen = answer.as_ref().map_err(Clone::clone).map(|seen| match seen.get(&id) {
                    Some(describe::Seen::Instance(instance)) => Seen::One(Found::Ec2(instance.clone())),
                    Some(describe::Seen::Denied) => Seen::Absent,
                    None => Seen::Unlisted,
                });
                (Wanted::Machine(Machine::Ec2(id)), seen)
            }));
        }
        answers
    }

    async fn by_name(&self, names: BTreeSet<String>) -> Answers {
        let found = self.instances.by_names(&names, &self.ownership, &self.vpc).await.map(by_name);
        let answer = |name: String| {
            let seen = found.as_ref().map(|found| self.of_name(&name, found.get(&name))).map_err(Clone::clone);
            (Wanted::Name(name), seen)
        };
        names.into_iter().map(answer).collect()
    }

    /// What the instances with a name show. One of this VPC without the tag of the cluster may well be that of the node;
    /// a name of another region is none that EC2 gives here.
    fn of_name(&self, name: &str, found: Option<&Vec<Arc<Instance>>>) -> Seen<Found> {
        let all = found.into_iter().flatten().cloned();
        let (members, others): (Vec<_>, Vec<_>) = all.partition(|instance| self.ownership.is_member(&instance.tags));
        if !members.is_empty() {
            return one_of(&members.into_iter().map(Found::Ec2).collect());
        }
        let other = others.iter().find(|instance| instance.vpc == self.vpc);
        if let (Some(other), Some(tag)) = (other, self.ownership.cluster_key()) {
            return Seen::Unclear(format!(
                "instance {} has the private DNS name {name:?}, but not the tag {tag}: add the tag, or set the provider ID \
                 of the node",
                other.id
            ));
        }
        match identity::is_ec2_dns_name(name) && !identity::is_dns_name_of(&self.region, name) {
            true => Seen::Unclear(format!(
                "EC2 gives no instance in {} the private DNS name {name:?}: see the domain name in the DHCP options of the \
                 VPC and the region of the configuration, or set the provider ID of the node",
                self.region
            )),
            false => Seen::Unlisted,
        }
    }

    async fn by_address(&self, addresses: BTreeSet<Ipv4Addr>) -> Answers {
        let found = fargate::interfaces(&*self.instances.0, &self.vpc, &addresses).await.map(|found| {
            let all = |all: Vec<NetworkInterface>| all.into_iter().map(Arc::new).map(Found::Fargate).collect();
            found.into_iter().map(|(address, interfaces)| (address, all(interfaces))).collect()
        });
        answers(addresses, &found, |address| Wanted::Machine(Machine::Fargate(address)))
    }
}

fn by_name(instances: Vec<Arc<Instance>>) -> BTreeMap<String, Vec<Arc<Instance>>> {
    let mut by_name: BTreeMap<String, Vec<Arc<Instance>>> = BTreeMap::new();
    for instance in instances {
        by_name.entry(instance.private_dns_name.clone()).or_default().push(instance);
    }
    by_name
}

fn answers<K: Ord>(
    keys: BTreeSet<K>,
    found: &Result<BTreeMap<K, Vec<Found>>, ApiError>,
    wanted: impl Fn(K) -> Wanted,
) -> Answers {
    let answer = |key| {
        let seen = found.as_ref().map(|found| found.get(&key).map_or(Seen::Unlisted, one_of)).map_err(Clone::clone);
        (wanted(key), seen)
    };
    keys.into_iter().map(answer).collect()
}

fn one_of(found: &Vec<Found>) -> Seen<Found> {
    match found.as_slice() {
        [] => Seen::Unlisted,
        [one] => Seen::One(one.clone()),
        several => Seen::Several(several.iter().map(|found| found.id().to_owned()).collect()),
    }
}

#[async_trait]
impl Source for Ec2 {
    type Key = Wanted;
    type Value = Found;
    type Error = ApiError;

    async fn list(&self) -> Result<(usize, BTreeMap<Wanted, Seen<Found>>), ApiError> {
        let instances = self.instances.of_cluster(&self.ownership, &self.vpc).await?;
        // A name may outlive its instance: the next instance may get the address.
        let is_named = |instance: &&Arc<Instance>| {
            instance.state.as_deref() != Some("terminated") && !instance.private_dns_name.is_empty()
        };
        let named = by_name(instances.iter().filter(is_named).cloned().collect());
        let id = |instance: &Instance| Some(Wanted::Machine(Machine::Ec2(InstanceId::parse(&instance.id)?)));
        let by_id = instances.into_iter().filter_map(|found| Some((id(&found)?, Seen::One(Found::Ec2(found)))));
        let mut listed: BTreeMap<Wanted, Seen<Found>> = by_id.collect();
        let size = listed.len();
        let of_name = |found: Vec<Arc<Instance>>| one_of(&found.into_iter().map(Found::Ec2).collect());
        listed.extend(named.into_iter().map(|(name, found)| (Wanted::Name(name), of_name(found))));
        Ok((size, listed))
    }

    async fn look_up(&self, keys: BTreeSet<Wanted>) -> BTreeMap<Wanted, Answer<Self>> {
        let (mut ids, mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for key in keys {
            match key {
                Wanted::Machine(Machine::Ec2(id)) => drop(ids.insert(id)),
                Wanted::Machine(Machine::Fargate(address)) => drop(addresses.insert(address)),
                Wanted::Name(name) => drop(names.insert(name)),
                Wanted::Never(_) => {}
            }
        }
        let (ids, names, addresses) = futures::join!(self.by_id(ids), self.by_name(names), self.by_address(addresses));
        ids.into_iter().chain(names).chain(addresses).collect()
    }

    fn list_calls(instances: usize) -> usize {
        instances.div_ceil(PAGE)
    }

    fn look_up_calls(keys: &BTreeSet<Wanted>) -> usize {
        let ids = keys.iter().filter(|key| matches!(key, Wanted::Machine(Machine::Ec2(_)))).count();
        let names = keys.iter().filter(|key| matches!(key, Wanted::Name(_))).count();
        ids.div_ceil(IDS_AT_ONCE) + names.div_ceil(FILTER_VALUES)
    }

    fn is_settled(found: &Found) -> bool {
        matches!(found, Found::Ec2(instance) if instance.state.as_deref() == Some("running"))
    }

    /// A name that EC2 did not assign may never have been an instance's name.
    fn is_evidence(key: &Wanted) -> bool {
        !matches!(key, Wanted::Name(name) if !identity::is_ec2_dns_name(name))
    }

    fn ambiguous(&self, key: &Wanted, ids: &[String]) -> ProviderError {
        ProviderError::unknown(match key {
            Wanted::Machine(Machine::Fargate(address)) => {
                format!("several attached network interfaces have the private address {address} in {}", self.vpc)
            }
            Wanted::Name(name) => format!(
                "several instances have the private DNS name {name:?}: {}; set the provider ID of the node",
                ids.join(", ")
            ),
            other => format!("{other:?} is not unique"),
        })
    }

    fn interrupted(how: Interrupted) -> ApiError {
        describe::interrupted(how)
    }
}
