//! Policies of the field: who swaps the image keeps the policy. A permission that the Go program does not need is
//! missing in most of them. `policies.txt` has what works with each.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_cloudsim::aws::ec2::model::Volume;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{
    Aspects, Claims, CloudProvider, LoadBalancer, LoadBalancerExt as _, Lookup, NewRoute, Route, Service,
    ServiceAction, Severity,
};
use ccm_provider_contract::denied::{self, Denied};
use serde_json::json;

use crate::bed::{Bed, CERTIFICATE, CLUSTER, USER_GROUP, service, unknown};
use crate::instances::leading;
use crate::leader::watched;
use crate::policies;

const DESCRIBE_TAGS: &str = "elasticloadbalancing:DescribeTags";

/// Actions of `docs/prerequisites.md` of cloud-provider-aws.
const UPSTREAM: &[&str] = &[
    "ec2:DescribeInstances",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "ec2:DescribeAvailabilityZones",
    "ec2:CreateSecurityGroup",
    "ec2:CreateTags",
    "ec2:ModifyInstanceAttribute",
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:CreateRoute",
    "ec2:DeleteRoute",
    "ec2:DeleteSecurityGroup",
    "ec2:RevokeSecurityGroupIngress",
    "ec2:DescribeInstanceTopology",
    "elasticloadbalancing:AddTags",
    "elasticloadbalancing:AttachLoadBalancerToSubnets",
    "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer",
    "elasticloadbalancing:CreateLoadBalancer",
    "elasticloadbalancing:CreateLoadBalancerPolicy",
    "elasticloadbalancing:CreateLoadBalancerListeners",
    "elasticloadbalancing:ConfigureHealthCheck",
    "elasticloadbalancing:DeleteLoadBalancer",
    "elasticloadbalancing:DeleteLoadBalancerListeners",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DetachLoadBalancerFromSubnets",
    "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
    "elasticloadbalancing:ModifyLoadBalancerAttributes",
    "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
    "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
    "elasticloadbalancing:CreateListener",
    "elasticloadbalancing:CreateTargetGroup",
    "elasticloadbalancing:DeleteListener",
    "elasticloadbalancing:DeleteTargetGroup",
    "elasticloadbalancing:DescribeListeners",
    "elasticloadbalancing:DescribeLoadBalancerPolicies",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetHealth",
    "elasticloadbalancing:ModifyListener",
    "elasticloadbalancing:ModifyTargetGroup",
    "elasticloadbalancing:RegisterTargets",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
    "elasticloadbalancing:SetSecurityGroups",
];

/// The role of the control plane of Cluster API Provider AWS: an older copy of upstream's.
fn cluster_api() -> BTreeSet<&'static str> {
    let lacks =
        ["ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTopology", "elasticloadbalancing:SetSecurityGroups"];
    UPSTREAM.iter().copied().filter(|action| !lacks.contains(action)).collect()
}

/// kOps (`AddCCMPermissions`), with routes and without the legacy permissions, before it granted changes of listeners.
fn former_kops() -> BTreeSet<&'static str> {
    let lacks = ["ec2:DescribeVolumes", "elasticloadbalancing:DeleteListener", "elasticloadbalancing:ModifyListener"];
    cluster_api().into_iter().filter(|action| !lacks.contains(action)).collect()
}

/// AWS's managed policy `ROSAKubeControllerPolicy`.
fn rosa() -> BTreeSet<&'static str> {
    let lacks = [
        "ec2:DescribeVolumes",
        "ec2:DescribeInstanceTopology",
        "ec2:ModifyInstanceAttribute",
        "ec2:CreateRoute",
        "ec2:DeleteRoute",
        "elasticloadbalancing:DeregisterTargets",
        "elasticloadbalancing:SetSecurityGroups",
    ];
    UPSTREAM.iter().copied().filter(|action| !lacks.contains(action)).collect()
}

/// The CredentialsRequest of OpenShift's cluster-cloud-controller-manager-operator.
fn openshift() -> BTreeSet<&'static str> {
    let reads = ["ec2:DescribeVpcs", DESCRIBE_TAGS, "elasticloadbalancing:DescribeTargetGroupAttributes"];
    let lacks = ["ec2:CreateRoute", "ec2:DeleteRoute"];
    UPSTREAM.iter().copied().filter(|action| !lacks.contains(action)).chain(reads).collect()
}

/// A policy, and the roles in Kubernetes that it is used with.
struct Role {
    name: &'static str,
    granted: BTreeSet<&'static str>,
    with: &'static [&'static str],
}

const CHART: &str = "the chart of cloud-provider-aws, and KubeOne on AWS";
const EXAMPLE: &str = "the example of cloud-provider-aws";
const SUPERSET: &str = "the example of cloud-provider-aws with its overlay superset-role";
const KOPS: &str = "kOps on AWS";

fn roles() -> [Role; 6] {
    let upstream = UPSTREAM.iter().copied().collect();
    let kops = policies::KOPS.iter().copied().flatten().copied().chain(["ec2:CreateRoute", "ec2:DeleteRoute"]);
    [
        Role { name: "upstream's (`docs/prerequisites.md`)", granted: upstream, with: &[CHART, EXAMPLE, SUPERSET] },
        Role { name: "Cluster API's (control plane)", granted: cluster_api(), with: &[CHART, EXAMPLE, SUPERSET] },
        Role { name: "kOps' (`AddCCMPermissions`), August 2026", granted: kops.collect(), with: &[KOPS] },
        Role { name: "kOps', before changes of listeners were in it", granted: former_kops(), with: &[KOPS] },
        Role { name: "OpenShift's (CredentialsRequest)", granted: openshift(), with: &["OpenShift"] },
        Role { name: "ROSA's (`ROSAKubeControllerPolicy`)", granted: rosa(), with: &["OpenShift"] },
    ]
}

/// Refuses every action of this program that is not granted.
fn grant_only(bed: &Bed, granted: &BTreeSet<&str>, refusal: &Fault) {
    for (_, document) in ccm_provider_aws::iam_policies() {
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let statements = document["Statement"].as_array().unwrap().iter();
        for action in statements.flat_map(|statement| statement["Action"].as_array().unwrap()) {
            refuse(bed, action.as_str().filter(|action| !granted.contains(action)), refusal);
        }
    }
}

fn refuse(bed: &Bed, permission: Option<&str>, refusal: &Fault) {
    if let Some((_, action)) = permission.and_then(|permission| permission.split_once(':')) {
        bed.aws.fault(Rule { action: Some(action.to_owned()), ..Rule::every(refusal.clone()) });
    }
}

fn deny(bed: &Bed, permission: Option<&str>) {
    refuse(bed, permission, &Fault::Deny);
}

fn of_kind(name: &str, kind: &str) -> Service {
    service(name, &[("type", kind)], &[(80, 31080)], json!({}))
}

/// Hosts of all balancers.
fn hosts(bed: &Bed) -> Vec<usize> {
    let mut hosts = bed.hosts();
    hosts.sort_unstable();
    hosts
}

const LISTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/policies.txt");
const KINDS: [&str; 2] = ["nlb", "clb"];
/// The destination of a route to the last node that is there before.
const MADE: &str = "10.200.2.0/24";

/// Returns the permissions that the Warnings name.
async fn services(bed: &mut Bed, role: &Role, refused: &mut Denied) -> BTreeSet<String> {
    let (process, cluster) = watched(bed).await;
    let mark = bed.aws.mark();
    for kind in KINDS {
        bed.ensure(&*process, &of_kind(kind, kind)).await;
    }
    assert_eq!(bed.writes(mark), [""; 0], "{}: what exists is right", role.name);
    for (work, port, node_port) in [("another node port", 80, 31090), ("another port", 8080, 31080)] {
        for kind in KINDS {
            let moved = service(&format!("ports-{kind}"), &[("type", kind)], &[(port, node_port)], json!({}));
            let answer = bed.work(&*process, &moved, ServiceAction::Ensure).await;
            refused.note(&format!("{work} {kind}"), answer);
        }
    }
    bed.add_nodes(1);
    for work in ["joining", "leaving"] {
        for kind in KINDS {
            let answer = process.update(CLUSTER, &of_kind(kind, kind), &bed.nodes).await;
            refused.note(&format!("{work} node {kind}"), answer);
        }
        let left = refused.0.keys().filter(|it| it.starts_with("leaving")).count();
        let with_all = hosts(bed).into_iter().filter(|hosts| *hosts == 4).count();
        assert_eq!(with_all, if work == "joining" { 2 } else { left }, "{}: {work}", role.name);
        bed.nodes.truncate(3);
    }
    for kind in KINDS {
        let new = of_kind(&format!("new-{kind}"), kind);
        refused.note(&format!("new {kind}"), bed.work(&*process, &new, ServiceAction::Ensure).await);
        for service in [new, of_kind(kind, kind), of_kind(&format!("ports-{kind}"), kind)] {
            delete(bed, &*process, &service).await;
        }
    }
    let left =
        bed.aws.world(|world| (world.elb.balancers.len(), world.elbv2.balancers.len(), world.elbv2.groups.len()));
    // What a refused change of a port has made carries the Service's name in its tags only.
    let groups = usize::from(refused.0.keys().any(|work| work.contains("port")));
    assert_eq!(left, (0, 0, groups), "{}", role.name);
    let events = cluster.take_events();
    let warnings = events.iter().filter(|event| event.contains(DESCRIBE_TAGS)).count();
    let lacks = !role.granted.contains(DESCRIBE_TAGS);
    assert_eq!(warnings, usize::from(lacks), "{}: {events:?}", role.name);
    lacks.then(|| DESCRIBE_TAGS.to_owned()).into_iter().collect()
}

/// A cluster with load balancers and a route that were made with every permission.
async fn bed(role: &Role, refusal: &Fault) -> Bed {
    let bed = Bed::start("");
    let cluster_tag = || ("kubernetes.io/cluster/c1".to_owned(), "shared".to_owned());
    bed.aws.world(|world| {
        world.ec2.route_tables.get_mut(&bed.network.main_table).unwrap().tags.extend([cluster_tag()]);
        let (zone, kind, state) = ("us-west-2a".to_owned(), "gp3".to_owned(), "available".to_owned());
        let created = jiff::Timestamp::UNIX_EPOCH;
        let volume = Volume { zone, size: 1, kind, state, tags: Default::default(), created };
        world.ec2.volumes.insert("vol-00000000000000001".to_owned(), volume);
    });
    let before = bed.process().await;
    for kind in KINDS {
        bed.ensure(&*before, &of_kind(kind, kind)).await;
        bed.ensure(&*before, &of_kind(&format!("ports-{kind}"), kind)).await;
    }
    let provider = leading(&bed, &bed.nodes).await;
    provider.routes().unwrap().create(CLUSTER, &[route(&bed, 2, MADE)]).await.remove(0).unwrap();
    grant_only(&bed, &role.granted, refusal);
    bed
}

/// The permissions that are errors of `migrate-check`.
async fn checked(bed: &Bed) -> BTreeSet<String> {
    let services = KINDS.map(|kind| of_kind(kind, kind).into()).into();
    let claims = Claims { nodes: bed.nodes.clone(), services };
    let provider = leading(bed, &bed.nodes).await;
    let checks = provider.inspect().unwrap().migration_checks(CLUSTER, &claims).await;
    let errors = checks.into_iter().filter(|it| it.check == "permissions" && it.severity == Severity::Error);
    errors.map(|check| check.subject).collect()
}

/// The line of a policy.
async fn line(role: &Role, refusal: &Fault) -> String {
    let (mut bed, mut refused) = (bed(role, refusal).await, Denied::default());
    let errors = checked(&bed).await;
    let warned = services(&mut bed, role, &mut refused).await;
    others(&bed, role, &mut refused).await;
    let line = refused.line(role.name, role.with, &warned);
    // Nothing shows whether there are volumes, and Elastic Load Balancing has no dry run.
    refused.0.remove("volume");
    let failing: BTreeSet<String> =
        refused.0.into_values().filter(|permission| permission.starts_with("ec2:")).collect();
    assert_eq!(errors, failing, "{}", role.name);
    bed.check();
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_with_the_roles_of_the_field_and_names_what_they_lack() {
    let roles = roles();
    let lines = roles.iter().map(|role| line(role, &Fault::Deny));
    denied::listed(LISTED, &futures::future::join_all(lines).await);
}

/// The API of another cloud, or of an emulator, may know only what the Go program uses.
#[tokio::test(flavor = "multi_thread")]
async fn operations_that_upstreams_policy_does_not_grant_may_be_unknown_to_aws() {
    let [upstream, ..] = roles();
    let listed = std::fs::read_to_string(LISTED).unwrap();
    assert_eq!(Some(&*line(&upstream, &unknown()).await), listed.lines().next());
}

#[tokio::test]
async fn the_warning_about_tags_says_whether_a_permission_is_missing() {
    let cases = [(Fault::Deny, "not granted: names show"), (unknown(), "AWS does not know this operation: names show")];
    for (refusal, said) in cases {
        for kind in KINDS {
            let bed = Bed::start("");
            refuse(&bed, Some(DESCRIBE_TAGS), &refusal);
            let (process, cluster) = watched(&bed).await;
            let web = of_kind("web", kind);
            bed.ensure(&*process, &web).await;
            bed.ensure(&*process, &web).await;
            let events = cluster.take_events();
            let count = events.iter().filter(|event| event.contains(DESCRIBE_TAGS) && event.contains(said)).count();
            assert_eq!(count, 1, "{kind}: {events:?}");
        }
    }
}

/// Also asks first whether there is anything to delete, as the core does.
async fn delete(bed: &Bed, process: &dyn LoadBalancer, service: &Service) {
    assert!(process.get(CLUSTER, service).await.unwrap().is_some());
    bed.delete(process, service).await;
    assert!(process.get(CLUSTER, service).await.unwrap().is_none());
}

/// A role from the time of the in-tree provider, for classic balancers only. Each permission that is missed has one event.
#[tokio::test(flavor = "multi_thread")]
async fn classic_balancers_need_no_permission_of_the_v2_api() {
    let lacks = [
        "CreateListener",
        "CreateTargetGroup",
        "DeleteListener",
        "DeleteTargetGroup",
        "DescribeListeners",
        "DescribeTargetGroups",
        "DescribeTargetHealth",
        "ModifyListener",
        "ModifyTargetGroup",
        "RegisterTargets",
        "DeregisterTargets",
        "SetSecurityGroups",
    ];
    let granted: BTreeSet<&str> = UPSTREAM
        .iter()
        .copied()
        .filter(|permission| {
            !lacks.iter().any(|action| permission.split_once(':').is_some_and(|(_, is)| is == *action))
        })
        .collect();
    assert_eq!(UPSTREAM.len() - granted.len(), lacks.len());
    // An unknown operation is a Warning for each Service and attempt.
    for (refusal, of_groups) in [(Fault::Deny, 1..=1), (unknown(), 2..=20)] {
        let bed = Bed::start("");
        grant_only(&bed, &granted, &refusal);
        let (process, cluster) = watched(&bed).await;
        for name in ["one", "two"] {
            let web = of_kind(name, "clb");
            bed.ensure(&*process, &web).await;
            delete(&bed, &*process, &web).await;
        }
        let left = bed.aws.world(|world| world.elb.balancers.len());
        assert_eq!(left, 0);
        let events = cluster.take_events();
        for (action, warnings) in [(DESCRIBE_TAGS, 1..=1), ("elasticloadbalancing:DescribeTargetGroups", of_groups)] {
            let count = events.iter().filter(|event| event.contains(action)).count();
            assert!(warnings.contains(&count), "{refusal:?}, {action}: {events:?}");
        }
        bed.check();
    }
}

/// The Go program reads the policies of a classic balancer only for an annotated TLS policy.
#[tokio::test]
async fn classic_balancers_without_a_tls_policy_need_no_permission_to_read_policies() {
    for annotations in [&[("proxy-protocol", "*")], &[("ssl-cert", CERTIFICATE)]] {
        let mut bed = Bed::start("");
        deny(&bed, Some("elasticloadbalancing:DescribeLoadBalancerPolicies"));
        let process = bed.process().await;
        let web = service("web", annotations, &[(80, 31080)], json!({}));
        bed.ensure(&*process, &web).await;
        let other = "sg-0123456789abcdef0";
        bed.add_group(other, Some("owned"), Vec::new());
        bed.add_nodes(1);
        bed.set_groups(3, &[other]);
        process.update(CLUSTER, &web, &bed.nodes).await.unwrap();
        let rules = bed.aws.world(|world| world.ec2.groups[other].ingress.len());
        assert_eq!(rules, 1, "{annotations:?}");
        let more = service("web", annotations, &[(80, 31080), (81, 31081)], json!({}));
        bed.ensure(&*process, &more).await;
        bed.stays(&*process, &more, 9).await;
        bed.check();
    }
}

/// Leftovers of an interrupted creation are found by name.
#[tokio::test]
async fn without_tags_the_target_group_of_an_interrupted_creation_goes_with_the_service() {
    let bed = Bed::start("");
    deny(&bed, Some(DESCRIBE_TAGS));
    let process = bed.process().await;
    let (one, other) = (of_kind("web", "nlb"), of_kind("other", "nlb"));
    bed.ensure(&*process, &other).await;
    let create = Rule::every(Fault::Code { status: 400, code: "TooManyListeners".into(), message: String::new() });
    bed.aws.fault(create.on("elbv2", "CreateListener"));
    process.ensure(CLUSTER, &one, &bed.nodes).await.unwrap_err();
    let arn = bed.aws.world(|world| {
        let name = one.default_load_balancer_name();
        world.elbv2.balancer_named(&name).unwrap().arn.clone()
    });
    let form = format!("LoadBalancerArn={arn}");
    bed.aws.by_hand(ccm_cloudsim::aws::Service::Elbv2, "DeleteLoadBalancer", &form).unwrap();
    bed.delete(&*process, &one).await;
    let left: Vec<String> = bed.aws.world(|world| {
        world.elbv2.groups.values().map(|group| group.tags["kubernetes.io/service-name"].clone()).collect()
    });
    assert_eq!(left, ["shop/other"]);
}

/// The ports of the Service have changed, so that names show nothing, and AWS says for a while that the group is in use.
#[tokio::test]
async fn without_tags_a_target_group_that_aws_does_not_delete_at_once_goes_later() {
    for goes in [true, false] {
        let (bed, process) = with_a_held_group().await;
        let web = |kind: &str, port| service("web", &[("type", "nlb")], &[(80, port)], json!({"type": kind}));
        match goes {
            true => bed.delete(&*process, &web("ClusterIP", 0)).await,
            false => drop(bed.ensure(&*process, &web("LoadBalancer", 31090)).await),
        }
        let left = bed.aws.world(|world| world.elbv2.groups.len());
        assert_eq!(left, usize::from(!goes), "deleted: {goes}");
        bed.check();
    }
}

/// Nothing shows the next process whose it was.
#[tokio::test]
async fn without_tags_a_target_group_that_a_process_has_left_is_named_when_the_service_goes() {
    let (bed, process) = with_a_held_group().await;
    let web = service("web", &[("type", "nlb")], &[(80, 0)], json!({"type": "ClusterIP"}));
    process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
    let (next, cluster) = watched(&bed).await;
    bed.delete(&*next, &web).await;
    let left: Vec<String> = bed.aws.world(|world| world.elbv2.groups.values().map(|one| one.name.clone()).collect());
    let events = cluster.take_events();
    let named = |name: &String| events.iter().any(|event| event.contains(name) && event.contains("not deleted"));
    assert!(left.len() == 1 && left.iter().all(named), "{left:?}: {events:?}");
}

/// A process that may not read tags and has made a load balancer, whose target group AWS refuses once to delete.
async fn with_a_held_group() -> (Bed, Arc<dyn LoadBalancer>) {
    let bed = Bed::start("");
    deny(&bed, Some(DESCRIBE_TAGS));
    let process = bed.process().await;
    bed.ensure(&*process, &of_kind("web", "nlb")).await;
    bed.aws.clock().step(std::time::Duration::from_secs(60));
    let in_use = Fault::Code { status: 400, code: "ResourceInUse".to_owned(), message: "in use".to_owned() };
    bed.aws.fault(Rule::every(in_use).on("elbv2", "DeleteTargetGroup").window(0, 1));
    (bed, process)
}

async fn others(bed: &Bed, role: &Role, refused: &mut Denied) {
    let provider = leading(bed, &bed.nodes).await;
    for found in provider.instances().unwrap().lookup(&bed.nodes, Aspects::METADATA).await {
        let Lookup::Found(instance) = found else { panic!("{}: {found:?}", role.name) };
        let metadata = instance.metadata.clone().unwrap().unwrap();
        assert!(!metadata.node_addresses.is_empty(), "{}", role.name);
        let zone_id = metadata.additional_labels.contains_key("topology.k8s.aws/zone-id");
        assert_eq!(zone_id, role.granted.contains("ec2:DescribeAvailabilityZones"), "{}", role.name);
    }
    routes(bed, &*provider, refused).await;
    let volume =
        json!({"metadata": {"name": "pv"}, "spec": {"awsElasticBlockStore": {"volumeID": "vol-00000000000000001"}}});
    let labels = provider.volumes().unwrap().labels(&[serde_json::from_value(volume).unwrap()]).await.remove(0);
    refused.note("volume", labels);
}

fn route(bed: &Bed, node: usize, destination: &str) -> NewRoute {
    let target_node = Some(bed.nodes[node].name.clone());
    let route = Route { target_node, destination_cidr: destination.to_owned(), ..Route::default() };
    NewRoute { name_hint: "uid".into(), route }
}

/// A range moves from an instance that is gone to a new node, too.
async fn routes(bed: &Bed, provider: &dyn CloudProvider, refused: &mut Denied) {
    let routes = provider.routes().unwrap();
    let old = routes.list(CLUSTER).await.unwrap().into_iter().find(|it| it.destination_cidr == MADE).unwrap();
    // The instance forwards already.
    refused.note("another route", routes.create(CLUSTER, &[route(bed, 2, "10.201.2.0/24")]).await.remove(0));
    refused.note("route that goes", routes.delete(CLUSTER, &[old]).await.remove(0));
    let range = "10.200.0.0/24";
    refused.note("new route", routes.create(CLUSTER, &[route(bed, 0, range)]).await.remove(0));
    bed.terminate(bed.nodes[0].provider_id_or_empty());
    bed.aws.clock().step(std::time::Duration::from_secs(120));
    let routes = leading(bed, &bed.nodes[1..]).await.routes().unwrap();
    refused.note("route that moves", routes.create(CLUSTER, &[route(bed, 1, range)]).await.remove(0));
    let listed = routes.list(CLUSTER).await.unwrap();
    let target = listed.iter().find(|it| it.destination_cidr == range).map(|it| it.target_node.clone());
    let moved = Some(Some(bed.nodes[1].name.clone())).filter(|_| !refused.0.contains_key("route that moves"));
    assert_eq!(target, moved);
}

/// An absent permission for Fargate's interfaces is no matter of the nodes on EC2.
#[tokio::test]
async fn a_denied_read_of_interfaces_concerns_fargate_nodes_only() {
    let mut bed = Bed::start("");
    let fargate = ccm_provider::Node {
        name: "fargate-ip-10-0-0-9".into(),
        provider_id: Some("aws:///us-west-2a/0a1b2c/fargate-ip-10-0-0-9.us-west-2.compute.internal".into()),
        ..ccm_provider::Node::default()
    };
    bed.nodes.push(Arc::new(fargate));
    deny(&bed, Some("ec2:DescribeNetworkInterfaces"));
    let provider = leading(&bed, &bed.nodes).await;
    let found = provider.instances().unwrap().lookup(&bed.nodes, Aspects::METADATA).await;
    let (last, others) = found.split_last().unwrap();
    assert!(matches!(last, Lookup::Unknown(_)), "{last:?}");
    assert!(others.iter().all(|found| matches!(found, Lookup::Found(_))), "{others:?}");
}

/// That is the point of `DisableSecurityGroupIngress`.
#[tokio::test]
async fn balancers_without_managed_groups_need_no_permission_for_security_groups() {
    let untouched = "DisableSecurityGroupIngress = true\n";
    let shared = format!("{untouched}ElbSecurityGroup = {USER_GROUP}\n");
    let named: &[(&str, &str)] = &[("security-groups", USER_GROUP)];
    for (kind, config, annotations) in [("nlb", untouched, &[][..]), ("clb", &shared, &[]), ("clb", untouched, named)] {
        let bed = Bed::start(config);
        bed.add_group(USER_GROUP, None, Vec::new());
        let all = Rule { action: Some("*".to_owned()), params: None, ..Rule::every(Fault::Deny) };
        for action in ["DescribeSecurityGroups", "CreateSecurityGroup", "AuthorizeSecurityGroupIngress"] {
            bed.aws.fault(Rule { action: Some(action.to_owned()), ..all.clone() });
        }
        let web = |ports: &[(i32, i32)]| service("web", &[annotations, &[("type", kind)]].concat(), ports, json!({}));
        let (process, cluster) = watched(&bed).await;
        bed.ensure(&*process, &web(&[(80, 31080)])).await;
        bed.ensure(&*process, &web(&[(80, 31081), (81, 31082)])).await;
        bed.stays(&*process, &web(&[(80, 31081), (81, 31082)]), 9).await;
        let left = || bed.aws.world(|world| world.elb.balancers.len() + world.elbv2.balancers.len());
        assert_eq!(left(), 1, "{kind}");
        bed.delete(&*bed.process().await, &web(&[])).await;
        assert_eq!(left(), 0, "{kind}");
        let events = cluster.take_events();
        let warnings = events.iter().filter(|event| event.contains("DescribeSecurityGroups")).count();
        assert_eq!(warnings, 1, "{kind}: {events:?}");
        bed.check();
    }
}
