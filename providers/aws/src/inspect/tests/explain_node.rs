use std::sync::Arc;

use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Inspect as _, Node, Taint};

use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_cloudsim::aws::ec2::model::Target;

use super::bed::{Bed, CLUSTER, node};
use super::{has, lines};
use crate::client::Tags;
use crate::tests::world::{NODE_GROUP, dns_name, group, new_interface, owned, route_to};

async fn explain(bed: &Bed, node: &Node) -> String {
    lines(&bed.inspector().explain_node(CLUSTER, node).await.unwrap())
}

fn named(name: &str) -> Node {
    Node { name: name.into(), ..Node::default() }
}

#[tokio::test(start_paused = true)]
async fn a_node_in_order_is_reported_link_by_link() {
    let bed = Bed::new();
    let facts = explain(&bed, &node(1)).await;
    assert!(!facts.contains("BAD") && !facts.contains("waiting"), "{facts}");
    has(
        &facts,
        &[
            "good [provider ID aws:///us-west-2a/i-00000000000000001] names instance i-00000000000000001",
            "good [instance i-00000000000000001] running, m5.large in us-west-2a",
            "good [name ip-10-0-0-1.us-west-2.compute.internal] the private DNS name",
            "good [tag kubernetes.io/cluster/c1]",
            &format!("good [security group {NODE_GROUP}]"),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn each_state_of_an_instance_says_what_follows() {
    let bed = Bed::new();
    for (state, summary) in [
        (InstanceState::Pending, "waiting [instance i-00000000000000001] pending"),
        (InstanceState::ShuttingDown, "waiting [instance i-00000000000000001] shutting-down: once it is terminated"),
        (InstanceState::Terminated, "waiting [instance i-00000000000000001] terminated: the node is deleted"),
        (InstanceState::Stopped, "BAD [instance i-00000000000000001] stopped"),
    ] {
        bed.world.instance(1, |instance| instance.state = state);
        has(&explain(&bed, &node(1)).await, &[summary]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_of_nobody_names_what_is_wrong() {
    let bed = Bed::new();
    let with = |id: &str| Node { provider_id: Some(id.into()), ..named("n") };
    has(
        &explain(&bed, &with("gce://p/z/i")).await,
        &["good [provider ID gce://p/z/i] belongs to another cloud: this provider does nothing"],
    );
    has(
        &explain(&bed, &with("aws:///us-west-2a/worker-1")).await,
        &[
            "BAD [provider ID aws:///us-west-2a/worker-1]",
            "names no EC2 instance",
            "=> spec.providerID cannot be changed",
        ],
    );
    let missing = explain(&bed, &with("aws:///us-west-2a/i-00000000000000009")).await;
    has(
        &missing,
        &[
            "BAD [instance i-00000000000000009] EC2 does not show it: the cloud says that the instance does not exist",
            "older than 300 s",
            "region us-west-2",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_another_vpc_without_mark_is_bad_twice() {
    let bed = Bed::new();
    bed.world.instance(1, |instance| {
        instance.vpc = "vpc-2".to_owned();
        instance.tags.clear();
    });
    has(
        &explain(&bed, &node(1)).await,
        &[
            "BAD [instance i-00000000000000001] in VPC vpc-2, but the cluster's is vpc-1",
            "BAD [tag kubernetes.io/cluster/c1] missing on instance",
            "create-tags --resources i-00000000000000001 --tags Key=kubernetes.io/cluster/c1,Value=owned",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_is_found_by_its_name_or_the_fix_is_named() {
    let bed = Bed::new();
    let new = |name: &str| Node {
        taints: [Taint {
            key: TAINT_UNINITIALIZED.into(),
            value: "".into(),
            effect: "NoSchedule".into(),
            time_added: None,
        }]
        .into(),
        ..named(name)
    };
    let found = explain(&bed, &new("ip-10-0-0-1.us-west-2.compute.internal")).await;
    has(&found, &["waiting [provider ID] not set yet", "good [instance i-00000000000000001] running"]);
    let by_resource = explain(&bed, &named("i-00000000000000001.us-west-2.compute.internal")).await;
    has(&by_resource, &["the ID of the instance, as with resource-based naming"]);

    let own = explain(&bed, &new("worker-1")).await;
    has(
        &own,
        &[
            "BAD [instance named worker-1] no live instance has the node's name",
            "--provider-id=aws:///<zone>/<instance ID>",
        ],
    );
    let gone = explain(&bed, &new("ip-10-0-0-9.us-west-2.compute.internal")).await;
    has(&gone, &["BAD [instance named ip-10-0-0-9", "missing from a complete list"]);

    // The instance exists without the cluster's tag, so the controllers do not find it.
    bed.world.instance(1, |instance| instance.tags.clear());
    let unmarked = explain(&bed, &new("ip-10-0-0-1.us-west-2.compute.internal")).await;
    has(&unmarked, &["BAD [tag kubernetes.io/cluster/c1] missing on instance i-00000000000000001"]);

    bed.world.instance(2, |instance| instance.private_dns = dns_name(1));
    has(&explain(&bed, &new(&dns_name(1))).await, &["several instances have this private DNS name"]);
}

#[tokio::test(start_paused = true)]
async fn of_several_groups_exactly_one_must_carry_the_mark() {
    let bed = Bed::new();
    let ids = ["sg-0000000000000000a", "sg-0000000000000000b"].map(str::to_owned);
    ids.iter().for_each(|id| drop(bed.world.ec2(|ec2| ec2.groups.insert(id.clone(), group(id, Tags::new())))));
    bed.world.interface(1, |interface| interface.groups = ids.to_vec());
    has(
        &explain(&bed, &node(1)).await,
        &[
            "BAD [security groups]",
            "ensure the k8s security group is tagged",
            "tag exactly one of them kubernetes.io/cluster/c1 = owned",
        ],
    );
    bed.world.ec2(|ec2| ec2.groups.get_mut(&ids[1]).unwrap().tags = owned());
    has(&explain(&bed, &node(1)).await, &[&format!("good [security group {}]", ids[1])]);
    bed.world.interface(1, |interface| interface.groups.clear());
    has(&explain(&bed, &node(1)).await, &["BAD [security groups] the instance has none"]);
}

#[tokio::test(start_paused = true)]
async fn pod_routes_are_reported_where_the_cluster_keeps_any() {
    let bed = Bed::new();
    let add = |range: &str, number: usize| bed.table(|table| table.routes.push(route_to(range, number)));
    add("10.200.2.0/24", 2);
    has(&explain(&bed, &node(1)).await, &["waiting [route 10.200.1.0/24] not in rtb-1 yet"]);
    add("10.200.1.0/24", 2);
    has(
        &explain(&bed, &node(1)).await,
        &["BAD [route 10.200.1.0/24] leads to i-00000000000000002 in rtb-1, not to the node"],
    );

    bed.table(|table| drop(table.routes.pop()));
    add("10.200.1.0/24", 1);
    has(
        &explain(&bed, &node(1)).await,
        &["good [route 10.200.1.0/24] leads to the node in rtb-1", "good [source/destination check] off"],
    );
    bed.world.interface(1, |interface| interface.source_dest_check = true);
    has(
        &explain(&bed, &node(1)).await,
        &["BAD [source/destination check] on", "--network-interface-id eni-00000000000000001 --no-source-dest-check"],
    );
    let gone = Target::Interface { interface: "eni-gone".to_owned(), instance: None };
    bed.table(|table| table.routes.last_mut().unwrap().target = gone);
    has(&explain(&bed, &node(1)).await, &["waiting [route 10.200.1.0/24] a blackhole"]);

    // A configured table that does not exist is a mistake; without a tagged table there are no pod routes.
    bed.world.ec2(|ec2| ec2.route_tables.remove("rtb-1"));
    assert!(!explain(&bed, &node(1)).await.contains("route"));
    let named = Bed { own_table: Some("rtb-9".to_owned()), ..bed };
    has(&explain(&named, &node(1)).await, &["BAD [route table]", "rtb-9 (RouteTableID) does not exist"]);
}

#[tokio::test(start_paused = true)]
async fn a_fargate_node_is_its_network_interface() {
    let bed = Bed::new();
    let node = Node { provider_id: Some("aws:///us-west-2a/x/fargate-10.0.0.77".into()), ..named("fargate") };
    has(&explain(&bed, &node).await, &["BAD [Fargate node 10.0.0.77] no attached network interface in vpc-1"]);
    bed.world.ec2(|ec2| ec2.interfaces.insert("eni-77".to_owned(), new_interface([10, 0, 0, 77].into(), None)));
    has(&explain(&bed, &node).await, &["good [Fargate node 10.0.0.77] network interface eni-77 in us-west-2a"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_one_bad_link_and_the_others_are_reported() {
    let bed = Bed::new();
    bed.world.deny("ec2:DescribeSecurityGroups");
    let facts = explain(&bed, &node(1)).await;
    has(&facts, &["good [instance", "BAD [security groups] could not be read: ccm lacks ec2:DescribeSecurityGroups"]);
    has(&facts, &["=> grant ec2:DescribeSecurityGroups"]);
    // A cluster without pod routes needs no permission to read them.
    bed.world.deny("ec2:DescribeRouteTables");
    has(&explain(&bed, &node(1)).await, &["good [pod routes] not checked: ccm lacks ec2:DescribeRouteTables"]);
    // Without the instance there is nothing to report.
    bed.world.deny("ec2:DescribeInstances");
    let node: Arc<Node> = node(1).into();
    let error = bed.inspector().explain_node(CLUSTER, &node).await.unwrap_err();
    assert!(error.to_string().contains("ccm lacks ec2:DescribeInstances"), "{error}");
}
