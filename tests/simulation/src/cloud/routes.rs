//! The route table.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_provider::{AddressType, ErrorClass, NewRoute, NodeAddress, ProviderError, Route, Routes};

use super::Handle;
use crate::trace::Invariant;

/// Name prefix of foreign routes.
pub const FOREIGN_ROUTE: &str = "theirs";

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRow {
    /// The target node; `None` for a blackhole.
    pub node: Option<String>,
    /// The destination CIDR.
    pub cidr: String,
    /// The addresses of the node at the route's creation.
    pub addresses: Vec<NodeAddress>,
}

pub(super) fn foreign() -> BTreeMap<String, RouteRow> {
    let row = |node: Option<&str>, cidr: &str| RouteRow {
        node: node.map(str::to_owned),
        cidr: cidr.to_owned(),
        addresses: vec![NodeAddress { kind: AddressType::InternalIp, address: "192.0.2.9".into() }],
    };
    BTreeMap::from([
        (format!("{FOREIGN_ROUTE}-office"), row(Some("office-gateway"), "172.16.0.0/16")),
        (format!("{FOREIGN_ROUTE}-hole"), row(None, "172.17.0.0/16")),
        (format!("{FOREIGN_ROUTE}-odd"), row(Some("office-gateway"), "somewhere")),
    ])
}

impl Handle {
    async fn create_one(&self, new: &NewRoute) -> Result<(), ProviderError> {
        let conflicts = self.lock().mishaps.conflicts;
        if conflicts > 0 {
            self.lock().mishaps.conflicts = conflicts - 1;
            return Err(ProviderError::new(ErrorClass::Conflict, "the route table is being changed"));
        }
        let route = &new.route;
        let node = route.target_node.as_ref().map(ToString::to_string);
        let name = format!("{}-{}", new.name_hint, route.destination_cidr);
        self.write("create route", |state| {
            let row =
                RouteRow { node, cidr: route.destination_cidr.clone(), addresses: route.target_node_addresses.clone() };
            // Creating an existing route succeeds and changes nothing.
            if state.routes.values().any(|known| known.cidr == row.cidr && known.node == row.node) {
                return None;
            }
            let text = format!("create route {} to {}", row.cidr, row.node.as_deref().unwrap_or_default());
            state.routes.insert(name, row);
            Some(text)
        })
        .await
    }

    async fn delete_one(&self, route: &Route) -> Result<(), ProviderError> {
        if route.name.starts_with(FOREIGN_ROUTE) {
            self.violated(Invariant::Foreign, &format!("deletes the foreign route {}", route.name));
        }
        self.write("delete route", |state| {
            let row = state.routes.remove(&route.name)?;
            Some(format!("delete route {} to {}", row.cidr, row.node.unwrap_or_default()))
        })
        .await
    }
}

#[async_trait]
impl Routes for Handle {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        self.begin("list routes", false).await?;
        let now = self.cloud.trace.now();
        let state = self.lock();
        let rows = match &state.mishaps.stale_routes {
            Some((until, rows)) if now < *until => rows,
            _ => &state.routes,
        };
        let enable_node_addresses = self.cloud.traits.route_addresses;
        let reported = |(name, row): (&String, &RouteRow)| Route {
            name: name.clone(),
            target_node: row.node.as_deref().map(Into::into),
            enable_node_addresses,
            target_node_addresses: if enable_node_addresses { row.addresses.clone() } else { Vec::new() },
            destination_cidr: row.cidr.clone(),
            blackhole: row.node.is_none(),
        };
        Ok(rows.iter().map(reported).collect())
    }

    async fn create(&self, _cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        self.check_leader("create routes");
        let mut answers = Vec::new();
        let begun = self.begin("create routes", true).await;
        for route in routes {
            answers.push(match &begun {
                Ok(()) => self.create_one(route).await,
                Err(error) => Err(error.clone()),
            });
        }
        self.miscount(answers)
    }

    async fn delete(&self, _cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        self.check_leader("delete routes");
        let mut answers = Vec::new();
        let begun = self.begin("delete routes", true).await;
        for route in routes {
            answers.push(match &begun {
                Ok(()) => self.delete_one(route).await,
                Err(error) => Err(error.clone()),
            });
        }
        self.miscount(answers)
    }
}

impl Handle {
    fn miscount(&self, mut answers: Vec<Result<(), ProviderError>>) -> Vec<Result<(), ProviderError>> {
        let mut state = self.lock();
        if state.mishaps.miscounts > 0 {
            state.mishaps.miscounts -= 1;
            answers.pop();
        }
        answers
    }
}
