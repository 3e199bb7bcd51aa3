//! What is written to a node, as text.

use ccm_provider::{Node, NodeChanges};

use super::{Key, patch};

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

#[test]
fn a_node_that_came_back_is_the_same_only_on_the_same_machine() {
    let key = Key { name: "a".into(), provider_id: Some("x:///1".into()), deleted: true };
    let node =
        |name: &str, id: Option<&str>| Node { name: name.into(), provider_id: id.map(Into::into), ..Node::default() };
    assert!(key.is_of(&node("a", Some("x:///1"))));
    for other in [node("a", Some("x:///2")), node("a", None), node("b", Some("x:///1"))] {
        assert!(!key.is_of(&other), "{other:?}");
    }
}
