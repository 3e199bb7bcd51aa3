//! Finds orphans, with the reason and whether they may be deleted.

use ccm_kit::inspect::orphans::{Services, Unclaimed};

use super::*;

const AT_ONCE: usize = 100;

#[derive(Debug)]
pub(super) struct Claimed<'a> {
    services: Services<'a>,
    balancers: BTreeSet<String>,
    /// Names of the managed groups of their network balancers.
    groups: BTreeSet<String>,
    ranges: BTreeSet<ipnet::IpNet>,
}

impl<'a> Claimed<'a> {
    pub(super) fn new(cluster: &str, claims: &'a Claims) -> Self {
        let services = Services::new(claims);
        let group = |service: &Service| names::network_group(cluster, &service.key(), &service.metadata.uid);
        let cidrs = claims.nodes.iter().flat_map(|node| &node.pod_cidrs);
        Self {
            balancers: services.claiming().map(Service::default_load_balancer_name).collect(),
            groups: services.claiming().map(group).collect(),
            ranges: cidrs.filter_map(|cidr| address::parse_cidr(cidr)).collect(),
            services,
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
}

/// `a` and the UID of a Service, truncated to 32.
fn is_balancer_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() == 32 && name.starts_with('a') && name.bytes().all(plain)
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
        let (ours, tagged) = (is_balancer_name(&self.name), ServiceKey::parse(&service).is_some());
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
            _ => claimed.services.namesake(&service),
        };
        let (owner, why) = match tagged {
            true => (format!("service {service}"), claimed.services.why(&service)),
            false => ("unknown".to_owned(), "no Service has a load balancer of this name".to_owned()),
        };
        let (name, arn) = (self.name.clone(), self.id.clone());
        let handle = match self.classic {
            true => OrphanRef::Classic { name, service },
            false => OrphanRef::Network { name, arn, service },
        };
        let changes = match kept {
            None => changes(&delete::of_balancer(aws, cluster, &handle).await?.1),
            Some(_) => Vec::new(),
        };
        let unclaimed = Unclaimed {
            kind: "LoadBalancer",
            id: self.id.clone(),
            name: if self.classic { String::new() } else { self.name.clone() },
            owner,
            why,
            marks: tags(aws),
            kept,
            risk: Risk::Disruptive,
            handle,
        };
        let mut orphan = Orphan { created: self.created, cost: Some(BALANCER_COST.to_owned()), ..unclaimed.into() };
        orphan.step.changes = changes;
        Ok(Some(orphan))
    }
}

fn tags(aws: &Inspector) -> String {
    format!("its tags {} and {SERVICE_KEY}", aws.cluster_tag())
}

/// One step for all writes: the others become its changes.
fn changes(steps: &[crate::loadbalancer::step::Step]) -> Vec<Change> {
    let others = steps.iter().map(|step| &step.summary).filter(|step| step.verb != Verb::Delete);
    let changes = others.flat_map(|step| {
        step.changes.iter().map(|change| Change {
            field: format!("{} of {} {}", change.field, step.kind, step.id).into(),
            ..change.clone()
        })
    });
    changes.collect()
}

fn target_group(
    aws: &Inspector,
    group: &elbv2::TargetGroup,
    tags: &Tags,
    claimed: &Claimed<'_>,
    going: &BTreeSet<String>,
) -> Option<Orphan> {
    let service = tags.get(SERVICE_KEY)?;
    let made_for = ServiceKey::parse(service)?;
    let ours = names::may_be_target_group_of(&group.name, &made_for);
    if !aws.settings.ownership.is_owned(tags) || !ours || claimed.services.claims(service) {
        return None;
    }
    let user = group.balancers.iter().find(|arn| !going.contains(*arn));
    let unclaimed = Unclaimed {
        kind: "TargetGroup",
        id: group.arn.clone(),
        name: group.name.clone(),
        owner: format!("service {service}"),
        why: claimed.services.why(service),
        marks: self::tags(aws),
        kept: user.map(|arn| format!("load balancer {arn} forwards to it")),
        risk: Risk::None,
        handle: OrphanRef::TargetGroup {
            name: group.name.clone(),
            arn: group.arn.clone(),
            service: service.clone(),
            balancers: group.balancers.clone(),
        },
    };
    Some(unclaimed.into())
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

/// The former user of an unclaimed group, and the reason to keep the group although its balancer is deleted.
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
    let MadeFor { owner, why, kept } = made;
    let (changes, blocked) = match &kept {
        None => going(aws, group, referring),
        Some(_) => (Vec::new(), None),
    };
    let (id, name) = (group.id.clone(), group.name.clone());
    let unclaimed = Unclaimed {
        kind: "SecurityGroup",
        owner,
        why,
        marks: format!("its tag {}, name and description", aws.cluster_tag()),
        kept: kept.or(blocked),
        risk: Risk::None,
        handle: OrphanRef::SecurityGroup { id: id.clone(), name: name.clone(), description: group.description.clone() },
        id,
        name,
    };
    let mut orphan = Orphan::from(unclaimed);
    (orphan.step.id, orphan.step.changes) = (group.id.clone(), changes);
    orphan
}

/// Other changes of the deletion (its name is freed, and rules of other groups are revoked first), and its obstacles.
fn going(aws: &Inspector, group: &SecurityGroup, referring: &Observed) -> (Vec<Change>, Option<String>) {
    let (revoke, blocked) = revoke_references(group, referring, aws.env());
    let mut changes = vec![Change { field: "name".into(), before: Some(group.name.clone()), after: None }];
    for revoke in revoke {
        let field = format!("ingress of {}", revoke.summary.id);
        let change = |change: Change| Change { field: field.clone().into(), ..change };
        changes.extend(revoke.summary.changes.into_iter().map(change));
    }
    let blocked = blocked.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    (changes, Some(blocked).filter(|text| !text.is_empty()))
}

/// The name and description of a classic balancer's group contain balancer and Service.
fn of_classic(group: &SecurityGroup, claimed: &Claimed<'_>) -> Option<MadeFor> {
    let balancer = group.name.strip_prefix(&names::classic_group(""))?;
    let (_, service) = group.description.strip_suffix(')')?.split_once('(')?;
    let made_for = ServiceKey::parse(service)?;
    let ours = group.description == names::classic_group_description(balancer, &made_for);
    (ours && !claimed.balancers.contains(balancer)).then(|| MadeFor {
        owner: format!("service {service}"),
        why: claimed.services.why(service),
        kept: claimed.services.namesake(service),
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
    let namesake =
        claimed.services.claiming().find(|service| names::may_be_target_group_of(&group.name, &service.key()));
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

/// Whether a route targets, or targeted, an instance, as routes to pods do. A blackhole to a gateway or a peering
/// connection belongs to somebody else.
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
    let dead = table.routes.iter().filter(|route| routes::is_blackhole(route) && is_to_instance(route));
    dead.filter_map(move |route| {
        let range = address::parse_cidr(&route.destination).filter(|range| range.prefix_len() > 0)?;
        if claimed.ranges.contains(&range) {
            return None;
        }
        let kept = match owned {
            true => claimed.not_a_pod_range(range),
            false => Some(format!(
                "the route table is not tagged {cluster_tag} = owned: the route may be another cluster's; remove it by hand"
            )),
        };
        let unclaimed = Unclaimed {
            kind: "Route",
            id: format!("{} {}", table.id, route.destination),
            name: String::new(),
            owner: "a deleted node".to_owned(),
            why: "it is a blackhole, and no node has this pod range".to_owned(),
            marks: "its route table, which is the cluster's".to_owned(),
            kept,
            risk: Risk::None,
            handle: OrphanRef::Route { table: table.id.clone(), destination: route.destination.clone() },
        };
        Some(unclaimed.into())
    })
}
