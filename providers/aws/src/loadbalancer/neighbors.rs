//! The network balancers of the VPC, whose health checks may need rules that another balancer gives up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::claim::{self, Claim};
use super::observed::{Neighbors, Probes};
use super::plan::network::KIND;
use super::reads::{Reads, SUBNET_MAX_AGE, WHOSE};
use crate::client::ec2::Subnet;
use crate::client::{Answer, elbv2};

/// Reads the neighbors of the balancer of this name. `known` are subnets that need not be read.
pub(crate) async fn read(balancer: &str, known: &BTreeMap<String, Subnet>, reads: &Reads) -> Answer<Neighbors> {
    let (balancers, groups, subnets) = futures::try_join!(
        reads.balancers(),
        reads.target_groups(Duration::from_secs(1)),
        reads.subnets(SUBNET_MAX_AGE)
    )?;
    let blocks = subnets.iter().chain(known.values()).map(|subnet| (&*subnet.id, &*subnet.cidr));
    let blocks: BTreeMap<&str, &str> = blocks.collect();
    let all = || blocks.values().map(|cidr| (*cidr).to_owned());
    let of_vpc = |balancer: &&elbv2::LoadBalancer| balancer.kind == KIND && balancer.vpc == reads.env.vpc;
    let present: Vec<&elbv2::LoadBalancer> = balancers.iter().filter(of_vpc).collect();
    // A balancer of another cluster opens its rules itself.
    let marks = reads.network_tags(present.iter().map(|balancer| balancer.arn.clone()), WHOSE).await?;
    let is_ours = |balancer: &&elbv2::LoadBalancer| match marks.get(&balancer.arn) {
        Some(marks) => claim::balancer(marks, &reads.env) != Claim::Foreign,
        None => true,
    };
    let ports = ports(&groups);
    let mut found = Neighbors::default();
    for balancer in present.into_iter().filter(is_ours) {
        let mut cidrs = BTreeSet::new();
        if balancer.zones.is_empty() {
            // Shown only in part: it may be in any subnet.
            cidrs.extend(all());
        }
        for zone in &balancer.zones {
            match blocks.get(&*zone.subnet) {
                Some(cidr) => drop(cidrs.insert((*cidr).to_owned())),
                None => cidrs.extend(reads.one_subnet(zone.subnet.clone()).await?.map(|subnet| subnet.cidr)),
            }
        }
        let ports = ports.get(&*balancer.arn).cloned().unwrap_or_default();
        found.others.insert(balancer.name.clone(), Probes { ports, cidrs });
    }
    found.own = found.others.remove(balancer).unwrap_or_default();
    found.living = balancers.iter().map(|balancer| balancer.name.clone()).collect();
    found.blocks = all().collect();
    Ok(found.with_probed(reads.at_nodes.probed(), balancer))
}

/// The health-check ports by the ARN of the balancer.
fn ports(groups: &[elbv2::TargetGroup]) -> BTreeMap<&str, BTreeSet<i32>> {
    let mut ports: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for group in groups {
        for arn in &group.balancers {
            // The port may be `traffic-port`.
            let port = group.health_check.port.parse().unwrap_or(group.port);
            ports.entry(arn).or_default().insert(port);
        }
    }
    ports
}
