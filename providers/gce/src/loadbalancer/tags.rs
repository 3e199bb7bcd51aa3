//! The network tags that firewall rules apply to. Pure.
//!
//! Upstream: `computeHostTags` in `gce_firewall.go`. Without configured tags, each instance contributes its longest tag
//! that its name begins with: scripts that create groups of instances give the tag and the names the same prefix.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;

use super::hosts::Host;

/// The tag that identifies the group of an instance.
pub(super) fn tag_of<'t>(name: &str, tags: &'t [String]) -> Option<&'t str> {
    tags.iter().map(String::as_str).filter(|tag| name.starts_with(tag)).max_by_key(|tag| tag.len())
}

/// The tags for these hosts; empty without hosts. Hosts that are not in `tags` do not exist.
pub(super) fn computed(
    tags: &BTreeMap<Host, Option<String>>,
    hosts: &BTreeSet<Host>,
) -> Result<BTreeSet<String>, ProviderError> {
    let of = |host: &Host| match tags.get(host)? {
        Some(tag) => Some(Ok(tag.clone())),
        None => Some(Err(ProviderError::unknown(format!(
            "no node tags supplied and also failed to parse the given lists of hosts for tags. Abort creating firewall rule: \
             instance {} in {} has no network tag that its name begins with; give all nodes one network tag and name it as \
             node-tags in [global] of gce.conf",
            host.name, host.zone
        )))),
    };
    hosts.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host { zone: "z".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_longest_tag_that_begins_the_name_counts() {
        let tags = ["n", "node", "node-pool", "pool"].map(str::to_owned);
        assert_eq!(tag_of("node-1", &tags), Some("node"));
        assert_eq!(tag_of("worker", &tags), None);
    }

    #[test]
    fn an_instance_without_tag_is_named_with_the_remedy() {
        let tags = [(host("node-1"), Some("node".to_owned())), (host("x"), None)].into();
        assert_eq!(computed(&tags, &[host("node-1"), host("gone")].into()).unwrap(), ["node".to_owned()].into());
        let error = computed(&tags, &[host("node-1"), host("x")].into()).unwrap_err().to_string();
        assert!(error.contains("instance x in z") && error.contains("node-tags"), "{error}");
        assert!(computed(&tags, &BTreeSet::new()).unwrap().is_empty());
    }
}
