//! The configuration of a provider: its text and its source.

use std::fmt;
use std::path::PathBuf;

/// The configuration of a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct CloudConfig {
    /// The source: the file of `--cloud-config`, or [`SecretKey`] as text.
    pub path: PathBuf,
    /// The text. May contain secrets.
    pub text: String,
}

impl fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudConfig").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The source of a provider's configuration, and whether changes take effect while the program runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// A Secret that is read instead of the file of `--cloud-config`.
    pub secret: Option<SecretKey>,
    /// Whether the program watches it. After a change it builds a new provider, stops the controllers, initializes the
    /// new provider, and starts the controllers with it; the lease and the watched objects are kept. An unusable
    /// configuration is reported, and the previous one stays in use. A provider's metrics end with the provider.
    pub reload: bool,
}

/// A key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// The key of `data` that contains the configuration.
    pub key: String,
}

/// `Secret kube-system/cloud, key cloud-config`
impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{}, key {}", self.namespace, self.name, self.key)
    }
}

/// A Secret that the shipped RBAC allows the program to read: this one by name, and no other in its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretSpec {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Purpose, in a few words; shipped as a comment of the RBAC rule.
    pub why: &'static str,
}
