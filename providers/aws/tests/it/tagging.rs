//! The tagging controller's work over HTTP.

use std::sync::Arc;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{Node, NodeTask, NodeWork};

use crate::bed::Bed;
use crate::leader::lend;

fn work(name: &str, provider_id: &str, deleted: bool) -> NodeWork {
    let provider_id: Box<str> = provider_id.into();
    let node = Node { name: name.into(), provider_id: Some(provider_id.clone()), ..Node::default() };
    let node = (!deleted).then(|| Arc::new(node));
    NodeWork { name: name.into(), provider_id: Some(provider_id), node }
}

fn tagged(bed: &Bed) -> usize {
    bed.aws.world(|world| {
        let env = |tags: &std::collections::BTreeMap<String, String>| tags.get("env").is_some_and(|env| env == "prod");
        world.ec2.instances.values().filter(|instance| env(&instance.tags)).count()
    })
}

/// A deleted node is passed without its object: nothing else is known about it.
#[tokio::test]
async fn one_bad_id_keeps_no_other_instance_from_its_tags_and_a_deleted_node_loses_them() {
    let mut bed = Bed::start("");
    bed.add_nodes(16);
    let provider = bed.provider_with_flags(&[("tags", "env=prod"), ("resources", "instance")]).await;
    lend(&bed.aws, &*provider).await;
    let task: Arc<dyn NodeTask> = provider.node_task("tagging").unwrap();
    let ids: Vec<String> = bed.nodes.iter().map(|node| node.provider_id.as_deref().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 19);
    let mut batch: Vec<NodeWork> = ids.iter().map(|id| work("node", id, false)).collect();
    batch.insert(7, work("gone", "aws:///us-west-2a/i-0123456789abcdef0", false));
    let mark = bed.aws.mark();
    let answers = task.run(&batch).await;
    let labeled = |index: &usize| answers[*index].as_ref().is_ok_and(|changes| !changes.labels.is_empty());
    assert_eq!((0..20).filter(labeled).count(), 19);
    // The age of the node is unknown, so it does not count as a young node.
    assert!(!labeled(&7) && answers[7].is_ok(), "{:?}", answers[7]);
    assert_eq!(tagged(&bed), 19);
    assert_eq!(bed.writes(mark), ["CreateTags", "CreateTags"]);

    // The recent label is not visible yet: it is reported again, without a call.
    let again = task.run(&batch[..3]).await;
    assert!(again.iter().all(|answer| answer.as_ref().is_ok_and(|changes| !changes.labels.is_empty())));
    assert_eq!(bed.writes(mark).len(), 2);

    let gone = [work("node", &ids[0], true), work("gone", "aws:///us-west-2a/i-0123456789abcdef0", true)];
    assert!(task.run(&gone).await.iter().all(Result::is_ok));
    assert_eq!(tagged(&bed), 18);
    task.run(&batch[..1]).await;
    assert_eq!(tagged(&bed), 19, "a node that comes back gets its tags again");
    bed.check();
}

/// The kubelet registers a second node for the same machine, and the first is deleted.
#[tokio::test]
async fn an_instance_whose_node_was_renamed_keeps_its_tags_until_the_last_node_is_deleted() {
    let bed = Bed::start("");
    let provider = bed.provider_with_flags(&[("tags", "env=prod"), ("resources", "instance")]).await;
    let cluster = lend(&bed.aws, &*provider).await;
    let task = provider.node_task("tagging").unwrap();
    let id = bed.nodes[0].provider_id.clone().unwrap();
    let renamed = work("b", &id, false);
    cluster.set_nodes(renamed.node.clone().into_iter().collect());
    task.run(std::slice::from_ref(&renamed)).await[0].as_ref().unwrap();
    let gone = work("a", &id, true);
    assert!(task.plan(&gone).await.unwrap().steps.is_empty());
    task.run(std::slice::from_ref(&gone)).await[0].as_ref().unwrap();
    assert_eq!(tagged(&bed), 1);
    cluster.set_nodes(Vec::new());
    assert_eq!(task.plan(&gone).await.unwrap().steps.len(), 1);
    task.run(&[work("b", &id, true)]).await[0].as_ref().unwrap();
    assert_eq!(tagged(&bed), 0);
    bed.check();
}

/// The role may tag instances with the cluster's tag only, and one has none; or one has fifty tags.
#[tokio::test]
async fn one_refused_instance_among_forty_keeps_no_other_from_its_tags() {
    for fault in [
        Fault::Deny,
        Fault::Code { status: 400, code: "TagLimitExceeded".to_owned(), message: "as the test says".to_owned() },
    ] {
        let mut bed = Bed::start("");
        bed.add_nodes(37);
        let provider = bed.provider_with_flags(&[("tags", "env=prod"), ("resources", "instance")]).await;
        lend(&bed.aws, &*provider).await;
        let ids: Vec<String> = bed.nodes.iter().map(|node| node.provider_id.as_deref().unwrap().to_owned()).collect();
        let hit = ids[7].rsplit('/').next().unwrap().to_owned();
        bed.aws.fault(Rule { params: Some(hit), ..Rule::every(fault).on("ec2", "CreateTags") });
        let batch: Vec<NodeWork> = ids.iter().map(|id| work("node", id, false)).collect();
        let answers = provider.node_task("tagging").unwrap().run(&batch).await;
        let failed: Vec<usize> = (0..40).filter(|number| answers[*number].is_err()).collect();
        assert_eq!((tagged(&bed), failed), (39, vec![7]));
        bed.check();
    }
}

/// The role may tag those with a tag only, which half of them lack.
#[tokio::test]
async fn every_second_refused_instance_keeps_no_other_from_its_tags() {
    let mut bed = Bed::start("");
    bed.add_nodes(57);
    let provider = bed.provider_with_flags(&[("tags", "env=prod"), ("resources", "instance")]).await;
    lend(&bed.aws, &*provider).await;
    let ids: Vec<String> = bed.nodes.iter().map(|node| node.provider_id.as_deref().unwrap().to_owned()).collect();
    for hit in ids.iter().skip(1).step_by(2) {
        let hit = hit.rsplit('/').next().unwrap().to_owned();
        bed.aws.fault(Rule { params: Some(hit), ..Rule::every(Fault::Deny).on("ec2", "CreateTags") });
    }
    let batch: Vec<NodeWork> = ids.iter().map(|id| work("node", id, false)).collect();
    let mark = bed.aws.mark();
    let answers = provider.node_task("tagging").unwrap().run(&batch).await;
    let failed: Vec<usize> = (0..60).filter(|number| answers[*number].is_err()).collect();
    assert_eq!((tagged(&bed), failed), (30, (1..60).step_by(2).collect()));
    assert!(bed.writes(mark).len() <= 120, "{}", bed.writes(mark).len());
    bed.check();
}
