//! Fills a store: a list, then a watch that continues from there.
//!
//! The list is streamed if the server supports it, because a page is held in memory while it is parsed. If streaming
//! fails, the list is read in pages, as in client-go. A broken watch continues from the last version seen. An expired
//! version (410), a version from the future (504) and a silent watch cause a new list, during which the store keeps its
//! objects. After etcd was restored from a backup, a watch from the last version would be silent until that version is
//! reached again; so each continued watch begins with a check of the server's version.
//!
//! `kube_runtime::watcher` is not used: it retries a streaming list indefinitely after an error other than 410 (any
//! etcd before 3.4.31), it notices neither silence nor a version from the future, and it needs owned, cloneable
//! objects.
//!
//! Not detected, as in client-go: an etcd that was restored and has passed the last version before this process sees it
//! again. etcd's `--bump-revision` prevents that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::wire::{Code, Lines, Object, Page, WatchEvent};
use super::{Cached, Store, is_older};
use crate::client::{ApiError, Call, Client, status_error};

/// Objects per page if the list is not streamed.
const PAGE: usize = 50;
/// The duration of a watch, after which the server ends it.
const WATCH_FOR: Duration = Duration::from_secs(290);
/// The maximum silence of a list or watch. Bookmarks are sent once a minute, but never if the etcd of the server cannot
/// report progress.
const SILENCE: Duration = Duration::from_secs(150);
/// Pause after a failure; doubles up to the maximum. client-go's maximum is 30 s; this one is shorter because a
/// restored cluster is not seen before the pause and [`BELIEVE_OLDER_AFTER`] are over.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(10));
/// The maximum while the server could never be reached: all work waits for the first list.
const LONGEST_UNREACHED: Duration = Duration::from_secs(2);
/// The longest pause that a server may request: a store that waits longer counts as stuck.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// The time for which a server with an older version than the last seen one is ignored: a single lagging API server
/// must not revert objects. After this time, etcd counts as restored.
const BELIEVE_OLDER_AFTER: Duration = Duration::from_secs(25);
/// Watches in a row without an event after which lists keep the store current.
const BLIND: u32 = 2;
/// Pause between two lists while no watch works.
const LIST_ALONE_EVERY: Duration = Duration::from_secs(30);
/// A watch that ends sooner is of no use if it brought nothing: it is opened again with the next list.
const BRIEF: Duration = Duration::from_secs(1);
/// Pause between two checks of such a server.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Keeps a [`Store`] current.
pub struct Reflector<T: Cached> {
    store: Arc<Store<T>>,
    client: Client,
    rng: StdRng,
    /// The newest version seen, from which a watch continues.
    version: Option<String>,
    /// Whether the next step is a list.
    relist: bool,
    /// The time since which the server's version is older than the newest version seen.
    older_since: Option<Instant>,
    /// How often the watch failed or ended since it last delivered an event.
    blind: u32,
    /// The time of the last complete list.
    listed: Option<Instant>,
    backoff: Duration,
    /// The pause after a 403, and the hint for the log.
    forbidden: Option<(Duration, &'static str)>,
    hint_logged: bool,
}

impl<T: Cached> std::fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector").field("kind", &T::NAME).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Keys that a list has shown; `None` once it is complete.
type Listing<K> = Option<BTreeSet<K>>;

/// The reason why a list or watch ended.
#[derive(Debug)]
enum Ended {
    /// Normally, or interrupted: continue from the last version.
    Normally,
    /// The version is unusable: list again.
    Desynced(&'static str),
    /// The server's state is older than the newest version seen: check again soon.
    Older(String),
    /// Try again later.
    Failed(ApiError),
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Self {
        match error {
            error if error.is_gone() => Self::Desynced("the version is forgotten"),
            error if error.is_too_large_version() => Self::Desynced("the version is from the future"),
            error => Self::Failed(error),
        }
    }
}

impl<T: Cached> Reflector<T> {
    /// A reflector; [`Reflector::run`] starts it. `seed` makes the jitter repeatable.
    pub fn new(store: Arc<Store<T>>, client: Client, seed: u64) -> Self {
        store.export(client.metrics());
        Self {
            store,
            client,
            rng: StdRng::seed_from_u64(seed),
            version: None,
            relist: true,
            older_since: None,
            blind: 0,
            listed: None,
            backoff: BACKOFF.0,
            forbidden: None,
            hint_logged: false,
        }
    }

    /// For optional resources: on 403 log once with a hint, retry every `pause`.
    #[must_use]
    pub fn optional(self, pause: Duration, hint: &'static str) -> Self {
        Self { forbidden: Some((pause, hint)), ..self }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.store.alive();
            let (before, began) = (self.version.clone(), Instant::now());
            let ended = match self.relist || self.is_list_due() {
                true => self.list_and_watch().await,
                false => self.resume().await,
            };
            match ended {
                Ok(()) | Err(Ended::Normally) => {
                    self.hint_logged = false;
                    // A busy API server ends the watches of slow clients: a watch that delivered events is reopened at
                    // once.
                    if self.version != before && self.blind == 0 {
                        continue;
                    }
                    if self.blind > BLIND && began.elapsed() < BRIEF {
                        self.pause(Some(LIST_ALONE_EVERY)).await;
                        continue;
                    }
                    // An interrupted watch is no reason for a long pause.
                    let pause = self.backoff.min(Duration::from_secs(1)).mul_f64(self.rng.random_range(0.1..1.0));
                    tokio::time::sleep(pause).await;
                }
                Err(Ended::Desynced(why)) => {
                    tracing::debug!(kind = T::NAME, why, "listing again");
                    self.relist = true;
                    let lists_alone = self.blind > BLIND && self.has_just_listed();
                    self.pause(lists_alone.then_some(LIST_ALONE_EVERY)).await;
                }
                Err(Ended::Older(listed)) => {
                    let seen = &self.version;
                    tracing::warn!(
                        kind = T::NAME,
                        listed,
                        seen,
                        "the API server has an older state than the store, asking again"
                    );
                    self.relist = true;
                    tokio::time::sleep(LOOK_AGAIN.mul_f64(self.rng.random_range(1.0..2.0))).await;
                }
                Err(Ended::Failed(error))
                    if let (true, Some((pause, hint))) = (error.is_forbidden(), self.forbidden) =>
                {
                    if !std::mem::replace(&mut self.hint_logged, true) {
                        tracing::warn!(kind = T::NAME, %error, "cannot be watched: {hint}; retried from time to time");
                    }
                    self.pause(Some(pause)).await;
                }
                Err(Ended::Failed(error)) => {
                    tracing::warn!(kind = T::NAME, %error, synced = self.store.is_synced(), "list or watch failed, trying again");
                    if self.listed.is_none() && matches!(error, ApiError::Transport(_)) {
                        self.backoff = self.backoff.min(LONGEST_UNREACHED);
                    }
                    let lists_alone = (self.blind > BLIND).then_some(LIST_ALONE_EVERY);
                    self.pause(error.retry_after().map(|wait| wait.min(LONGEST_PAUSE)).or(lists_alone)).await;
                }
            }
        }
    }

    /// Lists once, without a watch.
    ///
    /// # Errors
    ///
    /// The list failed; the store is not synced then.
    pub async fn fill(mut self) -> Result<(), ApiError> {
        // A list that takes so long that its version expires is restarted once.
        for last in [false, true] {
            match self.list_in_pages().await {
                Ok(()) | Err(Ended::Normally) => break,
                Err(Ended::Failed(error)) => return Err(error),
                Err(_) if !last => {}
                Err(_) => {
                    let text = format!("the list of {} is out of date before it is complete", T::NAME);
                    return Err(ApiError::Decode(text));
                }
            }
        }
        Ok(())
    }

    async fn pause(&mut self, at_least: Option<Duration>) {
        let delay = self.backoff.mul_f64(self.rng.random_range(1.0..2.0));
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
        tokio::time::sleep(delay.max(at_least.unwrap_or_default())).await;
    }

    /// Lists by a streaming list, else in pages, and then watches.
    async fn list_and_watch(&mut self) -> Result<(), Ended> {
        if self.older_since.is_some() || (self.blind >= BLIND && self.listed.is_some()) {
            // Pages are small, and the first shows the version before anything is stored. A streaming list is a watch,
            // so it fails if those do.
            self.list_in_pages().await?;
            return self.watch().await;
        }
        let version = self.version.as_deref().unwrap_or_default();
        let streaming = format!("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={version}");
        let mut listing = Some(BTreeSet::new());
        let ended = match self.open(&streaming).await {
            Ok(frames) => self.follow(frames, &mut listing).await,
            Err(error) => Err(error.into()),
        };
        match ended {
            ended if listing.is_none() => ended,
            Err(Ended::Failed(error)) if no_pages(&error) && !self.may_only_list(&error) => Err(Ended::Failed(error)),
            ended => {
                tracing::debug!(kind = T::NAME, ?ended, "the streaming list failed, listing in pages");
                self.list_in_pages().await?;
                self.watch().await
            }
        }
    }

    async fn list_in_pages(&mut self) -> Result<(), Ended> {
        let mut seen = BTreeSet::new();
        let (mut next, mut limit) = (String::new(), PAGE);
        loop {
            let mut path = self.collection(&format!("limit={limit}"));
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&next);
            }
            let page = match self.client.send(&Call::get(path)).await {
                // As client-go: pages may always take longer than the server keeps the version.
                Err(error) if error.is_gone() && !next.is_empty() => {
                    (seen, next, limit) = (BTreeSet::new(), String::new(), 0);
                    continue;
                }
                page => page?,
            };
            let page = Page::read(&page)?;
            if next.is_empty() {
                self.check_age(page.metadata.resource_version)?;
            }
            self.store.heard();
            for item in &page.items {
                seen.insert(self.apply(item.get(), true)?.0);
            }
            next = page.metadata.next.unwrap_or_default().replace('+', "%2B").replace('=', "%3D").replace('/', "%2F");
            if next.is_empty() {
                self.complete(&seen, page.metadata.resource_version);
                return Ok(());
            }
        }
    }

    /// Completes a list: a watch continues from its version.
    fn complete(&mut self, seen: &BTreeSet<T::Key>, version: &str) {
        // Objects that are newer than the restored etcd no longer exist either.
        self.store.complete(seen, if self.older_since.take().is_some() { "" } else { version });
        self.version = Some(version.to_owned());
        self.relist = false;
        self.listed = Some(Instant::now());
        if self.blind == 0 {
            self.backoff = BACKOFF.0;
        }
    }

    /// Rejects a list that is older than the content of the store: it would revert or remove objects.
    fn check_age(&mut self, listed: &str) -> Result<(), Ended> {
        if !self.version.as_deref().is_some_and(|seen| is_older(listed, seen)) {
            self.older_since = None;
            return Ok(());
        }
        match self.older_since.get_or_insert_with(Instant::now).elapsed() {
            since if since < BELIEVE_OLDER_AFTER => Err(Ended::Older(listed.to_owned())),
            _ => Ok(()),
        }
    }

    /// The path of the collection with a query.
    fn collection(&self, query: &str) -> String {
        let selector = T::SELECTOR.map(|selector| format!("&{selector}")).unwrap_or_default();
        format!("{}?{query}{selector}{}", T::PATH, self.store.keep().selector())
    }

    /// Watches from the last version, if the server has reached it.
    async fn resume(&mut self) -> Result<(), Ended> {
        let page = self.client.send(&Call::get(self.collection("limit=1"))).await?;
        self.check_age(Page::read(&page)?.metadata.resource_version)?;
        self.watch().await
    }

    /// Whether the last watches showed nothing, so that the list alone keeps the store current.
    fn is_list_due(&self) -> bool {
        self.blind >= BLIND && self.listed.is_none_or(|at| at.elapsed() >= LIST_ALONE_EVERY)
    }

    fn has_just_listed(&self) -> bool {
        self.listed.is_some_and(|at| at.elapsed() < BRIEF)
    }

    /// Watches from the last version. A watch without an event, not even a bookmark, may have hidden changes, however it
    /// ended: a proxy may answer lists but cut watches.
    async fn watch(&mut self) -> Result<(), Ended> {
        // An event resets it.
        self.blind += 1;
        let version = self.version.as_deref().unwrap_or_default();
        let ended = match self.open(&format!("resourceVersion={version}")).await {
            Ok(frames) => self.follow(frames, &mut None).await,
            Err(error) => Err(error.into()),
        };
        let counts = match &ended {
            Ok(()) | Err(Ended::Normally) => true,
            // A server that asks for a pause gets it.
            Err(Ended::Failed(error)) => error.retry_after().is_none(),
            // A list follows in any case; one whose version is unusable at once must not be repeated without a pause.
            Err(Ended::Desynced(_) | Ended::Older(_)) => self.has_just_listed(),
        };
        if !counts {
            self.blind = self.blind.saturating_sub(1);
        }
        ended
    }

    /// Whether the streaming list, which is a watch, is refused again: pages need another permission.
    fn may_only_list(&mut self, refused: &ApiError) -> bool {
        self.blind += u32::from(refused.is_forbidden());
        refused.is_forbidden() && self.blind >= BLIND
    }

    async fn open(&self, from: &str) -> Result<impl Stream<Item = Result<Bytes, ApiError>> + use<T>, ApiError> {
        let seconds = WATCH_FOR.as_secs();
        let query = format!("watch=true&{from}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        self.client.stream(&Call::get(self.collection(&query))).await
    }

    /// Applies events until the stream ends.
    async fn follow(
        &mut self,
        frames: impl Stream<Item = Result<Bytes, ApiError>>,
        listing: &mut Listing<T::Key>,
    ) -> Result<(), Ended> {
        // An accepted watch is a sign of life, unless the last ones brought nothing.
        if self.blind <= BLIND {
            self.store.heard();
        }
        futures::pin_mut!(frames);
        let mut lines = Lines::default();
        loop {
            while let Some(line) = lines.next() {
                self.event(&line, listing)?;
            }
            match tokio::time::timeout(SILENCE, frames.next()).await {
                Ok(Some(Ok(frame))) => {
                    self.store.heard();
                    lines.push(&frame);
                }
                Ok(Some(Err(_)) | None) => return Err(Ended::Normally),
                Err(_) => return Err(Ended::Desynced("the watch is silent")),
            }
        }
    }

    fn event(&mut self, line: &[u8], listing: &mut Listing<T::Key>) -> Result<(), Ended> {
        let event =
            WatchEvent::read(line).map_err(|error| ApiError::Decode(format!("watch event of {}: {error}", T::NAME)))?;
        let version = match event.kind {
            "ADDED" | "MODIFIED" => {
                let (key, version) = self.apply(event.object, listing.is_some())?;
                if let Some(seen) = listing {
                    seen.insert(key);
                }
                version
            }
            "DELETED" => {
                let gone = Object::read(event.object).metadata;
                self.store.remove(&gone.key::<T>()?, gone.resource_version);
                gone.resource_version.to_owned()
            }
            "BOOKMARK" => {
                let meta = Object::read(event.object).metadata;
                if meta.annotations.initial_events_end == Some("true")
                    && let Some(seen) = listing
                {
                    self.check_age(meta.resource_version)?;
                    self.complete(seen, meta.resource_version);
                    *listing = None;
                }
                meta.resource_version.to_owned()
            }
            "ERROR" => {
                let code = serde_json::from_str::<Code>(event.object).map_or(500, |status| status.code);
                let http = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
                return Err(status_error(http, event.object.as_bytes(), None).into());
            }
            other => {
                tracing::debug!(kind = T::NAME, event = other, "unknown kind of watch event");
                String::new()
            }
        };
        // Initial events are not ordered by version.
        if listing.is_none() && !version.is_empty() {
            self.version = Some(version);
            self.backoff = BACKOFF.0;
            self.blind = 0;
        }
        Ok(())
    }

    /// Stores one object and returns its key and version. When it cannot be decoded, the store keeps the previous one.
    fn apply(&self, json: &str, listed: bool) -> Result<(T::Key, String), Ended> {
        match T::decode(json, self.store.keep()) {
            Ok(object) => {
                let known = (object.key(), object.resource_version().to_owned());
                match listed {
                    false => self.store.apply(object),
                    true if self.older_since.is_some() => self.store.replace(object),
                    true => self.store.apply_listed(object, self.version.as_deref().unwrap_or_default()),
                }
                Ok(known)
            }
            Err(error) => {
                let meta = Object::read(json).metadata;
                let (namespace, name) = (meta.namespace, meta.name);
                tracing::error!(kind = T::NAME, namespace, name, %error, "an object of the API server cannot be read and is ignored");
                Ok((meta.key::<T>()?, meta.resource_version.to_owned()))
            }
        }
    }
}

/// Whether pages would fail like the streaming list: no answer, a request to wait, or a refused client.
fn no_pages(error: &ApiError) -> bool {
    match error {
        ApiError::Status { code, retry_after, .. } => retry_after.is_some() || matches!(code, 401 | 403 | 429),
        ApiError::Decode(_) => false,
        ApiError::Transport(_) | ApiError::Deadline(_) | ApiError::Paced => true,
    }
}
