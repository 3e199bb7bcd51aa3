//! The network tags that firewall rules apply to. Pure.
//!
//! Upstream: `computeHostTags` in `gce_firewall.go`. Without configured tags, each instance contributes its longest tag
//! that its name begins with: scripts that create groups of instances give the tag and the names the same prefix.

use std::collections::{BTreeMap, BTreeSet};

use super::hosts::Host;

/// The tag that identifies the group of an instance.
pub(super) fn tag_of<'t>(name: &str, tags: &'t [String]) -> Option<&'t str> {
    tags.iter().map(String::as_str).filter(|tag| name.starts_with(tag)).max_by_key(|tag| tag.len())
}

/// The tags of some hosts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Computed {
    pub(super) tags: BTreeSet<String>,
    /// The hosts without a tag that their name begins with.
    pub(super) untagged: BTreeSet<Host>,
}

/// The tags of these hosts. Hosts that are not in `tags` do not exist.
pub(super) fn computed(tags: &BTreeMap<Host, Option<String>>, hosts: &BTreeSet<Host>) -> Computed {
    let mut computed = Computed::default();
    for host in hosts {
        match tags.get(host) {
            Some(Some(tag)) => drop(computed.tags.insert(tag.clone())),
            Some(None) => drop(computed.untagged.insert(host.clone())),
            None => {}
        }
    }
    computed
}

impl Computed {
    /// Why firewall rules cannot be for all hosts; `None` if they can.
    pub(super) fn problem(&self) -> Option<String> {
        let host = self.untagged.first()?;
        Some(format!(
            "no node tags supplied and also failed to parse the given lists of hosts for tags. Abort creating firewall rule: \
             instance {} in {} has no network tag that its name begins with; give all nodes one network tag and name it as \
             node-tags in [global] of gce.conf",
            host.name, host.zone
        ))
    }
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
        let all = computed(&tags, &[host("node-1"), host("gone")].into());
        assert_eq!((all.tags.clone(), all.problem()), (["node".to_owned()].into(), None));
        let some = computed(&tags, &[host("node-1"), host("x")].into());
        assert_eq!(some.tags, all.tags);
        let problem = some.problem().unwrap();
        assert!(problem.contains("instance x in z") && problem.contains("node-tags"), "{problem}");
        assert_eq!(computed(&tags, &BTreeSet::new()), Computed::default());
    }
}
