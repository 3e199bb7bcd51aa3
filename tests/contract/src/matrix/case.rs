//! One case: an operation that fails in one way in one situation.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{ErrorClass, LoadBalancerStatus, ProviderError, ServiceAction, Turn};
use futures::FutureExt as _;
use futures::future::{Either, select};

use super::life::{Given, HIT, Life};
use super::{Check, Kind, MatrixCloud, Operation, Reach, Situation, Trouble, pace};
use crate::watch::{Call, Effect, Strike};
use crate::{Outcome, TestCluster};

/// How many passes the end of a fault may need.
const PASSES: usize = 5;
/// After this time, refused writes are sent again.
const FORGOTTEN: Duration = Duration::from_secs(61 * 60);
/// The time between two passes.
const BETWEEN: Duration = Duration::from_secs(60);
/// How much longer than without a fault the others may take: a call has a timeout of 30 s and may be repeated twice, with
/// growing pauses.
const PATIENCE: Duration = Duration::from_secs(95);
/// The time between two looks whether the process was asked to stop.
const LOOK: Duration = Duration::from_millis(5);
/// How often one write may be refused in one pass: the matrix asks four times after a conflict, the provider twice.
const PER_PASS: usize = 8;
/// How often a busy object is asked in one pass, which takes at most five minutes.
const POLLS: usize = 70;
/// How often one write that is refused for good may be sent: also after a second look.
const FOR_GOOD: usize = 2;

#[derive(Clone)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) operation: Operation,
    pub(super) reach: Reach,
    pub(super) trouble: Trouble,
    pub(super) situation: Situation,
}

/// A run without a fault.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    /// The calls in the situation.
    pub(super) calls: Vec<Call>,
    /// Whether a call is about the hit Service, and whether it is about another one.
    pub(super) about: Vec<(bool, bool)>,
    reached: BTreeSet<String>,
    /// The objects of each Service.
    lines: Vec<BTreeSet<String>>,
    took: Duration,
}

/// What a case found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Whether a call got the fault.
    pub(super) struck: bool,
    pub(super) broken: BTreeMap<Check, String>,
}

impl Found {
    fn holds(&mut self, check: Check, condition: bool, how: impl FnOnce() -> String) {
        if !condition {
            self.broken.entry(check).or_insert_with(how);
        }
    }
}

impl Situation {
    /// Lets the Services live until the situation begins. Returns the actions of the pass.
    async fn reach(self, life: &mut Life) -> Result<Vec<Option<ServiceAction>>, Outcome> {
        if !matches!(self, Self::Ensure | Self::HandOver) {
            let wanted = life.wanted();
            succeeds(&life.pass(&wanted).await?, "the preparation")?;
        }
        match self {
            Self::Ensure | Self::HandOver => {}
            Self::Hosts => {
                life.change_nodes();
                return Ok(vec![Some(ServiceAction::UpdateHosts); life.services.len()]);
            }
            Self::Change => {
                life.change_nodes();
                let cloud = Arc::clone(&life.cloud);
                life.services.iter_mut().for_each(|service| cloud.change(service));
            }
            Self::Delete => life.gone = (0..life.services.len()).collect(),
            Self::Restart => {
                life.change_nodes();
                life.restart().await?;
            }
        }
        Ok(life.wanted())
    }
}

fn succeeds(given: &[Option<Given>], what: &str) -> Result<(), Outcome> {
    for given in given.iter().flatten() {
        if let Err(error) = &given.answer {
            return Err(Outcome::Broken(format!("{what} failed without a fault: {error}")));
        }
    }
    Ok(())
}

/// Runs `work` over a new cloud, in its own runtime.
pub(super) fn on_a_cloud<T>(
    kind: Kind,
    work: impl AsyncFnOnce(Arc<dyn MatrixCloud>, Arc<TestCluster>) -> Result<T, Outcome>,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let end = runtime.block_on(async {
        let cloud = (kind.start)().await;
        let cluster = Arc::<TestCluster>::default();
        let time = tokio::spawn(pace::run(Arc::clone(&cloud), Arc::clone(&cluster)));
        let run = AssertUnwindSafe(work(cloud, cluster)).catch_unwind();
        match select(pin!(run), time).await {
            Either::Left((Ok(Ok(value)), time)) => {
                time.abort();
                Ok(value)
            }
            Either::Left((Ok(Err(outcome)), _)) => Err(outcome.to_string()),
            Either::Left((Err(panic), _)) => Err(format!("panicked: {}", crate::panic_text(&*panic))),
            Either::Right((Ok(()), _)) => Err("no end".to_owned()),
            Either::Right((Err(error), _)) => Err(error.to_string()),
        }
    });
    runtime.shutdown_background();
    end
}

/// Runs a situation without a fault.
pub(super) fn healthy(kind: Kind, situation: Situation) -> Result<Baseline, String> {
    on_a_cloud(kind, async |cloud, cluster| {
        let mut life = Life::start(Arc::clone(&cloud), cluster).await?;
        cloud.add_others(&life.bed.service("theirs")).await;
        let actions = situation.reach(&mut life).await?;
        cloud.watch();
        let given = life.pass(&actions).await?;
        let calls = cloud.watched();
        succeeds(&given, "the situation")?;
        let wanted = life.wanted();
        succeeds(&life.pass(&wanted).await?, "a second pass")?;
        let reached = life.contents().await;
        let lines = (0..life.services.len()).map(|place| life.lines_of(place, &reached)).collect();
        let names: Vec<Vec<String>> = life.services.iter().map(|service| cloud.names(service)).collect();
        let (hit, others) = names.split_at(HIT + 1);
        let about = |call: &Call| {
            (hit.iter().any(|names| call.is_about(names)), others.iter().any(|names| call.is_about(names)))
        };
        let about = calls.iter().map(about).collect();
        let took = given.iter().flatten().map(|given| given.after).max().unwrap_or_default();
        Ok(Baseline { calls, about, reached, lines, took })
    })
}

/// Runs a case.
pub(super) fn run(case: &Case, effect: &Effect, base: &Baseline) -> Found {
    let mut found = Found::default();
    let end = on_a_cloud(case.kind, async |cloud, cluster| {
        let life = Life::start(Arc::clone(&cloud), cluster).await?;
        Run { case, effect, base, cloud, life, found: &mut found, start: BTreeSet::new(), statuses: Vec::new() }
            .go()
            .await
    });
    if let Err(how) = end {
        found.holds(Check::Ends, false, || how);
    }
    found
}

/// A process that is asked to stop while the cloud serves the call of the case.
struct Stops(Arc<dyn MatrixCloud>);

#[async_trait]
impl Turn for Stops {
    fn may_write(&self) -> bool {
        !self.0.watched().iter().any(|call| call.struck)
    }

    fn may_complete(&self) -> bool {
        true
    }

    async fn ended(&self) {
        while self.may_write() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn wait_begins(&self) {}

    fn wait_ends(&self) {}

    async fn resumed(&self) {}
}

struct Run<'a> {
    case: &'a Case,
    effect: &'a Effect,
    base: &'a Baseline,
    cloud: Arc<dyn MatrixCloud>,
    life: Life,
    found: &'a mut Found,
    /// The contents before the first Service.
    start: BTreeSet<String>,
    /// The statuses before the fault.
    statuses: Vec<LoadBalancerStatus>,
}

impl Run<'_> {
    async fn go(mut self) -> Result<(), Outcome> {
        self.cloud.add_others(&self.life.bed.service("theirs")).await;
        self.start = self.life.contents().await;
        let situation = self.case.situation;
        let actions = situation.reach(&mut self.life).await?;
        let had = self.life.services.get(HIT).map(|hit| (self.cloud.members(hit).len(), self.cloud.has_frame(hit)));
        let had = had.unwrap_or_default();
        self.statuses = self.life.services.iter().map(|service| service.status.load_balancer.clone()).collect();
        self.life.published.iter_mut().for_each(Vec::clear);
        self.cloud.watch();
        self.cloud.strike(Some(self.strike())).await;
        if self.case.trouble == Trouble::Stops {
            self.life.stops = Some(Arc::new(Stops(Arc::clone(&self.cloud))));
        }
        let first = self.life.pass(&actions).await?;
        self.found.struck = self.cloud.watched().iter().any(|call| call.struck);
        if !self.found.struck {
            return Ok(());
        }
        if self.case.trouble == Trouble::Stops {
            return self.hands_over().await;
        }
        let is_own = self.case.reach == Reach::Own;
        self.error_names_reason(&first);
        self.foreign().await;
        if is_own {
            self.others_are_done(&first).await;
            self.hit_is_served(&first, had, &actions).await;
        } else {
            self.cloud.strike(None).await;
        }
        if situation == Situation::HandOver {
            self.life.restart().await?;
        }
        self.life.leap(BETWEEN);
        let second = self.life.pass(&actions).await?;
        if is_own {
            self.life.leap(BETWEEN);
            self.life.pass(&actions).await?;
            self.writes_are_bounded(had.1);
        } else {
            self.others_are_done(&second).await;
            self.hit_is_served(&second, had, &actions).await;
        }
        self.ends_well().await
    }

    /// The process has stopped during the call; another one goes on.
    async fn hands_over(mut self) -> Result<(), Outcome> {
        let writes = |cloud: &dyn MatrixCloud| cloud.watched().iter().filter(|call| call.writes).count();
        let before = writes(&*self.cloud);
        self.life.stops = None;
        self.foreign().await;
        self.life.leap(BETWEEN);
        self.life.restart().await?;
        let late = writes(&*self.cloud) - before;
        self.found.holds(Check::Stops, late == 0, || format!("{late} writes after its last call"));
        self.ends_well().await
    }

    fn strike(&self) -> Strike {
        let names = |place: usize| self.life.services.get(place).map(|it| self.cloud.names(it)).unwrap_or_default();
        let (about, besides) = match self.case.reach {
            Reach::Own => (names(HIT), Vec::new()),
            Reach::Shared => (Vec::new(), (0..self.life.services.len()).flat_map(names).collect()),
        };
        Strike {
            operation: self.case.operation.name.clone(),
            about,
            besides,
            continued: self.case.trouble == Trouble::Half && self.case.operation.continued,
            effect: self.effect.clone(),
        }
    }

    /// Whether the failed calls were about the hit Service only, or could be divided.
    fn is_divisible(&self) -> bool {
        let others: Vec<String> = self.life.services.iter().skip(HIT + 1).flat_map(|it| self.cloud.names(it)).collect();
        let is_common = self.cloud.watched().iter().any(|call| call.struck && call.is_about(&others));
        let divides = self.cloud.divides(&self.case.operation.name);
        !is_common || divides && matches!(self.case.trouble, Trouble::Refused | Trouble::NotFound)
    }

    async fn others_are_done(&mut self, given: &[Option<Given>]) {
        let is_own = self.case.reach == Reach::Own;
        if is_own && !self.is_divisible() {
            return;
        }
        let contents = self.life.contents().await;
        for (place, given) in given.iter().enumerate().skip(HIT + 1) {
            let Some(given) = given else { continue };
            let answer = given.answer.as_ref().map(drop).map_err(ToString::to_string);
            self.found.holds(Check::Healthy, answer.is_ok(), || format!("{answer:?}"));
            let (lines, expected) = (self.life.lines_of(place, &contents), self.base.lines.get(place));
            self.found.holds(Check::Healthy, Some(&lines) == expected, || differences(&lines, expected));
            let limit = self.base.took + PATIENCE;
            let after = given.after;
            self.found.holds(Check::Late, !is_own || after <= limit, || format!("{} s", after.as_secs()));
        }
    }

    /// `had`: the number of its pools before, and whether it had an address.
    async fn hit_is_served(
        &mut self,
        given: &[Option<Given>],
        (had_pools, had_frame): (usize, bool),
        actions: &[Option<ServiceAction>],
    ) {
        let (Some(Some(given)), Some(hit)) = (given.get(HIT), self.life.services.get(HIT)) else { return };
        let (case, cloud) = (self.case, &self.cloud);
        let nodes_changed = matches!(case.situation, Situation::Hosts | Situation::Change | Situation::Restart);
        if nodes_changed && !cloud.moves_members(&case.operation.name) {
            let (pools, expected) = (cloud.members(hit), self.life.expected_members());
            // A new pool may need another pass.
            let follow = pools.iter().filter(|members| **members == expected).count() >= had_pools;
            self.found.holds(Check::Members, follow, || format!("{pools:?} instead of {expected:?}"));
        }
        let is_ensured = actions.get(HIT) == Some(&Some(ServiceAction::Ensure));
        // After a lost answer, only the next pass sees what was created.
        let is_seen = had_frame || case.trouble != Trouble::Lost && !cloud.shows_frame(&case.operation.name);
        // An answer without a status leaves the one that an earlier pass has published.
        let is_published = !hit.status.load_balancer.ingress.is_empty();
        if is_ensured && is_seen && cloud.has_frame(hit) {
            let how = || format!("{:?}", given.answer.as_ref().map_err(ToString::to_string));
            self.found.holds(Check::Status, is_published, how);
        }
        if given.answer.is_ok() {
            let contents = self.life.contents().await;
            let (lines, expected) = (self.life.lines_of(HIT, &contents), self.base.lines.get(HIT));
            self.found.holds(Check::True, Some(&lines) == expected, || differences(&lines, expected));
        }
    }

    fn error_names_reason(&mut self, given: &[Option<Given>]) {
        let error = given.get(HIT).and_then(|given| given.as_ref()?.error());
        if let Some(error) = error {
            self.found.holds(Check::Reason, names_reason(self.effect, error), || error.to_string());
        }
    }

    fn writes_are_bounded(&mut self, had_frame: bool) {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in self.cloud.watched().iter().filter(|call| call.struck && call.writes) {
            *counts.entry(self.cloud.plain_call(call)).or_default() += 1;
        }
        let is_deletion = self.case.operation.name.to_lowercase().contains("delete");
        // Members are sent again: they change with the nodes.
        let is_of_members = self.cloud.moves_members(&self.case.operation.name);
        let is_final = self.case.trouble == Trouble::Refused && !is_deletion && !is_of_members;
        // Without a frame, each pass tries to make one again.
        let has_lost = had_frame && self.life.services.get(HIT).is_some_and(|hit| !self.cloud.has_frame(hit));
        let most = match self.case.trouble {
            Trouble::Busy | Trouble::Throttled => 3 * POLLS,
            _ if is_final && !has_lost => FOR_GOOD,
            _ => 3 * PER_PASS,
        };
        if let Some((call, count)) = counts.iter().max_by_key(|(_, count)| **count) {
            self.found.holds(Check::Bounded, *count <= most, || format!("{count} times in three passes: {call}"));
        }
    }

    async fn foreign(&mut self) {
        let contents = self.life.contents().await;
        let plain = |lines: &BTreeSet<String>| -> BTreeSet<String> {
            lines.iter().map(|line| self.cloud.of_others(line)).collect()
        };
        let lost = &plain(&self.start) - &plain(&contents);
        self.found.holds(Check::Foreign, lost.is_empty(), || format!("lost {lost:?}"));
    }

    /// After the fault: the end states, and nothing after the deletion.
    async fn ends_well(mut self) -> Result<(), Outcome> {
        self.cloud.strike(None).await;
        self.cloud.repair();
        self.life.leap(FORGOTTEN);
        let reached = self.converge(self.base.reached.clone(), Check::Converges).await?;
        self.foreign().await;
        if reached {
            self.only_ensured_addresses();
            let (before, harness) = (self.cloud.watched().len(), self.cloud.harness());
            let written = harness.writes().await;
            let wanted = self.life.wanted();
            self.life.pass(&wanted).await?;
            let written = harness.writes().await.saturating_sub(written);
            let calls = self.cloud.watched().into_iter().skip(before).filter(|call| call.writes);
            let calls: Vec<String> = calls.map(|call| call.operation).collect();
            self.found.holds(Check::Steady, written == 0, || format!("{written} writes: {calls:?}"));
        }
        self.life.gone = (0..self.life.services.len()).collect();
        self.converge(self.start.clone(), Check::Leftovers).await?;
        self.foreign().await;
        let harness = self.cloud.harness();
        let violations = harness.simulation().map(crate::Simulation::violations).unwrap_or_default();
        self.found.holds(Check::Violations, violations.is_empty(), || format!("{violations:?}"));
        Ok(())
    }

    fn only_ensured_addresses(&mut self) {
        for ((service, before), published) in self.life.services.iter().zip(&self.statuses).zip(&self.life.published) {
            let after = &service.status.load_balancer;
            let other = published.iter().find(|status| !status.same_as(before) && !status.same_as(after));
            self.found.holds(Check::Published, other.is_none(), || {
                format!("{:?}, before {:?}, in the end {:?}", other, before.ingress, after.ingress)
            });
        }
    }

    /// The pools of wanted Services whose members are not the nodes.
    fn wrong_members(&self) -> String {
        let expected = self.life.expected_members();
        let wanted = self.life.services.iter().enumerate().filter(|(place, _)| !self.life.gone.contains(place));
        let pools = wanted.flat_map(|(_, service)| self.cloud.members(service));
        let wrong: Vec<_> = pools.filter(|members| *members != expected).collect();
        if wrong.is_empty() { String::new() } else { format!("{wrong:?} instead of {expected:?}") }
    }

    /// Passes until the contents are as expected and no call fails.
    async fn converge(&mut self, expected: BTreeSet<String>, check: Check) -> Result<bool, Outcome> {
        let mut how = String::new();
        for _ in 0..PASSES {
            let wanted = self.life.wanted();
            let given = self.life.pass(&wanted).await?;
            let contents = self.life.contents().await;
            let error = given.iter().flatten().find_map(|given| given.answer.as_ref().err());
            let members = self.wrong_members();
            if error.is_none() && contents == expected && members.is_empty() {
                return Ok(true);
            }
            let error = error.map(ToString::to_string).unwrap_or_default();
            how = format!("{error}{members}{}", differences(&contents, Some(&expected)));
            self.life.leap(5 * BETWEEN);
        }
        self.found.holds(check, false, || how);
        Ok(false)
    }
}

fn differences(now: &BTreeSet<String>, expected: Option<&BTreeSet<String>>) -> String {
    let Some(expected) = expected else { return String::new() };
    let (more, less): (Vec<_>, Vec<_>) = (now.difference(expected).collect(), expected.difference(now).collect());
    if more.is_empty() && less.is_empty() { String::new() } else { format!("\n is {more:#?}\n should be {less:#?}") }
}

/// Whether an error names the reason for which a call failed.
fn names_reason(effect: &Effect, error: &ProviderError) -> bool {
    let (text, class) = (error.to_string().to_lowercase(), error.class());
    let has = |words: &[&str]| words.iter().any(|word| text.contains(&word.to_lowercase()));
    match effect {
        Effect::Denied => {
            matches!(class, ErrorClass::Denied { .. }) || has(&["permission", "not authorized", "denied", "lacks"])
        }
        Effect::Throttled => matches!(class, ErrorClass::Throttled { .. }) || has(&["fewer calls"]),
        Effect::Code { code, message, .. } | Effect::FailsLater { code, message, .. } => has(&[code, message]),
        Effect::Html => has(&["web page"]),
        Effect::AnswerLost | Effect::AnswerCut | Effect::Hangs => has(&["answer"]),
        Effect::Served => true,
    }
}
