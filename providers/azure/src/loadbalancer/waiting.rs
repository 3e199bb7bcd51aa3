//! Operations whose end a list shows: those of public IP addresses, of which there may be hundreds at a time.
//!
//! One list a second in place of a look at each operation.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_kit::balancer::Progress;
use ccm_kit::http::Query;
use ccm_kit::{Cached, Interrupted};
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::json::{self, same};
use crate::client::id::ArmId;
use crate::client::operation::PUBLIC_IP_LIST;
use crate::client::{ApiError, Client};

/// A list of this age is recent enough.
const AGE: Duration = Duration::from_secs(1);

type List = Cached<Vec<Value>, ApiError>;

/// The creations and deletions of public IP addresses that are not done.
#[derive(Debug)]
pub(super) struct Waiting {
    client: Client,
    /// By operation.
    ongoing: Mutex<BTreeMap<String, Ongoing>>,
    /// By subscription and resource group.
    lists: Mutex<BTreeMap<(String, String), List>>,
}

#[derive(Debug, Clone)]
struct Ongoing {
    id: ArmId,
    is_deletion: bool,
    since: Instant,
}

impl Waiting {
    pub(super) fn new(client: Client) -> Self {
        let (ongoing, lists) = Default::default();
        Self { client, ongoing, lists }
    }

    pub(super) fn add(&self, operation: &str, id: &ArmId, is_deletion: bool) {
        let ongoing = Ongoing { id: id.clone(), is_deletion, since: Instant::now() };
        self.ongoing.lock().insert(operation.to_owned(), ongoing);
    }

    /// Whether a list shows the end of an operation, and what was created; `None` if the operation itself must be read.
    pub(super) async fn poll(&self, operation: &str) -> Option<(Progress, Option<Value>)> {
        let ongoing = self.ongoing.lock().get(operation).cloned()?;
        // Soon after its begin, it goes on.
        if ongoing.since.elapsed() < AGE {
            return Some((Progress::Running, None));
        }
        let list = self.list(&ongoing.id).get(AGE, Some(ongoing.since)).await.ok()?.value;
        let present = list.iter().find(|object| same(json::text(object, &["id"]), ongoing.id.as_str()));
        let state = present.map(|object| json::property(object, "provisioningState"));
        let progress = match (state, ongoing.is_deletion) {
            (None, true) => Progress::Done,
            (Some(state), false) if same(state, "Succeeded") => Progress::Done,
            (Some(state), _) if same(state, "Updating") || same(state, "Deleting") => {
                return Some((Progress::Running, None));
            }
            // The operation has its error.
            _ => {
                self.ongoing.lock().remove(operation);
                return None;
            }
        };
        self.ongoing.lock().remove(operation);
        Some((progress, present.filter(|_| !ongoing.is_deletion).cloned()))
    }

    /// The public IP addresses of the group of one.
    pub(super) async fn addresses(&self, id: &ArmId) -> Result<Vec<Value>, ApiError> {
        Ok(self.list(id).get(AGE, Some(Instant::now())).await?.value.to_vec())
    }

    fn list(&self, id: &ArmId) -> List {
        let key = (id.subscription().to_lowercase(), id.group().to_lowercase());
        let new = || {
            let (client, (subscription, group)) = (self.client.clone(), key.clone());
            let read = move || {
                let (client, subscription, group) = (client.clone(), subscription.clone(), group.clone());
                let read =
                    async move { client.list(PUBLIC_IP_LIST, &subscription, &group, Query::default(), Some).await };
                async move { Ok(read.await?.unwrap_or_default()) }.boxed()
            };
            List::new(read, (|how| ApiError::interrupted(PUBLIC_IP_LIST, how)) as fn(Interrupted) -> ApiError)
        };
        self.lists.lock().entry(key.clone()).or_insert_with(new).clone()
    }
}
