use super::*;
use futures::FutureExt;
use std::sync::atomic::{AtomicU32, Ordering};

const ANY: Duration = Duration::MAX;

/// Counts its reads; read number `n` fails if `fails(n)`. A read takes 100 ms.
fn counter(fails: fn(u32) -> bool) -> (Arc<AtomicU32>, Cached<u32, String>) {
    let reads = Arc::new(AtomicU32::new(0));
    let counted = reads.clone();
    let read = move || {
        let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(number != 13, "on purpose");
            if fails(number) { Err(format!("read {number} failed")) } else { Ok(number) }
        }
        .boxed()
    };
    (reads, Cached::new(read, |how| how.to_string()))
}

fn never(_: u32) -> bool {
    false
}

async fn value(cached: &Cached<u32, String>, max_age: Duration, not_before: Option<Instant>) -> Result<u32, String> {
    cached.get(max_age, not_before).await.map(|stamped| *stamped.value)
}

async fn wait(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn all_who_ask_at_once_share_one_read() {
    let (reads, cached) = counter(never);
    let all = futures::future::join_all((0..100).map(|_| value(&cached, Duration::ZERO, None))).await;
    assert!(all.iter().all(|answer| *answer == Ok(1)));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_value_is_used_until_it_is_too_old_for_who_asks() {
    let (_, cached) = counter(never);
    assert_eq!(value(&cached, ANY, None).await, Ok(1));
    wait(10_000).await;
    assert_eq!(value(&cached, Duration::from_secs(60), None).await, Ok(1));
    assert_eq!(value(&cached, Duration::from_secs(5), None).await, Ok(2));
    assert_eq!(value(&cached, Duration::from_secs(5), None).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn the_stamp_is_when_the_read_began() {
    let (_, cached) = counter(never);
    let before = Instant::now();
    let stamped = cached.get(ANY, None).await.unwrap();
    assert_eq!((stamped.began, before.elapsed()), (before, Duration::from_millis(100)));
}

#[tokio::test(start_paused = true)]
async fn after_a_write_only_a_read_that_began_later_counts() {
    let (reads, cached) = counter(never);
    assert_eq!(value(&cached, ANY, None).await, Ok(1));
    wait(1).await;
    let written = Instant::now();
    assert_eq!(value(&cached, ANY, Some(written)).await, Ok(2));
    assert_eq!(value(&cached, ANY, Some(written)).await, Ok(2));
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_read_under_way_that_began_before_the_write_is_not_used_and_the_next_is_shared() {
    let (reads, cached) = counter(never);
    let early = value(&cached, ANY, None);
    let late = async {
        wait(50).await;
        let written = Some(Instant::now());
        futures::future::join_all((0..10).map(|_| value(&cached, ANY, written))).await
    };
    let (early, late) = tokio::join!(early, late);
    assert_eq!(early, Ok(1));
    assert_eq!(late, vec![Ok(2); 10]);
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_the_answer_for_a_moment_only_and_keeps_the_last_value() {
    let (reads, cached) = counter(|number| number == 2);
    assert_eq!(value(&cached, ANY, None).await, Ok(1));
    wait(10_000).await;
    assert_eq!(value(&cached, Duration::ZERO, None).await, Err("read 2 failed".into()));
    wait(500).await;
    assert_eq!(value(&cached, Duration::ZERO, None).await, Err("read 2 failed".into()));
    assert_eq!(value(&cached, ANY, None).await, Ok(1));
    assert_eq!(reads.load(Ordering::Relaxed), 2);
    wait(600).await;
    assert_eq!(value(&cached, Duration::ZERO, None).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_kept_as_long_as_requested() {
    let (reads, cached) = counter(|number| number == 1);
    let cached = cached.keeping_failures(Duration::from_secs(60)).clone();
    value(&cached, ANY, None).await.unwrap_err();
    wait(59_900).await;
    value(&cached, ANY, None).await.unwrap_err();
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    wait(200).await;
    assert_eq!(value(&cached, ANY, None).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_from_before_the_write_is_not_the_answer_after_it() {
    let (_, cached) = counter(|number| number == 1);
    assert!(value(&cached, ANY, None).await.is_err());
    wait(1).await;
    assert_eq!(value(&cached, ANY, Some(Instant::now())).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn all_who_waited_share_the_failure() {
    let (reads, cached) = counter(|number| number == 1);
    let all = futures::future::join_all((0..10).map(|_| value(&cached, ANY, None))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn who_asks_first_may_go_away() {
    let (reads, cached) = counter(never);
    let first = {
        let cached = cached.clone();
        tokio::spawn(async move { value(&cached, ANY, None).await })
    };
    wait(10).await;
    first.abort();
    assert_eq!(value(&cached, ANY, None).await, Ok(1));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_or_panics_is_an_error_and_the_next_one_is_made() {
    let hangs = Cached::new(|| futures::future::pending().boxed(), |how| how.to_string());
    assert_eq!(value(&hangs, ANY, None).await, Err("no answer within 1m0s".into()));
    let (_, cached) = counter(never);
    for _ in 0..12 {
        value(&cached, Duration::ZERO, None).await.unwrap();
        wait(1).await;
    }
    assert_eq!(value(&cached, Duration::ZERO, None).await, Err("the call ended without an answer".into()));
    wait(1000).await;
    assert_eq!(value(&cached, Duration::ZERO, None).await, Ok(14));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_read_again() {
    let (_, cached) = counter(never);
    assert!(cached.last().is_none());
    value(&cached, ANY, None).await.unwrap();
    assert_eq!(*cached.last().unwrap().value, 1);
    cached.forget();
    assert_eq!(value(&cached, ANY, None).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn misses_are_remembered_for_their_time() {
    let misses = Misses::new(Duration::from_secs(60));
    misses.add("i-1".to_owned());
    wait(59_999).await;
    assert!(misses.contains("i-1") && !misses.contains("i-2"));
    wait(1).await;
    assert!(!misses.contains("i-1"));
}
