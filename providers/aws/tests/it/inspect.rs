//! The reports for users, over HTTP: explain, orphans, migration checks.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Check, Claims, Fact, FactState, Inspect, NodeRef, Service, Severity};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service};
use crate::instances::leading;

fn classic() -> Service {
    service("old", &[], &[(80, 31080)], json!({}))
}

fn network() -> Service {
    service("web", &[("type", "nlb")], &[(80, 31081)], json!({}))
}

fn claims(nodes: &[NodeRef], services: &[&Service]) -> Claims {
    let services = services.iter().map(|service| Arc::new((*service).clone())).collect();
    Claims { nodes: nodes.to_vec(), services }
}

/// Balancers for both Services, with all targets healthy.
async fn made(bed: &Bed) -> (Service, Service) {
    let provider = leading(bed, &bed.nodes).await;
    let balancers = provider.load_balancer().unwrap();
    let (mut classic, mut network) = (classic(), network());
    for service in [&mut classic, &mut network] {
        service.status.load_balancer = bed.ensure(&*balancers, service).await;
    }
    bed.aws.clock().step(Duration::from_secs(600));
    (classic, network)
}

async fn inspector(bed: &Bed) -> Arc<dyn Inspect> {
    leading(bed, &bed.nodes).await.inspect().unwrap()
}

fn bad(facts: &[Fact]) -> Vec<&Fact> {
    facts.iter().filter(|fact| fact.state == FactState::Bad).collect()
}

fn with<'a>(checks: &'a [Check], check: &str, subject: &str) -> &'a Check {
    let found = checks.iter().find(|found| found.check == check && found.subject == subject);
    found.unwrap_or_else(|| panic!("no {check} of {subject}: {checks:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_services_in_order_are_explained_without_a_write() {
    let bed = Bed::start("");
    let (classic, network) = made(&bed).await;
    let inspector = inspector(&bed).await;
    let mark = bed.aws.mark();
    for node in &bed.nodes {
        let facts = inspector.explain_node(CLUSTER, node).await.unwrap();
        assert!(bad(&facts).is_empty() && facts.len() >= 5, "{facts:#?}");
    }
    for service in [&classic, &network] {
        let facts = inspector.explain_service(CLUSTER, service).await.unwrap();
        assert!(bad(&facts).is_empty(), "{facts:#?}");
        assert!(facts.iter().any(|fact| fact.text.contains("nothing is left to do")), "{facts:#?}");
    }
    assert_eq!(bed.writes(mark), [""; 0]);
    bed.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_services_left_is_deleted_to_the_last_rule() {
    let bed = Bed::start("NLBSecurityGroupMode = Managed");
    let (classic, network) = made(&bed).await;
    let inspector = inspector(&bed).await;
    let none = inspector.orphans(CLUSTER, &claims(&bed.nodes, &[&classic, &network])).await.unwrap();
    assert!(none.is_empty(), "{none:#?}");
    let mark = bed.aws.mark();
    let orphans = inspector.orphans(CLUSTER, &claims(&bed.nodes, &[])).await.unwrap();
    let kinds: Vec<&str> = orphans.iter().map(|orphan| &*orphan.kind).collect();
    assert_eq!(kinds, ["LoadBalancer", "LoadBalancer", "TargetGroup", "SecurityGroup", "SecurityGroup"]);
    assert!(orphans.iter().all(|orphan| orphan.kept.is_none()), "{orphans:#?}");
    assert!(orphans[..2].iter().all(|orphan| orphan.created.is_some()), "{orphans:#?}");
    assert_eq!(bed.writes(mark), [""; 0], "listing writes nothing");
    for orphan in &orphans {
        let mut tries = 0;
        while let Err(error) = inspector.delete_orphan(CLUSTER, orphan).await {
            // AWS deletes the interfaces of a balancer some time after the balancer.
            assert!(error.retry_after().is_some() && tries < 30, "{error}");
            bed.aws.clock().step(Duration::from_secs(10));
            tries += 1;
        }
    }
    bed.aws.world(|world| {
        assert!(world.elb.balancers.is_empty() && world.elbv2.balancers.is_empty() && world.elbv2.groups.is_empty());
        assert!(world.ec2.groups[&bed.network.node_group].ingress.is_empty());
        assert_eq!(world.ec2.groups.values().filter(|group| group.name.starts_with("k8s-")).count(), 0);
    });
    assert!(inspector.orphans(CLUSTER, &claims(&bed.nodes, &[])).await.unwrap().is_empty());
    bed.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permissions_are_found_by_dry_runs_and_nothing_is_written() {
    let bed = Bed::start("");
    let (classic, network) = made(&bed).await;
    let (inspector, claims) = (inspector(&bed).await, claims(&bed.nodes, &[&classic, &network]));
    let mark = bed.aws.mark();
    let state = || bed.aws.world(|world| (world.ec2.groups.clone(), world.ec2.route_tables.clone()));
    let before = state();
    let checks = inspector.migration_checks(CLUSTER, &claims).await;
    let wrong: Vec<&Check> =
        checks.iter().filter(|check| check.check == "permissions" && check.severity > Severity::Info).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let granted = &with(&checks, "permissions", "").message;
    for permission in [
        "ec2:CreateSecurityGroup",
        "ec2:DeleteSecurityGroup",
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:RevokeSecurityGroupIngress",
        "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
        "ec2:CreateTags",
        "ec2:DeleteTags",
        "ec2:CreateRoute",
        "ec2:ReplaceRoute",
        "ec2:DeleteRoute",
        "elasticloadbalancing:DescribeTargetHealth",
    ] {
        assert!(granted.contains(permission), "{permission}: {granted}");
    }
    assert_eq!(bed.aws.violations(), [""; 0]);

    for (service, action) in [("ec2", "AuthorizeSecurityGroupIngress"), ("elbv2", "DescribeTargetHealth")] {
        bed.aws.fault(Rule::every(Fault::Deny).on(service, action));
    }
    let checks = inspector.migration_checks(CLUSTER, &claims).await;
    for permission in ["ec2:AuthorizeSecurityGroupIngress", "elasticloadbalancing:DescribeTargetHealth"] {
        let check = with(&checks, "permissions", permission);
        assert_eq!(check.severity, Severity::Error);
        assert!(check.message.contains(&format!("ccm lacks {permission}")), "{check:?}");
        assert!(check.fix.contains("manifests/aws/iam/load-balancer.json"), "{check:?}");
    }
    bed.aws.faults(Faults::clear);
    assert_eq!(bed.writes(mark), [""; 0]);
    assert_eq!(state(), before);
}
