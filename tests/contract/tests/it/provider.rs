//! The provider of the in-memory cloud, correct or with one defect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ccm_provider::source_ranges::SourceRanges;
use ccm_provider::{
    Aspects, CloudProvider, Evidence, EvidenceKind, GroupKey, Instance, InstanceMetadata, InstancesV2, LoadBalancer,
    LoadBalancerIngress, LoadBalancerStatus, Lookup, NewRoute, Node, NodeRef, Plan, ProviderContext, ProviderError,
    Risk, Route, Routes, Scope, Service, ServiceAction, ServiceAnswer, ServiceWork, SingleLoadBalancer, Step, Verb,
    reconcile_one_by_one,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cloud::{Address, Balancer, Cloud, Defect, Machine, StoredRoute, Tables};

#[derive(Debug, Clone)]
pub(crate) struct Memorial {
    cloud: Arc<Cloud>,
    defect: Option<Defect>,
    mine: Arc<Mutex<BTreeSet<String>>>,
    context: Arc<OnceLock<ProviderContext>>,
}

pub(crate) fn balancer_name(cluster: &str, service: &str) -> String {
    format!("{cluster}-default-{service}")
}

/// Services with the same value share one address.
pub(crate) const SHARED: &str = "memory/shared-address";

fn owner(cluster: &str, service: &Service) -> String {
    format!("{cluster}/{}", service.metadata.uid)
}

/// The owner of the address: the Service, or all Services that share it.
fn address_owner(cluster: &str, service: &Service) -> String {
    let shared = service.metadata.annotations.get(SHARED).map(|name| format!("{cluster}/shared/{name}"));
    shared.unwrap_or_else(|| owner(cluster, service))
}

impl Memorial {
    pub(crate) fn new(cloud: Arc<Cloud>, defect: Option<Defect>) -> Self {
        Self { cloud, defect, mine: Arc::default(), context: Arc::default() }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

#[async_trait]
impl CloudProvider for Memorial {
    fn name(&self) -> &str {
        "memory"
    }
    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        drop(self.context.set(context));
        Ok(())
    }
    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(self.clone()))
    }
}

fn metadata(machine: &Machine) -> InstanceMetadata {
    InstanceMetadata {
        provider_id: format!("memory:///{}", machine.id),
        node_addresses: machine.addresses.clone(),
        ..InstanceMetadata::default()
    }
}

impl Memorial {
    fn gone(&self, read_began: SystemTime) -> Lookup {
        let read_began = if self.is(Defect::StaleEvidence) { SystemTime::UNIX_EPOCH } else { read_began };
        Lookup::Gone(Evidence { kind: EvidenceKind::Absent, read_began, grace: Duration::ZERO })
    }

    fn find(&self, tables: &Tables, node: &Node, began: SystemTime) -> Lookup {
        let machine = match node.provider_id.as_deref() {
            Some(_) if self.is(Defect::NameWins) && tables.machines.contains_key(&*node.name) => {
                tables.machines.get(&*node.name)
            }
            Some(id) if !id.starts_with("memory://") => {
                return if self.is(Defect::ForeignIsGone) { self.gone(began) } else { Lookup::Foreign };
            }
            Some(id) => match id.strip_prefix("memory:///").filter(|id| id.starts_with("i-")) {
                Some(id) => tables.machines.values().find(|machine| machine.id == id),
                None if self.is(Defect::MalformedIsGone) => None,
                None => {
                    return Lookup::Unknown(ProviderError::unknown(format!("{id:?} is not a provider ID of memory")));
                }
            },
            None => tables.machines.get(&*node.name),
        };
        match machine {
            None => self.gone(began),
            Some(machine) if machine.stopped && self.is(Defect::StoppedIsGone) => self.gone(began),
            Some(machine) => Lookup::Found(Arc::new(Instance {
                shutdown: Ok(machine.stopped),
                metadata: Ok(Some(metadata(machine))),
            })),
        }
    }
}

#[async_trait]
impl InstancesV2 for Memorial {
    async fn lookup(&self, nodes: &[NodeRef], _: Aspects) -> Vec<Lookup> {
        let began = SystemTime::now();
        let mut asked: Vec<&NodeRef> = nodes.iter().collect();
        if self.is(Defect::SortedAnswers) {
            asked.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let answer = self.cloud.read(|tables| asked.iter().map(|node| self.find(tables, node, began)).collect()).await;
        let mut answers: Vec<Lookup> = match answer {
            Ok(answers) => answers,
            Err(_) if self.is(Defect::GoneOnError) => nodes.iter().map(|_| self.gone(began)).collect(),
            Err(error) => nodes.iter().map(|_| Lookup::Unknown(error.clone())).collect(),
        };
        if self.is(Defect::OneAnswerTooFew) {
            answers.pop();
        }
        answers
    }
}

/// The error with the remaining time until the address is ready.
fn wait(busy: Duration) -> Result<(), ProviderError> {
    if busy.is_zero() { Ok(()) } else { Err(ProviderError::retry("the address is not ready", busy)) }
}

/// The objects of a Service in the cloud.
#[derive(Debug, Default, PartialEq)]
struct Observed {
    addresses: Vec<u32>,
    balancer: Option<Balancer>,
    /// Whether a foreign balancer has our name.
    taken: bool,
    /// Whether another balancer shares the address.
    shared: bool,
}

impl Memorial {
    async fn observe(&self, cluster: &str, service: &Service) -> Result<Observed, ProviderError> {
        let (name, owner) = (balancer_name(cluster, &service.metadata.name), owner(cluster, service));
        let of_address = address_owner(cluster, service);
        self.cloud
            .read(|tables| {
                let named = tables.balancers.get(&name);
                let ours = |b: &&Balancer| b.owner == owner || self.is(Defect::AdoptsByName);
                let of_us = tables.addresses.iter().filter(|(_, address)| address.owner == of_address);
                let addresses: Vec<u32> = of_us.map(|(number, _)| *number).collect();
                let needs = |b: &Balancer| b.owner != owner && addresses.contains(&b.address);
                Observed {
                    balancer: named.filter(ours).cloned(),
                    taken: named.filter(|b| !ours(b)).is_some(),
                    shared: tables.balancers.values().any(needs),
                    addresses,
                }
            })
            .await
    }

    fn desired(&self, cluster: &str, service: &Service, nodes: &[NodeRef], address: u32) -> Balancer {
        let mut hosts: Vec<String> = nodes.iter().map(|node| node.name.to_string()).collect();
        if !self.is(Defect::OrderMatters) {
            hosts.sort();
        }
        let mut ports: Vec<(i32, i32)> = service.spec.ports.iter().map(|port| (port.port, port.node_port)).collect();
        if self.is(Defect::IgnoresPorts) {
            ports.clear();
        }
        Balancer { owner: owner(cluster, service), address, ports, hosts }
    }

    fn status(&self, address: u32) -> LoadBalancerStatus {
        let ip = format!("192.0.2.{address}");
        LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] }
    }

    /// Reserves a free address.
    async fn reserve(&self, owner: String) -> Result<u32, ProviderError> {
        let early = if self.is(Defect::MarksAtTheEnd) { String::new() } else { owner };
        let seen = self.cloud.read(Tables::free_address).await?;
        let act = |tables: &mut Tables| {
            let number = if self.is(Defect::ChoosesFromTheRead) { seen } else { tables.free_address() };
            tables.addresses.insert(number, Address { owner: early, busy_until: Duration::ZERO });
            tables.keep_busy(&[number]);
            number
        };
        self.cloud.write(act).await
    }

    async fn put(&self, name: String, balancer: Balancer) -> Result<(), ProviderError> {
        self.cloud.write(|tables| drop(tables.balancers.insert(name, balancer))).await
    }
}

#[async_trait]
impl SingleLoadBalancer for Memorial {
    fn name(&self, cluster: &str, service: &Service) -> String {
        balancer_name(cluster, &service.metadata.name)
    }

    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let seen = match self.observe(cluster, service).await {
            Err(_) if self.is(Defect::NothingOnError) => return Ok(None),
            seen => seen?,
        };
        let address = match &seen.balancer {
            Some(balancer) => Some(balancer.address),
            None if seen.shared || self.is(Defect::DeletesBalancerFirst) => None,
            None => seen.addresses.first().copied(),
        };
        let shift = u32::from(self.is(Defect::StatusDiffers));
        Ok(address.map(|address| self.status(address + shift)))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        if let Err(error) = SourceRanges::of(service) {
            assert!(!self.is(Defect::PanicsOnOddRanges), "{error}");
            if self.is(Defect::MakesTheRefused) {
                let name = balancer_name(cluster, &service.metadata.name);
                self.put(name, self.desired(cluster, service, nodes, 0)).await?;
            }
            return Err(ProviderError::unknown(error.to_string()));
        }
        let seen = self.observe(cluster, service).await?;
        if seen.taken {
            return Err(ProviderError::unknown("a balancer of somebody else has that name"));
        }
        let (name, ours) = (balancer_name(cluster, &service.metadata.name), address_owner(cluster, service));
        let known = seen.addresses.first().copied().filter(|_| {
            let remembered = !self.is(Defect::RemembersInMemory) || self.mine.lock().contains(&ours);
            let finished = !self.is(Defect::AddressEachTime) || seen.balancer.is_some();
            remembered && finished
        });
        let address = match known {
            Some(address) => address,
            None => self.reserve(ours.clone()).await?,
        };
        wait(self.cloud.read(|tables| tables.busy_for(address)).await?)?;
        let wanted = self.desired(cluster, service, nodes, address);
        if seen.balancer.as_ref() != Some(&wanted) || self.is(Defect::WritesEachTime) {
            self.put(name, wanted).await?;
        }
        if self.is(Defect::MarksAtTheEnd) && known.is_none() {
            self.cloud.write(|t| t.addresses.get_mut(&address).unwrap().owner = ours.clone()).await?;
        }
        self.mine.lock().insert(ours);
        Ok((!self.is(Defect::NoStatus)).then(|| self.status(address)))
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        let seen = self.observe(cluster, service).await?;
        let old = seen.balancer.ok_or_else(|| ProviderError::unknown("there is no balancer"))?;
        let hosts = self.desired(cluster, service, nodes, old.address).hosts;
        if hosts == old.hosts || self.is(Defect::IgnoresHosts) {
            return Ok(());
        }
        self.put(balancer_name(cluster, &service.metadata.name), Balancer { hosts, ..old }).await
    }

    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError> {
        let seen = self.observe(cluster, service).await?;
        if self.is(Defect::DeletingNothingFails) && seen == Observed::default() {
            return Err(ProviderError::unknown("there is no balancer"));
        }
        if seen.balancer.is_some() {
            let name = balancer_name(cluster, &service.metadata.name);
            let act = |tables: &mut Tables| {
                tables.balancers.remove(&name);
                tables.keep_busy(&seen.addresses);
            };
            self.cloud.write(act).await?;
        } else if self.is(Defect::DeletesWholeOnly) {
            return Ok(());
        }
        if self.is(Defect::LeavesAddress) || (seen.shared && !self.is(Defect::SharedGoesWithTheFirst)) {
            return Ok(());
        }
        for number in seen.addresses {
            let least = Duration::from_secs(u64::from(self.is(Defect::NeverFinishes)));
            wait(self.cloud.read(|tables| tables.busy_for(number)).await?.max(least))?;
            self.cloud.write(|tables| drop(tables.addresses.remove(&number))).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl LoadBalancer for Memorial {
    fn name(&self, cluster: &str, service: &Service) -> String {
        balancer_name(cluster, &service.metadata.name)
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let shared = service.metadata.annotations.get(SHARED).filter(|_| !self.is(Defect::GroupsUnsaid));
        [GroupKey(shared.map_or_else(|| service.key().to_string(), |name| format!("shared/{name}")))].into()
    }

    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        SingleLoadBalancer::get(self, cluster, service).await
    }

    /// Reconciles one after the other: each item sees the result of the previous one.
    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        if self.is(Defect::GroupItemByItem) {
            return reconcile_one_by_one(self, cluster, work).await;
        }
        let mut answers = Vec::new();
        for item in work {
            answers.extend(reconcile_one_by_one(self, cluster, std::slice::from_ref(item)).await);
        }
        answers
    }

    /// The planned action; null if there is none.
    async fn observe(&self, cluster: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        let service = &item.service;
        let seen = Self::observe(self, cluster, service).await?;
        let address = seen.addresses.first().copied();
        let verb = match (item.action, &seen.balancer) {
            (ServiceAction::Delete, None) => None,
            (ServiceAction::Delete, Some(_)) => Some("delete"),
            (_, None) => Some("create"),
            (_, Some(old)) => {
                let wanted = self.desired(cluster, service, &item.nodes, address.unwrap_or_default());
                (wanted != *old || self.is(Defect::PlanNeverEmpty)).then_some("update")
            }
        };
        if self.is(Defect::PlanWrites) {
            self.cloud.write(|_| {}).await?;
        }
        Ok(verb.into())
    }

    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        let plan = Plan::new(format!("service {}", item.service.key()));
        let verb = match observed.as_str() {
            None => return Ok(plan),
            Some("create") => Verb::Create,
            Some("update") => Verb::Update,
            Some(_) => Verb::Delete,
        };
        let (id, reason) = (balancer_name(cluster, &item.service.metadata.name), "the Service says so".into());
        Ok(plan.with(Step { verb, kind: "LoadBalancer".into(), id, changes: vec![], reason, risk: Risk::None }))
    }
}

#[async_trait]
impl Routes for Memorial {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let listed = self.cloud.read(|tables| {
            let of_us =
                |(_, route): &(&String, &StoredRoute)| route.cluster == cluster || self.is(Defect::ListsAllRoutes);
            let route = |(cidr, stored): (&String, &StoredRoute)| Route {
                target_node: Some((*stored.node).into()),
                destination_cidr: cidr.clone(),
                blackhole: stored.blackhole && !self.is(Defect::HidesBlackholes),
                ..Route::default()
            };
            tables.routes.iter().filter(of_us).map(route).collect()
        });
        match listed.await {
            Err(_) if self.is(Defect::NoRoutesOnError) => Ok(Vec::new()),
            answer => answer,
        }
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        let mut answers = Vec::new();
        for NewRoute { route, .. } in routes {
            answers.push(self.create_one(cluster, route).await);
        }
        answers
    }

    async fn delete(&self, _: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        let mut answers = Vec::new();
        for route in routes {
            let keeps = self.is(Defect::KeepsRoutes);
            let act = |tables: &mut Tables| {
                if !keeps {
                    tables.routes.remove(&route.destination_cidr);
                }
            };
            answers.push(self.cloud.write(act).await);
        }
        answers
    }
}

impl Memorial {
    async fn create_one(&self, cluster: &str, route: &Route) -> Result<(), ProviderError> {
        let cidr = &route.destination_cidr;
        if ccm_provider::address::parse_cidr(cidr).is_none() {
            return Err(ProviderError::unknown(format!("{cidr:?} is no range")));
        }
        let node = route.target_node.as_ref().map(ToString::to_string).unwrap_or_default();
        if self.context.get().is_none_or(|context| context.nodes.get(&node).is_none()) {
            return Err(ProviderError::unknown(format!("there is no node {node:?}")));
        }
        let wanted = StoredRoute { cluster: cluster.to_owned(), node, blackhole: false };
        let there: BTreeMap<String, StoredRoute> = self.cloud.read(|tables| tables.routes.clone()).await?;
        match there.get(cidr) {
            Some(same) if *same == wanted && !self.is(Defect::RouteTwiceFails) => Ok(()),
            Some(_) => Err(ProviderError::unknown(format!("there is a route to {cidr}"))),
            None => self.cloud.write(|tables| drop(tables.routes.insert(cidr.clone(), wanted))).await,
        }
    }
}
