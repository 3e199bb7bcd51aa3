//! The pod ranges of the cluster, for routes and for the allocation of pod ranges. Pure.

use std::collections::BTreeSet;

use ccm_provider::address;
use ipnet::IpNet;

/// Parses `--cluster-cidr`: one range, or one of each family.
pub fn parse_cluster_cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(
            "--cluster-cidr is empty: routes need the range of the pods, or --configure-cloud-routes=false".into()
        );
    }
    let parse = |part: &str| {
        address::parse_cidr(part).ok_or_else(|| format!("--cluster-cidr {text:?}: invalid CIDR address: {part:?}"))
    };
    let cidrs = text.split(',').map(parse).collect::<Result<Vec<IpNet>, String>>()?;
    let families: BTreeSet<bool> = cidrs.iter().map(|cidr| cidr.addr().is_ipv6()).collect();
    if cidrs.len() > 1 && families.len() < 2 {
        return Err(format!(
            "len of ClusterCIDRs=={} and they are not configured as dual stack (at least one from each IPFamily",
            cidrs.len()
        ));
    }
    if cidrs.len() > 2 {
        return Err(format!("length of clusterCIDRs is:{} more than max allowed of 2", cidrs.len()));
    }
    Ok(cidrs)
}
