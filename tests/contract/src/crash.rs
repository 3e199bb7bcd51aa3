//! A process that dies after any of its writes: the next one ends where an undisturbed one does.

use std::fmt::Display;

use async_trait::async_trait;
use ccm_provider::ProviderError;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::{Simulation, Trouble};

/// A cloud in which a process is about to begin some work: an ensure or a deletion.
#[async_trait(?Send)]
pub trait Stage {
    /// The cloud.
    fn simulation(&self) -> &dyn Simulation;

    /// Works until the answer is final.
    async fn work(&mut self) -> Result<(), ProviderError>;

    /// The process ends, and another one begins, which remembers nothing.
    async fn restart(&mut self);

    /// All objects that the work may change, a line each, without what depends on the order of events.
    async fn contents(&self) -> Vec<String>;

    /// Deletes what the work was about. False where the work is a deletion itself.
    async fn delete(&mut self) -> Result<bool, ProviderError>;
}

/// The work ends in the same way when the process dies after any of its writes, whose answer is lost, or before the first; and
/// what is left of it can be deleted whole. There are at least so many writes, and so many lives at the same time. Returns what there is at the end. What goes wrong
/// panics, since this is the body of a test.
#[allow(clippy::panic)]
pub async fn every_prefix<S: Stage>(least: usize, at_once: usize, begin: impl AsyncFn() -> S) -> Vec<String> {
    let life = async {
        let mut stage = begin().await;
        let mark = stage.simulation().mark();
        stage.work().await.map_err(failed("undisturbed work"))?;
        let (writes, reached) = (stage.simulation().writes(mark).len(), stage.contents().await);
        if writes < least {
            return Err(format!("{writes} writes only"));
        }
        let deleted = stage.delete().await.map_err(failed("an undisturbed deletion"))?;
        let rest = stage.contents().await;
        let dead = |last: u64| move |what: String| format!("dead after write {last}: {what}");
        let lives = (0..).take(writes + 1).map(async |last| {
            goes_on(begin().await, last, &reached).await.map_err(dead(last))?;
            if deleted { goes_whole(begin().await, last, &rest).await.map_err(dead(last)) } else { Ok(()) }
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

/// The process dies after this write.
async fn dies<S: Stage>(stage: &mut S, last: u64) {
    stage.simulation().trouble(match last.checked_sub(1) {
        None => Trouble::WritesRefusedAfter(0),
        Some(before) => Trouble::AnswerLostAfter(before),
    });
    let _ = stage.work().await;
    stage.simulation().trouble(Trouble::None);
    stage.restart().await;
}

async fn goes_on<S: Stage>(mut stage: S, last: u64, reached: &[String]) -> Result<(), String> {
    dies(&mut stage, last).await;
    stage.work().await.map_err(failed("the next process"))?;
    same(&stage.contents().await, reached, "the next process ends elsewhere")?;
    let mark = stage.simulation().mark();
    stage.work().await.map_err(failed("the same work again"))?;
    stage.restart().await;
    stage.work().await.map_err(failed("a third process"))?;
    same(&stage.simulation().writes(mark), &[], "there was nothing left to write")?;
    same(&stage.simulation().violations(), &[], "this does not follow the API")
}

async fn goes_whole<S: Stage>(mut stage: S, last: u64, rest: &[String]) -> Result<(), String> {
    dies(&mut stage, last).await;
    stage.delete().await.map_err(failed("a deletion"))?;
    same(&stage.contents().await, rest, "a deletion leaves something")
}

/// Whether these are the same lines, and how they differ.
pub(crate) fn same(now: &[String], expected: &[String], what: &str) -> Result<(), String> {
    if now == expected {
        return Ok(());
    }
    // A line can be there more than once.
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
