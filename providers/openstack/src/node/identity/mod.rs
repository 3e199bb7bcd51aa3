//! The server of a node: provider IDs and node names.
//!
//! Upstream: `instanceIDFromProviderID` and `getServerByName` in `pkg/openstack/instances.go`. This module only handles
//! texts.

use std::fmt;

use ccm_provider::Node;

#[cfg(test)]
mod tests;

/// The scheme of our provider IDs.
pub(crate) const SCHEME: &str = "openstack";

/// The ID of a server, which is safe in a URL: Nova assigns UUIDs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerId(Box<str>);

impl ServerId {
    /// `None` if no server can have this ID.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (!text.is_empty() && text.bytes().all(is_safe)).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ServerId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The reason why a provider ID refers to none of our servers. No reason means that a server does not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum BadProviderId {
    /// It belongs to another cloud.
    #[error("ProviderID {0:?} belongs to another cloud")]
    Foreign(String),
    /// It does not have the expected form.
    #[error("ProviderID \"{0}\" didn't match expected format \"openstack://region/InstanceID\"")]
    Malformed(String),
    /// It belongs to a region that this process does not manage.
    #[error("ProviderID \"{id}\" didn't match supported region \"{region}\"")]
    OtherRegion {
        /// The provider ID.
        id: String,
        /// The region of the configuration.
        region: String,
    },
}

/// The way to find the server of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// By its ID.
    Server(ServerId),
    /// By its name, which is that of the node.
    Name(String),
    /// Not at all.
    Never(BadProviderId),
}

/// The format of provider IDs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Identity {
    /// `[Global] region`
    pub(crate) region: String,
    /// `OS_CCM_REGIONAL=true`: new provider IDs contain the region.
    pub(crate) is_regional: bool,
}

impl Identity {
    /// The provider ID of a server.
    pub(crate) fn format(&self, server: &str) -> String {
        let region = if self.is_regional { &*self.region } else { "" };
        format!("{SCHEME}://{region}/{server}")
    }

    /// Parses `openstack://<region or empty>/<id>`, with or without `openstack://`.
    pub(crate) fn parse(&self, text: &str) -> Result<ServerId, BadProviderId> {
        let full = if text.contains("://") { text.to_owned() } else { format!("{SCHEME}://{text}") };
        let Some((SCHEME, path)) = full.split_once("://") else { return Err(BadProviderId::Foreign(full)) };
        let Some((region, Some(server))) = path.split_once('/').map(|(region, id)| (region, ServerId::parse(id)))
        else {
            return Err(BadProviderId::Malformed(full));
        };
        match region.is_empty() || region == self.region {
            true => Ok(server),
            false => Err(BadProviderId::OtherRegion { id: text.to_owned(), region: self.region.clone() }),
        }
    }

    /// The way to find the server of a node: by its provider ID, else by its name.
    pub(crate) fn wanted(&self, node: &Node) -> Wanted {
        match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => self.parse(id).map_or_else(Wanted::Never, Wanted::Server),
            None => Wanted::Name(node.name.to_string()),
        }
    }

    /// Whether the provider ID of a node names a machine of another cloud or region.
    pub(crate) fn is_elsewhere(&self, node: &Node) -> bool {
        matches!(self.wanted(node), Wanted::Never(BadProviderId::Foreign(_) | BadProviderId::OtherRegion { .. }))
    }

    /// The server of a node, by its provider ID. A node without one, or with an invalid one, is logged.
    pub(crate) fn server_of(&self, node: &Node) -> Option<ServerId> {
        match self.wanted(node) {
            Wanted::Server(id) => return Some(id),
            Wanted::Name(_) => tracing::warn!(node = %node.name, "the node has no provider ID yet and is left out"),
            Wanted::Never(BadProviderId::Foreign(_)) => {}
            Wanted::Never(error) => tracing::warn!(node = %node.name, %error, "the node is left out"),
        }
        None
    }
}
