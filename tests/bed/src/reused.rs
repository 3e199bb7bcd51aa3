//! Beds that tests of one process use one after the other: a start needs 1.5 s of CPU time and 400 MB, emptying a bed a
//! few milliseconds.
//!
//! The store is made as it was, behind the API server, whose caches follow it as they follow another API server's writes.
//! Deletions over the API would wait for finalizers, and namespaces for a controller that does not run.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{Audit, Bed, Options, blocking};

/// `/registry/`, which is above all keys of the API server, and `/registry0`, the next key after all of them, in the
/// encoding of etcd's gateway.
const ALL: (&str, &str) = ("L3JlZ2lzdHJ5Lw==", "L3JlZ2lzdHJ5MA==");
/// etcd accepts 128 operations in a transaction.
const AT_ONCE: usize = 100;
/// A request that only the administrator may make in an empty cluster.
const DENIED: &str = "/api/v1/nodes?limit=1&fieldSelector=metadata.name%3Dreused";
/// For the caches of the API server; usually it is a few milliseconds.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

static IDLE: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// The content of a bed's store, keys and values in the encoding of etcd's gateway.
type Content = BTreeMap<String, String>;

#[derive(Debug)]
struct Kept {
    bed: Bed,
    options: Options,
    /// The content when the API server was new.
    fresh: Content,
}

/// A bed that the caller has for itself, empty but for what the API server creates: see [`Bed::reused`].
#[derive(Debug)]
pub struct Reused(Option<Kept>);

impl std::ops::Deref for Reused {
    type Target = Bed;

    #[allow(clippy::expect_used, reason = "it is taken by the drop only")]
    fn deref(&self) -> &Bed {
        &self.0.as_ref().expect("a bed before its drop").bed
    }
}

impl Drop for Reused {
    fn drop(&mut self) {
        // After a failed test, or without a running server, the bed ends here.
        if let Some(kept) = self.0.take().filter(|kept| !thread::panicking() && kept.bed.processes.is_running()) {
            IDLE.lock().push(kept);
        }
    }
}

impl Bed {
    /// A bed for this caller alone, as long as it holds it, with these options. Another test of this process may have
    /// used the server: its objects are gone, only revisions and logs go on. Not for tests that change the authority, or
    /// that need a server without a past.
    pub async fn reused(options: Options) -> anyhow::Result<Option<Reused>> {
        blocking(move || {
            loop {
                let idle = {
                    let mut all = IDLE.lock();
                    let at = all.iter().position(|kept| kept.options == options);
                    at.map(|at| all.swap_remove(at))
                };
                let Some(mut kept) = idle else { break };
                // Another test may have stopped its processes.
                match kept.empty() {
                    Ok(()) => return Ok(Some(Reused(Some(kept)))),
                    Err(error) => eprintln!("test bed: one is not reused: {error:#}"),
                }
            }
            let Some(bed) = Self::start_blocking(&options)? else { return Ok(None) };
            let fresh = bed.content()?;
            Ok(Some(Reused(Some(Kept { bed, options, fresh }))))
        })
        .await
    }

    fn content(&self) -> anyhow::Result<Content> {
        let answer = self.etcd("range", &json!({"key": ALL.0, "range_end": ALL.1}))?;
        let all = answer.get("kvs").and_then(Value::as_array).context("etcd has no keys of the API server")?;
        let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(all.iter().map(|of| (text(of, "key"), text(of, "value"))).collect())
    }

    fn etcd(&self, call: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, answer) =
            self.processes.etcd_client().send("POST", &format!("/v3/kv/{call}"), Some(&body.to_string()))?;
        ensure!(status == 200, "etcd answers {call} with {status}: {answer}");
        serde_json::from_str(&answer).with_context(|| format!("reading etcd's answer to {call}"))
    }
}

impl Kept {
    /// Restores the content of the store.
    fn empty(&mut self) -> anyhow::Result<()> {
        let now = self.bed.content()?;
        let deletions = now.keys().filter(|key| !self.fresh.contains_key(*key));
        let deletions = deletions.map(|key| json!({"request_delete_range": {"key": key}}));
        let changed = self.fresh.iter().filter(|(key, value)| now.get(*key) != Some(*value));
        let puts = changed.map(|(key, value)| json!({"request_put": {"key": key, "value": value}}));
        let operations: Vec<Value> = deletions.chain(puts).collect();
        for some in operations.chunks(AT_ONCE) {
            self.bed.etcd("txn", &json!({"success": some}))?;
        }
        self.until_denied()?;
        self.begin_audit()
    }

    /// The audit log of the next test begins after the request of [`Kept::until_denied`], whose entry may come after its
    /// answer.
    fn begin_audit(&mut self) -> anyhow::Result<()> {
        if self.options.audit == Audit::Off {
            return Ok(());
        }
        let mut log = self.bed.audit();
        until("the audit log has the last request", || {
            Ok(log.read()?.iter().any(|entry| entry.code == 403 && entry.request_uri == DENIED))
        })?;
        self.bed.audit_from = log.offset();
        Ok(())
    }

    /// Lists are never older than the store. The authorizer's rules are: its cache follows on its own.
    fn until_denied(&self) -> anyhow::Result<()> {
        let client = self.bed.processes.client(&self.bed.ccm_token);
        until("the permissions of the last test are gone", || Ok(client.send("GET", DENIED, None)?.0 == 403))
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let started = Instant::now();
    while !is_so()? {
        ensure!(started.elapsed() < SEEN_WITHIN, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
