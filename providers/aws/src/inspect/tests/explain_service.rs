use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{Inspect as _, Service};

use super::bed::{Bed, CLUSTER, service};
use super::{has, lines};
use crate::annotations::PREFIX;
use crate::client::elbv2::Which;
use crate::tests::world::NODE_GROUP;

async fn explain(bed: &Bed, service: &Service) -> String {
    lines(&bed.inspector().explain_service(CLUSTER, service).await.unwrap())
}

fn annotate(service: &mut Service, suffix: &str, value: &str) {
    service.metadata.annotations.insert(format!("{PREFIX}{suffix}"), value.to_owned());
}

/// Sets the health of the targets, in order.
fn health(bed: &Bed, states: [(&'static str, &'static str); 2]) {
    bed.world.edit(move |answer| {
        let state = |answer: String, (state, reason): (&str, &str)| {
            answer.replacen("<State>healthy</State>", &format!("<State> {state}</State><Reason>{reason}</Reason>"), 1)
        };
        states.into_iter().fold(answer.to_owned(), state).replace("<State> ", "<State>")
    });
}

#[tokio::test(start_paused = true)]
async fn a_balancer_in_order_of_either_kind_is_reported_link_by_link() {
    let bed = Bed::new();
    let (classic, network) = bed.both().await;
    let facts = explain(&bed, &classic).await;
    assert!(!facts.contains("BAD") && !facts.contains("waiting"), "{facts}");
    has(
        &facts,
        &[
            "good [desired state] a classic load balancer a006f6c64",
            "internet-facing: tcp 80 to node port 30080",
            "classic, internet-facing, a006f6c64",
            "good [listener TCP 80] to TCP on node port 30080",
            "good [instances] 2 registered, health check TCP:30080",
            "rules for clients: 2",
            &format!("good [security group {NODE_GROUP}] allows the load balancer, rules: 1"),
            "good [plan] nothing is left to do",
        ],
    );
    let facts = explain(&bed, &network).await;
    assert!(!facts.contains("BAD") && !facts.contains("waiting"), "{facts}");
    has(
        &facts,
        &[
            "good [desired state] a network load balancer a00776562",
            "good [listener TCP 80] to target group k8s-shop-web-",
            "2 healthy",
            &format!("good [security group {NODE_GROUP}] allows the load balancer, rules: "),
            "good [plan] nothing is left to do",
        ],
    );
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_yet_is_waited_for_with_the_writes_that_are_left() {
    let bed = Bed::new();
    let facts = explain(&bed, &service("web", "nlb")).await;
    has(
        &facts,
        &["waiting [load balancer a00776562", "AWS has none with this name yet", "waiting [plan] writes left: "],
    );
    assert!(!facts.contains("BAD"), "{facts}");
}

#[tokio::test(start_paused = true)]
async fn targets_are_reported_with_what_their_health_means() {
    let bed = Bed::new();
    let mut web = bed.made("web", "nlb").await;
    for (states, summary) in [
        (
            [("healthy", ""), ("unhealthy", "Target.FailedHealthChecks")],
            &[
                "BAD [target group k8s-shop-web-",
                "1 unhealthy (Target.FailedHealthChecks) i-00000000000000002",
                "node port answers",
            ][..],
        ),
        ([("initial", "Elb.RegistrationInProgress"), ("healthy", "")], &["waiting [target group", "being registered"]),
        ([("unused", "Target.NotInUse"), ("healthy", "")], &["BAD [target group", "not in the zone"]),
        ([("unused", "Target.InvalidState"), ("healthy", "")], &["BAD [target group", "stopped or terminated"]),
        (
            [("unhealthy", "Target.Timeout"), ("unhealthy", "Target.Timeout")],
            &["2 unhealthy (Target.Timeout)", "times out"],
        ),
    ] {
        health(&bed, states);
        has(&explain(&bed, &web).await, summary);
    }
    // With the policy Local most nodes fail by design, but not all.
    web.spec.external_traffic_policy = "Local".to_owned();
    health(&bed, [("healthy", ""), ("unhealthy", "Target.FailedHealthChecks")]);
    let group = super::super::health::of_group;
    let of = async |local| {
        let api = bed.world.api();
        let found = api.target_groups(&Which::All).await.unwrap().remove(0);
        let targets = api.target_health(&found.arn).await.unwrap();
        let tags = crate::loadbalancer::claim::Marks::Read(crate::client::Tags::new());
        let group_seen = crate::loadbalancer::observed::TargetGroup {
            group: found,
            attributes: None,
            targets,
            tags,
            was_behind: false,
        };
        lines(&[group(&group_seen, local)])
    };
    has(&of(true).await, &["good [target group", "expected with externalTrafficPolicy Local"]);
    health(&bed, [("unhealthy", "Target.FailedHealthChecks"), ("unhealthy", "Target.FailedHealthChecks")]);
    has(&of(true).await, &["BAD [target group"]);
    bed.world.state(|state| state.elbv2.groups.values_mut().for_each(|group| group.targets.clear()));
    has(&explain(&bed, &web).await, &["BAD [target group", "no node is registered"]);
}

#[tokio::test(start_paused = true)]
async fn each_state_of_a_network_balancer_says_what_to_do() {
    let bed = Bed::new();
    let web = bed.made("web", "nlb").await;
    for (state, summary) in [
        ("provisioning", "provisioning, which takes some minutes"),
        ("active_impaired", "free addresses in its subnets"),
        ("failed", "delete the Service and create it again"),
    ] {
        bed.world.state(|world| world.elbv2.balancers.values_mut().for_each(|one| one.state = state.to_owned()));
        has(&explain(&bed, &web).await, &[summary]);
    }
    bed.world.edit(|answer| answer.replace("<Type>network</Type>", "<Type>application</Type>"));
    has(&explain(&bed, &web).await, &["BAD [load balancer", "of type application"]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_without_our_mark_is_bad_and_so_is_its_plan() {
    let bed = Bed::new();
    let (classic, network) = bed.both().await;
    bed.tags(|tags| drop(tags.remove(crate::tests::world::KEY)));
    for service in [&classic, &network] {
        has(
            &explain(&bed, service).await,
            &["lacks the tag kubernetes.io/cluster/c1", "tag it kubernetes.io/cluster/c1 = owned", "BAD [plan]"],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_annotation_is_named_and_the_balancer_is_explained() {
    let bed = Bed::new();
    let mut web = bed.made("web", "nlb").await;
    annotate(&mut web, "healthcheck-interval", "often");
    let facts = explain(&bed, &web).await;
    has(&facts, &["BAD [desired state]", "healthcheck-interval", "often", "=> change the object", "2 healthy"]);
    // Without a balancer there is no more to report.
    let mut new = service("new", "nlb");
    annotate(&mut new, "healthcheck-interval", "often");
    assert_eq!(explain(&bed, &new).await.lines().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_others_serve_is_left_to_them() {
    let bed = Bed::new();
    // The object that blocks the Service is elsewhere, and the message must name the place.
    let mut web = service("web", "external");
    has(
        &explain(&bed, &web).await,
        &["waiting [desired state] the annotation …-type leaves the Service to", "check that it runs"],
    );
    web.status.load_balancer.ingress =
        vec![ccm_provider::LoadBalancerIngress { hostname: "a".to_owned(), ..Default::default() }];
    has(&explain(&bed, &web).await, &["good [desired state] the annotation …-type leaves the Service to"]);
    let mut class = service("web", "nlb");
    class.spec.load_balancer_class = Some("example.com/x".to_owned());
    has(&explain(&bed, &class).await, &["good [desired state] loadBalancerClass \"example.com/x\""]);
    // A leftover finalizer is no reason to delete anything.
    class.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.to_owned()];
    assert!(!explain(&bed, &class).await.contains("delete"));
    // Objects created before the annotation changed remain.
    let mut left = bed.made("web", "nlb").await;
    annotate(&mut left, "type", "external");
    has(&explain(&bed, &left).await, &["BAD [previous load balancer]", "stays until the Service is deleted"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_wants_none_any_more_shows_what_goes() {
    let bed = Bed::new();
    let mut web = bed.made("web", "nlb").await;
    web.spec.kind = "ClusterIP".to_owned();
    web.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.to_owned()];
    has(&explain(&bed, &web).await, &["good [desired state] no load balancer", "waiting [plan] writes left: "]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_lets_nobody_in_and_one_that_is_left_behind_are_reported() {
    let bed = Bed::new();
    let old = bed.made("old", "").await;
    bed.world.ec2(|ec2| {
        ec2.groups.values_mut().filter(|group| group.name != "nodes").for_each(|group| group.ingress.clear());
    });
    has(&explain(&bed, &old).await, &["BAD [security group sg-", "no rule allows clients"]);
    // A target group left by an interrupted attempt.
    let web = bed.made("web", "nlb").await;
    bed.world.state(|state| {
        let mut left = state.elbv2.groups.values().next().unwrap().clone();
        let name = format!("{}0123456789", &left.name[..left.name.len() - 10]);
        (left.arn, left.name) = (left.arn.replace(&left.name, &name), name);
        left.targets.clear();
        state.elbv2.groups.insert(left.arn.clone(), left);
    });
    has(&explain(&bed, &web).await, &["waiting [target group k8s-shop-web-0123456789] left over"]);
}

#[tokio::test(start_paused = true)]
async fn drift_is_reported() {
    let bed = Bed::new();
    let mut web = bed.made("web", "nlb").await;
    web.spec.ports[0].port = 81;
    web.status.load_balancer = Default::default();
    has(
        &explain(&bed, &web).await,
        &["waiting [plan] writes left: ", "the status of the Service does not show its name yet"],
    );
}
