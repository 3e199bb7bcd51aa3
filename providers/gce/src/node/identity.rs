//! The instance of a node: provider IDs and node names.
//!
//! Upstream: `splitProviderID` and `mapNodeNameToInstanceName` in `gce_instances.go`. All functions here are pure.

use std::fmt;

use ccm_provider::Node;

/// The scheme of our provider IDs.
pub(crate) const SCHEME: &str = "gce";

/// The instance in a provider ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InstanceId {
    pub(crate) project: String,
    pub(crate) zone: String,
    /// The name without a domain.
    pub(crate) name: String,
}

/// Formats the provider ID.
impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}://{}/{}/{}", self.project, self.zone, self.name)
    }
}

/// The reason why a provider ID names no instance. Neither says that an instance does not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum BadProviderId {
    /// It belongs to another cloud and is not judged here.
    #[error("ProviderID {0:?} belongs to another cloud")]
    Foreign(String),
    /// It does not have the expected form.
    #[error("error splitting providerID: {0:?} is not gce://<project>/<zone>/<instance>")]
    Malformed(String),
}

/// The key to look up the instance of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// The location in the provider ID.
    Instance(InstanceId),
    /// The name of the instance.
    Name(String),
    /// No lookup is possible.
    Never(BadProviderId),
}

impl InstanceId {
    /// Parses `gce://<project>/<zone>/<instance>`. The instance may have a domain, the project a dot or a colon.
    pub(crate) fn parse(text: &str) -> Result<Self, BadProviderId> {
        let malformed = || BadProviderId::Malformed(text.to_owned());
        let path = match text.split_once("://") {
            Some((SCHEME, path)) => path,
            Some(_) => return Err(BadProviderId::Foreign(text.to_owned())),
            None => return Err(malformed()),
        };
        let [project, zone, name] = *path.split('/').collect::<Vec<_>>() else { return Err(malformed()) };
        let name = short(name);
        match project.is_empty() || zone.is_empty() || name.is_empty() {
            true => Err(malformed()),
            false => Ok(Self { project: project.to_owned(), zone: zone.to_owned(), name: name.to_owned() }),
        }
    }

    /// The instance in a node's provider ID.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        Self::parse(node.provider_id_or_empty()).ok()
    }
}

/// The key to look up the instance of a node: its provider ID, else its name.
pub(crate) fn wanted(node: &Node) -> Wanted {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => InstanceId::parse(id).map_or_else(Wanted::Never, Wanted::Instance),
        None => Wanted::Name(short(node.name.as_str()).to_owned()),
    }
}

/// The name of a node's instance: the node name without the domain.
pub(crate) fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_have_three_parts() {
        let parse = |text: &str| InstanceId::parse(text).map(|id| (id.project, id.zone, id.name));
        let id = |project: &str| Ok((project.to_owned(), "us-central1-b".to_owned(), "n1".to_owned()));
        assert_eq!(parse("gce://p/us-central1-b/n1"), id("p"));
        assert_eq!(parse("gce://example.com:p/us-central1-b/n1.c.p.internal"), id("example.com:p"));
    }

    #[test]
    fn p07_a_provider_id_of_another_form_names_nothing() {
        for text in ["gce://p/z", "gce://p//n", "gce://p/z/n/", "gce:///p/z/n", "p/z/n", "gce://p/z/.x", "gce:/p/z/n"] {
            assert_eq!(InstanceId::parse(text), Err(BadProviderId::Malformed(text.to_owned())), "{text}");
        }
        let foreign = BadProviderId::Foreign("aws:///z/i-1".to_owned());
        assert_eq!(InstanceId::parse("aws:///z/i-1"), Err(foreign));
    }

    #[test]
    fn a_node_without_a_provider_id_is_found_by_its_first_label() {
        let node = |name: &str, id: &str| Node {
            name: name.into(),
            provider_id: (!id.is_empty()).then(|| id.into()),
            ..Node::default()
        };
        assert_eq!(wanted(&node("n1.c.p.internal", "")), Wanted::Name("n1".to_owned()));
        let id = InstanceId { project: "p".to_owned(), zone: "z-a".to_owned(), name: "n1".to_owned() };
        assert_eq!(id.to_string(), "gce://p/z-a/n1");
        assert_eq!(wanted(&node("other", "gce://p/z-a/n1")), Wanted::Instance(id));
    }
}
