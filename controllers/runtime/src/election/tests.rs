mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use ccm_provider::{EventSink, EventType, Subject};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::server::{Net, Server, seeded};
use super::lease::Leases;
use super::{Election, ElectionConfig, Ended, identity};
use crate::client::ApiError;
use crate::clock::SimulatedClock;
use crate::leader::{Leadership, State};
use crate::metrics::Metrics;

fn config(identity: &str) -> ElectionConfig {
    ElectionConfig {
        namespace: "kube-system".into(),
        name: "ccm".into(),
        identity: identity.into(),
        lease_duration: s(15),
        renew_deadline: s(10),
        retry_period: s(2),
    }
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

type Events = Arc<Mutex<Vec<(Subject, String)>>>;

struct Sink {
    emitted: Events,
    check: Box<dyn Fn(&str) + Send + Sync>,
}

impl EventSink for Sink {
    fn event(&self, subject: &Subject, kind: EventType, reason: &str, message: &str) {
        assert_eq!((kind, reason), (EventType::Normal, "LeaderElection"));
        self.emitted.lock().push((subject.clone(), message.to_owned()));
        (self.check)(message);
    }
}

/// One candidate.
struct Process {
    net: Arc<Net>,
    clock: Arc<SimulatedClock>,
    leadership: Leadership,
    metrics: Metrics,
    release: CancellationToken,
    emitted: Events,
    running: JoinHandle<Ended>,
}

impl Process {
    fn start(server: &Arc<Server>, name: &str) -> Self {
        Self::start_with(server, config(name), Arc::default(), 1, |_| {})
    }

    fn start_with(
        server: &Arc<Server>,
        config: ElectionConfig,
        net: Arc<Net>,
        seed: u64,
        check: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        config.validate().unwrap();
        let clock = Arc::new(SimulatedClock::new(SystemTime::UNIX_EPOCH + s(1_767_323_045)));
        let leadership = Leadership::new(clock.clone());
        let (metrics, release, emitted) = (Metrics::new(), CancellationToken::new(), Events::default());
        let election = Election {
            config,
            client: server.client(&net, metrics.clone()),
            leadership: leadership.clone(),
            events: Arc::new(Sink { emitted: emitted.clone(), check: Box::new(check) }),
            clock: clock.clone(),
            metrics: metrics.clone(),
            release: release.clone(),
            seed,
            lost_message: "leaderelection lost",
        };
        Self { net, clock, leadership, metrics, release, emitted, running: tokio::spawn(election.run()) }
    }

    fn leads(&self) -> bool {
        self.leadership.may_write()
    }

    fn cut(&self, cut: bool) {
        self.net.cut.store(cut, Ordering::Relaxed);
    }

    fn emitted(&self) -> Vec<String> {
        self.emitted.lock().iter().map(|(_, message)| message.clone()).collect()
    }
}

/// Waits for a condition; returns how long it took.
async fn until(limit: Duration, fact: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !fact() {
        assert!(began.elapsed() <= limit, "not so within {limit:?}");
        sleep(ms(10)).await;
    }
    began.elapsed()
}

/// A server, and a process that leads there.
async fn leader() -> (Arc<Server>, Process) {
    let server = Arc::new(Server::default());
    let a = Process::start(&server, "a");
    until(ms(100), || a.leads()).await;
    (server, a)
}

fn held_by(server: &Server, holder: &str, seconds: u64) {
    server.change(|lease| {
        lease["spec"] = json!({
            "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3,
            "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": "2001-01-01T00:00:00.000000Z",
        });
    });
}

fn renew(server: &Server, n: u64) {
    server.change(|lease| lease["spec"]["renewTime"] = json!(format!("2001-01-01T00:00:00.{n:06}Z")));
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_created() {
    let (server, a) = leader().await;
    assert_eq!(
        server.lease()["spec"],
        json!({
            "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-02T03:04:05.000000Z", "renewTime": "2026-01-02T03:04:05.000000Z",
        })
    );
    assert_eq!(a.emitted(), ["a became leader"]);
    let (subject, _) = a.emitted.lock()[0].clone();
    assert_eq!((subject.kind, subject.api_version), ("Lease", "coordination.k8s.io/v1"));
    assert_eq!((&*subject.namespace, &*subject.name, &*subject.uid), ("kube-system", "ccm", "uid-1"));
    assert_eq!(a.metrics.sample("leader_election_master_status{name=\"ccm\"}"), Some(1.0));
    assert_eq!(a.metrics.sample("ccm_leader{lease=\"kube-system/ccm\"}"), Some(1.0));
    sleep(ms(2_050)).await;
    assert_eq!(server.lease()["spec"]["renewTime"], "2026-01-02T03:04:07.000000Z");
    assert_eq!(server.lease()["spec"]["acquireTime"], "2026-01-02T03:04:05.000000Z");
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_at_once_and_keeps_fields_that_we_do_not_know() {
    let server = Arc::new(Server::default());
    held_by(&server, "", 1);
    server.change(|lease| {
        lease["metadata"]["labels"] = json!({"team": "x"});
        lease["spec"]["strategy"] = json!("OldestEmulationVersion");
    });
    let a = Process::start(&server, "a");
    until(ms(100), || a.leads()).await;
    let lease = server.lease();
    assert_eq!(lease["metadata"]["labels"]["team"], "x");
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(lease["spec"]["leaseTransitions"], 4);
    assert_eq!(lease["spec"]["acquireTime"], "2026-01-02T03:04:05.000000Z");
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_spec_is_taken() {
    let server = Arc::new(Server::default());
    server.change(|lease| lease["spec"] = json!(null));
    let a = Process::start(&server, "a");
    until(ms(100), || a.leads()).await;
    assert_eq!(server.holder(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_lease_is_waited_for_as_long_as_it_says_however_old_it_looks() {
    for seconds in [4, 40] {
        let server = Arc::new(Server::default());
        held_by(&server, "other", seconds);
        let a = Process::start(&server, "a");
        sleep(s(seconds) - ms(1)).await;
        assert!(!a.leads());
        assert_eq!(server.holder(), "other");
        // At the moment of its expiry, not at the next poll.
        until(ms(50), || a.leads()).await;
        assert_eq!(server.lease()["spec"]["leaseTransitions"], 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_never_taken() {
    for no_watch in [false, true] {
        let server = Arc::new(Server::default());
        held_by(&server, "other", 10);
        let net = Net { no_watch: no_watch.into(), ..Net::default() };
        let a = Process::start_with(&server, config("a"), Arc::new(net), 1, |_| {});
        for n in 1..200 {
            sleep(ms(5_400)).await;
            assert!(!a.leads());
            renew(&server, n);
        }
        assert_eq!(server.holder(), "other");
        until(s(15), || a.leads()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_wall_clock_does_not_make_renewals_invisible() {
    let server = Arc::new(Server::default());
    let a = Process::start(&server, "a");
    let b = Process::start(&server, "b");
    until(ms(100), || a.leads() || b.leads()).await;
    let (leader, other) = if a.leads() { (&a, &b) } else { (&b, &a) };
    for _ in 0..40 {
        sleep(s(1)).await;
        leader.clock.jump(-1);
        assert!(leader.leads());
        assert!(!other.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_renew_deadline_keeps_the_lease() {
    let (server, a) = leader().await;
    for _ in 0..10 {
        a.net.status.store(503, Ordering::Relaxed);
        sleep(ms(7_900)).await;
        assert!(a.leads());
        a.net.status.store(0, Ordering::Relaxed);
        sleep(s(8)).await;
        assert!(a.leads());
        // A request that gets no answer takes half of the deadline.
        a.cut(true);
        sleep(ms(4_900)).await;
        assert!(a.leads());
        a.cut(false);
        sleep(s(8)).await;
        assert!(a.leads());
    }
    assert!(!a.running.is_finished());
    assert_eq!(a.emitted(), ["a became leader"]);
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_longer_outage_loses_the_lease_before_another_takes_it() {
    let (server, a) = leader().await;
    let b = Process::start(&server, "b");
    sleep(s(20)).await;
    a.cut(true);
    let cut = Instant::now();
    until(s(15), || !a.leads()).await;
    assert!(!b.leads());
    assert!(cut.elapsed() > s(9), "{:?}", cut.elapsed());
    assert_eq!(timeout(s(1), a.running).await.unwrap().unwrap(), Ended::Lost);
    assert_eq!(a.leadership.state(), State::Lost);
    assert_eq!(*a.emitted.lock().last().unwrap().1, *"a stopped leading");
    assert_eq!(a.metrics.sample("leader_election_master_status{name=\"ccm\"}"), Some(0.0));
    assert_eq!(a.metrics.sample("ccm_leader{lease=\"kube-system/ccm\"}"), Some(0.0));
    until(s(20), || b.leads()).await;
    assert!(cut.elapsed() <= s(17) + ms(400), "{:?}", cut.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_process_writes_after_its_lease_even_if_the_renew_deadline_is_later() {
    let server = Arc::new(Server::default());
    // The deadline begins with the first failing renewal, so it ends after the lease here.
    let times = ElectionConfig { renew_deadline: ms(14_900), ..config("a") };
    let a = Process::start_with(&server, times, Arc::default(), 1, |_| {});
    until(ms(100), || a.leads()).await;
    sleep(ms(100)).await;
    a.cut(true);
    sleep(s(15) - ms(250)).await;
    assert_ne!(a.leadership.state(), State::Lost);
    sleep(ms(150)).await;
    assert_eq!(a.leadership.state(), State::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_before_the_request_was_sent() {
    let server = Arc::new(Server::default());
    held_by(&server, "", 1);
    let net = Arc::new(Net { slow: 3_000.into(), ..Net::default() });
    let times = ElectionConfig { renew_deadline: ms(14_900), ..config("a") };
    let a = Process::start_with(&server, times, net, 1, |_| {});
    // Until the write is in flight: others may see it from now on.
    until(ms(3_050), || server.holder() == "a").await;
    let seen = Instant::now();
    until(ms(3_050), || a.leads()).await;
    a.cut(true);
    until(s(15), || !a.leads()).await;
    assert!(seen.elapsed() <= s(15), "{:?}", seen.elapsed());
    assert!(seen.elapsed() > ms(14_900), "{:?}", seen.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_while_renewing_reads_again() {
    let (server, a) = leader().await;
    server.change(|lease| lease["metadata"]["annotations"] = json!({"note": "by hand"}));
    sleep(s(7)).await;
    assert!(a.leads());
    assert_eq!(a.metrics.sample("leader_election_slowpath_total{name=\"ccm\"}"), Some(1.0));
    assert_eq!(server.lease()["metadata"]["annotations"]["note"], "by hand");
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_sees_another_one_stops_at_once() {
    let (server, a) = leader().await;
    held_by(&server, "other", 15);
    assert_eq!(timeout(ms(2_100), a.running).await.unwrap().unwrap(), Ended::Lost);
    assert_eq!(server.holder(), "other");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_emptied_by_hand_is_held_again() {
    let (server, a) = leader().await;
    server.delete();
    sleep(ms(2_100)).await;
    assert_eq!((server.holder(), a.leads()), ("a".into(), true));
    server.change(|lease| lease["spec"]["holderIdentity"] = json!(""));
    sleep(ms(2_100)).await;
    assert_eq!((server.holder(), a.leads()), ("a".into(), true));
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 1);
    // But not if another process has led in between.
    held_by(&server, "", 1);
    sleep(ms(2_100)).await;
    assert_eq!(a.running.await.unwrap(), Ended::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_a_deleted_lease_only_when_no_process_leads() {
    let server = Arc::new(Server::default());
    held_by(&server, "gone", 3600);
    let b = Process::start(&server, "b");
    sleep(s(60)).await;
    assert!(!b.leads());
    server.delete();
    until(ms(500), || b.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_empty_and_short() {
    let (server, a) = leader().await;
    sleep(s(60)).await;
    a.release.cancel();
    assert_eq!(a.running.await.unwrap(), Ended::Released);
    let spec = server.lease()["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!(spec["leaseTransitions"], 0);
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert!(spec["renewTime"].as_str().unwrap().starts_with("2026-01-02T03:05:05."), "{spec}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_a_released_lease_is_found_by_polling() {
    let (server, a) = leader().await;
    let net = Arc::new(Net { no_watch: true.into(), ..Net::default() });
    let b = Process::start_with(&server, config("b"), net, 2, |_| {});
    sleep(s(60)).await;
    a.release.cancel();
    until(ms(4_450), || b.leads()).await;
    let watches = b.net.requests().iter().filter(|request| request.starts_with("WATCH")).count();
    assert_eq!(watches, 1, "a watch that is forbidden is not asked for again and again");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_meets_a_conflict_is_repeated() {
    let (server, a) = leader().await;
    server.change(|lease| lease["metadata"]["labels"] = json!({"x": "y"}));
    a.release.cancel();
    assert_eq!(a.running.await.unwrap(), Ended::Released);
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_api_server_ends_in_time() {
    let (_server, a) = leader().await;
    a.cut(true);
    a.release.cancel();
    assert_eq!(timeout(ms(5_100), a.running).await.unwrap().unwrap(), Ended::Released);
    assert!(!a.leadership.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_shut_down_touches_nothing() {
    let server = Arc::new(Server::default());
    held_by(&server, "other", 15);
    let before = server.lease();
    let a = Process::start(&server, "a");
    sleep(s(5)).await;
    a.leadership.drain();
    assert_eq!(timeout(ms(10), a.running).await.unwrap().unwrap(), Ended::NeverLed);
    assert_eq!(server.lease(), before);
    let b = Process::start(&server, "b");
    sleep(s(5)).await;
    b.release.cancel();
    let emitted = b.emitted();
    assert_eq!(timeout(ms(10), b.running).await.unwrap().unwrap(), Ended::NeverLed);
    assert_eq!(server.lease(), before);
    assert!(emitted.is_empty());
}

#[test]
fn each_process_is_another_candidate() {
    let (first, second) = (identity("host"), identity("host"));
    assert_ne!(first, second);
    let uuid = first.strip_prefix("host_").unwrap();
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert_eq!(&uuid[14..15], "4");
    assert!(["8", "9", "a", "b"].contains(&&uuid[19..20]), "{uuid}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_refused_goes_on_until_it_is_allowed() {
    let server = Arc::new(Server::default());
    let net = Arc::new(Net { status: 403.into(), ..Net::default() });
    let a = Process::start_with(&server, config("a"), net, 1, |_| {});
    sleep(s(300)).await;
    let asked = a.net.requests().len();
    assert!((68..=150).contains(&asked), "{asked} requests in 300 s");
    a.net.status.store(0, Ordering::Relaxed);
    until(ms(4_450), || a.leads()).await;
}

#[tokio::test]
async fn a_refusal_names_the_lease_and_the_missing_right() {
    let client = crate::Client::over(kube::Client::new(tower::service_fn(never), "default"), Metrics::new());
    let leases = Leases::new(&client, &config("a"));
    let status = |code, message: &str| ApiError::Status {
        code,
        reason: String::new(),
        message: message.into(),
        retry_after: None,
    };
    assert_eq!(
        leases.explain("update", &status(403, "leases \"ccm\" is forbidden")),
        "cannot update lease kube-system/ccm: leases \"ccm\" is forbidden (the role of this program needs the verbs get, \
         create and update on leases of the group coordination.k8s.io in namespace kube-system; update is missing)"
    );
    let text = leases.explain("create", &status(404, "namespaces \"kube-system\" not found"));
    assert!(text.contains("is there a namespace kube-system"), "{text}");
}

async fn never(_: http::Request<kube::client::Body>) -> Result<http::Response<kube::client::Body>, std::io::Error> {
    std::future::pending().await
}

#[test]
fn times_that_contradict_each_other_are_refused_in_the_words_of_upstream() {
    config("a").validate().unwrap();
    let wrong = |change: fn(&mut ElectionConfig)| {
        let mut config = config("a");
        change(&mut config);
        config.validate().unwrap_err()
    };
    assert_eq!(wrong(|c| c.lease_duration = s(10)), ["leaseDuration must be greater than renewDeadline"]);
    assert_eq!(wrong(|c| c.retry_period = ms(8_334)), ["renewDeadline must be greater than retryPeriod*JitterFactor"]);
    assert_eq!(wrong(|c| c.retry_period = s(0)), ["retryPeriod must be greater than zero"]);
    assert_eq!(wrong(|c| c.identity.clear()), ["Lock identity is empty"]);
    let zero = wrong(|c| (c.lease_duration, c.renew_deadline) = (s(0), s(0)));
    assert!(zero.contains(&"leaseDuration must be greater than zero".to_owned()), "{zero:?}");
    assert!(zero.contains(&"renewDeadline must be greater than zero".to_owned()), "{zero:?}");
}

/// The leaderships of all candidates, the ones that have ended included.
type Everyone = Arc<Mutex<Vec<(String, Leadership)>>>;

fn assert_one_leader(everyone: &Everyone, seed: u64) {
    let leading: Vec<String> =
        everyone.lock().iter().filter(|(_, l)| l.may_write()).map(|(name, _)| name.clone()).collect();
    assert!(leading.len() <= 1, "seed {seed}: {leading:?} lead at the same time");
}

/// A host whose process is restarted whenever it has ended.
async fn host(server: Arc<Server>, name: &'static str, seed: u64, everyone: Everyone, terms: Arc<Mutex<u32>>) {
    let mut rng = seeded(seed);
    for life in 0.. {
        let net = Arc::new(Net { chaos: Mutex::new(Some(seeded(rng.random()))), ..Net::default() });
        net.no_watch.store(rng.random(), Ordering::Relaxed);
        let (others, counted) = (everyone.clone(), terms.clone());
        let check = move |message: &str| {
            if message.ends_with("became leader") {
                *counted.lock() += 1;
                assert_one_leader(&others, seed);
            }
        };
        let identity = format!("{name}_{life}");
        // With the long deadline, only the expiry of the lease ends a term.
        let renew_deadline = if rng.random() { s(10) } else { ms(14_900) };
        let config = ElectionConfig { renew_deadline, ..config(&identity) };
        let process = Process::start_with(&server, config, net, rng.random(), check);
        everyone.lock().push((identity, process.leadership.clone()));
        let mut running = process.running;
        loop {
            tokio::select! {
                ended = &mut running => {
                    ended.unwrap();
                    break;
                }
                () = sleep(ms(rng.random_range(1..20_000))) => match rng.random_range(0..10) {
                    0 => process.net.cut.store(rng.random(), Ordering::Relaxed),
                    1 => {
                        process.leadership.drain();
                        process.release.cancel();
                    }
                    // Killed: requests in flight still arrive, the lease is not released, nothing more is written.
                    2 => {
                        running.abort();
                        process.leadership.lose();
                        break;
                    }
                    _ => process.clock.jump(rng.random_range(-7200..7200)),
                },
            }
        }
    }
}

#[test]
fn two_candidates_never_lead_at_the_same_time_whatever_fails() {
    let mut all_terms = 0;
    for seed in 0..1000 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        all_terms += runtime.block_on(async {
            let (server, everyone, terms) = (Arc::new(Server::default()), Everyone::default(), Arc::default());
            let first = host(server.clone(), "a", 2 * seed, everyone.clone(), Arc::clone(&terms));
            let second = host(server.clone(), "b", 2 * seed + 1, everyone.clone(), Arc::clone(&terms));
            let watch = async {
                for _ in 0..360 {
                    sleep(ms(250)).await;
                    assert_one_leader(&everyone, seed);
                }
            };
            tokio::select! {
                () = first => {}
                () = second => {}
                () = watch => {}
            }
            *terms.lock()
        });
    }
    // Otherwise the checks above prove nothing.
    assert!(all_terms > 2000, "{all_terms} terms");
}
