//! Services that are deleted right after their creation, while AWS does not show the new objects yet.

use std::time::Duration;

use ccm_cloudsim::core::lag::Lag;
use ccm_provider::LoadBalancerExt as _;
use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service, shape_of};

#[tokio::test]
async fn a_deletion_waits_until_aws_shows_what_was_made() {
    for kind in ["nlb", "clb"] {
        for hidden in ["load-balancer", "target-group", "security-group", "tags"] {
            let bed = Bed::start("NLBSecurityGroupMode = Managed");
            let empty = shape_of(&bed);
            let process = bed.process().await;
            let web = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
            bed.aws.change(|options| options.lag = Lag::default().with(hidden, Duration::from_secs(5)));
            // It may fail half-way, because it does not see what it has made.
            let made = process.ensure(CLUSTER, &web, &bed.nodes).await;
            assert_ne!(shape_of(&bed), empty, "{kind} {hidden}: {made:?}");
            bed.delete(&*process, &web).await;
            assert_eq!(shape_of(&bed), empty, "{kind} {hidden}");
        }
    }
}

/// The process that created it has ended, and only the API knows what it wrote.
#[tokio::test]
async fn a_new_leader_deletes_what_the_former_one_has_just_made() {
    for kind in ["nlb", "clb"] {
        for hidden in ["load-balancer", "target-group", "security-group"] {
            let bed = Bed::start("NLBSecurityGroupMode = Managed");
            let empty = shape_of(&bed);
            let mut web = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
            web.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.into()];
            bed.aws.change(|options| options.lag = Lag::default().with(hidden, Duration::from_secs(8)));
            let made = bed.process().await.ensure(CLUSTER, &web, &bed.nodes).await;
            assert_ne!(shape_of(&bed), empty, "{kind} {hidden}: {made:?}");
            let next = bed.process().await;
            web.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
            assert!(next.get(CLUSTER, &web).await.unwrap().is_some(), "{kind} {hidden}: it may be there");
            bed.delete(&*next, &web).await;
            assert_eq!(shape_of(&bed), empty, "{kind} {hidden}");
        }
    }
}

#[tokio::test]
async fn what_aws_does_not_show_yet_is_no_failure() {
    for kind in ["nlb", "clb"] {
        for hidden in ["load-balancer", "target-group", "security-group", "tags"] {
            let bed = Bed::start("NLBSecurityGroupMode = Managed");
            let process = bed.process().await;
            let web = service("web", &[("type", kind)], &[(80, 31080)], json!({}));
            // The network is older.
            bed.aws.clock().step(Duration::from_secs(60));
            bed.aws.change(|options| options.lag = Lag::default().with(hidden, Duration::from_secs(5)));
            let mut errors = Vec::new();
            for _ in 0..10 {
                match process.ensure(CLUSTER, &web, &bed.nodes).await {
                    Ok(_) => break,
                    Err(error) => errors.push(error),
                }
                bed.aws.clock().step(Duration::from_secs(2));
            }
            let failures: Vec<_> = errors.iter().filter(|error| !error.is_in_progress()).collect();
            assert!(failures.is_empty() && errors.len() < 10, "{kind} {hidden}: {errors:#?}");
            assert_eq!(bed.hosts(), [3], "{kind} {hidden}");
        }
    }
}
