//! Selection of the nodes that become members, by labels.

use std::collections::BTreeMap;

use ccm_provider::node::Pairs;

/// `key=value,key`: a node must have every label, with the value if there is one. Of a key that is given twice, the last
/// value counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeSelector(BTreeMap<String, Option<String>>);

impl NodeSelector {
    /// Parses a selector. Any text is valid. `key=` is the same as `key`, and an empty selector matches all nodes.
    pub(crate) fn parse(text: &str) -> Self {
        let item = |item: &str| {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            (key.trim().to_owned(), value)
        };
        Self(text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(item).collect())
    }

    /// Whether a node with these labels matches.
    pub(crate) fn matches(&self, labels: &Pairs) -> bool {
        self.0.iter().all(|(key, value)| {
            labels.get(key).is_some_and(|found| value.as_ref().is_none_or(|expected| expected == found))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_label_must_match() {
        let node = labels(&[("env", "prod"), ("gpu", ""), ("expr", "a=b")]);
        for (selector, expected) in [
            ("", true),
            (" , ", true),
            ("env=prod", true),
            (" env=prod , gpu ", true),
            ("env", true),
            ("env=", true),
            ("gpu=", true),
            ("expr=a=b", true),
            ("env=dev", false),
            ("env=prod,zone", false),
            ("gpu=yes", false),
            ("ENV=prod", false),
            ("=prod", false),
            ("env=dev,env=prod", true),
            ("env=prod,env=dev", false),
        ] {
            assert_eq!(NodeSelector::parse(selector).matches(&node), expected, "{selector:?}");
        }
    }

    #[test]
    fn a_node_without_labels_matches_only_the_empty_selector() {
        assert!(NodeSelector::parse("").matches(&Pairs::default()));
        assert!(!NodeSelector::parse("a").matches(&Pairs::default()));
    }
}
