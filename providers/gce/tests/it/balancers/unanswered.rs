//! Reads and deletions without a usable answer: nothing of others is written, no deletion is done with something left, and the error
//! names the object.

use std::collections::BTreeSet;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::gce::Options;
use ccm_provider::{Service, ServiceAction};
use futures::{StreamExt as _, future, stream};

use super::scene::{Scene, internal, local, ports, web};

async fn scene() -> Scene {
    Scene::of(Options { check: false, ..Options::default() }, &["n1", "n2"], "", &[]).await
}

fn change(service: &mut Service) {
    service.spec.ports = ports("TCP", &[80, 443]);
    service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
}

/// The reads of a change and a deletion, by the process that made the balancer and by a new one.
async fn reads(service: &Service) -> BTreeSet<String> {
    let mut scene = scene().await;
    let mut service = service.clone();
    scene.ensure(&mut service).await;
    change(&mut service);
    let mark = scene.cloud().mark();
    scene.ensure(&mut service).await;
    scene.restart().await;
    scene.ensure(&mut service).await;
    scene.delete(&mut service).await;
    let calls = scene.bed.calls(mark).into_iter();
    let is_read = |call: &String| {
        ["get", "list", "listInstances", "delete"].iter().any(|verb| call.ends_with(&format!(".{verb}")))
    };
    calls.filter(is_read).collect()
}

/// What goes wrong while a read, or a deletion, has this fault.
async fn unanswered(service: &Service, call: &str, fault: &Fault) -> Option<String> {
    let mut scene = scene().await;
    let mut service = service.clone();
    scene.ensure(&mut service).await;
    scene.restart().await;
    let before: BTreeSet<String> = scene.names().into_iter().collect();
    scene.cloud().fault(Rule::every(fault.clone()).on("compute", call));
    let mut changed = service.clone();
    change(&mut changed);
    let (answer, _) = scene.ask(&mut changed, ServiceAction::Ensure).await;
    let after: BTreeSet<String> = scene.names().into_iter().collect();
    let lost: Vec<&String> = before.difference(&after).collect();
    let mut problem = (!lost.is_empty()).then(|| format!("{fault:?} of {call}: lost {lost:?}: {answer:?}"));
    let mut going = service.clone();
    let kind = call.split('.').next().unwrap();
    match scene.ask(&mut going, ServiceAction::Delete).await.0 {
        Ok(_) if scene.names().is_empty() => {}
        Err(error) if error.to_string().contains(kind) => {}
        answer => problem = Some(format!("{fault:?} of {call}: {answer:?} with {:?}", scene.names())),
    }
    scene.cloud().faults(Faults::clear);
    scene.delete(&mut service).await;
    if !scene.names().is_empty() {
        problem.get_or_insert(format!("{fault:?} of {call}: left {:?}", scene.names()));
    }
    problem
}

/// Answers that are none, by the read that they are for.
fn faults(read: &str) -> Vec<Fault> {
    let text = |body: &str| Fault::Status { status: 200, body: body.to_owned() };
    let code = |status, code: &str| Fault::Code { status, code: code.to_owned(), message: String::new() };
    let nameless =
        if read.ends_with(".get") { r#"{"kind":"compute#x"}"# } else { r#"{"kind":"compute#x","items":[{}]}"# };
    if read.ends_with(".delete") {
        return vec![text(""), text("{}")];
    }
    vec![code(501, "notImplemented"), text("{}"), text(nameless)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_without_an_answer_changes_nothing_and_holds_the_deletion_up() {
    for service in [web(), internal(local())] {
        let reads = reads(&service).await;
        assert!(reads.contains("firewalls.list") && reads.len() > 4, "{reads:?}");
        let cases: Vec<(&String, Fault)> =
            reads.iter().flat_map(|read| faults(read).into_iter().map(move |fault| (read, fault))).collect();
        let problems = stream::iter(&cases).map(|(read, fault)| unanswered(&service, read, fault));
        let problems: Vec<String> = problems.buffer_unordered(8).filter_map(future::ready).collect().await;
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
