//! Snapshots: observations over HTTP give the same plan without AWS.

use ccm_provider::flag::FlagValues;
use ccm_provider::{CloudProvider, LoadBalancerExt as _, ProviderFactory, Service, ServiceAction, ServiceWork};
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER, service};
use crate::leader::lend;

fn desired(name: &str, kind: &str, ports: &[(i32, i32)]) -> Service {
    service(name, &[("type", kind)], ports, json!({}))
}

/// The local plan, after a comparison with the plan from the text of the snapshot; and that text.
async fn same(provider: &dyn CloudProvider, item: &ServiceWork) -> (Result<String, String>, String) {
    let here = provider.load_balancer().unwrap();
    let planned = here.plan(CLUSTER, item).await.map(|plan| serde_json::to_string(&plan).unwrap());
    let observed = here.observe(CLUSTER, item).await.unwrap_or(Value::Null).to_string();
    let facts = provider.facts().to_string();
    let there = ccm_provider_aws::Factory
        .replay(&serde_json::from_str(&facts).unwrap(), &FlagValues::default())
        .unwrap()
        .expect("plans of this provider can be replayed");
    let replayed = there.plan_observed(CLUSTER, item, &serde_json::from_str(&observed).unwrap());
    let replayed = replayed.map(|plan| serde_json::to_string(&plan).unwrap());
    let (planned, replayed) = (planned.map_err(|e| e.to_string()), replayed.map_err(|e| e.to_string()));
    assert_eq!(planned, replayed, "{:?} of {}", item.action, item.service.key());
    (planned, format!("{facts}\n{observed}"))
}

#[tokio::test]
async fn plans_from_snapshots_are_the_plans_before_and_after_a_sync() {
    for more_config in ["", "NLBSecurityGroupMode = Managed\nClusterServiceLoadBalancerHealthProbeMode = Shared"] {
        let bed = Bed::start(more_config);
        let services = [desired("net", "nlb", &[(80, 31080), (443, 31443)]), desired("old", "clb", &[(80, 32080)])];
        let changed = [desired("net", "nlb", &[(80, 31080), (8443, 31843)]), desired("old", "clb", &[(8080, 32088)])];
        let mark = bed.aws.mark();
        for stage in ["before", "after"] {
            let provider = bed.provider().await;
            lend(&bed.aws, &*provider).await;
            let balancers = provider.load_balancer().unwrap();
            for service in services.iter().chain(&changed) {
                for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete] {
                    let item = ServiceWork {
                        service: service.clone().into(),
                        nodes: bed.nodes.clone().into(),
                        action,
                        namespace: None,
                    };
                    let (plan, kept) = same(&*provider, &item).await;
                    if action == ServiceAction::Ensure {
                        let plan: Value = serde_json::from_str(&plan.unwrap()).unwrap();
                        let settled = stage == "after" && services.contains(service);
                        assert_eq!(plan["steps"] == json!([]), settled, "{stage} {}: {plan}", service.key());
                    }
                    for secret in ["SecretAccessKey", "secret", "Token", "Credential"] {
                        assert!(!kept.contains(secret), "{secret}: {kept}");
                    }
                }
            }
            if stage == "before" {
                assert_eq!(bed.writes(mark), Vec::<String>::new());
                for service in &services {
                    bed.ensure(&*balancers, service).await;
                }
            }
        }
        bed.check();
    }
}

#[tokio::test]
async fn a_snapshot_has_the_names_of_subnets_that_a_wildcard_matches() {
    let bed = Bed::start("");
    bed.aws.world(|world| {
        for (id, zone) in bed.network.public.iter().zip(["a", "b"]) {
            let tags = &mut world.ec2.subnets.get_mut(id).unwrap().tags;
            tags.insert("Name".to_owned(), format!("public-{zone}-1"));
        }
    });
    let provider = bed.provider().await;
    lend(&bed.aws, &*provider).await;
    for kind in ["nlb", "clb"] {
        let annotations = [("type", kind), ("subnets", "public-a-*,public-b-?")];
        let web = service("web", &annotations, &[(80, 31080)], json!({}));
        let nodes = bed.nodes.clone().into();
        let item = ServiceWork { service: web.into(), nodes, action: ServiceAction::Ensure, namespace: None };
        let plan = same(&*provider, &item).await.0.unwrap();
        assert!(bed.network.public.iter().all(|id| plan.contains(id)), "{plan}");
    }
}
