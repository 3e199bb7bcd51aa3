//! Each step of a Service's life as conditions, applied as the API server would.

use std::time::Duration;

use ccm_provider::{Condition, ErrorClass, Finding, LoadBalancerStatus, Service, Severity};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Progress, changes};

/// A Service, and its current conditions.
struct Life {
    service: Service,
    now: Timestamp,
}

impl Life {
    fn new(spec: &Value) -> Self {
        let service =
            serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b"}, "spec": spec})).unwrap();
        Self { service, now: "2026-01-01T00:00:00Z".parse().unwrap() }
    }

    fn with_address(mut self) -> Self {
        self.service.status.load_balancer = address("203.0.113.1");
        self
    }

    /// Writes the changes, a minute later. Returns whether anything was written.
    fn step(&mut self, progress: Progress<'_>) -> bool {
        self.now += Duration::from_secs(60);
        let present = self.service.status.conditions.clone();
        let Some(changes) = changes(&self.service, &present, progress, self.now) else { return false };
        let conditions = &mut self.service.status.conditions;
        conditions
            .retain(|old| !changes.gone.contains(&&*old.kind) && !changes.set.iter().any(|new| new.kind == old.kind));
        conditions.extend(changes.set);
        true
    }

    fn fail(&mut self, class: &ErrorClass, message: &str) -> bool {
        self.step(Progress::Failed { class, message })
    }

    fn ensure(&mut self, ip: &str) -> bool {
        let status = address(ip);
        let written = self.step(Progress::Ensured(&status));
        self.service.status.load_balancer = status;
        written
    }

    /// `Serving=True/Serving: message`, in alphabetical order.
    fn lines(&self) -> Vec<String> {
        let line = |c: &Condition| {
            let kind = c.kind.strip_prefix("LoadBalancer").unwrap_or(&c.kind);
            format!("{kind}={}/{}: {}", c.status, c.reason, c.message)
        };
        let mut lines: Vec<String> = self.service.status.conditions.iter().map(line).collect();
        lines.sort();
        lines
    }

    fn find(&self, kind: &str) -> &Condition {
        self.service.status.conditions.iter().find(|one| one.kind == kind).unwrap()
    }

    /// Minutes from the beginning to the last transition.
    fn since(&self, kind: &str) -> i64 {
        let at: Timestamp = self.find(kind).last_transition_time.parse().unwrap();
        at.duration_since("2026-01-01T00:00:00Z".parse().unwrap()).as_secs() / 60
    }

    fn others(&mut self, kind: &str, reason: &str, message: &str) {
        self.service.status.conditions.push(Condition {
            kind: kind.into(),
            status: "True".into(),
            last_transition_time: "2025-01-01T00:00:00Z".into(),
            reason: reason.into(),
            message: message.into(),
            ..Condition::default()
        });
    }
}

fn address(ip: &str) -> LoadBalancerStatus {
    serde_json::from_value(json!({"ingress": [{"ip": ip}]})).unwrap()
}

fn plain() -> Life {
    Life::new(&json!({"type": "LoadBalancer"}))
}

const SERVES: [&str; 2] =
    ["Provisioning=False/Complete: Ensured load balancer", "Serving=True/Serving: Ensured load balancer"];

#[test]
fn the_time_of_transition_moves_only_with_the_status() {
    let mut life = plain();
    life.step(Progress::Begun);
    assert!(life.fail(&ErrorClass::Unknown, "one"));
    assert!(life.fail(&ErrorClass::Unknown, "two"));
    assert_eq!((life.since(super::SERVING), life.since(super::PROVISIONING)), (1, 2));
    assert_eq!(life.find(super::SERVING).message, "two");
    assert!(life.ensure("203.0.113.1"));
    assert_eq!((life.since(super::SERVING), life.since(super::PROVISIONING)), (4, 2));
}

#[test]
fn the_class_of_the_error_decides_the_reason() {
    let invalid = ErrorClass::Invalid { findings: vec![Finding::new(Severity::Error, "a", "b")] };
    let again = Some(Duration::from_secs(1));
    for (class, reason) in [
        (invalid, "Unsupported"),
        (ErrorClass::Unsupported, "Unsupported"),
        (ErrorClass::Denied { action: "ec2:CreateTags".into() }, "Infrastructure"),
        (ErrorClass::Throttled { after: again }, "Infrastructure"),
        (ErrorClass::Throttled { after: None }, "Infrastructure"),
        (ErrorClass::Transient { after: None }, "Infrastructure"),
        (ErrorClass::NotFound, "Infrastructure"),
        (ErrorClass::Unknown, "Infrastructure"),
        (ErrorClass::Bug, "Infrastructure"),
        // In progress.
        (ErrorClass::Transient { after: again }, "Provisioning"),
        (ErrorClass::Conflict, "Provisioning"),
    ] {
        let mut life = plain();
        life.fail(&class, "m");
        let working = if reason == "Provisioning" { "True/Provisioning" } else { "False/Complete" };
        assert_eq!(
            life.lines(),
            [format!("Provisioning={working}: m"), format!("Serving=False/{reason}: m")],
            "{class:?}"
        );
    }
}

#[test]
fn a_balancer_with_an_address_serves_on_when_a_change_fails() {
    let mut life = plain();
    life.ensure("203.0.113.1");
    life.fail(&ErrorClass::Unsupported, "no");
    assert_eq!(life.lines(), ["Provisioning=False/Complete: no", SERVES[1]]);
    assert_eq!(life.since(super::SERVING), 1);
    // Also if the conditions are new.
    let mut life = plain().with_address();
    life.fail(&ErrorClass::Unknown, "no");
    assert_eq!(life.lines(), ["Provisioning=False/Complete: no", SERVES[1]]);
}

#[test]
fn a_status_without_address_is_still_provisioning() {
    let mut life = plain();
    life.step(Progress::Ensured(&LoadBalancerStatus::default()));
    let text = "The load balancer has no address yet";
    assert_eq!(
        life.lines(),
        [format!("Provisioning=True/Provisioning: {text}"), format!("Serving=False/Provisioning: {text}")]
    );
}

#[test]
fn missing_parts_of_the_status_are_reported_until_they_exist() {
    let dual = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"]});
    let with_ip = json!({"type": "LoadBalancer", "loadBalancerIP": "203.0.113.9"});
    let all = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"], "loadBalancerIP": "203.0.113.9"});
    let one = json!({"ingress": [{"ip": "203.0.113.1"}]});
    let both = json!({"ingress": [{"ip": "203.0.113.9"}, {"ip": "2001:db8::1"}]});
    let name = json!({"ingress": [{"hostname": "lb.example.com"}]});
    let error = json!({"ingress": [{"hostname": "lb.example.com", "ports": [
        {"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "error": "example.com/Mixed"}]}]});
    let plain = json!({"type": "LoadBalancer"});
    for (spec, status, wanted) in [
        (&plain, &one, ""),
        (
            &dual,
            &one,
            "IPFamiliesNotSupported: the Service has two IP families, and the load balancer has addresses of one",
        ),
        (&dual, &both, ""),
        (&dual, &name, ""),
        (&with_ip, &one, "LoadBalancerIPNotSupported: the load balancer does not have the address \"203.0.113.9\""),
        (&with_ip, &both, ""),
        (&with_ip, &name, ""),
        (&plain, &error, "PortsNotSupported: ports that the load balancer does not serve: 53/UDP: example.com/Mixed"),
        (
            &all,
            &one,
            "Multiple: the Service has two IP families, and the load balancer has addresses of one; the load balancer \
            does not have the address \"203.0.113.9\"",
        ),
    ] {
        let mut life = Life::new(spec);
        life.step(Progress::Ensured(&serde_json::from_value(status.clone()).unwrap()));
        let mut lines: Vec<String> = SERVES.map(str::to_owned).to_vec();
        if !wanted.is_empty() {
            lines.insert(0, format!("Degraded=True/{wanted}"));
        }
        assert_eq!(life.lines(), lines, "{spec} {status}");
        life.service.spec.ip_families.clear();
        life.service.spec.load_balancer_ip.clear();
        assert_eq!(life.ensure("203.0.113.1"), !wanted.is_empty(), "{spec} {status}");
        assert_eq!(life.lines(), SERVES);
    }
}

#[test]
fn conditions_of_others_stay() {
    let mut life = plain();
    life.others("example.com/Checked", "Checked", "fine");
    life.others(super::DEGRADED, "SessionAffinityNotSupported", "another program says so");
    for progress in [Progress::Begun, Progress::Failed { class: &ErrorClass::Unknown, message: "m" }] {
        life.step(progress);
    }
    life.ensure("203.0.113.1");
    assert_eq!(life.find("example.com/Checked").message, "fine");
    assert_eq!(life.find(super::DEGRADED).message, "another program says so");
    life.step(Progress::Gone);
    assert_eq!(life.lines(), ["example.com/Checked=True/Checked: fine"]);
    assert!(!life.step(Progress::Gone));
}

#[test]
fn the_generation_is_reported_where_there_is_one() {
    let mut life = plain();
    life.ensure("203.0.113.1");
    assert_eq!(life.find(super::SERVING).observed_generation, 0);
    life.service.metadata.generation = 4;
    assert!(life.ensure("203.0.113.1"));
    assert_eq!((life.find(super::SERVING).observed_generation, life.since(super::SERVING)), (4, 1));
    assert!(!life.ensure("203.0.113.1"));
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let mut life = plain();
    life.fail(&ErrorClass::Unknown, &"ä".repeat(20_000));
    let message = &life.find(super::SERVING).message;
    assert_eq!((message.len(), message.chars().last()), (32_768, Some('ä')));
    let mut life = plain();
    life.fail(&ErrorClass::Unknown, &format!("x{}", "ä".repeat(20_000)));
    assert_eq!(life.find(super::SERVING).message.len(), 32_767);
}
