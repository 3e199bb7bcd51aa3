//! The state that all services of a simulated AWS share.

use super::model::Models;
use super::options::Options;
use super::{ec2, elb, elbv2, sts};
use crate::core::clock::{Clock, later};
use crate::core::lag::Past;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The state of all services. A clone is a snapshot, but shares the clock.
#[derive(Debug, Clone)]
pub struct World {
    pub options: Arc<Options>,
    pub clock: Clock,
    /// The seeded source of IDs.
    pub rng: StdRng,
    /// Instances, VPCs, security groups.
    pub ec2: ec2::Ec2State,
    /// Classic Load Balancers.
    pub elb: elb::ElbState,
    /// Network Load Balancers and target groups.
    pub elbv2: elbv2::ElbV2State,
    /// Issued credentials.
    pub sts: sts::StsState,
    /// Older states; kept only for stale reads.
    pub(super) past: Past<World>,
    /// The models against which requests and answers are checked.
    pub(super) models: Option<Arc<Models>>,
    agenda: BTreeMap<(Timestamp, u64), Due>,
    appointments: u64,
}

/// A scheduled event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// An event in EC2.
    Ec2(ec2::Due),
    /// An event of Network Load Balancers and target groups.
    Elbv2(elbv2::Due),
}

/// The complete state for serialization, in a stable, sorted order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dump {
    pub now: Timestamp,
    /// See [`World::ec2`].
    pub ec2: ec2::Ec2State,
    /// See [`World::elb`].
    #[serde(default)]
    pub elb: elb::ElbState,
    /// See [`World::elbv2`].
    #[serde(default)]
    pub elbv2: elbv2::ElbV2State,
    /// See [`World::sts`].
    #[serde(default)]
    pub sts: sts::StsState,
    /// The scheduled events, earliest first.
    #[serde(default)]
    pub agenda: Vec<(Timestamp, Due)>,
}

impl World {
    /// An empty account.
    pub fn new(options: Arc<Options>) -> Self {
        let clock = Clock::new(options.clock);
        World {
            clock,
            rng: StdRng::seed_from_u64(options.seed),
            ec2: ec2::Ec2State::new(&options),
            elb: elb::ElbState::default(),
            elbv2: elbv2::ElbV2State::default(),
            sts: sts::StsState::default(),
            past: Past::default(),
            models: None,
            agenda: BTreeMap::new(),
            appointments: 0,
            options,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether an object of this kind created at `created` is visible yet (see [`crate::core::lag`]).
    pub fn known(&self, kind: &str, created: Timestamp) -> bool {
        self.options.lag.known(kind, created, self.now())
    }

    /// Schedules an event after `delay`; without delay it occurs before the next call.
    pub fn after(&mut self, delay: Duration, due: Due) {
        let at = later(self.now(), delay);
        self.agenda.insert((at, self.appointments), due);
        self.appointments += 1;
    }

    /// Executes all events that are due.
    pub fn settle(&mut self) {
        let now = self.now();
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > now {
                return;
            }
            match entry.remove() {
                Due::Ec2(due) => ec2::settle(self, &due),
                Due::Elbv2(due) => elbv2::settle(self, &due),
            }
        }
    }

    /// A new ID: a prefix and 17 hexadecimal digits, e.g. `i-0f3a…`.
    pub fn new_id(&mut self, prefix: &str) -> String {
        // Current AWS IDs begin with a zero.
        format!("{prefix}0{}", self.hex(16))
    }

    /// Random hexadecimal digits.
    pub fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            // Writing to a string can't fail.
            let _ = write!(text, "{:016x}", self.rng.random::<u64>());
        }
        text.truncate(digits);
        text
    }

    /// A random UUID, for request IDs.
    pub fn uuid(&mut self) -> String {
        let digits = self.hex(32);
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }

    /// Dumps the state.
    pub fn dump(&self) -> Dump {
        Dump {
            now: self.now(),
            ec2: self.ec2.clone(),
            elb: self.elb.clone(),
            elbv2: self.elbv2.clone(),
            sts: self.sts.clone(),
            agenda: self.agenda.iter().map(|((at, _), due)| (*at, due.clone())).collect(),
        }
    }

    /// Loads a dumped state; the clock is set to the dump's time.
    pub fn load(&mut self, dump: Dump) {
        self.clock.set(dump.now);
        self.ec2 = dump.ec2;
        self.ec2.reindex();
        self.elb = dump.elb;
        self.elbv2 = dump.elbv2;
        self.sts = dump.sts;
        self.agenda = dump.agenda.into_iter().zip(0..).map(|((at, due), n)| ((at, n), due)).collect();
        self.appointments = u64::try_from(self.agenda.len()).unwrap_or(u64::MAX);
    }
}
