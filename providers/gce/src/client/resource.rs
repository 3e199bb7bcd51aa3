//! The location of objects in the API: collections, scopes, and URLs by their parts.
//!
//! The API has many URLs for one object: with other hosts, without the project, or beginning with the scope. URLs are
//! compared by their parts only, never as strings.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The scope of resources outside any region or zone.
const GLOBAL: &str = "global";

/// A kind of object, named as in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Collection {
    Addresses,
    BackendServices,
    Disks,
    Firewalls,
    ForwardingRules,
    HealthChecks,
    HttpHealthChecks,
    InstanceGroups,
    Instances,
    Networks,
    Operations,
    Projects,
    Routes,
    Subnetworks,
    TargetPools,
    Zones,
}

impl Collection {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::BackendServices => "backendServices",
            Self::Disks => "disks",
            Self::Firewalls => "firewalls",
            Self::ForwardingRules => "forwardingRules",
            Self::HealthChecks => "healthChecks",
            Self::HttpHealthChecks => "httpHealthChecks",
            Self::InstanceGroups => "instanceGroups",
            Self::Instances => "instances",
            Self::Networks => "networks",
            Self::Operations => "operations",
            Self::Projects => "projects",
            Self::Routes => "routes",
            Self::Subnetworks => "subnetworks",
            Self::TargetPools => "targetPools",
            Self::Zones => "zones",
        }
    }

    /// Whether its objects are in the project of the network, which on a shared VPC differs from that of the cluster.
    pub(crate) const fn is_of_network(self) -> bool {
        matches!(self, Self::Firewalls | Self::Networks | Self::Routes | Self::Subnetworks)
    }
}

/// The part of a project that an object is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    /// The project itself: zones, and lists over all scopes.
    Project,
    Global,
    Region(Arc<str>),
    Zone(Arc<str>),
}

impl Scope {
    pub(crate) fn region(name: &str) -> Self {
        Self::Region(name.into())
    }

    pub(crate) fn zone(name: &str) -> Self {
        Self::Zone(name.into())
    }

    /// The name of the zone, if the scope is one.
    pub(crate) fn zone_name(&self) -> Option<&str> {
        match self {
            Self::Zone(zone) => Some(zone),
            _ => None,
        }
    }
}

/// The middle of a path, ending with a slash unless it is empty.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project => Ok(()),
            Self::Global => write!(f, "{GLOBAL}/"),
            Self::Region(name) => write!(f, "regions/{name}/"),
            Self::Zone(name) => write!(f, "zones/{name}/"),
        }
    }
}

/// The ID of an object: its URL without the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceId {
    /// `None` in a partial URL. An ID or a number.
    pub(crate) project: Option<String>,
    pub(crate) scope: Scope,
    /// As in URLs: `subnetworks`.
    pub(crate) collection: String,
    pub(crate) name: String,
}

impl ResourceId {
    /// Parses a URL, a path that begins with `projects/`, or one that begins with the scope. `None` for anything else.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let parts: Vec<&str> = url.trim_end_matches('/').split('/').collect();
        let (project, rest) = match parts.iter().position(|part| *part == "projects") {
            Some(at) => (Some(*parts.get(at + 1)?), parts.get(at + 2..)?),
            None => (None, &*parts),
        };
        let (scope, collection, name) = match rest {
            [GLOBAL, collection, name] => (Scope::Global, *collection, *name),
            ["regions", region, collection, name] => (Scope::region(region), *collection, *name),
            ["zones", zone, collection, name] => (Scope::zone(zone), *collection, *name),
            [collection @ ("zones" | "regions"), name] => (Scope::Project, *collection, *name),
            _ => return None,
        };
        let project = project.map(str::to_owned);
        let is_whole = !collection.is_empty() && !name.is_empty() && project.as_deref() != Some("");
        is_whole.then(|| Self { project, scope, collection: collection.to_owned(), name: name.to_owned() })
    }

    /// Whether both may be the same object: a missing part matches any, and a project number matches any ID.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let projects = match (self.project.as_deref(), other.project.as_deref()) {
            (Some(a), Some(b)) => a == b || is_number(a) != is_number(b),
            _ => true,
        };
        projects && self.scope == other.scope && self.collection == other.collection && self.name == other.name
    }
}

/// The path relative to the base of the API.
impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(project) = &self.project {
            write!(f, "projects/{project}/")?;
        }
        write!(f, "{}{}/{}", self.scope, self.collection, self.name)
    }
}

/// Whether two URLs mean the same object. Strings that are not URLs are the same only if they are equal.
pub(crate) fn same_url(a: &str, b: &str) -> bool {
    a == b
        || match (ResourceId::parse(a), ResourceId::parse(b)) {
            (Some(a), Some(b)) => a.is_same(&b),
            _ => false,
        }
}

/// The last part of a URL: the name.
pub(crate) fn last_part(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// Whether a project is given by its number.
pub(crate) fn is_number(project: &str) -> bool {
    !project.is_empty() && project.parse::<u64>().is_ok()
}

/// The region of a zone: `us-central1` for `us-central1-b`.
pub(crate) fn region_of(zone: &str) -> Option<&str> {
    zone.rsplit_once('-').map(|(region, _)| region).filter(|region| !region.is_empty())
}

/// The projects, and the bases of links to their objects.
///
/// There are two bases, as in upstream: links to objects in the project of the cluster have the base of the API, links
/// to networks and subnetworks `www.googleapis.com` unless an endpoint is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Links {
    /// The base of calls and of links, ending with a slash: `https://compute.googleapis.com/compute/v1/`.
    pub(crate) base: String,
    /// The base of links to networks and subnetworks.
    pub(crate) network_base: String,
    /// The project of the cluster.
    pub(crate) project: String,
    /// The project of the network.
    pub(crate) network_project: String,
}

impl Links {
    /// The project of the objects of a collection.
    pub(crate) fn project_of(&self, collection: Collection) -> &str {
        if collection.is_of_network() { &self.network_project } else { &self.project }
    }

    /// Whether the network belongs to another project: a shared VPC.
    pub(crate) fn is_shared_vpc(&self) -> bool {
        self.project != self.network_project
    }

    /// The URL of an object.
    pub(crate) fn of(&self, collection: Collection, scope: &Scope, name: &str) -> String {
        let base = match collection {
            Collection::Networks | Collection::Subnetworks => &self.network_base,
            _ => &self.base,
        };
        format!("{base}projects/{}/{scope}{}/{name}", self.project_of(collection), collection.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_by_their_parts() {
        let full = "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1/subnetworks/s";
        for same in [
            "https://compute.googleapis.com/compute/v1/projects/p/regions/us-central1/subnetworks/s",
            "http://127.0.0.1:1/compute/v1/projects/p/regions/us-central1/subnetworks/s/",
            "projects/p/regions/us-central1/subnetworks/s",
            "regions/us-central1/subnetworks/s",
            "projects/1234/regions/us-central1/subnetworks/s",
        ] {
            assert!(same_url(full, same), "{same}");
        }
        for other in [
            "projects/q/regions/us-central1/subnetworks/s",
            "projects/p/regions/us-east1/subnetworks/s",
            "projects/p/regions/us-central1/subnetworks/t",
            "projects/p/regions/us-central1/networks/s",
            "projects/p/global/subnetworks/s",
            "s",
            "",
        ] {
            assert!(!same_url(full, other), "{other}");
        }
        assert!(same_url("s", "s"));
    }

    #[test]
    fn ids_are_read_in_all_spellings() {
        let parse = |url: &str| ResourceId::parse(url).map(|id| id.to_string());
        for (url, expected) in [
            ("https://x/compute/v1/projects/p/global/networks/n", Some("projects/p/global/networks/n")),
            ("projects/example.com:p/zones/z/instances/i", Some("projects/example.com:p/zones/z/instances/i")),
            ("zones/z/instances/i", Some("zones/z/instances/i")),
            ("global/networks/n", Some("global/networks/n")),
            ("https://x/compute/v1/projects/p/zones/us-central1-b", Some("projects/p/zones/us-central1-b")),
            ("projects/p", None),
            ("projects//global/networks/n", None),
            ("projects/p/global/networks/", None),
            ("n", None),
            ("", None),
        ] {
            assert_eq!(parse(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn the_region_of_a_zone_is_its_front() {
        assert_eq!(region_of("us-central1-b"), Some("us-central1"));
        assert_eq!((region_of("zone"), region_of("-b")), (None, None));
    }

    #[test]
    fn links_have_the_project_and_the_base_of_their_kind() {
        let links = Links {
            base: "https://compute.googleapis.com/compute/v1/".to_owned(),
            network_base: "https://www.googleapis.com/compute/v1/".to_owned(),
            project: "p".to_owned(),
            network_project: "host".to_owned(),
        };
        let region = Scope::region("r");
        assert_eq!(
            links.of(Collection::TargetPools, &region, "t"),
            "https://compute.googleapis.com/compute/v1/projects/p/regions/r/targetPools/t"
        );
        assert_eq!(
            links.of(Collection::Subnetworks, &region, "s"),
            "https://www.googleapis.com/compute/v1/projects/host/regions/r/subnetworks/s"
        );
        assert_eq!(
            links.of(Collection::Firewalls, &Scope::Global, "f"),
            "https://compute.googleapis.com/compute/v1/projects/host/global/firewalls/f"
        );
        assert!(links.is_shared_vpc());
    }
}
