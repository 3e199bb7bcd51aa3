//! Objects with the cluster's ownership tags that nothing in the cluster claims.
//!
//! An object counts only with the tag `kubernetes.io/cluster/<ID> = owned` *and* a name or tag that this program (or
//! the Go program, with the same names) gives: other tools set the tag on objects of the cluster, such as the API
//! server's balancer. Doubtful objects are listed and kept.

mod delete;
mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::inspect::orphans::{self, Unclaimed};
use ccm_kit::inspect::{LOAD_BALANCER, Object};
use ccm_provider::{
    Change, Claims, ErrorClass, Finding, Orphan, ProviderError, Risk, Service, ServiceKey, Severity, Verb, address,
};

use super::Inspector;
use super::inventory::{self, SECURITY_GROUP, TARGET_GROUP};
use crate::client::ec2::{Route, RouteTable, SecurityGroup};
use crate::client::write::Ec2Write;
use crate::client::{Write, elb, elbv2};
use crate::loadbalancer::claim::{self, Marks};
use crate::loadbalancer::names;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::plan::network::KIND;
use crate::loadbalancer::plan::security_groups::delete::revoke_references;
use crate::loadbalancer::reads::{Reads, SHORT};
use crate::node::identity::{self, Machine, Wanted};
use crate::node::instances::describe::Instances;
use crate::ownership::SERVICE_KEY;
use crate::routes;
pub(super) use delete::delete;

/// The cost of a balancer without traffic: list prices of 2026 differ by region.
const BALANCER_COST: &str = "roughly 16 to 25 USD a month, plus traffic";

/// The candidates: all in the VPC.
struct Inventory {
    balancers: Vec<Object>,
    target_groups: Vec<Object>,
    /// The security groups with the cluster's tag.
    security_groups: Vec<SecurityGroup>,
    /// The names of the balancers that have a security group, by ID.
    users: BTreeMap<String, BTreeMap<String, String>>,
    table: Option<RouteTable>,
}

pub(super) async fn find(aws: &Inspector, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    if aws.settings.ownership.cluster_key().is_none() {
        return Err(no_cluster_id());
    }
    let inventory = read(aws, cluster).await?;
    let claimed = found::Claimed::new(aws, cluster, claims);
    let mut orphans = claimed.orphans(&inventory).await?;
    let deletable = || orphans.iter().any(|orphan| orphan.kept.is_none());
    if !claims.nodes.is_empty() && deletable() && !is_the_cluster(aws, claims).await? {
        let why = format!(
            "no node of this cluster has an instance tagged {}: this may be another cluster than the one that the tags name; check \
             --kubeconfig and KubernetesClusterID",
            aws.cluster_tag()
        );
        for orphan in &mut orphans {
            orphan.kept.get_or_insert_with(|| why.clone());
        }
    }
    Ok(orphans)
}

/// Whether a node runs on an instance with the cluster's tag. Several clusters may share an account: seen from another
/// cluster, everything in use by the tagged one would be unclaimed.
async fn is_the_cluster(aws: &Inspector, claims: &Claims) -> Result<bool, ProviderError> {
    let members = Instances(aws.api.clone()).of_cluster(&aws.settings.ownership, &aws.settings.vpc).await?;
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for member in &members {
        ids.insert(&*member.id);
        names.insert(&*member.private_dns_name);
    }
    Ok(claims.nodes.iter().any(|node| match identity::wanted(node, aws.settings.own.as_ref()) {
        Wanted::Machine(Machine::Ec2(id)) => ids.contains(id.as_str()),
        Wanted::Name(name) => names.contains(&*name),
        // The interface of a Fargate pod has no tag of the cluster.
        Wanted::Machine(Machine::Fargate(_)) | Wanted::Never(_) => false,
    }))
}

fn no_cluster_id() -> ProviderError {
    let message = "without a cluster ID nothing is tagged as this cluster's, so orphans cannot be recognized; tag the \
                   instance that this runs on kubernetes.io/cluster/<ID> = owned, or set KubernetesClusterID in section [Global] \
                   of the cloud config, and remove --allow-untagged-cloud";
    let findings = vec![Finding::new(Severity::Error, "KubernetesClusterID", "not set")];
    ProviderError::new(ErrorClass::Invalid { findings }, message)
}

async fn read(aws: &Inspector, cluster: &str) -> Result<Inventory, ProviderError> {
    let (api, reads, vpc) = (&aws.api, &aws.balancers().cloud()?.reads, &aws.settings.vpc);
    let tables = async { routes::tables(&**api, &aws.routes).await };
    let (classic, network, groups, security_groups, tables) = futures::try_join!(
        api.classic_balancers(&[]),
        api.balancers(&elbv2::Which::All),
        api.target_groups(&elbv2::Which::All),
        reads.groups(Duration::ZERO),
        tables,
    )?;
    let classic = classic.into_iter().filter(|balancer| balancer.vpc == *vpc).collect();
    let network: Vec<_> =
        network.into_iter().filter(|balancer| balancer.vpc == *vpc && balancer.kind == KIND).collect();
    // Names of this program's target groups begin so; an account may have thousands of others.
    let groups: Vec<_> =
        groups.into_iter().filter(|group| group.vpc == *vpc && group.name.starts_with("k8s-")).collect();
    let arns = network.iter().map(|balancer| &balancer.arn).chain(groups.iter().map(|group| &group.arn));
    let network_tags = async { Ok::<_, ProviderError>(reads.network_tags(arns.cloned(), SHORT).await?) };
    let (tags, classic) = futures::try_join!(network_tags, classic_tags(reads, classic))?;
    let mut all = tags.values().chain(classic.iter().map(|(_, marks)| marks));
    if let Some(error) = all.find_map(claim::refused) {
        return Err(error);
    }
    let (env, tags) = (aws.env(), |arn: &String| tags.get(arn).and_then(Marks::read));
    let classic =
        classic.iter().map(|(found, marks)| (&found.security_groups, inventory::classic(env, found, marks.read())));
    let network =
        network.iter().map(|found| (&found.security_groups, inventory::network(env, found, tags(&found.arn))));
    let (mut balancers, mut users) = (Vec::new(), BTreeMap::<_, BTreeMap<_, _>>::new());
    for (groups, balancer) in classic.chain(network) {
        let name = found::name(&balancer.name, &balancer.id);
        for group in groups {
            users.entry(group.clone()).or_default().insert(balancer.id.clone(), name.to_owned());
        }
        balancers.push(balancer);
    }
    Ok(Inventory {
        balancers,
        target_groups: groups.iter().map(|group| inventory::target_group(env, group, tags(&group.arn))).collect(),
        security_groups: security_groups.to_vec(),
        users,
        // A cluster without pod routes has no such table, or tags all of its tables.
        table: routes::only_table(&tables, cluster, &aws.routes).ok().cloned(),
    })
}

async fn classic_tags(
    reads: &Reads,
    all: Vec<elb::LoadBalancer>,
) -> Result<Vec<(elb::LoadBalancer, Marks)>, ProviderError> {
    let read = all.into_iter().map(async |balancer| {
        let marks = reads.classic_tags(&balancer.name, SHORT).await?;
        Ok((balancer, marks))
    });
    futures::future::try_join_all(read).await
}
