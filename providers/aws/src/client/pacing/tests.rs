use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ccm_provider::metric::Registry;

use super::*;

const READ: Operation = Operation::new(Service::Elb, "DescribeLoadBalancers");
const WRITE: Operation = Operation::new(Service::ElbV2, "RegisterTargets");
const ONCE: Operation = Operation::new(Service::ElbV2, "CreateTargetGroup");

fn pacing() -> Pacing {
    Pacing::seeded(Metrics::unexported(), 7)
}

/// A cloud that throttles while it is told to, takes 50 ms for an answer, and counts.
#[derive(Default)]
struct Cloud {
    throttling: AtomicBool,
    sent: AtomicUsize,
    served: AtomicUsize,
}

impl Cloud {
    async fn call(&self, operation: Operation) -> Answer<()> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
        if self.throttling.load(Ordering::Relaxed) {
            return Err(ApiError::refused(operation, "Throttling", "Rate exceeded"));
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Fails with each of these in turn, then succeeds.
async fn after(failures: &[ErrorKind], operation: Operation) -> (Answer<()>, usize) {
    let (pacing, sent) = (pacing(), AtomicUsize::new(0));
    let answer = pacing
        .run(operation, || {
            let nth = sent.fetch_add(1, Ordering::Relaxed);
            let kind = failures.get(nth).copied();
            async move { kind.map_or(Ok(()), |kind| Err(ApiError::of_kind(operation, kind, "x"))) }
        })
        .await;
    (answer, sent.into_inner())
}

#[tokio::test(start_paused = true)]
async fn reads_and_safe_writes_are_sent_three_times_at_most() {
    use ErrorKind::NoAnswer;
    for operation in [READ, WRITE] {
        assert_eq!(after(&[NoAnswer, NoAnswer], operation).await, (Ok(()), 3));
        let (answer, sent) = after(&[NoAnswer; 9], operation).await;
        assert_eq!((answer.map_err(|error| error.kind), sent), (Err(NoAnswer), 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_creation_is_reported_at_once() {
    let (answer, sent) = after(&[ErrorKind::NoAnswer], ONCE).await;
    assert_eq!((answer.map_err(|error| error.kind), sent), (Err(ErrorKind::NoAnswer), 1));
}

#[tokio::test(start_paused = true)]
async fn what_did_not_take_place_is_sent_again_whatever_it_is() {
    let throttled = ErrorKind::Throttled { after: None };
    assert_eq!(after(&[ErrorKind::NotSent, throttled], ONCE).await, (Ok(()), 3));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final() {
    for kind in [ErrorKind::Refused, ErrorKind::Credentials, ErrorKind::Incomplete, ErrorKind::Malformed] {
        assert_eq!(after(&[kind], READ).await.1, 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let start = Instant::now();
    let desired = ErrorKind::Throttled { after: Some(Duration::from_secs(17)) };
    assert_eq!(after(&[desired], READ).await, (Ok(()), 2));
    assert!(start.elapsed() >= Duration::from_secs(17), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_operation_ends_at_its_deadline_and_says_when_the_family_goes_on() {
    let start = Instant::now();
    let desired = ErrorKind::Throttled { after: Some(Duration::from_secs(200)) };
    let (answer, sent) = after(&[desired], READ).await;
    let error = answer.unwrap_err();
    assert_eq!(sent, 1);
    assert_eq!(start.elapsed(), DEADLINE);
    assert_eq!(error.kind, ErrorKind::Throttled { after: Some(Duration::from_secs(200) - DEADLINE) });
}

/// Four callers a second, each of which tries again a second after an error, as queues do; every operation is a call.
fn load(pacing: &Arc<Pacing>, cloud: &Arc<Cloud>, seconds: u32) -> Vec<tokio::task::JoinHandle<()>> {
    let caller = |nth: u32| {
        let (pacing, cloud) = (pacing.clone(), cloud.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(250) * nth).await;
            while pacing.run(READ, || cloud.call(READ)).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
    };
    (0..seconds * 4).map(caller).collect()
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_throttling_costs_a_tenth_of_the_calls_and_ends_within_five_seconds() {
    let (pacing, cloud) = (Arc::new(pacing()), Arc::new(Cloud::default()));
    let callers = load(&pacing, &cloud, 120);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = cloud.sent();
    cloud.throttling.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let during = cloud.sent() - before;
    cloud.throttling.store(false, Ordering::Relaxed);
    assert!(before >= 235, "{before}");
    assert!(during * 10 <= before, "{during} calls under throttling, {before} before");
    eprintln!("calls in a minute: {before} before, {during} under throttling");

    let served = cloud.served.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(cloud.served.load(Ordering::Relaxed) > served, "nothing goes 5 s after the end");
    // Who waits longest tries again a second after its last error.
    let end = Instant::now();
    for caller in callers {
        caller.await.unwrap();
    }
    eprintln!("all served {:?} later", end.elapsed());
    assert_eq!(cloud.served.load(Ordering::Relaxed), 480, "each caller once");
}

#[tokio::test(start_paused = true)]
async fn one_probe_goes_first_and_the_others_after_it() {
    let (pacing, cloud) = (Arc::new(pacing()), Arc::new(Cloud::default()));
    cloud.throttling.store(true, Ordering::Relaxed);
    let callers = load(&pacing, &cloud, 5);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let sent = cloud.sent();
    cloud.throttling.store(false, Ordering::Relaxed);
    let mut in_a_row = 0;
    while cloud.sent() == sent {
        tokio::time::sleep(Duration::from_millis(10)).await;
        in_a_row += 1;
    }
    assert!(in_a_row <= 450, "a probe goes within the longest pause");
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(cloud.sent(), sent + 1, "alone until it has its answer");
    for caller in callers {
        caller.await.unwrap();
    }
}

/// Pitfall: Elastic Load Balancing throttles ten times in a row; EC2 must not feel it.
#[tokio::test(start_paused = true)]
async fn throttling_of_one_family_delays_no_other() {
    let registry = Registry::new();
    let (pacing, cloud) = (Arc::new(Pacing::seeded(Metrics::new(&registry), 7)), Arc::new(Cloud::default()));
    cloud.throttling.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let mut throttled = 0;
    while throttled < 10 {
        assert!(pacing.run(READ, || cloud.call(READ)).await.is_err());
        throttled = cloud.sent();
    }
    assert!(start.elapsed() > Duration::from_secs(15), "balancer calls are delayed: {:?}", start.elapsed());
    let start = Instant::now();
    for name in ["DescribeInstances", "CreateTags"] {
        pacing.run(Operation::new(Service::Ec2, name), || async { Ok(()) }).await.unwrap();
    }
    pacing.run(WRITE, || async { Ok(()) }).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    for (name, label, value) in [
        ("cloudprovider_aws_api_throttled_requests_total", ("operation_name", "DescribeLoadBalancers"), 10.0),
        ("ccm_aws_api_backing_off", ("family", "elb-read"), 1.0),
        ("ccm_aws_api_backing_off", ("family", "ec2-read"), 0.0),
    ] {
        assert_eq!(registry.value(name, &[label]), Some(value), "{name} {label:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_balancers_share_a_budget() {
    let other = Operation::new(Service::ElbV2, "DescribeTargetHealth");
    assert_eq!(Family::of(READ), Family::of(other));
    assert_ne!(Family::of(READ), Family::of(WRITE));
}

#[tokio::test(start_paused = true)]
async fn calls_go_at_the_pace_of_the_family_after_a_burst() {
    let (pacing, start) = (Arc::new(pacing()), Instant::now());
    let call = |_| {
        let pacing = pacing.clone();
        tokio::spawn(async move { pacing.run(READ, || async { Ok(()) }).await })
    };
    let calls: Vec<_> = (0..60).map(call).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let wanted = Duration::from_secs(2);
    assert!(
        start.elapsed() >= wanted && start.elapsed() < wanted + Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_are_under_way_at_once() {
    let (pacing, now, most) = (Arc::new(pacing()), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let call = |_| {
        let (pacing, now, most) = (pacing.clone(), now.clone(), most.clone());
        tokio::spawn(async move {
            let send = || async {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            };
            pacing.run(READ, send).await
        })
    };
    let calls: Vec<_> = (0..30).map(call).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::Relaxed), Family::ElbRead.pace().at_once);
}

#[tokio::test(start_paused = true)]
async fn users_go_before_refreshing_but_not_for_ever() {
    let pacing = Arc::new(pacing());
    for _ in 0..40 {
        pacing.run(READ, || async { Ok(()) }).await.unwrap();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |name: &'static str| {
        let (pacing, order) = (pacing.clone(), order.clone());
        async move {
            let send = || async {
                order.lock().unwrap().push(name);
                Ok(())
            };
            pacing.run(READ, send).await
        }
    };
    let refresh = tokio::spawn(refreshing(call("refresh")));
    tokio::task::yield_now().await;
    let users: Vec<_> = (0..200).map(|_| tokio::spawn(call("user"))).collect();
    refresh.await.unwrap().unwrap();
    let before = order.lock().unwrap().iter().filter(|name| **name == "user").count();
    assert!((95..=105).contains(&before), "10 s of users at 10 a second go first: {before}");
    for user in users {
        user.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_leaves_no_trace() {
    let (pacing, cloud) = (Arc::new(pacing()), Arc::new(Cloud::default()));
    let hold = || cloud.call(READ);
    // Dropped under way, as many as may be under way at once.
    for _ in 0..Family::ElbRead.pace().at_once * 2 {
        let call = pacing.run(READ, hold);
        assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
    }
    pacing.run(READ, hold).await.unwrap();

    // Dropped as a probe: the next one is free to go.
    cloud.throttling.store(true, Ordering::Relaxed);
    assert!(tokio::time::timeout(Duration::from_millis(60), pacing.run(READ, hold)).await.is_err());
    let sent = cloud.sent();
    let probe = pacing.run(READ, hold);
    assert!(tokio::time::timeout(Duration::from_millis(540), probe).await.is_err());
    assert_eq!(cloud.sent(), sent + 1);
    cloud.throttling.store(false, Ordering::Relaxed);
    pacing.run(READ, hold).await.unwrap();
}
