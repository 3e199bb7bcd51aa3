use proptest::prelude::*;

use super::*;

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn c1() -> Ownership {
    Ownership { cluster: "c1".to_owned(), legacy: false }
}

fn legacy() -> Ownership {
    Ownership { legacy: true, ..c1() }
}

fn web() -> ServiceKey {
    ServiceKey { namespace: "shop".into(), name: "web".into() }
}

/// Pitfall 4, first half.
#[test]
fn two_different_ids_in_the_configuration_are_refused() {
    let error = Ownership::from_config("a", "b").unwrap_err().to_string();
    assert!(error.starts_with("clusterID tags did not match: \"b\" vs \"a\"; set KubernetesClusterTag and"), "{error}");
    assert_eq!(Ownership::from_config("c1", "c1"), Ok(Some(legacy())));
    assert_eq!(Ownership::from_config("c1", ""), Ok(Some(legacy())));
    assert_eq!(Ownership::from_config("", "c1"), Ok(Some(c1())));
    assert_eq!(Ownership::from_config("", ""), Ok(None));
}

/// Pitfall 4, second half.
#[test]
fn two_clusters_on_self_are_refused() {
    let error = Ownership::from_tags(&tags(&[("kubernetes.io/cluster/a", ""), ("kubernetes.io/cluster/b", "owned")]));
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("Found multiple cluster tags with prefix kubernetes.io/cluster/ (\"a\" and \"b\")"),
        "{error}"
    );
    let both = tags(&[("kubernetes.io/cluster/a", ""), ("KubernetesCluster", "b")]);
    let error = Ownership::from_tags(&both).unwrap_err().to_string();
    assert!(error.starts_with("clusterID tags did not match: \"a\" vs \"b\""), "{error}");
}

#[test]
fn the_cluster_comes_from_the_tags_of_self() {
    assert_eq!(Ownership::from_tags(&tags(&[("kubernetes.io/cluster/c1", "shared"), ("Name", "x")])), Ok(c1()));
    assert_eq!(Ownership::from_tags(&tags(&[("KubernetesCluster", "c1")])), Ok(legacy()));
    let both = tags(&[("KubernetesCluster", "c1"), ("kubernetes.io/cluster/c1", "owned")]);
    assert_eq!(Ownership::from_tags(&both), Ok(legacy()));
    let error = Ownership::from_tags(&tags(&[("kubernetes.io/cluster/", "owned")])).unwrap_err();
    assert!(error.to_string().starts_with("AWS cloud failed to find ClusterID; tag the instance"), "{error}");
}

#[test]
fn membership_ownership_and_no_mark_at_all() {
    /// Tags; member, owned, untagged.
    type Case = (&'static [(&'static str, &'static str)], bool, bool, bool);
    let cases: &[Case] = &[
        (&[], false, false, true),
        (&[("kubernetes.io/cluster/c1", "owned")], true, true, false),
        (&[("kubernetes.io/cluster/c1", "shared")], true, false, false),
        (&[("kubernetes.io/cluster/c1", "")], true, false, false),
        (&[("kubernetes.io/cluster/c1", "Owned")], true, false, false),
        (&[("kubernetes.io/cluster/c10", "owned")], false, false, false),
        (&[("KubernetesCluster", "c1")], true, true, true),
        (&[("KubernetesCluster", "c2")], false, false, true),
        // The legacy tag of another cluster does not matter.
        (&[("KubernetesCluster", "c2"), ("kubernetes.io/cluster/c1", "owned")], true, true, false),
        (&[("KubernetesCluster", "c1"), ("kubernetes.io/cluster/c1", "shared")], true, true, false),
    ];
    for (pairs, member, owned, untagged) in cases {
        let found = tags(pairs);
        let summary = (c1().is_member(&found), c1().is_owned(&found), is_untagged(&found));
        assert_eq!(summary, (*member, *owned, *untagged), "{pairs:?}");
        assert_eq!((legacy().is_member(&found), legacy().is_owned(&found)), (*member, *owned), "{pairs:?}");
    }
}

#[test]
fn without_a_cluster_all_are_members_and_none_is_owned_or_tagged() {
    let untagged = Ownership::untagged();
    for pairs in [
        &[][..],
        &[("kubernetes.io/cluster/c1", "owned")],
        &[("kubernetes.io/cluster/", "owned")],
        &[("KubernetesCluster", "")],
    ] {
        let found = tags(pairs);
        assert!(untagged.is_member(&found) && !untagged.is_owned(&found), "{pairs:?}");
        assert_eq!(untagged.repair("sg-1", &found), Ok(Tags::new()));
    }
    let made = untagged.tags(&tags(&[("team", "a")]), Some(&web()));
    assert_eq!(made, tags(&[("team", "a"), ("kubernetes.io/service-name", "shop/web")]));
}

#[test]
fn reserved_keys_of_users_are_dropped_on_every_path() {
    let user = tags(&[
        ("team", "a"),
        ("kubernetes.io/cluster/c1", "shared"),
        ("kubernetes.io/cluster/other", "shared"),
        ("KubernetesCluster", "other"),
        ("kubernetes.io/service-name", "x/y"),
    ]);
    assert_eq!(c1().user_tags(&user), tags(&[("team", "a"), ("kubernetes.io/cluster/other", "shared")]));
    let mut made = tags(&[
        ("team", "a"),
        ("kubernetes.io/cluster/other", "shared"),
        ("kubernetes.io/cluster/c1", "owned"),
        ("kubernetes.io/service-name", "shop/web"),
    ]);
    assert_eq!(c1().tags(&user, Some(&web())), made);
    made.insert("KubernetesCluster".to_owned(), "c1".to_owned());
    assert_eq!(legacy().tags(&user, Some(&web())), made);
    assert!(
        is_of_service(&made, &web())
            && !is_of_service(&made, &ServiceKey { namespace: "shop".into(), name: "we".into() })
    );
}

#[test]
fn a_found_group_gets_the_marks_that_it_lacks_unless_they_are_anothers() {
    assert_eq!(c1().repair("sg-1", &tags(&[])), Ok(tags(&[("kubernetes.io/cluster/c1", "owned")])));
    let empty = tags(&[("kubernetes.io/cluster/c1", "")]);
    assert_eq!(c1().repair("sg-1", &empty), Ok(tags(&[("kubernetes.io/cluster/c1", "owned")])));
    let marked = tags(&[("kubernetes.io/cluster/c1", "owned")]);
    assert_eq!(c1().repair("sg-1", &marked), Ok(Tags::new()));
    assert_eq!(legacy().repair("sg-1", &marked), Ok(tags(&[("KubernetesCluster", "c1")])));
    let foreign = legacy().repair("sg-1", &tags(&[("KubernetesCluster", "c2")])).unwrap_err();
    let expected =
        "resource \"sg-1\" has tag belonging to another cluster: \"KubernetesCluster\"=\"c2\" (expected \"c1\")";
    assert!(foreign.starts_with(expected), "{foreign}");
    assert!(c1().repair("sg-1", &tags(&[("kubernetes.io/cluster/c1", "shared")])).is_err());
}

proptest! {
    #[test]
    fn what_is_made_is_owned_and_needs_no_repair(
        user in prop::collection::btree_map("(kubernetes.io/cluster/)?[a-c1]{0,3}|KubernetesCluster|kubernetes.io/service-name", "[a-z0-9]{0,5}|owned|shared", 0..6),
        is_legacy in any::<bool>(),
    ) {
        let ownership = Ownership { cluster: "c1".to_owned(), legacy: is_legacy };
        let made = ownership.tags(&user, Some(&web()));
        prop_assert!(ownership.is_owned(&made) && ownership.is_member(&made) && is_of_service(&made, &web()));
        prop_assert_eq!(ownership.repair("sg-1", &made), Ok(Tags::new()));
        // A later change of the user's tags does not change the ownership tags.
        let mut later = made.clone();
        later.extend(ownership.user_tags(&user));
        prop_assert_eq!(later, made);
    }
}
