//! Fills a store: one list, then one watch that goes on from there.
//!
//! The list is streamed where the API server can, because a page is held whole while it is parsed; else it comes in small
//! pages. A broken watch goes on from the last version seen; only a forgotten version (410) brings a new list, during
//! which the store keeps what it has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Kept, Store, is_older};
use crate::client::{ApiError, Call, Client, status_error};

/// Objects per page where the list is not streamed.
const PAGE: usize = 50;
/// How long a watch lasts before the server ends it.
const WATCH_FOR: Duration = Duration::from_secs(290);
/// How long a watch may be silent: bookmarks come about once a minute.
const SILENCE: Duration = Duration::from_secs(300);
/// Pause after a failure; doubles up to the maximum (client-go's values).
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// Lists older than what the store has seen are refused this many times in a row; then they are believed, since the
/// cluster may have been restored from a backup.
const STALE_LISTS: u32 = 5;

/// Keeps a [`Store`] current.
pub struct Reflector<T: Kept> {
    store: Arc<Store<T>>,
    client: Client,
    rng: StdRng,
    version: Option<String>,
    streaming: bool,
    stale: u32,
    backoff: Duration,
    /// Pause after a refusal for lack of rights and the way out, and whether one was told.
    forbidden: Option<(Duration, &'static str)>,
    told: bool,
}

impl<T: Kept> std::fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector").field("kind", &T::NAME).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Why a list or watch ended.
#[derive(Debug)]
enum Ended {
    /// As it should: go on from the last version.
    Normally,
    /// The version is forgotten: list again.
    Forgotten,
    /// Try again later.
    Failed(ApiError),
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Self {
        if error.is_gone() { Self::Forgotten } else { Self::Failed(error) }
    }
}

impl<T: Kept> Reflector<T> {
    /// A reflector; [`Reflector::run`] starts it. `seed` makes the jitter repeatable.
    pub fn new(store: Arc<Store<T>>, client: Client, seed: u64) -> Self {
        Self {
            store,
            client,
            rng: StdRng::seed_from_u64(seed),
            version: None,
            streaming: true,
            stale: 0,
            backoff: BACKOFF.0,
            forbidden: None,
            told: false,
        }
    }

    /// For what is of use but not needed: while the rights are missing, that is logged once with a way out, and asked again
    /// after this pause.
    #[must_use]
    pub fn patient(self, pause: Duration, way_out: &'static str) -> Self {
        Self { forbidden: Some((pause, way_out)), ..self }
    }

    /// Runs for ever; ends by being dropped.
    pub async fn run(mut self) {
        let mut relist = true;
        loop {
            let ended = match (relist, self.streaming) {
                (true, true) => self.list_streaming().await,
                (true, false) => self.list_in_pages().await,
                (false, _) => self.watch().await,
            };
            match ended {
                Ok(()) | Err(Ended::Normally) => {
                    self.told = false;
                    relist = false;
                }
                Err(Ended::Forgotten) => {
                    tracing::debug!(kind = T::NAME, "the watched version is forgotten: listing again");
                    relist = true;
                    self.pause(None).await;
                }
                Err(Ended::Failed(error))
                    if let (true, Some((pause, way_out))) = (error.is_forbidden(), self.forbidden) =>
                {
                    if !std::mem::replace(&mut self.told, true) {
                        tracing::warn!(kind = T::NAME, %error, "cannot be watched: {way_out}; trying again now and then");
                    }
                    self.pause(Some(pause)).await;
                }
                Err(Ended::Failed(error)) => {
                    tracing::warn!(kind = T::NAME, %error, synced = self.store.is_synced(), "list or watch failed, trying again");
                    self.pause(error.retry_after()).await;
                }
            }
        }
    }

    /// Lists once, for who does not watch.
    ///
    /// # Errors
    ///
    /// The list failed; the store is not synced then.
    pub async fn fill(mut self) -> Result<(), ApiError> {
        // A list that takes so long that its version is forgotten meanwhile begins again, once.
        for last in [false, true] {
            match self.list_in_pages().await {
                Ok(()) | Err(Ended::Normally) => break,
                Err(Ended::Forgotten) if !last => {}
                Err(Ended::Forgotten) => {
                    let text = format!("the list of {} is out of date before it is complete", T::NAME);
                    return Err(ApiError::Decode(text));
                }
                Err(Ended::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    async fn pause(&mut self, at_least: Option<Duration>) {
        let delay = self.backoff.mul_f64(self.rng.random_range(1.0..2.0));
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
        tokio::time::sleep(delay.max(at_least.unwrap_or_default())).await;
    }

    /// Lists by a watch that begins with all objects, and goes on watching. `Ok` never comes back: the watch ends
    /// somehow.
    async fn list_streaming(&mut self) -> Result<(), Ended> {
        let version = self.version.clone().unwrap_or_default();
        let path = format!(
            "{}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={}",
            T::PATH,
            WATCH_FOR.as_secs()
        );
        match self.client.stream(&Call::get(path)).await {
            Ok(frames) => self.follow(frames, Some(BTreeSet::new())).await,
            // Old servers refuse the parameters, servers over an old etcd answer 500; both can do pages.
            Err(ApiError::Status { code: code @ (400 | 422 | 500), message, .. }) => {
                tracing::info!(kind = T::NAME, code, answer = message, "no streaming list here, listing in pages");
                self.streaming = false;
                self.list_in_pages().await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn list_in_pages(&mut self) -> Result<(), Ended> {
        let mut seen = BTreeSet::new();
        let mut next = String::new();
        loop {
            let mut path = format!("{}?limit={PAGE}", T::PATH);
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&next);
            }
            let page = self.client.send(&Call::get(path)).await?;
            let page: Page<'_> = serde_json::from_slice(&page).map_err(|e| ApiError::Decode(e.to_string()))?;
            if next.is_empty() {
                self.refuse_stale(page.metadata.resource_version)?;
            }
            for item in &page.items {
                seen.extend(self.apply(item.get(), true).map(|(key, _)| key));
            }
            next = page.metadata.next.unwrap_or_default().replace('+', "%2B").replace('=', "%3D").replace('/', "%2F");
            if next.is_empty() {
                self.version = Some(page.metadata.resource_version.to_owned());
                self.store.complete(&seen);
                self.backoff = BACKOFF.0;
                return Ok(());
            }
        }
    }

    /// A list that is older than what the store has seen would take objects back in time, or away.
    fn refuse_stale(&mut self, listed: &str) -> Result<(), Ended> {
        let stale = self.version.as_deref().is_some_and(|seen| is_older(listed, seen));
        self.stale = if stale { self.stale + 1 } else { 0 };
        if !stale || self.stale > STALE_LISTS {
            return Ok(());
        }
        let message = format!("a list of version {listed} is older than what was seen");
        Err(Ended::Failed(ApiError::Decode(message)))
    }

    async fn watch(&mut self) -> Result<(), Ended> {
        let version = self.version.clone().unwrap_or_default();
        let path = format!(
            "{}?watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={}",
            T::PATH,
            WATCH_FOR.as_secs()
        );
        let frames = self.client.stream(&Call::get(path)).await?;
        self.follow(frames, None).await
    }

    /// Takes over events until the stream ends. `listing` collects what the initial events show.
    async fn follow(
        &mut self,
        frames: impl Stream<Item = Result<Bytes, ApiError>>,
        mut listing: Option<BTreeSet<T::Key>>,
    ) -> Result<(), Ended> {
        futures::pin_mut!(frames);
        let mut lines = Lines::default();
        loop {
            while let Some(line) = lines.next() {
                self.event(&line, &mut listing)?;
            }
            match tokio::time::timeout(SILENCE, frames.next()).await {
                Ok(Some(Ok(frame))) => lines.push(&frame),
                Ok(Some(Err(error))) if listing.is_some() => return Err(error.into()),
                // The watch goes on from the last version; a cut alone is no reason to wait long.
                Ok(Some(Err(_)) | None) | Err(_) if listing.is_none() => {
                    let pause = self.backoff.min(Duration::from_secs(1)).mul_f64(self.rng.random_range(0.1..1.0));
                    tokio::time::sleep(pause).await;
                    return Err(Ended::Normally);
                }
                Ok(_) | Err(_) => {
                    return Err(ApiError::Transport("the list ended before it was complete".into()).into());
                }
            }
        }
    }

    fn event(&mut self, line: &[u8], listing: &mut Option<BTreeSet<T::Key>>) -> Result<(), Ended> {
        let event =
            WatchEvent::read(line).map_err(|error| ApiError::Decode(format!("watch event of {}: {error}", T::NAME)))?;
        let version = match event.kind {
            "ADDED" | "MODIFIED" => match self.apply(event.object, listing.is_some()) {
                Some((key, version)) => {
                    if let Some(seen) = listing {
                        seen.insert(key);
                    }
                    version
                }
                None => Object::read(event.object).metadata.resource_version.to_owned(),
            },
            "DELETED" => match T::decode(event.object, self.store.keep()) {
                Ok(gone) => {
                    self.store.remove(&gone.key());
                    gone.resource_version().to_owned()
                }
                Err(_) => Object::read(event.object).metadata.resource_version.to_owned(),
            },
            "BOOKMARK" => {
                let meta = Object::read(event.object).metadata;
                if meta.annotations.initial_events_end == Some("true")
                    && let Some(seen) = listing.take()
                {
                    self.refuse_stale(meta.resource_version)?;
                    self.store.complete(&seen);
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
        // While the initial events come, they are in no order of versions.
        if listing.is_none() && !version.is_empty() {
            self.version = Some(version);
            self.backoff = BACKOFF.0;
        }
        Ok(())
    }

    /// Takes over one object and answers its key and version. One that cannot be read is left out with an error; the
    /// others go on. A listed object never replaces a newer one, unless older lists had to be believed.
    fn apply(&self, json: &str, listed: bool) -> Option<(T::Key, String)> {
        match T::decode(json, self.store.keep()) {
            Ok(object) => {
                let known = (object.key(), object.resource_version().to_owned());
                if listed && self.stale > STALE_LISTS {
                    self.store.replace(object);
                } else {
                    self.store.apply(object);
                }
                Some(known)
            }
            Err(error) => {
                let name = Object::read(json).metadata.name;
                tracing::error!(kind = T::NAME, name, %error, "an object of the API server cannot be read and is ignored");
                None
            }
        }
    }
}

/// One line of a watch.
struct WatchEvent<'a> {
    kind: &'a str,
    object: &'a str,
}

impl<'a> WatchEvent<'a> {
    /// Every API server writes an event as `{"type":"…","object":{…}}`: then the object, which may be long, is parsed only
    /// once, by whoever decodes it. Any other way of writing it is parsed here.
    fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        let usual = || {
            let text = std::str::from_utf8(line).ok()?.trim_end();
            let (kind, rest) = text.strip_prefix(r#"{"type":""#)?.split_once('"')?;
            let object = rest.strip_prefix(r#","object":"#)?.strip_suffix('}')?;
            Some(Self { kind, object })
        };
        if let Some(event) = usual() {
            return Ok(event);
        }
        let event: AnyEvent<'a> = serde_json::from_slice(line)?;
        Ok(Self { kind: event.kind, object: event.object.get() })
    }
}

#[derive(Deserialize)]
struct AnyEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize, Default)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

impl<'a> Object<'a> {
    fn read(json: &'a str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Meta<'a> {
    name: &'a str,
    resource_version: &'a str,
    #[serde(borrow)]
    annotations: BookmarkAnnotations<'a>,
}

#[derive(Deserialize, Default)]
struct BookmarkAnnotations<'a> {
    #[serde(rename = "k8s.io/initial-events-end", borrow, default)]
    initial_events_end: Option<&'a str>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    metadata: ListMeta<'a>,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta<'a> {
    resource_version: &'a str,
    #[serde(rename = "continue")]
    next: Option<&'a str>,
}

/// Cuts a stream of frames into lines.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    fn push(&mut self, frame: &[u8]) {
        self.buffer.extend_from_slice(frame);
    }

    fn next(&mut self) -> Option<BytesMut> {
        let rest = self.buffer.get(self.searched..)?;
        match memchr::memchr(b'\n', rest) {
            Some(at) => {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_written() {
        let usual = WatchEvent::read(b"{\"type\":\"ADDED\",\"object\":{\"a\":{}}}\n").unwrap();
        assert_eq!((usual.kind, usual.object), ("ADDED", "{\"a\":{}}"));
        let other = WatchEvent::read(b"{ \"object\": {\"a\": 1}, \"type\": \"DELETED\" }\n").unwrap();
        assert_eq!((other.kind, other.object), ("DELETED", "{\"a\": 1}"));
        assert!(WatchEvent::read(b"<html>").is_err());
    }

    #[test]
    fn lines_are_found_across_frames() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for frame in ["{\"a\"", ":1}\n{\"b\":", "2}\n", "{}\n{", "}\n"] {
            lines.push(frame.as_bytes());
            while let Some(line) = lines.next() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(found, ["{\"a\":1}\n", "{\"b\":2}\n", "{}\n", "{}\n"]);
    }
}
