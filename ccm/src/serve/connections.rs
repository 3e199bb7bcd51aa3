//! The open connections, and the selection of the one to close in favor of a new one.
//!
//! Clients that hold idle connections must not lock out a kubelet's probe: a new connection is always accepted, and if
//! there are too many, another one is closed. It is one of the peer with the most connections: preferably one without
//! any request so far, then an idle one, then one with a request in progress; the oldest of these.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    last: Notify,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    served: bool,
    busy_since: Option<Instant>,
    idle_since: Option<Instant>,
    head_since: Option<Instant>,
    blocked_since: Option<Instant>,
}

impl Activity {
    pub(super) fn new() -> Self {
        let state = State { idle_since: Some(Instant::now()), ..State::default() };
        Self { state: Mutex::new(state), last: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Bytes were received: if no request is in progress, a new one starts.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.in_flight == 0 {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// The client does not read.
    pub(super) fn blocked(&self) {
        self.state().blocked_since.get_or_insert_with(Instant::now);
    }

    /// The client reads.
    pub(super) fn sent(&self) {
        self.state().blocked_since = None;
    }

    /// The head of a request is complete. The request is in progress until the guard is dropped.
    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        let mut state = self.state();
        state.served = true;
        state.in_flight += 1;
        (state.head_since, state.idle_since) = (None, None);
        state.busy_since.get_or_insert_with(Instant::now);
        InFlight(self.clone())
    }

    /// Closes the connection after its current requests.
    pub(super) fn close_after_this(&self) {
        self.last.notify_one();
    }

    /// Waits until the connection should be closed.
    pub(super) async fn closing(&self) {
        self.last.notified().await;
    }

    /// The time for which requests have been in progress without a pause.
    pub(super) fn busy(&self) -> Option<Duration> {
        self.state().busy_since.map(|at| at.elapsed())
    }

    /// The time since the last request.
    pub(super) fn idle(&self) -> Option<Duration> {
        self.state().idle_since.map(|at| at.elapsed())
    }

    /// The time for which the head of a request has been incomplete.
    pub(super) fn head(&self) -> Option<Duration> {
        self.state().head_since.map(|at| at.elapsed())
    }

    /// The time for which the client has not read its response.
    pub(super) fn stuck(&self) -> Option<Duration> {
        self.state().blocked_since.map(|at| at.elapsed())
    }

    /// A connection with a lower rank is closed earlier.
    fn rank(&self) -> u8 {
        match *self.state() {
            State { in_flight: 0, served: false, .. } => 0,
            State { in_flight: 0, .. } => 1,
            _ => 2,
        }
    }
}

#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.busy_since = None;
            state.idle_since = Some(Instant::now());
        }
    }
}

#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    inner: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In order of acceptance.
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    activity: Arc<Activity>,
    task: AbortHandle,
}

/// An entry in the table, removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    table: Arc<Connections>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().open.remove(&self.number);
    }
}

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.inner.lock()
    }

    /// Starts `serve` with an entry in the table; may close another connection.
    pub(super) fn admit<F>(self: &Arc<Self>, peer: IpAddr, serve: impl FnOnce(Arc<Activity>, Place) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let activity = Arc::new(Activity::new());
        let mut table = self.lock();
        while table.open.len() >= self.most.max(1) {
            if !table.evict() {
                break;
            }
        }
        let number = table.next;
        table.next += 1;
        // The entry is dropped with the task, which cannot lock the table before this lock is released.
        let place = Place { table: self.clone(), number };
        let task = tokio::spawn(serve(activity.clone(), place)).abort_handle();
        table.open.insert(number, Open { peer: peer.to_canonical(), activity, task });
    }

    /// Closes one connection, because the process has no file descriptors left.
    pub(super) fn make_room(&self) {
        self.lock().evict();
    }

    pub(super) fn end(&self) {
        while self.lock().evict() {}
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().open.len()
    }
}

impl Table {
    fn evict(&mut self) -> bool {
        let mut by_peer = HashMap::<IpAddr, usize>::new();
        for open in self.open.values() {
            *by_peer.entry(open.peer).or_default() += 1;
        }
        let worst = |open: &Open| {
            let of_peer = by_peer.get(&open.peer).copied().unwrap_or_default();
            (std::cmp::Reverse(of_peer), open.activity.rank())
        };
        // Of equals the first is the oldest.
        let Some(number) = self.open.iter().min_by_key(|(number, open)| (worst(open), **number)).map(|(n, _)| *n)
        else {
            return false;
        };
        if let Some(gone) = self.open.remove(&number) {
            tracing::debug!(peer = %gone.peer, "too many connections: this one makes room");
            gone.task.abort();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOG: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const KUBELET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn open(table: &Arc<Connections>, peer: IpAddr) -> Arc<Activity> {
        let mut made = None;
        table.admit(peer, |activity, place| {
            made = Some(activity);
            async move {
                let _place = place;
                std::future::pending::<()>().await;
            }
        });
        made.unwrap()
    }

    fn there(table: &Connections, activity: &Arc<Activity>) -> bool {
        table.lock().open.values().any(|open| Arc::ptr_eq(&open.activity, activity))
    }

    #[tokio::test]
    async fn the_peer_with_most_connections_gives_way() {
        let table = Connections::new(8);
        let kubelet = open(&table, KUBELET);
        let hogs: Vec<_> = (0..100).map(|_| open(&table, HOG)).collect();
        assert_eq!(table.len(), 8);
        assert!(there(&table, &kubelet));
        assert!(there(&table, &hogs[99]) && !there(&table, &hogs[0]));
    }

    #[tokio::test]
    async fn of_one_peer_those_without_a_request_go_first_and_those_being_answered_last() {
        let table = Connections::new(3);
        let (answered, rested, fresh) = (open(&table, HOG), open(&table, HOG), open(&table, HOG));
        let _request = answered.request();
        drop(rested.request());
        let next = open(&table, HOG);
        assert!(!there(&table, &fresh) && there(&table, &rested));
        let _request = next.request();
        let last = open(&table, HOG);
        assert!(!there(&table, &rested) && there(&table, &answered));
        let _request = last.request();
        open(&table, HOG);
        assert!(!there(&table, &answered));
    }

    #[tokio::test]
    async fn a_connection_that_ends_gives_its_place_back() {
        let table = Connections::new(4);
        table.admit(HOG, |_, place| async move { drop(place) });
        while table.len() > 0 {
            tokio::task::yield_now().await;
        }
        open(&table, HOG);
        table.end();
        assert_eq!(table.len(), 0);
    }

    #[tokio::test]
    async fn activity_records_the_times_of_its_states() {
        let activity = Arc::new(Activity::new());
        assert!(activity.idle().is_some() && activity.head().is_none() && activity.busy().is_none());
        activity.received();
        assert!(activity.head().is_some());
        let (one, two) = (activity.request(), activity.request());
        activity.received();
        drop(one);
        assert!(activity.busy().is_some() && activity.idle().is_none() && activity.head().is_none());
        drop(two);
        assert!(activity.busy().is_none() && activity.idle().is_some());
        activity.blocked();
        assert!(activity.stuck().is_some());
        activity.sent();
        assert!(activity.stuck().is_none());
    }
}
