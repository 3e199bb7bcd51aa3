use super::*;

const UUID: &str = "7b9cf879-7146-417c-abfd-cb4272f0c935";

fn identity(region: &str) -> Identity {
    Identity { region: region.to_owned(), is_regional: false }
}

fn error(region: &str, text: &str) -> String {
    identity(region).parse(text).unwrap_err().to_string()
}

#[test]
fn a_provider_id_is_read_with_and_without_scheme_and_region() {
    for text in ["openstack:///ID", "openstack://RegionOne/ID", "/ID", "RegionOne/ID"] {
        let text = text.replace("ID", UUID);
        assert_eq!(identity("RegionOne").parse(&text).unwrap().as_str(), UUID, "{text}");
    }
    assert_eq!(identity("").parse(&format!("/{UUID}")).unwrap().as_str(), UUID);
}

#[test]
fn a_provider_id_of_another_form_is_an_error_and_no_missing_server() {
    for (text, full) in [
        ("openstack://ID", "openstack://ID"),
        ("ID", "openstack://ID"),
        ("openstack:///", "openstack:///"),
        ("openstack:///a/b", "openstack:///a/b"),
        ("a/b/c", "openstack://a/b/c"),
        ("openstack:///ID?x", "openstack:///ID?x"),
        ("openstack:///..", "openstack:///.."),
    ] {
        let expected = format!("ProviderID \"{full}\" didn't match expected format \"openstack://region/InstanceID\"");
        assert_eq!(error("RegionOne", text), expected);
    }
}

#[test]
fn a_provider_id_of_another_region_is_an_error_and_an_empty_region_matches_every_one() {
    let id = format!("openstack://RegionTwo/{UUID}");
    let expected = |region: &str| format!("ProviderID \"{id}\" didn't match supported region \"{region}\"");
    assert_eq!(error("RegionOne", &id), expected("RegionOne"));
    assert_eq!(error("", &id), expected(""));
    assert!(identity("RegionOne").parse(&format!("openstack:///{UUID}")).is_ok());
}

#[test]
fn a_node_of_another_cloud_is_foreign() {
    for id in ["aws:///eu-1a/i-1", "://x/y", "OpenStack:///x"] {
        assert_eq!(identity("r").parse(id), Err(BadProviderId::Foreign(id.to_owned())));
    }
}

#[test]
fn the_region_is_written_only_where_it_is_wanted() {
    assert_eq!(identity("RegionOne").format("x"), "openstack:///x");
    let regional = Identity { is_regional: true, ..identity("RegionOne") };
    assert_eq!(regional.format("x"), "openstack://RegionOne/x");
    assert_eq!(regional.parse(&regional.format("x")).unwrap().as_str(), "x");
}

#[test]
fn the_name_of_a_node_counts_only_without_a_provider_id() {
    let node = |id: Option<&str>| Node { name: "n1".into(), provider_id: id.map(Into::into), ..Node::default() };
    assert_eq!(identity("").wanted(&node(None)), Wanted::Name("n1".to_owned()));
    assert_eq!(identity("").wanted(&node(Some("/x"))), Wanted::Server(ServerId::parse("x").unwrap()));
    assert!(matches!(identity("").wanted(&node(Some("x"))), Wanted::Never(BadProviderId::Malformed(_))));
    assert_eq!(identity("").server_of(&node(None)), None);
}
