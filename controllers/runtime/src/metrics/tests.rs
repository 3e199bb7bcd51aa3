use std::collections::BTreeSet;

use super::text::number;
use super::*;

#[test]
fn every_metric_of_the_table_is_well_formed_and_unique() {
    let mut names = BTreeSet::new();
    for def in crate::metrics_reference() {
        assert!(names.insert(def.name), "{} is defined twice", def.name);
        let word = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert!(word(def.name) && def.labels.iter().all(|label| word(label)), "{def:?}");
        assert_eq!(def.kind == Kind::Histogram, !def.buckets.is_empty(), "{def:?}");
        assert!(def.buckets.is_sorted(), "{def:?}");
        assert!(!def.help.is_empty() && !def.help.contains('\n'), "{def:?}");
        assert_eq!(
            def.name.starts_with("ccm_") || def.name.starts_with("process_"),
            !def.help.starts_with('['),
            "{def:?}"
        );
    }
}

#[test]
fn numbers_are_spelled_as_go_spells_them() {
    let table = [
        (0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (1e-8, "1e-08"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
        (262_144.0, "262144"),
        (1_048_576.0, "1.048576e+06"),
        (1_795_281_308.96, "1.79528130896e+09"),
        (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ];
    for (value, expected) in table {
        assert_eq!(number(value), expected);
    }
}

#[test]
fn labels_and_help_are_escaped() {
    let metrics = Metrics::new();
    const FEATURES: Def = Def::gauge("features", &["name", "stage"], "a\\b\nc");
    IntGaugeVec::export(&metrics, &FEATURES).with_label_values(&["a\"b\\c\nd", "ALPHA"]).set(1);
    let text = metrics.text();
    assert!(text.contains("# HELP features a\\\\b\\nc\n"), "{text}");
    let line = "features{name=\"a\\\"b\\\\c\\nd\",stage=\"ALPHA\"} 1";
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[test]
fn metrics_of_another_registry_are_read_at_each_scrape() {
    const MINE: Def = Def::counter("mine_total", &[], "x");
    let (metrics, other) = (Metrics::new(), Registry::new());
    metrics.include("other", other.clone());
    let counter = IntCounter::export(&other, &MINE);
    assert_eq!(metrics.sample("mine_total"), Some(0.0));
    counter.inc();
    assert_eq!(metrics.sample("mine_total"), Some(1.0));
    assert!(metrics.text().contains("# HELP mine_total x\n# TYPE mine_total counter\n"));
}

#[test]
fn samples_are_found_and_absent_ones_are_not() {
    let metrics = Metrics::new();
    metrics.leader("kube-system", "cloud-controller-manager", true);
    assert_eq!(metrics.sample("leader_election_master_status{name=\"cloud-controller-manager\"}"), Some(1.0));
    assert_eq!(metrics.sample("no_such"), None);
    metrics.provider_call("List", None, std::time::Duration::ZERO);
    assert_eq!(metrics.samples("leader_election_master_status"), [(vec!["cloud-controller-manager".to_owned()], 1)]);
    assert_eq!(metrics.samples("ccm_provider_calls_total"), [(vec!["List".to_owned(), "ok".to_owned()], 1)]);
    assert_eq!(metrics.samples("no_such"), []);
}

#[test]
fn health_checks_are_counted_apart_and_forgotten_on_request() {
    let health = HealthMetrics::default();
    health.checked("leaderElection", "healthz", true);
    health.checked("leaderElection", "healthz", false);
    let text = health.text();
    for line in [
        "kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 0",
        "kubernetes_healthchecks_total{name=\"leaderElection\",status=\"error\",type=\"healthz\"} 1",
        "kubernetes_healthchecks_total{name=\"leaderElection\",status=\"success\",type=\"healthz\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    health.reset();
    assert_eq!(health.text(), "");
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_metrics_show_its_usage() {
    let metrics = Metrics::new();
    let value = |name: &str| metrics.sample(name).unwrap_or_else(|| panic!("{name} is missing"));
    for def in PROCESS {
        assert!(value(def.name) >= 0.0);
    }
    let rss = value("process_resident_memory_bytes");
    assert!(rss > 1e6 && rss < value("process_virtual_memory_bytes"), "{rss}");
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    let open = value("process_open_fds");
    drop(file);
    assert!(open >= 1.0 && open < value("process_max_fds"), "{open}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let began = value("process_start_time_seconds");
    assert!(began < now + 2.0 && began > now - 3600.0, "started at {began}, now is {now}");
}

#[test]
fn a_metric_that_is_requested_twice_is_one_for_both_callers() {
    const STEPS: Def = Def::gauge("ccm_steps", &["controller"], "Steps.");
    const TOTAL: Def = Def::counter("ccm_steps_total", &["controller"], "Steps.");
    const TIMES: Def = Def::histogram("ccm_step_seconds", &["controller"], &[1.0], "Steps.");
    let metrics = Metrics::new();
    for (controller, steps) in [("a", 1), ("b", 2)] {
        IntGaugeVec::export(&metrics, &STEPS).with_label_values(&[controller]).set(steps);
        IntCounterVec::export(&metrics, &TOTAL).with_label_values(&[controller]).inc_by(2);
        HistogramVec::export(&metrics, &TIMES).with_label_values(&[controller]).observe(0.5);
    }
    for (line, value) in [
        ("ccm_steps{controller=\"a\"}", 1.0),
        ("ccm_steps{controller=\"b\"}", 2.0),
        ("ccm_steps_total{controller=\"a\"}", 2.0),
        ("ccm_steps_total{controller=\"b\"}", 2.0),
        ("ccm_step_seconds_count{controller=\"a\"}", 1.0),
        ("ccm_step_seconds_count{controller=\"b\"}", 1.0),
    ] {
        assert_eq!(metrics.sample(line), Some(value), "{line}");
    }
}
