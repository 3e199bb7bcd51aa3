//! Stores and their reflectors with the in-memory API server, under faults of the server and the network.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ccm::serve::Probe;
use ccm_provider::{Node, ObjectChange};
use ccm_runtime::store::{FieldFilter, Reflector};
use ccm_runtime::{Client, Metrics, Store};
use ccm_test_apiserver::{ApiServer, Effect, Fault, Faults, Match, Options, Patch, StreamingLists};
use ccm_test_suite::Rig;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// The value of a label that is corrupted in transit, so that it is not a string.
const UNREADABLE: &str = "\"unreadable\"";

/// A store of nodes with its reflector, and the API server.
struct Bench {
    api: ccm_test_apiserver::Store,
    faults: Faults,
    down: Arc<AtomicBool>,
    /// Path and query of each request.
    requests: Arc<Mutex<Vec<String>>>,
    metrics: Metrics,
    store: Arc<Store<Node>>,
    /// Names of deleted nodes that a handler received.
    deleted: Arc<Mutex<Vec<String>>>,
    reflector: JoinHandle<()>,
}

impl Bench {
    /// A bench with this many nodes.
    fn new(options: Options, nodes: usize) -> Self {
        Self::with(options, nodes, |_, _| ())
    }

    fn with(options: Options, nodes: usize, prepare: impl FnOnce(&Arc<Store<Node>>, &Faults)) -> Self {
        let (api, faults, handler) = ApiServer::in_process(options);
        (0..nodes).for_each(|n| drop(api.create("nodes", "", json!({"metadata": {"name": format!("n{n}")}})).unwrap()));
        let (down, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let transport = tower::service_fn({
            let (down, requests) = (down.clone(), requests.clone());
            move |request: http::Request<kube::client::Body>| {
                requests.lock().push(request.uri().to_string());
                let (handler, down) = (handler.clone(), down.load(Ordering::SeqCst));
                async move {
                    if down {
                        return Err(std::io::Error::other("refused"));
                    }
                    let answer = handler.call(request).await.map_err(|_| std::io::Error::other("closed"))?;
                    Ok(answer.map(|body| body.map_frame(|frame| frame.map_data(|data| garble(&data)))))
                }
            }
        });
        let metrics = Metrics::new();
        let client = Client::over(kube::Client::new(transport, "default"), metrics.clone());
        let store = Store::new(FieldFilter::default());
        prepare(&store, &faults);
        let deleted = Arc::new(Mutex::new(Vec::new()));
        store.on_change({
            let deleted = deleted.clone();
            move |change| {
                if let ObjectChange::Deleted(node) = change {
                    deleted.lock().push(node.name.to_string());
                }
            }
        });
        let reflector = tokio::spawn(Reflector::new(store.clone(), client, 1).run());
        Self { api, faults, down, requests, metrics, store, deleted, reflector }
    }

    fn create(&self, name: &str) {
        self.api.create("nodes", "", json!({"metadata": {"name": name}})).unwrap();
    }

    fn label(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"l": value}}}));
        self.api.patch("nodes", "", name, &patch).unwrap();
    }

    /// Waits until the store equals the state of the API server. Returns the time that took.
    async fn until_same(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        while !self.store.is_synced() || self.truth() != self.shown() {
            assert!(began.elapsed() < limit, "{:#?} {:#?}", self.truth(), self.shown());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        began.elapsed()
    }

    fn truth(&self) -> BTreeSet<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let meta = |node: serde_json::Value| node["metadata"].clone();
        let nodes = self.api.objects("nodes").unwrap().into_iter().map(meta);
        nodes.map(|meta| (text(&meta["name"]), text(&meta["resourceVersion"]))).collect()
    }

    fn shown(&self) -> BTreeSet<(String, String)> {
        self.store.list().iter().map(|node| (node.name.to_string(), node.resource_version.to_string())).collect()
    }

    /// Breaks the watch and expires the version from which it could continue.
    fn forget(&self) {
        self.down.store(true, Ordering::SeqCst);
        self.faults.drop_watches(None);
        self.create("missed");
        self.api.compact("nodes").unwrap();
        self.down.store(false, Ordering::SeqCst);
    }

    /// Requests since the last call: streaming lists, pages, version checks, watches.
    fn asked(&self) -> [usize; 4] {
        let requests = std::mem::take(&mut *self.requests.lock());
        let count = |part: &str| requests.iter().filter(|request| request.contains(part)).count();
        [count("sendInitialEvents"), count("limit=50"), count("limit=1"), count("watch=true") - count("sendInitial")]
    }

    fn deleted(&self) -> Vec<String> {
        std::mem::take(&mut *self.deleted.lock())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.reflector.abort();
    }
}

fn garble(data: &bytes::Bytes) -> bytes::Bytes {
    let text = String::from_utf8(data.to_vec()).unwrap();
    text.replace(UNREADABLE, "[1]").into()
}

fn on_watch(effect: Effect) -> Fault {
    Fault::new(effect).on(Match::on("watch", "nodes"))
}

fn status(code: u16, retry_after: Option<u64>) -> Effect {
    Effect::Status { code, reason: None, message: None, retry_after }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_fails_is_followed_by_pages_at_once_and_tried_again_later() {
    let served = Options::default;
    let end = |abrupt| on_watch(Effect::EndWatch { after: 100, abrupt });
    for (what, options, fault) in [
        ("old etcd", Options { streaming_lists: StreamingLists::NoProgress, ..served() }, None),
        ("feature off", Options { streaming_lists: StreamingLists::Forbidden, ..served() }, None),
        ("400", served(), Some(on_watch(status(400, None)).times(1))),
        ("500", served(), Some(on_watch(status(500, None)).times(1))),
        ("ended", served(), Some(end(false).times(1))),
        ("cut", served(), Some(end(true).times(1))),
    ] {
        let bench = Bench::with(options, 130, |_, faults| {
            fault.map(|fault| faults.add(fault));
        });
        let took = bench.until_same(MINUTE).await;
        assert!(took < Duration::from_secs(1), "{what}: {took:?}");
        bench.create("late");
        bench.until_same(MINUTE).await;
        assert_eq!(bench.asked(), [1, 3, 0, 1], "{what}");
        bench.forget();
        bench.until_same(MINUTE).await;
        assert_eq!(bench.asked()[0], 1, "{what}");
        assert_eq!(bench.deleted(), [""; 0], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_expire_before_the_last_one_are_followed_by_a_whole_list() {
    let options = Options { streaming_lists: StreamingLists::Forbidden, ..Options::default() };
    // The second of two pages, each time.
    let second = Fault::new(status(410, None)).on(Match::on("list", "nodes")).skip(1).every(2);
    let bench = Bench::with(options, 60, |_, faults| {
        faults.add(second);
    });
    let took = bench.until_same(MINUTE).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(bench.requests.lock().iter().filter(|request| request.contains("limit=0")).count(), 1);
    assert_eq!(bench.deleted(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_without_end_is_followed_by_pages() {
    let bench = Bench::with(Options::default(), 1, |_, faults| faults.freeze_watches(Some("nodes")));
    let took = bench.until_same(10 * MINUTE).await;
    assert!(took < 3 * MINUTE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_or_busy_is_not_asked_for_pages() {
    for fault in [None, Some(status(429, Some(40))), Some(status(429, None)), Some(status(503, Some(40)))] {
        let down = fault.is_none();
        let bench = Bench::with(Options::default(), 1, |_, faults| {
            fault.clone().map(|effect| faults.add(on_watch(effect)));
        });
        bench.down.store(down, Ordering::SeqCst);
        tokio::time::sleep(10 * MINUTE).await;
        let [streaming, pages, looks, watches] = bench.asked();
        assert_eq!((pages, looks, watches), (0, 0, 0), "{fault:?}");
        let most = match () {
            () if down => 300,
            () if format!("{fault:?}").contains("40") => 16,
            () => 60,
        };
        assert!((10..=most).contains(&streaming), "{streaming} {fault:?}");
        bench.faults.clear();
        bench.down.store(false, Ordering::SeqCst);
        let took = bench.until_same(10 * MINUTE).await;
        assert!(took <= MINUTE, "{took:?} {fault:?}");
    }
}

/// Restores etcd to an older version: n1 was deleted and exists again, n2 was changed, `new` was created and is gone.
fn history(bench: &Bench) -> u64 {
    let then = bench.api.version();
    bench.api.delete("nodes", "", "n1").unwrap();
    bench.label("n2", "x");
    bench.create("new");
    then
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_is_believed_within_a_minute() {
    for streaming_lists in [StreamingLists::Served, StreamingLists::NoProgress] {
        for away in [Duration::ZERO, 5 * MINUTE] {
            let bench = Bench::new(Options { streaming_lists, ..Options::default() }, 120);
            bench.until_same(MINUTE).await;
            let then = history(&bench);
            bench.until_same(MINUTE).await;
            assert_eq!(bench.deleted(), ["n1"]);
            bench.down.store(true, Ordering::SeqCst);
            bench.faults.drop_watches(None);
            tokio::time::sleep(away).await;
            bench.api.restore(then);
            // An old version is reused for another node.
            bench.label("n3", "y");
            bench.down.store(false, Ordering::SeqCst);
            let took = bench.until_same(10 * MINUTE).await;
            println!("restored after {away:?}, {streaming_lists:?}: {took:?}");
            assert!(took <= MINUTE, "{took:?}");
            assert_eq!(bench.deleted(), ["new"], "nothing that lives is forgotten");
            bench.create("newer");
            assert!(bench.until_same(MINUTE).await < Duration::from_secs(1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_that_soon_comes_past_the_old_version_is_taken_over_as_it_is() {
    for streaming_lists in [StreamingLists::Served, StreamingLists::NoProgress] {
        let bench = Bench::new(Options { streaming_lists, ..Options::default() }, 5);
        bench.until_same(MINUTE).await;
        let then = history(&bench);
        bench.until_same(MINUTE).await;
        bench.api.restore(then);
        bench.faults.drop_watches(None);
        tokio::time::sleep(Duration::from_secs(10)).await;
        (0..10).for_each(|n| bench.label("n3", &n.to_string()));
        let took = bench.until_same(10 * MINUTE).await;
        assert!(took <= MINUTE, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_restored_under_an_open_watch_is_believed() {
    let bench = Bench::new(Options::default(), 5);
    bench.until_same(MINUTE).await;
    let then = history(&bench);
    bench.until_same(MINUTE).await;
    bench.deleted();
    bench.api.restore(then);
    let took = bench.until_same(10 * MINUTE).await;
    assert!(took <= 4 * MINUTE, "{took:?}");
    assert_eq!(bench.deleted(), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_behind_for_a_while_takes_nothing_back() {
    let behind: [fn(&Faults); 2] = [|faults| faults.stale_reads("nodes"), |faults| faults.lag_cache("nodes")];
    for behind in behind {
        for relist in [false, true] {
            let bench = Bench::new(Options::default(), 60);
            bench.until_same(MINUTE).await;
            behind(&bench.faults);
            history(&bench);
            bench.until_same(MINUTE).await;
            assert_eq!(bench.deleted(), ["n1"]);
            match relist {
                true => bench.forget(),
                false => bench.faults.drop_watches(None),
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
            bench.faults.fresh_reads("nodes");
            bench.create("last");
            bench.until_same(MINUTE).await;
            assert_eq!(bench.deleted(), [""; 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_goes_on_at_once_if_it_brought_news_and_else_after_a_pause() {
    let bench = Bench::new(Options::default(), 1);
    bench.until_same(MINUTE).await;
    let end = |after| Fault::new(Effect::EndWatch { after, abrupt: true }).on(Match::on("watch", "nodes"));
    let fault = bench.faults.add(end(10));
    for n in 100..200 {
        bench.api.create("nodes", "", json!({"metadata": {"name": format!("n{n}")}})).unwrap();
    }
    bench.faults.drop_watches(None);
    // One delay, for the first interruption.
    let took = bench.until_same(MINUTE).await;
    assert!(took < Duration::from_secs(1), "{took:?}");

    bench.faults.remove(fault);
    bench.faults.add(end(0));
    bench.faults.drop_watches(None);
    let before = bench.requests.lock().len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = bench.requests.lock().len() - before;
    assert!((4..20).contains(&asked), "{asked} requests in 10 s");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_followed_by_a_list() {
    let bench = Bench::new(Options::default(), 1);
    bench.until_same(MINUTE).await;
    bench.faults.freeze_watches(Some("nodes"));
    bench.create("late");
    let took = bench.until_same(20 * MINUTE).await;
    assert!(took < 6 * MINUTE, "{took:?}");
    assert!(bench.store.check_current().is_ok(), "the pages were heard");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_every_watch_is_listed_again() {
    let end = |abrupt| Effect::EndWatch { after: 0, abrupt };
    for (what, effect) in [
        ("403", status(403, None)),
        ("500", status(500, None)),
        ("no answer", Effect::LoseRequest),
        ("ended at once", end(false)),
        ("cut at once", end(true)),
        ("an ERROR event, 500", Effect::FailWatch { after: 0, code: 500 }),
        ("an ERROR event, 410", Effect::FailWatch { after: 0, code: 410 }),
    ] {
        // A server that never answered is not asked for pages.
        let starts: &[bool] = if effect == Effect::LoseRequest { &[false] } else { &[false, true] };
        for from_the_start in starts.iter().copied() {
            let fault = || on_watch(effect.clone());
            let bench = Bench::with(Options::default(), 60, |_, faults| {
                from_the_start.then(|| faults.add(fault()));
            });
            bench.until_same(MINUTE).await;
            if !from_the_start {
                bench.faults.add(fault());
                bench.faults.drop_watches(None);
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            bench.create("late");
            let took = bench.until_same(MINUTE).await;
            println!("{what}, {from_the_start}: {took:?}");
            bench.asked();
            tokio::time::sleep(10 * MINUTE).await;
            let [streaming, pages, ..] = bench.asked();
            assert!(streaming <= 25 && pages <= 50, "{what}: {streaming} streaming lists, {pages} pages in 10 minutes");
            bench.faults.clear();
            bench.create("later");
            bench.until_same(MINUTE).await;
            bench.create("last");
            assert!(bench.until_same(MINUTE).await < Duration::from_secs(1), "{what}: it watches again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_followed_by_one_list_and_another_error_event_by_a_watch_from_the_last_version() {
    for (code, asked) in [(410, [1, 0, 1, 1]), (500, [0, 0, 2, 2])] {
        for after in [0, 1] {
            let bench = Bench::new(Options::default(), 60);
            bench.until_same(MINUTE).await;
            bench.create("late");
            bench.until_same(MINUTE).await;
            bench.asked();
            bench.faults.add(on_watch(Effect::FailWatch { after, code }).times(1));
            bench.faults.drop_watches(None);
            bench.label("n2", "x");
            bench.api.delete("nodes", "", "n1").unwrap();
            let took = bench.until_same(MINUTE).await;
            assert!(took < Duration::from_secs(2), "{code}, {after}: {took:?}");
            assert_eq!((bench.asked(), bench.deleted()), (asked, vec!["n1".to_owned()]), "{code}, {after}");
            bench.create("last");
            assert!(bench.until_same(MINUTE).await < Duration::from_secs(1), "{code}, {after}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_ends_idle_watches_delays_no_event() {
    let bench = Bench::new(Options::default(), 60);
    bench.until_same(MINUTE).await;
    bench.asked();
    for number in 0..60 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        bench.faults.drop_watches(None);
        tokio::time::sleep(Duration::from_secs(2)).await;
        if number % 10 == 9 {
            bench.create(&format!("late{number}"));
            let took = bench.until_same(MINUTE).await;
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    }
    let [streaming, pages, ..] = bench.asked();
    assert!(streaming + pages <= 50, "{streaming} streaming lists, {pages} pages in 12 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_never_reached_is_tried_every_few_seconds() {
    let bench = Bench::new(Options::default(), 3);
    bench.down.store(true, Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    let [tried, ..] = bench.asked();
    assert!((15..=35).contains(&tried), "{tried} times");
    bench.down.store(false, Ordering::SeqCst);
    bench.until_same(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_watch_is_put_off_for_ever_is_not_current() {
    let bench = Bench::new(Options::default(), 3);
    bench.until_same(MINUTE).await;
    bench.faults.add(on_watch(status(429, Some(1))));
    bench.faults.drop_watches(None);
    tokio::time::sleep(10 * MINUTE).await;
    assert!(bench.store.check_current().unwrap_err().starts_with("no data about nodes for "));
    bench.faults.clear();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(bench.store.check_current(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_not_gone() {
    for streaming_lists in [StreamingLists::Served, StreamingLists::NoProgress] {
        let bench = Bench::new(Options { streaming_lists, ..Options::default() }, 3);
        bench.until_same(MINUTE).await;
        bench.label("n1", "unreadable");
        tokio::time::sleep(MINUTE).await;
        let version = bench.api.version();
        bench.requests.lock().clear();
        bench.faults.drop_watches(None);
        tokio::time::sleep(MINUTE).await;
        let again = format!("watch=true&resourceVersion={version}&");
        assert!(bench.requests.lock().iter().any(|request| request.contains(&again)), "the version is kept");
        bench.forget();
        tokio::time::sleep(MINUTE).await;
        assert_eq!((bench.store.len(), bench.deleted()), (4, vec![]));
        bench.api.delete("nodes", "", "n1").unwrap();
        bench.until_same(MINUTE).await;
        assert_eq!(bench.deleted(), ["n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_does_not_affect_others() {
    let bench = Bench::with(Options::default(), 3, |store, _| {
        store.on_change(|change| {
            let name = match &change {
                ObjectChange::Added(node) | ObjectChange::Updated(_, node) | ObjectChange::Deleted(node) => &node.name,
            };
            assert!(&**name != "n1", "not this one");
        });
    });
    bench.until_same(MINUTE).await;
    bench.label("n1", "x");
    bench.until_same(MINUTE).await;
    bench.api.delete("nodes", "", "n1").unwrap();
    bench.until_same(MINUTE).await;
    assert_eq!(bench.deleted(), ["n1"], "the next handler");
    assert_eq!(bench.metrics.sample("ccm_panics_total{place=\"nodes\"}"), Some(3.0));
    bench.store.on_change(|_| panic!("at once"));
    assert_eq!(bench.metrics.sample("ccm_panics_total{place=\"nodes\"}"), Some(5.0));
    assert!(!bench.reflector.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_store_is_that_of_the_last_bookmark() {
    let bench = Bench::new(Options::default(), 1);
    let age = || bench.metrics.sample("ccm_store_age_seconds{resource=\"nodes\"}");
    assert_eq!(age(), None);
    bench.until_same(MINUTE).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(13)).await;
        // A watch ends before its fifth bookmark.
        assert!(age().unwrap() <= 115.0, "{:?}", age());
    }
    bench.down.store(true, Ordering::SeqCst);
    bench.faults.drop_watches(None);
    tokio::time::sleep(10 * MINUTE).await;
    assert!(age().unwrap() >= 600.0);
    assert!(bench.store.check_alive().is_ok(), "a restart would not bring the API server back");
    bench.reflector.abort();
    tokio::time::sleep(5 * MINUTE).await;
    assert!(bench.store.check_alive().unwrap_err().starts_with("the watch of nodes is stuck for 3"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_when_it_knows_the_cluster_and_as_long_as_it_hears_of_it() {
    let rig = Rig::new("").await;
    let _leader = rig.start(&["--leader-elect=true"]).await;
    rig.pass(MINUTE).await;
    let manager = rig.start(&["--leader-elect=true"]).await;
    manager.set_cut_off(true);
    let ready = || manager.health(Probe::Readyz, "informer-sync");
    rig.pass(10 * MINUTE).await;
    assert_eq!(ready(), Err("nodes are not listed yet".into()));
    manager.set_cut_off(false);
    rig.until(MINUTE, "ready", async |_| ready().ok()).await;
    rig.pass(20 * MINUTE).await;
    assert_eq!(ready(), Ok(()));
    rig.faults().freeze_watches(Some("services"));
    rig.pass(20 * MINUTE).await;
    assert_eq!(ready(), Ok(()), "what the watch does not show is listed");
    rig.faults().thaw_watches(None);
    manager.set_cut_off(true);
    rig.faults().drop_watches(None);
    rig.pass(2 * MINUTE).await;
    assert_eq!(ready(), Ok(()));
    rig.pass(2 * MINUTE).await;
    assert!(ready().unwrap_err().starts_with("no data about nodes for 2"));
    for probe in [Probe::Healthz, Probe::Livez] {
        assert_eq!(manager.health(probe, "informers"), Ok(()), "a restart would not help");
    }
    manager.set_cut_off(false);
    rig.until(Duration::from_secs(25), "ready again", async |_| ready().ok()).await;
}
