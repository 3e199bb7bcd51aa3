//! Paths of objects below the base of the API, which are also their keys, and references to objects.

use super::errors;
use super::world::World;
use crate::core::rest::Problem;
use std::net::IpAddr;

/// The prefix of links, regardless of the address of the API.
pub(super) const BASE: &str = "https://www.googleapis.com/compute/v1/";

/// The path of the API.
pub(super) const PATH: &str = "/compute/v1/";

/// The scope of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Global,
    Region,
    Zone,
}

/// The path of an object, or of a collection if the name is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) project: String,
    pub(super) scope: Scope,
    /// The region or zone; empty for global objects.
    pub(super) place: String,
    pub(super) collection: String,
    pub(super) name: String,
}

impl Spot {
    /// Parses `projects/p/zones/z/instances/n`, with or without a name; ignores the rest.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let project = parts.next().filter(|first| *first == "projects").and_then(|_| parts.next())?;
        let (scope, place) = match parts.next()? {
            "global" => (Scope::Global, ""),
            "regions" => (Scope::Region, parts.next()?),
            "zones" => (Scope::Zone, parts.next()?),
            _ => return None,
        };
        let collection = parts.next()?;
        let name = parts.next().unwrap_or_default();
        let full = [project, collection].iter().all(|part| !part.is_empty());
        (full && (scope == Scope::Global || !place.is_empty())).then(|| Spot {
            project: project.to_owned(),
            scope,
            place: place.to_owned(),
            collection: collection.to_owned(),
            name: name.to_owned(),
        })
    }

    /// `projects/p/zones/z`.
    pub(super) fn location(&self) -> String {
        let Spot { project, place, .. } = self;
        match self.scope {
            Scope::Global => format!("projects/{project}/global"),
            Scope::Region => format!("projects/{project}/regions/{place}"),
            Scope::Zone => format!("projects/{project}/zones/{place}"),
        }
    }

    /// The prefix of the keys of all objects of the collection.
    pub(super) fn prefix(&self) -> String {
        format!("{}/{}/", self.location(), self.collection)
    }

    /// The key of the object.
    pub(super) fn key(&self) -> String {
        format!("{}{}", self.prefix(), self.name)
    }

    /// The region of the object.
    pub(super) fn region(&self) -> &str {
        if self.scope == Scope::Zone { region_of(&self.place) } else { &self.place }
    }
}

/// The region of a zone.
pub(super) fn region_of(zone: &str) -> &str {
    zone.rsplit_once('-').map_or("", |(region, _)| region)
}

/// The name of an object, from its key or its link.
pub(super) fn name_of(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// The link of an object.
pub(super) fn link(key: &str) -> String {
    format!("{BASE}{key}")
}

/// The key in a link that this simulation created.
pub(super) fn unlink(link: &str) -> &str {
    link.strip_prefix(BASE).unwrap_or(link)
}

/// Parses an address.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

impl World {
    /// The key for a reference in a body: a full URL with any host, or a partial one, relative to the path of the body.
    pub(super) fn key_of(&self, text: &str, from: &Spot, field: &str, collection: &str) -> Result<String, Problem> {
        let malformed = || errors::invalid(field, text, "The URL is malformed.");
        let path = match text.find("/projects/") {
            Some(at) => text.get(at + 1..).unwrap_or_default().to_owned(),
            None if text.starts_with("projects/") => text.to_owned(),
            None => format!("projects/{}/{}", from.project, text.trim_start_matches('/')),
        };
        let mut spot = Spot::parse(&path).ok_or_else(malformed)?;
        if spot.name.is_empty() || spot.key().len() != path.len() {
            return Err(malformed());
        }
        if spot.collection != collection {
            return Err(errors::invalid(field, text, &format!("The URL is not of a {collection} resource.")));
        }
        if let Some(project) = self.project_id(&spot.project) {
            spot.project = project;
        }
        Ok(spot.key())
    }

    /// The key of a referenced object that exists and is ready.
    pub(super) fn found(&self, text: &str, from: &Spot, field: &str, collection: &str) -> Result<String, Problem> {
        let key = self.key_of(text, from, field, collection)?;
        self.ready(&key)?;
        Ok(key)
    }

    /// Checks that an object exists and is neither being created nor deleted.
    pub(super) fn ready(&self, key: &str) -> Result<(), Problem> {
        if self.store.busy(key, self.now()) {
            return Err(errors::not_ready(key));
        }
        self.store.get(key).map(|_| ()).ok_or_else(|| errors::not_found(key))
    }

    /// A user of an object, including users that an unfinished operation is deleting: an object of `collection` whose
    /// `field` references the key.
    pub(super) fn used_by(&self, key: &str, collection: &str, field: &str) -> Option<String> {
        let wanted = link(key);
        self.store
            .alive(collection, self.now())
            .find(|(_, row)| row.text(field) == wanted || row.texts(field).any(|text| text == wanted))
            .map(|(user, _)| user.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_and_written() {
        for key in
            ["projects/p/zones/z-a/instances/n", "projects/p/global/routes/r", "projects/p/regions/r/addresses/a"]
        {
            assert_eq!(Spot::parse(key).unwrap().key(), key);
        }
        let spot = Spot::parse("projects/p/zones/us-central1-a/instances").unwrap();
        assert_eq!((spot.name.as_str(), spot.region()), ("", "us-central1"));
        assert_eq!(Spot::parse("projects/p"), None);
        assert_eq!(Spot::parse("projects/p/aggregated/instances"), None);
    }
}
