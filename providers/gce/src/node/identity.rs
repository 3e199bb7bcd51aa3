//! Which instance a node is: provider IDs and node names.
//!
//! Upstream: `splitProviderID` and `mapNodeNameToInstanceName` in `gce_instances.go`. Everything here is a function of texts.

use std::fmt;

use ccm_provider::Node;

/// The scheme of our provider IDs.
pub(crate) const SCHEME: &str = "gce";

/// An instance, as a provider ID names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InstanceId {
    pub(crate) project: String,
    pub(crate) zone: String,
    /// Without a domain.
    pub(crate) name: String,
}

/// As a provider ID.
impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}://{}/{}/{}", self.project, self.zone, self.name)
    }
}

/// Why a provider ID names no instance. None of these says that an instance does not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum BadProviderId {
    /// Of another cloud: not ours to judge.
    #[error("ProviderID {0:?} belongs to another cloud")]
    Foreign(String),
    /// Not of the expected form.
    #[error("error splitting providerID: {0:?} is not gce://<project>/<zone>/<instance>")]
    Malformed(String),
}

/// How the instance of a node is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// Where the provider ID says.
    Instance(InstanceId),
    /// By its name.
    Name(String),
    /// Not at all.
    Never(BadProviderId),
}

impl InstanceId {
    /// Reads `gce://<project>/<zone>/<instance>`. The instance may have a domain, the project a dot or a colon.
    ///
    /// # Errors
    ///
    /// It names no instance.
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

    /// The instance of a node, by its provider ID.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        Self::parse(node.provider_id_or_empty()).ok()
    }
}

/// How the instance of a node is found: by its provider ID, else by its name.
pub(crate) fn wanted(node: &Node) -> Wanted {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => InstanceId::parse(id).map_or_else(Wanted::Never, Wanted::Instance),
        None => Wanted::Name(short(node.name.as_str()).to_owned()),
    }
}

/// The name of the instance of a node: without the domain.
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
