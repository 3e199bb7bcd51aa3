//! Routes from the cloud's network to the pods of each node (upstream: `Routes`).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::address::NodeAddress;
use crate::error::ProviderError;
use crate::node::NodeName;
use crate::scope::Scope;

/// The cloud's route table, for the route controller, which calls it once per reconcile.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes managed for this cluster, and no others.
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError>;

    /// Creates routes; one answer per route, in order. An equal existing route is a success.
    /// [`crate::ErrorClass::Conflict`] is retried at once, any other error at the next reconcile.
    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>>;

    /// Deletes routes returned by [`Routes::list`]; one answer per route, in order.
    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>>;

    /// [`Routes::create`] as the controller calls it. A write begins only while [`Scope::may_write`] succeeds;
    /// [`Scope::answer`] returns each answer as soon as it is known, so that a route that takes long delays no other node.
    /// Without its own implementation, all answers come at the end.
    async fn create_in(&self, cluster: &str, routes: &[NewRoute], _scope: &Scope) -> Vec<Result<(), ProviderError>> {
        self.create(cluster, routes).await
    }

    /// [`Routes::delete`] as the controller calls it.
    async fn delete_in(&self, cluster: &str, routes: &[Route], _scope: &Scope) -> Vec<Result<(), ProviderError>> {
        self.delete(cluster, routes).await
    }
}

/// A route returned by [`Routes::list`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Route {
    /// The cloud's name for it; ignored at creation.
    pub name: String,
    /// The target node; `None` for a blackhole or another target.
    pub target_node: Option<NodeName>,
    /// Set by the provider: whether [`Route::target_node_addresses`] is meaningful.
    pub enable_node_addresses: bool,
    /// The addresses of the target node.
    pub target_node_addresses: Vec<NodeAddress>,
    /// Destination.
    pub destination_cidr: String,
    /// Whether the target no longer exists.
    pub blackhole: bool,
}

/// A route to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRoute {
    /// A unique name hint for clouds with named routes: the UID of the node.
    pub name_hint: String,
    /// Target, addresses and destination.
    pub route: Route,
}
