//! Finds orphans, with the reason and whether they may be deleted.

use super::*;

const AT_ONCE: usize = 100;

#[derive(Debug)]
pub(super) struct Claimed<'a> {
    all: BTreeMap<String, &'a Service>,
    /// Those that have, or had, a balancer.
    claiming: BTreeMap<String, &'a Service>,
    balancers: BTreeSet<String>,
    /// Names of the managed groups of their network balancers.
    groups: BTreeSet<String>,
    ranges: BTreeSet<ipnet::IpNet>,
}

impl<'a> Claimed<'a> {
    pub(super) fn new(cluster: &str, claims: &'a Claims) -> Self {
        let all: BTreeMap<String, &Service> =
            claims.services.iter().map(|service| (service.key().to_string(), &**service)).collect();
        // A Service with a class may have had a balancer of this program; its finalizer is removed after that balancer
        // is deleted.
        let claims_one = |service: &&Service| service.is_load_balancer() || service.has_finalizer();
        let claiming: BTreeMap<String, &Service> = all
            .iter()
            .filter(|(_, service)| claims_one(service))
            .map(|(key, service)| (key.clone(), *service))
            .collect();
        let group = |service: &&Service| names::network_group(cluster, &service.key(), &service.metadata.uid);
        Self {
            balancers: claiming.values().map(|service| service.default_load_balancer_name()).collect(),
            groups: claiming.values().map(group).collect(),
            ranges: claims
                .nodes
                .iter()
                .flat_map(|node| &node.pod_cidrs)
                .filter_map(|cidr| address::parse_cidr(cidr))
                .collect(),
            all,
            claiming,
        }
    }

    /// Why a range may not be a pod range. Routes have no tags, and the machine of a network appliance may be stopped.
    fn not_a_pod_range(&self, range: ipnet::IpNet) -> Option<String> {
        let alike = |pods: &ipnet::IpNet| {
            pods.prefix_len() == range.prefix_len() && pods.addr().is_ipv4() == range.addr().is_ipv4()
        };
        (!self.ranges.iter().any(alike)).then(|| {
            format!(
                "no node has a pod range of this size (/{}): the route may not belong to this cluster; remove it by hand",
                range.prefix_len()
            )
        })
    }

    /// Why nothing claims the objects of a Service.
    fn why(&self, service: &str) -> String {
        match self.all.get(service) {
            None => format!("there is no Service {service}"),
            Some(found) if found.is_load_balancer() => format!("Service {service} has another UID"),
            Some(found) => {
                format!("Service {service} is of type {}, and no longer has a load balancer", found.spec.kind)
            }
        }
    }

    /// Why an object of an earlier Service with the same name is kept.
    fn namesake(&self, service: &str) -> Option<String> {
        self.claiming.contains_key(service).then(|| {
            format!(
                "a Service {service} exists with another UID: it was deleted and created again, or restored from a backup; check \
                 that nothing uses this any more, and remove it by hand"
            )
        })
    }
}

/// `a` and the UID of a Service, truncated to 32.
fn is_balancer_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() == 32 && name.starts_with('a') && name.bytes().all(plain)
}

pub(super) fn key(text: &str) -> Option<ServiceKey> {
    let (namespace, name) = text.split_once('/')?;
    Some(ServiceKey { namespace: namespace.into(), name: name.into() })
}

pub(super) async fn orphans(
    aws: &Inspector,
    cluster: &str,
    inventory: &Inventory,
    claimed: &Claimed<'_>,
) -> Result<Vec<Orphan>, ProviderError> {
    let mut orphans = balancers(aws, cluster, inventory, claimed).await?;
    let going: BTreeSet<String> =
        orphans.iter().filter(|orphan| orphan.kept.is_none()).map(|orphan| orphan.id.clone()).collect();
    for (group, tags) in &inventory.target_groups {
        orphans.extend(target_group(aws, group, tags, claimed, &going));
    }
    let gone: BTreeSet<&str> =
        orphans.iter().filter(|orphan| orphan.kept.is_none()).map(|orphan| &*orphan.id).collect();
    let users = users(inventory, &gone);
    let left = |group| Some((group, left_group(aws, group, claimed, &users)?));
    let left: Vec<(&SecurityGroup, MadeFor)> = inventory.security_groups.iter().filter_map(left).collect();
    let going: Vec<&SecurityGroup> =
        left.iter().filter(|(_, made)| made.kept.is_none()).map(|(group, _)| *group).collect();
    let referring = delete::referring(aws, &going).await?;
    orphans.extend(left.into_iter().map(|(group, made)| security_group(aws, group, made, &referring)));
    orphans.extend(inventory.table.iter().flat_map(|table| blackholes(aws, table, claimed)));
    Ok(orphans)
}

/// Orphans among the balancers of both kinds. Reads for many at once.
async fn balancers(
    aws: &Inspector,
    cluster: &str,
    inventory: &Inventory,
    claimed: &Claimed<'_>,
) -> Result<Vec<Orphan>, ProviderError> {
    let mut orphans = Vec::new();
    for some in inventory.balancers.chunks(AT_ONCE) {
        let found = some.iter().map(|balancer| balancer.orphan(aws, cluster, claimed));
        orphans.extend(futures::future::try_join_all(found).await?.into_iter().flatten());
    }
    Ok(orphans)
}

impl Balancer {
    async fn orphan(
        &self,
        aws: &Inspector,
        cluster: &str,
        claimed: &Claimed<'_>,
    ) -> Result<Option<Orphan>, ProviderError> {
        let service = self.tags.get(SERVICE_KEY).cloned().unwrap_or_default();
        let (ours, tagged) = (is_balancer_name(&self.name), key(&service).is_some());
        let owned = aws.settings.ownership.is_owned(&self.tags);
        // Other tools set the cluster's tag too.
        if !owned || (!ours && !tagged) || claimed.balancers.contains(&self.name) {
            return Ok(None);
        }
        let kept = match (ours, tagged) {
            (false, _) => Some("this program does not create such names; remove it by hand".to_owned()),
            (_, false) => {
                Some(format!("no tag {SERVICE_KEY} says which Service it was created for; remove it by hand"))
            }
            _ => claimed.namesake(&service),
        };
        let (owner, why) = match tagged {
            true => (format!("service {service}"), claimed.why(&service)),
            false => ("unknown".to_owned(), "no Service has a load balancer of this name".to_owned()),
        };
        let reason = format!("{why}; recognized by its tags {} and {SERVICE_KEY}", aws.cluster_tag());
        let (name, arn) = (self.name.clone(), self.id.clone());
        let handle = match self.classic {
            true => OrphanRef::Classic { name, service },
            false => OrphanRef::Network { name, arn, service },
        };
        let step = match kept {
            None => summary(&delete::of_balancer(aws, cluster, &handle).await?.1, &self.name, &why),
            Some(_) => deletion("LoadBalancer", &self.name, &why),
        };
        Ok(Some(Orphan {
            kind: "LoadBalancer".to_owned(),
            id: self.id.clone(),
            name: if self.classic { String::new() } else { self.name.clone() },
            owner,
            reason,
            created: self.created,
            cost: Some(BALANCER_COST.to_owned()),
            kept,
            step: Step { risk: Risk::Disruptive, ..step },
            handle: as_value(&handle),
        }))
    }
}

fn as_value(handle: &OrphanRef) -> serde_json::Value {
    // Infallible: texts and lists of texts.
    serde_json::to_value(handle).unwrap_or_default()
}

/// One step for all writes: the other writes become its changes.
fn summary(steps: &[crate::loadbalancer::step::Step], name: &str, why: &str) -> Step {
    let mut summary = deletion("LoadBalancer", name, why);
    for step in steps.iter().filter(|step| step.summary.verb != Verb::Delete) {
        let change = |change: &Change| Change {
            field: format!("{} of {} {}", change.field, step.summary.kind, step.summary.id).into(),
            ..change.clone()
        };
        summary.changes.extend(step.summary.changes.iter().map(change));
    }
    summary
}

fn deletion(kind: &'static str, id: &str, reason: &str) -> Step {
    Step {
        verb: Verb::Delete,
        kind: kind.into(),
        id: id.to_owned(),
        changes: Vec::new(),
        reason: reason.to_owned(),
        risk: Risk::None,
    }
}

fn target_group(
    aws: &Inspector,
    group: &elbv2::TargetGroup,
    tags: &Tags,
    claimed: &Claimed<'_>,
    going: &BTreeSet<String>,
) -> Option<Orphan> {
    let service = tags.get(SERVICE_KEY)?;
    let made_for = key(service)?;
    let ours = names::may_be_target_group_of(&group.name, &made_for);
    if !aws.settings.ownership.is_owned(tags) || !ours || claimed.claiming.contains_key(service) {
        return None;
    }
    let user = group.balancers.iter().find(|arn| !going.contains(*arn));
    let why = claimed.why(service);
    let handle = OrphanRef::TargetGroup {
        name: group.name.clone(),
        arn: group.arn.clone(),
        service: service.clone(),
        balancers: group.balancers.clone(),
    };
    Some(Orphan {
        kind: "TargetGroup".to_owned(),
        id: group.arn.clone(),
        name: group.name.clone(),
        owner: format!("service {service}"),
        reason: format!("{why}; recognized by its tags {} and {SERVICE_KEY}", aws.cluster_tag()),
        created: None,
        cost: None,
        kept: user.map(|arn| format!("load balancer {arn} forwards to it")),
        step: deletion("TargetGroup", &group.name, &why),
        handle: as_value(&handle),
    })
}

/// The remaining balancers, by security group.
fn users<'a>(inventory: &'a Inventory, gone: &BTreeSet<&str>) -> BTreeMap<&'a str, &'a str> {
    let staying = inventory.balancers.iter().filter(|balancer| !gone.contains(&*balancer.id));
    staying.flat_map(|balancer| balancer.security_groups.iter().map(|group| (&**group, &*balancer.name))).collect()
}

/// The former user of a managed security group.
struct MadeFor {
    owner: String,
    why: String,
    kept: Option<String>,
}

/// The former user of a group that nothing claims, and why it is kept although its balancer is gone.
fn left_group(
    aws: &Inspector,
    group: &SecurityGroup,
    claimed: &Claimed<'_>,
    users: &BTreeMap<&str, &str>,
) -> Option<MadeFor> {
    let shared = aws.env().shared_group.as_ref() == Some(&group.id);
    if !aws.settings.ownership.is_owned(&group.tags) || group.vpc != aws.settings.vpc || shared {
        return None;
    }
    let user = users.get(&*group.id);
    if user.is_some_and(|name| claimed.balancers.contains(*name)) {
        return None;
    }
    let made = of_classic(group, claimed).or_else(|| of_network(group, claimed))?;
    let used = || user.map(|name| format!("load balancer {name} uses it"));
    Some(MadeFor { kept: made.kept.or_else(used), ..made })
}

fn security_group(aws: &Inspector, group: &SecurityGroup, made: MadeFor, referring: &Observed) -> Orphan {
    let (step, blocked) = match &made.kept {
        None => going(aws, group, &made.why, referring),
        Some(_) => (deletion("SecurityGroup", &group.id, &made.why), None),
    };
    let handle = OrphanRef::SecurityGroup {
        id: group.id.clone(),
        name: group.name.clone(),
        description: group.description.clone(),
    };
    Orphan {
        kind: "SecurityGroup".to_owned(),
        id: group.id.clone(),
        name: group.name.clone(),
        owner: made.owner,
        reason: format!("{}; recognized by its tag {}, name and description", made.why, aws.cluster_tag()),
        created: None,
        cost: None,
        kept: made.kept.or(blocked),
        step,
        handle: as_value(&handle),
    }
}

/// The deletion with the rules of other groups that are revoked first, and what blocks it.
fn going(aws: &Inspector, group: &SecurityGroup, why: &str, referring: &Observed) -> (Step, Option<String>) {
    let (revoke, blocked) = revoke_references(group, referring, aws.env());
    let mut step = deletion("SecurityGroup", &group.id, why);
    step.changes.push(Change { field: "name".into(), before: Some(group.name.clone()), after: None });
    for revoke in revoke {
        let field = format!("ingress of {}", revoke.summary.id);
        let change = |change: Change| Change { field: field.clone().into(), ..change };
        step.changes.extend(revoke.summary.changes.into_iter().map(change));
    }
    let blocked = blocked.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    (step, Some(blocked).filter(|text| !text.is_empty()))
}

/// The name and description of a classic balancer's group contain balancer and Service.
fn of_classic(group: &SecurityGroup, claimed: &Claimed<'_>) -> Option<MadeFor> {
    let balancer = group.name.strip_prefix(&names::classic_group(""))?;
    let (_, service) = group.description.strip_suffix(')')?.split_once('(')?;
    let made_for = key(service)?;
    let ours = group.description == names::classic_group_description(balancer, &made_for);
    (ours && !claimed.balancers.contains(balancer)).then(|| MadeFor {
        owner: format!("service {service}"),
        why: claimed.why(service),
        kept: claimed.namesake(service),
    })
}

/// The name of a network balancer's group contains only the first letters of the Service's namespace and name.
fn of_network(group: &SecurityGroup, claimed: &Claimed<'_>) -> Option<MadeFor> {
    let mut parts = group.name.strip_prefix("k8s-")?.split('-');
    let (namespace, name) = (parts.next()?, parts.next()?);
    let letters = ServiceKey { namespace: namespace.into(), name: name.into() };
    let ours = group.description == names::NETWORK_GROUP_DESCRIPTION
        && names::may_be_target_group_of(&group.name, &letters)
        && !claimed.groups.contains(&group.name);
    let namesake = claimed.claiming.values().find(|service| names::may_be_target_group_of(&group.name, &service.key()));
    ours.then(|| MadeFor {
        owner: format!("a service that begins like {namespace}/{name}"),
        why: "no Service has a security group of this name".to_owned(),
        kept: namesake.map(|service| {
            format!(
                "Service {} begins with the same letters: it may be its group from before a change of --cluster-name; remove it \
                 by hand if nothing uses it",
                service.key()
            )
        }),
    })
}

/// Whether a route targets, or targeted, an instance, as those to pods do. A blackhole to a gateway or a peering
/// belongs to somebody else.
pub(super) fn is_to_instance(route: &Route) -> bool {
    route.instance.is_some() || route.interface.is_some()
}

fn blackholes<'a>(
    aws: &'a Inspector,
    table: &'a RouteTable,
    claimed: &'a Claimed<'_>,
) -> impl Iterator<Item = Orphan> + 'a {
    let owned = aws.settings.ownership.is_owned(&table.tags);
    let cluster_tag = aws.cluster_tag();
    let dead = table.routes.iter().filter(|route| routes::leads_nowhere(route) && is_to_instance(route));
    dead.filter_map(move |route| {
        let range = address::parse_cidr(&route.destination).filter(|range| range.prefix_len() > 0)?;
        if claimed.ranges.contains(&range) {
            return None;
        }
        let id = format!("{} {}", table.id, route.destination);
        let why = "it is a blackhole, and no node has this pod range";
        let handle = OrphanRef::Route { table: table.id.clone(), destination: route.destination.clone() };
        Some(Orphan {
            kind: "Route".to_owned(),
            step: deletion("Route", &id, why),
            id,
            name: String::new(),
            owner: "a deleted node".to_owned(),
            reason: format!("{why}; recognized by its route table, which is the cluster's"),
            created: None,
            cost: None,
            kept: if owned { claimed.not_a_pod_range(range) } else {
                Some(format!("the route table is not tagged {cluster_tag} = owned: the route may be another cluster's; remove it by hand"))
            },
            handle: as_value(&handle),
        })
    })
}
