//! What is written for each annotation and each change. `plans.txt` is made anew with `UPDATE=1`.

use std::fmt::Write as _;

use super::model::{SUBNETS, apply, current, desired, hosts_only, plan_in, service, service_with, wish_for};
use crate::client::Tags;
use crate::loadbalancer::desired::{Desired, Goal};
use crate::loadbalancer::observe::Observed;
use crate::loadbalancer::plan::Env;
use crate::loadbalancer::security_groups::tests::model as groups;

const CERTIFICATE: (&str, &str) = ("ssl-cert", "arn:aws:acm:us-west-2:1:certificate/x");

/// Plans, writes down, writes, and sees that nothing is left.
fn case(page: &mut String, name: &str, world: Observed, desired: &Desired, subnets: &[&str], env: &Env) -> Observed {
    let mut world = world;
    let planned = plan_in(&world, desired, subnets, env);
    let _ = writeln!(page, "\n## {name}");
    for text in groups::texts(&planned.steps) {
        let _ = writeln!(page, "{text}");
    }
    for finding in &planned.findings {
        let _ = writeln!(page, "note: {finding}");
    }
    if planned.steps.is_empty() {
        page.push_str("(nothing)\n");
    }
    groups::run(&mut world, &planned.steps, usize::MAX, apply);
    let again = plan_in(&world, desired, subnets, env);
    assert_eq!(groups::texts(&again.steps), [""; 0], "{name}: a second plan is empty");
    world
}

fn page() -> String {
    let mut page = String::new();
    let env = groups::env();
    let page_ = &mut page;
    let mut simple = |name: &str, world: Observed, desired: &Desired| case(page_, name, world, desired, SUBNETS, &env);

    let plain = simple("A new balancer", groups::world(), &desired(&[]));
    simple("A second sync", plain.clone(), &desired(&[]));
    for (key, value) in [
        ("proxy-protocol", "*"),
        ("access-log-enabled", "false"),
        ("access-log-s3-bucket-name", "bucket"),
        ("connection-draining-enabled", "true"),
        ("connection-draining-timeout", "60"),
        ("connection-idle-timeout", "600"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("security-groups", "sg-bystander"),
        ("extra-security-groups", "sg-bystander"),
        ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
        ("backend-protocol", "http"),
        ("backend-protocol", "https"),
        ("additional-resource-tags", "team=web,kubernetes.io/cluster/c1=shared,KubernetesCluster=x"),
        ("healthcheck-protocol", "http"),
        ("healthcheck-port", "9000"),
        ("healthcheck-path", "/ready"),
        ("healthcheck-healthy-threshold", "3"),
        ("healthcheck-unhealthy-threshold", "3"),
        ("healthcheck-timeout", "3"),
        ("healthcheck-interval", "30"),
        ("internal", "true"),
        CERTIFICATE,
    ] {
        let changed = simple(&format!("{key}: {value}"), plain.clone(), &desired(&[(key, value)]));
        simple(&format!("{key} taken away again"), changed, &desired(&[]));
    }

    let logs = [
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "bucket"),
        ("access-log-s3-bucket-prefix", "web"),
        ("access-log-emit-interval", "5"),
    ];
    let logged = simple("Access logs", plain.clone(), &desired(&logs));
    simple("Access logs at the root of the bucket", logged, &desired(&logs[..2]));
    let draining = [("connection-draining-enabled", "true"), ("connection-draining-timeout", "60")];
    simple("Draining with a timeout", plain.clone(), &desired(&draining));
    let tls = |more: &[(&'static str, &'static str)]| desired(&[&[CERTIFICATE], more].concat());
    let policy = ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
    simple("TLS on a new balancer with a policy", groups::world(), &tls(&[policy, ("backend-protocol", "https")]));
    let secured = simple("TLS on one port", plain.clone(), &tls(&[("ssl-ports", "HTTPS")]));
    let secured = simple("A TLS policy", secured, &tls(&[("ssl-ports", "443"), policy]));
    let other = ("ssl-negotiation-policy", "ELBSecurityPolicy-2015-05");
    simple("Another TLS policy", secured.clone(), &tls(&[("ssl-ports", "443"), other]));
    simple("A TLS policy taken away", secured, &tls(&[("ssl-ports", "443")]));

    let ports = serde_json::json!([
        {"name": "https", "port": 443, "nodePort": 31444, "protocol": "TCP"},
        {"name": "alt", "port": 8443, "nodePort": 31843, "protocol": "TCP"},
    ]);
    let proxied = current(&[("proxy-protocol", "*")]);
    let other_ports = service_with(&ports, &[("proxy-protocol", "*")]);
    simple("Other ports, with proxy protocol", proxied, &wish_for(&other_ports, 3));
    simple("A node less", plain.clone(), &wish_for(&service(&[]), 2));
    simple("No nodes", plain.clone(), &wish_for(&service(&[]), 0));

    let mut moved = plain.clone();
    groups::put(&mut moved, groups::group("sg-new", "new nodes", groups::member("owned")));
    groups::instance(&mut moved, "i-2", &["sg-new"]);
    groups::instance(&mut moved, "i-3", &["sg-new"]);
    simple("A node in another group", moved.clone(), &hosts_only(desired(&[])));
    simple(
        "Nodes gone, hosts only",
        plain.clone(),
        &hosts_only(wish_for(&service(&[("cross-zone-load-balancing-enabled", "true")]), 1)),
    );

    let mut taken = plain.clone();
    groups::put(&mut taken, groups::group("sg-user", "of the user", Tags::new()));
    let named = desired(&[("security-groups", "sg-user")]);
    let user = simple("From a managed to a group of the user's", taken, &named);
    let user =
        simple("From one group of the user's to another", user, &desired(&[("security-groups", "sg-bystander")]));
    let back = simple("From a group of the user's to a managed one", user.clone(), &desired(&[]));
    assert!(groups::rules(&back, "sg-nodes").iter().any(|rule| rule.contains("sg-made-1")));

    let goes = Desired { goal: Goal::Absent, ..desired(&[]) };
    let gone = simple("Deletion", plain.clone(), &goes);
    simple("Deletion of nothing", gone, &goes);
    let goes_named = Desired { goal: Goal::Absent, ..desired(&[("security-groups", "sg-bystander")]) };
    simple("Deletion with a group of the user's", user, &goes_named);
    let mut failed = plain.clone();
    failed.classic = None;
    simple("Deletion after a creation that never came to be", failed, &goes);
    let mut foreign = plain.clone();
    foreign.classic.as_mut().unwrap().tags.clear();
    simple("Deletion of another's balancer of that name", foreign, &goes);

    for (name, to) in [
        ("One more subnet", &["subnet-a", "subnet-b"][..]),
        ("Another zone", &["subnet-b"]),
        ("Another subnet of the only zone", &["subnet-a2"]),
        ("Another subnet and one more zone", &["subnet-a2", "subnet-b"]),
    ] {
        let mut single = plain.clone();
        single.classic.as_mut().unwrap().balancer.subnets = ["subnet-a".to_owned()].into();
        case(page_, name, single, &desired(&[]), to, &env);
    }
    case(page_, "Other subnets in all zones", plain.clone(), &desired(&[]), &["subnet-a2", "subnet-b2"], &env);
    let shared = Env { shared_group: Some("sg-bystander".to_owned()), ..groups::env() };
    case(page_, "With ElbSecurityGroup", groups::world(), &desired(&[]), SUBNETS, &shared);
    let untouched = Env { node_groups_untouched: true, ..groups::env() };
    let made = case(page_, "With DisableSecurityGroupIngress", groups::world(), &desired(&[]), SUBNETS, &untouched);
    case(page_, "Deletion with DisableSecurityGroupIngress", made, &goes, SUBNETS, &untouched);
    page
}

#[test]
fn plans_are_as_written_down() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/loadbalancer/classic/tests/plans.txt");
    let page = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    let differs = golden.lines().zip(page.lines()).find(|(golden, now)| golden != now);
    assert!(golden == page, "plans.txt differs, first in {differs:#?}; look at it and run with UPDATE=1");
}
