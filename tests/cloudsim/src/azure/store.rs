//! All resources by key, the older states that reads still see, and which resource refers to which.

use super::ids::Id;
use super::kinds::Ref;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

/// A resource.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: Id,
    /// The type in lower case.
    pub kind: String,
    /// The fields as stored: without names, IDs and types, and without what is computed for answers. Fields that begin
    /// with `_` are internal.
    pub fields: Value,
}

#[derive(Debug)]
struct Past {
    /// The state that reads see; `None`: the resource did not exist.
    row: Option<Row>,
    until: Timestamp,
}

/// The resources of the cloud.
#[derive(Debug, Default)]
pub struct Store {
    rows: BTreeMap<String, Row>,
    past: BTreeMap<String, Past>,
    /// Until when lists do not show a resource.
    unlisted: BTreeMap<String, Timestamp>,
    /// By referenced resource: the referring resources, with the address that they have in it if it is a subnet.
    uses: BTreeMap<String, BTreeMap<String, (String, Option<IpAddr>)>>,
    /// The addresses in use by subnet.
    taken: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Store {
    /// The current state of a resource.
    pub fn get(&self, key: &str) -> Option<&Row> {
        self.rows.get(key)
    }

    /// The current state, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Row> {
        self.rows.get_mut(key)
    }

    /// All resources.
    pub fn all(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The resources of a type, in lower case, in all groups.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.values().filter(move |row| row.kind == kind)
    }

    /// The resource that reads see.
    pub(super) fn seen(&self, key: &str, now: Timestamp) -> Option<&Row> {
        match self.past.get(key).filter(|past| past.until > now) {
            Some(past) => past.row.as_ref(),
            None => self.get(key),
        }
    }

    /// The resources directly in a collection that reads see, by key; the prefix ends with a slash.
    pub(super) fn seen_under(&self, prefix: &str, now: Timestamp) -> Vec<&Row> {
        let range = (Bound::Included(prefix), Bound::Unbounded);
        let direct = |key: &str| key.strip_prefix(prefix).is_some_and(|rest| !rest.contains('/'));
        let rows = self.rows.range::<str, _>(range).take_while(|(key, _)| key.starts_with(prefix));
        let mut found: BTreeMap<&str, &Row> =
            rows.filter(|(key, _)| direct(key)).map(|(key, row)| (key.as_str(), row)).collect();
        let late = self.past.range::<str, _>(range).take_while(|(key, _)| key.starts_with(prefix));
        for (key, past) in late.filter(|(key, past)| past.until > now && direct(key)) {
            match &past.row {
                Some(row) => drop(found.insert(key, row)),
                None => drop(found.remove(key.as_str())),
            }
        }
        found.into_iter().filter(|(key, _)| self.is_listed(key, now)).map(|(_, row)| row).collect()
    }

    fn is_listed(&self, key: &str, now: Timestamp) -> bool {
        self.unlisted.get(key).is_none_or(|until| *until <= now)
    }

    /// The resources of a type in a subscription that reads see.
    pub(super) fn seen_of_kind(&self, subscription: &str, kind: &str, now: Timestamp) -> Vec<&Row> {
        let here = |row: &Row| row.kind == kind && row.id.subscription.eq_ignore_ascii_case(subscription);
        let gone = self.past.iter().filter(|(key, past)| past.until > now && !self.rows.contains_key(*key));
        let gone = gone.filter_map(|(_, past)| past.row.as_ref());
        let rows = self.rows.keys().filter(|key| self.is_listed(key, now)).filter_map(|key| self.seen(key, now));
        rows.chain(gone).filter(|row| here(row)).collect()
    }

    /// Creates or replaces a resource; reads see the old state until `shown`.
    pub(super) fn put(&mut self, row: Row, now: Timestamp, shown: Timestamp) {
        let key = row.id.key();
        let old = self.rows.insert(key.clone(), row);
        self.keep(key, old, now, shown);
    }

    /// Lets lists not show a resource until `shown`.
    pub(super) fn hide(&mut self, key: &str, shown: Timestamp) {
        self.unlisted.insert(key.to_owned(), shown);
    }

    /// Removes a resource; reads see it until `shown`.
    pub(super) fn remove(&mut self, key: &str, now: Timestamp, shown: Timestamp) -> Option<Row> {
        let old = self.rows.remove(key)?;
        self.keep(key.to_owned(), Some(old.clone()), now, shown);
        Some(old)
    }

    fn keep(&mut self, key: String, old: Option<Row>, now: Timestamp, shown: Timestamp) {
        if shown <= now {
            self.past.remove(&key);
            return;
        }
        match self.past.get_mut(&key) {
            Some(past) if past.until > now => past.until = past.until.max(shown),
            _ => drop(self.past.insert(key, Past { row: old, until: shown })),
        }
    }

    /// Drops old states that reads no longer see.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if !self.past.is_empty() {
            self.past.retain(|_, past| past.until > now);
        }
    }

    /// Adds a reference.
    pub(super) fn refer(&mut self, reference: &Ref) {
        let Ref { target, user, address } = reference;
        self.uses.entry(target.clone()).or_default().insert(user.to_lowercase(), (user.clone(), *address));
        if let Some(address) = address {
            self.taken.entry(target.clone()).or_default().insert(*address);
        }
    }

    /// Removes a reference.
    pub(super) fn release(&mut self, reference: &Ref) {
        if let Some((taken, address)) = self.taken.get_mut(&reference.target).zip(reference.address) {
            taken.remove(&address);
        }
        let Some(users) = self.uses.get_mut(&reference.target) else { return };
        let user = reference.user.to_lowercase();
        // The user may have another address by now.
        if users.get(&user).is_some_and(|(_, address)| *address == reference.address) {
            users.remove(&user);
        }
    }

    /// The addresses in use in a subnet.
    pub(super) fn taken(&self, subnet: &str) -> Option<&BTreeSet<IpAddr>> {
        self.taken.get(subnet)
    }

    /// The IDs of the resources that refer to one, by key, each with its address.
    pub(super) fn users<'a>(&'a self, key: &str) -> impl Iterator<Item = (&'a str, &'a str, Option<IpAddr>)> + use<'a> {
        let users = self.uses.get(key).into_iter().flatten();
        users.map(|(key, (id, address))| (key.as_str(), id.as_str(), *address))
    }
}
