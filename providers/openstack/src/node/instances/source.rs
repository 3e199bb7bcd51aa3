//! Reads servers from Nova: by ID, by name, or with the list of the project.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Interrupted;
use ccm_kit::directory::{Answer, Seen, Source};
use ccm_kit::near_miss::Machine;
use ccm_provider::ProviderError;
use futures::{StreamExt, stream};

use crate::client::compute::Server;
use crate::client::operation::SERVER_LIST;
use crate::client::{ApiError, Client};
use crate::node::identity::{ServerId, Wanted};

/// Nova lists this many servers in about the time of a single one.
const WORTH_ONE: usize = 100;
/// Maximum number of concurrent look-ups.
const IN_FLIGHT: usize = 16;
/// The status of a running server.
const ACTIVE: &str = "ACTIVE";

type List = BTreeMap<Wanted, Seen<Arc<Server>>>;

/// Nova as the source of servers.
#[derive(Debug)]
pub(crate) struct Nova {
    client: Client,
}

impl Nova {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// All servers, to compare them with nodes.
    pub(super) async fn machines(client: &Client) -> Result<Vec<Machine>, ApiError> {
        let machine = |server: Server| Machine {
            place: server.id,
            addresses: server.addresses.values().flatten().filter_map(|address| address.addr.parse().ok()).collect(),
            name: server.name,
        };
        Ok(client.servers().await?.into_iter().map(machine).collect())
    }

    async fn by_id(&self, id: ServerId) -> (Wanted, Answer<Self>) {
        let found = self.client.server(id.as_str()).await;
        // Nova also answers so while it changes over to another database: a second look must agree.
        let seen = found.map(|server| server.map_or(Seen::Unlisted, |server| Seen::One(Arc::new(server))));
        (Wanted::Server(id), seen)
    }

    async fn by_name(&self, name: String) -> (Wanted, Answer<Self>) {
        let found = self.client.servers_named(&name).await;
        let seen = found.map(|servers| one_of(&servers.into_iter().map(Arc::new).collect::<Vec<_>>()));
        (Wanted::Name(name), seen)
    }
}

fn one_of(found: &[Arc<Server>]) -> Seen<Arc<Server>> {
    match found {
        [] => Seen::Unlisted,
        [one] => Seen::One(one.clone()),
        several => Seen::Several(several.iter().map(|server| server.id.clone()).collect()),
    }
}

#[async_trait]
impl Source for Nova {
    type Key = Wanted;
    type Value = Arc<Server>;
    type Error = ApiError;

    async fn list(&self) -> Result<(usize, List), ApiError> {
        // A kubelet writes the name of its server in lower case.
        let mut in_lower: BTreeMap<String, Vec<Arc<Server>>> = BTreeMap::new();
        let mut by_name = in_lower.clone();
        let mut list = List::new();
        for server in self.client.servers().await?.into_iter().map(Arc::new) {
            in_lower.entry(server.name.to_ascii_lowercase()).or_default().push(server.clone());
            by_name.entry(server.name.clone()).or_default().push(server.clone());
            list.extend(ServerId::parse(&server.id).map(|id| (Wanted::Server(id), Seen::One(server))));
        }
        let size = list.len();
        in_lower.extend(by_name);
        list.extend(in_lower.into_iter().map(|(name, found)| (Wanted::Name(name), one_of(&found))));
        Ok((size, list))
    }

    /// An ID that a list lacks is read alone: Nova omits servers of unreachable cells from lists.
    async fn look_up(&self, keys: BTreeSet<Wanted>) -> BTreeMap<Wanted, Answer<Self>> {
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for key in keys {
            match key {
                Wanted::Server(id) => ids.push(self.by_id(id)),
                Wanted::Name(name) => names.push(self.by_name(name)),
                Wanted::Never(_) => {}
            }
        }
        // Not all at once: a call that waits too long for its turn is given up.
        let (ids, names) =
            (stream::iter(ids).buffer_unordered(IN_FLIGHT), stream::iter(names).buffer_unordered(IN_FLIGHT));
        let (ids, names): (Vec<_>, Vec<_>) = futures::join!(ids.collect(), names.collect());
        ids.into_iter().chain(names).collect()
    }

    fn list_calls(servers: usize) -> usize {
        servers.div_ceil(WORTH_ONE)
    }

    fn look_up_calls(keys: &BTreeSet<Wanted>) -> usize {
        keys.len()
    }

    fn is_settled(server: &Arc<Server>) -> bool {
        server.status == ACTIVE && server.addresses.values().any(|addresses| !addresses.is_empty())
    }

    /// A node may have another name than its server.
    fn is_evidence(key: &Wanted) -> bool {
        matches!(key, Wanted::Server(_))
    }

    fn ambiguous(&self, key: &Wanted, ids: &[String]) -> ProviderError {
        let Wanted::Name(name) = key else { return ProviderError::bug(format!("{key:?} is not unique")) };
        ProviderError::unknown(format!(
            "multiple results where only one expected: servers {} have the name {name:?}; set the provider ID of the node",
            ids.join(", ")
        ))
    }

    fn interrupted(how: Interrupted) -> ApiError {
        ApiError::interrupted(SERVER_LIST, how)
    }
}
