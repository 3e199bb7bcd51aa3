//! Objects without a claim in the cluster.

use std::collections::BTreeSet;

use ccm_kit::inspect::orphans::{self, Services, Unclaimed};
use ccm_kit::inspect::{Claim, LOAD_BALANCER, Object};
use ccm_provider::{Change, Claims, Orphan, ProviderError, Risk, Route, SingleRoutes as _};

use super::FakeInspect;
use crate::load_balancer::{About, deletion};
use crate::routes::target;
use crate::state::Balancer;

const ROUTE: &str = "Route";

impl FakeInspect {
    pub(super) async fn unclaimed(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        let mut found = Vec::new();
        if self.cloud.start.interfaces.load_balancer {
            let services = Services::new(cluster, claims);
            for (key, Balancer { name, .. }) in self.cloud.balancers() {
                if services.claims(&key) {
                    continue;
                }
                let about = About { cluster, key: &key, uid: "", name: &name };
                let Some(was) = self.balancers.look_at(about).await?.balancer else { continue };
                let changes = deletion(key.clone(), &was, "").changes;
                let former = services.former(entry(about, &was), "its entry in the table of load balancers");
                found.extend(former.map(|(former, _)| Unclaimed { risk: Risk::Disruptive, changes, ..former }));
            }
        }
        if self.cloud.start.interfaces.routes {
            let nodes: BTreeSet<&str> = claims.nodes.iter().map(|node| node.name.as_str()).collect();
            let routes = self.routes.made_for(cluster).await?;
            found.extend(
                routes.iter().filter(|route| !nodes.contains(target(route))).map(|route| of_no_node(cluster, route)),
            );
        }
        let mut orphans = orphans::in_order(found);
        // Users know an entry by its key.
        orphans.iter_mut().for_each(|orphan| orphan.step.id.clone_from(&orphan.id));
        Ok(orphans)
    }

    /// Removes an orphan if it is unchanged.
    pub(super) async fn delete(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        if orphan.kind == ROUTE {
            let target_then = orphans::claim(orphan)?.marks;
            let is_it = |route: &&Route| route.destination_cidr == orphan.id && target_then == [target(route)];
            if let Some(route) = self.routes.made_for(cluster).await?.iter().find(is_it) {
                return self.routes.delete(cluster, route).await;
            }
            return match self.routes.list(cluster).await?.iter().any(|route| is_it(&route)) {
                true => Err(orphans::refused(orphan, "it is no longer marked as made for this cluster")),
                false => Ok(()),
            };
        }
        let about = About { cluster, key: &orphan.id, uid: "", name: &orphan.name };
        let now = self.balancers.look_at(about).await?.balancer.map(|found| entry(about, &found));
        match orphans::is_there(orphan, now.as_slice())? {
            true => self.balancers.remove(about).await,
            false => Ok(()),
        }
    }
}

/// An entry of the table. Its whole content is its mark: if anything of it changes, it may be in use again.
fn entry(about: About<'_>, found: &Balancer) -> Object {
    let About { cluster, key, name, .. } = about;
    let (cluster, service, marks) = (cluster.to_owned(), key.to_owned(), vec![format!("{found:?}")]);
    let claim = Some(Claim { cluster, service, marks, ..Claim::default() });
    Object { kind: LOAD_BALANCER, id: key.to_owned(), name: name.to_owned(), claim, ..Object::default() }
}

fn of_no_node(cluster: &str, route: &Route) -> Unclaimed {
    let node = target(route).to_owned();
    let (owner, why, before) = match &*node {
        "" => ("no node".to_owned(), "it leads to no node".to_owned(), None),
        name => (format!("node {name}"), format!("the Node {name} does not exist"), Some(name.to_owned())),
    };
    let claim = Some(Claim { cluster: cluster.to_owned(), marks: vec![node], ..Claim::default() });
    let (id, name) = (route.destination_cidr.clone(), route.name.clone());
    Unclaimed {
        object: Object { kind: ROUTE, id, name, claim, ..Object::default() },
        owner,
        why,
        marks: format!("its mark of the cluster {cluster}"),
        kept: None,
        risk: Risk::None,
        changes: vec![Change { field: "target".into(), before, after: None }],
    }
}
