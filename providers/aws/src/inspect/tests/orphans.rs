use ccm_provider::{ErrorClass, Inspect as _, Orphan};

use ccm_cloudsim::aws::ec2::SecurityGroup;
use ccm_cloudsim::aws::ec2::model::{Peer, Route as Leads, Target};
use ccm_cloudsim::aws::elb::Balancer;

use super::bed::{Bed, CLUSTER, service};
use super::has;
use crate::client::Tags;
use crate::loadbalancer::names;
use crate::ownership::{Ownership, SERVICE_KEY};
use crate::tests::world::{KEY, NODE_GROUP, eni, group, id, new_interface, owned, route_to, rule};

fn summary(orphans: &[Orphan]) -> String {
    let line = |orphan: &Orphan| {
        let kept = orphan.kept.as_ref().map(|kept| format!(" KEPT {kept}")).unwrap_or_default();
        let Orphan { kind, id, name, owner, reason, step, .. } = orphan;
        format!("{kind} {id} ({name}) of {owner}: {reason} | {step}{kept}\n")
    };
    orphans.iter().map(line).collect()
}

fn kinds(orphans: &[Orphan]) -> Vec<&str> {
    orphans.iter().map(|orphan| &*orphan.kind).collect()
}

async fn delete_all(bed: &Bed, orphans: &[Orphan]) {
    let inspector = bed.inspector();
    for orphan in orphans {
        inspector.delete_orphan(CLUSTER, orphan).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn all_that_services_left_is_found_in_order_and_deleted_to_the_last_rule() {
    let mut bed = Bed::new();
    bed.env.managed_network_groups = true;
    let untouched = bed.objects();
    let (classic, network) = bed.both().await;
    assert!(bed.orphans(&[&classic, &network]).await.is_empty(), "claimed");

    let orphans = bed.orphans(&[]).await;
    assert_eq!(
        kinds(&orphans),
        ["LoadBalancer", "LoadBalancer", "TargetGroup", "SecurityGroup", "SecurityGroup"],
        "{}",
        summary(&orphans)
    );
    let text = summary(&orphans);
    has(
        &text,
        &[
            "of service shop/old: there is no Service shop/old; recognized by its tags kubernetes.io/cluster/c1 and kubernetes.io/service-name",
            &format!("ingress of SecurityGroup {NODE_GROUP}"),
            "delete TargetGroup k8s-shop-web-",
            "(k8s-elb-a006f6c64",
            "[disruptive]",
        ],
    );
    assert!(!text.contains("KEPT"), "{text}");
    assert!(orphans[1].created.is_some());
    assert!(orphans[0].cost.as_ref().is_some_and(|cost| cost.contains("USD a month")));
    delete_all(&bed, &orphans).await;
    let written = bed.written();
    assert!(written.iter().any(|write| write == "DeleteSecurityGroup"), "{written:?}");
    assert_eq!(bed.objects(), untouched);
    // The second deletion has nothing to do.
    delete_all(&bed, &orphans).await;
    assert!(bed.written().iter().all(|write| write == "DeleteLoadBalancer"), "nothing else");
    assert!(bed.orphans(&[]).await.is_empty());
}

/// Two clusters in one account: the kubeconfig of one, the cloud config of the other.
#[tokio::test(start_paused = true)]
async fn what_another_cluster_uses_is_kept() {
    let bed = Bed::new();
    bed.made("web", "nlb").await;
    let tag = |cluster: &str| {
        let mark = || [(format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned())].into();
        bed.world.ec2(|ec2| ec2.instances.values_mut().for_each(|instance| instance.tags = mark()));
    };
    assert!(bed.orphans(&[]).await.iter().all(|orphan| orphan.kept.is_none()));
    tag("c2");
    let orphans = bed.orphans(&[]).await;
    assert_eq!(kinds(&orphans), ["LoadBalancer", "TargetGroup"]);
    for orphan in &orphans {
        let kept = orphan.kept.as_deref().unwrap_or_default();
        has(kept, &["no node of this cluster has an instance tagged kubernetes.io/cluster/c1", "check --kubeconfig"]);
        let error = bed.inspector().delete_orphan(CLUSTER, orphan).await.unwrap_err();
        has(&error.to_string(), &["is not deleted: no node of this cluster"]);
    }
    // After the cluster is deleted, there is nothing to compare with.
    let gone = bed.inspector().orphans(CLUSTER, &ccm_provider::Claims::default()).await.unwrap();
    assert!(gone.len() == 2 && gone.iter().all(|orphan| orphan.kept.is_none()));
    // A node without a provider ID is identified by the name of its instance.
    tag("c1");
    let node = ccm_provider::Node { provider_id: None, ..(*bed.nodes[0]).clone() };
    let claims = ccm_provider::Claims { nodes: vec![node.into()], services: Vec::new() };
    let orphans = bed.inspector().orphans(CLUSTER, &claims).await.unwrap();
    assert!(orphans.iter().all(|orphan| orphan.kept.is_none()), "{}", summary(&orphans));
}

#[tokio::test(start_paused = true)]
async fn many_are_looked_at_with_few_calls() {
    let bed = Bed::new();
    for number in 0..12 {
        bed.made(&format!("s{number}"), if number % 2 == 0 { "" } else { "nlb" }).await;
    }
    bed.world.calls();
    let orphans = bed.orphans(&[]).await;
    // A classic balancer leaves a security group, a network balancer a target group.
    assert_eq!(orphans.len(), 24, "{}", summary(&orphans));
    assert!(orphans.iter().all(|orphan| orphan.kept.is_none()), "{}", summary(&orphans));
    let calls = bed.world.calls();
    assert!(calls.len() <= 3 * orphans.len(), "calls: {calls:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_a_former_service_of_the_same_name_is_reported_and_kept() {
    let mut bed = Bed::new();
    bed.env.managed_network_groups = true;
    let (mut classic, mut network) = bed.both().await;
    for service in [&mut classic, &mut network] {
        service.metadata.uid = format!("99{}", &service.metadata.uid[2..]).into();
    }
    let orphans = bed.orphans(&[&classic, &network]).await;
    assert_eq!(
        kinds(&orphans),
        ["LoadBalancer", "LoadBalancer", "SecurityGroup", "SecurityGroup"],
        "{}",
        summary(&orphans)
    );
    assert!(orphans.iter().all(|orphan| orphan.kept.is_some()), "{}", summary(&orphans));
    has(&summary(&orphans), &["has another UID", "begins with the same letters"]);
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    assert!(error.to_string().contains("is not deleted: a Service shop/old exists"), "{error}");
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_others_made_for_the_cluster_is_no_orphan() {
    let bed = Bed::new();
    bed.made("old", "").await;
    let like = bed.world.state(|state| {
        state.ec2.groups.retain(|id, _| id == NODE_GROUP);
        state.ec2.groups.values_mut().for_each(|group| group.ingress.clear());
        state.elb.balancers.pop_first().unwrap().1
    });
    let add = |name: String, vpc: &str, tags: Tags| {
        let (vpc, groups) = (vpc.to_owned(), Vec::new());
        let balancer = Balancer { name: name.clone(), vpc, tags, groups, ..like.clone() };
        bed.world.state(|state| state.elb.balancers.insert(name, balancer));
    };
    let of_service = |mut tags: Tags| {
        tags.insert(SERVICE_KEY.to_owned(), "shop/x".to_owned());
        tags
    };
    let name = |digit: char| format!("a{}", digit.to_string().repeat(31));
    // The API server's balancer, as kops tags it.
    add("api-c1".to_owned(), "vpc-1", owned());
    // In another VPC; of another cluster; only a member.
    add(name('1'), "vpc-2", of_service(owned()));
    add(name('2'), "vpc-1", of_service([("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())].into()));
    add(name('3'), "vpc-1", of_service([(KEY.to_owned(), "shared".to_owned())].into()));
    // Groups of the user with the cluster's tag.
    for (number, name) in ["k8s-elb-mine", "k8s-shop-web-0123456789", "bastion"].into_iter().enumerate() {
        bed.world.ec2(|ec2| ec2.groups.insert(format!("sg-0000000000000001{number}"), group(name, owned())));
    }
    let orphans = bed.orphans(&[]).await;
    assert!(orphans.is_empty(), "{}", summary(&orphans));
    // With only some of this program's signs: reported, and kept.
    add("api-c1".to_owned(), "vpc-1", of_service(owned()));
    add(name('4'), "vpc-1", owned());
    let orphans = bed.orphans(&[]).await;
    assert_eq!(orphans.len(), 2);
    has(
        &summary(&orphans),
        &["KEPT no tag kubernetes.io/service-name", "KEPT this program does not create such names"],
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_mark_has_no_orphans_but_an_error_with_the_fix() {
    let mut bed = Bed::new();
    bed.made("web", "").await;
    let orphans = bed.orphans(&[]).await;
    bed.env.ownership = Ownership::untagged();
    let error = bed.inspector().orphans(CLUSTER, &bed.claims(&[])).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("set KubernetesClusterID"), "{error}");
    bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_an_error_and_no_shorter_list() {
    for permission in [
        "elasticloadbalancing:DescribeLoadBalancers",
        "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTags",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeRouteTables",
    ] {
        let bed = Bed::new();
        bed.made("web", "nlb").await;
        bed.world.deny(permission);
        let error = bed.inspector().orphans(CLUSTER, &bed.claims(&[])).await.unwrap_err();
        assert!(error.to_string().contains(permission), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_mark_or_came_into_use_since_is_refused() {
    let bed = Bed::new();
    bed.both().await;
    let orphans = bed.orphans(&[]).await;
    assert_eq!(kinds(&orphans), ["LoadBalancer", "LoadBalancer", "TargetGroup", "SecurityGroup"]);
    let balancer_group = orphans[3].id.clone();
    let mark = |value: &str| bed.tags(|tags| drop(tags.insert(KEY.to_owned(), value.to_owned())));
    mark("shared");
    bed.world.ec2(|ec2| ec2.groups.get_mut(&balancer_group).unwrap().tags.clear());
    for orphan in &orphans {
        let error = bed.inspector().delete_orphan(CLUSTER, orphan).await.unwrap_err();
        has(&error.to_string(), &["is not deleted: the marks by which it was recognized have changed"]);
    }
    // The tags are back, but another balancer forwards to the target group.
    mark("owned");
    bed.world.state(|state| {
        state.elbv2.listeners.values_mut().for_each(|listener| listener.balancer = "arn:balancer/other".to_owned());
    });
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[2]).await.unwrap_err();
    has(&error.to_string(), &["load balancer arn:balancer/other forwards to it"]);
    let orphans = bed.orphans(&[]).await;
    has(&summary(&orphans[2..3]), &["TargetGroup", "KEPT load balancer arn:balancer/other forwards to it"]);
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn parts_that_go_by_themselves_are_waited_for() {
    let bed = Bed::new();
    bed.both().await;
    let orphans = bed.orphans(&[]).await;
    // Before the deletion of their balancers.
    for orphan in &orphans[2..] {
        let error = bed.inspector().delete_orphan(CLUSTER, orphan).await.unwrap_err();
        assert!(error.retry_after().is_some(), "{error}");
    }
    delete_all(&bed, &orphans).await;
    assert!(bed.orphans(&[]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_anothers_rule_refers_to_is_kept_and_named() {
    let bed = Bed::new();
    let made_for = service("old", "");
    let (left, theirs) = ("sg-00000000000000011", "sg-00000000000000012");
    // A rule of the user in a group outside the cluster, and one of this program in the node group.
    let from = |port| rule(Some(port), Peer::Group(left.to_owned()));
    bed.world.ec2(|ec2| {
        let name = made_for.default_load_balancer_name();
        let description = names::classic_group_description(&name, &made_for.key());
        let name = names::classic_group(&name);
        ec2.groups.insert(left.to_owned(), SecurityGroup { description, ..group(&name, owned()) });
        let ingress = vec![from(5432)];
        ec2.groups.insert(theirs.to_owned(), SecurityGroup { ingress, ..group("db", Tags::new()) });
        ec2.groups.get_mut(NODE_GROUP).unwrap().ingress.push(from(30080));
    });
    let orphans = bed.orphans(&[]).await;
    let kept = format!("KEPT security group \"{theirs}\"");
    has(&summary(&orphans), &[&format!("SecurityGroup {left}"), &kept, &format!("keeps {left}")]);
    bed.world.ec2(|ec2| ec2.groups.remove(theirs));
    let orphans = bed.orphans(&[]).await;
    has(&summary(&orphans), &[&format!("ingress of {NODE_GROUP} tcp 30080 from {left} removed")]);
    delete_all(&bed, &orphans).await;
    assert_eq!(bed.written(), ["RevokeSecurityGroupIngress", "DeleteSecurityGroup"]);
}

#[tokio::test(start_paused = true)]
async fn blackholes_of_no_node_go_and_nothing_else_of_the_table() {
    let bed = Bed::new();
    // EC2 forgets the instance but keeps the interface.
    let gone = || Target::Interface { interface: "eni-gone".to_owned(), instance: None };
    let to = |destination: &str, target| Leads { target, ..route_to(destination, 1) };
    let add = |route: Leads| bed.table(|table| table.routes.push(route));
    let last = |target| bed.table(|table| table.routes.last_mut().unwrap().target = target);
    let of_node = Target::Interface { interface: "eni-gone".to_owned(), instance: Some(id(1)) };
    add(to("10.200.1.0/24", of_node)); // the route controller's business
    add(to("10.200.9.0/24", gone()));
    bed.world.ec2(|ec2| ec2.interfaces.insert(eni(8), new_interface([10, 0, 0, 8].into(), None)));
    add(route_to("10.200.8.0/24", 8));
    let orphans = bed.orphans(&[]).await;
    assert_eq!(kinds(&orphans), ["Route"], "{}", summary(&orphans));
    assert_eq!(orphans[0].id, "rtb-1 10.200.9.0/24");
    delete_all(&bed, &orphans).await;
    assert_eq!(bed.written(), ["DeleteRoute"]);
    delete_all(&bed, &orphans).await;
    assert_eq!(bed.written(), [""; 0], "gone is as good");
    // The target of the route exists again.
    add(route_to("10.200.9.0/24", 2));
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    has(&error.to_string(), &["leads to i-00000000000000002 by now"]);
    // To a deleted peering connection.
    last(Target::Gateway("igw-gone".to_owned()));
    assert!(bed.orphans(&[]).await.is_empty());
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    has(&error.to_string(), &["it is no longer a route to an instance"]);
    last(gone());
    // Through a stopped appliance; and when nothing shows the former pod ranges any more.
    add(to("192.168.0.0/16", gone()));
    has(&summary(&bed.orphans(&[]).await), &["KEPT no node has a pod range of this size (/16)"]);
    bed.table(|table| drop(table.routes.pop()));
    let found = bed.inspector().orphans(CLUSTER, &ccm_provider::Claims::default()).await.unwrap();
    has(&summary(&found), &["Route rtb-1 10.200.9.0/24", "KEPT no node has a pod range of this size (/24)"]);
    // A shared table may contain routes of another cluster.
    bed.table(|table| drop(table.tags.insert(KEY.to_owned(), "shared".to_owned())));
    has(&summary(&bed.orphans(&[]).await), &["KEPT the route table is not tagged kubernetes.io/cluster/c1 = owned"]);
    bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    assert_eq!(bed.written(), [""; 0]);
}
