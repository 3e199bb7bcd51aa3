//! Settings that AWS refuses, or that it shows only in part: everything else has its value.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service};

fn web(kind: &str, annotations: &[(&str, &str)]) -> Service {
    service("web", &[annotations, &[("type", kind)]].concat(), &[(80, 31080)], json!({}))
}

/// AWS may not write to the bucket.
#[tokio::test]
async fn a_refused_bucket_keeps_no_other_attribute_from_its_value() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &web(kind, &[])).await;
        let (status, code) = (400, "InvalidConfigurationRequest".to_owned());
        let refusal = Fault::Code { status, code, message: "Access Denied for bucket: our-logs".to_owned() };
        let action = Rule { action: Some("ModifyLoadBalancerAttributes".to_owned()), ..Rule::every(refusal) };
        bed.aws.fault(Rule { params: Some("our-logs".to_owned()), ..action });
        let logs = [("access-log-enabled", "true"), ("access-log-s3-bucket-name", "our-logs")];
        let wanted = web(kind, &[&logs[..], &[("cross-zone-load-balancing-enabled", "true")]].concat());
        let error = process.ensure(CLUSTER, &wanted, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("our-logs"), "{kind}: {error}");
        let is_on = bed.aws.world(|world| {
            let network = world.elbv2.balancers.values().map(|one| {
                one.attributes.get("load_balancing.cross_zone.enabled").is_some_and(|value| value == "true")
            });
            network.chain(world.elb.balancers.values().map(|one| one.attributes.cross_zone)).all(|is_on| is_on)
        });
        assert!(is_on, "{kind}");
        bed.check();
    }
}

/// For years, AWS refused protocol and interval of network load balancers, even unchanged.
#[tokio::test]
async fn a_changed_health_check_is_sent_without_the_protocol_and_interval_that_stay() {
    let bed = Bed::start("");
    bed.ensure(&*bed.process().await, &web("nlb", &[])).await;
    for fixed in ["HealthCheckProtocol", "HealthCheckIntervalSeconds"] {
        let (status, code) = (400, "InvalidConfigurationRequest".to_owned());
        let refusal = Fault::Code { status, code, message: format!("You cannot change {fixed}") };
        let modify = Rule::every(refusal).on("elbv2", "ModifyTargetGroup");
        bed.aws.fault(Rule { params: Some(fixed.to_owned()), ..modify });
    }
    let changed = web("nlb", &[("healthcheck-healthy-threshold", "5")]);
    bed.ensure(&*bed.process().await, &changed).await;
    let set = |interval: Option<u16>| {
        bed.aws.world(|world| {
            let check = &mut world.elbv2.groups.values_mut().next().unwrap().settings.check;
            check.interval = interval.unwrap_or(check.interval);
            (check.interval, check.healthy)
        })
    };
    assert_eq!(set(None), (30, 5));
    // Somebody has changed it.
    set(Some(45));
    bed.aws.faults(Faults::clear);
    bed.ensure(&*bed.process().await, &changed).await;
    assert_eq!(set(None), (30, 5));
    bed.check();
}

/// AWS refuses the tag at a creation; an existing balancer works without it.
#[tokio::test]
async fn a_reserved_tag_stops_no_existing_network_balancer() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &web("nlb", &[])).await;
    let tagged = [("additional-resource-tags", "aws:owner=me"), ("cross-zone-load-balancing-enabled", "true")];
    bed.ensure(&*process, &web("nlb", &tagged)).await;
    bed.check();
}

/// "Not shown" is not "none".
#[tokio::test]
async fn a_network_balancer_that_is_shown_without_its_subnets_keeps_its_rules() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let web = service("web", &[("type", "nlb")], &[(80, 31080)], json!({"loadBalancerSourceRanges": ["10.9.0.0/16"]}));
    bed.ensure(&*process, &web).await;
    let rules = || bed.aws.world(|world| world.ec2.groups[&bed.network.node_group].ingress.clone());
    let before = rules();
    let subnets =
        bed.aws.world(|world| std::mem::take(&mut world.elbv2.balancers.values_mut().next().unwrap().subnets));
    process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err();
    assert_eq!(rules(), before);
    bed.aws.world(|world| world.elbv2.balancers.values_mut().next().unwrap().subnets = subnets);
    bed.ensure(&*process, &web).await;
    assert_eq!(rules(), before);
}

/// Which tags a balancer has is not known then.
#[tokio::test]
async fn without_the_permission_to_read_tags_those_of_the_annotation_are_added_once() {
    let bed = Bed::start("");
    bed.aws.fault(Rule { action: Some("DescribeTags".to_owned()), ..Rule::every(Fault::Deny) });
    let process = bed.process().await;
    bed.ensure(&*process, &web("clb", &[])).await;
    for value in ["team=web", "team=api"] {
        let tagged = web("clb", &[("additional-resource-tags", value)]);
        bed.ensure(&*process, &tagged).await;
        let tags = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().tags.clone());
        assert_eq!(tags.get("team").map(|team| format!("team={team}")).as_deref(), Some(value));
        let mark = bed.aws.mark();
        bed.ensure(&*process, &tagged).await;
        assert_eq!(bed.writes(mark), [""; 0]);
    }
    bed.check();
}
