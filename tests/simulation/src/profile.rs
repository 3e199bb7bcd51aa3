//! The cluster, cloud and faults of a seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::cloud::Traits;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Luck {
    /// Processes die, at a random time or at a selected write.
    Crashes,
    /// Watches break, stall, or expire.
    Watches,
    /// Lists and watches begin with stale data.
    StaleReads,
    /// The API server rejects, throttles, or loses requests and answers.
    ApiErrors,
    /// The API server is unavailable or slow.
    ApiAway,
    /// The cloud throttles.
    Throttling,
    /// Lookups fail, panic, or return the wrong number of answers.
    Lookups,
    /// Changes in the cloud fail, before or after they take effect.
    CloudWrites,
    /// Calls of the cloud take very long.
    Stuck,
    /// A process is suspended or disconnected, or its clock jumps.
    Sleep,
}

impl Luck {
    /// Whether it can delay a process's write long after the read on which it is based.
    pub fn shows_the_past(self) -> bool {
        matches!(self, Self::Watches | Self::StaleReads | Self::ApiErrors | Self::ApiAway | Self::Sleep | Self::Stuck)
    }
}

const ALL: [Luck; 10] = [
    Luck::Crashes,
    Luck::Watches,
    Luck::StaleReads,
    Luck::ApiErrors,
    Luck::ApiAway,
    Luck::Throttling,
    Luck::Lookups,
    Luck::CloudWrites,
    Luck::Stuck,
    Luck::Sleep,
];

/// The parameters of one run.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The seed, which determines everything else.
    pub seed: u64,
    /// The number of processes; with more than one they elect a leader.
    pub managers: usize,
    /// Whether the processes elect a leader.
    pub elects: bool,
    /// Whether the manager creates routes.
    pub routes: bool,
    /// Whether the route controller uses the watch.
    pub watch_routes: bool,
    /// Whether the API server can stream lists.
    pub streaming_lists: bool,
    /// The initial number of nodes.
    pub nodes: usize,
    /// The duration of the faults.
    pub chaos: Duration,
    /// The mean time between two steps.
    pub pace: Duration,
    /// The kinds of faults. A few kinds at once find more bugs than all together.
    pub luck: Vec<Luck>,
    /// The properties of the cloud.
    pub traits: Traits,
}

impl Profile {
    /// The parameters of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let elects = rng.random_bool(0.25);
        let large = rng.random_bool(0.008);
        let mut luck = ALL.to_vec();
        luck.shuffle(&mut rng);
        luck.truncate(rng.random_range(1..=5));
        luck.retain(|luck| elects || *luck != Luck::Sleep);
        Self {
            seed,
            managers: if elects && rng.random_bool(0.7) { 2 } else { 1 },
            elects,
            routes: rng.random_bool(0.5),
            watch_routes: rng.random_bool(0.4),
            streaming_lists: rng.random_bool(0.7),
            nodes: if large { 104 } else { rng.random_range(1..=6) },
            chaos: Duration::from_secs(rng.random_range(30..130)),
            pace: Duration::from_millis(rng.random_range(1500..7000)),
            luck,
            traits: Traits {
                unlisted: large || rng.random_bool(0.5),
                grace: Duration::from_secs(if rng.random_bool(0.5) { 60 } else { 10 }),
                absent_by_name: rng.random_bool(0.5),
                route_addresses: rng.random_bool(0.5),
                shared: rng.random_bool(0.3),
                latency: Duration::from_millis(if rng.random_bool(0.2) { 3000 } else { 100 }),
            },
        }
    }

    /// A small cluster without faults and with all features enabled, for scripts.
    pub fn calm(elects: bool) -> Self {
        Self {
            seed: 1,
            managers: 1,
            elects,
            routes: true,
            watch_routes: false,
            streaming_lists: true,
            nodes: 0,
            chaos: Duration::ZERO,
            pace: Duration::from_secs(1),
            luck: Vec::new(),
            traits: Traits {
                unlisted: false,
                grace: Duration::from_secs(10),
                absent_by_name: false,
                route_addresses: true,
                shared: false,
                latency: Duration::from_millis(20),
            },
        }
    }
}
