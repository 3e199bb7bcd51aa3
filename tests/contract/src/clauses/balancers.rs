//! Clauses about load balancers without faults.

use std::sync::Arc;

use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{
    LoadBalancer, LoadBalancerExt as _, LoadBalancerStatus, NodeRef, Service, ServiceAction, ServiceWork,
};

use super::HOSTILE;
use crate::bed::{Answer, Bed, CLUSTER, failed, holds, port};
use crate::{Harness, Outage, Outcome, Result};

/// An ensure that must succeed.
pub(super) async fn ensured(bed: &Bed, service: &Service, nodes: &[NodeRef]) -> Result<LoadBalancerStatus> {
    let balancer = bed.balancer()?;
    let answer = bed.finished(async || balancer.ensure(CLUSTER, service, nodes).await).await;
    let status = answer.map_err(failed("ensure"))?;
    status.ok_or_else(|| Outcome::Broken("ensure succeeded without a status".into()))
}

pub(super) async fn got(bed: &Bed, service: &Service) -> Result<Option<LoadBalancerStatus>> {
    bed.balancer()?.get(CLUSTER, service).await.map_err(failed("get"))
}

pub(super) async fn deleted(bed: &Bed, service: &Service) -> Result {
    let balancer = bed.balancer()?;
    bed.finished(async || balancer.ensure_deleted(CLUSTER, service).await).await.map_err(failed("deletion"))
}

async fn updated(bed: &Bed, service: &Service, nodes: &[NodeRef]) -> Result {
    let balancer = bed.balancer()?;
    bed.finished(async || balancer.update(CLUSTER, service, nodes).await).await.map_err(failed("update"))
}

/// `get` returns what `ensure` returned, and another `ensure` writes nothing.
pub(super) async fn is_settled(bed: &Bed, service: &Service, nodes: &[NodeRef]) -> Result {
    let status = bed.without_writing("an ensure of an existing balancer", ensured(bed, service, nodes)).await??;
    let found = bed.without_writing("get", got(bed, service)).await??;
    let same = found.as_ref().is_some_and(|found| found.same_as(&status));
    holds!(same, "ensure returned {status:?}, get returns {found:?}");
    Ok(())
}

/// After the deletion the cloud has the same objects as before the creation, and another deletion writes nothing.
pub(super) async fn goes_whole(bed: &Bed, service: &Service, before: &std::collections::BTreeSet<String>) -> Result {
    deleted(bed, service).await?;
    let now = bed.contents().await;
    let left: Vec<_> = before.symmetric_difference(&now).collect();
    holds!(left.is_empty(), "after the deletion the cloud differs from before by {left:?}");
    let found = got(bed, service).await?;
    holds!(found.is_none(), "after the deletion get returns {found:?}");
    bed.without_writing("a second deletion", deleted(bed, service)).await?
}

/// A provider with load balancers, a Service, and these nodes.
async fn web(harness: Arc<dyn Harness>, nodes: &[&str]) -> Result<(Bed, Service, Vec<NodeRef>)> {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    let (web, nodes) = (bed.service("web"), bed.nodes(nodes).await);
    Ok((bed, web, nodes))
}

pub(super) async fn nothing_is_there_for_a_new_service(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    let found = bed.without_writing("get", got(&bed, &bed.service("web"))).await??;
    holds!(found.is_none(), "there is {found:?} for a Service that nobody ensured");
    Ok(())
}

pub(super) async fn deleting_nothing_succeeds_and_writes_nothing(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    bed.without_writing("the deletion of nothing", deleted(&bed, &bed.service("web"))).await?
}

pub(super) async fn ensure_makes_a_balancer_and_get_returns_the_same_status(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one", "two"]).await?;
    let before = bed.contents().await;
    let status = ensured(&bed, &web, &nodes).await?;
    holds!(bed.contents().await != before, "ensure succeeded and the cloud holds nothing new; status {status:?}");
    let found = got(&bed, &web).await?;
    let same = found.as_ref().is_some_and(|found| found.same_as(&status));
    holds!(same, "ensure returned {status:?}, get returns {found:?}");
    Ok(())
}

pub(super) async fn a_second_ensure_writes_nothing(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one", "two"]).await?;
    let first = ensured(&bed, &web, &nodes).await?;
    let second = bed.without_writing("the second ensure", ensured(&bed, &web, &nodes)).await??;
    holds!(first.same_as(&second), "the first returned {first:?}, the second {second:?}");
    Ok(())
}

pub(super) async fn an_ensure_after_a_restart_writes_nothing(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one", "two"]).await?;
    let first = ensured(&bed, &web, &nodes).await?;
    let bed = bed.restarted().await?;
    let second = bed.without_writing("an ensure after a restart", ensured(&bed, &web, &nodes)).await??;
    holds!(first.same_as(&second), "before the restart {first:?}, after it {second:?}");
    is_settled(&bed, &web, &nodes).await
}

pub(super) async fn the_order_of_nodes_makes_no_difference(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, mut nodes) = web(harness, &["one", "two", "three"]).await?;
    ensured(&bed, &web, &nodes).await?;
    nodes.rotate_left(1);
    bed.without_writing("an ensure with the nodes in another order", ensured(&bed, &web, &nodes)).await??;
    nodes.reverse();
    bed.without_writing("an update with the nodes in another order", updated(&bed, &web, &nodes)).await?
}

pub(super) async fn changed_ports_are_applied_and_can_be_changed_back(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one"]).await?;
    let empty = bed.contents().await;
    ensured(&bed, &web, &nodes).await?;
    let first = bed.contents().await;
    let mut changed = web.clone();
    changed.spec.ports = vec![port(443, 30443), port(8080, 30081)];
    let writes = bed.harness.writes().await;
    ensured(&bed, &changed, &nodes).await?;
    let written = bed.harness.writes().await > writes;
    holds!(written, "other ports were ensured without a write");
    is_settled(&bed, &changed, &nodes).await?;
    ensured(&bed, &web, &nodes).await?;
    let back = bed.contents().await;
    holds!(back == first, "changed back, the cloud holds {back:?}, not {first:?}");
    goes_whole(&bed, &web, &empty).await
}

pub(super) async fn changed_hosts_are_applied_and_ensure_agrees(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one", "two", "three"]).await?;
    let (some, others) = (nodes.get(..2).unwrap_or_default(), nodes.get(1..).unwrap_or_default());
    ensured(&bed, &web, some).await?;
    let first = bed.contents().await;
    let status = got(&bed, &web).await?;
    updated(&bed, &web, others).await?;
    holds!(bed.contents().await != first, "an update with other hosts changed nothing");
    holds!(got(&bed, &web).await? == status, "an update of hosts changed the status");
    bed.without_writing("the same update again", updated(&bed, &web, others)).await??;
    is_settled(&bed, &web, others).await?;
    updated(&bed, &web, some).await?;
    let back = bed.contents().await;
    holds!(back == first, "changed back, the cloud holds {back:?}, not {first:?}");
    Ok(())
}

pub(super) async fn no_hosts_are_no_error(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one"]).await?;
    let empty = bed.contents().await;
    ensured(&bed, &web, &[]).await?;
    is_settled(&bed, &web, &[]).await?;
    updated(&bed, &web, &nodes).await?;
    updated(&bed, &web, &[]).await?;
    is_settled(&bed, &web, &[]).await?;
    goes_whole(&bed, &web, &empty).await
}

pub(super) async fn a_deletion_leaves_nothing(harness: Arc<dyn Harness>) -> Result {
    let (bed, web, nodes) = web(harness, &["one", "two"]).await?;
    let before = bed.contents().await;
    ensured(&bed, &web, &nodes).await?;
    // The Service may have changed since the creation: its type and ports are different.
    let mut plain = web.clone();
    plain.spec.kind = "ClusterIP".into();
    plain.spec.ports.clear();
    goes_whole(&bed.restarted().await?, &plain, &before).await
}

pub(super) async fn services_do_not_touch_each_other(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    let (one, two, nodes) = (bed.service("service-1"), bed.service("service-2"), bed.nodes(&["one"]).await);
    let empty = bed.contents().await;
    let status = ensured(&bed, &one, &nodes).await?;
    let with_one = bed.contents().await;
    let other = ensured(&bed, &two, &nodes).await?;
    holds!(!status.same_as(&other), "both Services got {status:?}");
    is_settled(&bed, &one, &nodes).await?;
    goes_whole(&bed, &two, &with_one).await?;
    is_settled(&bed, &one, &nodes).await?;
    goes_whole(&bed, &one, &empty).await
}

pub(super) async fn objects_of_others_stay_untouched(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let balancer = bed.balancer()?;
    let (web, nodes) = (bed.service("web"), bed.nodes(&["one", "two"]).await);
    if !bed.harness.add_objects_of_others(Some(&web)).await {
        return Err(Outcome::NotApplicable("the harness has no objects of others"));
    }
    let others = bed.contents().await;
    let untouched = |contents: std::collections::BTreeSet<String>| {
        let gone: Vec<String> = others.difference(&contents).cloned().collect();
        if gone.is_empty() { Ok(()) } else { Err(Outcome::Broken(format!("changed, though of others: {gone:?}"))) }
    };
    // If one of them conflicts, an error is correct.
    drop(balancer.ensure(CLUSTER, &web, &nodes).await);
    untouched(bed.contents().await)?;
    drop(balancer.update(CLUSTER, &web, nodes.get(..1).unwrap_or_default()).await);
    untouched(bed.contents().await)?;
    goes_whole(&bed, &web, &others).await
}

pub(super) async fn a_recreated_service_gets_a_balancer_of_its_own(harness: Arc<dyn Harness>) -> Result {
    let (bed, old, nodes) = web(harness, &["one"]).await?;
    let empty = bed.contents().await;
    ensured(&bed, &old, &nodes).await?;
    // The core deletes the old one first, and only then ensures the new one.
    deleted(&bed, &old).await?;
    let mut new = old.clone();
    new.metadata.uid = bed.service("another").metadata.uid;
    ensured(&bed, &new, &nodes).await?;
    is_settled(&bed, &new, &nodes).await?;
    goes_whole(&bed, &new, &empty).await
}

pub(super) async fn name_and_group_are_stable(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let balancer = bed.balancer()?;
    let web = bed.service("web");
    let found = |balancer: &dyn LoadBalancer, s: &Service| (balancer.name(CLUSTER, s), balancer.groups(s));
    let first = found(&*balancer, &web);
    holds!(!first.0.is_empty(), "the balancer of a Service has no name");
    let mut later = web.clone();
    later.metadata.resource_version = "99".into();
    later.spec.ports.push(port(81, 30082));
    later.status.load_balancer.ingress.push(Default::default());
    bed.disrupt(Outage::Down).await?;
    let second = found(&*balancer, &later);
    bed.disrupt(Outage::None).await?;
    let third = found(&*bed.restarted().await?.balancer()?, &web);
    holds!(first == second && first == third, "name and group change: {first:?}, {second:?}, {third:?}");
    let other = balancer.name(CLUSTER, &bed.service("other"));
    holds!(other != first.0, "two Services have the name {other:?}");
    Ok(())
}

pub(super) async fn a_cloud_that_fails_is_an_error_and_changes_nothing(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    let (web, new, nodes) = (bed.service("web"), bed.service("new"), bed.nodes(&["one"]).await);
    ensured(&bed, &web, &nodes).await?;
    let before = bed.contents().await;
    bed.disrupt(Outage::Down).await?;
    // Cached state of this process must not matter either.
    for process in [None, Some(bed.restarted().await)] {
        let process = match &process {
            None => &bed,
            Some(Ok(bed)) => bed,
            // A provider may refuse to start without its cloud: that is also an error.
            Some(Err(_)) => continue,
        };
        let mut work = vec![ServiceWork::new(&web, &[], ServiceAction::UpdateHosts)];
        for service in [&web, &new] {
            let get = process.balancer()?.get(CLUSTER, service).await;
            holds!(get.is_err(), "the cloud is down, and get answers {get:?}");
            work.push(ServiceWork::new(service, &nodes, ServiceAction::Ensure));
            work.push(ServiceWork::new(service, &[], ServiceAction::Delete));
        }
        for item in work {
            let action = item.action;
            let answers = process.reconciled(&[item]).await?;
            holds!(answers.iter().all(Answer::is_err), "the cloud is down, and {action:?} answers {answers:?}");
        }
    }
    bed.recover().await?;
    let now = bed.contents().await;
    holds!(now == before, "the cloud was down, and now holds {now:?} instead of {before:?}");
    is_settled(&bed, &web, &nodes).await
}

pub(super) async fn many_items_are_answered_in_order(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    let nodes: Arc<[NodeRef]> = bed.nodes(&["one", "two"]).await.into();
    let mut services: Vec<Service> = (0..5).map(|n| bed.service(&format!("service-{n}"))).collect();
    // One group of several Services, if the provider has groups: the core passes it in one call.
    for service in &mut services {
        bed.harness.share(service);
    }
    let services: Vec<Arc<Service>> = services.into_iter().map(Arc::new).collect();
    let empty = bed.contents().await;
    let work = |action: ServiceAction, nodes: &Arc<[NodeRef]>| -> Vec<ServiceWork> {
        let item = |service: &Arc<Service>| ServiceWork {
            service: service.clone(),
            nodes: nodes.clone(),
            action,
            namespace: None,
        };
        services.iter().map(item).collect()
    };
    let answers = bed.reconciled(&work(ServiceAction::Ensure, &nodes)).await?;
    for (service, answer) in services.iter().zip(answers) {
        let found = got(&bed, service).await?;
        let status = answer.map_err(failed("one of many"))?;
        let right = status.as_ref().zip(found.as_ref()).is_some_and(|(a, b)| a.same_as(b));
        holds!(right, "{}: answered {status:?}, get returns {found:?}", service.key());
    }
    let mut mixed = work(ServiceAction::Delete, &Arc::from([]));
    for item in mixed.iter_mut().skip(1).step_by(2) {
        (item.action, item.nodes) = (ServiceAction::UpdateHosts, Arc::clone(&nodes));
    }
    let answers = bed.reconciled(&mixed).await?;
    holds!(answers.iter().all(std::result::Result::is_ok), "of deletions and updates: {answers:?}");
    for item in &mixed {
        let (key, action, there) = (item.service.key(), item.action, got(&bed, &item.service).await?.is_some());
        holds!(there == (action != ServiceAction::Delete), "{key}: {action:?}, there: {there}");
    }
    bed.reconciled(&work(ServiceAction::Delete, &Arc::from([]))).await?;
    let left = bed.contents().await;
    holds!(left == empty, "in the end the cloud holds {left:?}");
    Ok(())
}

pub(super) async fn planning_writes_nothing(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let balancer = bed.balancer()?;
    let nodes: Arc<[NodeRef]> = bed.nodes(&["one"]).await.into();
    let (there, missing) = (Arc::new(bed.service("there")), Arc::new(bed.service("missing")));
    ensured(&bed, &there, &nodes).await?;
    for service in [&there, &missing] {
        for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete] {
            let item = ServiceWork { service: Arc::clone(service), nodes: Arc::clone(&nodes), action, namespace: None };
            let plan = bed.without_writing("planning", balancer.plan(CLUSTER, &item)).await?;
            if action == ServiceAction::UpdateHosts && Arc::ptr_eq(service, &missing) {
                // An update of a missing balancer may fail, and so may its plan.
                continue;
            }
            let plan = plan.map_err(failed("a plan"))?;
            let needed = match action {
                ServiceAction::Ensure => Arc::ptr_eq(service, &missing),
                ServiceAction::UpdateHosts => false,
                ServiceAction::Delete => Arc::ptr_eq(service, &there),
            };
            holds!(!needed || !plan.is_empty(), "{action:?} of {} is needed, and the plan is empty", service.key());
            let idle = action == ServiceAction::Delete && !needed;
            holds!(!idle || plan.is_empty(), "the plan of the deletion of nothing: {plan}");
        }
    }
    Ok(())
}

pub(super) async fn the_plan_is_empty_when_nothing_is_to_do(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let balancer = bed.balancer()?;
    if !bed.harness.plans_are_exact() {
        return Err(Outcome::NotApplicable("plans are not exact"));
    }
    let nodes: Arc<[NodeRef]> = bed.nodes(&["one", "two"]).await.into();
    let web = Arc::new(bed.service("web"));
    ensured(&bed, &web, &nodes).await?;
    for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
        let item = ServiceWork { service: Arc::clone(&web), nodes: Arc::clone(&nodes), action, namespace: None };
        let plan = balancer.plan(CLUSTER, &item).await.map_err(failed("a plan"))?;
        holds!(plan.is_empty(), "everything is as wanted, and the plan for {action:?} is {plan}");
    }
    Ok(())
}

/// Malformed Services, from users' reports.
fn hostile(bed: &Bed) -> Vec<Service> {
    let mut services = Vec::new();
    for (number, text) in HOSTILE.iter().enumerate() {
        let named = |what: &str| bed.service(&format!("{what}-{number}"));
        let mut annotated = named("annotation");
        annotated.metadata.annotations.insert(ANNOTATION_SOURCE_RANGES.into(), (*text).into());
        let mut ranges = named("ranges");
        ranges.spec.load_balancer_source_ranges = Some(vec![(*text).into()]);
        let mut words = named("words");
        words.spec.load_balancer_ip = (*text).into();
        words.spec.external_traffic_policy = (*text).into();
        words.spec.session_affinity = (*text).into();
        words.spec.ip_families = vec![(*text).into()];
        let mut ports = named("ports");
        ports.spec.ports = vec![port(80, 30080)];
        if let Some(port) = ports.spec.ports.first_mut() {
            (port.protocol, port.name) = ((*text).into(), (*text).into());
        }
        services.extend([annotated, ranges, words, ports]);
    }
    for (number, ports) in
        [vec![], vec![port(0, 0)], vec![port(-1, -1)], vec![port(i32::MAX, i32::MIN)], vec![port(80, 1); 300]]
            .into_iter()
            .enumerate()
    {
        let mut odd = bed.service(&format!("ports-{number}-odd"));
        odd.spec.ports = ports;
        services.push(odd);
    }
    let mut no_uid = bed.service("no-uid");
    no_uid.metadata.uid = "".into();
    let mut long = bed.service("long");
    long.metadata.uid = "u-".repeat(10_000).into();
    services.extend([no_uid, long]);
    services
}

pub(super) async fn hostile_services_neither_panic_nor_leak(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let balancer = bed.balancer()?;
    let (good, nodes) = (bed.service("good"), bed.nodes(&["one"]).await);
    ensured(&bed, &good, &nodes).await?;
    let before = bed.contents().await;
    for service in hostile(&bed) {
        // Both answers are allowed.
        drop(balancer.ensure(CLUSTER, &service, &nodes).await);
        drop(balancer.update(CLUSTER, &service, &nodes).await);
        let deleted = bed.finished(async || balancer.ensure_deleted(CLUSTER, &service).await).await;
        let (key, now) = (service.key(), bed.contents().await);
        holds!(now == before, "{key}: deleted ({deleted:?}), and the cloud holds {now:?} instead of {before:?}");
        holds!(deleted.is_ok(), "{key} can't be deleted, so its finalizer stays for ever: {deleted:?}");
    }
    is_settled(&bed, &good, &nodes).await
}
