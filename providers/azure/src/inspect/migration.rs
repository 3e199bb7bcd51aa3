//! `ccm migrate-check`: configuration, permissions and nodes.

use ccm_kit::http::Query;
use ccm_kit::inspect::migration::{configuration, nodes};
use ccm_provider::{Aspects, Check, Claims, InstancesV2 as _};

use super::{Inspector, unchecked};
use crate::client::operation::PERMISSIONS_LIST;
use crate::permissions::{ROLES, is_granted};

const PERMISSIONS: &str = "permissions";

/// All checks. A failed read is an error of its check.
pub(super) async fn checks(azure: &Inspector, claims: &Claims) -> Vec<Check> {
    let mut checks = configuration(&azure.findings);
    checks.extend(permissions(azure).await);
    let answers = azure.instances.lookup(&claims.nodes, Aspects::ALL).await;
    let place = "subscriptionId and resourceGroup are those of the nodes";
    checks.extend(nodes(&claims.nodes, &answers, "machine", place, |_, _| None));
    checks
}

/// The actions of each role that the identity lacks in the resource group of the cluster.
async fn permissions(azure: &Inspector) -> Vec<Check> {
    let config = &azure.shared.config;
    let (subscription, group) = (&config.identity.subscription, &config.resource_group);
    let subject = format!("resource group {group}");
    let listed = azure.shared.client.list(PERMISSIONS_LIST, subscription, group, Query::default()).await;
    let granted = match listed {
        Ok(granted) => granted.unwrap_or_default(),
        Err(error) => return vec![unchecked(PERMISSIONS, subject, error)],
    };
    let of_role = |role: &crate::permissions::Role| {
        let missing: Vec<String> = role.actions().into_iter().filter(|action| !is_granted(&granted, action)).collect();
        let purpose = role.purpose;
        match missing.is_empty() {
            true => Check::good(PERMISSIONS, subject.clone(), format!("granted for {purpose}")),
            false => {
                let text = format!("missing for {purpose}: {}", missing.join(", "));
                let fix = "assign the custom role of manifests/azure/roles to the identity, if you use this";
                Check::error(PERMISSIONS, subject.clone(), text, fix)
            }
        }
    };
    ROLES.iter().map(of_role).collect()
}
