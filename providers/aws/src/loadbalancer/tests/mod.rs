//! Reads, and their frequency.

mod replay;
pub(in crate::loadbalancer) mod scene;

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_kit::balancer::Engine;
use ccm_provider::{
    LoadBalancer, LoadBalancerExt as _, LoadBalancerIngress, Node, NodeRef, ServiceAction, ServicePort, ServiceWork,
};
use futures::future::join_all;

use super::*;
use crate::annotations::PREFIX;
use crate::client::elbv2::HealthCheck;
use crate::client::{Id, Tags};
use crate::node::fleet;
use crate::tests::env;
use crate::tests::world::{KEY, NODE_GROUP, World, group, id, owned};

fn balancers(world: &World) -> Balancers {
    let api = world.api();
    let zones = Arc::new(Zones::new(api.clone()));
    Balancers::new(api.clone(), fleet::new(api), zones, Cluster::default(), env())
}

fn world() -> World {
    World::default().launched(1)
}

/// Creates the balancer of a Service in another process.
async fn make(world: &World, service: &Service) {
    Engine::new(balancers(world)).ensure("kubernetes", service, &nodes()).await.unwrap();
    world.calls();
}

/// A Service with its balancer, and a new process.
async fn made(kind: &str) -> (World, Service, Balancers) {
    let (world, service) = (world(), service(1, kind));
    make(&world, &service).await;
    let balancers = balancers(&world);
    (world, service, balancers)
}

/// The same, after one sync of the process.
async fn synced(kind: &str) -> (World, Service, Balancers) {
    let (world, service, balancers) = made(kind).await;
    see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    world.calls();
    (world, service, balancers)
}

/// Creates the target group of a Service without its balancer.
async fn make_target_group(world: &World, service: &Service) {
    make(world, service).await;
    world.state(|state| {
        state.elbv2.listeners.clear();
        state.elbv2.balancers.clear();
        state.ec2.groups.get_mut(NODE_GROUP).unwrap().ingress.clear();
    });
}

/// Calls, sorted.
fn calls(world: &World) -> Vec<String> {
    let mut calls = world.calls();
    calls.sort();
    calls
}

/// Adds another group of the cluster.
fn add_group(world: &World, name: &str) -> &'static str {
    let id = "sg-00000000000000009";
    world.ec2(|ec2| ec2.groups.insert(id.to_owned(), group(name, owned())));
    id
}

/// Changes the tags of the balancers of both kinds.
fn change_tags(world: &World, change: impl Fn(&mut Tags)) {
    world.state(|state| {
        state.elb.balancers.values_mut().for_each(|balancer| change(&mut balancer.tags));
        state.elbv2.balancers.values_mut().for_each(|balancer| change(&mut balancer.tags));
    });
}

fn service(number: usize, kind: &str) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "shop".into();
    service.metadata.name = format!("web{number}").into();
    service.metadata.uid = format!("{number:04}aaaa-bbbb-cccc-dddd-eeeeffff0000").into();
    service.metadata.annotations = [(format!("{PREFIX}type"), kind.to_owned())].into();
    service.spec.kind = "LoadBalancer".to_owned();
    service.spec.ports = vec![ServicePort {
        name: "http".to_owned(),
        protocol: "TCP".to_owned(),
        port: 80,
        node_port: 30000 + i32::try_from(number).unwrap(),
        ..ServicePort::default()
    }];
    service
}

fn nodes() -> Vec<NodeRef> {
    let provider_id = Some(format!("aws:///us-west-2a/{}", id(1)).into());
    vec![Arc::new(Node { name: "node-1".into(), provider_id, ..Node::default() })]
}

fn work(service: &Service, action: ServiceAction) -> [ServiceWork; 1] {
    [ServiceWork { service: service.clone().into(), nodes: nodes().into(), action, namespace: None }]
}

fn desired(balancers: &Balancers, service: &Service, action: ServiceAction) -> Wanted {
    balancers.wanted("kubernetes", &work(service, action)).0.remove(0)
}

fn status_of(
    balancers: &Balancers,
    seen: Observation,
    service: &Service,
    action: ServiceAction,
) -> Option<LoadBalancerStatus> {
    let (observed, wanted, made) = (vec![seen], vec![desired(balancers, service, action)], Mutex::default());
    let left = balancers.plan(&observed, &wanted).unwrap();
    balancers.status(&Reached { observed: &observed, made: &made, wanted: &wanted, service, place: 0, left: &left })
}

async fn see(balancers: &Balancers, service: &Service, action: ServiceAction) -> Result<Observation, ProviderError> {
    let work = work(service, action);
    let (wanted, verdicts) = balancers.wanted("kubernetes", &work);
    verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(balancers.observe("kubernetes", &work, &wanted).await?.remove(0))
}

#[tokio::test(start_paused = true)]
async fn a_steady_sync_of_a_network_balancer_reads_at_most_seven_times() {
    let (world, service, balancers) = synced("nlb").await;
    see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    assert_eq!(
        calls(&world),
        [
            "DescribeListeners of 1",
            "DescribeLoadBalancerAttributes of 1",
            "DescribeLoadBalancers 1 IDs",
            "DescribeTargetGroups of 1",
            "DescribeTargetHealth",
        ]
    );
    // An hour later all shared reads are outdated, too.
    tokio::time::advance(Duration::from_secs(4000)).await;
    see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    let later = world.calls();
    assert!(later.iter().all(|call| call != "DescribeSecurityGroups"), "the whole account: {later:?}");
    assert!(later.contains(&"DescribeSecurityGroups vpc-id=1 tag-key=1".to_owned()), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn a_steady_sync_of_a_classic_balancer_reads_at_most_five_times() {
    let (world, service, balancers) = synced("").await;
    see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    assert_eq!(calls(&world), ["DescribeLoadBalancerAttributes classic", "DescribeLoadBalancers classic 1 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_25_network_balancers_cost_at_most_five_reads_each() {
    let world = world();
    let services: Vec<Service> = (0..25).map(|number| service(number, "nlb")).collect();
    for service in &services {
        make(&world, service).await;
    }
    let balancers = balancers(&world);
    let seen = join_all(services.iter().map(|service| see(&balancers, service, ServiceAction::Ensure))).await;
    assert!(seen.into_iter().all(|seen| seen.unwrap().observed.network.is_some()));
    let calls = world.calls();
    assert!(calls.len() <= 25 * 5, "{} calls", calls.len());
    let of = |name: &str| calls.iter().filter(|call| call.starts_with(name)).count();
    assert_eq!(of("DescribeLoadBalancers"), 2);
    assert_eq!(of("DescribeTags"), 3);
    assert_eq!((of("DescribeSecurityGroups"), of("DescribeSubnets"), of("DescribeInstances")), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn services_one_by_one_share_calls_for_tags() {
    let world = world();
    let services: Vec<Service> = (0..25).map(|number| service(number, "nlb")).collect();
    for service in &services {
        make(&world, service).await;
    }
    let balancers = balancers(&world);
    for service in &services {
        assert!(see(&balancers, service, ServiceAction::Ensure).await.unwrap().observed.network.is_some());
    }
    let calls = world.calls();
    // The first is read before the list of target groups; then twenty ARNs are those of ten Services.
    assert!(calls.iter().filter(|call| call.starts_with("DescribeTags")).count() <= 1 + 3, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_there_says_nothing_about_the_others() {
    let world = world();
    let (old, new) = (service(1, "nlb"), service(2, "nlb"));
    make(&world, &old).await;
    let balancers = balancers(&world);
    let (seen_old, seen_new) =
        futures::join!(see(&balancers, &old, ServiceAction::Ensure), see(&balancers, &new, ServiceAction::Ensure));
    assert!(seen_old.unwrap().observed.network.is_some());
    assert!(seen_new.unwrap().observed.network.is_none());
}

/// Each deletion asks which health checks need its rules.
#[tokio::test(start_paused = true)]
async fn deletions_ask_for_the_tags_of_the_balancers_of_others_once_a_minute() {
    let world = world();
    make(&world, &service(99, "nlb")).await;
    world.state(|state| {
        let like = state.elbv2.balancers.pop_first().unwrap().1;
        for number in 0..40 {
            let mut other = like.clone();
            other.name = format!("other-{number}");
            other.arn = like.arn.replace(&like.name, &other.name);
            other.tags = [("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())].into();
            state.elbv2.balancers.insert(other.arn.clone(), other);
        }
    });
    let services: Vec<Service> = (0..5).map(|number| service(number, "nlb")).collect();
    for service in &services {
        make(&world, service).await;
    }
    let balancers = Engine::new(balancers(&world));
    for service in &services {
        balancers.ensure_deleted("kubernetes", service).await.unwrap();
    }
    let calls = world.calls();
    let asked = calls.iter().filter(|call| *call == "DescribeTags 20 IDs").count();
    assert_eq!(asked, 2, "{calls:?}");
}

/// An account may have hundreds of unrelated balancers.
#[tokio::test(start_paused = true)]
async fn new_services_beside_old_ones_list_no_whole_account() {
    let world = world();
    let services: Vec<Service> = (0..6).map(|number| service(number, if number < 3 { "nlb" } else { "" })).collect();
    make(&world, &services[0]).await;
    make(&world, &services[3]).await;
    let balancers = balancers(&world);
    let seen = join_all(services.iter().map(|service| see(&balancers, service, ServiceAction::Ensure))).await;
    let there = |seen: Result<Observation, _>| {
        let Observed { network, classic, .. } = seen.unwrap().observed;
        network.is_some() || classic.is_some()
    };
    assert_eq!(seen.into_iter().map(there).collect::<Vec<_>>(), [true, false, false, true, false, false]);
    let calls = world.calls();
    let lists = ["DescribeLoadBalancers", "DescribeLoadBalancers classic"];
    assert!(calls.iter().all(|call| !lists.contains(&&**call)), "{calls:?}");
}

/// The core first checks whether there is anything to delete.
#[tokio::test(start_paused = true)]
async fn an_attempt_of_a_deletion_reads_once() {
    for kind in ["nlb", ""] {
        let (world, service, balancers) = synced(kind).await;
        let balancers = Engine::new(balancers);
        balancers.get("kubernetes", &service).await.unwrap();
        let first = world.calls();
        world.deny("elasticloadbalancing:DeleteLoadBalancer");
        balancers.ensure_deleted("kubernetes", &service).await.unwrap_err();
        let again = calls(&world);
        assert!(!again.iter().any(|call| call.starts_with("DescribeLoadBalancers")), "{kind}: {again:?}");
        // The next attempt reads again.
        balancers.get("kubernetes", &service).await.unwrap();
        assert!(calls(&world).len() >= 4, "{kind}");
        let lists = first.iter().filter(|call| *call == "DescribeTargetGroups").count();
        assert_eq!(lists, 1, "{kind}: {first:?}");
        if kind.is_empty() {
            tokio::time::advance(Duration::from_secs(60)).await;
            see(balancers.cloud(), &service, ServiceAction::Delete).await.unwrap();
            let later = world.calls();
            assert!(later.iter().all(|call| call != "DescribeTargetGroups"), "{later:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_known_as_such_and_never_an_absence() {
    let service = service(1, "nlb");
    for operation in [
        "DescribeLoadBalancers",
        "DescribeListeners",
        "DescribeTargetGroups",
        "DescribeTargetHealth",
        "DescribeTags",
        "DescribeSecurityGroups",
        "DescribeSubnets",
        "DescribeInstances",
    ] {
        let world = world();
        make(&world, &service).await;
        world.fail(operation, "InternalFailure", 99);
        match see(&balancers(&world), &service, ServiceAction::Ensure).await {
            Ok(seen) => {
                let Observed { unread, unread_groups, .. } = seen.observed;
                assert!(unread.or(unread_groups).is_some(), "{operation}");
            }
            Err(_) => assert_eq!(operation, "DescribeLoadBalancers"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_looks_for_both_kinds_and_finds_what_was_left() {
    let world = world();
    let service = service(1, "nlb");
    make_target_group(&world, &service).await;
    add_group(&world, &format!("k8s-elb-{}", service.default_load_balancer_name()));
    let balancers = balancers(&world);
    let seen = see(&balancers, &service, ServiceAction::Delete).await.unwrap();
    assert_eq!(seen.observed.unattached_target_groups.len(), 1);
    let calls = world.calls();
    assert!(calls.contains(&"DescribeLoadBalancers classic 1 IDs".to_owned()), "{calls:?}");
    assert!(calls.contains(&"DescribeLoadBalancers 1 IDs".to_owned()), "{calls:?}");
    // The core first checks whether there is anything to delete: there is.
    let found = Engine::new(balancers).get("kubernetes", &service).await.unwrap();
    assert_eq!(found, Some(LoadBalancerStatus::default()));
}

#[tokio::test(start_paused = true)]
async fn a_target_group_that_only_the_list_still_shows_is_gone() {
    let world = world();
    let service = service(1, "nlb");
    make_target_group(&world, &service).await;
    world.fail("DescribeTags", "TargetGroupNotFound", 9);
    let balancers = balancers(&world);
    let seen = see(&balancers, &service, ServiceAction::Delete).await.unwrap();
    let plan = balancers.plan(&vec![seen], &vec![desired(&balancers, &service, ServiceAction::Delete)]).unwrap();
    assert!(
        plan.steps.is_empty() && plan.findings.is_empty(),
        "neither a step nor a warning about a group that is not ours"
    );
}

/// Such a group is in no use between its creation and that of its listener, and again when its balancer is deleted.
#[tokio::test(start_paused = true)]
async fn a_target_group_of_a_service_whose_name_is_abbreviated_to_the_same_is_not_a_leftover() {
    let named = |number, name: &str| {
        let mut service = service(number, "nlb");
        service.metadata.name = name.into();
        service
    };
    let (service, other) = (named(1, "frontend-a"), named(2, "frontend-b"));
    let world = world();
    make_target_group(&world, &other).await;
    for action in [ServiceAction::Ensure, ServiceAction::Delete] {
        let balancers = balancers(&world);
        let seen = see(&balancers, &service, action).await.unwrap();
        let plan = balancers.plan(&vec![seen], &vec![desired(&balancers, &service, action)]).unwrap();
        assert_eq!(plan.findings, [], "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_left_is_nothing_to_delete() {
    let world = world();
    let (service, other) = (service(1, "nlb"), service(2, "nlb"));
    make(&world, &other).await;
    let balancers = balancers(&world);
    let seen = see(&balancers, &service, ServiceAction::Delete).await.unwrap();
    assert_eq!(status_of(&balancers, seen, &service, ServiceAction::Delete), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_read_again() {
    let (world, service, balancers) = synced("nlb").await;
    tokio::time::advance(Duration::from_millis(5)).await;
    let group = Id::from(NODE_GROUP);
    let permissions = Vec::new();
    let write = Ec2Write::AuthorizeSecurityGroupIngress { group, permissions };
    balancers.cloud().unwrap().reads.wrote(&Write::Ec2(write));
    world.calls();
    see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    assert!(calls(&world).contains(&"DescribeSecurityGroups vpc-id=1 tag-key=1".to_owned()));
}

/// A success must not hide a recent manual change.
#[tokio::test(start_paused = true)]
async fn a_sync_sees_what_was_changed_by_hand_since_the_last_one() {
    for kind in ["nlb", ""] {
        let (world, service, balancers) = synced(kind).await;
        let by_hand = add_group(&world, "by-hand");
        world.calls();
        tokio::time::advance(Duration::from_secs(3)).await;
        // Nodes are added and removed in numbers, and no group changes.
        see(&balancers, &service, ServiceAction::UpdateHosts).await.unwrap();
        assert!(calls(&world).iter().all(|call| !call.starts_with("DescribeS")), "{kind}");
        let seen = see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
        assert!(seen.observed.groups.contains_key(by_hand), "{kind}");
        assert!(kind == "nlb" || calls(&world).contains(&"DescribeSubnets vpc-id=1".to_owned()));
    }
}

/// The advice of the error takes effect immediately; a balancer that loses the tag is left alone within a minute.
#[tokio::test(start_paused = true)]
async fn a_mark_that_comes_or_goes_counts() {
    for kind in ["nlb", ""] {
        let (world, service, balancers) = made(kind).await;
        let is_ours = async |action| {
            let Observed { network, classic, .. } = see(&balancers, &service, action).await.unwrap().observed;
            let tags = network.map(|network| network.tags).or(classic.map(|classic| classic.tags)).unwrap();
            claim::balancer(&tags, &env()) == Claim::Own
        };
        change_tags(&world, Tags::clear);
        assert!(!is_ours(ServiceAction::Ensure).await);
        change_tags(&world, |tags| drop(tags.insert(KEY.to_owned(), "owned".to_owned())));
        assert!(is_ours(ServiceAction::Ensure).await, "{kind}");
        change_tags(&world, Tags::clear);
        assert!(!is_ours(ServiceAction::Delete).await, "{kind}: a deletion asks");
        change_tags(&world, |tags| drop(tags.insert(KEY.to_owned(), "owned".to_owned())));
        assert!(is_ours(ServiceAction::Ensure).await, "{kind}");
        change_tags(&world, Tags::clear);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!is_ours(ServiceAction::Ensure).await, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_no_instances_cost_nothing() {
    let (world, service, balancers) = made("nlb").await;
    let mut all = nodes();
    for id in ["aws:///us-west-2a/x/fargate-10.0.0.1", "aws:///us-west-2a/vol-1", "gce://p/z/n"] {
        all.push(Arc::new(Node { name: id.into(), provider_id: Some(id.into()), ..Node::default() }));
    }
    for _ in 0..2 {
        let item = ServiceWork {
            service: service.clone().into(),
            nodes: all.clone().into(),
            action: ServiceAction::Ensure,
            namespace: None,
        };
        let work = [item];
        let (wanted, _) = balancers.wanted("kubernetes", &work);
        balancers.observe("kubernetes", &work, &wanted).await.unwrap();
    }
    let calls = world.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("DescribeInstances")).count(), 1, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_services_need_no_write() {
    let world = world();
    let provider = Engine::new(balancers(&world));
    for kind in ["external", "nlb-ip"] {
        let theirs = service(1, kind);
        assert!(provider.ensure("kubernetes", &theirs, &[]).await.unwrap_err().is_implemented_elsewhere());
        assert!(provider.update("kubernetes", &theirs, &[]).await.unwrap_err().is_implemented_elsewhere());
        assert!(provider.get("kubernetes", &theirs).await.unwrap().is_none());
        let work = ServiceWork::new(&theirs, &[], ServiceAction::Ensure);
        assert!(provider.observe("kubernetes", &work).await.unwrap().is_null());
        provider.ensure_deleted("kubernetes", &theirs).await.unwrap();
    }
    // Whether its name has a balancer of ours.
    assert!(calls(&world).iter().all(|call| call.starts_with("DescribeLoadBalancers")), "{:?}", calls(&world));
    let mut changed = service(2, "nlb");
    let hostname = "x.us-east-1.elb.amazonaws.com".to_owned();
    changed.status.load_balancer.ingress = vec![LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() }];
    assert!(provider.ensure("kubernetes", &changed, &[]).await.is_err());
    // It has a status, so its nodes are followed.
    assert!(calls(&world).iter().all(|call| call.starts_with("Describe")));
    let mut ipv6 = service(3, "nlb");
    ipv6.spec.load_balancer_source_ranges = Some(vec!["::/0".to_owned()]);
    assert!(provider.ensure("kubernetes", &ipv6, &[]).await.is_err());
    // A load balancer that exists would be closed.
    assert!(calls(&world).iter().all(|call| call.starts_with("Describe")));
}

#[tokio::test(start_paused = true)]
async fn an_impaired_balancer_keeps_its_hostname() {
    let (world, service, balancers) = made("nlb").await;
    world.state(|state| state.elbv2.balancers.values_mut().for_each(|one| one.state = "active_impaired".to_owned()));
    let seen = see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    let status = status_of(&balancers, seen, &service, ServiceAction::Ensure).unwrap();
    assert!(status.ingress[0].hostname.ends_with(".elb.us-west-2.amazonaws.com"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_the_other_kind_with_our_name_is_reported() {
    let world = world();
    let service = service(1, "nlb");
    make(&world, &self::service(1, "")).await;
    let balancers = balancers(&world);
    let desired = desired(&balancers, &service, ServiceAction::Ensure);
    let seen = see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    assert!(of_other_kind(&desired, &seen.observed).unwrap().message.contains("of the other kind exists too"));
}

fn step(write: crate::client::write::ElbV2Write) -> Step {
    Step::new(ccm_provider::Verb::Delete, "Thing", "thing", "the test wants it", Write::ElbV2(write))
}

#[tokio::test(start_paused = true)]
async fn the_guard_refuses_to_change_what_lacks_our_mark() {
    use crate::client::write::{ElbV2Write, ListenerSettings};
    let (_world, service, balancers) = made("nlb").await;
    let desired = desired(&balancers, &service, ServiceAction::Delete);
    let mut seen = see(&balancers, &service, ServiceAction::Delete).await.unwrap();
    let network = seen.observed.network.clone().unwrap();
    let (balancer, target_group) = (network.balancer.arn.clone(), network.target_groups[0].group.arn.clone());
    let listener = ListenerSettings {
        port: 80,
        protocol: "TCP".to_owned(),
        certificate: None,
        ssl_policy: None,
        target_group: target_group.clone().into(),
    };
    let (tags, attributes, health_check) = (Tags::new(), BTreeMap::new(), HealthCheck::default());
    let (known, group) = (Id::from(balancer.clone()), Id::from(target_group.clone()));
    let steps = [
        ElbV2Write::DeleteLoadBalancer { balancer: balancer.clone() },
        ElbV2Write::SetSecurityGroups { balancer, security_groups: Vec::new() },
        ElbV2Write::ModifyLoadBalancerAttributes { balancer: known.clone(), attributes: attributes.clone() },
        ElbV2Write::CreateListener { balancer: known, listener: listener.clone(), tags },
        ElbV2Write::ModifyListener { listener: "arn:listener".to_owned(), desired: listener },
        ElbV2Write::DeleteListener { listener: "arn:listener".to_owned() },
        ElbV2Write::DeleteTargetGroup { target_group: target_group.clone() },
        ElbV2Write::ModifyTargetGroup { target_group: target_group.clone(), health_check, pace: true },
        ElbV2Write::ModifyTargetGroupAttributes { target_group: group.clone(), attributes },
        ElbV2Write::RegisterTargets { target_group: group, targets: Vec::new() },
        ElbV2Write::DeregisterTargets { target_group, targets: Vec::new() },
    ]
    .map(step);
    let refused = |seen: &Observation, step: &Step| {
        let refused = guard::guard(&desired, &seen.observed, &balancers.env, std::slice::from_ref(step));
        refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error.to_string()))
    };
    assert!(steps.iter().all(|step| refused(&seen, step).is_ok()));
    let observed = seen.observed.network.as_mut().unwrap();
    observed.tags = claim::Marks::Read(Tags::new());
    observed.target_groups[0].tags = claim::Marks::Read(Tags::new());
    for step in &steps {
        assert_eq!(
            refused(&seen, step).unwrap_err(),
            "refused to delete Thing thing: it is not tagged as this cluster's; if it is, tag it kubernetes.io/cluster/c1 = \
             owned, otherwise remove it by hand"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_guard_refuses_to_take_the_last_target_while_nodes_are_wanted() {
    use crate::client::elbv2::{Target, TargetHealth};
    use crate::client::write::ElbV2Write;
    let (_world, service, balancers) = made("nlb").await;
    let desired = desired(&balancers, &service, ServiceAction::Ensure);
    let mut seen = see(&balancers, &service, ServiceAction::Ensure).await.unwrap();
    let group = &mut seen.observed.network.as_mut().unwrap().target_groups[0];
    let target = Target { id: "i-00000009".to_owned(), port: 30001 };
    group.targets.clear();
    group.targets.push(TargetHealth { target: target.clone(), state: "healthy".to_owned(), reason: String::new() });
    let arn = group.group.arn.clone();
    let leave = step(ElbV2Write::DeregisterTargets { target_group: arn.clone(), targets: vec![target.clone()] });
    let join = step(ElbV2Write::RegisterTargets { target_group: arn.into(), targets: vec![target] });
    let guard = |steps: &[Step]| guard::guard(&desired, &seen.observed, &balancers.env, steps);
    let (_, error) = guard(std::slice::from_ref(&leave)).remove(0);
    assert!(error.to_string().contains("no target would be left although 1 nodes are wanted"), "{error}");
    assert!(guard(&[leave, join]).is_empty());
}
