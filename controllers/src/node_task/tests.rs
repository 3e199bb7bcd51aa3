//! What is written to a node, as text.

use ccm_provider::{Node, NodeChanges};

use super::patch;

#[test]
fn the_patch_names_the_incarnation_and_only_what_changes() {
    let node = Node { name: "a".into(), uid: "u-1".into(), ..Node::default() };
    let labels = [("example.com/done".to_owned(), "1".to_owned())];
    let changes = NodeChanges { labels: labels.into(), pod_cidrs: Vec::new() };
    assert_eq!(patch(&node, &changes).to_string(), r#"{"metadata":{"labels":{"example.com/done":"1"},"uid":"u-1"}}"#);
    let changes =
        NodeChanges { pod_cidrs: vec!["fd00::/80".to_owned(), "10.0.0.0/24".to_owned()], ..NodeChanges::default() };
    assert_eq!(
        patch(&node, &changes).to_string(),
        r#"{"metadata":{"uid":"u-1"},"spec":{"podCIDR":"fd00::/80","podCIDRs":["fd00::/80","10.0.0.0/24"]}}"#
    );
}
