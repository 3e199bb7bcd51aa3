use super::*;
use crate::client::Tags;
use crate::client::ec2::{AvailabilityZone, Route};

fn env() -> Env {
    Env { self_subnet: "subnet-self".to_owned(), ..crate::tests::env() }
}

/// `ID zone tag,tag` of each subnet; all have a route to the internet except those with the tag `private`.
fn observed(subnets: &[&str]) -> Observed {
    let mut observed = Observed {
        route_tables: vec![
            RouteTable {
                id: "rtb-main".to_owned(),
                main: true,
                routes: vec![Route { gateway: "igw-1".to_owned(), ..Route::default() }],
                ..RouteTable::default()
            },
            RouteTable { id: "rtb-private".to_owned(), ..RouteTable::default() },
        ],
        ..Observed::default()
    };
    for line in subnets {
        let mut words = line.split(' ');
        let (id, zone) = (words.next().unwrap(), words.next().unwrap());
        let mut tags = Tags::new();
        for tag in words.next().unwrap_or_default().split(',') {
            match tag {
                "" => {}
                "member" => drop(tags.insert("kubernetes.io/cluster/c1".to_owned(), "shared".to_owned())),
                "other" => drop(tags.insert("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())),
                "elb" => drop(tags.insert(ROLE_PUBLIC.to_owned(), String::new())),
                "internal" => drop(tags.insert(ROLE_INTERNAL.to_owned(), "1".to_owned())),
                "private" => observed.route_tables[1].subnets.push(id.to_owned()),
                name => drop(tags.insert(NAME.to_owned(), name.to_owned())),
            }
        }
        let subnet =
            Subnet { id: id.to_owned(), vpc: "vpc-1".to_owned(), zone: zone.to_owned(), tags, ..Subnet::default() };
        observed.subnets.insert(id.to_owned(), subnet);
    }
    for (name, kind) in [("a", ORDINARY_ZONE), ("b", ORDINARY_ZONE), ("lax", "local-zone")] {
        let zone = AvailabilityZone { name: name.to_owned(), id: format!("id-{name}"), kind: kind.to_owned() };
        observed.zones.insert(name.to_owned(), zone);
    }
    observed
}

fn find(subnets: &[&str], internal: bool, current: &[&str]) -> Result<String, String> {
    let current = current.iter().map(|id| (*id).to_owned()).collect();
    wanted(&Subnets::Discover, internal, &current, &observed(subnets), &env())
        .map(|ids| ids.join(" "))
        .map_err(|error| error.to_string())
}

fn name(subnets: &[&str], items: &[&str]) -> Result<String, String> {
    let items = items.iter().map(|item| (*item).to_owned()).collect();
    wanted(&Subnets::Named(items), false, &BTreeSet::new(), &observed(subnets), &env())
        .map(|ids| ids.join(" "))
        .map_err(|error| error.to_string())
}

#[test]
fn one_subnet_per_zone_in_the_order_of_the_zones() {
    assert_eq!(
        find(&["subnet-1 b", "subnet-2 a", "subnet-3 unknown"], true, &[]).unwrap(),
        "subnet-2 subnet-1 subnet-3"
    );
}

#[test]
fn role_then_cluster_then_id_decide_within_a_zone() {
    assert_eq!(find(&["subnet-1 a", "subnet-2 a member", "subnet-3 a elb"], false, &[]).unwrap(), "subnet-3");
    assert_eq!(find(&["subnet-1 a", "subnet-2 a member", "subnet-3 a elb"], true, &[]).unwrap(), "subnet-2");
    assert_eq!(find(&["subnet-1 a internal", "subnet-2 a internal,member"], true, &[]).unwrap(), "subnet-2");
    assert_eq!(find(&["subnet-2 a", "subnet-1 a"], true, &[]).unwrap(), "subnet-1");
}

#[test]
fn subnets_of_other_clusters_are_left_out_and_shared_ones_are_not() {
    assert_eq!(find(&["subnet-1 a other", "subnet-2 b other,member"], true, &[]).unwrap(), "subnet-2");
}

#[test]
fn private_subnets_serve_internal_balancers_only() {
    assert_eq!(find(&["subnet-1 a private", "subnet-2 b"], false, &[]).unwrap(), "subnet-2");
    assert_eq!(find(&["subnet-1 a private", "subnet-2 b"], true, &[]).unwrap(), "subnet-1 subnet-2");
    assert_eq!(
        find(&["subnet-1 a private"], false, &[]).unwrap_err(),
        "could not find any suitable subnets for creating the ELB: VPC vpc-1 has no public subnet in an availability zone \
         that is tagged kubernetes.io/cluster/c1 or not tagged for any cluster; tag one, or name subnets in \
         service.beta.kubernetes.io/aws-load-balancer-subnets"
    );
}

#[test]
fn local_zones_are_left_out_unless_the_balancer_is_there_already() {
    assert_eq!(find(&["subnet-1 lax", "subnet-2 a"], true, &[]).unwrap(), "subnet-2");
    assert_eq!(find(&["subnet-1 lax", "subnet-2 a"], true, &["subnet-1"]).unwrap(), "subnet-2 subnet-1");
}

#[test]
fn the_own_subnet_is_the_last_resort() {
    assert_eq!(find(&["subnet-1 a other", "subnet-self b other"], true, &[]).unwrap(), "subnet-self");
}

#[test]
fn a_present_subnet_is_kept_when_tags_make_another_better() {
    assert_eq!(find(&["subnet-1 a", "subnet-2 a elb,member"], false, &["subnet-1"]).unwrap(), "subnet-1");
    // But not when it no longer qualifies.
    assert_eq!(find(&["subnet-1 a other", "subnet-2 a elb"], false, &["subnet-1"]).unwrap(), "subnet-2");
}

#[test]
fn a_vpc_without_a_table_is_an_error_that_names_the_subnet() {
    let mut observed = observed(&["subnet-1 a"]);
    observed.route_tables.clear();
    let error = wanted(&Subnets::Discover, false, &BTreeSet::new(), &observed, &env()).unwrap_err();
    assert!(error.to_string().starts_with("could not locate routing table for subnet subnet-1"), "{error}");
    assert!(wanted(&Subnets::Discover, true, &BTreeSet::new(), &observed, &env()).is_ok());
}

#[test]
fn named_subnets_come_in_the_order_written() {
    let subnets = ["subnet-a a", "subnet-b b blue"];
    assert_eq!(name(&subnets, &["subnet-b", "subnet-a"]).unwrap(), "subnet-b subnet-a");
    assert_eq!(name(&subnets, &["blue", "subnet-a"]).unwrap(), "subnet-b subnet-a");
}

#[test]
fn a_name_of_several_subnets_may_stand_for_as_many_items() {
    let subnets = ["subnet-1 a blue", "subnet-2 b blue"];
    assert_eq!(name(&subnets, &["blue", "blue"]).unwrap(), "subnet-1 subnet-2");
    assert_eq!(
        name(&subnets, &["blue"]).unwrap_err(),
        "service.beta.kubernetes.io/aws-load-balancer-subnets \"blue\": expected to find 1, but found 2 subnets: subnet-2 \
         too; write IDs where several subnets have one name"
    );
}

#[test]
fn a_subnet_that_is_not_there_is_named() {
    assert_eq!(
        name(&["subnet-1 a"], &["subnet-1", "red", "subnet-9"]).unwrap_err(),
        "service.beta.kubernetes.io/aws-load-balancer-subnets \"subnet-1,red,subnet-9\": expected to find 3, but found 1 \
         subnets: red, subnet-9 in VPC vpc-1 is none of them; correct the annotation"
    );
}

#[test]
fn a_subnet_that_is_named_twice_is_said() {
    for (items, twice) in [(["subnet-1", "subnet-1"], "subnet-1"), (["red", "red"], "red")] {
        let error = name(&["subnet-1 a red"], &items).unwrap_err();
        assert!(
            error.ends_with(&format!("but found 1 subnets: {twice} is named twice; correct the annotation")),
            "{error}"
        );
    }
}

#[test]
fn names_have_the_wildcards_of_ec2s_filters() {
    let subnets = ["subnet-1 a prod-a1", "subnet-2 b prod-b1", "subnet-3 b test*"];
    assert_eq!(name(&subnets, &["prod-b*", "prod-a?"]).unwrap(), "subnet-2 subnet-1");
    assert_eq!(name(&subnets, &["*", "prod-a1", "prod-b1"]).unwrap(), "subnet-1 subnet-2 subnet-3");
    assert_eq!(name(&subnets, &[r"test\*"]).unwrap(), "subnet-3");
    for (item, found) in [("prod-*", 2), ("prod-?", 0), (r"prod-\*", 0), ("PROD-a1", 0)] {
        let error = name(&subnets, &[item]).unwrap_err();
        assert!(error.contains(&format!("expected to find 1, but found {found} subnets")), "{error}");
    }
}
