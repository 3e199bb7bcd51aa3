//! `ccm migrate-check`: configuration, permissions, nodes, and the ID of the cluster.

use std::collections::BTreeSet;

use ccm_kit::inspect::migration::{configuration, services};
use ccm_provider::{Aspects, Check, Claims, InstancesV2 as _, Lookup, Node};

use super::{Inspector, unchecked};
use crate::permissions::{ROLES, Role};

const PERMISSIONS: &str = "permissions";
const IDS: &str = "provider-ids";

/// All checks. A failed read is an error of its check.
pub(super) async fn checks(gce: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let mut checks = configuration(&gce.findings);
    if gce.site.config.node_tags.is_empty() {
        let text = "not set: the tags of the nodes are found from their instances, each of which needs a tag that its name \
                    begins with";
        checks.push(Check::good("cloud-config", "[global] node-tags", text));
    }
    checks.extend(permissions(gce).await);
    checks.extend(nodes(gce, claims).await);
    checks.extend(services(&gce.balancers.0, cluster, claims).await);
    checks
}

/// The permissions of each role that the caller lacks.
async fn permissions(gce: &Inspector) -> Vec<Check> {
    let links = gce.site.client.links();
    let mut checks = Vec::new();
    for is_of_network in [false, true] {
        let project = if is_of_network { &links.network_project } else { &links.project };
        let roles: Vec<&Role> = ROLES.iter().filter(|role| role.is_of_network == is_of_network).collect();
        let wanted: BTreeSet<String> = roles.iter().flat_map(|role| role.permissions()).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        match gce.site.client.granted(project, &wanted).await {
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
    // On a shared VPC it may be so on purpose: then events name the commands for an administrator.
    match role.is_of_network && is_shared_vpc {
        true => Check::warning(PERMISSIONS, subject, text, fix),
        false => Check::error(PERMISSIONS, subject, text, fix),
    }
}

async fn nodes(gce: &Inspector, claims: &Claims) -> Vec<Check> {
    let answers = gce.instances.lookup(&claims.nodes, Aspects::ALL).await;
    let found = claims.nodes.iter().zip(answers).filter_map(|(node, answer)| of_node(node, &answer));
    let checks: Vec<Check> = found.collect();
    let good = claims.nodes.len() - checks.len();
    let summary = format!("nodes without a finding, of {}: {good}", claims.nodes.len());
    checks.into_iter().chain((good > 0).then(|| Check::good(IDS, "", summary))).collect()
}

fn of_node(node: &Node, answer: &Lookup) -> Option<Check> {
    let subject = format!("node {}", node.name);
    match answer {
        Lookup::Found(instance) => {
            let error = instance.metadata.as_ref().err()?;
            Some(unchecked("node-addresses", subject, error.clone()))
        }
        Lookup::Foreign => {
            Some(Check::good(IDS, subject, "its provider ID is that of another cloud: it is left unchanged"))
        }
        Lookup::Gone(evidence) => {
            let text = format!("no instance: {evidence}. A node that is not Ready would be deleted");
            let fix =
                "check that project-id is the project of the cluster; delete a node whose machine no longer exists";
            Some(Check::error(IDS, subject, text, fix))
        }
        Lookup::Unknown(error) => {
            let fix = "do what the message says: until then the node is left unchanged";
            Some(Check::error(IDS, subject, error.to_string(), fix))
        }
    }
}
