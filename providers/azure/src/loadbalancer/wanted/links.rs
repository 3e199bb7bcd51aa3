//! The private link service that a Service asks for. Pure.

use std::net::Ipv4Addr;

use ccm_kit::annotations::Annotations;
use ccm_provider::ProviderError;

use super::super::names::Family;
use super::{Destinations, refused};
use crate::annotations::{self as keys, DOMAIN, Scheme};

const PREFIX: &str = "azure-pls-";

/// A private link service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// `None`: after the frontend.
    pub(crate) name: Option<String>,
    pub(crate) subnet: String,
    pub(crate) count: usize,
    /// The first is the primary one.
    pub(crate) addresses: Vec<Ipv4Addr>,
    pub(crate) fqdns: Vec<String>,
    pub(crate) has_proxy: bool,
    pub(crate) visibility: Vec<String>,
    pub(crate) approval: Vec<String>,
    /// Whether only its existence is asked for, so that it may be another Service's.
    pub(crate) is_plain: bool,
}

/// Whether a Service has a setting of private link services.
pub(crate) fn is_mentioned<'a>(mut keys: impl Iterator<Item = &'a String>) -> bool {
    keys.any(|key| is_key(key))
}

pub(super) fn is_key(key: &str) -> bool {
    key.strip_prefix(DOMAIN).is_some_and(|end| end.starts_with(PREFIX))
}

pub(super) fn link(
    annotations: Annotations<'_>,
    scheme: Scheme,
    families: &[Family],
    access: &Destinations,
    subnet: &str,
) -> Result<Option<Link>, ProviderError> {
    if annotations.readable(&keys::PLS_CREATE) != Some(true) {
        return Ok(None);
    }
    if scheme == Scheme::External && access.has_floating_ip {
        let text = format!("needs an internal load balancer, or {} \"true\"", keys::NO_FLOATING_IP.row.key);
        return Err(annotations.refuse(keys::PLS_CREATE.row, text));
    }
    if families == [Family::V6] {
        return Err(annotations.refuse(keys::PLS_CREATE.row, "private link services have IPv4 addresses only"));
    }
    let list = |key| annotations.get(key).map(Option::unwrap_or_default);
    let addresses = annotations.get(&keys::PLS_ADDRESSES)?.unwrap_or_default();
    let count = usize::from(annotations.get(&keys::PLS_COUNT)?.unwrap_or(1));
    if addresses.len() > count {
        let text = format!("more addresses than {count}; raise {}", keys::PLS_COUNT.row.key);
        return Err(annotations.refuse(keys::PLS_ADDRESSES.row, text));
    }
    let subnet = annotations.get(&keys::PLS_SUBNET)?.unwrap_or_else(|| subnet.to_owned());
    if subnet.is_empty() {
        return Err(refused(format!(
            "a private link service needs a subnet: set {} or subnetName",
            keys::PLS_SUBNET.row.key
        )));
    }
    let visibility = list(&keys::PLS_VISIBILITY)?;
    let place = [keys::PLS_CREATE.row.key, keys::PLS_GROUP.row.key];
    let settings = annotations.iter().filter(|(key, _)| !place.contains(key)).map(|(key, _)| key.to_owned());
    let settings: Vec<String> = settings.collect();
    Ok(Some(Link {
        name: annotations.get(&keys::PLS_NAME)?,
        subnet,
        count,
        addresses,
        fqdns: list(&keys::PLS_FQDNS)?,
        has_proxy: annotations.readable(&keys::PLS_PROXY) == Some(true),
        visibility: if visibility.iter().any(|one| one == "*") { vec!["*".to_owned()] } else { visibility },
        approval: list(&keys::PLS_APPROVAL)?,
        is_plain: !is_mentioned(settings.iter()),
    }))
}
