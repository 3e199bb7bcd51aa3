//! Checks before this program takes over a cluster.
//!
//! | Check | About |
//! |---|---|
//! | `cluster-tag` | whether the cluster has an ID |
//! | `permissions` | the permissions of the identity; see [`permissions`] |
//! | `subnet-tags` | the subnets of new load balancers |
//! | `provider-ids`, `node-names`, `instance-tags`, `node-vpc`, `node-security-groups` | the instances of the nodes; see [`nodes`] |
//! | `load-balancers` | the remaining changes for each Service |

mod nodes;
mod permissions;
mod subnets;

use ccm_kit::inspect::migration::{IDS, services};
use ccm_provider::{Check, Claims};

use super::{Inspector, unchecked};

/// All checks. A failed read is an error of its check.
pub(super) async fn checks(aws: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let mut checks = vec![cluster_tag(aws)];
    let seen = nodes::read(aws, claims).await;
    match permissions::checks(aws, cluster, claims, seen.as_ref().ok()).await {
        Ok(found) => checks.extend(found),
        // Once is enough.
        Err(error) => {
            checks.push(unchecked(permissions::CHECK, "", error));
            return checks;
        }
    }
    checks.extend(subnets::checks(aws, claims).await);
    match &seen {
        Ok(seen) => checks.extend(nodes::checks(aws, claims, seen)),
        Err(error) => checks.push(unchecked(IDS, "", error.clone())),
    }
    checks.extend(services(aws.balancers(), cluster, claims).await);
    checks
}

fn cluster_tag(aws: &Inspector) -> Check {
    const CHECK: &str = "cluster-tag";
    let ownership = &aws.settings.ownership;
    match ownership.cluster_key() {
        None => Check::warning(
            CHECK,
            "flag --allow-untagged-cloud",
            "the cluster has no ID: all objects of the VPC count as its own, and security groups are never deleted",
            "set KubernetesClusterID in section [Global] of the cloud config, and tag instances, subnets and the nodes' security \
             group kubernetes.io/cluster/<ID>",
        ),
        Some(key) if ownership.legacy => {
            let text = format!("new objects are tagged {key} = owned and KubernetesCluster = {}", ownership.cluster);
            Check::good(CHECK, "", text)
        }
        Some(key) => Check::good(CHECK, "", format!("new objects are tagged {key} = owned")),
    }
}
