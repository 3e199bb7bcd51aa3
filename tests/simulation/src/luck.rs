//! Faults, and their end.

use std::time::Duration;

use ccm_test_apiserver::{Effect, Fault, Match};
use rand::Rng;
use rand::seq::IndexedRandom;

use crate::life::{CrashPoint, Target};
use crate::profile::Luck;
use crate::simulation::Simulation;
use crate::steps::Action;

const WATCHED: [&str; 2] = ["nodes", "services"];

impl Simulation {
    /// Injects one of the faults that the profile allows.
    pub(crate) fn bad_luck(&mut self) {
        let Some(luck) = self.profile.luck.choose(&mut self.rng).copied() else { return };
        let resource = *WATCHED.choose(&mut self.rng).unwrap();
        match luck {
            Luck::Crashes => self.crash(),
            Luck::Watches => self.break_watches(resource),
            Luck::StaleReads => {
                // Reads without a version are current on every API server.
                self.say(format_args!("the watch cache of {resource} shows the past"));
                self.world.faults.lag_cache(resource);
                if self.rng.random_bool(0.5) {
                    self.world.store.compact(resource).unwrap();
                }
                let end = self.between(500, 40_000);
                self.after(end, Action::Fresh(resource));
                // The watch breaks later, so that the stale data is older than the data already seen.
                if self.rng.random_bool(0.7) {
                    self.world.faults.add(Fault::new(Effect::EndWatch { after: 1, abrupt: true }).times(2));
                    self.world.faults.drop_watches(Some(resource));
                }
            }
            Luck::ApiErrors => self.api_errors(),
            Luck::ApiAway => {
                if self.rng.random_bool(0.5) {
                    self.say("the API server is away");
                    self.world.set_api_gone(true);
                    let end = self.between(500, 40_000);
                    self.after(end, Action::ApiBack);
                } else {
                    let millis = self.rng.random_range(50..900);
                    self.say(format_args!("the API server is slow: {millis}ms"));
                    self.world.set_slow(millis);
                    let end = self.between(5000, 40_000);
                    self.after(end, Action::ApiFast);
                }
            }
            Luck::Throttling => {
                let until = self.world.trace.now() + self.between(2000, 40_000);
                let only_writes = self.rng.random_bool(0.5);
                let after = self.rng.random_bool(0.5).then(|| Duration::from_secs(self.rng.random_range(1..20)));
                self.say(format_args!(
                    "the cloud throttles until {until:?}, only writes: {only_writes}, after {after:?}"
                ));
                self.world.cloud().lock().mishaps.throttled = Some((until, only_writes, after));
            }
            Luck::Lookups => self.bad_lookups(),
            Luck::CloudWrites => self.bad_cloud_writes(),
            Luck::Stuck => {
                let (calls, time) = (self.rng.random_range(1..3), Duration::from_secs(self.rng.random_range(20..150)));
                self.say(format_args!("the next {calls} calls of the cloud take {time:?}"));
                self.world.cloud().lock().mishaps.stuck = Some((calls, time));
            }
            Luck::Sleep => self.sleep(),
        }
    }

    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        self.world.trace.say(format_args!("luck: {line}"));
    }

    fn slot(&mut self) -> Option<usize> {
        let slots: Vec<usize> = self.managers.running().map(|(slot, _)| slot).collect();
        slots.choose(&mut self.rng).copied()
    }

    fn crash(&mut self) {
        let Some(slot) = self.slot() else { return };
        match self.rng.random_range(0..10) {
            0..7 => {
                let target = *[None, Some(Target::Api), Some(Target::Cloud)].choose(&mut self.rng).unwrap();
                let point = CrashPoint { target, skip: self.rng.random_range(0..5), after: self.rng.random_bool(0.5) };
                if let Some(running) = self.managers.get(slot) {
                    self.say(format_args!("{} will die: {point:?}", running.life));
                    running.life.crash_at(point);
                }
            }
            7..9 => self.hurt(&Action::Kill(slot)),
            _ => self.hurt(&Action::Stop(slot)),
        }
    }

    fn break_watches(&mut self, resource: &'static str) {
        match self.rng.random_range(0..4) {
            0 => {
                self.say("all watches break");
                self.world.faults.drop_watches(None);
            }
            1 => {
                self.say(format_args!("watches of {resource} stall"));
                self.world.faults.freeze_watches(Some(resource));
                let end = self.between(500, 60_000);
                self.after(end, Action::Thaw(resource));
            }
            2 => {
                self.say(format_args!("history of {resource} is forgotten"));
                self.world.store.compact(resource).unwrap();
                self.world.faults.drop_watches(Some(resource));
            }
            _ => {
                let (after, abrupt) = (self.rng.random_range(0..4), self.rng.random_bool(0.5));
                self.say(format_args!("the next watches end after {after} events"));
                let times = self.rng.random_range(1..4);
                self.world.faults.add(Fault::new(Effect::EndWatch { after, abrupt }).times(times));
                self.world.faults.drop_watches(None);
            }
        }
    }

    fn api_errors(&mut self) {
        let verb = *["write", "read", "watch", "patch"].choose(&mut self.rng).unwrap();
        let resource = *["nodes", "services", "events", "leases"].choose(&mut self.rng).unwrap();
        let matching = match self.rng.random_bool(0.5) {
            true => Match::on(verb, resource),
            false => Match { verb: Some(verb.to_owned()), ..Match::default() },
        };
        let fault = match self.rng.random_range(0..7) {
            0 => Fault::too_many_requests(self.rng.random_range(1..8)),
            1 => Fault::status(429),
            2 => Fault::status(*[500, 503, 504, 409].choose(&mut self.rng).unwrap()),
            3 => Fault::new(Effect::HtmlPage { code: 502 }),
            4 => Fault::new(Effect::LoseRequest),
            5 => Fault::new(Effect::LoseAnswer),
            _ => Fault::new(Effect::FailAfterEffect { code: 504 }),
        };
        let (times, every) = (self.rng.random_range(1..8), self.rng.random_range(1..3));
        self.say(format_args!("{times} times, each {every}th {matching:?}: {:?}", fault.effect));
        self.world.faults.add(fault.on(matching).times(times).every(every));
    }

    fn bad_lookups(&mut self) {
        let until = self.world.trace.now() + self.between(2000, 60_000);
        let count = self.rng.random_range(1..4);
        let roll = self.rng.random_range(0..10);
        let mut cloud = self.world.cloud().lock();
        let text = match roll {
            0..4 => {
                let everywhere = roll < 2;
                cloud.mishaps.lookups_fail = Some((until, everywhere));
                format!("look-ups fail until {until:?}, for all: {everywhere}")
            }
            4..6 => {
                cloud.mishaps.panics = count;
                format!("{count} calls panic")
            }
            6..8 => {
                cloud.mishaps.miscounts = count;
                format!("{count} calls answer for too few or too many")
            }
            _ => {
                cloud.mishaps.partial_lists = count;
                format!("{count} lists are partial")
            }
        };
        drop(cloud);
        self.say(text);
    }

    fn bad_cloud_writes(&mut self) {
        let until = self.world.trace.now() + self.between(1000, 15_000);
        let count = self.rng.random_range(1..5);
        let roll = self.rng.random_range(0..5);
        let mut cloud = self.world.cloud().lock();
        let text = match roll {
            0 => {
                cloud.mishaps.fail_writes = count;
                format!("{count} changes fail")
            }
            1 => {
                cloud.mishaps.lose_answers = count;
                format!("the answers to {count} changes are lost")
            }
            2 => {
                cloud.mishaps.conflicts = 2 * count;
                format!("{} routes meet a conflict", 2 * count)
            }
            3 => {
                cloud.mishaps.come_back = count;
                format!("{count} ensures are asked to come back")
            }
            _ => {
                cloud.mishaps.stale_routes = Some((until, cloud.routes.clone()));
                format!("routes are shown as they are now until {until:?}")
            }
        };
        drop(cloud);
        self.say(text);
    }

    fn sleep(&mut self) {
        let Some(slot) = self.slot() else { return };
        let time = self.between(2000, 40_000);
        let roll = self.rng.random_range(0..4);
        let Some(running) = self.managers.get(slot) else { return };
        let life = running.life.clone();
        match roll {
            0 => {
                self.say(format_args!("{life} gets no answers for {time:?}"));
                life.set_hung(true);
                self.after(time, Action::Awake(slot));
            }
            // Only the leader: for a standby, the lease would seem not to be renewed, which is not the effect of a
            // suspension.
            1 if self.world.holder() == life.name => {
                self.say(format_args!("{life} has slept for {time:?}"));
                life.clock.leap(time);
            }
            2 => {
                self.say(format_args!("{life} is cut off for {time:?}"));
                life.set_cut_off(true);
                self.after(time, Action::Connected(slot));
            }
            _ => {
                self.say(format_args!("the wall clock of {life} jumps"));
                life.clock.jump(Duration::from_secs(3600));
            }
        }
    }

    /// Runs steps that affect processes or end faults.
    pub(crate) fn hurt(&mut self, action: &Action) {
        match *action {
            Action::Start(slot) => self.managers.start(slot, self.next_crash.take()),
            Action::Stop(slot) => {
                if let Some(running) = self.managers.get(slot) {
                    self.say(format_args!("SIGTERM for {}", running.life));
                    running.stop.cancel();
                }
            }
            Action::Kill(slot) => {
                if let Some(running) = self.managers.get(slot) {
                    self.say(format_args!("SIGKILL for {}", running.life));
                    running.life.die();
                }
            }
            Action::FailLookups(millis) => {
                let until = self.world.trace.now() + Duration::from_millis(millis);
                self.world.cloud().lock().mishaps.lookups_fail = Some((until, true));
            }
            Action::SlowPatch(resource, millis) => {
                let slow = Fault::latency(Duration::from_millis(millis));
                self.world.faults.add(slow.on(Match::on("patch", resource)).times(1));
            }
            Action::Thaw(resource) => self.world.faults.thaw_watches(Some(resource)),
            Action::Fresh(resource) => self.world.faults.fresh_reads(resource),
            Action::ApiBack => self.world.set_api_gone(false),
            Action::ApiFast => self.world.set_slow(0),
            Action::Awake(slot) => drop(self.managers.get(slot).map(|running| running.life.set_hung(false))),
            Action::Connected(slot) => drop(self.managers.get(slot).map(|running| running.life.set_cut_off(false))),
            _ => {}
        }
    }

    /// Ends all faults.
    pub(crate) fn calm(&mut self) {
        self.say("nothing goes wrong from here on");
        self.world.faults.clear();
        for resource in WATCHED {
            self.world.faults.fresh_reads(resource);
        }
        self.world.set_api_gone(false);
        self.world.set_slow(0);
        self.world.cloud().calm();
        for (_, running) in self.managers.running() {
            running.life.set_hung(false);
            running.life.set_cut_off(false);
            running.life.spare();
        }
        self.agenda.retain(|_, action| *action != Action::Anything);
    }
}
