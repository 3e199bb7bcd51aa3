use super::*;

const NODE: &str = "11111111-2222-3333-4444-555555555555";

fn context(cluster: &str, taken: &[&str]) -> Context {
    Context {
        cluster: cluster.into(),
        cluster_cidrs: ["10.1.0.0/16".parse().unwrap()].into(),
        network: "n".into(),
        taken: Arc::new(taken.iter().map(|name| (*name).to_owned()).collect()),
    }
}

#[test]
fn p14_each_range_of_a_node_has_a_name_of_its_own() {
    let of = |taken: &[&str], range: &str| name(&context("kubernetes", taken), NODE, &range.parse().unwrap());
    let plain = format!("kubernetes-{NODE}");
    let bare = "kubernetes-11111111222233334444555555555555";
    assert_eq!(of(&[], "10.1.0.0/24"), plain);
    assert_eq!(of(&[], "fd00::/64"), format!("{bare}-6"));
    assert_eq!(of(&[&plain], "10.1.1.0/24"), format!("{bare}-4"));
    assert_eq!(of(&[&plain, &format!("{bare}-4")], "10.1.2.0/24"), format!("{bare}-4a"));
    let long = name(
        &context(&"c".repeat(40), &[&format!("{}-{NODE}", "c".repeat(26))]),
        NODE,
        &"10.1.0.0/24".parse().unwrap(),
    );
    assert!(long.len() <= 63, "{long}");
}

#[test]
fn p15_the_routes_of_a_cluster_with_a_longer_name_and_those_of_users_are_not_ours() {
    let bare = "11111111222233334444555555555555";
    let uids = ["uid-of-n1".into()].into();
    for (rest, expected) in [
        (NODE.to_owned(), true),
        (bare.to_owned(), true),
        (format!("{bare}-6"), true),
        (format!("{bare}-4a"), true),
        ("uid-of-n1".to_owned(), true),
        ("uidofn1-6".to_owned(), true),
        (format!("2-{NODE}"), false),
        (format!("2-{bare}-6"), false),
        (format!("a-b-{NODE}"), false),
        (format!("{NODE}-by-hand"), false),
        ("my-own-route".to_owned(), false),
        (String::new(), false),
    ] {
        assert_eq!(is_of_node(&rest, &uids), expected, "{rest}");
    }
    assert_eq!(prefix("dev"), "dev-");
    assert_eq!(prefix(&"x".repeat(30)), format!("{}-", "x".repeat(26)));
}

#[test]
fn a_route_leads_to_an_instance_a_blackhole_or_something_else() {
    let of = |route: Route| target(&route, "p");
    let instance = Route {
        next_hop_instance: "https://www.googleapis.com/compute/v1/projects/p/zones/z-a/instances/n1".to_owned(),
        ..Route::default()
    };
    assert_eq!(of(instance.clone()), Target::Hop(Hop { zone: "z-a".to_owned(), name: "n1".to_owned() }));
    let warnings = vec![crate::client::network::RouteWarning { code: MISSING.to_owned() }];
    assert_eq!(of(Route { warnings, ..instance }), Target::Blackhole(None));
    assert!(matches!(of(Route::default()), Target::Foreign(_)));
}
