//! Many Services on shared objects.

use ccm_cloudsim::core::faults::{Fault, Rule};

use super::*;

/// The calls of what Services share. On a slow machine the list of the nodes grows old meanwhile and is read again.
fn shared(scene: &Scene, mark: u64) -> Vec<String> {
    scene.bed.calls(mark).into_iter().filter(|call| !call.starts_with("virtualMachine")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_services_are_one_write_of_each_shared_object() {
    let options = Options { quotas: [("publicIPAddresses".to_owned(), 2000)].into(), ..Options::default() };
    let mut scene = Scene::with(options, BY_ADDRESS, 2).await;
    let names: Vec<String> = (0..100).map(|number| format!("web{number:03}")).collect();
    for (number, name) in (0_u16..).zip(&names) {
        scene.service(name, &[], port(1000 + number));
    }
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mark = scene.mark();
    scene.ensure(&names).await;
    let writes = scene.writes(mark);
    assert_eq!((writes["loadBalancers.put"], writes["networkSecurityGroups.put"]), (1, 1), "{writes:?}");
    assert_eq!(writes["publicIPAddresses.put"], 100);
    let mark = scene.mark();
    scene.ensure(&names).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    assert_eq!(shared(&scene, mark).len(), 3, "{:?}", scene.bed.calls(mark));
    scene.bed.cloud.change(|options| options.latency.actions = [("loadBalancers.list".to_owned(), 1000)].into());
    let mark = scene.mark();
    let services: Vec<_> = names.iter().map(|name| scene.services[*name].clone()).collect();
    let balancers = scene.balancers();
    let found = futures::future::join_all(services.iter().map(|service| balancers.get(CLUSTER, service))).await;
    assert!(found.into_iter().all(|found| found.unwrap().is_some()));
    // The first one does not wait for others, which come while its look lasts.
    assert_eq!(shared(&scene, mark).len(), 2 * 3, "{:?}", scene.bed.calls(mark));
    scene.bed.cloud.change(|options| options.latency.actions.clear());
    let mark = scene.mark();
    scene.delete(&names).await;
    let writes = scene.writes(mark);
    assert_eq!((writes.get("loadBalancers.delete"), writes["networkSecurityGroups.put"]), (Some(&1), 1), "{writes:?}");
    assert_eq!(writes["publicIPAddresses.delete"], 100);
    assert_eq!(scene.objects("publicIPAddresses").len(), 0);
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_and_new_nodes_in_one_call_cancel_no_write() {
    let mut scene = Scene::new(BY_ADDRESS, 3).await;
    let new = scene.nodes.pop().unwrap();
    scene.service("web0", &[], port(80));
    scene.service("web1", &[], port(81));
    scene.ensure(&["web0", "web1"]).await;
    scene.nodes.push(new);
    let slow = [("loadBalancers.put".to_owned(), 1500), ("backendAddressPools.put".to_owned(), 1500)].into();
    scene.bed.cloud.change(|options| options.operations = slow);
    let mut work = scene.work(&["web0"], ServiceAction::UpdateHosts);
    work.extend(scene.work(&["web1"], ServiceAction::Delete));
    let answers = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
    let failed = answers.iter().filter_map(|answer| answer.result.as_ref().err());
    assert!(failed.clone().all(ProviderError::is_in_progress), "{:?}", failed.collect::<Vec<_>>());
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
    let pool = items(&scene.object("loadBalancers", "kubernetes"), "backendAddressPools")[0].clone();
    assert_eq!(items(&pool, "loadBalancerBackendAddresses").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_does_not_fail_with_the_pool_of_the_nodes() {
    let mut scene = Scene::new(BY_ADDRESS, 3).await;
    let new = scene.nodes.pop().unwrap();
    scene.service("web0", &[], port(80));
    scene.service("web1", &[], port(81));
    scene.ensure(&["web0", "web1"]).await;
    scene.nodes.push(new);
    let fault = Fault::Code { status: 400, code: "Refused".into(), message: "no".into() };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "backendAddressPools.put"));
    let mut work = scene.work(&["web0"], ServiceAction::UpdateHosts);
    work.extend(scene.work(&["web1"], ServiceAction::Delete));
    let answers = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
    assert!(answers[0].result.as_ref().is_err_and(|error| !error.is_in_progress()), "{answers:?}");
    assert!(answers[1].result.as_ref().err().is_none_or(ProviderError::is_in_progress), "{answers:?}");
    // Its address has gone in that call, or goes without another write.
    let mark = scene.mark();
    scene.delete(&["web1"]).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    assert_eq!(scene.objects("publicIPAddresses").len(), 1);
    assert_eq!(scene.bed.cloud.superseded(), Vec::<String>::new());
}
