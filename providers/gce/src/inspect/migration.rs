//! `ccm migrate-check`: configuration, permissions, nodes, and the ID of the cluster.

use std::collections::BTreeSet;

use ccm_kit::inspect::migration::{configuration, nodes, services};
use ccm_provider::{Aspects, Check, Claims, InstancesV2 as _};

use super::{Inspector, unchecked};
use crate::permissions::{ROLES, Role};

const PERMISSIONS: &str = "permissions";

/// All checks. A failed read is an error of its check.
pub(super) async fn checks(gce: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let mut checks = configuration(&gce.findings);
    if gce.shared.config.node_tags.is_empty() {
        let text = "not set: the tags of the nodes are found from their instances, each of which needs a tag that its name \
                    begins with";
        checks.push(Check::good("cloud-config", "[global] node-tags", text));
    }
    checks.extend(permissions(gce).await);
    let answers = gce.instances.lookup(&claims.nodes, Aspects::ALL).await;
    checks.extend(nodes(&claims.nodes, &answers, "instance", "project-id is the project", |_, _| None));
    checks.extend(services(gce.balancers.cloud(), cluster, claims).await);
    checks
}

/// The permissions of each role that the caller lacks.
async fn permissions(gce: &Inspector) -> Vec<Check> {
    let links = gce.shared.client.links();
    let mut checks = Vec::new();
    for is_of_network in [false, true] {
        let project = if is_of_network { &links.network_project } else { &links.project };
        let roles: Vec<&Role> = ROLES.iter().filter(|role| role.is_of_network == is_of_network).collect();
        let wanted: BTreeSet<String> = roles.iter().flat_map(|role| role.permissions()).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        match gce.shared.client.granted(project, &wanted).await {
            Ok(granted) => {
                checks.extend(roles.iter().map(|role| of_role(role, project, &granted, links.is_shared_vpc())));
            }
            Err(error) => checks.push(unchecked(PERMISSIONS, format!("project {project}"), error)),
        }
    }
    checks
}

fn of_role(role: &Role, project: &str, granted: &BTreeSet<String>, is_shared_vpc: bool) -> Check {
    let subject = format!("project {project}");
    let missing: Vec<String> = role.permissions().difference(granted).cloned().collect();
    let purpose = role.purpose;
    if missing.is_empty() {
        return Check::good(PERMISSIONS, subject, format!("granted for {purpose}"));
    }
    let text = format!("missing for {purpose}: {}", missing.join(", "));
    let fix = "grant the custom role of manifests/gce, if you use this";
    // On a shared VPC this may be intended: events then show the commands for an administrator.
    match role.is_of_network && is_shared_vpc {
        true => Check::warning(PERMISSIONS, subject, text, fix),
        false => Check::error(PERMISSIONS, subject, text, fix),
    }
}
