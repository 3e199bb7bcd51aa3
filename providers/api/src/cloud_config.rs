//! The configuration of a provider: its text, and where it comes from.

use std::fmt;
use std::path::PathBuf;

/// The configuration of a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct CloudConfig {
    /// Where it was read from: the file of `--cloud-config`, or [`SecretKey`] as text.
    pub path: PathBuf,
    /// The text. May hold secrets.
    pub text: String,
}

impl fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudConfig").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where the configuration of a provider is, and whether changes of it take effect while the program runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// A Secret that is read in place of the file of `--cloud-config`.
    pub secret: Option<SecretKey>,
    /// Whether the program watches it. After a change it makes a new provider, ends the controllers, initializes the new
    /// provider, and starts the controllers with it; the lease and the watched objects are kept. A configuration that cannot
    /// be used is reported, and the previous one stays in use. Nothing of a provider outlives it, its metrics included.
    pub reload: bool,
}

/// A key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// The key of `data` that has the text of the configuration.
    pub key: String,
}

/// `Secret kube-system/cloud, key cloud-config`
impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{}, key {}", self.namespace, self.name, self.key)
    }
}

/// A Secret that the shipped RBAC allows the program to read: by name, and nothing else of its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretSpec {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Purpose, in a few words; shipped as a comment of the RBAC rule.
    pub why: &'static str,
}
