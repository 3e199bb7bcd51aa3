use super::model::{all_from, desired, group, member, put, texts, v4, with, world};
use crate::annotations::Kind;
use crate::client::Tags;
use crate::client::ec2::SecurityGroup;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::plan::security_groups::delete::{self, Removal};
use crate::loadbalancer::rules::Rule;
use crate::loadbalancer::wanted::Goal;
use crate::tests::env;

fn managed(tags: Tags) -> SecurityGroup {
    SecurityGroup {
        description: "Security group for Kubernetes ELB a0f1e2d3caaaabbbbcccc0123456789a (shop/web)".to_owned(),
        ..group("sg-lb", "k8s-elb-a0f1e2d3caaaabbbbcccc0123456789a", tags)
    }
}

fn removal(world: &Observed) -> Removal {
    delete::unneeded(Kind::Classic, &desired(Goal::Absent), &["sg-lb".to_owned()], &[], world, &env())
}

fn ssh_from(group: &str) -> Rule {
    Rule { peer: all_from(group).peer, ..Rule::port("tcp", 22, v4("")) }
}

#[test]
fn other_references_go_from_member_groups_and_elsewhere_their_group_is_named() {
    let mut world = world();
    put(&mut world, managed(member("owned")));
    put(&mut world, with(group("sg-nodes", "nodes", member("shared")), vec![ssh_from("sg-lb"), all_from("sg-lb")]));
    put(&mut world, with(group("sg-plain", "plain", Tags::new()), vec![ssh_from("sg-lb")]));
    let Removal { revoke, delete, findings, .. } = removal(&world);
    assert_eq!(
        delete.len(),
        1,
        "EC2 refuses it as long as the rule is there, which keeps the Service from going unseen"
    );
    let revoke = texts(&revoke);
    assert!(revoke.len() == 1 && revoke[0].contains("sg-nodes"), "{revoke:#?}");
    assert!(
        revoke[0].contains("tcp 22 from sg-lb removed") && revoke[0].contains("all traffic from sg-lb removed"),
        "{revoke:#?}"
    );
    assert_eq!(
        findings[0].to_string(),
        "security group \"sg-plain\": its rule \"tcp 22 from sg-lb\" keeps sg-lb \
         (k8s-elb-a0f1e2d3caaaabbbbcccc0123456789a) from being deleted; this program did not create the rule; remove it"
    );
}

#[test]
fn with_ingress_disabled_nothing_is_cut_and_the_holders_are_named() {
    let mut world = world();
    put(&mut world, managed(member("owned")));
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![all_from("sg-lb")]));
    let env = Env { node_groups_untouched: true, ..env() };
    let removal = delete::unneeded(Kind::Classic, &desired(Goal::Absent), &[], &[], &world, &env);
    assert_eq!((removal.revoke.len(), removal.delete.len(), removal.findings.len()), (0, 1, 1));
}

#[test]
fn only_groups_with_our_tag_name_and_description_are_deleted() {
    let cases = [
        ("as made", managed(member("owned")), true),
        ("shared with the cluster", managed(member("shared")), false),
        ("without tag", managed(Tags::new()), false),
        ("another name", SecurityGroup { name: "k8s-elb-other".to_owned(), ..managed(member("owned")) }, false),
        ("another description", SecurityGroup { description: "mine".to_owned(), ..managed(member("owned")) }, false),
        ("another VPC", SecurityGroup { vpc: "vpc-2".to_owned(), ..managed(member("owned")) }, false),
    ];
    for (case, group, goes) in cases {
        let mut world = world();
        put(&mut world, group);
        let deleted = texts(&removal(&world).delete);
        assert_eq!(deleted.len(), usize::from(goes), "{case}: {deleted:?}");
    }
}

#[test]
fn named_configured_and_kept_groups_are_not_deleted() {
    let mut world = world();
    put(&mut world, managed(member("owned")));
    let mut desired = desired(Goal::Absent);
    let nothing = Removal::default();
    let of = |desired: &_, keep: &[_], env: &Env| delete::unneeded(Kind::Classic, desired, &[], keep, &world, env);
    assert_eq!(of(&desired, &["sg-lb".into()], &env()), nothing);
    assert_eq!(of(&desired, &[], &Env { shared_group: Some("sg-lb".to_owned()), ..env() }), nothing);
    desired.named_groups.extra = vec!["sg-lb".to_owned()];
    assert_eq!(of(&desired, &[], &env()), nothing);
    let untagged = Env { ownership: crate::ownership::Ownership::untagged(), ..env() };
    assert_eq!(of(&super::model::desired(Goal::Absent), &[], &untagged), nothing, "never without a cluster ID");
}

#[test]
fn the_network_group_is_known_by_name_and_the_former_name_while_attached_or_by_its_tag() {
    let removal = |name: &str, attached: &[String], service: Option<&str>| {
        let (mut world, mut tags) = (world(), member("owned"));
        tags.extend(service.map(|service| ("kubernetes.io/service-name".to_owned(), service.to_owned())));
        let description = "[k8s] Managed SecurityGroup for LoadBalancer".to_owned();
        put(&mut world, SecurityGroup { description, ..group("sg-nlb", name, tags) });
        delete::unneeded(Kind::Network, &desired(Goal::Absent), attached, &[], &world, &env())
    };
    let of = |name: &str, attached: &[String]| removal(name, attached, None).delete.len();
    assert_eq!(of("k8s-shop-web-6110eb0328", &[]), 1);
    assert_eq!(of("k8s-shop-web-0000000000", &["sg-nlb".to_owned()]), 1, "--cluster-name has changed");
    assert_eq!(of("k8s-shop-web-0000000000", &[]), 0);
    assert_eq!(of("k8s-shop-api-6110eb0328", &["sg-nlb".to_owned()]), 0);
    for (service, is_ours) in [("shop/web", true), ("shop/web2", false)] {
        let removal = removal("k8s-shop-web-0000000000", &[], Some(service));
        assert_eq!((removal.mark.len(), removal.delete.len()), (0, usize::from(is_ours)), "{service}");
    }
}
