//! A process that dies after any of its writes: the next process must reach the same state as one without a crash.

use std::fmt::Display;

use async_trait::async_trait;
use ccm_provider::{ProviderError, ServiceAction};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::{Outage, Simulation};

/// A cloud in which a process is about to work on Services.
#[async_trait(?Send)]
pub trait Stage {
    /// The simulated cloud.
    fn simulation(&self) -> &dyn Simulation;

    /// Works until the answer is final.
    async fn work(&mut self, action: ServiceAction) -> Result<(), ProviderError>;

    /// Replaces the process with a new one without memory.
    async fn restart(&mut self);

    /// All objects that the work may change, a line each, without details that depend on the order of events.
    async fn contents(&self) -> Vec<String>;
}

/// Tests that an action has the same result if the process dies before the first write or after any write, whose answer
/// is lost, and that the leftovers of each crash can be deleted completely. `least` is the minimum number of writes,
/// `at_once` the number of concurrent runs. Returns the final contents. Panics on failure, since this is the body of a
/// test.
#[allow(clippy::panic)]
pub async fn every_prefix<S: Stage>(
    action: ServiceAction,
    least: usize,
    at_once: usize,
    begin: impl AsyncFn() -> S,
) -> Vec<String> {
    let life = async {
        let mut stage = begin().await;
        let mark = stage.simulation().mark();
        stage.work(action).await.map_err(failed("undisturbed work"))?;
        let (writes, reached) = (stage.simulation().writes(mark).len(), stage.contents().await);
        if writes < least {
            return Err(format!("{writes} writes only"));
        }
        stage.work(ServiceAction::Delete).await.map_err(failed("an undisturbed deletion"))?;
        let rest = stage.contents().await;
        let dead = |last: u64| move |what: String| format!("dead after write {last}: {what}");
        let lives = (0..).take(writes + 1).map(async |last| {
            goes_on(begin().await, action, last, &reached).await.map_err(dead(last))?;
            if action == ServiceAction::Delete {
                return Ok(());
            }
            goes_whole(begin().await, action, last, &rest).await.map_err(dead(last))
        });
        stream::iter(lives).buffered(at_once).try_collect::<Vec<()>>().await?;
        Ok(reached)
    };
    life.await.unwrap_or_else(|what| panic!("{what}"))
}

fn failed<E: Display>(what: &str) -> impl FnOnce(E) -> String {
    let what = what.to_owned();
    move |error| format!("{what} fails: {error}")
}

/// Lets the process die after write number `last`.
async fn dies<S: Stage>(stage: &mut S, action: ServiceAction, last: u64) {
    stage.simulation().disrupt(match last.checked_sub(1) {
        None => Outage::WritesRefusedAfter(0),
        Some(before) => Outage::AnswerLostAfter(before),
    });
    let _ = stage.work(action).await;
    stage.simulation().disrupt(Outage::None);
    stage.restart().await;
}

async fn goes_on<S: Stage>(mut stage: S, action: ServiceAction, last: u64, reached: &[String]) -> Result<(), String> {
    dies(&mut stage, action, last).await;
    stage.work(action).await.map_err(failed("the next process"))?;
    same(&stage.contents().await, reached, "the next process ends elsewhere")?;
    let mark = stage.simulation().mark();
    stage.work(action).await.map_err(failed("the same work again"))?;
    stage.restart().await;
    stage.work(action).await.map_err(failed("a third process"))?;
    same(&stage.simulation().writes(mark), &[], "there was nothing left to write")?;
    same(&stage.simulation().violations(), &[], "this does not follow the API")
}

async fn goes_whole<S: Stage>(mut stage: S, action: ServiceAction, last: u64, rest: &[String]) -> Result<(), String> {
    dies(&mut stage, action, last).await;
    stage.work(ServiceAction::Delete).await.map_err(failed("a deletion"))?;
    same(&stage.contents().await, rest, "a deletion leaves something")
}

/// Compares the lines, and describes the differences.
pub(crate) fn same(now: &[String], expected: &[String], what: &str) -> Result<(), String> {
    if now == expected {
        return Ok(());
    }
    // A line can occur more than once.
    let without = |lines: &[String], others: &[String]| {
        let mut left = lines.to_vec();
        for other in others {
            if let Some(at) = left.iter().position(|line| line == other) {
                left.remove(at);
            }
        }
        left
    };
    let (more, less) = (without(now, expected), without(expected, now));
    Err(format!("{what}:\n is {more:#?}\n should be {less:#?}"))
}
