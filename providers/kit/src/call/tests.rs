use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use ccm_provider::metric::Registry;
use ccm_provider::{ErrorClass, ProviderError};

use super::*;

static DEFS: CallDefs = crate::call_metrics!("ccm_stratus_api", "Stratus");

/// Operations of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    ListServers,
    ListBalancers,
    SetMembers,
    CreateBalancer,
}

use Op::{CreateBalancer, ListBalancers, ListServers, SetMembers};

impl Operation for Op {
    const CLOUD: &'static str = "Stratus";

    fn service(&self) -> &'static str {
        if *self == ListServers { "compute" } else { "balancing" }
    }

    fn name(&self) -> &'static str {
        match self {
            ListServers => "ListServers",
            ListBalancers => "ListBalancers",
            SetMembers => "SetMembers",
            CreateBalancer => "CreateBalancer",
        }
    }

    fn budget(&self) -> Budget {
        let (name, per_second, burst, at_once) = match self {
            ListServers => ("compute", 15.0, 60.0, 10),
            ListBalancers => ("balancing-read", 10.0, 40.0, 8),
            SetMembers | CreateBalancer => ("balancing-write", 4.0, 20.0, 5),
        };
        Budget { name, pace: Pace { per_second, burst, at_once } }
    }

    fn permission(&self) -> String {
        format!("{}:{}", self.service(), self.name())
    }

    fn is_mutating(&self) -> bool {
        matches!(self, SetMembers | CreateBalancer)
    }

    fn is_repeatable(&self) -> bool {
        *self != CreateBalancer
    }

    fn meaning(code: &str, status: Option<u16>) -> Meaning {
        match (code, status) {
            ("Immutable", _) => Meaning::Busy(Duration::from_secs(2)),
            (_, Some(401)) => Meaning::Credentials,
            (_, Some(403)) => Meaning::Denied,
            (_, Some(404)) => Meaning::NotFound,
            (_, Some(409)) => Meaning::Conflict,
            ("OverQuota", _) => Meaning::Quota,
            (_, Some(400)) => Meaning::Invalid,
            (_, Some(423)) => Meaning::Passing,
            (_, Some(429)) => Meaning::Throttle,
            (_, Some(501)) => Meaning::Unsupported,
            (_, Some(503)) => Meaning::Server,
            _ => Meaning::Other,
        }
    }
}

#[derive(Debug)]
struct Ignored;

impl Observer<Op> for Ignored {
    fn operation(&self, _: Op, _: bool, _: Duration) {}

    fn attempt(&self, _: Op, _: &'static str) {}
}

/// The leader until `is_lost` is set.
#[derive(Debug, Default)]
struct Token {
    is_lost: AtomicBool,
}

#[async_trait]
impl LeaderToken for Token {
    fn is_leading(&self) -> bool {
        !self.is_lost.load(Ordering::Relaxed)
    }

    async fn lost(&self) {}
}

fn caller(registry: &Registry) -> Caller<Op> {
    Caller::seeded(CallMetrics::new(registry, &DEFS), Arc::new(Ignored), 7)
}

fn leading() -> Caller<Op> {
    let caller = caller(&Registry::new());
    caller.lend(Arc::new(Token::default()));
    caller
}

fn throttled(after: Option<Duration>) -> Failure {
    Failure { status: Some(429), code: "OverLimit".to_owned(), after, ..Failure::default() }
}

fn failed(cause: Cause) -> Failure {
    Failure { cause, message: "x".to_owned(), ..Failure::default() }
}

fn refused(status: u16, code: &str) -> Failure {
    Failure { status: Some(status), code: code.to_owned(), message: "text".to_owned(), ..Failure::default() }
}

#[tokio::test(start_paused = true)]
async fn a_busy_object_is_not_a_throttled_account() {
    let asked = Duration::from_secs(14);
    let busy = Failure { after: Some(asked), ..refused(429, "Immutable") };
    let caller = leading();
    let error = caller.call(SetMembers, || async { Err::<(), _>(busy.clone()) }).await.unwrap_err();
    assert_eq!(ProviderError::from(error).class(), ErrorClass::InProgress { after: asked });
    let began = Instant::now();
    assert_eq!(caller.call(SetMembers, || async { Ok(()) }).await, Ok(()));
    assert_eq!(began.elapsed(), Duration::ZERO, "calls for other objects go on");
}

#[tokio::test(start_paused = true)]
async fn another_account_has_budgets_of_its_own_and_the_same_lease() {
    let caller = leading();
    let other = caller.for_another_account();
    let refuse = || async { Err::<(), _>(throttled(Some(Duration::from_secs(60)))) };
    assert!(caller.call(SetMembers, refuse).await.is_err());
    let began = Instant::now();
    assert_eq!(other.call(SetMembers, || async { Ok(()) }).await, Ok(()));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// A cloud that throttles on request, answers after 50 ms, and counts calls.
#[derive(Default)]
struct Cloud {
    throttling: AtomicBool,
    sent: AtomicUsize,
    served: AtomicUsize,
}

impl Cloud {
    async fn call(&self) -> Result<(), Failure> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
        if self.throttling.load(Ordering::Relaxed) {
            return Err(throttled(None));
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Fails with each of these in turn, then succeeds.
async fn after(failures: &[Failure], operation: Op) -> (Result<(), CallError<Op>>, usize) {
    after_by(&leading(), failures, operation).await
}

async fn after_by(caller: &Caller<Op>, failures: &[Failure], operation: Op) -> (Result<(), CallError<Op>>, usize) {
    let sent = AtomicUsize::new(0);
    let answer = caller
        .call(operation, || {
            let failure = failures.get(sent.fetch_add(1, Ordering::Relaxed)).cloned();
            async move { failure.map_or(Ok(()), Err) }
        })
        .await;
    (answer, sent.into_inner())
}

#[tokio::test(start_paused = true)]
async fn what_is_repeatable_is_sent_three_times_at_most() {
    for operation in [ListBalancers, SetMembers] {
        let lost = failed(Cause::NoAnswer);
        assert_eq!(after(&[lost.clone(), lost.clone()], operation).await, (Ok(()), 3));
        let (answer, sent) = after(&vec![lost; 9], operation).await;
        assert_eq!((answer.map_err(|error| error.kind), sent), (Err(ErrorKind::NoAnswer), 3));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_and_pauses_can_be_set_and_end_before_a_shared_read_does() {
    let lost = vec![failed(Cause::NoAnswer); 99];
    let seconds = |first_pause| Duration::from_secs(first_pause);
    for (attempts, first_pause, factor, expected) in
        [(5, seconds(1), 1.5, (5, 8_125)), (99, seconds(10), 1.0, (5, 40_000)), (3, seconds(300), 1.0, (3, 40_000))]
    {
        let (spread, within) = ((1.0, 1.0), seconds(45));
        let caller = leading().retries(Retries { attempts, first_pause, factor, spread, within });
        let start = Instant::now();
        let (answer, sent) = after_by(&caller, &lost, ListBalancers).await;
        assert_eq!(answer.map_err(|error| error.kind), Err(ErrorKind::NoAnswer));
        assert_eq!((sent, start.elapsed().as_millis()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_creation_is_reported_at_once() {
    let (answer, sent) = after(&[failed(Cause::NoAnswer)], CreateBalancer).await;
    assert_eq!((answer.map_err(|error| error.kind), sent), (Err(ErrorKind::NoAnswer), 1));
}

#[tokio::test(start_paused = true)]
async fn what_did_not_take_place_is_sent_again_whatever_it_is() {
    assert_eq!(after(&[failed(Cause::NotSent), throttled(None)], CreateBalancer).await, (Ok(()), 3));
}

#[test]
fn each_meaning_is_reached_whatever_the_status() {
    let is = |status, code: &str| {
        let error = CallError::new(SetMembers, refused(status, code));
        let class = ProviderError::from(error.clone()).class();
        (error.meaning(), error.kind, class)
    };
    let transient = || ErrorClass::Transient { after: None };
    let busy = Duration::from_secs(2);
    let invalid = || ErrorClass::Invalid { findings: Vec::new() };
    let denied = || ErrorClass::Denied { action: "balancing:SetMembers".to_owned() };
    for (status, code, meaning, kind, class) in [
        (429, "x", Meaning::Throttle, ErrorKind::Throttled { after: None }, ErrorClass::Throttled { after: None }),
        (503, "x", Meaning::Server, ErrorKind::NoAnswer, transient()),
        (401, "x", Meaning::Credentials, ErrorKind::Credentials, ErrorClass::Unknown),
        (403, "x", Meaning::Denied, ErrorKind::Refused, denied()),
        (404, "x", Meaning::NotFound, ErrorKind::Refused, ErrorClass::Conflict),
        (409, "x", Meaning::Conflict, ErrorKind::Refused, ErrorClass::Conflict),
        (423, "x", Meaning::Passing, ErrorKind::Refused, transient()),
        (409, "Immutable", Meaning::Busy(busy), ErrorKind::Refused, ErrorClass::InProgress { after: busy }),
        (500, "Immutable", Meaning::Busy(busy), ErrorKind::Refused, ErrorClass::InProgress { after: busy }),
        (500, "OverQuota", Meaning::Quota, ErrorKind::Refused, ErrorClass::Unknown),
        (400, "x", Meaning::Invalid, ErrorKind::Refused, invalid()),
        (501, "x", Meaning::Unsupported, ErrorKind::Refused, ErrorClass::Unsupported),
        (418, "x", Meaning::Other, ErrorKind::Refused, ErrorClass::Unknown),
        (500, "x", Meaning::Other, ErrorKind::NoAnswer, transient()),
    ] {
        assert_eq!(is(status, code), (meaning, kind, class), "{status} {code}");
    }
    // A proxy may answer without a code.
    for status in [403, 404, 409, 500, 501] {
        assert_eq!(is(status, "").1, ErrorKind::NoAnswer, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final() {
    for failure in [refused(400, "Bad"), failed(Cause::Credentials), failed(Cause::Malformed)] {
        assert_eq!(after(std::slice::from_ref(&failure), ListBalancers).await.1, 1, "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored() {
    let start = Instant::now();
    assert_eq!(after(&[throttled(Some(Duration::from_secs(17)))], ListBalancers).await, (Ok(()), 2));
    assert!(start.elapsed() >= Duration::from_secs(17), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_only_while_the_process_leads() {
    let (caller, sent, token) = (caller(&Registry::new()), AtomicUsize::new(0), Arc::new(Token::default()));
    let send = || async {
        sent.fetch_add(1, Ordering::Relaxed);
        // The lease is lost before a retry.
        token.is_lost.store(true, Ordering::Relaxed);
        Err::<(), _>(failed(Cause::NotSent))
    };
    let refused = |answer: Result<(), CallError<Op>>| {
        let error = answer.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotLeading);
        assert_eq!(ProviderError::from(error).to_string(), "another process leads now: nothing is written");
    };
    refused(caller.call(SetMembers, send).await);
    assert_eq!(sent.load(Ordering::Relaxed), 0, "before the core lends a lease");
    caller.call(ListServers, || async { Ok(()) }).await.unwrap();

    caller.lend(token.clone());
    refused(caller.call(SetMembers, send).await);
    assert_eq!(sent.load(Ordering::Relaxed), 1);
}

/// Reads a list by page: the entry is the token, and `next` returns the next token.
async fn list(next: impl Fn(usize) -> Result<Option<String>, Failure>) -> (Result<Vec<String>, CallError<Op>>, usize) {
    let read = AtomicUsize::new(0);
    let send = |token: Option<String>| {
        let next = next(read.fetch_add(1, Ordering::Relaxed));
        async move { Ok((token.unwrap_or_default(), next?)) }
    };
    let all = leading().unlimited().pages(ListServers, send, |(entry, next)| (vec![entry], next)).await;
    (all, read.into_inner())
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_read_or_none() {
    let token = |text: &str| Ok(Some(text.to_owned()));
    let entries = |entries: &[&str]| Ok(entries.iter().map(ToString::to_string).collect());
    assert_eq!(list(|nth| if nth == 0 { token("b") } else { Ok(None) }).await, (entries(&["", "b"]), 2));
    assert_eq!(list(|nth| token(if nth == 0 { "b" } else { "" })).await, (entries(&["", "b"]), 2));
    let (answer, read) = list(|nth| token(if nth % 2 == 0 { "a" } else { "b" })).await;
    assert_eq!((answer.unwrap_err().kind, read), (ErrorKind::Incomplete, 3), "a token comes again");
    let (answer, read) = list(|nth| token(&nth.to_string())).await;
    assert_eq!((answer.unwrap_err().kind, read), (ErrorKind::Incomplete, MAX_PAGES), "endless");
    let (answer, _) = list(|nth| if nth == 0 { token("b") } else { Err(refused(403, "No")) }).await;
    assert!(answer.unwrap_err().is(&["No"]));
}

#[tokio::test(start_paused = true)]
async fn an_operation_ends_at_its_deadline_and_says_when_the_budget_goes_on() {
    let start = Instant::now();
    let (answer, sent) = after(&[throttled(Some(Duration::from_secs(200)))], ListBalancers).await;
    let error = answer.unwrap_err();
    assert_eq!(sent, 1);
    assert_eq!(start.elapsed(), DEADLINE);
    assert_eq!(error.kind, ErrorKind::Throttled { after: Some(Duration::from_secs(200) - DEADLINE) });
}

/// Four callers per second. Each retries one second after an error, as queues do; every operation is one call.
fn load(caller: &Caller<Op>, cloud: &Arc<Cloud>, seconds: u32) -> Vec<tokio::task::JoinHandle<()>> {
    let start = |nth: u32| {
        let (caller, cloud) = (caller.clone(), cloud.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(250) * nth).await;
            while caller.call(ListBalancers, || cloud.call()).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
    };
    (0..seconds * 4).map(start).collect()
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_throttling_costs_a_tenth_of_the_calls_and_ends_within_five_seconds() {
    let (caller, cloud) = (leading(), Arc::new(Cloud::default()));
    let callers = load(&caller, &cloud, 120);
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
    // The last callers retry one second after their last error.
    let end = Instant::now();
    for caller in callers {
        caller.await.unwrap();
    }
    eprintln!("all served {:?} later", end.elapsed());
    assert_eq!(cloud.served.load(Ordering::Relaxed), 480, "each caller once");
}

#[tokio::test(start_paused = true)]
async fn one_probe_goes_first_and_the_others_after_it() {
    let (caller, cloud) = (leading(), Arc::new(Cloud::default()));
    cloud.throttling.store(true, Ordering::Relaxed);
    let callers = load(&caller, &cloud, 5);
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

#[tokio::test(start_paused = true)]
async fn throttling_of_one_budget_delays_no_other() {
    let registry = Registry::new();
    let (caller, cloud) = (caller(&registry), Arc::new(Cloud::default()));
    caller.lend(Arc::new(Token::default()));
    cloud.throttling.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let mut throttled = 0;
    while throttled < 10 {
        assert!(caller.call(ListBalancers, || cloud.call()).await.is_err());
        throttled = cloud.sent();
    }
    assert!(start.elapsed() > Duration::from_secs(15), "balancer calls are delayed: {:?}", start.elapsed());
    let start = Instant::now();
    for operation in [ListServers, SetMembers] {
        caller.call(operation, || async { Ok(()) }).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let calls = [("operation", "ListBalancers"), ("outcome", "throttled"), ("service", "balancing")];
    assert_eq!(registry.value("ccm_stratus_api_calls_total", &calls), Some(10.0));
    for (budget, backing_off) in [("balancing-read", 1.0), ("compute", 0.0)] {
        assert_eq!(registry.value("ccm_stratus_api_backing_off", &[("family", budget)]), Some(backing_off), "{budget}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_go_at_the_pace_of_the_budget_after_a_burst() {
    let (caller, start) = (leading(), Instant::now());
    let call = |_| {
        let caller = caller.clone();
        tokio::spawn(async move { caller.call(ListBalancers, || async { Ok(()) }).await })
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
    let (caller, now, most) = (leading(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let call = |_| {
        let (caller, now, most) = (caller.clone(), now.clone(), most.clone());
        tokio::spawn(async move {
            let send = || async {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            };
            caller.call(ListBalancers, send).await
        })
    };
    let calls: Vec<_> = (0..30).map(call).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::Relaxed), ListBalancers.budget().pace.at_once);
}

#[tokio::test(start_paused = true)]
async fn users_go_before_refreshing_but_not_for_ever() {
    let caller = leading();
    for _ in 0..40 {
        caller.call(ListBalancers, || async { Ok(()) }).await.unwrap();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |name: &'static str| {
        let (caller, order) = (caller.clone(), order.clone());
        async move {
            let send = || async {
                order.lock().push(name);
                Ok(())
            };
            caller.call(ListBalancers, send).await
        }
    };
    let refresh = tokio::spawn(refreshing(call("refresh")));
    tokio::task::yield_now().await;
    let users: Vec<_> = (0..200).map(|_| tokio::spawn(call("user"))).collect();
    refresh.await.unwrap().unwrap();
    let before = order.lock().iter().filter(|name| **name == "user").count();
    assert!((95..=105).contains(&before), "10 s of users at 10 a second go first: {before}");
    for user in users {
        user.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_leaves_no_trace() {
    let (caller, cloud) = (leading(), Arc::new(Cloud::default()));
    let hold = || cloud.call();
    // Dropped in flight, as many as the limit of concurrent calls allows.
    for _ in 0..ListBalancers.budget().pace.at_once * 2 {
        let call = caller.call(ListBalancers, hold);
        assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
    }
    caller.call(ListBalancers, hold).await.unwrap();

    // Dropped as a probe: the next probe can be sent.
    cloud.throttling.store(true, Ordering::Relaxed);
    assert!(tokio::time::timeout(Duration::from_millis(60), caller.call(ListBalancers, hold)).await.is_err());
    let sent = cloud.sent();
    let probe = caller.call(ListBalancers, hold);
    assert!(tokio::time::timeout(Duration::from_millis(540), probe).await.is_err());
    assert_eq!(cloud.sent(), sent + 1);
    cloud.throttling.store(false, Ordering::Relaxed);
    caller.call(ListBalancers, hold).await.unwrap();
}

fn class(error: CallError<Op>) -> &'static str {
    ProviderError::from(error).class().as_str()
}

#[test]
fn failures_have_their_class() {
    for (operation, failure, wanted) in [
        (ListServers, failed(Cause::NotSent), "transient"),
        (ListServers, failed(Cause::NoAnswer), "transient"),
        (ListServers, failed(Cause::Credentials), "unknown"),
        (ListServers, failed(Cause::Malformed), "bug"),
        (ListServers, refused(401, "Unauthorized"), "unknown"),
        (ListServers, refused(403, "Forbidden"), "denied"),
        (ListServers, refused(404, "NotFound"), "not-found"),
        // A write names several objects.
        (SetMembers, refused(404, "NotFound"), "conflict"),
        (SetMembers, refused(409, "Immutable"), "in-progress"),
        (SetMembers, refused(409, "Exists"), "conflict"),
        (SetMembers, refused(400, "OverQuota"), "unknown"),
        (SetMembers, refused(502, "Bad"), "transient"),
        (SetMembers, refused(400, ""), "transient"),
    ] {
        assert_eq!(class(CallError::new(operation, failure.clone())), wanted, "{operation:?} {failure:?}");
    }
    assert_eq!(class(CallError::of_kind(ListServers, ErrorKind::Incomplete, "x")), "unknown");
}

#[test]
fn a_cloud_without_remediations_has_general_ones() {
    for (failure, wanted) in [
        (
            refused(401, "Bad"),
            "balancing:SetMembers: Stratus doesn't take the credentials: renew them; Stratus says Bad: text",
        ),
        (
            refused(403, "Bad"),
            "ccm lacks balancing:SetMembers: grant it to the identity of this program; Stratus says Bad: text",
        ),
        (
            refused(400, "OverQuota"),
            "balancing:SetMembers: a quota is exhausted: ask for more or remove what is not needed; Stratus says OverQuota: text",
        ),
        (refused(400, "Bad"), "balancing:SetMembers; Stratus says Bad: text"),
    ] {
        assert_eq!(ProviderError::from(CallError::new(SetMembers, failure)).to_string(), wanted);
    }
}

#[test]
fn the_request_id_is_for_the_log_so_that_events_repeat() {
    let failure = Failure { request_id: Some("6a0e-1".to_owned()), ..refused(400, "Bad") };
    let ProviderError::Cloud(error) = ProviderError::from(CallError::new(SetMembers, failure)) else { panic!() };
    assert!(!error.message.contains("6a0e-1"), "{}", error.message);
    assert_eq!(error.detail, "balancing SetMembers: refused, HTTP 400, code Bad, request ID 6a0e-1: text");
}

#[test]
fn long_and_strange_messages_fit_into_an_event() {
    let long = format!("line\nbreak\u{7}{}", "é".repeat(5_000));
    let text = ProviderError::from(CallError::refused(ListServers, "Bad", &long)).to_string();
    assert!(text.chars().count() < 700 && !text.contains('\n') && !text.contains('\u{7}'), "{text}");
    assert!(text.ends_with('…'));
}

#[test]
fn retry_after_reaches_the_core() {
    let after = Some(Duration::from_secs(9));
    for (status, code) in [(429, ""), (429, "OverLimit"), (503, "Down"), (503, "")] {
        let error = ProviderError::from(CallError::new(ListServers, Failure { after, ..refused(status, code) }));
        assert_eq!(error.class(), ErrorClass::Throttled { after }, "{status} {code}");
    }
}
