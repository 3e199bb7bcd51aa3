//! Reads without a usable answer: nothing is lost, no deletion is done with something left, and the error names what was
//! not read.

use std::collections::BTreeSet;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Service, ServiceAction};
use futures::{StreamExt as _, future, stream};
use serde_json::{Value, json};

use crate::scene::{Scene, service, set};

const CONFIGS: [&str; 2] = [
    "[LoadBalancer]\nmanage-security-groups = true\ncreate-monitor = true\n",
    "[LoadBalancer]\ncascade-delete = false\nmanage-security-groups = true\ncreate-monitor = true\n",
];

/// A Service with a balancer, for which a new process works.
async fn ensured(conf: &str) -> (Scene, Service) {
    let mut scene = Scene::simulated().await;
    scene.configure(conf).await;
    let mut web = service("web", &[(80, 30080)], json!({}));
    scene.ensure(&mut web).await;
    scene.restart().await;
    (scene, web)
}

fn change(service: &mut Service) {
    service.spec.ports[0].node_port = 30081;
    set(service, "timeout-client-data", "70000");
}

/// The reads of a change and a deletion.
async fn reads(conf: &str) -> BTreeSet<String> {
    let (mut scene, mut web) = ensured(conf).await;
    let mark = scene.simulation().mark();
    change(&mut web);
    scene.ensure(&mut web).await;
    scene.restart().await;
    scene.delete(&mut web).await;
    scene.simulation().ledger(|ledger| {
        let is_read = |action: &&String| action.ends_with("_list") || action.ends_with("_get");
        let reads = ledger.since(mark).map(|entry| &entry.action).filter(is_read);
        // A wait for the end of a change reads the balancer, for minutes if it cannot.
        reads.filter(|action| !["version_list", "loadbalancer_get"].contains(&&***action)).cloned().collect()
    })
}

/// Everything of balancers: nothing of it may get lost.
async fn names(scene: &Scene) -> BTreeSet<String> {
    let (mut all, pools) = (scene.balancers().await, scene.pools().await);
    all.extend(scene.listeners().await);
    all.extend(scene.monitors().await);
    all.extend(scene.floating_ips().await);
    all.extend(scene.groups().await);
    let members = scene.members().await.into_iter().map(|member| member.split(' ').next().unwrap().to_owned());
    all.iter().chain(&pools).map(|object| object["id"].as_str().unwrap().to_owned()).chain(members).collect()
}

/// What goes wrong while a read has this fault.
async fn unanswered(conf: &str, read: &str, fault: &Fault) -> Option<String> {
    let (scene, mut web) = ensured(conf).await;
    let before = names(&scene).await;
    let rule = Rule { action: Some(read.to_owned()), ..Rule::every(fault.clone()) };
    scene.simulation().fault(rule.clone());
    let mut changed = web.clone();
    change(&mut changed);
    let answer = scene.process.work(&mut changed, &scene.nodes, ServiceAction::Ensure).await;
    scene.simulation().faults(Faults::clear);
    let after = names(&scene).await;
    let lost: Vec<&String> = before.difference(&after).collect();
    let mut problem = (!lost.is_empty()).then(|| format!("{fault:?} of {read}: lost {lost:?}: {answer:?}"));
    scene.simulation().fault(rule);
    let mut going = web.clone();
    let answer = scene.process.work(&mut going, &scene.nodes, ServiceAction::Delete).await;
    scene.simulation().faults(Faults::clear);
    let left = names(&scene).await;
    // The status of a balancer is a part of it, and names of rights are shorter.
    let kind = read.trim_end_matches("_list").trim_end_matches("_get").trim_end_matches("_status").replace("_ip", "ip");
    let kind = kind.strip_prefix("loadbalancer_").unwrap_or(&kind);
    match answer {
        Ok(_) if left.is_empty() => {}
        Err(error) if error.to_string().replace("_ip", "ip").contains(kind) => {}
        answer => problem = Some(format!("{fault:?} of {read}: {answer:?} with {left:?}")),
    }
    scene.delete(&mut web).await;
    scene.is_empty().await;
    problem
}

/// Answers that are none, by the read that they are for.
fn faults(read: &str) -> Vec<Fault> {
    let text = |body: &str| Fault::Status { status: 200, body: body.to_owned() };
    let code = |status, code: &str| Fault::Code { status, code: code.to_owned(), message: String::new() };
    let key = match read {
        "floating_ip_list" => "floatingips",
        "loadbalancer_status_get" => "statuses",
        "loadbalancer_list" => "loadbalancers",
        "loadbalancer_healthmonitor_list" => "healthmonitors",
        _ => {
            let plain = read.trim_start_matches("loadbalancer_").trim_end_matches("_get");
            &*plain.replace("_list", "s").leak()
        }
    };
    let nameless = if read.ends_with("_list") { json!([{}]) } else { json!({}) };
    let nameless = Value::from_iter([(key.to_owned(), nameless)]).to_string();
    vec![code(501, "NotImplemented"), text("{}"), text(&nameless)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_without_an_answer_loses_nothing_and_holds_the_deletion_up() {
    for conf in CONFIGS {
        let reads = reads(conf).await;
        assert!(reads.contains("floating_ip_list") && reads.contains("security_group_list"), "{reads:?}");
        let cases: Vec<(&String, Fault)> =
            reads.iter().flat_map(|read| faults(read).into_iter().map(move |fault| (read, fault))).collect();
        let problems = stream::iter(&cases).map(|(read, fault)| unanswered(conf, read, fault));
        let problems: Vec<String> = problems.buffer_unordered(8).filter_map(future::ready).collect().await;
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
