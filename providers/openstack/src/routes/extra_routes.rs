//! Writes of a router's routes: concurrent ones are combined.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_kit::call::Meaning;
use ccm_kit::{Bulk, Interrupted};
use ccm_provider::ProviderError;
use ccm_provider::address::{parse_cidr, parse_ip};

use super::Change;
use crate::client::network::ExtraRoute;
use crate::client::operation::ROUTER_UPDATE;
use crate::client::{ApiError, Client};

/// Maximum number of writes of a router that other programs change in between.
const TRIES: u32 = 5;

/// The routes of a router.
pub(super) struct ExtraRoutes {
    client: Client,
    router: String,
    /// Whether routes are added and removed without rewriting the others.
    is_atomic: bool,
    /// A router without revisions must not have concurrent writes.
    turn: tokio::sync::Mutex<()>,
}

impl ExtraRoutes {
    pub(super) fn new(client: Client, router: String, is_atomic: bool) -> Self {
        Self { client, router, is_atomic, turn: tokio::sync::Mutex::default() }
    }

    /// Neutron refuses all routes of a write because of one, or because they are too many, without naming it: then each
    /// half is sent alone. Once a router is full, no other route is tried.
    async fn send_all(&self, changes: &[Change], answers: &mut BTreeMap<Change, Result<(), ProviderError>>) {
        let mut todo = vec![changes];
        while let Some(some) = todo.pop() {
            if some.is_empty() {
                continue;
            }
            let answer = match self.is_atomic {
                true => self.send_atomic(some).await,
                false => self.send_whole(some).await,
            };
            match answer {
                Err(error) if some.len() > 1 && matches!(error.meaning(), Meaning::Invalid | Meaning::Quota) => {
                    let (first, second) = some.split_at(some.len() / 2);
                    todo.extend([second, first]);
                }
                answer => {
                    let is_full = answer.as_ref().is_err_and(|error| error.meaning() == Meaning::Quota);
                    let rest = if is_full { std::mem::take(&mut todo) } else { Vec::new() };
                    let answer = answer.map_err(|error| ProviderError::from(error).wrap(self.context(is_full)));
                    let answered = some.iter().chain(rest.into_iter().flatten());
                    answers.extend(answered.map(|change| (change.clone(), answer.clone())));
                }
            }
        }
    }

    fn context(&self, is_full: bool) -> String {
        let Self { router, .. } = self;
        match is_full {
            true => format!(
                "router {router} of [Route] router-id in cloud.conf has as many routes as Neutron allows it; raise the quota \
                 router_route of the project (before OpenStack 2026.2: max_routes in neutron.conf), 30 by default"
            ),
            false => router.clone(),
        }
    }

    /// All changes are of one kind. Adding a present route or removing a missing one succeeds.
    async fn send_atomic(&self, changes: &[Change]) -> Result<(), ApiError> {
        let is_added = changes.first().is_some_and(|change| change.is_added);
        let action = if is_added { "/add_extraroutes" } else { "/remove_extraroutes" };
        let routes: Vec<ExtraRoute> = changes.iter().map(|change| change.route.clone()).collect();
        self.client.update_router(&self.router, action, &routes, None).await
    }

    /// Writes the whole list, if it has not changed since it was read.
    async fn send_whole(&self, changes: &[Change]) -> Result<(), ApiError> {
        let _turn = self.turn.lock().await;
        let mut tries = 1;
        loop {
            let router = self.client.router(&self.router).await?;
            let Some(routes) = changed(&router.routes, changes) else { return Ok(()) };
            match self.client.update_router(&self.router, "", &routes, router.revision_number).await {
                Err(error) if error.status == Some(412) && tries < TRIES => tries += 1,
                answer => return answer,
            }
        }
    }
}

/// The list with these changes; `None` if nothing differs.
fn changed(routes: &[ExtraRoute], changes: &[Change]) -> Option<Vec<ExtraRoute>> {
    let same = |one: &ExtraRoute, other: &ExtraRoute| {
        parse_cidr(&one.destination) == parse_cidr(&other.destination)
            && parse_ip(&one.nexthop) == parse_ip(&other.nexthop)
    };
    let mut new = routes.to_vec();
    for change in changes {
        if !change.is_added {
            new.retain(|route| !same(route, &change.route));
        } else if !new.iter().any(|route| same(route, &change.route)) {
            new.push(change.route.clone());
        }
    }
    (new != routes).then_some(new)
}

#[async_trait]
impl Bulk for ExtraRoutes {
    type Item = Change;
    type Answer = Result<(), ProviderError>;
    type Error = ProviderError;

    async fn call(&self, changes: &[Change]) -> Result<BTreeMap<Change, Self::Answer>, ProviderError> {
        // Changes are sorted with removals first.
        let removals = changes.partition_point(|change| !change.is_added);
        let (removals, additions) = changes.split_at_checked(removals).unwrap_or((changes, &[]));
        let mut answers = BTreeMap::new();
        self.send_all(removals, &mut answers).await;
        self.send_all(additions, &mut answers).await;
        Ok(answers)
    }

    fn interrupted(&self, how: Interrupted) -> ProviderError {
        ApiError::interrupted(ROUTER_UPDATE, how).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, nexthop: &str) -> ExtraRoute {
        ExtraRoute { destination: destination.to_owned(), nexthop: nexthop.to_owned() }
    }

    #[test]
    fn the_whole_list_keeps_what_others_wrote_and_is_not_written_without_need() {
        let present =
            [route("10.1.1.0/24", "10.0.0.1"), route("192.168.0.0/16", "10.0.0.9"), route("FD00::/64", "fd00::1")];
        let change = |is_added, destination, nexthop| Change { is_added, route: route(destination, nexthop) };
        let changes = [
            change(false, "10.1.1.0/24", "10.0.0.1"),
            change(false, "10.1.9.0/24", "10.0.0.1"),
            change(true, "10.1.2.0/24", "10.0.0.2"),
            change(true, "fd00::/64", "fd00:0::1"),
        ];
        let new = changed(&present, &changes).unwrap();
        assert_eq!(new, [present[1].clone(), present[2].clone(), route("10.1.2.0/24", "10.0.0.2")]);
        assert_eq!(changed(&new, &changes), None);
    }
}
