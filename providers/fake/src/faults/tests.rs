use ccm_provider::LoadBalancerExt as _;
use serde_json::json;

use super::*;
use crate::tests::{Bed, balancers, ensure, service};

/// The results of five ensures.
async fn five(text: &str) -> Vec<String> {
    let bed = Bed::new(text);
    let cloud = bed.cloud();
    let mut words = Vec::new();
    for _ in 0..5 {
        words.push(ensure(&cloud, "d/a").await.map_or_else(|error| error.to_string(), |_| "ok".to_owned()));
    }
    words
}

#[tokio::test]
async fn after_and_times_count_matching_calls() {
    for (rule, want) in [
        ("error: x", ["x", "x", "x", "x", "x"]),
        ("error: x, times: 2", ["x", "x", "ok", "ok", "ok"]),
        ("error: x, after: 3", ["ok", "ok", "ok", "x", "x"]),
        ("error: x, after: 1, times: 1", ["ok", "x", "ok", "ok", "ok"]),
        ("error: x, times: 0", ["ok"; 5]),
        ("error: x, service: 'e/*'", ["ok"; 5]),
        ("error: x, node: '*'", ["ok"; 5]),
    ] {
        assert_eq!(five(&format!("faults: [{{call: EnsureLoadBalancer, {rule}}}]")).await, want, "{rule}");
    }
}

#[tokio::test]
async fn the_first_rule_with_applications_left_is_used_and_only_that_one() {
    let text = "faults:\n- {call: Ensure*, times: 1, error: one}\n- {call: '*', after: 1, times: 2, error: two}\n- {call: '*', error: three}";
    // The first call does not reach the second rule; that rule skips the second call, which reaches the third.
    assert_eq!(five(text).await, ["one", "three", "two", "two", "three"]);
}

#[tokio::test]
async fn a_rule_without_error_uses_up_the_call() {
    let text = "faults: [{call: '*', times: 2, delay: 0s}, {call: '*', error: x}]";
    assert_eq!(five(text).await, ["ok", "ok", "x", "x", "x"]);
}

#[tokio::test]
async fn equal_rules_are_one_rule_unless_their_ids_differ() {
    let rule = |id: &str| format!("- {{{id}call: EnsureLoadBalancer, times: 2, error: x}}\n");
    assert_eq!(five(&format!("faults:\n{}{}", rule(""), rule(""))).await, ["x", "x", "ok", "ok", "ok"]);
    assert_eq!(five(&format!("faults:\n{}{}", rule(""), rule("id: b, "))).await, ["x", "x", "x", "x", "ok"]);
    let after = "- {call: EnsureLoadBalancer, after: 2, error: x}\n";
    assert_eq!(five(&format!("faults:\n{after}{after}")).await, ["ok", "ok", "x", "x", "x"]);
}

#[tokio::test]
async fn a_counter_survives_a_reload_that_leaves_its_rule_alone() {
    let rule = "{call: EnsureLoadBalancer, times: 1, error: x}";
    let bed = Bed::new(&format!("faults: [{rule}]"));
    let cloud = bed.cloud();
    ensure(&cloud, "d/a").await.unwrap_err();
    // Moved, with its keys in another order: still the same content.
    bed.write("faults: [{call: GetLoadBalancer, error: y}, {error: x, times: 1, call: EnsureLoadBalancer}]");
    ensure(&cloud, "d/a").await.unwrap();
    // Edited: starts at 0.
    bed.write("faults: [{call: EnsureLoadBalancer, times: 1, error: z}]");
    assert_eq!(ensure(&cloud, "d/a").await.unwrap_err().to_string(), "z");
    // Removed and added again: a new rule.
    bed.write("");
    ensure(&cloud, "d/a").await.unwrap();
    bed.write(&format!("faults: [{rule}]"));
    ensure(&cloud, "d/a").await.unwrap_err();
    // A rejected file changes nothing.
    bed.write("faults: [{}]");
    ensure(&cloud, "d/a").await.unwrap();
    bed.write(&format!("faults: [{rule}]"));
    ensure(&cloud, "d/a").await.unwrap();
    // A restart resets all counters to 0.
    ensure(&bed.cloud(), "d/a").await.unwrap_err();
}

#[tokio::test]
async fn kinds_are_recognized_through_wrapping_and_their_texts_are_fixed() {
    type Check = fn(&ProviderError) -> bool;
    let cases: [(&str, &str, Check); 11] = [
        ("kind: InstanceNotFound", "instance not found", ProviderError::is_instance_not_found),
        ("kind: NotImplemented, error: ignored", "unimplemented", ProviderError::is_not_implemented),
        (
            "kind: ImplementedElsewhere",
            "implemented by alternate to cloud provider",
            ProviderError::is_implemented_elsewhere,
        ),
        ("kind: DiskNotFound", "disk is not found", |e| matches!(e.root(), ProviderError::DiskNotFound)),
        ("kind: Retry, error: later, retryAfter: 1.5s", "later", |e| {
            e.retry_after() == Some(Duration::from_millis(1500))
        }),
        ("kind: InProgress, error: being made, retryAfter: 1.5s", "being made", ProviderError::is_in_progress),
        ("kind: Throttled, error: slow down, retryAfter: 1.5s", "slow down", |e| {
            e.class() == ErrorClass::Throttled { after: Some(Duration::from_millis(1500)) }
        }),
        ("kind: Denied, error: disks.get", "disks.get", |e| {
            e.class() == ErrorClass::Denied { action: "disks.get".to_owned() }
        }),
        ("kind: Invalid, error: bad", "bad", |e| matches!(e.class(), ErrorClass::Invalid { .. })),
        ("kind: Other, error: bad", "bad", |e| e.class() == ErrorClass::Unknown),
        ("error: bad", "bad", |e| e.retry_after().is_none()),
    ];
    for (rule, text, check) in cases {
        let bed = Bed::new(&format!("faults: [{{id: f, call: EnsureLoadBalancer, wrap: w, {rule}}}]"));
        let error = ensure(&bed.cloud(), "d/a").await.unwrap_err();
        assert_eq!(error.to_string(), format!("w: {text}"));
        assert!(check(&error), "{rule}");
        let end = &bed.ends()[0];
        let kind = rule.strip_prefix("kind: ").and_then(|rest| rest.split(',').next()).unwrap_or("Other");
        assert_eq!((&end["error"], &end["kind"]), (&json!(format!("w: {text}")), &json!(kind)));
        assert_eq!(
            end.get("retryAfter"),
            matches!(kind, "Retry" | "Throttled" | "InProgress").then(|| json!("1.5s")).as_ref()
        );
        assert_eq!((&end["fault"], end.get("result")), (&json!("f"), None));
    }
}

#[tokio::test]
async fn a_failed_call_has_no_effect_unless_applied() {
    for applied in [false, true] {
        let bed = Bed::new(&format!("faults: [{{call: EnsureLoadBalancer, error: lost, applied: {applied}}}]"));
        let cloud = bed.cloud();
        assert_eq!(ensure(&cloud, "d/a").await.unwrap_err().to_string(), "lost");
        let exists = balancers(&cloud).get("kubernetes", &service("d/a")).await.unwrap().is_some();
        assert_eq!(exists, applied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_the_effect() {
    let bed = Bed::new("faults: [{call: EnsureLoadBalancer, delay: 1m30s, times: 1}]");
    let cloud = bed.cloud();
    let began = tokio::time::Instant::now();
    assert!(tokio::time::timeout(Duration::from_secs(89), ensure(&cloud, "d/a")).await.is_err());
    assert!(balancers(&cloud).get("kubernetes", &service("d/a")).await.unwrap().is_none());
    assert_eq!(began.elapsed().as_secs(), 89);
}

#[tokio::test(start_paused = true)]
async fn a_file_holds_a_call_as_long_as_it_exists() {
    let bed = Bed::new("faults: [{call: EnsureLoadBalancer, delay: 1s, hold: gate}]");
    let cloud = bed.cloud();
    ensure(&cloud, "d/a").await.unwrap();
    std::fs::write(bed.path("gate"), "").unwrap();
    let began = tokio::time::Instant::now();
    let (answer, ()) = futures::join!(ensure(&cloud, "d/a"), async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        std::fs::remove_file(bed.path("gate")).unwrap();
    });
    answer.unwrap();
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_millis(30_021), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_start_line_is_written_before_any_delay() {
    let bed = Bed::new("faults: [{call: '*', delay: 1h}]");
    let cloud = bed.cloud();
    let call = ensure(&cloud, "d/a");
    tokio::pin!(call);
    assert!(futures::poll!(&mut call).is_pending());
    assert_eq!(bed.lines().len(), 1);
    assert_eq!(bed.lines()[0]["phase"], "start");
}

#[tokio::test(start_paused = true)]
async fn a_call_answers_from_the_file_as_it_was_when_the_call_began() {
    let bed = Bed::new("loadBalancers: {ipMode: VIP}\nfaults: [{call: EnsureLoadBalancer, delay: 1s}]");
    let cloud = bed.cloud();
    let (answer, ()) = futures::join!(ensure(&cloud, "d/a"), async { bed.write("loadBalancers: {ipMode: Proxy}") });
    assert_eq!(answer.unwrap()[0]["ipMode"], "VIP");
    assert_eq!(ensure(&cloud, "d/a").await.unwrap()[0]["ipMode"], "Proxy");
}

#[test]
fn a_result_that_fits_no_call_of_its_rule_is_a_mistake_in_the_file() {
    for rule in [
        "call: InstanceExists, result: 'true'",
        "call: ListRoutes, result: {}",
        "call: EnsureLoadBalancer, result: {ingres: []}",
        "call: InstanceMetadata, result: {providerID: x}",
        "call: NodeAddresses, result: [{type: Foo, address: a}]",
    ] {
        let error = Bed::new(&format!("faults: [{{{rule}}}]")).refused();
        assert!(error.contains("faults[0].result: no answer of "), "{error}");
    }
    Bed::new("faults: [{call: '*', result: true}, {call: CreateRoute, result: 5}]").cloud();
}

#[tokio::test]
async fn a_result_that_does_not_fit_this_call_is_an_error_of_the_call() {
    let bed = Bed::new("faults: [{id: f, call: '*', result: true}]");
    let error = ensure(&bed.cloud(), "d/a").await.unwrap_err().to_string();
    assert!(error.starts_with("fault \"f\" does not fit this call: result: expected a map"), "{error}");
}

#[tokio::test]
async fn a_result_does_not_hide_an_error_of_the_call() {
    let bed = Bed::new("faults: [{call: UpdateLoadBalancer, result: {}}]");
    let error = balancers(&bed.cloud()).update("kubernetes", &service("d/a"), &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "load balancer not found");
}

#[test]
fn a_filter_matches_only_a_subject_that_the_call_has() {
    let tree = json!({"call": "*", "providerID": "*"});
    let problems = Problems::default();
    let rule = Rule::read(&Value::root(&tree, &problems), Path::new("")).unwrap();
    let matches = |subject: Subject<'_>| rule.matches(&[Method::InstanceExists], &subject);
    assert!(!matches(Subject { node: Some("a"), ..Subject::default() }));
    assert!(matches(Subject { provider_id: Some(""), ..Subject::default() }));
}
