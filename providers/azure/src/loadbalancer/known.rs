//! What was read in the last minutes, with what this process has written since.
//!
//! It answers a call that changes nothing, and is the base of writes that Azure refuses if it is not current any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::env::{LOAD_BALANCERS, PUBLIC_IPS, SECURITY_GROUPS};
use super::json::{self, same};
use crate::client::id::ArmId;

/// The kinds of objects, besides the resource groups of public IP addresses.
pub(super) const BALANCERS: &str = "load balancers";
pub(super) const SECURITY_GROUP: &str = "security group";

/// The time for which reads may show the state before a write.
pub(super) const LATE: Duration = Duration::from_secs(10);
/// The time for which a write without an answer may still change something.
const DOUBT: Duration = Duration::from_secs(60);

/// Objects, by what they are.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    doubtful_until: Option<Instant>,
    kinds: BTreeMap<String, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    /// The number of writes that have begun or ended.
    writes: u64,
    doubtful_until: Option<Instant>,
    /// The objects whose writes go on, by ID in lower case.
    changing: BTreeSet<String>,
    /// The load balancers whose members may have changed since they were read, by ID in lower case.
    stale: BTreeSet<String>,
    read: Option<(Instant, Vec<Arc<Value>>)>,
}

/// The beginning of a read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    what: String,
    writes: u64,
    at: Instant,
}

/// A write that is being sent. Without [`Writing::answered`], its effect may come later.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    known: &'a Known,
    id: &'a ArmId,
    has_answer: bool,
}

/// The kind of an object. `None`: it has to do with the members of load balancers.
fn kind_of(id: &ArmId) -> Option<String> {
    match () {
        () if id.is(LOAD_BALANCERS) => Some(BALANCERS.to_owned()),
        () if id.is(PUBLIC_IPS) => Some(id.group().to_lowercase()),
        () if id.is(SECURITY_GROUPS) => Some(SECURITY_GROUP.to_owned()),
        () => None,
    }
}

impl Kind {
    /// Forgets what was read, and does not keep what is read soon.
    fn forget(&mut self, doubt: Duration) {
        self.doubt(doubt);
        self.stale.clear();
        self.read = None;
    }

    /// Uses nothing of what was read until it is shown.
    fn change_all(&mut self) {
        self.doubt(LATE);
        let read = self.read.iter().flat_map(|(_, list)| list);
        self.stale.extend(read.map(|object| json::text(object, &["id"]).to_ascii_lowercase()));
    }

    /// Does not keep what is read soon.
    fn doubt(&mut self, doubt: Duration) {
        self.writes += 1;
        self.doubtful_until = self.doubtful_until.max(Some(Instant::now() + doubt));
    }
}

impl State {
    fn kind(&mut self, what: &str) -> &mut Kind {
        self.kinds.entry(what.to_owned()).or_default()
    }
}

impl Known {
    pub(super) fn reading(&self, what: &str) -> Reading {
        let writes = self.0.lock().kind(what).writes;
        Reading { what: what.to_owned(), writes, at: Instant::now() }
    }

    /// Keeps what was read, unless something was or is being written.
    pub(super) fn keep(&self, reading: &Reading, list: &[Arc<Value>]) {
        let mut state = self.0.lock();
        let of_all = state.doubtful_until;
        let kind = state.kind(&reading.what);
        let is_certain = [of_all, kind.doubtful_until].into_iter().flatten().all(|until| until < reading.at);
        if is_certain && kind.writes == reading.writes && kind.changing.is_empty() {
            kind.read = Some((reading.at, list.to_vec()));
            kind.stale.clear();
        }
    }

    /// What was read within this time.
    pub(super) fn get(&self, what: &str, age: Duration) -> Option<Vec<Arc<Value>>> {
        let state = self.0.lock();
        let kind = state.kinds.get(what).filter(|kind| kind.changing.is_empty() && kind.stale.is_empty())?;
        let (at, list) = kind.read.as_ref()?;
        (at.elapsed() < age).then(|| list.clone())
    }

    /// A write begins. That of a member or of a pool gives its load balancer another ETag, and other members.
    pub(super) fn writing<'a>(&'a self, id: &'a ArmId) -> Writing<'a> {
        let mut state = self.0.lock();
        match kind_of(id) {
            Some(what) => {
                let kind = state.kind(&what);
                kind.writes += 1;
                kind.changing.insert(id.folded());
            }
            None => state.kind(BALANCERS).change_all(),
        }
        Writing { known: self, id, has_answer: false }
    }

    /// A write has ended, and this is the object now.
    pub(super) fn shows(&self, id: &ArmId, object: &Arc<Value>) {
        let Some(what) = kind_of(id) else { return self.ended(id) };
        let mut state = self.0.lock();
        let kind = state.kind(&what);
        kind.writes += 1;
        kind.changing.remove(&id.folded());
        kind.stale.remove(&id.folded());
        let Some((_, list)) = &mut kind.read else { return };
        match list.iter_mut().find(|known| same(json::text(known, &["id"]), id.as_str())) {
            Some(known) => known.clone_from(object),
            None => list.push(object.clone()),
        }
    }

    /// A write has ended; nothing shows what the object is now.
    pub(super) fn ended(&self, id: &ArmId) {
        self.unclear(id, LATE);
    }

    fn unclear(&self, id: &ArmId, doubt: Duration) {
        let mut state = self.0.lock();
        let Some(what) = kind_of(id) else { return state.kind(BALANCERS).change_all() };
        let kind = state.kind(&what);
        kind.changing.remove(&id.folded());
        kind.forget(doubt);
    }

    /// Forgets everything, for some time.
    pub(super) fn forget(&self, doubt: Duration) {
        let until = Some(Instant::now() + doubt);
        let mut state = self.0.lock();
        state.doubtful_until = state.doubtful_until.max(until);
        state.kinds.values_mut().for_each(|kind| kind.forget(Duration::ZERO));
    }
}

impl Writing<'_> {
    /// The write goes on, or has ended.
    pub(super) fn answered(mut self) {
        self.has_answer = true;
    }

    /// The write was refused because the object is another one than it was read.
    pub(super) fn conflicts(mut self) {
        self.has_answer = true;
        self.known.unclear(self.id, Duration::ZERO);
    }

    /// The write was refused, perhaps for an object that is not as it was read.
    pub(super) fn refused(self) {
        let known = self.known;
        self.conflicts();
        known.forget(Duration::ZERO);
    }

    /// Nothing was sent, or Azure has not accepted it: all is as before.
    pub(super) fn unsent(mut self) {
        self.has_answer = true;
        if let Some(what) = kind_of(self.id) {
            self.known.0.lock().kind(&what).changing.remove(&self.id.folded());
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.has_answer {
            self.known.unclear(self.id, DOUBT);
            self.known.forget(DOUBT);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AGE: Duration = Duration::from_secs(120);

    fn id(kind: &str, name: &str) -> ArmId {
        ArmId::new("s", "RG", kind, name)
    }

    fn object(id: &ArmId, etag: &str) -> Arc<Value> {
        json!({"id": id.as_str(), "etag": etag}).into()
    }

    fn read(known: &Known, what: &str, list: &[Arc<Value>]) {
        known.keep(&known.reading(what), list);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_kept_for_its_age() {
        let known = Known::default();
        read(&known, BALANCERS, &[json!(1).into()]);
        assert_eq!(known.get(BALANCERS, AGE), Some(vec![json!(1).into()]));
        assert_eq!(known.get(BALANCERS, Duration::ZERO), None);
        assert_eq!(known.get(SECURITY_GROUP, AGE), None);
        tokio::time::advance(AGE).await;
        assert_eq!(known.get(BALANCERS, AGE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_not_known_while_it_is_written_and_then_as_it_is_shown() {
        let known = Known::default();
        let (one, new, group) = (id(LOAD_BALANCERS, "One"), id(LOAD_BALANCERS, "new"), id(SECURITY_GROUPS, "nsg"));
        read(&known, BALANCERS, &[object(&one, "a")]);
        read(&known, SECURITY_GROUP, &[object(&group, "a")]);
        let reading = known.reading(BALANCERS);
        known.writing(&one).answered();
        known.writing(&new).answered();
        read(&known, BALANCERS, &[object(&one, "b")]);
        known.keep(&reading, &[object(&one, "a")]);
        known.shows(&new, &object(&new, "a"));
        assert_eq!(known.get(BALANCERS, AGE), None, "one is still being written");
        known.shows(&one, &object(&one, "c"));
        assert_eq!(known.get(BALANCERS, AGE), Some(vec![object(&one, "c"), object(&new, "a")]));
        known.keep(&reading, &[]);
        assert!(known.get(BALANCERS, AGE).is_some_and(|list| list.len() == 2), "it was read before");
        assert!(known.get(SECURITY_GROUP, AGE).is_some(), "nothing of its kind was written");
        known.writing(&one).answered();
        known.ended(&one);
        read(&known, BALANCERS, &[object(&one, "c")]);
        assert_eq!(known.get(BALANCERS, AGE), None, "a read may be late");
        tokio::time::advance(LATE + Duration::from_secs(1)).await;
        read(&known, BALANCERS, &[object(&one, "d")]);
        known.writing(&one).conflicts();
        assert_eq!(known.get(BALANCERS, AGE), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        read(&known, BALANCERS, &[object(&one, "e")]);
        assert!(known.get(BALANCERS, AGE).is_some(), "somebody else has written");
    }

    #[tokio::test(start_paused = true)]
    async fn members_change_their_load_balancers_and_a_write_without_an_answer_everything() {
        let known = Known::default();
        let (one, two, set) = (
            id(LOAD_BALANCERS, "One"),
            id(LOAD_BALANCERS, "two"),
            id("Microsoft.Compute/virtualMachineScaleSets", "set"),
        );
        let ip = id(PUBLIC_IPS, "ip");
        let all = |known: &Known| [BALANCERS, SECURITY_GROUP, "rg"].map(|what| known.get(what, AGE).is_some());
        let read_all = |known: &Known| [BALANCERS, SECURITY_GROUP, "rg"].map(|what| read(known, what, &[]));
        read_all(&known);
        read(&known, BALANCERS, &[object(&one, "a"), object(&two, "a")]);
        known.writing(&set).answered();
        known.ended(&set);
        read_all(&known);
        assert_eq!(all(&known), [false, true, true]);
        known.shows(&one, &object(&one, "b"));
        assert_eq!(all(&known), [false, true, true], "the other one has members, too");
        known.shows(&two, &object(&two, "b"));
        assert_eq!(known.get(BALANCERS, AGE), Some(vec![object(&one, "b"), object(&two, "b")]));
        known.writing(&set).answered();
        tokio::time::advance(LATE + Duration::from_secs(1)).await;
        read_all(&known);
        assert_eq!(all(&known), [true; 3]);
        drop(known.writing(&ip));
        tokio::time::advance(LATE + Duration::from_secs(1)).await;
        read_all(&known);
        assert_eq!(all(&known), [false; 3]);
        tokio::time::advance(DOUBT).await;
        read_all(&known);
        assert_eq!(all(&known), [true; 3]);
    }
}
