//! The permissions of the caller, from the Resource Manager API.

use std::collections::BTreeSet;

use ccm_kit::http::{escaped, null};
use serde::Deserialize;
use serde_json::json;

use super::operation::PERMISSIONS_TEST;
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
        let mut granted = BTreeSet::new();
        for some in permissions.chunks(AT_ONCE) {
            let body = Some(json!({"permissions": some}));
            let message = Message { method: PERMISSIONS_TEST.verb.method(), url: url.clone(), body, is_long: false };
            let send = || async { self.session.send(&message).await?.json::<Granted>() };
            granted.extend(self.caller.call(PERMISSIONS_TEST, send).await?.permissions);
        }
        Ok(granted)
    }
}
