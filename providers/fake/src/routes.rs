//! Routes: a table.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{NewRoute, NodeName, ProviderError, Route, SingleRoutes};
use serde_json::json;

use crate::cloud::Cloud;
use crate::config::Config;
use crate::faults::Subject;
use crate::method::Method;
use crate::state::Tables;
use crate::values::{StoredRoute, route_to_json};

#[cfg(test)]
mod tests;

/// [`SingleRoutes`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeRoutes(pub(crate) Arc<Cloud>);

/// The target node of a route; empty for none.
pub(crate) fn target(route: &Route) -> &str {
    route.target_node.as_ref().map_or("", NodeName::as_str)
}

fn subject(route: &Route) -> Subject<'_> {
    Subject { node: Some(target(route)), cidr: Some(&route.destination_cidr), ..Subject::default() }
}

/// The key of a route in the table.
fn position(tables: &Tables, cluster: &str, route: &Route) -> Option<usize> {
    tables.routes.iter().position(|stored| stored.cluster == cluster && same(&stored.route, route))
}

/// The routes of a cluster, and those without a cluster.
fn listed(config: &Config, tables: &Tables, cluster: &str) -> Vec<Route> {
    let knows_addresses = config.routes.node_addresses;
    let listed = tables.routes.iter().filter(|stored| stored.cluster == cluster || stored.cluster.is_empty());
    listed
        .map(|stored| Route {
            enable_node_addresses: knows_addresses,
            target_node_addresses: if knows_addresses {
                stored.route.target_node_addresses.clone()
            } else {
                Vec::new()
            },
            ..stored.route.clone()
        })
        .collect()
}

impl FakeRoutes {
    /// The listed routes of the cluster: one `ListRoutes`.
    pub(crate) async fn made_for(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let mut marks = Vec::new();
        let act = |config: &Config, tables: &mut Tables| {
            let own = tables.routes.iter().filter(|stored| !cluster.is_empty() && stored.cluster == cluster);
            marks = own.map(|stored| stored.route.clone()).collect();
            Ok(listed(config, tables, cluster))
        };
        let args = json!({"cluster": cluster});
        let mut routes = self.0.call(Method::ListRoutes, Subject::default(), args, act).await?;
        // A fault may have replaced the list.
        routes.retain(|route| marks.iter().any(|mark| same(mark, route)));
        Ok(routes)
    }
}

/// Whether two routes of one cluster have the same key in the table.
fn same(one: &Route, other: &Route) -> bool {
    target(one) == target(other) && one.destination_cidr == other.destination_cidr
}

#[async_trait]
impl SingleRoutes for FakeRoutes {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let act = |config: &Config, tables: &mut Tables| Ok(listed(config, tables, cluster));
        self.0.call(Method::ListRoutes, Subject::default(), json!({"cluster": cluster}), act).await
    }

    async fn create(&self, cluster: &str, new: &NewRoute) -> Result<(), ProviderError> {
        let (hint, route) = (&new.name_hint, &new.route);
        let args = json!({"cluster": cluster, "nameHint": hint, "route": route_to_json(route)});
        let act = |_: &Config, tables: &mut Tables| {
            let cidr = &route.destination_cidr;
            if position(tables, cluster, route).is_some() {
                let node = target(route);
                return Err(ProviderError::unknown(format!("route {cidr} to {node} already exists")));
            }
            let name = format!("{cluster}-{hint}-{cidr}");
            let route = Route { name, enable_node_addresses: false, ..route.clone() };
            tables.routes.push(StoredRoute { cluster: cluster.to_owned(), route });
            Ok(())
        };
        self.0.call(Method::CreateRoute, subject(route), args, act).await
    }

    async fn delete(&self, cluster: &str, route: &Route) -> Result<(), ProviderError> {
        let args = json!({"cluster": cluster, "route": route_to_json(route)});
        let act = |_: &Config, tables: &mut Tables| {
            // A route without a cluster is listed for every cluster, so every cluster must be able to remove it.
            let at = position(tables, cluster, route).or_else(|| position(tables, "", route));
            let Some(at) = at else {
                let (cidr, node) = (&route.destination_cidr, target(route));
                return Err(ProviderError::unknown(format!("route {cidr} to {node} does not exist")));
            };
            tables.routes.remove(at);
            Ok(())
        };
        self.0.call(Method::DeleteRoute, subject(route), args, act).await
    }
}
