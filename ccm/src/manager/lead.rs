//! Leading: waits for the lease, then runs generations of controllers one after the other, and ends them in order.

use std::convert::Infallible;
use std::time::Duration;

use ccm_runtime::client::Call;
use ccm_runtime::election::{self, ElectionConfig};
use ccm_runtime::{Leadership, State};
use futures::FutureExt;
use futures::future::{BoxFuture, Fuse, FusedFuture};
use tokio_util::sync::CancellationToken;

use super::generation::{Ended, Generation};
use super::reload::{self, Reload};
use super::{FLUSH, Manager, program_metrics};
use crate::exit::Failure;

/// The time limit of a new leader's wait for a healthy API server.
const API_SERVER_WAIT: Duration = Duration::from_secs(10);

/// The running elections. Losing either lease ends the process.
pub(super) struct Elections {
    main: Fuse<BoxFuture<'static, election::Ended>>,
    /// The election for a leader migration's controllers; its lease is held only together with the main lease.
    migration: Fuse<BoxFuture<'static, election::Ended>>,
    release: CancellationToken,
    /// The message for the lease that was lost.
    lost: Option<&'static str>,
}

impl Elections {
    /// Both leases are released when `release` is cancelled.
    pub(super) fn new(main: BoxFuture<'static, election::Ended>, release: CancellationToken) -> Self {
        Self { main: main.fuse(), migration: Fuse::terminated(), release, lost: None }
    }

    /// Waits until a lease is lost; returns the message.
    async fn lost(&mut self) -> &'static str {
        let lost = tokio::select! {
            biased;
            _ = &mut self.main => "leaderelection lost",
            // At a shutdown, a candidate that never led ends too.
            election::Ended::Lost = &mut self.migration => "migration leaderelection lost",
        };
        *self.lost.insert(lost)
    }

    /// Releases the leases that are still held. Returns a message if one was lost: then writes were dropped in flight,
    /// and the other lease runs out, so that they settle before another process writes.
    pub(super) async fn end(&mut self) -> Option<&'static str> {
        if self.lost.is_some() {
            return self.lost;
        }
        self.release.cancel();
        if !self.migration.is_terminated() && (&mut self.migration).await == election::Ended::Lost {
            return Some("migration leaderelection lost");
        }
        let lost = !self.main.is_terminated() && (&mut self.main).await == election::Ended::Lost;
        lost.then_some("leaderelection lost")
    }
}

/// The reason why the process no longer leads.
enum End {
    /// A signal.
    Stopped,
    /// A lease was lost; contains the message.
    Lost(&'static str),
    /// The process cannot continue.
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Runs a step, unless a signal or the loss of a lease occurs first.
async fn unless_ended<R>(
    stop: &CancellationToken,
    elections: &mut Elections,
    step: impl Future<Output = R>,
) -> Result<R, End> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(End::Stopped),
        lost = elections.lost() => Err(End::Lost(lost)),
        done = step => Ok(done),
    }
}

impl Manager {
    /// Waits for leadership, then leads until a signal (`None`) or the loss of a lease (the message). When it returns,
    /// all controllers have ended.
    pub(super) async fn lead_until(
        &mut self,
        stop: &CancellationToken,
        elections: &mut Elections,
    ) -> Result<Option<&'static str>, Failure> {
        match self.lead(stop, elections).await {
            Ok(never) => match never {},
            Err(End::Stopped) => Ok(None),
            Err(End::Lost(lease)) => Ok(Some(lease)),
            Err(End::Failed(failure)) => Err(failure),
        }
    }

    async fn lead(&mut self, stop: &CancellationToken, elections: &mut Elections) -> Result<Infallible, End> {
        let mut reload = self.reload.take();
        self.stand_by(reload.as_mut(), stop, elections).await?;
        unless_ended(stop, elections, self.wait_for_api_server()).await??;
        let mut second = None;
        loop {
            let mut generation = self.generation();
            let ended = match unless_ended(stop, elections, self.initialize(&generation)).await? {
                Err(failure) => Ended::NotStarted(failure),
                Ok(()) => {
                    second = second.or_else(|| self.migrate(elections));
                    let work = self.work(&mut generation, second.as_ref(), reload.as_mut());
                    match unless_ended(stop, elections, work).await {
                        Err(End::Stopped) => return Err(self.drain(&mut generation, second.as_ref(), elections).await),
                        ended => ended?,
                    }
                }
            };
            let is_lost = !self.leadership.may_write() || second.as_ref().is_some_and(|s| s.state() == State::Lost);
            let next = match ended {
                Ended::Changed(reload, next) => {
                    self.end(&mut generation, second.as_ref(), stop, elections).await?;
                    reload.begin(&next);
                    next
                }
                // A lease was lost, and the election is about to return.
                Ended::NotStarted(_) | Ended::Failed(_) if is_lost => return Err(End::Lost(elections.lost().await)),
                Ended::NotStarted(failure) => match reload.as_mut().filter(|reload| reload.can_go_back()) {
                    Some(reload) => {
                        self.end(&mut generation, second.as_ref(), stop, elections).await?;
                        unless_ended(stop, elections, reload.back(failure)).await??
                    }
                    None => return Err(self.fail(failure, &mut generation, second.as_ref(), elections).await),
                },
                Ended::Failed(failure) => {
                    return Err(self.fail(failure, &mut generation, second.as_ref(), elections).await);
                }
            };
            self.use_provider(next.provider);
        }
    }

    /// Waits for leadership. Until then the provider is not initialized, and a configuration change only replaces it.
    async fn stand_by(
        &mut self,
        mut reload: Option<&mut Reload>,
        stop: &CancellationToken,
        elections: &mut Elections,
    ) -> Result<(), End> {
        let leadership = self.leadership.clone();
        loop {
            let next = unless_ended(stop, elections, async {
                tokio::select! {
                    biased;
                    leading = leadership.leading() => Err(leading),
                    next = reload::changed(reload.as_deref_mut()) => Ok(next),
                }
            });
            match next.await? {
                Err(true) => return Ok(()),
                Err(false) => return Err(End::Stopped),
                Ok((reload, next)) => {
                    reload.begin(&next);
                    reload.done();
                    self.use_provider(next.provider);
                }
            }
        }
    }

    /// Ends everything after a failure: the controllers that run may have writes in flight, and the next leader must not
    /// begin beside them.
    async fn fail(
        &self,
        failure: Failure,
        generation: &mut Generation,
        second: Option<&Leadership>,
        elections: &mut Elections,
    ) -> End {
        // It also ends with the loss of a lease, which the failure explains better.
        self.drain(generation, second, elections).await;
        End::Failed(failure)
    }

    /// Ends everything after a signal.
    async fn drain(&self, generation: &mut Generation, second: Option<&Leadership>, elections: &mut Elections) -> End {
        self.leadership.drain();
        if let Some(second) = second {
            second.drain();
        }
        tokio::select! {
            biased;
            () = generation.drained() => {}
            lost = elections.lost() => return End::Lost(lost),
        }
        // Work ends at once when a lease is lost, before its election does.
        let is_lost = |leadership: &Leadership| leadership.state() == State::Lost;
        match is_lost(&self.leadership) || second.is_some_and(is_lost) {
            true => End::Lost(elections.lost().await),
            false => End::Stopped,
        }
    }

    /// Ends a generation: after this returns, none of its parts writes any more. The leases are kept.
    async fn end(
        &self,
        generation: &mut Generation,
        second: Option<&Leadership>,
        stop: &CancellationToken,
        elections: &mut Elections,
    ) -> Result<(), End> {
        generation.leaderships().for_each(Leadership::drain);
        match unless_ended(stop, elections, generation.drained()).await {
            Err(End::Stopped) => return Err(self.drain(generation, second, elections).await),
            drained => drained?,
        }
        // Its events are written under its leadership.
        self.recorder.flush(FLUSH).await;
        generation.leaderships().for_each(Leadership::lose);
        self.nodes.forget_handlers();
        self.services.forget_handlers();
        for (name, label) in &generation.started {
            self.health.remove(name);
            program_metrics::forget(&self.metrics, label);
        }
        Ok(())
    }

    /// Starts the election for the second lease in a leader migration. The main lease is held.
    fn migrate(&mut self, elections: &mut Elections) -> Option<Leadership> {
        let (migration, main) = (self.options.migration.as_ref()?, self.options.election.clone()?);
        let config = ElectionConfig { name: migration.lease_name.clone(), ..main };
        let leadership = self.leadership.part();
        let election =
            self.elect_for(config, leadership.clone(), "migration leaderelection lost", elections.release.clone());
        elections.migration = election.fuse();
        Some(leadership)
    }

    async fn wait_for_api_server(&self) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + API_SERVER_WAIT;
        loop {
            let call = Call::get("/healthz").within(Duration::from_secs(5));
            let Err(error) = self.client.send(&call).await else { return Ok(()) };
            if tokio::time::Instant::now() >= deadline {
                return Err(Failure::fatal(format!("failed to wait for apiserver being healthy: {error}")));
            }
            tracing::warn!(%error, "the API server is not healthy yet");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
