//! Lists of resources: filters, tags, requested fields, and pages.

use super::World;
use crate::core::rest::{Call, Problem, Reply, encoded};
use crate::core::rows::{Page, Row, View, page};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Adds fields to a resource that are not stored in it.
pub(super) type Show = fn(&World, &Row) -> Map<String, Value>;

/// The list operation of a kind of resource.
pub(super) struct Listing {
    pub(super) kind: &'static str,
    /// The name of the list.
    pub(super) name: &'static str,
    /// The filters.
    pub(super) filters: &'static [&'static str],
    /// Shows a resource with more than the stored fields, if necessary.
    pub(super) shown: Option<Show>,
}

/// The parameters of a query other than filters by fields.
const CONTROLS: &[&str] =
    &["limit", "marker", "fields", "sort_key", "sort_dir", "tags", "tags-any", "not-tags", "not-tags-any"];

impl Listing {
    /// The first parameter that is neither a filter nor a control.
    pub(super) fn unknown<'a>(&self, call: &'a Call) -> Option<&'a str> {
        let known = |name: &str| CONTROLS.contains(&name) || self.filters.contains(&name);
        call.query.iter().map(|(name, _)| name.as_str()).find(|name| !known(name))
    }

    /// The rows that the caller can see and the query selects, in the order of creation or of a requested field.
    pub(super) fn rows<'a>(&self, world: &'a World, call: &Call, among: impl Iterator<Item = &'a Row>) -> Vec<&'a Row> {
        let mut names: Vec<&str> = call.query.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !CONTROLS.contains(name));
        let names: Vec<(&str, String)> = names.into_iter().map(|name| (name, format!("_{name}"))).collect();
        let fits = |row: &Row| {
            let by_fields = names.iter().all(|(name, hidden)| {
                let field = if row.fields.contains_key(*name) { name } else { hidden.as_str() };
                row.matches(field, call.all(name))
            });
            by_fields && has_tags(row, call)
        };
        // The permission to see a row is checked last: most lists select one object.
        let mut rows: Vec<&Row> = among.filter(|row| fits(row) && world.sees(self.kind, row)).collect();
        rows.sort_by_key(|row| row.seq);
        if let Some(key) = call.get("sort_key") {
            rows.sort_by(|one, other| one.text(key).cmp(other.text(key)));
            if call.get("sort_dir") == Some("desc") {
                rows.reverse();
            }
        }
        rows
    }

    /// A page of rows as an answer.
    pub(super) fn reply(&self, world: &World, call: &Call, rows: &[&Row], links: Option<Value>) -> Reply {
        let only: Vec<&str> = call.all("fields").collect();
        let shown: Vec<Cow<'_, Map<String, Value>>> = match self.shown {
            None => rows.iter().map(|row| Cow::Borrowed(&row.fields)).collect(),
            Some(show) => rows.iter().map(|row| Cow::Owned(show(world, row))).collect(),
        };
        let views = shown.iter().map(|fields| View { fields, only: &only }).collect();
        let reply = Reply::json(200, &Page { name: self.name, rows: views, links });
        Reply { items: u64::try_from(rows.len()).unwrap_or(u64::MAX), ..reply }
    }

    /// One resource under its name.
    pub(super) fn one(&self, world: &World, status: u16, name: &str, row: &Row) -> Reply {
        let fields = self.shown.map_or(Cow::Borrowed(&row.fields), |show| Cow::Owned(show(world, row)));
        Reply::json(status, &std::collections::BTreeMap::from([(name, View { fields: &fields, only: &[] })]))
    }
}

/// Whether a row has the tags of a query.
fn has_tags(row: &Row, call: &Call) -> bool {
    let tags =
        |name: &str| call.get(name).map(|text| text.split(',').map(|tag| row.texts("tags").any(|has| has == tag)));
    tags("tags").is_none_or(|mut has| has.all(|has| has))
        && tags("tags-any").is_none_or(|mut has| has.any(|has| has))
        && tags("not-tags").is_none_or(|mut has| !has.all(|has| has))
        && tags("not-tags-any").is_none_or(|mut has| !has.any(|has| has))
}

/// A page, and whether its length is the limit: then it has a link to the next page.
pub(super) fn paged<'a>(
    rows: Vec<&'a Row>,
    call: &Call,
    limit: Option<usize>,
) -> Result<(Vec<&'a Row>, bool), Problem> {
    let marker = call.get("marker").filter(|marker| !marker.is_empty());
    let rows = page(rows, marker, limit).ok_or_else(|| Problem::new(400, "marker", marker.unwrap_or_default()))?;
    let full = limit.is_some_and(|limit| limit > 0 && rows.len() >= limit);
    Ok((rows, full))
}

/// The URL of another page: the parameters of this one selected by `keep`, and a marker.
pub(super) fn other_page(url: &str, call: &Call, keep: impl Fn(&str) -> bool, marker: &str) -> String {
    let mut link = format!("{url}{}?", call.path);
    for (name, value) in call.query.iter().filter(|(name, _)| name != "marker" && name != "page_reverse" && keep(name))
    {
        // Writing to a string can't fail.
        let _ = write!(link, "{}={}&", encoded(name), encoded(value));
    }
    let _ = write!(link, "marker={marker}");
    link
}

/// A link for `…_links`.
pub(super) fn link(rel: &str, href: &str) -> Value {
    json!({"rel": rel, "href": href})
}
