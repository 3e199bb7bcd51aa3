//! Objects without a claim in the cluster.

use std::collections::BTreeSet;

use ccm_kit::inspect::orphans::Services;
use ccm_provider::{Change, Claims, ErrorClass, Orphan, ProviderError, Risk, Route, SingleRoutes as _, Step, Verb};
use serde::{Deserialize, Serialize};

use super::FakeInspect;
use crate::load_balancer::{About, deletion};
use crate::routes::target;
use crate::state::Balancer;

/// The key of an orphan, and its state at that time.
#[derive(Debug, Serialize, Deserialize)]
enum Handle {
    Balancer { key: String, was: Balancer },
    Route { node: String, cidr: String },
}

impl FakeInspect {
    pub(super) async fn unclaimed(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        let mut orphans = Vec::new();
        if self.cloud.start.interfaces.load_balancer {
            orphans.extend(self.balancers_without_service(cluster, claims).await?);
        }
        if self.cloud.start.interfaces.routes {
            orphans.extend(self.routes_without_node(cluster, claims).await?);
        }
        Ok(orphans)
    }

    async fn balancers_without_service(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        let services = Services::new(cluster, claims);
        let present: BTreeSet<String> = claims.services.iter().map(|service| service.key().to_string()).collect();
        let mut orphans = Vec::new();
        for (key, listed) in self.cloud.balancers() {
            if services.claims(&key) {
                continue;
            }
            let about = About { cluster, key: &key, uid: "", name: &listed.name };
            let Some(was) = self.balancers.look_at(about).await?.balancer else { continue };
            let gone = if present.contains(&key) { "wants no load balancer" } else { "does not exist" };
            let reason = format!("it is in the table of load balancers, and the Service {key} {gone}");
            orphans.push(Orphan {
                kind: "LoadBalancer".to_owned(),
                id: key.clone(),
                name: was.name.clone(),
                owner: format!("service {key}"),
                step: deletion(key.clone(), &was, &reason),
                reason,
                created: None,
                cost: None,
                kept: None,
                handle: json(Handle::Balancer { key, was })?,
            });
        }
        Ok(orphans)
    }

    async fn routes_without_node(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        let nodes: BTreeSet<&str> = claims.nodes.iter().map(|node| node.name.as_str()).collect();
        let routes = self.routes.made_for(cluster).await?;
        routes.iter().filter(|route| !nodes.contains(target(route))).map(|route| orphan(cluster, route)).collect()
    }

    /// Removes an orphan if it is unchanged.
    pub(super) async fn delete(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        let handle = Handle::deserialize(&orphan.handle)
            .map_err(|error| ProviderError::bug(format!("no orphan of this cloud: {error}")))?;
        match handle {
            Handle::Balancer { key, was } => {
                let about = About { cluster, key: &key, uid: "", name: &was.name };
                match self.balancers.look_at(about).await?.balancer {
                    None => Ok(()),
                    Some(is) if is == was => self.balancers.remove(about).await,
                    Some(_) => Err(changed(&format!("load balancer {key}"))),
                }
            }
            Handle::Route { node, cidr } => {
                let wanted = |route: &&Route| target(route) == node && route.destination_cidr == cidr;
                let own = self.routes.made_for(cluster).await?;
                if let Some(route) = own.iter().find(wanted) {
                    return self.routes.delete(cluster, route).await;
                }
                match self.routes.list(cluster).await?.iter().find(wanted) {
                    Some(_) => Err(changed(&format!("route {cidr}"))),
                    None => Ok(()),
                }
            }
        }
    }
}

fn changed(what: &str) -> ProviderError {
    let text = format!("{what} has changed since it was listed, so it may be in use: list the orphans again");
    ProviderError::new(ErrorClass::Conflict, text)
}

fn json(handle: Handle) -> Result<serde_json::Value, ProviderError> {
    serde_json::to_value(handle).map_err(|error| ProviderError::bug(format!("no handle: {error}")))
}

fn orphan(cluster: &str, route: &Route) -> Result<Orphan, ProviderError> {
    let (node, cidr) = (target(route), &route.destination_cidr);
    let owner = if node.is_empty() { "no node".to_owned() } else { format!("node {node}") };
    let why = if node.is_empty() { "leads to no node".to_owned() } else { format!("the Node {node} does not exist") };
    let reason = format!("it was made for the cluster {cluster}, and {why}");
    let led = (!node.is_empty()).then(|| node.to_owned());
    Ok(Orphan {
        kind: "Route".to_owned(),
        id: cidr.clone(),
        name: route.name.clone(),
        owner,
        step: Step {
            verb: Verb::Delete,
            kind: "Route".into(),
            id: cidr.clone(),
            changes: vec![Change { field: "target".into(), before: led, after: None }],
            reason: reason.clone(),
            risk: Risk::None,
        },
        reason,
        created: None,
        cost: None,
        kept: None,
        handle: json(Handle::Route { node: node.to_owned(), cidr: cidr.clone() })?,
    })
}
