//! The write that follows from the answer of a task. Pure.

use std::collections::BTreeMap;

use ccm_provider::{Node, NodeChanges, NodeTaskSpec, ProviderError, Taint, TaintId};
use ccm_runtime::writer::NodePatch;

/// The answer, if it contains only declared taints of the task.
pub(super) fn declared(spec: &NodeTaskSpec, changes: NodeChanges) -> Result<NodeChanges, ProviderError> {
    match changes.taints.keys().find(|taint| !spec.taints.contains(taint)) {
        Some(taint) => Err(ProviderError::bug(format!("{} answers the taint {taint} without declaring it", spec.name))),
        None => Ok(changes),
    }
}

/// The write for an answer about the state `asked` of a node whose state is `current` now; `None` if there is nothing
/// to write. Taints evict pods, so an answer about an earlier version of the node causes none.
pub(super) fn patch(asked: &Node, current: &Node, changes: &NodeChanges) -> Option<NodePatch> {
    let is_late = !changes.taints.is_empty() && asked.resource_version != current.resource_version;
    let NodeChanges { labels, taints, pod_cidrs } = changes.clone().against(current);
    let taints = (!taints.is_empty()).then(|| with_taints(&current.taints, &taints));
    let patch = NodePatch { labels, taints, pod_cidrs, ..NodePatch::default() };
    (!is_late && patch != NodePatch::default()).then_some(patch)
}

/// The whole list of taints: the others keep their order, new ones are appended.
fn with_taints(present: &[Taint], changes: &BTreeMap<TaintId, bool>) -> Vec<Taint> {
    let kept = present.iter().filter(|taint| !changes.keys().any(|changed| changed.is(taint))).cloned();
    let added = changes.iter().filter(|(_, wanted)| **wanted).map(|(taint, _)| Taint {
        key: taint.key.into(),
        value: "".into(),
        effect: taint.effect.as_str().into(),
        time_added: None,
    });
    kept.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use ccm_provider::TaintEffect;

    use super::*;

    const OUT: TaintId = TaintId { key: "example.com/out", effect: TaintEffect::NoExecute };
    const SPEC: NodeTaskSpec = NodeTaskSpec {
        name: "x",
        aliases: &[],
        queue: "x",
        on_by_default: true,
        taints: &[OUT],
        check: |_| Vec::new(),
    };

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into(), time_added: None }
    }

    fn node(version: &str, taints: &[Taint]) -> Node {
        Node { name: "a".into(), resource_version: version.into(), taints: taints.into(), ..Node::default() }
    }

    fn out(wanted: bool) -> NodeChanges {
        NodeChanges { taints: [(OUT, wanted)].into(), ..NodeChanges::default() }
    }

    fn written(node: &Node, changes: &NodeChanges) -> Option<Vec<Taint>> {
        patch(node, node, changes)?.taints
    }

    #[test]
    fn a_taint_of_another_key_or_effect_stays_in_its_place() {
        let others = [taint("a", "1", "NoExecute"), taint(OUT.key, "", "NoSchedule"), taint("b", "", "NoSchedule")];
        let added = written(&node("1", &others), &out(true)).unwrap();
        assert_eq!(added, [&others[..], &[taint(OUT.key, "", "NoExecute")]].concat());
        let own = [&others[..1], &[taint(OUT.key, "", "NoExecute")], &others[1..]].concat();
        assert_eq!(written(&node("1", &own), &out(false)).unwrap(), others);
    }

    #[test]
    fn nothing_is_written_for_a_taint_that_is_as_it_should_be_whatever_its_value() {
        let present = node("1", &[taint(OUT.key, "by hand", "NoExecute")]);
        assert_eq!(patch(&present, &present, &out(true)), None);
        let absent = node("1", &[taint(OUT.key, "", "NoSchedule")]);
        assert_eq!(patch(&absent, &absent, &out(false)), None);
    }

    #[test]
    fn labels_taints_and_pod_ranges_are_one_write() {
        let node = node("1", &[]);
        let changes = NodeChanges {
            labels: [("x".to_owned(), "1".to_owned())].into(),
            pod_cidrs: vec!["10.0.0.0/24".into()],
            ..out(true)
        };
        let patch = patch(&node, &node, &changes).unwrap();
        assert_eq!((patch.labels, patch.pod_cidrs), (changes.labels, changes.pod_cidrs));
        assert_eq!(patch.taints.unwrap(), [taint(OUT.key, "", "NoExecute")]);
    }

    #[test]
    fn an_answer_about_an_earlier_version_sets_no_taint_and_still_sets_a_label() {
        let (asked, current) = (node("1", &[]), node("2", &[]));
        assert_eq!(patch(&asked, &current, &out(true)), None);
        let label = NodeChanges { labels: [("x".to_owned(), "1".to_owned())].into(), ..NodeChanges::default() };
        assert!(patch(&asked, &current, &label).is_some());
        assert_eq!(patch(&asked, &current, &NodeChanges { taints: out(true).taints, ..label }), None);
    }

    #[test]
    fn a_task_answers_only_taints_that_it_declares() {
        let other = TaintId { effect: TaintEffect::NoSchedule, ..OUT };
        assert_eq!(declared(&SPEC, out(true)).unwrap(), out(true));
        let error = declared(&SPEC, NodeChanges { taints: [(other, true)].into(), ..out(true) }).unwrap_err();
        assert_eq!(error.to_string(), "x answers the taint example.com/out:NoSchedule without declaring it");
    }
}
