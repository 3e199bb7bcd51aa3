//! Blocks, their holders and the flags: table tests, and properties of all schedules.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_provider::{Node, NodeName};
use ccm_runtime::{Queue, RateLimit};
use ipnet::IpNet;
use proptest::prelude::*;

use super::cidr_set::CidrSet;
use super::cloud::Families;
use super::config::{Config, Flags, RANGE_ALLOCATOR, Range, Ranges, validate};
use super::pool::{Finding, Pool};
use super::{IpamController, Observed, within_lease};
use crate::test_shared::{self, Events};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn set(range: &str, prefix: u8) -> CidrSet {
    CidrSet::new(net(range), prefix).unwrap()
}

fn take(set: &mut CidrSet) -> Option<String> {
    let candidate = set.candidate()?;
    set.take(&candidate);
    Some(candidate.block.to_string())
}

fn node(name: &str, uid: &str, cidrs: &[&str]) -> Node {
    Node {
        name: name.into(),
        uid: uid.into(),
        resource_version: "1".into(),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
        ..Node::default()
    }
}

fn config(ranges: &[(&str, u8)], services: &[&str]) -> Ranges {
    Ranges {
        ranges: ranges.iter().map(|(cidr, node_prefix)| Range { cidr: net(cidr), node_prefix: *node_prefix }).collect(),
        services: services.iter().map(|cidr| net(cidr)).collect(),
    }
}

fn pool(ranges: &[(&str, u8)], services: &[&str]) -> Pool {
    Pool::new(&config(ranges, services)).unwrap()
}

/// The blocks that a node gets, joined.
fn reserve(pool: &mut Pool, node: &Node) -> String {
    pool.reserve(node).unwrap().unwrap().texts.join(",")
}

#[test]
fn blocks_are_assigned_in_order_and_released_ones_last() {
    let mut set = set("10.0.0.0/22", 24);
    let taken: Vec<_> = (0..3).map(|_| take(&mut set).unwrap()).collect();
    assert_eq!(taken, ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]);
    assert_eq!(set.release(&net("10.0.0.0/24")), 1);
    assert_eq!(take(&mut set).unwrap(), "10.0.3.0/24");
    assert_eq!(take(&mut set).unwrap(), "10.0.0.0/24");
    assert_eq!(take(&mut set), None);
    assert_eq!((set.used(), set.totals().allocations, set.totals().releases), (4, 5, 1));
}

#[test]
fn the_search_counts_the_used_blocks_it_meets() {
    let mut set = set("10.0.0.0/21", 24);
    set.occupy(&net("10.0.0.0/23"));
    set.occupy(&net("10.0.2.0/24"));
    let candidate = set.candidate().unwrap();
    assert_eq!((candidate.block, candidate.tries), (net("10.0.3.0/24"), 3));
}

#[test]
fn blocks_lie_where_upstream_has_them() {
    let check = |range: &str, prefix: u8, wanted: &[(usize, &str)]| {
        let mut set = set(range, prefix);
        let last = wanted.last().unwrap().0;
        let blocks: Vec<_> = (0..=last).map(|_| take(&mut set).unwrap()).collect();
        for (index, block) in wanted {
            assert_eq!(blocks[*index], *block, "{range} /{prefix}");
        }
    };
    check("127.123.0.0/16", 24, &[(0, "127.123.0.0/24"), (255, "127.123.255.0/24")]);
    check("192.168.0.0/16", 32, &[(0, "192.168.0.0/32"), (2, "192.168.0.2/32"), (65535, "192.168.255.255/32")]);
    check("10.2.0.0/16", 20, &[(1, "10.2.16.0/20"), (15, "10.2.240.0/20")]);
    check("2001:db8:1234::/48", 64, &[(1, "2001:db8:1234:1::/64"), (65535, "2001:db8:1234:ffff::/64")]);
    check(
        "2001:db8::/62",
        66,
        &[(3, "2001:db8:0:0:c000::/66"), (4, "2001:db8:0:1::/66"), (15, "2001:db8:0:3:c000::/66")],
    );
    check("fd00::/112", 128, &[(0, "fd00::/128"), (65535, "fd00::ffff/128")]);
    check("10.0.0.1/32", 32, &[(0, "10.0.0.1/32")]);
}

#[test]
fn a_range_is_cut_only_into_blocks_that_fit() {
    assert!(CidrSet::new(net("10.0.0.0/24"), 23).is_none());
    assert!(CidrSet::new(net("10.0.0.0/24"), 33).is_none());
    assert!(CidrSet::new(net("::/0"), 64).is_none());
    assert_eq!(set("0.0.0.0/0", 32).blocks(), 1 << 32);
    // Host bits do not matter.
    assert_eq!(take(&mut set("10.0.7.9/16", 24)).unwrap(), "10.0.0.0/24");
}

#[test]
fn a_range_of_any_size_occupies_every_block_it_touches() {
    let check = |cidr: &str, used: Option<u64>| {
        let mut set = set("10.0.0.0/20", 24);
        let answer = set.occupy(&net(cidr));
        assert_eq!(answer.map(|_| set.used()), used, "{cidr}");
        set.release(&net(cidr));
        assert_eq!(set.used(), 0, "{cidr}");
    };
    check("10.0.3.0/24", Some(1));
    check("10.0.3.128/26", Some(1));
    check("10.0.4.0/22", Some(4));
    check("10.0.0.0/8", Some(16));
    check("0.0.0.0/0", Some(16));
    check("10.0.16.0/24", None);
    check("9.255.255.0/24", None);
    check("fd00::/64", None);
}

#[test]
fn no_node_gets_addresses_of_services() {
    let mut pool = pool(&[("10.0.0.0/21", 24), ("fd00::/62", 64)], &["10.0.1.0/25", "fd00::/63"]);
    let got: Vec<_> = (0..2).map(|i| reserve(&mut pool, &node(&format!("n{i}"), "u", &[]))).collect();
    assert_eq!(got, ["10.0.0.0/24,fd00:0:0:2::/64", "10.0.2.0/24,fd00:0:0:3::/64"]);
    let full = pool.reserve(&node("n2", "u", &[])).unwrap_err();
    assert_eq!((full.index, full.blocks), (1, 4));
    let start = "failed to allocate cidr from cluster cidr at idx:1: CIDR allocation failed; there are no remaining CIDRs left \
                 to allocate in the accepted range";
    assert!(full.to_string().starts_with(start), "{full}");
    assert_eq!(pool.sets()[0].used(), 3, "nothing of the first range is taken when the second is full");
}

#[test]
fn a_late_watch_after_a_write_brings_no_second_write() {
    let mut pool = pool(&[("10.0.0.0/16", 24)], &[]);
    let before = node("a", "1", &[]);
    reserve(&mut pool, &before);
    pool.written(&before, "7");
    pool.see(&Node { resource_version: "6".into(), ..before.clone() });
    assert_eq!(pool.reserve(&before), Ok(None));
    // Read after the write, but without its effect: the cluster was restored from a backup.
    pool.see(&Node { resource_version: "8".into(), ..before.clone() });
    assert_eq!(reserve(&mut pool, &before), "10.0.0.0/24");
    let seen = pool.see(&node("a", "1", &["10.0.0.0/24"]));
    assert!(!seen.changed && seen.findings.is_empty());
    assert_eq!(pool.reserve(&before), Ok(None));
}

#[test]
fn a_problem_of_a_range_is_reported_once_and_its_addresses_are_not_assigned() {
    let mut pool = pool(&[("10.0.0.0/20", 24), ("fd00::/56", 64)], &["10.0.15.0/24"]);
    let mut check = |node: &Node, wanted: &[Finding]| {
        assert_eq!(pool.see(node).findings, wanted);
        assert_eq!(pool.see(node).findings, [], "the second look");
    };
    check(&node("a", "1", &["10.0.0.0/24", "fd00::/64"]), &[]);
    check(&node("swapped", "2", &["fd00:0:0:1::/64", "10.0.1.0/24"]), &[]);
    check(&node("bad", "3", &["10.0.2.x/24"]), &[Finding::Malformed("10.0.2.x/24".into())]);
    check(&node("outside", "4", &["10.1.0.0/24"]), &[Finding::Outside(net("10.1.0.0/24"))]);
    check(&node("wide", "5", &["10.0.0.0/23"]), &[Finding::Overlap(net("10.0.0.0/23"), "a".into())]);
    let services = Finding::Services(net("10.0.15.128/25"), net("10.0.15.0/24"));
    check(&node("services", "6", &["10.0.15.128/25"]), &[services]);
    // Ranges smaller than a block: the nodes share the block, but no address.
    check(&node("half", "7", &["10.0.3.0/25"]), &[]);
    check(&node("other-half", "8", &["10.0.3.128/25"]), &[]);
    assert_eq!(reserve(&mut pool, &node("new", "9", &[])), "10.0.2.0/24,fd00:0:0:2::/64");
    assert_eq!(reserve(&mut pool, &node("next", "10", &[])), "10.0.4.0/24,fd00:0:0:3::/64");
    assert_eq!(pool.gone(&node("a", "1", &[])), 1, "of two, one block is still that of another node");
}

#[test]
fn as_many_waiting_nodes_are_woken_as_blocks_became_free() {
    let mut pool = pool(&[("10.0.0.0/23", 24)], &[]);
    for name in ["a", "b"] {
        reserve(&mut pool, &node(name, name, &[]));
    }
    for name in ["c", "d", "e"] {
        assert!(pool.reserve(&node(name, name, &[])).is_err());
        assert!(pool.is_starved(&name.into()));
    }
    assert_eq!(pool.gone(&node("d", "d", &[])), 0);
    let freed = pool.gone(&node("a", "a", &[]));
    assert_eq!(pool.wake(freed), [NodeName::from("c")]);
    assert!(!pool.is_starved(&"c".into()) && !pool.is_starved(&"d".into()) && pool.is_starved(&"e".into()));
    assert_eq!(reserve(&mut pool, &node("c", "c", &[])), "10.0.0.0/24");
}

#[test]
fn a_write_takes_less_time_than_the_lease() {
    let seconds = std::time::Duration::from_secs;
    assert_eq!(within_lease(None), seconds(10));
    assert_eq!(within_lease(Some(seconds(14))), seconds(10));
    assert_eq!(within_lease(Some(seconds(4))), seconds(3));
}

#[tokio::test]
async fn the_range_of_a_node_that_becomes_unmanaged_stays_occupied() {
    let shared = test_shared::unmanaged(("example.com/unmanaged", "true"));
    let labels = || [("example.com/unmanaged", "true")].into_iter().collect();
    let queue = Queue::new("q", RateLimit::DEFAULT, &shared.metrics);
    let ranges = config(&[("10.0.0.0/22", 24)], &[]);
    let events = Arc::new(Events::default());
    let controller = Arc::new(IpamController::new(shared.clone(), events, queue.clone(), &ranges).unwrap());
    let handler = controller.clone();
    shared.nodes.on_change(move |change| handler.changed(&change));
    shared.nodes.apply(node("a", "a", &["10.0.0.0/24"]));
    shared.nodes.apply(Node { resource_version: "2".into(), labels: labels(), ..node("a", "a", &["10.0.0.0/24"]) });
    // A node that was never managed here gets no blocks, and its own range counts as used.
    shared.nodes.apply(Node { labels: labels(), ..node("b", "b", &["10.0.1.0/24"]) });
    shared.nodes.apply(Node { labels: labels(), ..node("c", "c", &[]) });
    assert_eq!(queue.sizes(), (0, 0, 0));
    assert!(matches!(controller.choose(&"c".into()), Observed::Settled));
    shared.nodes.apply(node("d", "d", &[]));
    assert_eq!(queue.sizes(), (1, 0, 0));
    let Observed::Reserved(_, blocks) = controller.choose(&"d".into()) else { panic!("no block") };
    assert_eq!(*blocks, ["10.0.2.0/24".into()]);
    // Its deletion releases the range.
    shared.nodes.remove(&"a".into(), "3");
    assert_eq!(controller.pool().sets()[0].used(), 2);
}

/// `cluster-cidr service-cluster-ip-range mask ipv4 ipv6`; `-` for not given.
fn flags(text: &str) -> Result<Option<Config>, Vec<String>> {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches('-')).collect();
    let number = |at: usize| words.get(at).filter(|word| !word.is_empty()).map_or(0, |word| word.parse().unwrap());
    validate(&Flags {
        allocate_node_cidrs: true,
        cidr_allocator_type: RANGE_ALLOCATOR,
        cluster_cidr: words[0],
        service_cluster_ip_range: words.get(1).copied().unwrap_or_default(),
        node_cidr_mask_size: number(2),
        node_cidr_mask_size_ipv4: number(3),
        node_cidr_mask_size_ipv6: number(4),
    })
}

#[test]
fn sizes_follow_from_the_flags_of_their_family() {
    let check = |text: &str, wanted: &[(&str, u8)], services: &[&str]| {
        assert_eq!(flags(text).unwrap().unwrap(), Config::Range(config(wanted, services)), "{text}");
    };
    check("10.0.0.0/16", &[("10.0.0.0/16", 24)], &[]);
    check("fd00::/48", &[("fd00::/48", 64)], &[]);
    check("10.0.0.0/16 10.0.255.0/24 26", &[("10.0.0.0/16", 26)], &["10.0.255.0/24"]);
    check("fd00::/100 - 116", &[("fd00::/100", 116)], &[]);
    check("10.0.0.0/16 - - 25", &[("10.0.0.0/16", 25)], &[]);
    check("fd00::/60 - - - 72", &[("fd00::/60", 72)], &[]);
    check("fd00::/60,10.0.0.0/16", &[("fd00::/60", 64), ("10.0.0.0/16", 24)], &[]);
    check(
        "10.0.0.0/16,fd00::/60 10.96.0.0/12,fd01::/112 - 22 70",
        &[("10.0.0.0/16", 22), ("fd00::/60", 70)],
        &["10.96.0.0/12", "fd01::/112"],
    );
    check("10.0.0.0/24 - 24", &[("10.0.0.0/24", 24)], &[]);
    check("10.1.2.3/16 010.096.0.0/12,", &[("10.1.0.0/16", 24)], &["10.96.0.0/12"]);
}

#[test]
fn all_that_is_wrong_is_reported_in_upstreams_words() {
    let check = |text: &str, wanted: &[&str]| {
        let errors = flags(text).unwrap_err();
        assert_eq!(errors.len(), wanted.len(), "{text}: {errors:?}");
        for (error, wanted) in errors.iter().zip(wanted) {
            assert!(error.contains(wanted), "{text}: {error}");
        }
    };
    let too_short = "Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to \
                     --node-cidr-mask-size configured for CIDR family";
    let excludes = "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size \
                    is set. For dual-stack clusters please unset it and use IPFamily specific flags";
    check("-", &["Controller: Must specify --cluster-cidr if --allocate-node-cidrs is set"]);
    check("10.0.0/16", &["invalid CIDR address: \"10.0.0/16\""]);
    check("10.0.0.0/16,10.1.0.0/16", &["len of ClusterCIDRs==2 and they are not configured as dual stack"]);
    check("10.0.0.0/16,fd00::/48,fd01::/48", &["length of clusterCIDRs is:3 more than max allowed of 2"]);
    check("10.0.0.0/16,fd00::/48 - 24", &["usage of --node-cidr-mask-size is not allowed with dual-stack clusters"]);
    check("10.0.0.0/16 - 24 24", &[excludes]);
    check("10.0.0.0/16 - 24 - 64", &[excludes]);
    check("fd00::/48 - - 24", &["usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster"]);
    check(
        "10.0.0.0/16 - - - 64",
        &["usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"],
    );
    check("10.0.0.0/25", &[too_short]);
    check("10.0.0.0/16,fd00::/72 - - 8 -", &[too_short, too_short]);
    check("10.0.0.0/16 - 33", &["cannot get a block of /33: an address has 32 bits"]);
    check("fd00::/112 - - - 300", &["cannot get a block of /300: an address has 128 bits"]);
    check("fd00::/47", &["New CIDR set failed; the node CIDR size is too big"]);
    check(
        "10.0.0.0/25 10.96.0.0/12,10.0.0.0/24",
        &["serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles)", too_short],
    );
    check("10.0.0.0/16 10.96.0.0", &["--service-cluster-ip-range \"10.96.0.0\": invalid CIDR address: \"10.96.0.0\""]);
    check(
        "10.0.0.0/16 10.96.0.0/12,fd00::/112,x",
        &["--service-cluster-ip-range can not contain more than two entries", "invalid CIDR address: \"x\""],
    );
}

#[test]
fn an_unknown_allocator_is_an_error_and_nothing_is_asked_where_nothing_is_allocated() {
    let mut flags = Flags { cidr_allocator_type: "Mine", cluster_cidr: "nonsense", ..Flags::default() };
    assert_eq!(validate(&flags), Ok(None));
    flags.allocate_node_cidrs = true;
    flags.cluster_cidr = "10.0.0.0/16";
    let errors = validate(&flags).unwrap_err();
    assert!(errors[0].starts_with("invalid CIDR allocator type: Mine"), "{errors:?}");
    for left_out in ["IPAMFromCluster", "IPAMFromCloud"] {
        flags.cidr_allocator_type = left_out;
        let errors = validate(&flags).unwrap_err();
        assert!(errors[0].starts_with(&format!("--cidr-allocator-type={left_out} is not supported: ")), "{errors:?}");
    }
    let three = Flags { service_cluster_ip_range: "a,b,c", ..Flags::default() };
    assert_eq!(validate(&three).unwrap_err(), ["--service-cluster-ip-range can not contain more than two entries"]);
}

#[test]
fn with_ranges_of_the_cloud_the_families_are_those_of_services() {
    let check = |cluster: &str, services: &str, sizes: (i64, i64), wanted: Result<Families, &str>| {
        let flags = Flags {
            allocate_node_cidrs: true,
            cidr_allocator_type: "CloudAllocator",
            cluster_cidr: cluster,
            service_cluster_ip_range: services,
            node_cidr_mask_size: sizes.0,
            node_cidr_mask_size_ipv4: sizes.1,
            ..Flags::default()
        };
        match (validate(&flags), wanted) {
            (Ok(config), Ok(wanted)) => assert_eq!(config, Some(Config::Cloud(wanted)), "{cluster} {services}"),
            (Err(errors), Err(wanted)) => assert!(errors[0].contains(wanted), "{errors:?}"),
            (found, wanted) => panic!("{cluster} {services}: {found:?}, not {wanted:?}"),
        }
    };
    check("", "", (0, 0), Ok(Families::V4));
    check("10.0.0.0/8", "10.96.0.0/20", (0, 0), Ok(Families::V4));
    check("10.0.0.0/8", "10.96.0.0/20,fd00::/112", (0, 0), Ok(Families::V4V6));
    check("fd00::/48,10.0.0.0/8", "fd00::/112,10.96.0.0/20", (0, 0), Ok(Families::V6V4));
    check("fd00::/48", "fd00::/112", (0, 0), Ok(Families::V6));
    // A range of the cluster that is smaller than the block of a node: it is not cut.
    check("10.0.0.0/28", "", (0, 24), Ok(Families::V4));
    check("10.0.0.0/8,x", "", (0, 0), Err("invalid CIDR address: \"x\""));
    check(
        "10.0.0.0/8,fd00::/48",
        "",
        (24, 0),
        Err("usage of --node-cidr-mask-size is not allowed with dual-stack clusters"),
    );
    check("10.0.0.0/8", "10.96.0.0/20,10.97.0.0/20", (0, 0), Err("not dualstack"));
}

fn any_range() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<u32>(), 0_u8..=32).prop_map(|(ip, len)| IpNet::new(std::net::Ipv4Addr::from(ip).into(), len).unwrap()),
        (any::<u128>(), 0_u8..=128).prop_map(|(ip, len)| IpNet::new(std::net::Ipv6Addr::from(ip).into(), len).unwrap()),
        // Around the range of the set.
        (0_u32..=0x0fff, 16_u8..=32).prop_map(|(ip, len)| IpNet::new(
            std::net::Ipv4Addr::from(0x0a00_0000 | ip).into(),
            len
        )
        .unwrap()),
    ]
}

#[derive(Debug, Clone)]
enum Op {
    Reserve(u8),
    Written(u8),
    Refused(u8),
    Unsure(u8),
    Gone(u8),
    /// The watch shows the current node.
    See(u8),
    /// The watch shows the node as it was before any write.
    SeeLate(u8),
    /// Another client assigns this block to it.
    Foreign(u8, u8),
    /// The node is created again under the same name.
    Renew(u8),
}

fn any_op() -> impl Strategy<Value = Op> {
    let node = 0_u8..12;
    prop_oneof![
        5 => node.clone().prop_map(Op::Reserve),
        3 => node.clone().prop_map(Op::Written),
        1 => node.clone().prop_map(Op::Refused),
        1 => node.clone().prop_map(Op::Unsure),
        2 => node.clone().prop_map(Op::Gone),
        2 => node.clone().prop_map(Op::See),
        2 => node.clone().prop_map(Op::SeeLate),
        1 => (node.clone(), 0_u8..16).prop_map(|(node, block)| Op::Foreign(node, block)),
        1 => node.prop_map(Op::Renew),
    ]
}

/// The nodes as the API server has them.
#[derive(Default)]
struct Cluster {
    nodes: BTreeMap<u8, Node>,
    version: u32,
}

impl Cluster {
    fn node(&mut self, id: u8) -> Node {
        let version = self.version;
        self.nodes.entry(id).or_insert_with(|| node(&format!("n{id:02}"), &format!("{id}-{version}"), &[])).clone()
    }

    /// A write as the API server accepts it: only on a node without ranges.
    fn write(&mut self, id: u8, cidrs: &[Box<str>]) -> bool {
        self.version += 1;
        let version = self.version.to_string();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.pod_cidrs.is_empty()) else { return false };
        node.pod_cidrs = cidrs.into();
        node.resource_version = version.into();
        true
    }
}

proptest! {
    #[test]
    fn a_set_agrees_with_a_simple_count_of_holders(ops in prop::collection::vec((any_range(), any::<bool>()), 1..60)) {
        let mut set = set("10.0.0.0/20", 24);
        let mut held: Vec<IpNet> = Vec::new();
        for (range, release) in ops {
            match held.pop() {
                Some(old) if release => {
                    set.release(&old);
                }
                old => {
                    held.extend(old);
                    let touches = net("10.0.0.0/20").contains(&range) || range.contains(&net("10.0.0.0/20"));
                    prop_assert_eq!(set.occupy(&range).is_some(), touches);
                    held.push(range);
                }
            }
            let blocks = net("10.0.0.0/20").subnets(24).unwrap();
            let meets = |block: &IpNet| held.iter().any(|held| held.contains(block) || block.contains(held));
            let used: Vec<IpNet> = blocks.filter(meets).collect();
            prop_assert_eq!(set.used(), used.len() as u64);
            prop_assert_eq!(set.totals().allocations - set.totals().releases, set.used());
            match set.candidate() {
                Some(candidate) => prop_assert!(!used.contains(&candidate.block)),
                None => prop_assert_eq!(used.len(), 16),
            }
        }
        for range in held {
            set.release(&range);
        }
        prop_assert_eq!(set.used(), 0);
    }

    #[test]
    fn no_block_is_ever_on_two_nodes_or_on_services(ops in prop::collection::vec(any_op(), 1..200)) {
        let services = ["10.0.15.0/24", "fd00::/64"];
        let mut pool = pool(&[("10.0.0.0/20", 24), ("fd00::/60", 64)], &services);
        let mut cluster = Cluster::default();
        let mut foreign = false;
        for op in ops {
            match op {
                Op::Reserve(id) => {
                    let node = cluster.node(id);
                    if node.pod_cidrs.is_empty() {
                        drop(pool.reserve(&node));
                    }
                }
                Op::Written(id) => {
                    let node = cluster.node(id);
                    if node.pod_cidrs.is_empty() && let Ok(Some(reserved)) = pool.reserve(&node) {
                        prop_assert!(cluster.write(id, &reserved.texts));
                        pool.written(&node, &cluster.node(id).resource_version);
                    }
                }
                Op::Refused(id) => {
                    let node = cluster.node(id);
                    pool.refused(&node);
                }
                Op::Unsure(id) => {
                    // The write takes effect and its answer is lost.
                    let node = cluster.node(id);
                    if node.pod_cidrs.is_empty() && let Ok(Some(reserved)) = pool.reserve(&node) {
                        pool.unsure(&node);
                        cluster.write(id, &reserved.texts);
                    }
                }
                Op::Gone(id) => {
                    if let Some(node) = cluster.nodes.remove(&id) {
                        pool.gone(&node);
                    }
                }
                Op::See(id) => drop(pool.see(&cluster.node(id))),
                Op::SeeLate(id) => {
                    let node = cluster.node(id);
                    // A watch shows the state before a write only if it has not shown that write.
                    if node.pod_cidrs.is_empty() || pool.reserve(&node) == Ok(None) {
                        let before = Node { pod_cidrs: Box::default(), resource_version: "0".into(), ..node };
                        pool.see(&before);
                    }
                }
                Op::Foreign(id, block) => {
                    let node = cluster.node(id);
                    let text = format!("10.0.{block}.0/24");
                    let other = cluster.nodes.values().any(|n| n.pod_cidrs.iter().any(|c| **c == *text));
                    // Other allocators, which ignore the pool's choices, are out of scope.
                    if node.pod_cidrs.is_empty() && !other && block < 15 {
                        let mut probe = pool.clone();
                        let fresh = probe.see(&Node { pod_cidrs: [text.clone().into()].into(), ..node.clone() });
                        if fresh.findings.is_empty() {
                            foreign = true;
                            cluster.write(id, &[text.into()]);
                            pool.see(&cluster.node(id));
                        }
                    }
                }
                Op::Renew(id) => {
                    cluster.nodes.remove(&id);
                    cluster.version += 1;
                    pool.see(&cluster.node(id));
                }
            }
            let mut all: Vec<IpNet> = services.iter().map(|cidr| net(cidr)).collect();
            all.extend(cluster.nodes.values().flat_map(|n| n.pod_cidrs.iter()).map(|cidr| net(cidr)));
            for (at, one) in all.iter().enumerate() {
                for other in &all[at + 1..] {
                    prop_assert!(!one.contains(other) && !other.contains(one), "{one} {other}");
                }
            }
        }
        // After all nodes are deleted, all blocks but those of Services are free. A new pool that starts from the nodes
        // has the same used blocks.
        let mut successor = self::pool(&[("10.0.0.0/20", 24), ("fd00::/60", 64)], &services);
        for node in cluster.nodes.values() {
            prop_assert_eq!(successor.see(node).findings, []);
        }
        let used = cluster.nodes.values().filter(|node| !node.pod_cidrs.is_empty()).count() as u64;
        prop_assert_eq!(successor.sets()[0].used(), used + 1);
        prop_assert!(foreign || successor.sets()[1].used() == used + 1);
        for node in cluster.nodes.values() {
            pool.gone(node);
        }
        prop_assert_eq!(pool.sets()[0].used(), 1);
        prop_assert_eq!(pool.sets()[1].used(), 1);
    }

    #[test]
    fn flags_of_any_kind_come_to_ranges_that_can_be_cut_or_to_errors(
        cluster in "[0-9a-f:./,]{0,40}|10.0.0.0/[0-9]{1,2}|fd00::/[0-9]{1,3}|10.0.0.0/[0-9]{1,2},fd00::/[0-9]{1,3}",
        services in "[0-9a-f:./,]{0,40}|10.96.0.0/12(,fd00::/112)?",
        sizes in (prop_oneof![Just(0_i64), any::<i64>(), 8_i64..130], prop_oneof![Just(0_i64), 8_i64..40], prop_oneof![Just(0_i64), 8_i64..130]),
    ) {
        let flags = Flags {
            allocate_node_cidrs: true,
            cidr_allocator_type: RANGE_ALLOCATOR,
            cluster_cidr: &cluster,
            service_cluster_ip_range: &services,
            node_cidr_mask_size: sizes.0,
            node_cidr_mask_size_ipv4: sizes.1,
            node_cidr_mask_size_ipv6: sizes.2,
        };
        match validate(&flags) {
            Ok(config) => {
                let Some(Config::Range(ranges)) = config else { panic!("{config:?}") };
                let pool = Pool::new(&ranges);
                prop_assert!(pool.is_ok_and(|pool| !pool.sets().is_empty()));
            }
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }
}
