use ccm_kit::call::Operation;
use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{Check, Inspect as _, Node, Service, Severity};
use serde_json::json;

use ccm_cloudsim::aws::ec2::model::Peer;

use super::bed::{Bed, CLUSTER, node, service};
use super::has;
use crate::annotations::PREFIX;
use crate::client::operation::READS;
use crate::client::write::Ec2Write;
use crate::ownership::Ownership;
use crate::tests::world::{KEY, NODE_GROUP, dns_name, group, id, launch, route_to, rule};

async fn checks(bed: &Bed, services: &[&Service]) -> Vec<Check> {
    bed.inspector().migration_checks(CLUSTER, &bed.claims(services)).await
}

/// The findings of one check, one line each.
fn of(checks: &[Check], check: &str) -> String {
    let line = |found: &&Check| {
        format!("{} [{}] {} => {}\n", found.severity.as_str(), found.subject, found.message, found.fix)
    };
    checks.iter().filter(|found| found.check == check).map(|found| line(&found)).collect()
}

fn worst(checks: &[Check]) -> Severity {
    checks.iter().map(|check| check.severity).max().unwrap()
}

/// A cluster with the objects that every call needs: a balancer of the Service, a rule, a route to a node.
async fn complete() -> (Bed, Service) {
    let bed = Bed::new();
    let web = bed.made("web", "nlb").await;
    bed.table(|table| table.routes.push(route_to("10.200.1.0/24", 1)));
    (bed, web)
}

#[tokio::test(start_paused = true)]
async fn a_cluster_in_order_has_no_warning() {
    let (bed, web) = complete().await;
    let before = bed.objects();
    let checks = checks(&bed, &[&web]).await;
    assert_eq!(worst(&checks), Severity::Info, "{checks:#?}");
    has(&of(&checks, "load-balancers"), &["info [service shop/web]", "is taken over as it is"]);
    has(
        &of(&checks, "subnet-tags"),
        &["info [public load balancers] would be in subnet-a", "without the tag kubernetes.io/role/elb = 1: subnet-a"],
    );
    has(&of(&checks, "provider-ids"), &["nodes without a finding, of 2: 2"]);
    has(&of(&checks, "cluster-tag"), &["new objects are tagged kubernetes.io/cluster/c1 = owned"]);
    assert_eq!(bed.objects(), before);
}

#[tokio::test(start_paused = true)]
async fn every_permission_of_ec2_and_every_read_is_asked_for() {
    let (bed, web) = complete().await;
    let text = of(&checks(&bed, &[&web]).await, "permissions");
    let granted = text.lines().find(|line| line.contains("checked and granted: ")).unwrap().to_owned();
    let granted: BTreeSet<&str> = granted.split(|c: char| c.is_whitespace() || c == ',').collect();
    let reads = READS.iter().map(Operation::permission);
    let writes = Ec2Write::NAMES.iter().map(|name| format!("ec2:{name}"));
    for permission in reads.chain(writes) {
        assert!(granted.contains(&*permission), "{permission}: {text}");
    }
    has(&text, &["[Elastic Load Balancing] has no dry run", "elasticloadbalancing:CreateLoadBalancer"]);
    assert!(!text.contains("not checked:"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_questions_change_nothing_even_where_dry_runs_are_carried_out() {
    let (mut bed, web) = complete().await;
    bed.tags_instances = true;
    bed.world.forget_dry_runs();
    let before = bed.objects();
    let text = of(&checks(&bed, &[&web]).await, "permissions");
    assert_eq!(bed.objects(), before);
    // The answer of such an endpoint is no denial by the policy either.
    assert!(!text.contains("error"), "{text}");
    has(&text, &["ec2:DeleteSecurityGroup", "ec2:ReplaceRoute", "warning [ec2:CreateTags] cannot determine whether"]);
}

/// The finding about a missing permission.
async fn missing(bed: &Bed, services: &[&Service], permission: &str) -> String {
    bed.world.deny(permission);
    let text = of(&checks(bed, services).await, "permissions");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&format!("[{permission}] ccm lacks"))).collect();
    let [line] = *lines else { panic!("{permission}: {text}") };
    line.to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_an_error_where_it_is_needed_and_a_warning_elsewhere() {
    for (permission, expected, file) in [
        ("ec2:AuthorizeSecurityGroupIngress", "error", "load-balancer.json"),
        ("ec2:DescribeSubnets", "error", "load-balancer.json"),
        ("elasticloadbalancing:DescribeTargetHealth", "error", "load-balancer.json"),
        ("ec2:CreateRoute", "error", "route.json"),
        ("ec2:ModifyInstanceAttribute", "error", "route.json"),
        ("ec2:ModifyNetworkInterfaceAttribute", "warning", "route.json"),
        ("ec2:DescribeInstanceTopology", "warning", "node.json"),
        ("ec2:DescribeNetworkInterfaces", "warning", "node.json"),
        ("ec2:DescribeInstances", "error", "node.json"),
        ("ec2:CreateSecurityGroup", "warning", "load-balancer.json"),
        ("elasticloadbalancing:DescribeLoadBalancerPolicies", "warning", "load-balancer.json"),
        ("elasticloadbalancing:DescribeTargetGroupAttributes", "warning", "load-balancer.json"),
        ("ec2:DeleteTags", "warning", "tagging.json"),
        ("ec2:DescribeVolumes", "warning", "volume.json"),
    ] {
        let (bed, web) = complete().await;
        let line = missing(&bed, &[&web], permission).await;
        assert!(line.starts_with(expected), "{line}");
        assert!(line.contains(&format!("manifests/aws/iam/{file}")), "{line}");
    }
    // Without Services nothing needs balancers.
    let bed = Bed::new();
    bed.world.deny("ec2:DescribeSubnets");
    let text = of(&checks(&bed, &[]).await, "permissions");
    has(&text, &["warning [ec2:DescribeSubnets]", "nothing in the cluster needs it yet"]);
    has(&text, &["[elasticloadbalancing:DescribeTargetHealth] not checked: there is no target group"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_single_node_or_service_needs_makes_the_missing_permission_an_error() {
    let annotated = |name: &str, kind: &str, key: &str, value: &str| {
        let mut service = service(name, kind);
        service.metadata.annotations.insert(format!("{PREFIX}{key}"), value.to_owned());
        service
    };
    let attributes = annotated("attributes", "nlb", "target-group-attributes", "preserve_client_ip.enabled=true");
    let policy = annotated("policy", "", "ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
    let named = annotated("named", "", "security-groups", "sg-00000000000000abc");
    let classic = service("classic", "");
    for (permission, more, expected) in [
        ("elasticloadbalancing:DescribeTargetGroupAttributes", &attributes, "error"),
        ("elasticloadbalancing:DescribeLoadBalancerPolicies", &classic, "warning"),
        ("elasticloadbalancing:DescribeLoadBalancerPolicies", &policy, "error"),
        ("ec2:CreateSecurityGroup", &classic, "error"),
        ("ec2:CreateSecurityGroup", &named, "warning"),
    ] {
        let (bed, web) = complete().await;
        let line = missing(&bed, &[&web, more], permission).await;
        assert!(line.starts_with(expected), "{}: {line}", more.metadata.name);
    }
    // The load balancer of another controller is there to ask about.
    let (bed, _) = complete().await;
    let line = missing(&bed, &[&classic], "elasticloadbalancing:DescribeListeners").await;
    assert!(line.starts_with("warning"), "{line}");
    let (mut bed, web) = complete().await;
    let fargate = "aws:///us-west-2a/0a1b2c/fargate-ip-10-0-0-9.us-west-2.compute.internal".to_owned();
    bed.nodes.push(Arc::new(Node { name: "f".into(), provider_id: Some(fargate.into()), ..Node::default() }));
    let line = missing(&bed, &[&web], "ec2:DescribeNetworkInterfaces").await;
    assert!(line.starts_with("error"), "{line}");
    let (bed, web) = complete().await;
    bed.world.ec2(|ec2| {
        let more = ec2.instances[&id(2)].interfaces[0].clone();
        ec2.instances.get_mut(&id(1)).unwrap().interfaces.push(more);
    });
    let line = missing(&bed, &[&web], "ec2:ModifyNetworkInterfaceAttribute").await;
    assert!(line.starts_with("error"), "{line}");
    let (mut bed, web) = complete().await;
    bed.tags_instances = true;
    let line = missing(&bed, &[&web], "ec2:DeleteTags").await;
    assert!(line.starts_with("error"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn questions_that_could_change_something_are_not_asked() {
    let bed = Bed::new();
    bed.world.ec2(|ec2| {
        ec2.groups.get_mut(NODE_GROUP).unwrap().tags.insert(KEY.to_owned(), "shared".to_owned());
        ec2.interfaces.values_mut().for_each(|interface| interface.source_dest_check = true);
    });
    bed.table(|table| table.tags.clear());
    let text = of(&checks(&bed, &[]).await, "permissions");
    has(
        &text,
        &[
            "[ec2:DeleteSecurityGroup] not checked: no security group of a node is the cluster's own",
            "[ec2:AuthorizeSecurityGroupIngress] not checked: no security group of a node has a rule",
            "[ec2:ModifyInstanceAttribute] not checked",
            "[ec2:CreateRoute] not checked: the cluster has no single route table",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_subnet_to_stand_in_the_tags_are_named() {
    let bed = Bed::new();
    let theirs = || [("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())].into();
    bed.world.ec2(|ec2| ec2.subnets.values_mut().for_each(|subnet| subnet.tags = theirs()));
    let (mut inside, outside) = (service("in", "nlb"), service("out", "nlb"));
    inside.metadata.annotations.insert(format!("{PREFIX}internal"), "true".to_owned());
    let text = of(&checks(&bed, &[&inside, &outside]).await, "subnet-tags");
    has(
        &text,
        &[
            "error [public load balancers]",
            "Service shop/out needs one",
            "choose a subnet with a route to an internet gateway",
            "--tags Key=kubernetes.io/role/elb,Value=1 Key=kubernetes.io/cluster/c1,Value=shared; or",
            "error [internal load balancers]",
            "Service shop/in needs one",
            "Key=kubernetes.io/role/internal-elb,Value=1",
        ],
    );
    // No Service needs a public subnet.
    let text = of(&checks(&bed, &[&inside]).await, "subnet-tags");
    has(&text, &["warning [public load balancers]", "no Service needs one"]);
    bed.world.deny("ec2:DescribeSubnets");
    has(
        &of(&checks(&bed, &[]).await, "subnet-tags"),
        &["error [] could not be checked: ccm lacks ec2:DescribeSubnets"],
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_between_node_and_instance_is_reported_per_node() {
    let mut bed = Bed::new();
    let named = |name: &str, id: Option<&str>| {
        Arc::new(Node { name: name.into(), provider_id: id.map(Into::into), ..Node::default() })
    };
    bed.world.ec2(|ec2| launch(ec2, 3));
    bed.nodes = vec![
        named("worker-1", Some("aws:///us-west-2a/i-00000000000000001")),
        named("ip-10-0-0-9.us-west-2.compute.internal", Some("aws:///us-west-2a/i-00000000000000002")),
        named("broken", Some("aws:///us-west-2a/worker")),
        named("elsewhere", Some("gce://p/z/i")),
        named("gone", Some("aws:///us-west-2a/i-00000000000000008")),
        named("new", None),
        named("ip-10-0-0-3.us-west-2.compute.internal", Some("aws:///us-west-2b/i-00000000000000003")),
        named("twin", Some("aws:///us-west-2a/i-00000000000000003")),
    ];
    let found = checks(&bed, &[]).await;
    let ids = of(&found, "provider-ids");
    has(
        &ids,
        &[
            "error [node ip-10-0-0-9.us-west-2.compute.internal] its provider ID names instance i-00000000000000002, whose private DNS name is ip-10-0-0-2",
            "error [node broken] provider ID",
            "info [node elsewhere] gce://p/z/i belongs to another cloud",
            "error [node gone] EC2 shows no instance i-00000000000000008",
            "warning [node ip-10-0-0-3.us-west-2.compute.internal] aws:///us-west-2b/i-00000000000000003 names zone us-west-2b, but the instance is in us-west-2a",
            "several nodes have instance i-00000000000000003: ip-10-0-0-3.us-west-2.compute.internal, twin",
        ],
    );
    has(
        &of(&found, "node-names"),
        &[
            "warning [node worker-1] its name is not the private DNS name of its instance: it is found by its provider ID",
            "error [node new] it has no provider ID, and no live instance has its name",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn marks_networks_and_groups_of_instances_are_reported_per_node() {
    let mut bed = Bed::new();
    let ids = ["sg-0000000000000000a", "sg-0000000000000000b"].map(str::to_owned);
    ids.iter().for_each(|id| drop(bed.world.ec2(|ec2| ec2.groups.insert(id.clone(), group(id, [].into())))));
    bed.world.instance(1, |first| {
        first.tags.clear();
        first.vpc = "vpc-2".to_owned();
    });
    bed.world.interface(1, |first| first.groups = ids[..1].to_vec());
    bed.world.instance(2, |second| {
        second.tags.insert("kubernetes.io/cluster/c2".to_owned(), "shared".to_owned());
    });
    bed.world.interface(2, |second| second.groups = ids.to_vec());
    let found = checks(&bed, &[]).await;
    has(
        &of(&found, "instance-tags"),
        &[
            "warning [node ip-10-0-0-1.us-west-2.compute.internal] instance i-00000000000000001 lacks the tag kubernetes.io/cluster/c1",
            "create-tags --resources i-00000000000000001",
            "is tagged for several clusters: c1, c2",
        ],
    );
    has(&of(&found, "node-vpc"), &["error [node ip-10-0-0-1", "is in VPC vpc-2, but the cluster's is vpc-1"]);
    has(
        &of(&found, "node-security-groups"),
        &[
            "warning [node ip-10-0-0-1",
            "security group sg-0000000000000000a gets the rules of load balancers, and lacks the tag",
            "error [node ip-10-0-0-2",
            "ensure the k8s security group is tagged: of sg-0000000000000000a, sg-0000000000000000b tag the one that lets load balancers in",
        ],
    );
    // An instance named by its ID, with a node named by its address.
    bed.world.instance(1, |first| first.private_dns = format!("{}.us-west-2.compute.internal", id(1)));
    has(&of(&checks(&bed, &[]).await, "node-names"), &["warning [node ip-10-0-0-1"]);
    bed.world.instance(1, |first| first.private_dns = dns_name(1));
    // Without a provider ID, the instance is found by the cluster's tag.
    bed.nodes = vec![Arc::new(Node { provider_id: None, ..node(1) })];
    has(&of(&checks(&bed, &[]).await, "instance-tags"), &["error [node ip-10-0-0-1", "found only by this tag"]);
}

#[tokio::test(start_paused = true)]
async fn each_service_shows_what_a_take_over_changes() {
    let bed = Bed::new();
    let (same, mut drifted) = (bed.made("same", "nlb").await, bed.made("drift", "").await);
    let foreign = bed.made("other", "nlb").await;
    drifted.metadata.annotations.insert(format!("{PREFIX}connection-idle-timeout"), "90".to_owned());
    bed.written();
    bed.world.state(|state| {
        let mut found = state.elbv2.balancers.values_mut();
        found.find(|one| one.name == foreign.default_load_balancer_name()).unwrap().tags.remove(KEY);
    });
    let (missing, elsewhere) = (service("new", "nlb"), service("lbc", "external"));
    let mut invalid = service("bad", "nlb");
    invalid.metadata.annotations.insert(format!("{PREFIX}healthcheck-interval"), "often".to_owned());
    let mut none = service("none", "");
    none.spec.kind = "ClusterIP".to_owned();
    let mut lost = service("lost", "");
    lost.status.load_balancer =
        serde_json::from_value(json!({"ingress": [{"hostname": "a1-2.us-west-2.elb.amazonaws.com"}]})).unwrap();
    let mut left = service("left", "");
    left.spec.kind = "ClusterIP".to_owned();
    left.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.to_owned()];
    let all = [&same, &drifted, &foreign, &missing, &elsewhere, &invalid, &none, &lost, &left];
    let text = of(&checks(&bed, &all).await, "load-balancers");
    has(
        &text,
        &[
            "info [service shop/same]",
            "warning [service shop/drift] what would change on load balancer a",
            "90",
            "error [service shop/other]",
            "not tagged",
            "warning [service shop/new]",
            "would be created: ",
            "info [service shop/lbc] another controller makes",
            "error [service shop/bad]",
            "healthcheck-interval",
            "warning [service shop/lost]",
            "does not exist; what would be done: ",
            "info [service shop/left] nothing of load balancer ",
        ],
    );
    assert!(!text.contains("shop/none"), "{text}");
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn without_a_mark_or_without_instances_the_rest_is_checked_all_the_same() {
    let mut bed = Bed::new();
    bed.env.ownership = Ownership::untagged();
    has(
        &of(&checks(&bed, &[]).await, "cluster-tag"),
        &["warning [flag --allow-untagged-cloud]", "set KubernetesClusterID"],
    );
    bed.env.ownership = Ownership { cluster: "c1".to_owned(), legacy: true };
    has(&of(&checks(&bed, &[]).await, "cluster-tag"), &["KubernetesCluster = c1"]);
    bed.world.deny("ec2:DescribeInstances");
    let found = checks(&bed, &[]).await;
    has(&of(&found, "provider-ids"), &["error [] could not be checked: ccm lacks ec2:DescribeInstances"]);
    has(&of(&found, "subnet-tags"), &["would be in subnet-a"]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_with_several_sources_is_asked_about_with_one() {
    let bed = Bed::new();
    let from = |cidr: &str| rule(Some(22), Peer::V4(cidr.to_owned()));
    let rules = vec![from("10.0.0.0/8"), from("10.1.0.0/16")];
    bed.world.ec2(|ec2| ec2.groups.get_mut(NODE_GROUP).unwrap().ingress = rules);
    has(&of(&checks(&bed, &[]).await, "permissions"), &["ec2:AuthorizeSecurityGroupIngress, "]);
}

#[tokio::test(start_paused = true)]
async fn permissions_for_routes_are_not_checked_where_the_flags_make_none() {
    let (mut bed, web) = complete().await;
    for permission in ["ec2:CreateRoute", "ec2:ModifyInstanceAttribute", "ec2:ModifyNetworkInterfaceAttribute"] {
        bed.world.deny(permission);
    }
    bed.makes_routes = false;
    let text = of(&checks(&bed, &[&web]).await, "permissions");
    has(&text, &["[ec2:CreateRoute] not checked: no controller makes routes"]);
    assert!(!text.contains("ccm lacks"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_aws_does_not_take_are_one_finding() {
    let (bed, web) = complete().await;
    bed.world.expire();
    let found = checks(&bed, &[&web]).await;
    let bad: Vec<&Check> = found.iter().filter(|check| check.severity == Severity::Error).collect();
    assert_eq!(bad.len(), 1, "{found:#?}");
    assert!(bad[0].message.contains("RequestExpired"), "{found:#?}");
}
