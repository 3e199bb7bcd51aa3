//! The provider's configuration at run time: detects a change and builds a provider from it.
//!
//! An unusable configuration is reported once for each reason and changes nothing. It is tried again: the login may not
//! know a new secret yet, or the cloud may not answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{CloudConfig, EventSink, EventType, Subject};
use ccm_runtime::metrics::{Def, IntCounterVec, IntGauge};
use ccm_runtime::panics::panic_text;
use ccm_runtime::{Metrics, metrics};
use futures::FutureExt;
use tokio::time::Instant;

use crate::exit::Failure;
use crate::providers::{Configuration, Loaded};

/// The interval between reads of the configuration.
const LOOK: Duration = Duration::from_secs(10);
/// A new configuration is used if it is unchanged after this time: a file may be written in several steps.
const SETTLE: Duration = Duration::from_secs(1);
/// A configuration that cannot be read for this time is reported. A shorter interruption of the API server or a file
/// that is being replaced is no change.
const UNREADABLE: Duration = Duration::from_secs(300);
/// The pause before a configuration from which no provider could be built is tried again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// A configuration with which the controllers could not be started is not tried again: each attempt stops them.
const NEVER: Duration = Duration::MAX;
/// The time limit for the factory.
const BUILD: Duration = Duration::from_secs(60);

metrics! {
    pub(crate) struct ReloadMetrics {
        changes: IntCounterVec = Def::counter(
            "ccm_cloud_config_reloads_total", &["outcome"],
            "Changes of the cloud configuration while the program runs: applied, or refused, so that the previous one stays in use. Only where the provider reloads its configuration.",
        );
        refused: IntGauge = Def::gauge(
            "ccm_cloud_config_refused", &[],
            "1 while the cloud configuration cannot be read or used, and an earlier one is in use. Only where the provider reloads its configuration.",
        );
    }
}

/// Watches the configuration.
pub(super) struct Reload {
    configuration: Configuration,
    /// The configuration of the current provider.
    in_use: Option<CloudConfig>,
    /// The configuration to restore if the controllers cannot be started with `in_use`.
    previous: Option<Option<CloudConfig>>,
    refused: Option<Refused>,
    /// The time since which the configuration cannot be read.
    unreadable_since: Option<Instant>,
    events: Arc<dyn EventSink>,
    /// The Lease, where users look for events of this program.
    subject: Option<Subject>,
    metrics: Arc<ReloadMetrics>,
}

/// The last rejected configuration.
struct Refused {
    what: Read,
    why: String,
    pause: Duration,
    since: Instant,
}

/// A configuration, or the reason why it cannot be read.
type Read = Result<Option<CloudConfig>, String>;

fn is_same(a: &Read, b: &Read) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a == b,
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

impl Reload {
    pub(super) fn new(
        configuration: Configuration,
        in_use: Option<CloudConfig>,
        events: Arc<dyn EventSink>,
        subject: Option<Subject>,
        metrics: &Metrics,
    ) -> Self {
        let metrics = metrics.part();
        Self { configuration, in_use, previous: None, refused: None, unreadable_since: None, events, subject, metrics }
    }

    /// Waits for a different configuration from which a provider can be built. Cancel-safe.
    pub(super) async fn changed(&mut self) -> Loaded {
        loop {
            tokio::time::sleep(LOOK).await;
            let seen = self.read().await;
            self.unreadable_since = self.unreadable_since.filter(|_| seen.is_err());
            if seen.as_ref().is_ok_and(|config| *config == self.in_use) {
                self.refused = None;
                self.metrics.refused.set(0);
                continue;
            }
            if let Err(error) = &seen
                && !self.is_long_unreadable(error)
            {
                continue;
            }
            let known = self.refused.as_ref().filter(|refused| is_same(&refused.what, &seen));
            if known.is_some_and(|refused| refused.what.is_err() || refused.since.elapsed() < refused.pause) {
                continue;
            }
            tokio::time::sleep(SETTLE).await;
            if !is_same(&self.read().await, &seen) {
                continue;
            }
            match seen {
                Ok(config) => match self.build(config.clone()).await {
                    Ok(loaded) => return loaded,
                    Err(failure) => self.refuse(config, failure.message, FIRST_PAUSE),
                },
                Err(error) => self.cannot_read(error),
            }
        }
    }

    fn is_long_unreadable(&mut self, error: &str) -> bool {
        let since = self.unreadable_since.get_or_insert_with(|| {
            tracing::warn!("the cloud configuration cannot be read, the one that was read last stays in use: {error}");
            Instant::now()
        });
        since.elapsed() >= UNREADABLE
    }

    async fn read(&self) -> Read {
        self.configuration.read().await.map_err(|error| error.to_string())
    }

    async fn build(&self, config: Option<CloudConfig>) -> Result<Loaded, Failure> {
        let built = AssertUnwindSafe(self.configuration.build(config)).catch_unwind();
        match tokio::time::timeout(BUILD, built).await {
            Ok(Ok(built)) => built,
            Ok(Err(panic)) => Err(Failure::fatal(format!("the provider panicked: {}", panic_text(&*panic)))),
            Err(_) => Err(Failure::fatal(format!("the provider was not made within {}s", BUILD.as_secs()))),
        }
    }

    /// The provider with the new configuration takes over.
    pub(super) fn begin(&mut self, next: &Loaded) {
        self.previous = Some(std::mem::replace(&mut self.in_use, next.config.clone()));
    }

    /// Whether its controllers have not started yet, while those of an earlier configuration had.
    pub(super) fn can_go_back(&self) -> bool {
        self.previous.is_some()
    }

    /// Its controllers have started, or this process is a standby and does not start any yet.
    pub(super) fn done(&mut self) {
        if self.previous.take().is_none() {
            return;
        }
        self.refused = None;
        self.metrics.refused.set(0);
        self.metrics.changes.with_label_values(&["applied"]).inc();
        let text = format!("the changed cloud configuration is in use ({})", self.origin());
        tracing::info!("{text}");
        self.event(EventType::Normal, "CloudConfigReloaded", &text);
    }

    /// Its controllers could not be started: returns a provider with the previous configuration, or the failure if
    /// there is none.
    pub(super) async fn back(&mut self, failure: Failure) -> Result<Loaded, Failure> {
        let Some(previous) = self.previous.take() else { return Err(failure) };
        let refused = std::mem::replace(&mut self.in_use, previous.clone());
        self.refuse(refused, failure.message, NEVER);
        self.build(previous).await
    }

    fn refuse(&mut self, what: Option<CloudConfig>, why: String, pause: Duration) {
        let what = Ok(what);
        let before = self.refused.take().filter(|before| is_same(&before.what, &what));
        if before.is_none() {
            self.metrics.changes.with_label_values(&["refused"]).inc();
        }
        let text = format!("the changed cloud configuration cannot be used, the previous one stays in use: {why}");
        let is_news = before.as_ref().is_none_or(|before| before.why != why);
        let pause = before.map_or(pause, |before| before.pause.saturating_mul(2).min(LONGEST_PAUSE).max(pause));
        self.refused = Some(Refused { what, why, pause, since: Instant::now() });
        self.report("CloudConfigRefused", &text, is_news);
    }

    fn cannot_read(&mut self, why: String) {
        let minutes = UNREADABLE.as_secs() / 60;
        let text = format!(
            "the cloud configuration cannot be read for {minutes} minutes, the one that was read last stays in use: {why}"
        );
        let what = Err(why.clone());
        self.refused = Some(Refused { what, why, pause: Duration::ZERO, since: Instant::now() });
        self.report("CloudConfigUnreadable", &text, true);
    }

    fn report(&self, reason: &str, text: &str, is_news: bool) {
        self.metrics.refused.set(1);
        tracing::error!("{text}");
        if is_news {
            self.event(EventType::Warning, reason, text);
        }
    }

    fn origin(&self) -> String {
        self.in_use.as_ref().map_or_else(|| "none".into(), |config| config.path.display().to_string())
    }

    fn event(&self, kind: EventType, reason: &str, message: &str) {
        if let Some(subject) = &self.subject {
            self.events.event(subject, kind, reason, message);
        }
    }
}

/// Like [`Reload::changed`]; waits forever if the configuration is not watched.
pub(super) async fn changed(reload: Option<&mut Reload>) -> (&mut Reload, Loaded) {
    match reload {
        Some(reload) => {
            let next = reload.changed().await;
            (reload, next)
        }
        None => std::future::pending().await,
    }
}
