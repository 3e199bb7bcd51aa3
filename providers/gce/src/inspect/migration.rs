//! `ccm migrate-check`: configuration, permissions, nodes, and the ID of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::inspect::migration::{configuration, nodes, services};
use ccm_provider::{Aspects, Check, Claims, InstancesV2 as _, ProviderError, Service, ServiceAction};

use super::Inspector;
use crate::annotations::{Annotations, SUBNET, Scheme};
use crate::client::resource::last_part;
use crate::loadbalancer::claim::{self, Owner};
use crate::node::network::Subnet;
use crate::ownership::{CLASSES, ILB_FINALIZER_V2};
use crate::permissions::{ROLES, Role, SUBNETWORK_USE, Used};

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
    let (mut used, internal) = used(gce, claims);
    let subnetworks = subnetworks(gce, &internal).await;
    used.subnetworks = subnetworks.as_ref().map_or(true, |names| !names.is_empty());
    let mut checks = Vec::new();
    for is_of_network in [false, true] {
        let project = if is_of_network { &links.network_project } else { &links.project };
        let roles: Vec<&Role> = ROLES.iter().filter(|role| role.is_of_network == is_of_network).collect();
        let wanted: BTreeSet<String> = roles.iter().flat_map(|role| role.permissions()).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        match gce.shared.client.granted(project, &wanted).await {
            Ok(mut granted) => {
                if is_of_network && used.subnetworks && !granted.contains(SUBNETWORK_USE) {
                    match may_use(gce, &subnetworks).await {
                        Ok(may) => granted.extend(may.then(|| SUBNETWORK_USE.to_owned())),
                        Err(why) => used.doubt = Some(why),
                    }
                }
                for role in roles {
                    if role.is_of_routes() && !gce.makes_routes {
                        let text = format!("not checked for {}: no controller makes routes", role.purpose);
                        checks.push(Check::good(PERMISSIONS, format!("project {project}"), text));
                        continue;
                    }
                    checks.extend(of_role(role, project, &granted, links.is_shared_vpc(), &used));
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

/// What the cluster uses, and the Services with an internal load balancer.
fn used<'c>(gce: &Inspector, claims: &'c Claims) -> (Used, Vec<&'c Service>) {
    let options = &gce.balancers.cloud().env().options;
    let is_served = |class: &String| gce.shared.options.serves_classes && CLASSES.contains(&&**class);
    let mut used = Used { routes: gce.makes_routes, groups: !options.skips_groups, ..Used::default() };
    let mut internal = Vec::new();
    for service in claims.services.iter().filter(|service| service.is_load_balancer()) {
        if !service.spec.load_balancer_class.as_ref().is_none_or(is_served) {
            continue;
        }
        let is_others = service.metadata.finalizers.iter().any(|name| name == ILB_FINALIZER_V2);
        let serves = !service.status.load_balancer.ingress.is_empty();
        let mut kinds = claim::begun(service);
        match claim::owner(options, service, ServiceAction::Ensure) {
            Owner::Us => drop(kinds.insert(claim::scheme(service))),
            Owner::UsIfThere if serves && !is_others => drop(kinds.insert(Scheme::Internal)),
            Owner::UsIfThere => used.looked_for = true,
            Owner::Other => {}
        }
        used.external |= kinds.contains(&Scheme::External);
        used.internal |= kinds.contains(&Scheme::Internal);
        internal.extend(kinds.contains(&Scheme::Internal).then_some(&**service));
    }
    (used, internal)
}

/// The names of the subnetworks of internal load balancers, or why they are not known. A legacy network has none.
async fn subnetworks(gce: &Inspector, internal: &[&Service]) -> Result<BTreeSet<String>, String> {
    if internal.is_empty() {
        return Ok(BTreeSet::new());
    }
    let own = match gce.shared.network.subnetwork().await {
        Ok(Subnet::Legacy) => return Ok(BTreeSet::new()),
        Ok(Subnet::Url(url) | Subnet::OfNodes(url)) => Ok(last_part(&url).to_owned()),
        Ok(Subnet::Unknown(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    };
    let named = |service: &&Service| Annotations::read(&service.metadata.annotations).readable(&SUBNET);
    internal.iter().map(|service| named(service).map_or_else(|| own.clone(), Ok)).collect()
}

/// Whether all subnetworks grant their use, or why that is not known.
async fn may_use(gce: &Inspector, subnetworks: &Result<BTreeSet<String>, String>) -> Result<bool, String> {
    for name in subnetworks.as_ref().map_err(Clone::clone)? {
        let granted = gce.shared.client.granted_on(&gce.shared.region, name, &[SUBNETWORK_USE]).await;
        if granted.map_err(|error| ProviderError::from(error).to_string())?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn of_role(role: &Role, project: &str, granted: &BTreeSet<String>, is_shared_vpc: bool, used: &Used) -> Vec<Check> {
    let subject = format!("project {project}");
    let (permissions, purpose) = (role.permissions(), role.purpose);
    let missing: Vec<&String> = permissions.difference(granted).collect();
    if missing.is_empty() {
        return vec![Check::good(PERMISSIONS, subject, format!("granted for {purpose}"))];
    }
    let mut notes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for permission in missing {
        let doubt = used.doubt.as_ref().filter(|_| permission == SUBNETWORK_USE);
        let note = match (role.effect_without(permission, is_shared_vpc), doubt) {
            (Some(effect), _) => format!("; without it {effect}"),
            _ if !role.needs(permission, used) => "; nothing seen here needs it".to_owned(),
            (None, Some(why)) => {
                format!("; it may be granted on the subnetwork alone, which could not be asked: {why}")
            }
            (None, None) => String::new(),
        };
        notes.entry(note).or_default().push(permission);
    }
    let fix = "grant the custom role of manifests/gce, if you use this";
    let check = |(note, permissions): (String, Vec<&str>)| {
        let text = format!("missing for {purpose}: {}{note}", permissions.join(", "));
        match &*note {
            "" => Check::error(PERMISSIONS, &*subject, text, fix),
            _ => Check::warning(PERMISSIONS, &*subject, text, fix),
        }
    };
    notes.into_iter().map(check).collect()
}
