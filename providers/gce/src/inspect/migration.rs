//! `ccm migrate-check`: configuration, permissions, nodes, and the ID of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::inspect::migration::{configuration, nodes, services};
use ccm_provider::{Aspects, Check, Claims, InstancesV2 as _, ProviderError};

use super::Inspector;
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
    checks.extend(permissions(gce, claims).await);
    let answers = gce.instances.lookup(&claims.nodes, Aspects::ALL).await;
    checks.extend(nodes(&claims.nodes, &answers, "instance", "project-id is the project", |_, _| None));
    checks.extend(services(gce.balancers.cloud(), cluster, claims).await);
    checks
}

/// The permissions of each role that the caller lacks: an error if work that is there fails without them.
async fn permissions(gce: &Inspector, claims: &Claims) -> Vec<Check> {
    let links = gce.shared.client.links();
    let has_services = claims.services.iter().any(|service| service.wants_load_balancer());
    let mut checks = Vec::new();
    for is_of_network in [false, true] {
        let project = if is_of_network { &links.network_project } else { &links.project };
        let roles: Vec<&Role> = ROLES.iter().filter(|role| role.is_of_network == is_of_network).collect();
        let wanted: BTreeSet<String> = roles.iter().flat_map(|role| role.permissions()).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        match gce.shared.client.granted(project, &wanted).await {
            Ok(granted) => {
                for role in roles {
                    if role.is_of_routes() && !gce.makes_routes {
                        let text = format!("not checked for {}: --configure-cloud-routes=false", role.purpose);
                        checks.push(Check::good(PERMISSIONS, format!("project {project}"), text));
                        continue;
                    }
                    let is_needed = role.is_needed(has_services, gce.makes_routes);
                    checks.extend(of_role(role, project, &granted, links.is_shared_vpc(), is_needed));
                }
            }
            Err(error) => {
                let error = ProviderError::from(error);
                let fix = "compare the roles with manifests/gce; the check needs the Resource Manager API and the access \
                           scope cloud-platform, which nothing else here needs";
                let text = format!("could not be checked: {error}");
                checks.push(Check::warning(PERMISSIONS, format!("project {project}"), text, fix));
            }
        }
    }
    checks
}

fn of_role(role: &Role, project: &str, granted: &BTreeSet<String>, is_shared_vpc: bool, is_needed: bool) -> Vec<Check> {
    let subject = format!("project {project}");
    let (permissions, purpose) = (role.permissions(), role.purpose);
    let missing: Vec<&String> = permissions.difference(granted).collect();
    if missing.is_empty() {
        return vec![Check::good(PERMISSIONS, subject, format!("granted for {purpose}"))];
    }
    let mut effects: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for permission in missing {
        let effect = role.effect_without(permission, is_shared_vpc).unwrap_or_default();
        effects.entry(effect).or_default().push(permission);
    }
    let fix = "grant the custom role of manifests/gce, if you use this";
    let check = |(effect, permissions): (&str, Vec<&str>)| {
        let text = format!("missing for {purpose}: {}", permissions.join(", "));
        match (effect, is_needed) {
            ("", true) => Check::error(PERMISSIONS, &*subject, text, fix),
            ("", false) => Check::warning(PERMISSIONS, &*subject, format!("{text}; nothing seen here needs it"), fix),
            _ => Check::warning(PERMISSIONS, &*subject, format!("{text}; without it {effect}"), fix),
        }
    };
    effects.into_iter().map(check).collect()
}
