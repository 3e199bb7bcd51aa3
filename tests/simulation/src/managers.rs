//! Starting, ending and restarting managers.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ccm::manager::{Manager, Surroundings};
use ccm::options::Options;
use ccm_runtime::{Client, Metrics};
use futures::FutureExt;
use rand::Rng;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::life::{CrashPoint, Life};
use crate::profile::Profile;
use crate::trace::Invariant;
use crate::transport::Transport;
use crate::world::{DELETION_BUDGET, World};

/// The pod CIDR of the cluster.
pub const CLUSTER_CIDR: &str = "10.200.0.0/16";

/// A running process.
#[derive(Debug)]
pub struct Running {
    /// The faults of the process.
    pub life: Arc<Life>,
    /// Stops the process, like SIGTERM.
    pub stop: CancellationToken,
    /// The metrics of the process.
    pub metrics: Metrics,
}

/// A process has ended.
#[derive(Debug)]
pub struct Exit {
    /// The index of the replica.
    pub slot: usize,
    /// The result of the process.
    pub why: String,
}

/// All replicas.
#[derive(Debug)]
pub struct Managers {
    world: Arc<World>,
    options: Options,
    elects: bool,
    slots: Vec<Option<Running>>,
    started: u32,
    exits: mpsc::UnboundedSender<Exit>,
}

// Parsing takes longer than everything else at startup.
fn parsed(profile: &Profile) -> Options {
    static OPTIONS: [OnceLock<Options>; 4] = [const { OnceLock::new() }; 4];
    let Profile { routes, watch_routes, .. } = profile;
    let parsed = OPTIONS[usize::from(*routes) + 2 * usize::from(*watch_routes)].get_or_init(|| {
        let budget = format!("--node-deletion-budget={DELETION_BUDGET}");
        let cidr = format!("--cluster-cidr={CLUSTER_CIDR}");
        let routes = format!("--configure-cloud-routes={routes}");
        let watch = format!("--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation={watch_routes}");
        let args = ["--cloud-provider=sim", "--secure-port=0", &budget, &cidr, &routes, &watch];
        Options::from_args(args).unwrap_or_else(|failure| panic!("{}", failure.message))
    });
    parsed.clone()
}

impl Managers {
    /// The replicas of the profile, none of them running. The receiver gets a message when one exits.
    pub fn new(world: Arc<World>, profile: &Profile) -> (Self, mpsc::UnboundedReceiver<Exit>) {
        let options = parsed(profile);
        let (exits, ended) = mpsc::unbounded_channel();
        let slots = (0..profile.managers).map(|_| None).collect();
        (Self { world, options, elects: profile.elects, slots, started: 0, exits }, ended)
    }

    /// Starts a replica, unless it is running.
    pub fn start(&mut self, slot: usize, crash: Option<CrashPoint>) {
        if self.slots[slot].is_some() {
            return;
        }
        self.started += 1;
        let name = format!("m{}", self.started);
        let life = Arc::new(Life::new(name.clone(), self.world.began, crash));
        let mut options = self.options.clone();
        match &mut options.election {
            Some(election) if self.elects => election.identity.clone_from(&name),
            _ => options.election = None,
        }
        let metrics = Metrics::new();
        let transport = Transport { world: self.world.clone(), life: life.clone() };
        let client = Client::over(transport.client(), metrics.clone());
        let seed = self.world.dice(Rng::random);
        let surroundings = Surroundings { clock: life.clock.clone(), seed };
        let provider = self.world.cloud().provider(&life);
        let manager = Manager::within(surroundings, options, provider, client, metrics.clone());
        let stop = CancellationToken::new();
        self.world.trace.say(format_args!("{name} starts"));
        let (exits, running, dying, world) = (self.exits.clone(), stop.clone(), life.clone(), self.world.clone());
        tokio::spawn(async move {
            let why = tokio::select! {
                biased;
                () = dying.died() => "killed".to_owned(),
                ended = AssertUnwindSafe(manager.run(running)).catch_unwind() => match ended {
                    Ok(Ok(())) => "exit 0".to_owned(),
                    Ok(Err(failure)) => format!("exit {}: {}", failure.exit.code(), failure.message),
                    Err(_) => {
                        world.trace.violated(Invariant::Alive, format_args!("{dying} panicked"));
                        "panic".to_owned()
                    }
                },
            };
            // The remaining tasks end with the process.
            dying.die();
            world.trace.say(format_args!("{dying} has ended: {why}"));
            let _ = exits.send(Exit { slot, why });
        });
        self.slots[slot] = Some(Running { life, stop, metrics });
    }

    /// Records that a replica has ended.
    pub fn ended(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    /// The running replicas, with their indexes.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Running)> {
        self.slots.iter().enumerate().filter_map(|(slot, running)| Some((slot, running.as_ref()?)))
    }

    /// The number of replicas.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no replicas.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The process at an index.
    pub fn get(&self, slot: usize) -> Option<&Running> {
        self.slots.get(slot)?.as_ref()
    }

    /// The replica that may currently write.
    pub fn leader(&self) -> Option<&Running> {
        let holder = self.world.holder();
        self.running().map(|(_, running)| running).find(|running| !self.elects || running.life.name == holder)
    }
}

/// The delay until an exited container is restarted.
pub const RESTART: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(15);
