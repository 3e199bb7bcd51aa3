//! An in-memory cloud: instances, balancers of two parts, routes. Each call waits before and after it takes effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_provider::{NodeAddress, ProviderError};
use ccm_provider_contract::Outage;
use parking_lot::{Mutex, MutexGuard};

/// Defects of the provider or its cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    GoneOnError,
    OneAnswerTooFew,
    SortedAnswers,
    ForeignIsGone,
    MalformedIsGone,
    StoppedIsGone,
    StaleEvidence,
    NameWins,
    WritesEachTime,
    RemembersInMemory,
    OrderMatters,
    LeavesAddress,
    DeletingNothingFails,
    StatusDiffers,
    NoStatus,
    AdoptsByName,
    NothingOnError,
    IgnoresPorts,
    IgnoresHosts,
    AddressEachTime,
    DeletesBalancerFirst,
    DeletesWholeOnly,
    MarksAtTheEnd,
    PanicsOnOddRanges,
    PlanWrites,
    PlanNeverEmpty,
    RouteTwiceFails,
    ListsAllRoutes,
    HidesBlackholes,
    NoRoutesOnError,
    KeepsRoutes,
    TakesAnyConfig,
    TellsSecret,
    PanicsWithoutConfig,
    NeverFinishes,
    ChoosesFromTheRead,
    GroupsUnsaid,
    GroupItemByItem,
    SharedGoesWithTheFirst,
    MakesTheRefused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) addresses: Vec<NodeAddress>,
    pub(crate) stopped: bool,
}

/// A reserved address, identified by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) owner: String,
    /// The time at which the reservation, or the release, is complete.
    pub(crate) busy_until: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Balancer {
    pub(crate) owner: String,
    pub(crate) address: u32,
    pub(crate) ports: Vec<(i32, i32)>,
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredRoute {
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) blackhole: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) machines: BTreeMap<String, Machine>,
    pub(crate) addresses: BTreeMap<u32, Address>,
    pub(crate) balancers: BTreeMap<String, Balancer>,
    pub(crate) routes: BTreeMap<String, StoredRoute>,
    pub(crate) now: Duration,
    /// The time to reserve or release an address.
    pub(crate) delay: Duration,
}

impl Tables {
    /// Marks these addresses as busy after the start of an operation.
    pub(crate) fn keep_busy(&mut self, addresses: &[u32]) {
        let until = self.now + self.delay;
        addresses.iter().for_each(|number| self.addresses.get_mut(number).unwrap().busy_until = until);
    }

    pub(crate) fn busy_for(&self, address: u32) -> Duration {
        self.addresses.get(&address).map_or(Duration::ZERO, |found| found.busy_until.saturating_sub(self.now))
    }

    pub(crate) fn free_address(&self) -> u32 {
        (1..).find(|number| !self.addresses.contains_key(number)).unwrap()
    }
}

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    writes: u64,
    outage: Option<Outage>,
}

#[derive(Debug, Default)]
pub(crate) struct Cloud(Mutex<State>);

impl Cloud {
    fn state(&self) -> MutexGuard<'_, State> {
        // The provider never panics while it holds this lock.
        self.0.lock()
    }

    pub(crate) async fn read<T>(&self, look: impl FnOnce(&Tables) -> T) -> Result<T, ProviderError> {
        tokio::task::yield_now().await;
        let answer = {
            let state = self.state();
            match state.outage {
                Some(Outage::Down) => Err(ProviderError::unknown("the cloud is down")),
                _ => Ok(look(&state.tables)),
            }
        };
        tokio::task::yield_now().await;
        answer
    }

    pub(crate) async fn write<T>(&self, act: impl FnOnce(&mut Tables) -> T) -> Result<T, ProviderError> {
        tokio::task::yield_now().await;
        let answer = {
            let state = &mut *self.state();
            let (allowed, lost) = match &mut state.outage {
                Some(Outage::Down) => (false, false),
                Some(Outage::WritesRefusedAfter(left)) => (next(left), false),
                Some(outage @ Outage::AnswerLostAfter(0)) => {
                    *outage = Outage::WritesRefusedAfter(0);
                    (true, true)
                }
                Some(Outage::AnswerLostAfter(left)) => (next(left), false),
                Some(Outage::None) | None => (true, false),
            };
            let done = allowed.then(|| act(&mut state.tables));
            state.writes += u64::from(allowed);
            done.filter(|_| !lost).ok_or_else(|| ProviderError::unknown("the cloud does not answer"))
        };
        tokio::task::yield_now().await;
        answer
    }

    pub(crate) fn set_outage(&self, outage: Outage) {
        self.state().outage = Some(outage);
    }

    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// A change by a client other than the provider.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut Tables) -> T) -> T {
        act(&mut self.state().tables)
    }

    pub(crate) fn contents(&self) -> BTreeSet<String> {
        let tables = &self.state().tables;
        let addresses = tables.addresses.iter().map(|(number, address)| format!("address {number} {}", address.owner));
        let balancers = tables.balancers.iter().map(|(name, balancer)| format!("balancer {name} {balancer:?}"));
        let routes = tables.routes.iter().map(|(cidr, route)| format!("route {cidr} {route:?}"));
        addresses.chain(balancers).chain(routes).collect()
    }
}

fn next(left: &mut u64) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}
