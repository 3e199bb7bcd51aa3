//! Writes of the route table: the changes of a moment are one write.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_kit::call::Meaning;
use ccm_kit::{Bulk, Cluster, Interrupted};
use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::{NodeReader, NodeRef, ProviderError, address};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{APPLIANCE, SEPARATOR, Settings, Wanted, route_name};
use crate::client::id::same;
use crate::client::metrics::Place;
use crate::client::operation::{ROUTES_GET, ROUTES_PUT};
use crate::client::view::{list, text};
use crate::client::{ApiError, Client, Write};
use crate::loadbalancer::tags;

/// A change of the table. Removals sort first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// By name.
    Remove(String),
    /// A route, which may take the place of another one.
    Add { old: Option<String>, new: Wanted },
}

/// The route table, with its limit once Azure has named it.
pub(super) struct Writer {
    settings: Settings,
    client: Client,
    cluster: Cluster,
    limit: Mutex<Option<usize>>,
    /// One write at a time: a later one would cancel an earlier one.
    turn: tokio::sync::Mutex<()>,
}

type Answers = BTreeMap<Change, Result<(), ProviderError>>;

impl Writer {
    pub(super) fn new(settings: Settings, client: Client, cluster: Cluster) -> Self {
        Self { settings, client, cluster, limit: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn new_table(&self) -> Value {
        json!({"location": self.settings.location, "properties": {"routes": []}})
    }

    /// Writes the changes that fit into the table.
    async fn write(&self, changes: &[Change], answers: &mut Answers) -> Result<(), ApiError> {
        let found = self.client.get(ROUTES_GET, &self.settings.table).await?;
        let is_new = found.is_none();
        let mut table = found.unwrap_or_else(|| self.new_table());
        let before = list(&table, "/properties/routes").to_vec();
        let limit = *self.limit.lock();
        let (mut routes, refused) = changed(&before, changes, limit);
        for (change, why) in refused {
            let error = match why {
                Refusal::Full => self.full(limit.unwrap_or_default()),
                Refusal::Taken(message) => ProviderError::unknown(message),
            };
            answers.insert(change.clone(), Err(error));
        }
        if routes == before && !is_new {
            return Ok(());
        }
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        name_fully(&mut routes, &nodes);
        tags::set_configured(&mut table, &self.settings.tags, &self.settings.system_tags);
        if let Some(properties) = table.pointer_mut("/properties").and_then(Value::as_object_mut) {
            properties.insert("routes".to_owned(), Value::Array(routes));
        }
        let write = Write::put(ROUTES_PUT, self.settings.table.clone(), table);
        let written = self.client.finish(&write, WRITE_DEADLINE).await;
        match written {
            Err(error) if is_full(&error) => {
                *self.limit.lock() = Some(number_in(&error.message).unwrap_or(before.len()));
                Err(error)
            }
            written => written,
        }
    }

    fn full(&self, limit: usize) -> ProviderError {
        let table = self.settings.table.name();
        ProviderError::unknown(format!(
            "route table {table} takes no more than {limit} routes: ask Azure for a higher limit, remove routes that are not \
             needed, or use a network without routes per node; after that, restart this program"
        ))
    }
}

fn is_full(error: &ApiError) -> bool {
    error.meaning() == Meaning::Quota || error.code.contains("Limit")
}

/// The first number of a message that is a word of its own: the ID of the table may have digits.
fn number_in(message: &str) -> Option<usize> {
    let words = message.split_whitespace().map(|word| word.trim_matches(|c: char| c.is_ascii_punctuation()));
    words.filter_map(|word| word.parse().ok()).find(|number| *number > 0)
}

fn route(new: &Wanted) -> Value {
    let properties = json!({
        "addressPrefix": new.prefix, "nextHopType": APPLIANCE, "nextHopIpAddress": new.hop.to_string(),
    });
    json!({"name": new.name, "properties": properties})
}

fn is_same(route: &Value, new: &Wanted) -> bool {
    same(text(route, "/name"), &new.name)
        && text(route, "/properties/addressPrefix") == new.prefix
        && text(route, "/properties/nextHopIpAddress").parse() == Ok(new.hop)
}

/// Why a route is not added.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Full,
    /// Another route has the range, of which Azure allows one.
    Taken(String),
}

/// The routes with these changes, removals first, and the additions that are refused: the others must not fail with them.
fn changed<'a>(
    before: &[Value],
    changes: &'a [Change],
    limit: Option<usize>,
) -> (Vec<Value>, Vec<(&'a Change, Refusal)>) {
    let mut routes = before.to_vec();
    let mut refused = Vec::new();
    let mut sorted: Vec<&Change> = changes.iter().collect();
    sorted.sort();
    for change in sorted {
        match change {
            Change::Remove(name) => routes.retain(|route| !same(text(route, "/name"), name)),
            Change::Add { new, .. } if routes.iter().any(|route| is_same(route, new)) => {}
            Change::Add { old, new } => {
                let is_old = |route: &&Value| {
                    let name = text(route, "/name");
                    same(name, &new.name) || old.as_ref().is_some_and(|old| same(name, old))
                };
                let range = address::parse_cidr(&new.prefix);
                let is_range = |route: &&Value| {
                    let other = text(route, "/properties/addressPrefix");
                    same(other, &new.prefix) || range.is_some() && address::parse_cidr(other) == range
                };
                if let Some(other) = routes.iter().filter(is_range).find(|route| !is_old(route)) {
                    let (name, prefix, other) = (&new.name, &new.prefix, text(other, "/name"));
                    let message = format!(
                        "no route {name} for {prefix}: route {other} has this range, and Azure allows one; no two nodes may \
                         have the same pod range"
                    );
                    refused.push((change, Refusal::Taken(message)));
                    continue;
                }
                let replaces = routes.iter().any(|route| is_old(&route));
                if !replaces && limit.is_some_and(|limit| routes.len() >= limit) {
                    refused.push((change, Refusal::Full));
                    continue;
                }
                routes.retain(|route| !is_old(&route));
                routes.push(route(new));
            }
        }
    }
    (routes, refused)
}

/// Old programs named a route by its node alone. With its range in the name it is known when the node is gone.
fn name_fully(routes: &mut [Value], nodes: &[NodeRef]) {
    let full = |route: &Value| {
        let node = nodes.iter().find(|node| same(&node.name, text(route, "/name")))?;
        let range = address::parse_cidr(text(route, "/properties/addressPrefix"))?;
        let is_own = node.pod_cidrs.iter().any(|cidr| address::parse_cidr(cidr) == Some(range));
        let is_ours = is_own && same(text(route, "/properties/nextHopType"), APPLIANCE);
        is_ours.then(|| route_name(&node.name, &range.to_string()))
    };
    for index in 0..routes.len() {
        let plain = routes.get(index).filter(|route| !text(route, "/name").contains(SEPARATOR));
        let Some(name) = plain.and_then(full) else { continue };
        if routes.iter().any(|route| same(text(route, "/name"), &name)) {
            continue;
        }
        if let Some(fields) = routes.get_mut(index).and_then(Value::as_object_mut) {
            fields.retain(|key, _| key == "properties");
            fields.insert("name".to_owned(), Value::String(name));
        }
    }
}

#[async_trait]
impl Bulk for Writer {
    type Item = Change;
    type Answer = Result<(), ProviderError>;
    type Error = ProviderError;

    async fn call(&self, changes: &[Change]) -> Result<Answers, ProviderError> {
        let _turn = self.turn.lock().await;
        let began = tokio::time::Instant::now();
        let mut answers = Answers::new();
        let mut written = self.write(changes, &mut answers).await;
        // A table that is full takes the routes that fit.
        if written.as_ref().is_err_and(is_full) {
            written = self.write(changes, &mut answers).await;
        }
        let table = &self.settings.table;
        let place = Place { group: table.group(), subscription: table.subscription() };
        let request = match changes.iter().any(|change| matches!(change, Change::Add { .. })) {
            true => "routes_create_route",
            false => "routes_delete_route",
        };
        self.client.metrics().reconciled(request, place, written.is_ok(), began.elapsed());
        let written = written.map_err(ProviderError::from);
        for change in changes {
            answers.entry(change.clone()).or_insert_with(|| written.clone());
        }
        Ok(answers)
    }

    fn interrupted(&self, how: Interrupted) -> ProviderError {
        ApiError::interrupted(ROUTES_PUT, how).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, prefix: &str, hop: &str) -> Wanted {
        Wanted { name: name.to_owned(), prefix: prefix.to_owned(), hop: hop.parse().unwrap() }
    }

    fn add(new: &Wanted) -> Change {
        Change::Add { old: None, new: new.clone() }
    }

    fn names(routes: &[Value]) -> Vec<&str> {
        routes.iter().map(|route| text(route, "/name")).collect()
    }

    #[test]
    fn routes_of_users_stay_and_only_the_named_one_goes() {
        let user = json!({"name": "mine", "id": "x", "properties": {"nextHopType": "Internet", "unknown": 1}});
        let one = wanted("node1____10240024", "10.24.0.0/24", "10.0.0.1");
        let ten = wanted("node10____10241024", "10.24.1.0/24", "10.0.0.10");
        let before = [user.clone(), route(&one), route(&ten)];
        let changes = [Change::Remove("NODE1____10240024".to_owned())];
        let (after, surplus) = changed(&before, &changes, None);
        assert_eq!((after, surplus.len()), (vec![user, route(&ten)], 0));
    }

    #[test]
    fn a_route_that_is_there_is_no_change_and_another_hop_replaces_it() {
        let one = wanted("node1____10240024", "10.24.0.0/24", "10.0.0.1");
        let moved = wanted("node1____10240024", "10.24.0.0/24", "10.0.0.7");
        let before = [route(&one)];
        assert_eq!(changed(&before, &[add(&one)], Some(1)), (before.to_vec(), vec![]));
        assert_eq!(changed(&before, &[add(&moved)], Some(1)), (vec![route(&moved)], vec![]));
        let named = Change::Add { old: Some("NODE1".to_owned()), new: one.clone() };
        assert_eq!(changed(&[route(&wanted("node1", "10.24.0.0/24", "10.0.0.9"))], &[named], None).0, [route(&one)]);
    }

    #[test]
    fn a_range_has_one_route_and_the_first_name_wins() {
        let (a, b) = (wanted("a", "10.24.7.0/24", "10.0.0.1"), wanted("b", "10.24.7.0/24", "10.0.0.2"));
        let (c, user) = (wanted("c", "10.24.8.0/24", "10.0.0.3"), wanted("mine", "10.24.9.0/24", "10.9.0.1"));
        let d = wanted("d", "10.24.9.0/24", "10.0.0.4");
        let changes = [add(&b), add(&d), add(&c), add(&a)];
        let (after, refused) = changed(&[route(&user)], &changes, None);
        assert_eq!(names(&after), ["mine", "a", "c"]);
        let refused: Vec<&Change> = refused.into_iter().map(|(change, _)| change).collect();
        assert_eq!(refused, [&add(&b), &add(&d)]);
        // Users spell ranges in other ways.
        let v6 = wanted("e", "fd00:10:0:1::/64", "fd00::1");
        for (theirs, ours) in [("10.24.9.7/24", &d), ("FD00:10:0:1:0::/64", &v6)] {
            let other = route(&wanted("mine", theirs, "10.9.0.1"));
            assert_eq!(names(&changed(&[other], &[add(ours)], None).0), ["mine"], "{theirs}");
        }
        let freed = [Change::Remove("mine".to_owned()), add(&d)];
        assert_eq!(names(&changed(&[route(&user)], &freed, None).0), ["d"]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_removals_make_room() {
        let new: Vec<Wanted> =
            (0..4).map(|n| wanted(&format!("n{n}"), &format!("10.24.{n}.0/24"), "10.0.0.1")).collect();
        let before = [route(&new[0])];
        let changes: Vec<Change> = new[1..].iter().map(add).chain([Change::Remove("n0".to_owned())]).collect();
        let (after, surplus) = changed(&before, &changes, Some(2));
        assert_eq!((names(&after), surplus), (vec!["n1", "n2"], vec![(&add(&new[3]), Refusal::Full)]));
        assert_eq!(number_in("A route table cannot have more than 400 routes."), Some(400));
        let table = "/subscriptions/11111111-2222/resourceGroups/rg1/providers/Microsoft.Network/routeTables/rt-1";
        assert_eq!(number_in(&format!("Route table {table} cannot have more than 400 routes.")), Some(400));
        assert_eq!(number_in(&format!("Route table {table} is full.")), None);
        assert_eq!(number_in("too many"), None);
    }
}
