//! The permissions of the caller: in a project from the Resource Manager API, on a subnetwork from that of Compute.

use std::collections::BTreeSet;

use ccm_kit::http::{escaped, null};
use serde::Deserialize;
use serde_json::json;

use super::operation::{Operation, PERMISSIONS_TEST, SUBNETWORK_TEST};
use super::resource::Scope;
use super::session::Message;
use super::{ApiError, Client};

/// The most permissions in one request.
const AT_ONCE: usize = 100;

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Granted {
    #[serde(deserialize_with = "null")]
    permissions: Vec<String>,
}

impl Client {
    /// The subset of the permissions that the caller has in a project.
    pub(crate) async fn granted(&self, project: &str, permissions: &[&str]) -> Result<BTreeSet<String>, ApiError> {
        let url = format!("{}v1/projects/{}:testIamPermissions", self.session.resource_manager, escaped(project));
        self.tested(PERMISSIONS_TEST, url, permissions).await
    }

    /// The same for a subnetwork of the network: roles can be granted on it alone.
    pub(crate) async fn granted_on(
        &self,
        region: &str,
        subnetwork: &str,
        permissions: &[&str],
    ) -> Result<BTreeSet<String>, ApiError> {
        let url = self.url(&self.path(SUBNETWORK_TEST, &Scope::region(region), subnetwork));
        self.tested(SUBNETWORK_TEST, url, permissions).await
    }

    async fn tested(
        &self,
        operation: Operation,
        url: String,
        permissions: &[&str],
    ) -> Result<BTreeSet<String>, ApiError> {
        let mut granted = BTreeSet::new();
        for some in permissions.chunks(AT_ONCE) {
            let body = Some(json!({"permissions": some}));
            let message = Message { method: operation.verb.method(), url: url.clone(), body, is_long: false };
            let send = || async { self.session.send(&message).await?.json::<Granted>() };
            granted.extend(self.caller.call(operation, send).await?.permissions);
        }
        Ok(granted)
    }
}
