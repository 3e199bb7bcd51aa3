use super::*;
use crate::client::ec2::Peer;
use crate::client::elbv2::HealthCheck;
use crate::loadbalancer::rules::{Rule, join};

fn creation() -> Write {
    Write::ElbV2(ElbV2Write::CreateTargetGroup {
        name: "k8s-shop-web-1".to_owned(),
        protocol: "TCP".to_owned(),
        port: 31080,
        vpc: "vpc-1".to_owned(),
        health_check: HealthCheck::default(),
        tags: Tags::new(),
    })
}

#[test]
fn a_deletion_takes_back_the_trace_of_the_creation() {
    let create = creation();
    let arn = "arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/k8s-shop-web-1/73e2d6bc24d8a067";
    let delete = Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group: arn.to_owned() });
    let ((left, _), (_, removed)) = (traces(&create), traces(&delete));
    assert_eq!(left, [Trace::TargetGroup("k8s-shop-web-1".to_owned())]);
    assert_eq!(removed, left);
}

#[test]
fn the_refusal_of_a_repeated_write_does_not_hide_what_the_first_one_made() {
    let create = creation();
    let settling = Settling::new(Cluster::default());
    let is_left = || settling.left("web", &Observed::default(), true).is_some();
    let first = settling.wrote("web", &create);
    settling.refused(&first);
    assert!(!is_left(), "nothing was made");
    settling.wrote("web", &create);
    let repeated = settling.wrote("web", &create);
    settling.refused(&repeated);
    assert!(is_left(), "a deletion waits until it sees the group");
}

#[test]
fn rules_that_were_opened_beside_refused_ones_are_waited_for_if_groups_are_read() {
    let peer = || Peer::Ipv4("10.0.0.0/8".to_owned());
    let permissions = join(vec![Rule::port("tcp", 31080, peer()), Rule::too_big(peer())]);
    let open = Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group: "sg-1".into(), permissions });
    let settling = Settling::new(Cluster::default());
    let new = settling.wrote("web", &open);
    assert_eq!(new.len(), 2);
    settling.refused_icmp(&new);
    assert!(settling.left("web", &Observed::default(), true).is_some());
    let unread = Observed { unread_groups: Some(ProviderError::unknown("unread")), ..Observed::default() };
    assert_eq!(settling.left("web", &unread, false), None);
    settling.refused(&new);
    assert_eq!(settling.left("web", &Observed::default(), true), None);
}
