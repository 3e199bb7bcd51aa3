//! Every operation of the life of a balancer, with every outcome, in every situation.
//!
//! A case runs three Services. One operation fails in one way for the first of them ("the hit one") while the Services
//! are created, get other hosts, change, are deleted, meet a new process, or are handed over to one. What must hold is in
//! [`Check`]. The operations are not listed by hand: they are the calls that a run without a fault makes in the situation,
//! and [`MatrixCloud::table`] proves that no operation of the provider is forgotten.
//!
//! Calls that name an object of the hit Service fail for that Service alone, and until the fault ends ([`Reach::Own`]).
//! Calls that name no Service concern all of them: they fail during one pass ([`Reach::Shared`]).
//!
//! A list of known failures, a file beside the test, can only become shorter: a listed failure that passes is a failure
//! of the test, and so is one that is not listed. `UPDATE=1` writes the file.

mod case;
mod known;
mod life;
mod pace;
mod run;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{NodeRef, Service};
use futures::future::BoxFuture;

use crate::watch::{Call, Effect, Strike};
use crate::{Harness, Outage};

pub use known::Known;
pub use run::{Part, run};

/// A cloud of the matrix. Each is used for one case.
#[async_trait]
pub trait MatrixCloud: Send + Sync {
    /// The provider and its cloud, without objects of the cluster.
    fn harness(&self) -> Arc<dyn Harness>;

    /// What the provider may do for balancers, from its own table of operations or permissions.
    fn table(&self) -> Vec<String>;

    /// The entry of the table for a [`Call::operation`].
    fn entry(&self, operation: &str) -> String {
        operation.to_owned()
    }

    /// Entries of the table that healthy lives of all kinds of balancers may do without, each with the reason.
    fn unused(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// What the cloud does in case of this trouble, with its documented codes. The error says why the cloud, or its
    /// simulation, has no such trouble.
    fn effect(&self, operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str>;

    /// Texts by which a call belongs to a Service: names and addresses of its objects.
    fn names(&self, service: &Service) -> Vec<String> {
        vec![service.default_load_balancer_name()]
    }

    /// Texts by which a line of [`Harness::contents`] belongs to a Service: the names, and the node ports.
    fn marks(&self, service: &Service) -> Vec<String> {
        let ports = service.spec.ports.iter().map(|port| port.node_port.to_string());
        self.names(service).into_iter().chain(ports).collect()
    }

    /// Adjusts every Service.
    fn dress(&self, service: &mut Service) {
        let _ = service;
    }

    /// Changes the specification of a Service; its node ports stay between `base` and `base + 9`.
    fn change(&self, service: &mut Service);

    /// Whether clients can reach the load balancer of a Service: its address exists.
    fn has_frame(&self, service: &Service) -> bool;

    /// Whether only this read shows that a new load balancer is ready. Until it succeeds, its address is not published.
    fn shows_frame(&self, operation: &str) -> bool {
        let _ = operation;
        false
    }

    /// The members of each pool of a Service.
    fn members(&self, service: &Service) -> Vec<BTreeSet<String>>;

    /// The text of a node in [`MatrixCloud::members`].
    fn member(&self, node: &NodeRef) -> String {
        node.provider_id_or_empty().rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Whether members can't follow the nodes without this operation: the write of members, and reads without which
    /// they, or the instances of the nodes, are unknown.
    fn moves_members(&self, operation: &str) -> bool;

    /// Whether a refusal of one call about several Services may be about one of them, so that the others get what they
    /// need from other calls.
    fn divides(&self, operation: &str) -> bool {
        let _ = operation;
        true
    }

    /// A line of [`Harness::contents`] without what the order of events determines.
    fn plain(&self, line: String) -> String {
        line
    }

    /// A line about an object of others without what a failed write of an object that they share leaves for some time.
    fn of_others(&self, line: &str) -> String {
        line.to_owned()
    }

    /// A call without parameters that differ each time.
    fn plain_call(&self, call: &Call) -> String {
        call.text.clone()
    }

    /// What an administrator repairs after a change that failed.
    fn repair(&self) {}

    /// Creates objects of other owners.
    async fn add_others(&self, like: &Service) {
        self.harness().add_objects_of_others(Some(like)).await;
    }

    /// Advances the clock of the cloud.
    fn step(&self, time: Duration) {
        if let Some(simulation) = self.harness().simulation() {
            simulation.step(time);
        }
    }

    /// Begins to record the calls.
    fn watch(&self) {
        if let Some(simulation) = self.harness().simulation() {
            simulation.watch();
        }
    }

    /// The calls since [`MatrixCloud::watch`].
    fn watched(&self) -> Vec<Call> {
        self.harness().simulation().map(crate::Simulation::watched).unwrap_or_default()
    }

    /// A number that grows with each call.
    fn mark(&self) -> u64 {
        self.harness().simulation().map(crate::Simulation::mark).unwrap_or_default()
    }

    /// Replaces the fault.
    async fn strike(&self, strike: Option<Strike>) {
        let harness = self.harness();
        let Some(simulation) = harness.simulation() else { return };
        if strike.is_none() {
            simulation.disrupt(Outage::None);
        }
        simulation.strike(strike);
    }
}

/// A kind of load balancer.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct Kind {
    /// Its name in reports.
    pub name: &'static str,
    /// Whether only those of its operations are of interest that no kind before it has in the same situation; then it
    /// runs only creation, change and deletion.
    pub is_variant: bool,
    /// Creates a cloud.
    pub start: fn() -> BoxFuture<'static, Arc<dyn MatrixCloud>>,
}

/// An operation that a healthy life calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// [`Call::operation`]
    pub name: String,
    /// Whether it is a write.
    pub writes: bool,
    /// Whether the life requests a further page of it.
    pub continued: bool,
}

/// A closed list of words, with their texts.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $id:ident $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $id,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$id),*];

            /// The word in reports and in lists of known failures.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$id => $text,)* }
            }

            /// The one with this word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What happens to a call.
    Trouble {
        /// A permission is missing.
        Denied "denied",
        /// The cloud refuses the request for good.
        Refused "refused",
        /// An object that a write names does not exist.
        NotFound "not-found",
        /// Another client changed the object, or created it.
        Conflict "conflict",
        /// The object is busy.
        Busy "busy",
        /// A quota is exhausted.
        Quota "quota",
        /// Too many calls.
        Throttled "throttled",
        /// An internal error of the cloud.
        Server "5xx",
        /// A web page of a proxy.
        Html "html",
        /// A write takes effect, and its answer is lost.
        Lost "lost",
        /// A write is accepted, and fails later.
        FailsLater "fails-later",
        /// There is never an answer.
        Hangs "hangs",
        /// The second page of a list fails, or its only page ends in the middle.
        Half "half",
        /// The process is asked to stop while the call is served, and another one takes over.
        Stops "stops",
    }
}

words! {
    /// What the provider does meanwhile.
    Situation {
        /// Creates the balancers.
        Ensure "ensure",
        /// Updates their hosts.
        Hosts "hosts",
        /// Changes them after a change of the specification and of the nodes.
        Change "change",
        /// Deletes them.
        Delete "delete",
        /// Ensures them in a new process, after a change of the nodes.
        Restart "restart",
        /// Creates the balancers, and is replaced by a new process.
        HandOver "hand-over",
    }
}

words! {
    /// The calls that fail.
    Reach {
        /// Those about an object of the hit Service, until the fault ends.
        Own "own",
        /// Those that name no Service, during one pass.
        Shared "shared",
    }
}

words! {
    /// What must hold.
    Check {
        /// The other Services reach their end state in the same pass; after a shared call failed, in the next.
        Healthy "healthy",
        /// Their answers come without waiting for the hit one.
        Late "late",
        /// The members of existing pools of the hit one follow the nodes.
        Members "members",
        /// The answer about the hit one contains its status if its address exists.
        Status "status",
        /// No other address is published than the one before the fault and the one in the end.
        Published "published",
        /// An answer without an error is true.
        True "true",
        /// The error names the reason.
        Reason "reason",
        /// Objects of others do not change.
        Foreign "foreign",
        /// A process that stops ends its calls soon, and writes nothing afterwards.
        Stops "stops",
        /// A refused write is not repeated without end.
        Bounded "bounded",
        /// After the fault, all Services reach their end state.
        Converges "converges",
        /// Then a sync writes nothing.
        Steady "steady",
        /// After the deletion of all Services, nothing is left.
        Leftovers "leftovers",
        /// No call violates the API of the cloud.
        Violations "violations",
        /// The case ends.
        Ends "ends",
    }
}
