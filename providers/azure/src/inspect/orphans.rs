//! What is left of Services that are gone: frontends with their rules and probes, pools, public IP addresses, and
//! destinations in the security group.
//!
//! Names on a load balancer have the UID of a Service; nothing there names the cluster but the name of the load balancer
//! itself. So they are kept unless a node of this cluster is behind it. A public IP address has tags of the cluster and of
//! the Service; those in other resource groups than that of the cluster are not looked at.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_kit::balancer::{Items, Kind, Part, Step};
use ccm_kit::inspect::orphans::{self, Services, Unclaimed};
use ccm_kit::inspect::{Claim, LOAD_BALANCER, Object};
use ccm_provider::{Change, Claims, Orphan, ProviderError, Risk, Service, ServiceAction, ServiceWork};
use serde_json::Value;

use super::Inspector;
use super::explain_service::members;
use super::inventory::{self, POOL, PUBLIC_IP, SECURITY_GROUP};
use crate::client::id::ArmId;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::balancer::{BalancerChange, Edit};
use crate::loadbalancer::json;
use crate::loadbalancer::machines::Machine;
use crate::loadbalancer::names::{Family, own_pool};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::plan::address::{AddressChange, AddressEdit, EditKind};
use crate::loadbalancer::plan::step::Write;

/// The name of a Service of which only the UID is known. No Service can have it.
const UNNAMED: &str = "unknown/-";

pub(super) async fn find(azure: &Inspector, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    let balancers = azure.balancers.cloud();
    let (observed, stale) = observe(balancers, cluster, &nobody()?).await?;
    let services = Services::new(cluster, claims);
    let mut found = Vec::new();
    let live: BTreeSet<String> = services.claiming().map(Service::default_load_balancer_name).collect();
    let nodes = machines(claims);
    let is_node = |member: &String| nodes.contains(member);
    for balancer in &observed.balancers {
        let is_ours = members(&observed, balancer, |_| true).iter().any(is_node);
        for object in inventory::parts(cluster, &observed, balancer) {
            let is_live = object.claim.iter().flat_map(|claim| &claim.marks).any(|base| live.contains(base));
            if !is_live {
                found.extend(of_balancer(&services, object, is_ours));
            }
        }
    }
    if !balancers.env().several.is_empty() {
        let gone: BTreeSet<String> = found.iter().map(|part| part.object.id.clone()).collect();
        let of =
            |service: &Service| [Family::V4, Family::V6].map(|family| own_pool(&service.key().to_string(), family));
        let live: BTreeSet<String> = services.claiming().flat_map(of).collect();
        // Others have pools on these load balancers too: it has nodes, or rules of Services that are gone and no others.
        found.extend(inventory::pools(cluster, &observed).into_iter().filter_map(|object| {
            let is_named =
                object.claim.iter().flat_map(|claim| &claim.marks).any(|it| live.contains(&it.to_lowercase()));
            let is_ours = object.users.keys().all(|user| gone.contains(user))
                && (!object.users.is_empty() || object.members.iter().any(is_node));
            (is_ours && !is_named).then(|| of_pool(object))
        }));
    }
    let addresses = inventory::addresses(cluster, &observed).into_iter();
    found.extend(addresses.filter_map(|object| of_address(&services, object)));
    found.extend((!stale.is_empty()).then(|| of_group(group(balancers, cluster, stale), claims)));
    Ok(orphans::in_order(found))
}

/// A Service that does not exist.
fn nobody() -> Result<Service, ProviderError> {
    let mut service = orphans::former(UNNAMED, "")?;
    // Private link services are read only for Services that may have one.
    service.metadata.annotations.insert(crate::annotations::PLS_CREATE.row.key.to_owned(), String::new());
    Ok(service)
}

/// All objects, and the destinations that belong to nobody.
async fn observe(
    balancers: &Balancers,
    cluster: &str,
    service: &Service,
) -> Result<(Observed, Vec<String>), ProviderError> {
    use ccm_kit::balancer::BalancerCloud as _;
    let work = [ServiceWork::new(service, &[], ServiceAction::Delete)];
    let (wanted, _) = balancers.wanted(cluster, &work);
    let observed = balancers.observe(cluster, &work, &wanted).await?;
    let plan = balancers.plan(&observed, &wanted)?;
    let stale = plan.steps.iter().find_map(|step| match &step.write {
        Write::Security(change) => Some(change.stale()),
        _ => None,
    });
    Ok((observed, stale.unwrap_or_default()))
}

/// The machines of nodes by ID in lower case, and their addresses.
fn machines(claims: &Claims) -> BTreeSet<String> {
    let ids = claims.nodes.iter().filter_map(|node| Machine::of(node.provider_id_or_empty()));
    let ids = ids.map(|machine| machine.id().folded());
    let addresses = claims.nodes.iter().flat_map(|node| &node.addresses).map(|address| address.address.to_string());
    ids.chain(addresses).collect()
}

fn of_balancer(services: &Services<'_>, object: Object, is_ours: bool) -> Option<Unclaimed> {
    let doubt = (!is_ours).then(|| {
        "no node of this cluster is behind the load balancer: another cluster may use it; check that nothing does, and remove it \
         by hand"
            .to_owned()
    });
    let claim = object.claim.clone()?;
    if claim.service.is_empty() {
        let (owner, why) = (format!("a Service with the UID {}…", claim.uid), "no Service has this UID".to_owned());
        let marks = "its name and load balancer".to_owned();
        return Some(Unclaimed { object, owner, why, marks, kept: doubt, risk: Risk::Disruptive, changes: vec![] });
    }
    let (found, service) = services.former(object, "its name, load balancer and the tag of its public IP address")?;
    Some(Unclaimed { kept: services.namesake(&service).or(doubt), risk: Risk::Disruptive, ..found })
}

fn of_pool(object: Object) -> Unclaimed {
    Unclaimed {
        object,
        owner: "a Service with externalTrafficPolicy: Local".to_owned(),
        why: "no Service has a pool of this name".to_owned(),
        marks: "its name, and its rules or members".to_owned(),
        kept: None,
        risk: Risk::None,
        changes: vec![],
    }
}

fn of_address(services: &Services<'_>, object: Object) -> Option<Unclaimed> {
    // It may be that of several Services.
    if object.claim.iter().flat_map(|claim| &claim.marks).any(|service| services.claims(service)) {
        return None;
    }
    let (found, _) = services.former(object, "its tags")?;
    Some(Unclaimed { risk: Risk::Disruptive, ..found })
}

/// The security group with the destinations that belong to nobody.
fn group(balancers: &Balancers, cluster: &str, mut stale: Vec<String>) -> Object {
    let id = balancers.env().security_group_id();
    stale.sort();
    let claim = Claim { cluster: cluster.to_owned(), marks: stale, ..Claim::default() };
    let (name, id) = (id.name().to_owned(), id.folded());
    Object { kind: SECURITY_GROUP, id, name, claim: Some(claim), ..Object::default() }
}

fn of_group(object: Object, claims: &Claims) -> Unclaimed {
    let stale = object.claim.iter().flat_map(|claim| claim.marks.clone()).collect::<Vec<_>>().join(" ");
    Unclaimed {
        object,
        owner: "Services that are gone".to_owned(),
        why: "destinations of its rules are the addresses of no Service and no node; the next write removes them"
            .to_owned(),
        marks: "the names and priorities of the rules".to_owned(),
        kept: claims.nodes.is_empty().then(|| "no node is known, whose addresses may be among them".to_owned()),
        risk: Risk::None,
        changes: vec![Change { field: "destinations".into(), before: Some(stale), after: None }],
    }
}

/// Deletes one orphan after reading it again, with the writes of the controllers.
pub(super) async fn delete(azure: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    let balancers = azure.balancers.cloud();
    let claim = orphans::claim(orphan)?;
    let is_there = |now: &[Object]| orphans::is_there(orphan, now);
    match &*orphan.kind {
        LOAD_BALANCER => {
            let key = if claim.service.is_empty() { UNNAMED } else { &claim.service };
            let mut service = orphans::former(key, &claim.uid)?;
            service.metadata.annotations = nobody()?.metadata.annotations;
            // The address is a separate orphan.
            orphans::delete(balancers, cluster, &service, is_there, |step| step.summary.kind != PUBLIC_IP).await
        }
        POOL => {
            let (observed, _) = observe(balancers, cluster, &nobody()?).await?;
            let of = |balancer: &&Arc<Value>| {
                orphan.id.starts_with(&format!("{}/", json::text(balancer, &["id"]).to_lowercase()))
            };
            match observed.balancers.iter().find(of) {
                Some(balancer) if is_there(&inventory::pools(cluster, &observed))? => {
                    let mut change = BalancerChange::new(balancers.env(), json::name(balancer), Some(balancer));
                    change.edits.push(Edit { own_pools: claim.marks, ..Edit::default() });
                    write(balancers, Write::Balancer(change), orphan, Kind::Frame).await
                }
                _ => Ok(()),
            }
        }
        PUBLIC_IP => {
            let (observed, _) = observe(balancers, cluster, &nobody()?).await?;
            match is_there(&inventory::addresses(cluster, &observed))? {
                true => release(balancers, cluster, &observed, orphan, &claim).await,
                false => Ok(()),
            }
        }
        _ => {
            let (_, stale) = observe(balancers, cluster, &nobody()?).await?;
            if stale.is_empty() || !is_there(&[group(balancers, cluster, stale)])? {
                return Ok(());
            }
            let now = |_: &[Object]| Ok(true);
            orphans::delete(balancers, cluster, &nobody()?, now, |step| step.summary.kind == SECURITY_GROUP).await
        }
    }
}

/// Deletes a public IP address that was made for Services that are gone.
async fn release(
    balancers: &Balancers,
    cluster: &str,
    observed: &Observed,
    orphan: &Orphan,
    claim: &Claim,
) -> Result<(), ProviderError> {
    let Some(before) = observed.public_ip(&orphan.id).cloned() else { return Ok(()) };
    let id = ArmId::parse(json::text(&before, &["id"])).map_err(|error| ProviderError::bug(error.to_string()))?;
    let edit = |key: &String| {
        let kind = EditKind::Release { stays: false };
        AddressEdit { place: 0, key: key.clone(), family: Family::V4, kind }
    };
    let edits = claim.marks.iter().map(edit).collect();
    let change = AddressChange { id, cluster: cluster.to_owned(), zones: Vec::new(), before, edits, replaced_by: None };
    write(balancers, Write::Address(change), orphan, Kind::Release).await
}

async fn write(balancers: &Balancers, write: Write, orphan: &Orphan, kind: Kind) -> Result<(), ProviderError> {
    let step = Step::new(write, orphan.step.clone(), Items::one(0), Part::new(kind));
    orphans::write(balancers, &[step]).await
}
