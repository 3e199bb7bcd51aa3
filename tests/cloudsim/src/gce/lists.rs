//! Lists: filters, pages, order, and aggregated lists.

use super::filter::Filter;
use super::kinds::{self, Fields, Kind};
use super::places::{PATH, link, name_of};
use super::world::{World, set};
use super::{errors, verbs};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A page, and the token of the next one.
pub(super) struct Page<T> {
    pub(super) objects: Vec<(String, T)>,
    pub(super) next: Option<String>,
}

impl Page<&Row> {
    /// The objects as shown in the answer.
    fn shown(self, world: &World, kind: &Kind) -> Page<Fields> {
        let shown = self.objects.into_iter().map(|(key, row)| {
            let fields = kinds::shown(world, kind, &key, row);
            (key, fields)
        });
        Page { objects: shown.collect(), next: self.next }
    }
}

/// Whether an object matches a filter. The filter applies to the object as shown, which may have more fields than the
/// stored one.
fn passes(world: &World, kind: &Kind, filter: &Filter, key: &str, row: &Row) -> bool {
    match kind.rules.show {
        _ if filter.is_empty() => true,
        None => filter.passes(&row.fields),
        Some(_) => filter.passes(&kinds::shown(world, kind, key, row)),
    }
}

/// `GET …/{collection}`
pub(super) fn list(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, spot) = verbs::at(world, call)?;
    let filter = Filter::parse(call.get("filter").unwrap_or_default())?;
    let seen = world.store.seen_under(&spot.prefix(), world.now());
    let objects = seen.into_iter().filter(|(key, row)| passes(world, kind, &filter, key, row));
    let page = page(world, call, objects.map(|(key, row)| (key.to_owned(), row)).collect())?;
    Ok(reply(&format!("compute#{}List", kind.one), call, page.shown(world, kind)))
}

/// A page of objects as an answer.
pub(super) fn reply(kind: &str, call: &Call, page: Page<Fields>) -> Reply {
    let path = call.path.strip_prefix(PATH).unwrap_or_default();
    let items: Vec<Fields> = page.objects.into_iter().map(|(_, fields)| fields).collect();
    let count = items.len();
    let mut body = json!({"kind": kind, "id": path, "selfLink": link(path)});
    if count > 0 {
        set(&mut body, "items", json!(items));
    }
    if let Some(next) = page.next {
        set(&mut body, "nextPageToken", next);
    }
    Reply { items: u64::try_from(count).unwrap_or(u64::MAX), ..Reply::json(200, &body) }
}

/// The requested page of objects, by name.
pub(super) fn page<T>(world: &World, call: &Call, mut objects: Vec<(String, T)>) -> Result<Page<T>, Problem> {
    if let Some(other) = call.get("orderBy").filter(|order| !matches!(*order, "" | "name")) {
        return Err(errors::invalid("orderBy", other, "Unsupported order."));
    }
    let asked = call.get("maxResults").map(str::parse::<usize>);
    let most = match asked {
        None => world.options.page,
        Some(Ok(most @ 0..=500)) => {
            if most == 0 {
                world.options.page
            } else {
                most.min(world.options.page)
            }
        }
        Some(_) => {
            let text = "Values must be within the following range: [0, 500]";
            return Err(errors::invalid("maxResults", call.get("maxResults").unwrap_or_default(), text));
        }
    };
    if let Some(token) = call.get("pageToken").filter(|token| !token.is_empty()) {
        let unknown = || errors::invalid("pageToken", token, "The page token is invalid.");
        let last = untoken(token).ok_or_else(unknown)?;
        // The last object of the previous page may have been deleted, so the page begins after its name.
        let at = objects.iter().position(|(key, _)| *key == last);
        match at {
            Some(at) => drop(objects.drain(..=at)),
            None => objects.retain(|(key, _)| *key > last),
        }
    }
    let more = objects.len() > most;
    objects.truncate(most);
    let next = objects.last().filter(|_| more).map(|(key, _)| token(key));
    Ok(Page { objects, next })
}

fn token(key: &str) -> String {
    super::tokens::base64(key.as_bytes()).replace('+', "-").replace('/', "_")
}

fn untoken(token: &str) -> Option<String> {
    let key = super::tokens::unbase64(token).and_then(|bytes| String::from_utf8(bytes).ok())?;
    (self::token(&key) == token).then_some(key)
}

/// `GET …/aggregated/instances`: by zone; a zone without objects has a warning.
pub(super) fn aggregated(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let path = call.path.strip_prefix(PATH).unwrap_or_default();
    let kind = kinds::of_method(call.action).ok_or_else(|| errors::not_found(path))?;
    let project = verbs::known_project(world, call.id(0))?;
    let filter = Filter::parse(call.get("filter").unwrap_or_default())?;
    let mut objects: Vec<(String, &Row)> = Vec::new();
    let places = || world.options.regions.values().flatten().map(|zone| format!("zones/{zone}"));
    for place in places() {
        let prefix = format!("projects/{project}/{place}/{}/", kind.collection);
        let seen = world.store.seen_under(&prefix, world.now());
        let found = seen.into_iter().filter(|(key, row)| passes(world, kind, &filter, key, row));
        objects.extend(found.map(|(key, row)| (key.to_owned(), row)));
    }
    objects.sort_by(|(one, _), (other, _)| one.cmp(other));
    let page = page(world, call, objects)?.shown(world, kind);
    let count = page.objects.len();
    let mut by_place: BTreeMap<String, Vec<Fields>> = places().map(|place| (place, Vec::new())).collect();
    for (key, fields) in page.objects {
        let place = key.split('/').skip(2).take(2);
        by_place.entry(place.collect::<Vec<_>>().join("/")).or_default().push(fields);
    }
    let scoped = |(place, objects): (String, Vec<Fields>)| {
        let entry = if objects.is_empty() { nothing(&place) } else { json!({ kind.collection: objects }) };
        (place, entry)
    };
    let items: serde_json::Map<String, Value> = by_place.into_iter().map(scoped).collect();
    let mut body = json!({
        "kind": format!("compute#{}AggregatedList", kind.one), "id": path, "items": items, "selfLink": link(path),
    });
    if let Some(next) = page.next {
        set(&mut body, "nextPageToken", next);
    }
    Ok(Reply { items: u64::try_from(count).unwrap_or(u64::MAX), ..Reply::json(200, &body) })
}

fn nothing(place: &str) -> Value {
    json!({"warning": {
        "code": "NO_RESULTS_ON_PAGE", "message": format!("There are no results for scope '{place}' on this page."),
        "data": [{"key": "scope", "value": place}],
    }})
}

/// A paged list of items that are not stored objects, such as zones.
pub(super) fn of_values(world: &World, call: &Call, kind: &str, values: Vec<Fields>) -> Result<Reply, Problem> {
    let filter = Filter::parse(call.get("filter").unwrap_or_default())?;
    let named = values.into_iter().filter(|fields| filter.passes(fields));
    let objects = named.map(|fields| (name_of(verbs::text(&fields, "selfLink")).to_owned(), fields)).collect();
    let page = page(world, call, objects)?;
    Ok(reply(kind, call, page))
}
