//! The checks of `/healthz`, `/livez` and `/readyz`.
//!
//! Answers as in `k8s.io/apiserver/pkg/server/healthz`, counts as in `k8s.io/component-base/metrics/prometheus/slis`.
//! Upstream has only `/healthz`; the others, and `/healthz/<check>`, are additions.

use std::fmt::Write as _;
use std::sync::Arc;

use ccm_runtime::metrics::HealthMetrics;
use parking_lot::RwLock;

/// The endpoints with checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`: all checks.
    Healthz,
    /// `/livez`: fails if a restart would help.
    Livez,
    /// `/readyz`: whether it serves and has current data. Independent of leadership: a standby is ready.
    Readyz,
}

impl Probe {
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Healthz, Self::Livez, Self::Readyz].into_iter().find(|probe| probe.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// All checks. Cheap to clone; checks can be added while they are served.
#[derive(Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Default)]
struct Inner {
    checks: RwLock<Vec<(String, Vec<Probe>, Check)>>,
    counts: HealthMetrics,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) healthy: bool,
    pub(super) text: String,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let checks = self.0.checks.read();
        f.debug_list().entries(checks.iter().map(|(name, ..)| name)).finish()
    }
}

impl Health {
    /// A set without checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check to these probes, or replaces the one with the same name. `check` must not block; its error is
    /// logged, and shown to clients that may request the single check.
    pub fn add(
        &self,
        name: impl Into<String>,
        probes: &[Probe],
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let (name, check): (_, Check) = (name.into(), Arc::new(check));
        let mut checks = self.0.checks.write();
        match checks.iter_mut().find(|(known, ..)| *known == name) {
            Some(known) => *known = (name, probes.to_vec(), check),
            None => checks.push((name, probes.to_vec(), check)),
        }
    }

    /// Adds a check to `/healthz` that always passes: upstream has one per running controller.
    pub fn add_running(&self, name: impl Into<String>) {
        self.add(name, &[Probe::Healthz], || Ok(()));
    }

    /// Removes the check with this name.
    pub fn remove(&self, name: &str) {
        self.0.checks.write().retain(|(known, ..)| known != name);
    }

    fn of(&self, probe: Probe) -> Vec<(String, Check)> {
        let checks = self.0.checks.read();
        let mut found: Vec<(String, Check)> = checks
            .iter()
            .filter(|(_, probes, _)| probes.contains(&probe))
            .map(|(name, _, check)| (name.clone(), check.clone()))
            .collect();
        if probe != Probe::Healthz || found.is_empty() {
            found.insert(0, ("ping".into(), Arc::new(|| Ok(()))));
        }
        found
    }

    /// Runs all checks of a probe except those excluded. On success the text is `ok`, unless `verbose`.
    pub(super) fn report(&self, probe: Probe, excluded: &[String], verbose: bool) -> Report {
        let kind = probe.name();
        let mut unknown: Vec<&String> = excluded.iter().collect();
        let (mut lines, mut failed) = (String::new(), String::new());
        // Writing to a String cannot fail.
        for (name, check) in self.of(probe) {
            if excluded.contains(&name) {
                unknown.retain(|word| **word != name);
                let _ = writeln!(lines, "[+]{name} excluded: ok");
                continue;
            }
            let outcome = check();
            self.0.counts.checked(&name, kind, outcome.is_ok());
            if let Err(error) = outcome {
                // The path is public, the reason is not.
                let _ = writeln!(lines, "[-]{name} failed: reason withheld");
                let _ = write!(failed, " [-]{name} failed: {error}");
            } else {
                let _ = writeln!(lines, "[+]{name} ok");
            }
        }
        unknown.sort();
        unknown.dedup();
        if !unknown.is_empty() {
            let words = unknown.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(",");
            let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {words}");
        }
        if !failed.is_empty() {
            tracing::info!("{kind} check failed:{failed}");
            return Report { healthy: false, text: format!("{lines}{kind} check failed\n") };
        }
        let text = if verbose { format!("{lines}{kind} check passed\n") } else { "ok".into() };
        Report { healthy: true, text }
    }

    /// Runs one check; `None` if the probe has no check with this name.
    pub fn single(&self, probe: Probe, name: &str) -> Option<Result<(), String>> {
        let (_, check) = self.of(probe).into_iter().find(|(known, _)| known == name)?;
        Some(check())
    }

    pub(super) fn counts(&self) -> String {
        self.0.counts.text()
    }

    pub(super) fn reset_counts(&self) {
        self.0.counts.reset();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn verbose_lists_the_checks_and_excluding_unknown_ones_warns() {
        let health = Health::new();
        health.add("leaderElection", &[Probe::Healthz, Probe::Livez], || Ok(()));
        health.add_running("service-lb-controller");
        let report = health.report(Probe::Healthz, &words(&["foo", "leaderElection", "bar", "foo"]), true);
        assert_eq!(
            report.text,
            "[+]leaderElection excluded: ok\n[+]service-lb-controller ok\n\
             warn: some health checks cannot be excluded: no matches for \"bar\",\"foo\"\nhealthz check passed\n"
        );
        assert_eq!(health.report(Probe::Healthz, &[], false), Report { healthy: true, text: "ok".into() });
        let report = health.report(Probe::Livez, &[], true);
        assert_eq!(report.text, "[+]ping ok\n[+]leaderElection ok\nlivez check passed\n");
        assert_eq!(health.report(Probe::Readyz, &[], true).text, "[+]ping ok\nreadyz check passed\n");
    }

    #[test]
    fn the_reason_of_a_failure_is_shown_only_for_the_single_check() {
        let health = Health::new();
        assert_eq!(health.report(Probe::Healthz, &[], true).text, "[+]ping ok\nhealthz check passed\n");
        let broken = Arc::new(AtomicBool::new(true));
        let look = broken.clone();
        health.add(
            "a",
            &[Probe::Healthz],
            move || {
                if look.load(Ordering::SeqCst) { Err("secret".into()) } else { Ok(()) }
            },
        );
        health.add_running("b");
        let report = health.report(Probe::Healthz, &[], false);
        assert_eq!(report.text, "[-]a failed: reason withheld\n[+]b ok\nhealthz check failed\n");
        assert!(!report.healthy);
        assert!(health.report(Probe::Healthz, &words(&["a"]), false).healthy);
        assert_eq!(health.single(Probe::Healthz, "a"), Some(Err("secret".into())));
        assert_eq!(health.single(Probe::Livez, "a"), None);
        broken.store(false, Ordering::SeqCst);
        assert!(health.report(Probe::Healthz, &[], false).healthy);
        let counts = health.counts();
        for line in [
            "kubernetes_healthcheck{name=\"a\",type=\"healthz\"} 1",
            "kubernetes_healthchecks_total{name=\"a\",status=\"error\",type=\"healthz\"} 1",
            "kubernetes_healthchecks_total{name=\"b\",status=\"success\",type=\"healthz\"} 3",
        ] {
            assert!(counts.contains(line), "{counts}");
        }
        health.reset_counts();
        assert!(!health.counts().contains("kubernetes_healthcheck{"));
    }
}
