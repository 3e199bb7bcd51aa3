//! Network balancers over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancerExt as _, Service};
use serde_json::{Value, json};

use crate::bed::{Bed, CERTIFICATE, CLUSTER, service, shape_of};
use crate::leader::watched;

pub(crate) const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";
const MANAGED: &str = "NLBSecurityGroupMode = Managed";

/// A Service of type `nlb`.
fn nlb(annotations: &[(&str, &str)], ports: &[(i32, i32)], spec: Value) -> Service {
    service("web", &[annotations, &[("type", "nlb")]].concat(), ports, spec)
}

pub(crate) fn plain() -> Service {
    nlb(&[], &[(80, 31080), (443, 31443)], json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}))
}

/// Another desired state of the same Service, which changes most settings.
pub(crate) fn changed() -> Service {
    nlb(
        &[
            ("ssl-cert", CERTIFICATE),
            ("ssl-ports", "443"),
            ("cross-zone-load-balancing-enabled", "true"),
            ("target-group-attributes", "proxy_protocol_v2.enabled=true"),
        ],
        &[(443, 31443), (8443, 31844)],
        json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}),
    )
}

pub(crate) fn start() -> Bed {
    Bed::start(MANAGED)
}

#[tokio::test]
async fn a_balancer_is_made_changed_and_removed_without_a_trace() {
    let bed = start();
    let empty = shape_of(&bed);
    let process = bed.process().await;
    let status = bed.ensure(&*process, &plain()).await;
    assert!(status.ingress[0].hostname.contains(".elb.us-west-2."), "{status:?}");
    let (balancers, listeners, groups) =
        bed.aws.world(|world| (world.elbv2.balancers.len(), world.elbv2.listeners.len(), world.elbv2.groups.len()));
    assert_eq!((balancers, listeners, groups), (1, 2, 2));
    let targets: Vec<usize> =
        bed.aws.world(|world| world.elbv2.groups.values().map(|group| group.targets.len()).collect());
    assert_eq!(targets, [3, 3]);
    assert_eq!(process.get(CLUSTER, &plain()).await.unwrap(), Some(status.clone()));

    bed.ensure(&*process, &changed()).await;
    let (ports, cross_zone) = bed.aws.world(|world| {
        let ports: BTreeMap<u16, String> =
            world.elbv2.listeners.values().map(|one| (one.port, one.protocol.clone())).collect();
        let balancer = world.elbv2.balancers.values().next().unwrap();
        (ports, balancer.attributes.get("load_balancing.cross_zone.enabled").cloned())
    });
    assert_eq!(ports, BTreeMap::from([(443, "TLS".to_owned()), (8443, "TCP".to_owned())]));
    assert_eq!(cross_zone.as_deref(), Some("true"));

    bed.delete(&*process, &changed()).await;
    assert_eq!(shape_of(&bed), empty);
    assert_eq!(process.get(CLUSTER, &changed()).await.unwrap(), None);
    bed.check();
}

#[tokio::test]
async fn elements_that_nobody_knows_yet_change_nothing() {
    let bed = start();
    bed.ensure(&*bed.process().await, &plain()).await;
    bed.aws.fault(Rule::every(Fault::UnknownElements));
    let mark = bed.aws.mark();
    bed.ensure(&*bed.process().await, &plain()).await;
    assert_eq!(bed.writes(mark), Vec::<String>::new());
}

#[tokio::test]
async fn a_second_sync_and_a_restart_write_nothing() {
    let bed = start();
    let process = bed.process().await;
    // Four for the balancer, one for the targets of each port, and one more if attributes are wanted; and the groups,
    // which are read once for all Services that sync at the same time.
    for (desired, most) in [(plain(), 7), (changed(), 9)] {
        bed.ensure(&*process, &desired).await;
        bed.stays(&*process, &desired, most).await;
    }
    bed.check();
}

#[tokio::test]
async fn nodes_come_and_go() {
    let mut bed = start();
    let process = bed.process().await;
    bed.ensure(&*process, &plain()).await;
    bed.add_nodes(1);
    let gone = bed.nodes.remove(0);
    let mark = bed.aws.mark();
    process.update(CLUSTER, &plain(), &bed.nodes).await.unwrap();
    assert_eq!(bed.writes(mark), ["RegisterTargets", "DeregisterTargets", "RegisterTargets", "DeregisterTargets"]);
    let id = gone.provider_id.as_deref().unwrap().rsplit('/').next().unwrap().to_owned();
    let draining = bed.aws.world(|world| {
        let targets = world.elbv2.groups.values().flat_map(|group| group.targets.values());
        targets.filter(|target| target.draining_until.is_some()).all(|target| target.id == id)
    });
    assert!(draining);
    bed.check();
}

/// Upstream: `DuplicateTargetGroupName` forever.
#[tokio::test]
async fn a_certificate_comes_and_goes_on_an_existing_port() {
    let bed = start();
    let process = bed.process().await;
    let tcp = nlb(&[], &[(443, 31443)], json!({}));
    let tls = nlb(&[("ssl-cert", CERTIFICATE)], &[(443, 31443)], json!({}));
    bed.ensure(&*process, &tcp).await;
    let before = shape_of(&bed);
    for desired in [&tls, &tcp] {
        let mark = bed.aws.mark();
        bed.ensure(&*process, desired).await;
        assert_eq!(bed.writes(mark), ["ModifyListener"]);
    }
    assert_eq!(shape_of(&bed), before);
    bed.check();
}

/// EC2 shows a new instance late. It is registered as soon as it is visible, not when something else changes.
#[tokio::test]
async fn an_instance_that_is_not_shown_yet_is_looked_for_again() {
    for kind in ["nlb", "clb"] {
        let mut bed = Bed::start("");
        let (process, cluster) = watched(&bed).await;
        let desired = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
        bed.ensure(&*process, &desired).await;
        bed.aws.change(|options| options.lag = Lag::default().with("instance", Duration::from_secs(30)));
        let late = new_node(&mut bed, Duration::ZERO);
        cluster.take_events();
        let error = process.update(CLUSTER, &desired, &bed.nodes).await.unwrap_err();
        assert!(error.is_in_progress() && error.to_string().contains("EC2 does not show"), "{error:?}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(10)));
        bed.aws.clock().step(Duration::from_secs(40));
        let process = watched(&bed).await.0;
        process.update(CLUSTER, &desired, &bed.nodes).await.unwrap();
        assert_eq!(bed.hosts(), [4], "{kind}");

        // After five minutes the missing instance is reported, and nothing waits for it.
        bed.aws.change(|options| options.lag = Lag::default().with("instance", Duration::from_secs(300)));
        let (process, cluster) = watched(&bed).await;
        bed.aws.clock().step(Duration::from_secs(400));
        let gone = new_node(&mut bed, Duration::from_secs(301));
        process.update(CLUSTER, &desired, &bed.nodes).await.unwrap();
        let events = cluster.take_events();
        let summary = |name: &str| events.iter().any(|event| event.contains(&format!("no traffic for {name}: EC2")));
        assert!(summary(&gone) && !summary(&late), "{events:?}");
        bed.check();
    }
}

/// A node of this age whose instance was just launched.
fn new_node(bed: &mut Bed, age: Duration) -> String {
    bed.add_nodes(1);
    let now = bed.aws.clock().now();
    let node = Arc::make_mut(bed.nodes.last_mut().unwrap());
    node.created = Some(now - age);
    let id = node.provider_id.as_deref().unwrap().rsplit('/').next().unwrap().to_owned();
    bed.aws.world(|world| world.ec2.instances.get_mut(&id).unwrap().created = now);
    node.name.to_string()
}

#[tokio::test]
async fn a_new_node_whose_tags_are_not_shown_yet_is_read_again() {
    for kind in ["nlb", "clb"] {
        let mut bed = Bed::start("");
        let (process, cluster) = watched(&bed).await;
        let desired = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
        bed.ensure(&*process, &desired).await;
        new_node(&mut bed, Duration::from_secs(30));
        let id = bed.nodes[3].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        let swap =
            |tags| bed.aws.world(|world| std::mem::replace(&mut world.ec2.instances.get_mut(&id).unwrap().tags, tags));
        let tags = swap(Default::default());
        let error = process.update(CLUSTER, &desired, &bed.nodes).await.unwrap_err();
        assert_eq!(
            (error.is_in_progress(), error.retry_after()),
            (true, Some(Duration::from_secs(10))),
            "{kind}: {error}"
        );
        assert_eq!(bed.hosts(), [3], "{kind}");
        assert_eq!(cluster.take_events(), Vec::<String>::new(), "{kind}");
        swap(tags);
        let process = watched(&bed).await.0;
        process.update(CLUSTER, &desired, &bed.nodes).await.unwrap();
        assert_eq!(bed.hosts(), [4], "{kind}");
        bed.check();
    }
}

/// Reads may be older than the last write. The last node list counts, even if no other follows.
#[tokio::test]
async fn a_target_that_comes_and_goes_at_once_is_no_target_in_the_end() {
    for kind in ["nlb", "clb"] {
        let mut bed = Bed::start("");
        let (process, cluster) = watched(&bed).await;
        let desired = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
        bed.ensure(&*process, &desired).await;
        bed.add_nodes(1);
        bed.aws.clock().step(Duration::from_secs(60));
        bed.aws.change(|options| options.stale_reads = Duration::from_secs(3));
        let mut nodes = bed.nodes.clone();
        process.update(CLUSTER, &desired, &nodes).await.unwrap();
        for count in [3, 4] {
            nodes = bed.nodes[..count].to_vec();
            let error = process.update(CLUSTER, &desired, &nodes).await.unwrap_err();
            assert!(error.is_in_progress(), "{kind}: {error:?}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(2)), "{kind}");
            for _ in 0..5 {
                bed.aws.clock().step(Duration::from_secs(2));
                if process.update(CLUSTER, &desired, &nodes).await.is_ok() {
                    break;
                }
            }
            assert_eq!(bed.hosts(), [count], "{kind}");
        }
        assert_eq!(cluster.take_events(), Vec::<String>::new(), "{kind}");
    }
}

/// The sync does not wait for visible objects.
#[tokio::test]
async fn a_deletion_right_after_the_creation_is_one_attempt_and_no_warning() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start(MANAGED);
        let empty = shape_of(&bed);
        let (process, cluster) = watched(&bed).await;
        let desired = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
        process.ensure(CLUSTER, &desired, &bed.nodes).await.unwrap();
        match process.ensure_deleted(CLUSTER, &desired).await {
            Ok(()) => {}
            // EC2 deletes the interfaces of a classic balancer some time later.
            Err(error) => {
                assert!(error.to_string().contains("cannot be deleted yet"), "{kind}: {error}");
                bed.delete(&*process, &desired).await;
            }
        }
        assert_eq!(shape_of(&bed), empty, "{kind}");
        assert_eq!(cluster.take_events(), Vec::<String>::new(), "{kind}");
        bed.check();
    }
}

/// Objects that AWS does not show yet are not leaked, and waiting for them is no failure.
#[tokio::test]
async fn a_deletion_waits_for_what_is_not_shown_yet() {
    for hidden in ["load-balancer", "target-group"] {
        let bed = Bed::start(MANAGED);
        let empty = shape_of(&bed);
        let (process, _cluster) = watched(&bed).await;
        bed.aws.clock().step(Duration::from_secs(60));
        let desired = nlb(&[], &[(80, 31080)], json!({}));
        process.ensure(CLUSTER, &desired, &bed.nodes).await.unwrap();
        bed.aws.change(|options| options.lag = Lag::default().with(hidden, Duration::from_secs(3)));
        let error = process.ensure_deleted(CLUSTER, &desired).await.unwrap_err();
        assert!(error.is_in_progress(), "{hidden}: {error:?}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
        bed.delete(&*process, &desired).await;
        assert_eq!(shape_of(&bed), empty, "{hidden}");
    }
}

/// AWS needs no time in which to show what is deleted.
#[tokio::test]
async fn a_balancer_that_comes_back_right_after_its_deletion_waits_for_nothing() {
    for config in ["", MANAGED] {
        for kind in ["nlb", "clb"] {
            let bed = Bed::start(config);
            let process = bed.process().await;
            let desired = |ports| service("web", &[("type", kind)], ports, json!({}));
            bed.ensure(&*process, &desired(&[(80, 31080)])).await;
            bed.ensure(&*process, &desired(&[(80, 31080), (443, 31443)])).await;
            bed.delete(&*process, &desired(&[(80, 31080)])).await;
            let made = process.ensure(CLUSTER, &desired(&[(80, 31080)]), &bed.nodes).await;
            assert!(made.is_ok(), "{config} {kind}: {made:?}");
        }
    }
}
