//! Two replicas, a real API server and a cloud, with all kinds of faults.
//!
//! One test, because each fault starts from the state after the previous ones. `CCM_CHAOS_SEED` determines the changes
//! and the faults of the proxy; it is printed with the recovery time of each fault.

mod churn;
mod proxy;
mod replicas;

use std::io::Write as _;
use std::time::{Duration, Instant};

use ccm_test_bed::{AuditEntry, Options, User};
use ccm_test_suite::Rig;
use jiff::{SignedDuration, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::net::TcpListener;

use churn::Churn;
use proxy::{Fault, Proxy, Upstream, relay};
use replicas::Replica;

/// Time to converge after a fault.
const LIMIT: Duration = Duration::from_secs(60);
/// The duration of a lease without renewal.
const LEASE: SignedDuration = SignedDuration::from_secs(15);
const USERS: [&str; 4] = ["over-tls-a", "over-tls-b", "over-http-a", "over-http-b"];

struct Chaos<'a> {
    churn: Churn<'a>,
    replicas: Vec<Replica<'a>>,
    /// The number of restarts at the end of the last fault.
    restarts: usize,
    table: Vec<String>,
}

impl<'a> Chaos<'a> {
    /// Creates and deletes objects for this time.
    async fn churn(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.churn.act().await;
            self.replicas.iter_mut().for_each(Replica::revive);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The parts of the cluster, the cloud and the replicas that have not converged yet.
    async fn unsettled(&self) -> Option<String> {
        if let Some(what) = self.churn.unsettled().await {
            return Some(what);
        }
        let Some(counts) = self.churn.counts().await else { return Some("the API server does not answer".into()) };
        for replica in &self.replicas {
            let (ready, known, address) = (replica.is_ready().await, replica.counts().await, replica.address());
            if !ready || known != Some(counts) {
                return Some(format!("{address}: ready: {ready}, knows of {known:?} and not of {counts:?}"));
            }
        }
        None
    }

    /// Waits for convergence after a fault, and records the time.
    async fn settle(&mut self, fault: &str) {
        let began = Instant::now();
        loop {
            self.replicas.iter_mut().for_each(Replica::revive);
            let Some(what) = self.unsettled().await else { break };
            assert!(
                began.elapsed() < LIMIT,
                "{fault}: after {LIMIT:?}: {what}\n{}\n{}",
                self.table.join("\n"),
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (took, restarts) = (began.elapsed().as_secs_f64(), self.restarts());
        let since = restarts - std::mem::replace(&mut self.restarts, restarts);
        self.table.push(format!("{fault:<50} {took:>6.1} s, {since} restarts of a replica"));
    }

    fn restarts(&self) -> usize {
        self.replicas.iter().map(|replica| replica.restarts).sum()
    }

    fn logs(&self) -> String {
        let tail = |text: String| text.lines().rev().take(15).map(str::to_owned).collect::<Vec<_>>();
        let logs =
            self.replicas.iter().map(|replica| tail(replica.process.output()).into_iter().rev().collect::<Vec<_>>());
        logs.map(|lines| lines.join("\n")).collect::<Vec<_>>().join("\n--\n")
    }

    async fn leader(&self) -> usize {
        for (number, replica) in self.replicas.iter().enumerate() {
            if replica.leads().await {
                return number;
            }
        }
        panic!("none leads")
    }

    /// Stops all replicas one by one.
    async fn end(&mut self) {
        for mut replica in self.replicas.drain(..) {
            replica.process.terminate();
            replica.process.ended(LIMIT).await;
        }
        self.restarts = 0;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_all_is_well_within_a_minute_and_nothing_that_lives_is_deleted() {
    let seed = std::env::var("CCM_CHAOS_SEED").map_or(20, |seed| seed.parse().expect("CCM_CHAOS_SEED is a number"));
    let users = USERS.map(|name| User { token: name.into(), name: name.into(), groups: vec!["system:masters".into()] });
    let options = users.into_iter().fold(Options::default().audit(), Options::user);
    let Some(rig) = Rig::real_alone(options, "fake", "zone: {failureDomain: z, region: r}").await else { return };
    let bed = rig.bed();
    ccm::install_tls();
    let upstream = Upstream::new(bed.address());
    let mut rng = StdRng::seed_from_u64(seed);
    let proxy = Proxy::start(upstream.clone(), &bed.ca_pem, seed).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let over_tls = json!({"server": format!("https://{}", listener.local_addr().unwrap())});
    tokio::spawn(relay(listener, upstream.clone()));
    let churn = Churn::new(&rig, StdRng::from_rng(&mut rng));
    let mut chaos = Chaos { churn, replicas: Vec::new(), restarts: 0, table: vec![format!("seed {seed}")] };
    for name in [USERS[0], USERS[1]] {
        chaos.replicas.push(Replica::start(&rig, name, over_tls.clone(), None).await);
    }
    chaos.churn(Duration::from_secs(5)).await;
    chaos.settle("no fault").await;
    servers(&mut chaos, &upstream, &rig).await;
    frozen_leader(&mut chaos).await;
    chaos.end().await;

    for name in [USERS[2], USERS[3]] {
        let cluster = json!({"server": format!("http://{}/{name}", proxy.address)});
        chaos.replicas.push(Replica::start(&rig, name, cluster, None).await);
    }
    chaos.settle("two other replicas").await;
    for (fault, what) in [
        (Fault::CutWatches, "watches cut in the middle of a line"),
        (Fault::Lossy, "requests dropped, delayed, answered in part"),
        (Fault::Refusing, "answers are HTML, 429, 5xx"),
    ] {
        proxy.set(fault);
        chaos.churn(Duration::from_secs(15)).await;
        proxy.set(Fault::None);
        chaos.settle(what).await;
    }
    chaos.end().await;
    dead_address(&mut chaos, &upstream, &rig).await;

    writes_of_leaders_only(bed.audit().read().unwrap());
    // Not println!: the harness shows its output only for failed tests.
    let _ = std::io::stderr().write_all(format!("\nchaos: {}\n", chaos.table.join("\n  ")).as_bytes());
}

/// The API server and etcd fail.
async fn servers(chaos: &mut Chaos<'_>, upstream: &Upstream, rig: &Rig) {
    let bed = rig.bed();
    chaos.churn(Duration::from_secs(1)).await;
    bed.stop_apiserver().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    bed.start_apiserver().await.unwrap();
    chaos.churn(Duration::from_secs(1)).await;
    chaos.settle("kube-apiserver killed, 5 s later started").await;

    chaos.churn(Duration::from_secs(1)).await;
    bed.pause_apiserver().await.unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(40) {
        chaos.replicas.iter_mut().for_each(Replica::revive);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bed.resume_apiserver().await.unwrap();
    chaos.churn(Duration::from_secs(1)).await;
    chaos.settle("kube-apiserver stopped for 40 s").await;

    chaos.churn(Duration::from_secs(1)).await;
    bed.replace_apiserver().await.unwrap();
    upstream.set(bed.address());
    chaos.churn(Duration::from_secs(1)).await;
    chaos.settle("kube-apiserver replaced at another address").await;

    chaos.churn.back_up().await;
    chaos.settle("etcd and kube-apiserver restarted").await;
    chaos.churn(Duration::from_secs(5)).await;
    chaos.settle("churn").await;
    chaos.churn.restore().await;
    chaos.churn(Duration::from_secs(1)).await;
    chaos.settle("etcd restored from an older snapshot").await;
}

/// The leader is suspended for longer than its lease lasts.
async fn frozen_leader(chaos: &mut Chaos<'_>) {
    let leader = chaos.leader().await;
    chaos.churn(Duration::from_secs(1)).await;
    chaos.replicas[leader].process.signal("STOP");
    chaos.churn(Duration::from_secs(20)).await;
    chaos.replicas[leader].process.signal("CONT");
    chaos.churn(Duration::from_secs(1)).await;
    chaos.settle("the leader stopped for 20 s").await;
    assert_ne!(chaos.leader().await, leader, "another one leads since");
}

/// The first address of the API server's name accepts connections and sends nothing.
async fn dead_address<'a>(chaos: &mut Chaos<'a>, upstream: &Upstream, rig: &'a Rig) {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = dead.local_addr().unwrap().port();
    tokio::spawn(relay(TcpListener::bind(("127.0.0.2", port)).await.unwrap(), upstream.clone()));
    let hosts = rig.cloud.path("hosts");
    std::fs::write(&hosts, "127.0.0.1 api.chaos\n127.0.0.2 api.chaos\n").unwrap();
    let cluster = json!({"server": format!("https://api.chaos:{port}"), "tls-server-name": "127.0.0.1"});
    chaos.replicas.push(Replica::start(rig, USERS[0], cluster, Some(hosts)).await);
    chaos.churn(Duration::from_secs(20)).await;
    chaos.settle("the first address of the name is dead").await;
    assert_eq!(chaos.restarts(), 0, "it ended meanwhile: {}", chaos.logs());
    let tried = tokio::time::timeout(Duration::from_secs(1), dead.accept()).await;
    assert!(tried.is_ok(), "nobody tried the dead address");
    chaos.end().await;
}

/// Each write of a node or a Service is by the user that wrote the lease last, and not long after.
fn writes_of_leaders_only(mut entries: Vec<AuditEntry>) {
    entries.retain(|entry| USERS.contains(&&*entry.user) && entry.is_write());
    entries.sort_by(|one, other| one.received.cmp(&other.received));
    let (mut lease, mut checked): (Option<&AuditEntry>, usize) = (None, 0);
    for entry in &entries {
        if entry.is_about("leases") && (200..300).contains(&entry.code) {
            lease = Some(entry);
        }
        if !matches!(&*entry.resource, "nodes" | "services") || !(200..300).contains(&entry.code) {
            continue;
        }
        let lease = lease.unwrap_or_else(|| panic!("a write before anybody led: {entry}"));
        assert_eq!(lease.user, entry.user, "not the leader:\n{entry}\nlast of the lease:\n{lease}");
        let time = |entry: &AuditEntry| entry.received.parse::<Timestamp>().unwrap();
        let late = time(entry).duration_since(time(lease));
        assert!(late < LEASE, "{late:?} after the lease was renewed: {entry}");
        checked += 1;
    }
    assert!(checked > 100, "only {checked} writes were seen");
}
