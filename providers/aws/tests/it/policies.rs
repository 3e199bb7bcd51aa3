//! Policies with conditions: on the tags of what a call changes, on those that it sends, on resources.

use std::collections::BTreeSet;

use ccm_cloudsim::aws::iam::Policy;
use ccm_provider::{Claims, LoadBalancerExt as _, NodeWork, Severity};
use serde_json::{Value, json};

use crate::bed::{Bed, CERTIFICATE, CLUSTER, USER_GROUP, service};
use crate::leader::{lend, watched};

/// The policies in `manifests/aws/iam` for load balancers and nodes.
fn ours() -> Value {
    these(&["node.json", "load-balancer.json"])
}

fn these(names: &[&str]) -> Value {
    let policies = ccm_provider_aws::iam_policies();
    let with =
        |name: &str| policies.iter().find(|(path, _)| path.ends_with(name)).unwrap().1.replace("CLUSTER_ID", "c1");
    let read = |name: &str| serde_json::from_str::<Value>(&with(name)).unwrap();
    names.iter().map(|name| read(name)).collect()
}

/// What kOps allows the controller manager (`AddCCMPermissions`, as of August 2026), with managed security groups of network
/// balancers: for objects with its tag.
const TAGGED: &[&str] = &[
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:DeleteSecurityGroup",
    "ec2:ModifyInstanceAttribute",
    "ec2:RevokeSecurityGroupIngress",
    "elasticloadbalancing:AddTags",
    "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer",
    "elasticloadbalancing:AttachLoadBalancerToSubnets",
    "elasticloadbalancing:ConfigureHealthCheck",
    "elasticloadbalancing:CreateLoadBalancerListeners",
    "elasticloadbalancing:CreateLoadBalancerPolicy",
    "elasticloadbalancing:DeleteListener",
    "elasticloadbalancing:DeleteLoadBalancer",
    "elasticloadbalancing:DeleteLoadBalancerListeners",
    "elasticloadbalancing:DeleteTargetGroup",
    "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:DetachLoadBalancerFromSubnets",
    "elasticloadbalancing:ModifyListener",
    "elasticloadbalancing:ModifyLoadBalancerAttributes",
    "elasticloadbalancing:ModifyTargetGroup",
    "elasticloadbalancing:ModifyTargetGroupAttributes",
    "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
    "elasticloadbalancing:RegisterTargets",
    "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
    "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
    "elasticloadbalancing:SetSecurityGroups",
];
const READS: &[&str] = &[
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeInstances",
    "ec2:DescribeRegions",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "elasticloadbalancing:DescribeListeners",
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeLoadBalancerPolicies",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetHealth",
];
/// For requests with its tag.
const CREATES: &[&str] = &[
    "ec2:CreateSecurityGroup",
    "elasticloadbalancing:CreateListener",
    "elasticloadbalancing:CreateLoadBalancer",
    "elasticloadbalancing:CreateTargetGroup",
];
/// For security groups.
const TAGS: &[&str] = &["ec2:CreateTags", "ec2:DeleteTags"];
/// All of it.
pub(crate) const KOPS: [&[&str]; 4] = [TAGGED, READS, CREATES, TAGS];

/// The policy of kOps.
fn kops() -> Value {
    let groups = "arn:aws:ec2:*:*:security-group/*";
    let sent = json!({"aws:RequestTag/KubernetesCluster": "c1"});
    let has = json!({"aws:ResourceTag/KubernetesCluster": "c1"});
    let on_creation = json!({"aws:RequestTag/KubernetesCluster": "c1", "ec2:CreateAction": ["CreateSecurityGroup"]});
    let untouched = json!({"aws:RequestTag/KubernetesCluster": "true"});
    json!([{"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": READS, "Resource": "*"},
        {"Effect": "Allow", "Action": TAGGED, "Resource": "*", "Condition": {"StringEquals": has}},
        {"Effect": "Allow", "Action": CREATES, "Resource": "*", "Condition": {"StringEquals": sent}},
        {"Effect": "Allow", "Action": "ec2:CreateSecurityGroup", "Resource": "arn:aws:ec2:*:*:vpc/*"},
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": groups, "Condition": {"StringEquals": on_creation}},
        {"Effect": "Allow", "Action": TAGS, "Resource": groups,
            "Condition": {"Null": untouched, "StringEquals": has}},
    ]}])
}

/// Gives the objects of the cluster the tag that kOps gives them.
fn tag_as_kops(bed: &Bed) {
    bed.aws.world(|world| {
        let groups = world.ec2.groups.values_mut().map(|group| &mut group.tags);
        let instances = world.ec2.instances.values_mut().map(|instance| &mut instance.tags);
        let of_cluster = groups.chain(instances).filter(|tags| tags.contains_key("kubernetes.io/cluster/c1"));
        of_cluster.for_each(|tags| drop(tags.insert("KubernetesCluster".to_owned(), "c1".to_owned())));
    });
}

/// The operations that a life with every kind of change is refused.
async fn refused_in_a_life(kind: &str, config: &str, policies: &Value) -> BTreeSet<String> {
    let mut bed = Bed::start(config);
    bed.add_group(USER_GROUP, Some("owned"), Vec::new());
    bed.add_nodes(1);
    tag_as_kops(&bed);
    let policies: Vec<Policy> = serde_json::from_value(policies.clone()).unwrap();
    bed.aws.change(|options| options.policies = policies);
    let mark = bed.aws.mark();
    let (process, _cluster) = watched(&bed).await;
    let changed = [
        ("type", kind),
        ("cross-zone-load-balancing-enabled", "true"),
        ("healthcheck-healthy-threshold", "4"),
        ("healthcheck-unhealthy-threshold", "4"),
        ("additional-resource-tags", "team=web"),
        ("ssl-cert", CERTIFICATE),
        ("ssl-ports", "443"),
        ("backend-protocol", if kind == "clb" { "http" } else { "tcp" }),
    ];
    let of_classic = [("proxy-protocol", "*"), ("extra-security-groups", USER_GROUP)];
    let of_network = [("target-group-attributes", "preserve_client_ip.enabled=false")];
    let besides = if kind == "clb" { &of_classic[..] } else { &of_network[..] };
    let changed = [&changed[..], besides].concat();
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let first = service("web", &[("type", kind)], &[(80, 31080), (81, 31081)], json!({}));
    let second = service("web", &changed, &[(80, 31090), (443, 31443)], ranges);
    for service in [&first, &second, &first] {
        bed.ensure(&*process, service).await;
        bed.nodes.pop();
        process.update(CLUSTER, service, &bed.nodes).await.unwrap();
    }
    bed.delete(&*process, &first).await;
    let left = bed.aws.world(|world| {
        let groups = world.ec2.groups.values().filter(|group| group.name.starts_with("k8s-elb-"));
        world.elb.balancers.len() + world.elbv2.balancers.len() + world.elbv2.groups.len() + groups.count()
    });
    assert_eq!(left, 0, "{kind} {config}");
    bed.check();
    bed.aws.ledger(|ledger| {
        let denied = |code: &Option<String>| {
            code.as_deref().is_some_and(|code| code.contains("Unauthorized") || code == "AccessDenied")
        };
        ledger.since(mark).filter(|entry| denied(&entry.code)).map(|entry| entry.action.clone()).collect()
    })
}

/// What the tagging controller is refused for the instance of a node that comes and goes, and the permissions of tags in
/// errors of `migrate-check`.
async fn tagging(policies: &Value, controllers: &'static str) -> [Vec<String>; 2] {
    let bed = Bed::start("KubernetesClusterTag = c1");
    tag_as_kops(&bed);
    let policies: Vec<Policy> = serde_json::from_value(policies.clone()).unwrap();
    bed.aws.change(|options| options.policies = policies);
    let flags = [("controllers", controllers), ("tags", "team=a"), ("resources", "instance")];
    let provider = bed.provider_with_flags(&flags).await;
    lend(&bed.aws, &*provider).await;
    // Its security group gets tags, too.
    let web = service("web", &[("type", "clb")], &[(80, 31080)], json!({}));
    let claims = Claims { nodes: bed.nodes.clone(), services: vec![web.into()] };
    let checks = provider.inspect().unwrap().migration_checks(CLUSTER, &claims).await;
    let errors = checks.into_iter().filter(|check| check.check == "permissions" && check.severity == Severity::Error);
    let errors = errors.map(|check| check.subject).filter(|subject| subject.contains("Tags"));
    let (task, node) = (provider.node_task("tagging").unwrap(), bed.nodes[0].clone());
    let work = |node| NodeWork { name: "node-0".into(), provider_id: bed.nodes[0].provider_id.clone(), node };
    let mut refused = Vec::new();
    for work in [work(Some(node)), work(None)] {
        let failures = task.run(&[work]).await.into_iter().filter_map(Result::err).map(|error| error.to_string());
        refused.extend(failures);
    }
    bed.check();
    [refused, errors.collect()]
}

/// Those of kOps and of the field allow tags of security groups only, or none to be removed.
#[tokio::test(flavor = "multi_thread")]
async fn rights_that_the_tagging_controller_lacks_are_errors_where_it_runs() {
    let mut actions: Vec<&str> = KOPS.concat();
    actions.retain(|action| *action != "ec2:DeleteTags");
    let documented = json!([{"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": actions, "Resource": "*"},
    ]}]);
    let ours = these(&["node.json", "load-balancer.json", "tagging.json"]);
    let both = ["ec2:CreateTags for instances", "ec2:DeleteTags"];
    for (policies, missing) in [(kops(), &both[..]), (documented, &both[1..]), (ours, &[])] {
        let [refused, errors] = tagging(&policies, "tagging").await;
        assert_eq!(errors, missing);
        assert_eq!(refused.len(), missing.len(), "{refused:?}");
        for (permission, error) in missing.iter().zip(&refused) {
            assert!(error.contains(permission.split(' ').next().unwrap()), "{error}");
        }
        assert_eq!(tagging(&policies, "*").await[1], [""; 0]);
    }
}

const KINDS: [(&str, &str); 3] = [("clb", ""), ("nlb", ""), ("nlb", "NLBSecurityGroupMode = Managed")];

#[tokio::test(flavor = "multi_thread")]
async fn the_policies_of_the_manifests_allow_a_whole_life() {
    for (kind, config) in KINDS {
        assert_eq!(refused_in_a_life(kind, config, &ours()).await, BTreeSet::new(), "{kind} {config}");
    }
}

/// Its tag is on the instances, so what the program makes has it too. What is refused has one Warning.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_kops_allows_a_whole_life() {
    for (kind, config) in KINDS {
        let refused = refused_in_a_life(kind, &format!("KubernetesClusterTag = c1\n{config}"), &kops()).await;
        assert_eq!(refused, BTreeSet::from(["DescribeTags".to_owned()]), "{kind} {config}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_another_tag_refuses_what_lacks_it() {
    let bed = Bed::start("");
    let policies: Vec<Policy> = serde_json::from_value(kops()).unwrap();
    bed.aws.change(|options| options.policies = policies);
    let (process, _cluster) = watched(&bed).await;
    let web = service("web", &[("type", "clb")], &[(80, 31080)], json!({}));
    let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("ec2:CreateSecurityGroup"), "{error}");
}
