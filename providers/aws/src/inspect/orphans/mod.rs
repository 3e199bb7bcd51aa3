//! What carries the cluster's marks and nothing in the cluster claims.
//!
//! An object counts only with the tag `kubernetes.io/cluster/<ID> = owned` *and* a name or tag that this program (or the Go
//! one, whose names are the same) gives: other tools put the tag on what they make for the cluster, the API server's balancer
//! among it. What is not sure is told and kept.

mod delete;
mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_provider::{
    Change, Claims, ErrorClass, Finding, Orphan, ProviderError, Risk, Service, ServiceKey, Severity, Step, Verb,
    address,
};
use serde::{Deserialize, Serialize};

use super::Inspector;
use crate::client::ec2::{Route, RouteTable, SecurityGroup};
use crate::client::write::Ec2Write;
use crate::client::{Answer, Tags, Write, elb, elbv2};
use crate::loadbalancer::names;
use crate::loadbalancer::network::KIND;
use crate::loadbalancer::observe::Observed;
use crate::loadbalancer::reads::SHORT;
use crate::loadbalancer::security_groups::delete::revoke_references;
use crate::node::identity::{self, Machine, Wanted};
use crate::node::instances::describe::Instances;
use crate::ownership::SERVICE_KEY;
use crate::routes;
pub(super) use delete::delete;

/// What a balancer costs without traffic: list prices of 2026 differ by region.
const BALANCER_COST: &str = "roughly 16 to 25 USD a month, plus traffic";

/// How an orphan is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Handle {
    Classic {
        name: String,
        service: String,
    },
    Network {
        name: String,
        arn: String,
        service: String,
    },
    /// `of`: the balancers that lead to it and are orphans too.
    TargetGroup {
        name: String,
        arn: String,
        service: String,
        of: Vec<String>,
    },
    SecurityGroup {
        id: String,
        name: String,
        description: String,
    },
    Route {
        table: String,
        destination: String,
    },
}

/// Everything that may be an orphan, with tags.
#[derive(Debug)]
struct Inventory {
    classic: Vec<(elb::LoadBalancer, Tags)>,
    network: Vec<(elbv2::LoadBalancer, Tags)>,
    target_groups: Vec<(elbv2::TargetGroup, Tags)>,
    /// Those with the cluster's mark.
    security_groups: Vec<SecurityGroup>,
    table: Option<RouteTable>,
}

/// # Errors
///
/// The cluster has no mark, or a read failed: nothing is known then.
pub(super) async fn find(of: &Inspector, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    if of.settings.ownership.cluster_key().is_none() {
        return Err(no_mark());
    }
    let inventory = read(of, cluster).await?;
    let claimed = found::Claimed::new(cluster, claims);
    let mut orphans = found::orphans(of, cluster, &inventory, &claimed).await?;
    let deletable = || orphans.iter().any(|orphan| orphan.kept.is_none());
    if !claims.nodes.is_empty() && deletable() && !is_the_cluster(of, claims).await? {
        let why = format!(
            "no node of this cluster has an instance tagged {}: this may be another cluster than the one with the marks; check \
             --kubeconfig and KubernetesClusterID",
            of.mark()
        );
        for orphan in &mut orphans {
            orphan.kept.get_or_insert_with(|| why.clone());
        }
    }
    Ok(orphans)
}

/// Whether a node runs on a marked instance. Several clusters may share an account, and what is in use by the one with the
/// marks is claimed by nobody in another.
async fn is_the_cluster(of: &Inspector, claims: &Claims) -> Result<bool, ProviderError> {
    let members = Instances(of.api.clone()).of_cluster(&of.settings.ownership, &of.settings.vpc).await?;
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for member in &members {
        ids.insert(&*member.id);
        names.insert(&*member.private_dns_name);
    }
    Ok(claims.nodes.iter().any(|node| match identity::wanted(node, of.settings.own.as_ref()) {
        Wanted::Machine(Machine::Ec2(id)) => ids.contains(id.as_str()),
        Wanted::Name(name) => names.contains(&*name),
        // The interface of a Fargate pod has no mark of the cluster.
        Wanted::Machine(Machine::Fargate(_)) | Wanted::Never(_) => false,
    }))
}

fn no_mark() -> ProviderError {
    let message = "without a cluster ID nothing is marked as this cluster's, so nothing can be told to be an orphan; tag the \
                   instance that this runs on kubernetes.io/cluster/<ID> = owned, or set KubernetesClusterID in section [Global] \
                   of the cloud config, and leave --allow-untagged-cloud out";
    let findings = vec![Finding::new(Severity::Error, "KubernetesClusterID", "not set")];
    ProviderError::new(ErrorClass::Invalid { findings }, message)
}

async fn read(of: &Inspector, cluster: &str) -> Result<Inventory, ProviderError> {
    let (api, reads, vpc) = (&of.api, &of.balancers().reads, &of.settings.vpc);
    let tables = async { routes::tables(&**api, &of.routes).await };
    let (classic, network, groups, security_groups, tables) = futures::try_join!(
        api.classic_balancers(&[]),
        api.balancers(&elbv2::Which::All),
        api.target_groups(&elbv2::Which::All),
        reads.groups(Duration::ZERO),
        tables,
    )?;
    let classic: Vec<_> = classic.into_iter().filter(|balancer| balancer.vpc == *vpc).collect();
    let network: Vec<_> =
        network.into_iter().filter(|balancer| balancer.vpc == *vpc && balancer.kind == KIND).collect();
    // Names of ours begin so; an account may have thousands of others.
    let groups: Vec<_> =
        groups.into_iter().filter(|group| group.vpc == *vpc && group.name.starts_with("k8s-")).collect();
    let arns = network.iter().map(|balancer| &balancer.arn).chain(groups.iter().map(|group| &group.arn));
    let (mut tags, classic) = futures::try_join!(reads.network_tags(arns.cloned(), SHORT), classic_tags(of, classic))?;
    let mut take = |arn: &String| tags.remove(arn).unwrap_or_default();
    Ok(Inventory {
        classic,
        network: network.into_iter().map(|balancer| (take(&balancer.arn), balancer)).map(swap).collect(),
        target_groups: groups.into_iter().map(|group| (take(&group.arn), group)).map(swap).collect(),
        security_groups: security_groups.to_vec(),
        // A cluster without pod routes has no table of its own, or marks all.
        table: routes::only_table(&tables, cluster, &of.routes).ok().cloned(),
    })
}

fn swap<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

async fn classic_tags(of: &Inspector, balancers: Vec<elb::LoadBalancer>) -> Answer<Vec<(elb::LoadBalancer, Tags)>> {
    let read = balancers.into_iter().map(|balancer| async move {
        let tags = of.balancers().reads.classic_tags(&balancer.name, SHORT).await?;
        Ok((balancer, tags))
    });
    futures::future::try_join_all(read).await
}
