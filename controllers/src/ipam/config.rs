//! Validates the flags. Pure.
//!
//! Source of the behavior: `kubernetes/kubernetes` `cmd/cloud-controller-manager/nodeipamcontroller.go` and
//! `pkg/controller/nodeipam/node_ipam_controller.go`. Upstream stops at the first error, ignores a service range that
//! it cannot read, and detects a mask longer than an address only when the first node gets an invalid range.

use ccm_provider::address;
use ipnet::IpNet;

use super::cloud::Families;
use crate::cluster_cidrs::parse_cluster_cidrs;

/// The allocator that cuts `--cluster-cidr` into blocks.
pub const RANGE_ALLOCATOR: &str = "RangeAllocator";
/// The allocator that leaves the choice to the cloud.
pub const CLOUD_ALLOCATOR: &str = "CloudAllocator";
/// Allocators of upstream that are omitted: alpha loops that copy ranges between cluster and cloud.
const LEFT_OUT: [&str; 2] = ["IPAMFromCluster", "IPAMFromCloud"];
/// The default prefix length of a node's block: IPv4, IPv6.
const DEFAULT_PREFIX: (u8, u8) = (24, 64);
/// An IPv6 range holds at most 2 to the power of this many blocks.
const MAX_IPV6_BITS: u8 = 16;

/// The flags as given. Sizes are 0 if not given.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags<'a> {
    /// `--allocate-node-cidrs`
    pub allocate_node_cidrs: bool,
    /// `--cidr-allocator-type`
    pub cidr_allocator_type: &'a str,
    /// `--cluster-cidr`
    pub cluster_cidr: &'a str,
    /// `--service-cluster-ip-range`
    pub service_cluster_ip_range: &'a str,
    /// `--node-cidr-mask-size`
    pub node_cidr_mask_size: i64,
    /// `--node-cidr-mask-size-ipv4`
    pub node_cidr_mask_size_ipv4: i64,
    /// `--node-cidr-mask-size-ipv6`
    pub node_cidr_mask_size_ipv6: i64,
}

/// Settings of the controller: the source of pod ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Config {
    /// [`RANGE_ALLOCATOR`]
    Range(Ranges),
    /// [`CLOUD_ALLOCATOR`], with the families of the cluster.
    Cloud(Families),
}

/// Ranges that are cut into blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// The ranges of `--cluster-cidr` in order; every node gets one block of each.
    pub ranges: Vec<Range>,
    /// The ranges of `--service-cluster-ip-range`: no node gets an address from them.
    pub services: Vec<IpNet>,
}

/// One range of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The whole range.
    pub cidr: IpNet,
    /// Prefix length of a node's block; at least that of the range, at most the length of an address.
    pub node_prefix: u8,
}

/// Settings from flags; `None` if `--allocate-node-cidrs` is not set.
///
/// # Errors
/// All problems, with upstream's messages where there are any.
pub fn validate(flags: &Flags<'_>) -> Result<Option<Config>, Vec<String>> {
    let mut wrong = Vec::new();
    let services = services(flags.service_cluster_ip_range, flags.allocate_node_cidrs, &mut wrong);
    if !flags.allocate_node_cidrs {
        return if wrong.is_empty() { Ok(None) } else { Err(wrong) };
    }
    let config = match flags.cidr_allocator_type {
        RANGE_ALLOCATOR => Config::Range(Ranges { ranges: ranges(flags, &mut wrong), services }),
        CLOUD_ALLOCATOR => {
            unused(flags, &mut wrong);
            Config::Cloud(Families::of(&services))
        }
        other => {
            wrong.push(unknown(other));
            Config::Range(Ranges { ranges: ranges(flags, &mut wrong), services })
        }
    };
    if wrong.is_empty() { Ok(Some(config)) } else { Err(wrong) }
}

fn unknown(allocator: &str) -> String {
    let known = format!(
        "{RANGE_ALLOCATOR} cuts --cluster-cidr into blocks, {CLOUD_ALLOCATOR} takes the ranges that the cloud gave"
    );
    match LEFT_OUT.contains(&allocator) {
        true => format!("--cidr-allocator-type={allocator} is not supported: {known}, and there is no other"),
        false => format!("invalid CIDR allocator type: {allocator} (--cidr-allocator-type: {known})"),
    }
}

/// These flags have no effect with [`CLOUD_ALLOCATOR`], but values that upstream refuses are mistakes.
fn unused(flags: &Flags<'_>, wrong: &mut Vec<String>) {
    if flags.cluster_cidr.trim().is_empty() {
        return;
    }
    let checked = parse_cluster_cidrs(flags.cluster_cidr);
    let checked = checked.and_then(|cidrs| mask_flags(flags, &cidrs).map_err(str::to_owned));
    wrong.extend(checked.err());
}

fn services(text: &str, used: bool, wrong: &mut Vec<String>) -> Vec<IpNet> {
    if text.split(',').count() > 2 {
        wrong.push("--service-cluster-ip-range can not contain more than two entries".into());
    }
    if !used {
        return Vec::new();
    }
    let mut ranges = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match address::parse_cidr(part) {
            Some(range) => ranges.push(range),
            None => wrong.push(format!("--service-cluster-ip-range {text:?}: invalid CIDR address: {part:?}")),
        }
    }
    if let [first, second] = &*ranges
        && first.addr().is_ipv6() == second.addr().is_ipv6()
    {
        wrong.push("serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles)".into());
    }
    ranges
}

fn ranges(flags: &Flags<'_>, wrong: &mut Vec<String>) -> Vec<Range> {
    if flags.cluster_cidr.trim().is_empty() {
        wrong.push("Controller: Must specify --cluster-cidr if --allocate-node-cidrs is set".into());
        return Vec::new();
    }
    let cidrs = parse_cluster_cidrs(flags.cluster_cidr).unwrap_or_else(|error| {
        wrong.push(error);
        Vec::new()
    });
    if let Err(error) = mask_flags(flags, &cidrs) {
        wrong.push(error.into());
        return Vec::new();
    }
    let mut ranges = Vec::new();
    for cidr in cidrs {
        let (own, default, bits) = if cidr.addr().is_ipv6() {
            (flags.node_cidr_mask_size_ipv6, DEFAULT_PREFIX.1, 128)
        } else {
            (flags.node_cidr_mask_size_ipv4, DEFAULT_PREFIX.0, 32)
        };
        let size = match (flags.node_cidr_mask_size, own) {
            (0, 0) => i64::from(default),
            (0, own) => own,
            (both, _) => both,
        };
        match node_prefix(cidr, size, bits) {
            Ok(node_prefix) => ranges.push(Range { cidr, node_prefix }),
            Err(error) => wrong.push(error),
        }
    }
    ranges
}

/// Checks that the three flags for sizes match each other and the ranges.
fn mask_flags(flags: &Flags<'_>, cidrs: &[IpNet]) -> Result<(), &'static str> {
    let (both, v4, v6) =
        (flags.node_cidr_mask_size != 0, flags.node_cidr_mask_size_ipv4 != 0, flags.node_cidr_mask_size_ipv6 != 0);
    match cidrs {
        [_, _, ..] if both => Err("usage of --node-cidr-mask-size is not allowed with dual-stack clusters"),
        [_] if both && (v4 || v6) => Err(
            "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set. \
             For dual-stack clusters please unset it and use IPFamily specific flags",
        ),
        [one] if v4 && one.addr().is_ipv6() => {
            Err("usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster")
        }
        [one] if v6 && one.addr().is_ipv4() => {
            Err("usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster")
        }
        _ => Ok(()),
    }
}

fn node_prefix(cidr: IpNet, size: i64, bits: u8) -> Result<u8, String> {
    let cluster = cidr.prefix_len();
    if size < i64::from(cluster) {
        return Err(format!(
            "Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size \
             configured for CIDR family ({cidr} cannot be cut into blocks of /{size})"
        ));
    }
    let Some(size) = u8::try_from(size).ok().filter(|size| *size <= bits) else {
        return Err(format!(
            "--node-cidr-mask-size: a node of {cidr} cannot get a block of /{size}: an address has {bits} bits"
        ));
    };
    if cidr.addr().is_ipv6() && size - cluster > MAX_IPV6_BITS {
        return Err(format!(
            "New CIDR set failed; the node CIDR size is too big ({cidr} in blocks of /{size}: an IPv6 range may hold 2^{MAX_IPV6_BITS} \
             blocks at most; give a --cluster-cidr of /{} or longer, or a --node-cidr-mask-size-ipv6 of {} or less)",
            size - MAX_IPV6_BITS,
            cluster + MAX_IPV6_BITS
        ));
    }
    Ok(size)
}
