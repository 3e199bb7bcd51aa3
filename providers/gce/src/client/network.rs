//! Networks, subnetworks, routes, zones and projects.

use ccm_kit::models;
use serde::Deserialize;

use super::filter::Filter;
use super::operation::{NETWORK_GET, PROJECT_GET, ROUTE_LIST, SUBNETWORK_LIST, ZONE_LIST};
use super::resource::Scope;
use super::{ApiError, Client, named};

models! {
    /// A network.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Network {
        pub(crate) name: String,
        pub(crate) self_link: String,
        /// Only legacy networks have a range of their own.
        #[serde(rename = "IPv4Range")]
        pub(crate) ipv4_range: String,
        /// Whether subnetworks are created automatically.
        pub(crate) auto_create_subnetworks: bool,
    }

    /// A subnetwork.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Subnetwork {
        pub(crate) name: String,
        pub(crate) self_link: String,
        pub(crate) network: String,
        pub(crate) ip_cidr_range: String,
    }

    /// A route.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Route {
        pub(crate) name: String,
        pub(crate) network: String,
        pub(crate) description: String,
        pub(crate) dest_range: String,
        /// The URL of an instance; empty for another kind of next hop.
        pub(crate) next_hop_instance: String,
        pub(crate) warnings: Vec<RouteWarning>,
    }

    /// A warning about a route.
    pub(crate) struct RouteWarning {
        /// `NEXT_HOP_INSTANCE_NOT_FOUND`, …
        pub(crate) code: String,
    }
}

/// A zone or a project.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Place {
    name: String,
}

named!(Network, Subnetwork, Route, Place);

impl Client {
    /// A network by its name; `None` if it does not exist.
    pub(crate) async fn network(&self, name: &str) -> Result<Option<Network>, ApiError> {
        self.get(NETWORK_GET, &Scope::Global, name).await
    }

    /// The subnetworks of a network in a region.
    pub(crate) async fn subnetworks(&self, region: &str, network: &str) -> Result<Vec<Subnetwork>, ApiError> {
        let filter = Filter::ends("network", &format!("/{network}"));
        self.list(SUBNETWORK_LIST, &Scope::region(region), &filter).await
    }

    /// The routes that match this filter.
    pub(crate) async fn routes(&self, filter: &Filter) -> Result<Vec<Route>, ApiError> {
        self.list(ROUTE_LIST, &Scope::Global, filter).await
    }

    /// The names of the zones of a region, sorted.
    pub(crate) async fn zones(&self, region: &str) -> Result<Vec<String>, ApiError> {
        let filter = Filter::ends("region", &format!("/regions/{region}"));
        let zones: Vec<Place> = self.list(ZONE_LIST, &Scope::Project, &filter).await?;
        let mut zones: Vec<String> = zones.into_iter().map(|zone| zone.name).collect();
        zones.sort();
        Ok(zones)
    }

    /// The name of a project; `None` if it does not exist.
    pub(crate) async fn project_name(&self, project: &str) -> Result<Option<String>, ApiError> {
        let found: Option<Place> = self.get(PROJECT_GET, &Scope::Project, project).await?;
        Ok(found.map(|project| project.name))
    }
}
