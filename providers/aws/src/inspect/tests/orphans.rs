use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{ErrorClass, Inspect as _, Orphan};

use super::bed::{Bed, CLUSTER, KEY, group, id, owned, service};
use super::has;
use crate::client::ec2::{Peer, Permission, Route, Source};
use crate::client::elb;
use crate::loadbalancer::names;
use crate::ownership::{Ownership, SERVICE_KEY};

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
    let untouched = bed.state().clone();
    let (mut classic, mut network) = (service("old", ""), service("web", "nlb"));
    bed.make(&mut classic).await;
    bed.make(&mut network).await;
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
            "ingress of SecurityGroup sg-nodes",
            "delete TargetGroup k8s-shop-web-",
            "SecurityGroup sg-k8s-elb-a006f6c64",
            "[disruptive]",
        ],
    );
    assert!(!text.contains("KEPT"), "{text}");
    assert_eq!(orphans[1].created, Some(super::writes::MADE));
    assert!(orphans[0].cost.as_ref().is_some_and(|cost| cost.contains("USD a month")));
    delete_all(&bed, &orphans).await;
    let written = bed.cloud.written();
    assert!(written.iter().any(|write| write.starts_with("DeleteSecurityGroup sg-k8s-shop-web-")), "{written:?}");
    assert_eq!(*bed.state(), untouched);
    // A second time there is nothing to do.
    delete_all(&bed, &orphans).await;
    assert!(bed.cloud.written().iter().all(|write| write.starts_with("DeleteLoadBalancer")), "nothing else");
    assert!(bed.orphans(&[]).await.is_empty());
}

/// Two clusters in one account: the kubeconfig of the one, the cloud config of the other.
#[tokio::test(start_paused = true)]
async fn what_another_cluster_uses_is_kept() {
    let bed = Bed::new();
    let mut web = service("web", "nlb");
    bed.make(&mut web).await;
    let tag = |cluster: &str| {
        let mark = || [(format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned())].into();
        bed.state().instances.values_mut().for_each(|instance| instance.tags = mark());
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
    // Nothing is left to compare with when the cluster is gone.
    let gone = bed.inspector().orphans(CLUSTER, &ccm_provider::Claims::default()).await.unwrap();
    assert!(gone.len() == 2 && gone.iter().all(|orphan| orphan.kept.is_none()));
    // A node without a provider ID is known by the name of its instance.
    tag("c1");
    let node = ccm_provider::Node { provider_id: None, ..(*bed.nodes[0]).clone() };
    let claims = ccm_provider::Claims { nodes: vec![node.into()], services: Vec::new() };
    let orphans = bed.inspector().orphans(CLUSTER, &claims).await.unwrap();
    assert!(orphans.iter().all(|orphan| orphan.kept.is_none()), "{}", summary(&orphans));
}

#[tokio::test(start_paused = true)]
async fn many_are_looked_at_with_few_calls() {
    let bed = Bed::new();
    for number in 0..40 {
        bed.make(&mut service(&format!("s{number}"), if number % 2 == 0 { "" } else { "nlb" })).await;
    }
    let calls = || bed.cloud.calls.load(std::sync::atomic::Ordering::Relaxed);
    let before = calls();
    let orphans = bed.orphans(&[]).await;
    // A classic balancer leaves a security group, a network one a target group.
    assert_eq!(orphans.len(), 80, "{}", summary(&orphans));
    assert!(orphans.iter().all(|orphan| orphan.kept.is_none()), "{}", summary(&orphans));
    let made = calls() - before;
    assert!(made < 120, "calls: {made}");
}

#[tokio::test(start_paused = true)]
async fn a_service_claims_by_type_or_finalizer() {
    let bed = Bed::new();
    let mut web = service("web", "nlb");
    bed.make(&mut web).await;
    web.spec.kind = "ClusterIP".to_owned();
    web.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.to_owned()];
    assert!(bed.orphans(&[&web]).await.is_empty(), "its deletion is under way");
    web.metadata.finalizers.clear();
    let orphans = bed.orphans(&[&web]).await;
    assert_eq!(kinds(&orphans), ["LoadBalancer", "TargetGroup"]);
    has(&summary(&orphans), &["Service shop/web is of type ClusterIP, and its load balancer was given up"]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_a_former_service_of_the_same_name_is_told_and_kept() {
    let mut bed = Bed::new();
    bed.env.managed_network_groups = true;
    let (mut classic, mut network) = (service("old", ""), service("web", "nlb"));
    bed.make(&mut classic).await;
    bed.make(&mut network).await;
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
    assert_eq!(bed.cloud.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_others_made_for_the_cluster_is_no_orphan() {
    let bed = Bed::new();
    {
        let mut state = bed.state();
        let with = |name: &str, vpc: &str| elb::LoadBalancer {
            name: name.to_owned(),
            vpc: vpc.to_owned(),
            ..elb::LoadBalancer::default()
        };
        // The API server's, as kops tags it.
        state.classic.insert("api-c1".to_owned(), with("api-c1", "vpc-1"));
        state.tags.insert("api-c1".to_owned(), owned());
        let mut tags = owned();
        tags.insert(SERVICE_KEY.to_owned(), "shop/x".to_owned());
        // In another VPC; of another cluster; merely a member.
        let balancer = |digit: char| format!("a{}", digit.to_string().repeat(31));
        state.classic.insert(balancer('1'), with(&balancer('1'), "vpc-2"));
        state.tags.insert(balancer('1'), tags.clone());
        for (digit, key, value) in [('2', "kubernetes.io/cluster/c2", "owned"), ('3', KEY, "shared")] {
            let mut tags = tags.clone();
            tags.remove(KEY);
            tags.insert(key.to_owned(), value.to_owned());
            state.classic.insert(balancer(digit), with(&balancer(digit), "vpc-1"));
            state.tags.insert(balancer(digit), tags);
        }
        // Groups of the user's that carry the tag.
        for (id, name) in [("sg-1", "k8s-elb-mine"), ("sg-2", "k8s-shop-web-0123456789"), ("sg-3", "bastion")] {
            state.groups.insert(id.to_owned(), group(id, name));
        }
    }
    let orphans = bed.orphans(&[]).await;
    assert!(orphans.is_empty(), "{}", summary(&orphans));
    // With half of our signs: told, and kept.
    {
        let mut state = bed.state();
        state.tags.get_mut("api-c1").unwrap().insert(SERVICE_KEY.to_owned(), "shop/x".to_owned());
        let name = format!("a{}", "4".repeat(31));
        state.classic.insert(
            name.clone(),
            elb::LoadBalancer { name: name.clone(), vpc: "vpc-1".to_owned(), ..elb::LoadBalancer::default() },
        );
        state.tags.insert(name, owned());
    }
    let orphans = bed.orphans(&[]).await;
    assert_eq!(orphans.len(), 2);
    has(
        &summary(&orphans),
        &["KEPT no tag kubernetes.io/service-name", "KEPT its name is none that this program gives"],
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_mark_has_no_orphans_but_an_error_with_the_way_out() {
    let mut bed = Bed::new();
    let mut web = service("web", "");
    bed.make(&mut web).await;
    let orphans = bed.orphans(&[]).await;
    bed.env.ownership = Ownership::untagged();
    let error = bed.inspector().orphans(CLUSTER, &bed.claims(&[])).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("set KubernetesClusterID"), "{error}");
    bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    assert_eq!(bed.cloud.written(), [""; 0]);
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
        bed.make(&mut service("web", "nlb")).await;
        bed.cloud.deny(permission);
        let error = bed.inspector().orphans(CLUSTER, &bed.claims(&[])).await.unwrap_err();
        assert!(error.to_string().contains(permission), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_mark_or_came_into_use_since_is_refused() {
    let bed = Bed::new();
    let (mut classic, mut network) = (service("old", ""), service("web", "nlb"));
    bed.make(&mut classic).await;
    bed.make(&mut network).await;
    let orphans = bed.orphans(&[]).await;
    assert_eq!(kinds(&orphans), ["LoadBalancer", "LoadBalancer", "TargetGroup", "SecurityGroup"]);
    let balancer_group = orphans[3].id.clone();
    {
        let mut state = bed.state();
        state.tags.values_mut().for_each(|tags| drop(tags.insert(KEY.to_owned(), "shared".to_owned())));
        state.groups.get_mut(&balancer_group).unwrap().tags.clear();
    }
    for orphan in &orphans {
        let error = bed.inspector().delete_orphan(CLUSTER, orphan).await.unwrap_err();
        has(&error.to_string(), &["is not deleted: its tags are not those"]);
    }
    // The marks are back, but another balancer leads to the target group.
    {
        let mut state = bed.state();
        state.tags.values_mut().for_each(|tags| drop(tags.insert(KEY.to_owned(), "owned".to_owned())));
        state.target_groups.values_mut().for_each(|group| group.balancers = vec!["arn:balancer/other".to_owned()]);
    }
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[2]).await.unwrap_err();
    has(&error.to_string(), &["load balancer arn:balancer/other leads to it"]);
    let orphans = bed.orphans(&[]).await;
    has(&summary(&orphans[2..3]), &["TargetGroup", "KEPT load balancer arn:balancer/other leads to it"]);
    assert_eq!(bed.cloud.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn parts_that_go_by_themselves_are_waited_for() {
    let bed = Bed::new();
    let (mut classic, mut network) = (service("old", ""), service("web", "nlb"));
    bed.make(&mut classic).await;
    bed.make(&mut network).await;
    let orphans = bed.orphans(&[]).await;
    // Before their balancers are deleted.
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
    let name = names::classic_group(&made_for.default_load_balancer_name());
    {
        let mut state = bed.state();
        let mut left = group("sg-left", &name);
        left.description = names::classic_group_description(&made_for.default_load_balancer_name(), &made_for.key());
        state.groups.insert("sg-left".to_owned(), left);
        // A rule of the user's in a group that is not the cluster's, and one of ours on the nodes.
        let from = |port| Permission {
            protocol: "tcp".to_owned(),
            from_port: Some(port),
            to_port: Some(port),
            sources: vec![Source {
                from: Peer::Group { id: "sg-left".into(), account: None },
                description: String::new(),
            }],
        };
        let mut theirs = group("sg-db", "db");
        theirs.tags.clear();
        theirs.ingress = vec![from(5432)];
        state.groups.insert("sg-db".to_owned(), theirs);
        state.groups.get_mut("sg-nodes").unwrap().ingress = vec![from(30080)];
    }
    let orphans = bed.orphans(&[]).await;
    has(&summary(&orphans), &["SecurityGroup sg-left", "KEPT security group \"sg-db\"", "keeps sg-left"]);
    bed.state().groups.remove("sg-db");
    let orphans = bed.orphans(&[]).await;
    has(&summary(&orphans), &["ingress of sg-nodes tcp 30080 from sg-left removed"]);
    delete_all(&bed, &orphans).await;
    assert_eq!(bed.cloud.written(), ["RevokeSecurityGroupIngress sg-nodes", "DeleteSecurityGroup sg-left"]);
}

#[tokio::test(start_paused = true)]
async fn blackholes_of_no_node_go_and_nothing_else_of_the_table() {
    let bed = Bed::new();
    let add = |destination: &str, instance: Option<String>, blackhole: bool| {
        // EC2 forgets the instance and remembers the interface.
        let (destination, interface) = (destination.to_owned(), Some("eni-1".to_owned()));
        bed.state().tables[0].routes.push(Route { destination, instance, interface, blackhole, ..Route::default() });
    };
    add("10.200.1.0/24", Some(id(1)), true); // of a node: the route controller's business
    add("10.200.9.0/24", None, true);
    add("10.200.8.0/24", Some(id(8)), false);
    let orphans = bed.orphans(&[]).await;
    assert_eq!(kinds(&orphans), ["Route"], "{}", summary(&orphans));
    assert_eq!(orphans[0].id, "rtb-1 10.200.9.0/24");
    delete_all(&bed, &orphans).await;
    assert_eq!(bed.cloud.written(), ["DeleteRoute rtb-1 10.200.9.0/24"]);
    delete_all(&bed, &orphans).await;
    assert_eq!(bed.cloud.written(), [""; 0], "gone is as good");
    // It leads somewhere again.
    add("10.200.9.0/24", Some(id(2)), false);
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    has(&error.to_string(), &["leads to i-00000000000000002 by now"]);
    // To a peering that is gone.
    bed.state().tables[0].routes.last_mut().unwrap().interface = None;
    bed.state().tables[0].routes.last_mut().unwrap().instance = None;
    bed.state().tables[0].routes.last_mut().unwrap().blackhole = true;
    assert!(bed.orphans(&[]).await.is_empty());
    let error = bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    has(&error.to_string(), &["it is no route to an instance any more"]);
    bed.state().tables[0].routes.last_mut().unwrap().interface = Some("eni-1".to_owned());
    // Through an appliance that is stopped; and when nothing tells any more what pods had.
    add("192.168.0.0/16", None, true);
    has(&summary(&bed.orphans(&[]).await), &["KEPT no node has a pod range of this size (/16)"]);
    bed.state().tables[0].routes.pop();
    let gone = bed.inspector().orphans(CLUSTER, &ccm_provider::Claims::default()).await.unwrap();
    has(&summary(&gone), &["Route rtb-1 10.200.9.0/24", "KEPT no node has a pod range of this size (/24)"]);
    // A table that clusters share may hold another's.
    bed.state().tables[0].tags.insert(KEY.to_owned(), "shared".to_owned());
    has(&summary(&bed.orphans(&[]).await), &["KEPT the route table is not tagged kubernetes.io/cluster/c1 = owned"]);
    bed.inspector().delete_orphan(CLUSTER, &orphans[0]).await.unwrap_err();
    assert_eq!(bed.cloud.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_another_process_told_is_refused() {
    let bed = Bed::new();
    bed.make(&mut service("web", "nlb")).await;
    let mut orphan = bed.orphans(&[]).await.remove(0);
    orphan.handle = serde_json::Value::Null;
    let error = bed.inspector().delete_orphan(CLUSTER, &orphan).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
}
