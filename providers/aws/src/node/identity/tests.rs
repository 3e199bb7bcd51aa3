use super::*;
use proptest::prelude::*;

const ID: &str = "i-0123456789abcdef0";

fn ec2(id: &str) -> Machine {
    Machine::Ec2(InstanceId::parse(id).unwrap())
}

fn machine(text: &str) -> Machine {
    ProviderId::parse(text).unwrap().machine
}

fn node(name: &str, provider_id: Option<&str>) -> Node {
    Node { name: name.into(), provider_id: provider_id.map(Into::into), ..Node::default() }
}

#[test]
fn all_written_forms_of_an_id_are_read() {
    for text in [
        format!("aws:///us-west-2a/{ID}"),
        format!("aws:////{ID}"),
        format!("aws://123456789012/us-west-2a/{ID}"),
        format!("aws:///us-west-2a/{ID}/"),
        ID.to_owned(),
        format!("us-west-2a/{ID}"),
    ] {
        assert_eq!(machine(&text), ec2(ID), "{text}");
    }
    assert_eq!(machine("aws:///us-west-2a/i-01234567"), ec2("i-01234567"));
    assert_eq!(ProviderId::format("us-west-2a", ID), format!("aws:///us-west-2a/{ID}"));
}

#[test]
fn a_fargate_node_is_known_by_its_address() {
    let address = Machine::Fargate([192, 168, 164, 88].into());
    for text in [
        "aws:///us-west-2b/b4a1f0c1e2-1234/fargate-192.168.164.88",
        "aws:///us-west-2b/b4a1f0c1e2-1234/fargate-ip-192-168-164-88.us-west-2.compute.internal",
        "fargate-ip-192-168-164-88",
    ] {
        assert_eq!(machine(text), address, "{text}");
    }
    for odd in ["aws:///z/fargate-", "aws:///z/fargate-ip-1-2-3", "aws:///z/fargate-host.example"] {
        assert!(matches!(ProviderId::parse(odd), Err(BadProviderId::Malformed(_))), "{odd}");
    }
}

#[test]
fn what_can_be_no_instance_is_refused_and_distinguished_from_another_cloud() {
    for odd in [
        "",
        "aws://",
        "aws:///",
        "aws:///us-west-2a/vol-0123456789abcdef0",
        "aws:///us-west-2a/i-0123456789abcdef0/suffix",
        "aws:///us-west-2a/i-kwok",
        "aws:///us-west-2a/i-",
        "i-0123456789ABCDEF0",
        "i-012345678",
    ] {
        assert_eq!(ProviderId::parse(odd), Err(BadProviderId::Malformed(odd.into())));
    }
    for foreign in ["azure:///x/y", "gce://p/z/i-0123456789abcdef0", "kwok://n", "AWS:///z/i-0123456789abcdef0"] {
        assert_eq!(ProviderId::parse(foreign), Err(BadProviderId::Foreign(foreign.into())));
    }
}

#[test]
fn a_node_is_found_by_provider_id_then_by_what_its_name_is() {
    let own = Own { instance: InstanceId::parse("i-00000001").unwrap(), private_dns_name: "ip-10-0-0-1.x".into() };
    let wanted = |node: &Node| wanted(node, Some(&own));
    assert_eq!(wanted(&node("ip-10-0-0-1.x", Some(ID))), Wanted::Machine(ec2(ID)));
    assert_eq!(wanted(&node("ip-10-0-0-1.x", None)), Wanted::Machine(ec2("i-00000001")));
    assert_eq!(wanted(&node(&format!("{ID}.corp.example"), None)), Wanted::Machine(ec2(ID)));
    assert_eq!(wanted(&node(ID, Some(""))), Wanted::Machine(ec2(ID)));
    assert_eq!(wanted(&node("ip-10-0-0-9.x", None)), Wanted::Name("ip-10-0-0-9.x".into()));
    assert!(matches!(wanted(&node(ID, Some("azure:///x/y"))), Wanted::Never(BadProviderId::Foreign(_))));
}

#[test]
fn a_name_that_only_looks_like_an_instance_id_is_a_name() {
    for name in ["i-am-a-node", "i-node.example", "i-0123456", "i-0123456789abcdefg"] {
        assert_eq!(wanted(&node(name, None), None), Wanted::Name(name.into()));
    }
}

#[test]
fn only_names_that_ec2_gives_say_something_about_instances() {
    assert!(is_ec2_dns_name("ip-10-0-0-9.ec2.internal"));
    assert!(is_dns_name_of("us-east-1", "ip-10-0-0-9.ec2.internal"));
    assert!(is_dns_name_of("us-west-2", "ip-10-0-0-9.us-west-2.compute.internal"));
    assert!(!is_dns_name_of("us-west-2", "ip-10-0-0-9.ec2.internal"));
    assert!(is_ec2_dns_name("ip-10-0-0-9.us-west-2.compute.internal"));
    for name in ["ip-10-0-0-9.corp.example", "ip-10-0-0-9", "worker-1.ec2.internal", "ip-10-0-0.ec2.internal", ""] {
        assert!(!is_ec2_dns_name(name), "{name}");
    }
}

proptest! {
    #[test]
    fn parsers_never_panic(text in "\\PC*", near in "(aws://)?[/a-z0-9.-]{0,40}") {
        for text in [&text, &near] {
            let _ = (ProviderId::parse(text), is_ec2_dns_name(text), wanted(&node(text, None), None));
        }
    }

    #[test]
    fn what_is_written_is_read(zone in "[a-z]{2}-[a-z]{4}-[0-9][a-f]", digits in "[0-9a-f]{17}|[0-9a-f]{8}") {
        let id = format!("i-{digits}");
        prop_assert_eq!(machine(&ProviderId::format(&zone, &id)), ec2(&id));
    }
}
