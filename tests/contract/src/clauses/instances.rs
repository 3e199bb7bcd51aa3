//! Lookups.

use std::sync::Arc;
use std::time::SystemTime;

use ccm_provider::{Aspects, Instance, InstanceMetadata, InstancesV2, Lookup, Node, NodeRef};
use futures::future::join_all;

use super::HOSTILE;
use crate::bed::{Bed, bare, failed, holds};
use crate::{Harness, Outage, Outcome, Result};

async fn ask(bed: &Bed, nodes: &[NodeRef], aspects: Aspects) -> Result<Vec<Lookup>> {
    let answers = bed.instances()?.lookup(nodes, aspects).await;
    let (asked, got) = (nodes.len(), answers.len());
    holds!(asked == got, "{got} answers for {asked} nodes");
    Ok(answers)
}

async fn ask_one(bed: &Bed, node: &NodeRef, aspects: Aspects) -> Result<Lookup> {
    let mut answers = ask(bed, std::slice::from_ref(node), aspects).await?;
    answers.pop().ok_or_else(|| Outcome::Broken("no answer".into()))
}

fn found(what: &str, answer: &Lookup) -> Result<Arc<Instance>> {
    match answer {
        Lookup::Found(instance) => Ok(Arc::clone(instance)),
        other => Err(Outcome::Broken(format!("{what} exists, and the answer is {other:?}"))),
    }
}

fn metadata(what: &str, answer: &Lookup) -> Result<InstanceMetadata> {
    match &found(what, answer)?.metadata {
        Ok(Some(metadata)) => Ok(metadata.clone()),
        other => Err(Outcome::Broken(format!("{what} exists, and its metadata is {other:?}"))),
    }
}

fn id_of(answer: &Lookup) -> String {
    metadata("an instance", answer).map(|metadata| metadata.provider_id).unwrap_or_default()
}

/// The node without its provider ID.
fn nameless(node: &NodeRef) -> NodeRef {
    Arc::new(Node { provider_id: None, ..(**node).clone() })
}

pub(super) async fn answers_come_in_the_order_of_the_nodes(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let nodes = bed.nodes(&["one", "two", "three", "lost"]).await;
    bed.harness.remove_instance("lost").await;
    let [one, two, three, lost] = &nodes[..] else { return Ok(()) };
    let asked: Vec<NodeRef> = [three, lost, one, one, two].map(Arc::clone).into();
    for aspects in [Aspects::ALL, Aspects::METADATA] {
        let answers = ask(&bed, &asked, aspects).await?;
        for (node, answer) in asked.iter().zip(&answers).filter(|(node, _)| *node.name != *"lost") {
            let (want, got) = (node.provider_id_or_empty(), id_of(answer));
            holds!(want == got, "the answer in the place of {} ({want}) is about {got:?}: {answers:?}", node.name);
        }
        let existing = answers.iter().filter(|answer| !id_of(answer).is_empty()).count();
        holds!(existing == 4, "four questions were about instances that exist: {answers:?}");
    }
    ask(&bed, &[], Aspects::ALL).await?;
    Ok(())
}

pub(super) async fn an_instance_is_found_by_provider_id_and_by_name(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let node = bed.node("one").await;
    let other_name = Arc::new(Node { name: "another-name".into(), ..(*node).clone() });
    for (how, node) in [("by name", &nameless(&node)), ("by ID", &node), ("by ID alone", &other_name)] {
        let answer = ask_one(&bed, node, Aspects::METADATA).await?;
        let got = metadata(how, &answer)?.provider_id;
        let want = other_name.provider_id_or_empty();
        holds!(got == want, "{how} the provider ID is {got:?}, not {want:?}");
    }
    Ok(())
}

pub(super) async fn the_provider_id_wins_over_the_name(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let (one, two) = (bed.node("one").await, bed.node("two").await);
    let mixed = Arc::new(Node { name: two.name.clone(), ..(*one).clone() });
    let got = id_of(&ask_one(&bed, &mixed, Aspects::ALL).await?);
    holds!(got == one.provider_id_or_empty(), "a node with the ID of one instance got the answer of {got:?}");
    bed.harness.remove_instance("one").await;
    let answer = ask_one(&bed, &mixed, Aspects::LIFECYCLE).await?;
    let taken = matches!(answer, Lookup::Found(_));
    holds!(!taken, "the instance of the ID is gone; another one that has the name was taken for it: {answer:?}");
    Ok(())
}

pub(super) async fn the_metadata_holds_id_and_addresses(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let node = bed.node("one").await;
    let scheme = bed.provider.name();
    holds!(node.provider_scheme() == Some(scheme), "the ID {:?} does not begin with {scheme}://", node.provider_id);
    let first = metadata("one", &ask_one(&bed, &node, Aspects::METADATA).await?)?;
    holds!(first.node_addresses == *node.addresses, "addresses {:?}, not {:?}", first.node_addresses, node.addresses);
    let again = metadata("one", &ask_one(&bed.restarted().await?, &nameless(&node), Aspects::METADATA).await?)?;
    holds!(first == again, "after a restart: {again:?}, before: {first:?}");
    let refreshed = metadata("one", &ask_one(&bed, &node, Aspects::ADDRESSES).await?)?;
    holds!(refreshed.node_addresses == first.node_addresses, "a refresh returns other addresses: {refreshed:?}");
    Ok(())
}

pub(super) async fn a_removed_instance_is_gone_with_evidence(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let nodes = bed.nodes(&["one", "two"]).await;
    ask(&bed, &nodes, Aspects::ALL).await?;
    bed.harness.remove_instance("one").await;
    let before = SystemTime::now();
    let answers = ask(&bed, &nodes, Aspects::LIFECYCLE).await?;
    let after = SystemTime::now();
    let Some(Lookup::Gone(evidence)) = answers.first() else {
        return Err(Outcome::Broken(format!("the removed instance is not gone: {answers:?}")));
    };
    let current = (before..=after).contains(&evidence.read_began);
    holds!(current, "the evidence is of {:?}, the question of {before:?}", evidence.read_began);
    found("the other instance", answers.last().unwrap_or(&Lookup::Foreign))?;
    let metadata = ask(&bed, &nodes, Aspects::METADATA).await?;
    let found = metadata.first().is_some_and(|answer| !id_of(answer).is_empty());
    holds!(!found, "metadata of an instance that does not exist: {metadata:?}");
    Ok(())
}

pub(super) async fn a_stopped_instance_exists(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let nodes = bed.nodes(&["one", "two"]).await;
    if !bed.harness.stop_instance("one").await {
        return Err(Outcome::NotApplicable("instances can't be stopped"));
    }
    let answers = ask(&bed, &nodes, Aspects::LIFECYCLE).await?;
    for (answer, (name, stopped)) in answers.iter().zip([("the stopped one", true), ("the running one", false)]) {
        match &found(name, answer)?.shutdown {
            Ok(shutdown) if *shutdown == stopped => {}
            Err(error) if error.is_not_implemented() => {
                return Err(Outcome::NotApplicable("stopped instances are not reported"));
            }
            other => return Err(Outcome::Broken(format!("{name}: stopped is {other:?}"))),
        }
    }
    metadata(
        "a stopped instance",
        &ask_one(&bed, &nameless(nodes.first().unwrap_or(&Default::default())), Aspects::METADATA).await?,
    )?;
    Ok(())
}

pub(super) async fn a_cloud_that_fails_is_never_evidence(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let node = bed.node("one").await;
    bed.harness.add_instance("gone").await;
    bed.disrupt(Outage::Down).await?;
    let asked = [Arc::clone(&node), nameless(&node), Arc::new(bare("never", ""))];
    for aspects in [Aspects::LIFECYCLE, Aspects::METADATA, Aspects::ALL] {
        for answer in ask(&bed, &asked, aspects).await? {
            let found = match &answer {
                Lookup::Unknown(_) => false,
                // `Found` with errors for the requested aspects is not evidence either.
                Lookup::Found(found) => {
                    (aspects.shutdown && found.shutdown.is_ok()) || (aspects.metadata && found.metadata.is_ok())
                }
                Lookup::Gone(_) | Lookup::Foreign => true,
            };
            holds!(!found, "the cloud is down, and the answer is {answer:?}");
        }
    }
    bed.recover().await?;
    found("one", &ask_one(&bed, &node, Aspects::LIFECYCLE).await?)?;
    Ok(())
}

/// Looks up these IDs together with an existing instance; no answer may be "gone".
async fn never_gone(bed: &Bed, ids: &[String]) -> Result {
    let mut nodes = bed.nodes(&["one"]).await;
    nodes.extend(ids.iter().map(|id| Arc::new(bare("a-node", id))));
    for aspects in [Aspects::LIFECYCLE, Aspects::ALL] {
        let answers = ask(bed, &nodes, aspects).await?;
        found("the instance beside them", answers.first().unwrap_or(&Lookup::Foreign))?;
        for (node, answer) in nodes.iter().zip(&answers) {
            holds!(!matches!(answer, Lookup::Gone(_)), "{:?} is {answer:?}", node.provider_id);
        }
    }
    Ok(())
}

pub(super) async fn the_id_of_another_cloud_is_never_gone(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let scheme = bed.provider.name();
    let others =
        ["other://i-1".to_owned(), format!("{scheme}s://i-1"), format!("x{scheme}://one"), "://one".to_owned()];
    never_gone(&bed, &others).await
}

pub(super) async fn a_malformed_provider_id_is_never_gone(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let malformed = bed.harness.malformed_provider_ids();
    if malformed.is_empty() {
        return Err(Outcome::NotApplicable("every ID with the scheme of this cloud is well-formed"));
    }
    never_gone(&bed, &malformed).await
}

pub(super) async fn hostile_nodes_neither_panic_nor_spoil_other_answers(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let good = bed.node("one").await;
    let scheme = bed.provider.name();
    let long = "n".repeat(100_000);
    let mut nodes = vec![Arc::clone(&good)];
    for text in HOSTILE.iter().copied().chain([long.as_str()]) {
        let ids = [String::new(), text.to_owned(), format!("{scheme}://{text}"), format!("{scheme}:///{text}/{text}")];
        nodes.extend(ids.iter().map(|id| Arc::new(bare(text, id))));
    }
    nodes.push(good);
    for aspects in [Aspects::ALL, Aspects::METADATA] {
        let answers = ask(&bed, &nodes, aspects).await?;
        for answer in [answers.first(), answers.last()].into_iter().flatten() {
            metadata("the instance among hostile nodes", answer)?;
        }
    }
    Ok(())
}

pub(super) async fn many_nodes_are_one_call(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.instances()?;
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let some = bed.nodes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let nodes: Vec<NodeRef> = some.iter().cycle().take(2_000).cloned().collect();
    let answers = ask(&bed, &nodes, Aspects::ALL).await?;
    let wrong = nodes.iter().zip(&answers).find(|(node, answer)| id_of(answer) != node.provider_id_or_empty());
    holds!(wrong.is_none(), "of 2,000 answers one is wrong: {wrong:?}");
    Ok(())
}

pub(super) async fn overlapping_calls_do_not_disturb_each_other(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let instances: Arc<dyn InstancesV2> = bed.instances()?;
    let nodes = bed.nodes(&["one", "two", "three"]).await;
    let shifts = (0..16_usize).map(|by| nodes.iter().cycle().skip(by % 3).take(3).cloned().collect::<Vec<_>>());
    let questions: Vec<Vec<NodeRef>> = shifts.collect();
    let answers = join_all(questions.iter().map(|asked| instances.lookup(asked, Aspects::ALL))).await;
    for (asked, answers) in questions.iter().zip(&answers) {
        let right = asked.iter().zip(answers).all(|(node, answer)| id_of(answer) == node.provider_id_or_empty());
        holds!(right && asked.len() == answers.len(), "asked about {asked:?}, got {answers:?}");
    }
    Ok(())
}

pub(super) async fn looking_writes_nothing(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let instances = bed.instances()?;
    let mut nodes = bed.nodes(&["one", "two"]).await;
    bed.harness.remove_instance("two").await;
    nodes.push(Arc::new(bare("never", "")));
    bed.without_writing("a look-up", instances.lookup(&nodes, Aspects::ALL)).await?;
    Ok(())
}

pub(super) async fn zones_agree_by_id_and_by_name(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let Some(zones) = bed.provider.zones() else { return Err(Outcome::NotApplicable("there is no Zones interface")) };
    let node = bed.node("one").await;
    let by_id = zones.zone_by_provider_id(node.provider_id_or_empty()).await.map_err(failed("the zone by ID"))?;
    let by_name = zones.zone_by_node_name(&node.name).await.map_err(failed("the zone by name"))?;
    holds!(by_id == by_name, "by ID {by_id:?}, by name {by_name:?}");
    Ok(())
}
