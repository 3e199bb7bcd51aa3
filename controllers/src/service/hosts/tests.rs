use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ccm_provider::service::ObjectMeta;
use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{LoadBalancer, Scope, ServiceAnswer, ServiceSpec};
use ccm_runtime::runner::Reconciler as _;

use super::super::{Config, RelatedObjects, Role};
use super::*;
use crate::test_shared::{Events, shared};

/// Counts the questions about backends.
#[derive(Default)]
struct Cloud(AtomicUsize);

#[async_trait]
impl LoadBalancer for Cloud {
    fn backend<'n>(&self, _: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        node.provider_id.as_deref().map(Into::into)
    }

    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(None)
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        work.iter().map(|_| Ok(None).into()).collect()
    }
}

const SERVICES: usize = 2000;
const NODES: usize = 5000;

fn node(number: usize, version: usize, color: &str) -> Node {
    Node {
        name: format!("n{number:04}").into(),
        // Some nodes are no hosts.
        provider_id: (number % 100 != 7).then(|| format!("fake://{number}").into()),
        labels: [("color", color)].into_iter().collect(),
        resource_version: version.to_string().into(),
        ..Node::default()
    }
}

/// A controller that has synced all Services.
fn controller() -> (Arc<ServiceController>, Arc<Cloud>) {
    let (shared, cloud) = (shared(), Arc::new(Cloud::default()));
    let config = Config {
        role: Role::standard([]),
        concurrent_syncs: None,
        drift_check_period: Duration::ZERO,
        drift_repair: false,
        allow_emptying: false,
        conditions: false,
    };
    let related = RelatedObjects::default();
    let controller = ServiceController::new(shared, cloud.clone(), related, Arc::new(Events::default()), config);
    let controller = Arc::new(controller);
    controller.clone().listen();
    (0..NODES).for_each(|number| controller.shared.nodes.apply(node(number, number + 1, "blue")));
    let chosen = controller.chosen(&Service::default(), &controller.all_candidates());
    for number in 0..SERVICES {
        let metadata = ObjectMeta { name: format!("s{number}").into(), ..ObjectMeta::default() };
        let spec = ServiceSpec { kind: "LoadBalancer".into(), ..ServiceSpec::default() };
        let service = Arc::new(Service { metadata, spec, ..Service::default() });
        controller.remember(&service.key(), &service);
        let mut all = controller.lock();
        let known = all.get_mut(&service.key()).unwrap();
        known.hosts = Some(chosen.hosts.clone());
        known.among = chosen.among.clone();
    }
    cloud.0.store(0, Ordering::Relaxed);
    (controller, cloud)
}

/// One pass: the questions to the provider, the pieces between which other tasks have a turn, and the most questions in
/// one of them.
struct Passed {
    asked: usize,
    pieces: usize,
    most: usize,
}

async fn pass(controller: &ServiceController, cloud: &Cloud) -> Passed {
    let asked = || cloud.0.load(Ordering::Relaxed);
    let (mut passed, mut under_check) = (Passed { asked: 0, pieces: 0, most: 0 }, BTreeSet::new());
    let mut pass = pin!(controller.node_pass(&mut under_check));
    std::future::poll_fn(|cx| {
        let before = asked();
        let polled = pass.as_mut().poll(cx).map(drop);
        passed.most = passed.most.max(asked() - before);
        passed.pieces += 1;
        polled
    })
    .await;
    passed.asked = cloud.0.swap(0, Ordering::Relaxed);
    passed
}

/// Every change of a node asks about this node only, whatever the number of nodes.
#[tokio::test]
async fn a_pass_over_many_services_asks_only_about_the_nodes_that_changed_and_gives_others_a_turn() {
    let (controller, cloud) = controller();
    let update = |number, version, color| controller.shared.nodes.apply(node(number, version, color));
    let queued = || controller.queue.sizes().0;
    update(3, NODES + 1, "red");
    let Passed { asked, pieces, most } = pass(&controller, &cloud).await;
    assert_eq!((asked, queued()), (2 * SERVICES, 0));
    // The comparison of the nodes, the questions, the records that the hosts are the same.
    assert!(pieces > (2 * SERVICES + SERVICES) / TURN && most <= TURN, "{pieces} pieces, {most} questions in one");
    // What was looked at is not looked at again.
    assert_eq!(pass(&controller, &cloud).await.asked, 0);
    update(NODES + 1, NODES + 2, "blue");
    let Passed { asked, pieces, most } = pass(&controller, &cloud).await;
    assert_eq!((asked, queued()), (SERVICES, SERVICES));
    assert!(pieces > 2 * SERVICES / TURN && most <= TURN, "{pieces} pieces, {most} questions in one");
    let hosts = |name: &str| controller.known(&ServiceKey::parse(&format!("/{name}")).unwrap()).unwrap().hosts.unwrap();
    assert_eq!(hosts("s7").len(), NODES - NODES / 100 + 1);
    assert!(Arc::ptr_eq(&hosts("s7"), &hosts("s1999")), "all have one list");
}

#[tokio::test]
async fn changes_of_nodes_that_wait_for_others_are_no_retries() {
    let (controller, _) = controller();
    assert_eq!(controller.shared.metrics.sample("workqueue_retries_total{name=\"node\"}"), Some(0.0));
}

#[tokio::test]
async fn a_node_that_is_registered_again_without_its_instance_empties_nothing() {
    let (controller, _) = controller();
    let key =
        Service { metadata: ObjectMeta { name: "s0".into(), ..ObjectMeta::default() }, ..Service::default() }.key();
    let hosts: Arc<[NodeRef]> = [node(1, 1, "blue"), node(2, 1, "blue")].map(NodeRef::from).into();
    controller.lock().get_mut(&key).unwrap().reach(&hosts);
    let known = || controller.known(&key).unwrap();
    assert!(controller.may_empty(&known()).await.is_ok(), "both are there");
    for number in [1, 2] {
        controller.shared.nodes.apply(Node { provider_id: None, ..node(number, 2 * NODES + number, "blue") });
    }
    let kept = controller.may_empty(&known()).await.err().and_then(|kept| kept.hosts);
    assert_eq!(kept.map(|kept| kept.len()), Some(2));
}

#[tokio::test]
async fn the_back_off_of_a_failed_clean_up_ends_at_half_a_minute() {
    let (controller, _) = controller();
    for (kind, longest) in [("ClusterIP", Duration::from_secs(30)), ("LoadBalancer", Duration::MAX)] {
        let finalizers = vec![FINALIZER_LOAD_BALANCER.into()];
        let metadata = ObjectMeta { name: kind.into(), finalizers, ..ObjectMeta::default() };
        let spec = ServiceSpec { kind: kind.into(), ..ServiceSpec::default() };
        let service = Service { metadata, spec, ..Service::default() };
        controller.shared.services.apply(service.clone());
        assert_eq!(controller.longest_delay(&Work::Sync(service.key())), longest, "{kind}");
    }
}
