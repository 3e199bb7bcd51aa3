//! Finds orphans, with the reason and whether they may be deleted.

use ccm_kit::inspect::orphans::Services;

use super::*;

const AT_ONCE: usize = 100;

pub(super) struct Claimed<'a> {
    aws: &'a Inspector,
    cluster: &'a str,
    services: Services<'a>,
    balancers: BTreeSet<String>,
    /// Names of the managed groups of their network balancers.
    groups: BTreeSet<String>,
    ranges: BTreeSet<ipnet::IpNet>,
}

/// `a` and the UID of a Service, truncated to 32.
fn is_balancer_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() == 32 && name.starts_with('a') && name.bytes().all(plain)
}

/// The name of a balancer; the ID of a classic one.
pub(super) fn name<'a>(name: &'a str, id: &'a str) -> &'a str {
    if name.is_empty() { id } else { name }
}

impl<'a> Claimed<'a> {
    pub(super) fn new(aws: &'a Inspector, cluster: &'a str, claims: &'a Claims) -> Self {
        let services = Services::new(&aws.settings.ownership.cluster, claims);
        let group = |service: &Service| names::network_group(cluster, &service.key(), &service.metadata.uid);
        let cidrs = claims.nodes.iter().flat_map(|node| &node.pod_cidrs);
        Self {
            aws,
            cluster,
            balancers: services.claiming().map(Service::default_load_balancer_name).collect(),
            groups: services.claiming().map(group).collect(),
            ranges: cidrs.filter_map(|cidr| address::parse_cidr(cidr)).collect(),
            services,
        }
    }

    pub(super) async fn orphans(&self, inventory: &Inventory) -> Result<Vec<Orphan>, ProviderError> {
        let mut found = orphans::each(&inventory.balancers, AT_ONCE, |balancer| self.balancer(balancer)).await?;
        found.extend(inventory.target_groups.iter().filter_map(|group| self.target_group(group)));
        found.extend(inventory.security_groups.iter().filter_map(|group| self.security_group(group, inventory)));
        found.extend(inventory.table.iter().flat_map(|table| self.blackholes(table)));
        let mut orphans = orphans::in_order(found);
        let is_going = |id: &String| orphans.iter().any(|orphan| orphan.id == *id && orphan.kept.is_none());
        let going: Vec<&SecurityGroup> = inventory.security_groups.iter().filter(|group| is_going(&group.id)).collect();
        let referring = delete::referring(self.aws, &going).await?;
        for orphan in &mut orphans {
            match &*orphan.kind {
                LOAD_BALANCER => orphan.cost = Some(BALANCER_COST.to_owned()),
                SECURITY_GROUP => orphan.step.id.clone_from(&orphan.id),
                _ => {}
            }
            if let Some(group) = going.iter().find(|group| group.id == orphan.id) {
                (orphan.step.changes, orphan.kept) = self::going(self.aws, group, &referring);
            }
        }
        Ok(orphans)
    }

    async fn balancer(&self, object: &Object) -> Result<Option<Unclaimed>, ProviderError> {
        let found = self.services.former(object.clone(), &self.marks());
        let name = name(&object.name, &object.id);
        let Some((mut found, service)) = found.filter(|_| !self.balancers.contains(name)) else { return Ok(None) };
        found.risk = Risk::Disruptive;
        match (is_balancer_name(name), ServiceKey::parse(&service)) {
            // Other tools set the cluster's tag too.
            (false, None) => return Ok(None),
            (false, Some(_)) => {
                found.kept = Some("this program does not create such names; remove it by hand".to_owned());
            }
            (true, None) => {
                (found.owner, found.why) =
                    ("unknown".to_owned(), "no Service has a load balancer of this name".to_owned());
                let why = format!("no tag {SERVICE_KEY} says which Service it was created for; remove it by hand");
                found.kept = Some(why);
            }
            (true, Some(_)) => found.kept = self.services.namesake(&service),
        }
        if found.kept.is_none() {
            let (desired, observed) = delete::look(self.aws, self.cluster, &object.name, &object.id, &service).await?;
            found.changes = changes(&delete::steps(self.aws, &desired, &observed)?);
        }
        Ok(Some(found))
    }

    fn marks(&self) -> String {
        format!("its tags {} and {SERVICE_KEY}", self.aws.cluster_tag())
    }

    fn target_group(&self, object: &Object) -> Option<Unclaimed> {
        let (found, service) = self.services.former(object.clone(), &self.marks())?;
        let is_ours = names::may_be_target_group_of(&object.name, &ServiceKey::parse(&service)?);
        (is_ours && !self.services.claims(&service)).then_some(found)
    }

    /// An unclaimed group of a balancer that is deleted too, or was.
    fn security_group(&self, group: &SecurityGroup, inventory: &Inventory) -> Option<Unclaimed> {
        let is_shared = self.aws.env().shared_group.as_ref() == Some(&group.id);
        let users = inventory.users.get(&group.id).cloned().unwrap_or_default();
        let is_claimed = users.values().any(|name| self.balancers.contains(name));
        if is_shared || is_claimed || group.vpc != self.aws.settings.vpc {
            return None;
        }
        let users = users.into_iter().map(|(id, name)| (id, format!("load balancer {name} uses it"))).collect();
        let object = Object { users, ..inventory::security_group(self.aws.env(), group) };
        let marks = format!("its tag {}, name and description", self.aws.cluster_tag());
        let (found, _) = self.services.former(object, &marks)?;
        let (owner, why, kept) = self.of_classic(group).or_else(|| self.of_network(group))?;
        Some(Unclaimed { owner, why, kept, ..found })
    }

    /// The name and description of a classic balancer's group contain balancer and Service.
    fn of_classic(&self, group: &SecurityGroup) -> Option<(String, String, Option<String>)> {
        let balancer = group.name.strip_prefix(&names::classic_group(""))?;
        let (_, service) = group.description.strip_suffix(')')?.split_once('(')?;
        let made_for = ServiceKey::parse(service)?;
        let is_ours = group.description == names::classic_group_description(balancer, &made_for);
        let (owner, why) = (format!("service {service}"), self.services.why(service));
        (is_ours && !self.balancers.contains(balancer)).then(|| (owner, why, self.services.namesake(service)))
    }

    /// The name of a network balancer's group contains only the first letters of the Service's namespace and name.
    fn of_network(&self, group: &SecurityGroup) -> Option<(String, String, Option<String>)> {
        let mut parts = group.name.strip_prefix("k8s-")?.split('-');
        let (namespace, name) = (parts.next()?, parts.next()?);
        let letters = ServiceKey { namespace: namespace.into(), name: name.into() };
        let is_ours = group.description == names::NETWORK_GROUP_DESCRIPTION
            && names::may_be_target_group_of(&group.name, &letters)
            && !self.groups.contains(&group.name);
        let is_alike = |service: &&Service| names::may_be_target_group_of(&group.name, &service.key());
        let kept = self.services.claiming().find(is_alike).map(|service| {
            format!(
                "Service {} begins with the same letters: it may be its group from before a change of --cluster-name; remove it \
                 by hand if nothing uses it",
                service.key()
            )
        });
        let owner = format!("a service that begins like {namespace}/{name}");
        is_ours.then(|| (owner, "no Service has a security group of this name".to_owned(), kept))
    }

    fn blackholes(&self, table: &RouteTable) -> impl Iterator<Item = Unclaimed> {
        let dead = table.routes.iter().filter(|route| routes::is_blackhole(route) && is_to_instance(route));
        dead.filter_map(|route| {
            let range = address::parse_cidr(&route.destination).filter(|range| range.prefix_len() > 0)?;
            let cluster_tag = self.aws.cluster_tag();
            let kept = match self.aws.settings.ownership.is_owned(&table.tags) {
                true => self.not_a_pod_range(range),
                false => Some(format!(
                    "the route table is not tagged {cluster_tag} = owned: the route may be another cluster's; remove it by hand"
                )),
            };
            let found = Unclaimed {
                object: Object { kind: "Route", id: format!("{} {}", table.id, route.destination), ..Object::default() },
                owner: "a deleted node".to_owned(),
                why: "it is a blackhole, and no node has this pod range".to_owned(),
                marks: "its route table, which is the cluster's".to_owned(),
                kept,
                risk: Risk::None,
                changes: Vec::new(),
            };
            (!self.ranges.contains(&range)).then_some(found)
        })
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

/// Whether a route targets, or targeted, an instance, as routes to pods do. A blackhole to a gateway or a peering
/// connection belongs to somebody else.
pub(super) fn is_to_instance(route: &Route) -> bool {
    route.instance.is_some() || route.interface.is_some()
}
