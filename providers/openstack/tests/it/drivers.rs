//! Drivers and versions of Octavia with fewer features, and certificates.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::{CatalogEntry, Options, World};
use ccm_provider::ServiceAction;
use serde_json::{Value, json};

use crate::scene::{LBS, Scene, service, set, simulated, simulated_with, texts, unset, web};

/// An Octavia with this latest API version.
fn octavia(minor: u32) -> Options {
    Options { balancer_versions: (0..=minor).map(|minor| format!("v2.{minor}")).collect(), ..Options::default() }
}

const OVN: &str = "[LoadBalancer]\nlb-provider = ovn\nlb-method = SOURCE_IP_PORT\ncreate-monitor = true\n";

#[tokio::test]
async fn ovn_is_steady_with_local_traffic_and_monitors() {
    simulated(async |scene: &mut Scene| {
        scene.configure(OVN).await;
        let mut web = web();
        web.spec.external_traffic_policy = "Local".to_owned();
        web.spec.health_check_node_port = 32000;
        scene.ensure(&mut web).await;
        assert_eq!(
            (&scene.monitors().await[0]["type"], &scene.pool().await["lb_algorithm"]),
            (&json!("TCP"), &json!("SOURCE_IP_PORT"))
        );
        assert_eq!(scene.whole_members().await[0]["monitor_port"], Value::Null);
        assert_eq!(scene.events().len(), 1, "the health check that ovn does not have");
        scene.is_steady(&mut web).await;
        scene.nodes.pop();
        scene.update_hosts(&mut web).await;
        scene.is_steady(&mut web).await;
        assert_eq!(scene.events(), Vec::<String>::new());
    })
    .await;
}

/// Each refusal of Octavia leaves a port in Neutron.
#[tokio::test]
async fn what_ovn_refuses_is_not_sent_for_a_new_balancer_and_does_not_hold_up_an_old_one() {
    simulated(async |scene: &mut Scene| {
        let vips = "/v2.0/ports?device_owner=Octavia";
        scene.configure("[LoadBalancer]\nlb-provider = ovn\n").await;
        let mut web = web();
        let (calls, error) = scene.counted(scene.refused(&mut web)).await;
        assert!(error.contains("lb-method ROUND_ROBIN") && error.contains("cloud.conf"), "{error}");
        assert_eq!(calls.of("loadbalancer_create"), 0, "{calls:?}");
        scene.configure(OVN).await;
        let (project, url) = (scene.place().project.clone(), scene.simulation().url());
        let certificate = format!("{url}/v1/secrets/{}", scene.simulation().world(|world| world.secret(&project)));
        for (key, value) in [
            ("proxy-protocol", "true"),
            ("x-forwarded-for", "true"),
            ("lb-method", "ROUND_ROBIN"),
            ("default-tls-container-ref", &certificate),
        ] {
            set(&mut web, key, value);
            let (calls, error) = scene.counted(scene.refused(&mut web)).await;
            assert!(error.contains(key), "{error}");
            assert_eq!(calls.of("loadbalancer_create"), 0, "{calls:?}");
            unset(&mut web, key);
        }
        assert_eq!(scene.list(vips).await.len(), 0);
        scene.ensure(&mut web).await;
        set(&mut web, "lb-method", "ROUND_ROBIN");
        scene.nodes.pop();
        scene.ensure(&mut web).await;
        assert_eq!(scene.members().await.len(), 2);
    })
    .await;
}

/// What serves goes on, and its members follow the nodes.
#[tokio::test]
async fn what_ovn_refuses_takes_nothing_away() {
    simulated(async |scene: &mut Scene| {
        let project = scene.place().project.clone();
        let url = scene.simulation().url();
        let secret = scene.simulation().world(|world| world.secret(&project));
        scene.configure(OVN).await;
        let mut web = web();
        let address = scene.ensure(&mut web).await;
        let spare = scene.nodes.pop().unwrap();
        for (key, value) in [
            ("proxy-protocol", "true"),
            ("x-forwarded-for", "true"),
            ("default-tls-container-ref", &*format!("{url}/v1/secrets/{secret}")),
        ] {
            set(&mut web, key, value);
            let (calls, error) = scene.counted(scene.refused(&mut web)).await;
            assert!(error.contains(key) && error.contains("ovn refuses it"), "{error}");
            assert!(calls.writes().is_empty() || calls.writes() == "loadbalancer_members_update 1", "{calls:?}");
            assert_eq!(scene.members().await.len(), scene.nodes.len(), "{key}");
            unset(&mut web, key);
            match scene.nodes.len() {
                2 => scene.nodes.push(spare.clone()),
                _ => drop(scene.nodes.pop()),
            }
        }
        assert_eq!(scene.ensure(&mut web).await, address);
    })
    .await;
}

#[tokio::test]
async fn the_second_version_of_the_proxy_protocol_is_not_asked_of_an_octavia_without_it() {
    simulated_with(octavia(21), async |scene: &mut Scene| {
        let mut web = web();
        set(&mut web, "proxy-protocol", "v2");
        let (calls, error) = scene.counted(scene.refused(&mut web)).await;
        assert!(error.contains("proxy-protocol") && error.contains("2.22"), "{error}");
        assert_eq!(calls.writes(), "");
        set(&mut web, "proxy-protocol", "v1");
        scene.ensure(&mut web).await;
        set(&mut web, "proxy-protocol", "v2");
        scene.nodes.pop();
        let (calls, error) = scene.counted(scene.refused(&mut web)).await;
        assert!(error.contains("proxy-protocol") && error.contains("2.22"), "{error}");
        assert_eq!(
            (calls.writes(), scene.pool().await["protocol"].clone()),
            ("loadbalancer_members_update 1".to_owned(), json!("PROXY"))
        );
    })
    .await;
}

/// The provider of cloud.conf is that of new balancers.
#[tokio::test]
async fn a_balancer_of_another_provider_than_the_configured_one_keeps_its_features() {
    simulated(async |scene: &mut Scene| {
        let managed = "[LoadBalancer]\nmanage-security-groups = true\n";
        scene.configure(managed).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        scene.configure(&format!("{OVN}manage-security-groups = true\n")).await;
        set(&mut web, "lb-method", "ROUND_ROBIN");
        web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
        scene.ensure(&mut web).await;
        assert_eq!(scene.listener().await["allowed_cidrs"], json!(["192.0.2.0/24"]));
        let rules = scene.rules().await;
        assert!(rules.len() == 1 && rules[0].contains("10.50.0.0/24"), "{rules:?}");
        scene.is_steady(&mut web).await;
        let events = scene.events();
        assert!(!events.iter().any(|event| event.contains("ignored")), "{events:?}");
        scene.delete(&mut web).await;
        // The other way round.
        unset(&mut web, "lb-method");
        scene.ensure(&mut web).await;
        scene.configure(managed).await;
        set(&mut web, "lb-method", "SOURCE_IP_PORT");
        set(&mut web, "timeout-client-data", "60000");
        scene.ensure(&mut web).await;
        let rules = scene.rules().await;
        assert!(rules.len() == 1 && rules[0].contains("192.0.2.0/24"), "{rules:?}");
        scene.is_steady(&mut web).await;
    })
    .await;
}

/// amphora refuses it only in a later change.
#[tokio::test]
async fn an_algorithm_that_amphora_takes_at_creation_is_sent() {
    simulated(async |scene: &mut Scene| {
        let mut web = web();
        set(&mut web, "lb-method", "SOURCE_IP_PORT");
        scene.ensure(&mut web).await;
        assert_eq!(scene.pool().await["lb_algorithm"], "SOURCE_IP_PORT");
        scene.is_steady(&mut web).await;
        // A pool of another protocol would be refused after its listener is replaced.
        set(&mut web, "x-forwarded-for", "true");
        let (calls, error) = scene.counted(scene.refused(&mut web)).await;
        assert!(error.contains("lb-method SOURCE_IP_PORT"), "{error}");
        assert_eq!((calls.writes(), scene.members().await.len()), (String::new(), 3));
    })
    .await;
}

#[tokio::test]
async fn ovn_ignores_source_ranges_with_an_event_only_where_they_are_asked_for() {
    simulated(async |scene: &mut Scene| {
        scene.configure(OVN).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        assert_eq!(scene.events(), Vec::<String>::new());
        web.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
        scene.ensure(&mut web).await;
        scene.is_steady(&mut web).await;
        let events = scene.events();
        assert!(events.len() == 1 && events[0].starts_with("LoadBalancerSourceRangesIgnored: "), "{events:?}");
    })
    .await;
}

#[tokio::test]
async fn an_octavia_before_udp_checks_over_http_is_steady() {
    simulated_with(octavia(15), async |scene: &mut Scene| {
        scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
        let mut web = web();
        web.spec.ports[0].protocol = "UDP".to_owned();
        web.spec.external_traffic_policy = "Local".to_owned();
        web.spec.health_check_node_port = 32000;
        scene.ensure(&mut web).await;
        assert_eq!(scene.monitors().await[0]["type"], "UDP-CONNECT");
        scene.is_steady(&mut web).await;
    })
    .await;
}

#[tokio::test]
async fn an_octavia_without_cidrs_zones_and_tags_gets_none() {
    simulated_with(octavia(4), async |scene: &mut Scene| {
        scene.configure("[LoadBalancer]\navailability-zone = one\n").await;
        let mut web = web();
        scene.ensure(&mut web).await;
        assert_eq!((texts(&scene.balancer().await["tags"]), texts(&scene.listener().await["tags"])), (vec![], vec![]));
        assert!(scene.events()[0].starts_with("LoadBalancerAvailabilityZonesIgnored: "));
        scene.is_steady(&mut web).await;
        let mut api = service("api", &[(8080, 30808)], json!({}));
        set(&mut api, "load-balancer-id", crate::scene::annotation(&web, "load-balancer-id").unwrap());
        let error = scene.refused(&mut api).await;
        assert!(error.contains("has no tags to share it"), "{error}");
        scene.delete(&mut web).await;
        scene.is_empty().await;
    })
    .await;
}

/// One listener per port, whatever its protocol.
#[tokio::test]
async fn an_octavia_before_cidrs_replaces_a_listener_by_one_of_the_other_transport() {
    simulated_with(octavia(11), async |scene: &mut Scene| {
        let mut web = web();
        for protocol in ["UDP", "TCP"] {
            scene.ensure(&mut web).await;
            web.spec.ports[0].protocol = protocol.to_owned();
            scene.ensure(&mut web).await;
            assert_eq!(scene.listener().await["protocol"], protocol);
            assert_eq!(
                (scene.listeners().await.len(), scene.pools().await.len(), scene.members().await.len()),
                (1, 1, 3)
            );
            scene.is_steady(&mut web).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_certificate_must_exist_and_is_looked_for_once() {
    simulated(async |scene: &mut Scene| {
        let project = scene.place().project.clone();
        let url = scene.simulation().url();
        let (container, secret) = scene.simulation().world(|world| (world.container(&project), world.secret(&project)));
        let mut web = web();
        for (reference, expected) in [
            ("x".to_owned(), "invalid tlsContainerRef"),
            (format!("{url}/v1/orders/{secret}"), "tlsContainerRef type orders unknown"),
            (format!("{url}/v1/secrets/{container}"), "Barbican has none"),
        ] {
            set(&mut web, "default-tls-container-ref", &reference);
            let error = scene.refused(&mut web).await;
            assert!(error.contains(expected) && error.contains(&reference), "{error}");
            assert!(error.contains("loadbalancer.openstack.org/default-tls-container-ref"), "{error}");
            assert_eq!(scene.balancers().await.len(), 0);
        }
        for (kind, id, call) in [("containers", container, "container_get"), ("secrets", secret, "secret_get")] {
            let reference = format!("{url}/v1/{kind}/{id}");
            set(&mut web, "default-tls-container-ref", &reference);
            let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
            assert_eq!(calls.of(call), 1, "{calls:?}");
            let listener = scene.listener().await;
            assert_eq!(
                (&listener["protocol"], &listener["default_tls_container_ref"]),
                (&json!("TERMINATED_HTTPS"), &json!(reference))
            );
            assert_eq!(scene.pool().await["protocol"], "HTTP");
            let (calls, ()) = scene.counted(scene.is_steady(&mut web)).await;
            assert_eq!(calls.of(call), 0, "{calls:?}");
        }
        unset(&mut web, "default-tls-container-ref");
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!((calls.of("secret_get"), &scene.listener().await["protocol"]), (0, &json!("TCP")));
    })
    .await;
}

/// It is absent, cannot be read, or Octavia refuses it.
#[tokio::test]
async fn a_certificate_that_cannot_be_used_leaves_no_half_of_a_balancer_and_stops_no_member() {
    let vips = "/v2.0/ports?device_owner=Octavia";
    for (case, is_default) in [("absent", false), ("absent", true), ("denied", false), ("refused", false)] {
        simulated(async |scene: &mut Scene| {
            let project = scene.place().project.clone();
            let url = scene.simulation().url();
            let secret = match case {
                "absent" => "0badbad0-1111-4222-8333-444455556666".to_owned(),
                _ => scene.simulation().world(|world| world.secret(&project)),
            };
            let reference = format!("{url}/v1/secrets/{secret}");
            let (mut web, mut new) = (web(), service("new", &[(8080, 30808)], json!({})));
            scene.ensure(&mut web).await;
            if is_default {
                scene.configure(&format!("[LoadBalancer]\ndefault-tls-container-ref = {reference}\n")).await;
            } else {
                set(&mut web, "default-tls-container-ref", &reference);
                set(&mut new, "default-tls-container-ref", &reference);
            }
            let fault = match case {
                "denied" => Some(Fault::Deny),
                "refused" => Some(Fault::Code {
                    status: 400,
                    code: "Client".to_owned(),
                    message: "Could not retrieve certificate".to_owned(),
                }),
                _ => None,
            };
            let service = if case == "refused" { "load-balancer" } else { "key-manager" };
            let on = |fault| Rule { params: Some(secret.clone()), ..Rule::every(fault).on(service, "*") };
            fault.into_iter().for_each(|fault| scene.simulation().fault(on(fault)));
            let spare = scene.nodes.pop().unwrap();
            let error = scene.refused(&mut web).await;
            let says = match case {
                "absent" => "Barbican has none",
                "denied" => "ccm lacks key-manager secret:get",
                _ => "Could not retrieve certificate",
            };
            assert!(error.contains(says), "{case}: {error}");
            assert_eq!((scene.members().await.len(), web.status.load_balancer.ingress.len()), (2, 1), "{case}");
            scene.nodes.push(spare);
            scene.update_hosts(&mut web).await;
            assert_eq!(
                (scene.members().await.len(), &scene.listener().await["protocol"]),
                (3, &json!("TCP")),
                "{case}"
            );
            for round in 0..2 {
                let (calls, error) = scene.counted(scene.refused(&mut new)).await;
                assert!(error.contains(says) && calls.writes().is_empty(), "{case}: {error} {calls:?}");
                assert_eq!(calls.of("loadbalancer_create"), i64::from(case == "refused" && round == 0), "{case}");
                assert_eq!((scene.balancers().await.len(), scene.list(vips).await.len()), (1, 1), "{case}");
            }
            scene.simulation().faults(Faults::clear);
            scene.configure("").await;
            for service in [&mut web, &mut new] {
                unset(service, "default-tls-container-ref");
                scene.ensure(service).await;
            }
        })
        .await;
    }
}

/// The cloud accepts no change of its members: a wait would not end.
#[tokio::test]
async fn a_pool_in_error_is_an_error_of_a_host_update_and_the_next_ensure_repairs_it() {
    simulated(async |scene: &mut Scene| {
        let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
        scene.ensure(&mut web).await;
        let pool = scene.pool().await["id"].as_str().unwrap().to_owned();
        let failed = |world: &mut World| world.row_mut("pool", &pool).unwrap().set("provisioning_status", "ERROR");
        scene.simulation().world(failed);
        scene.nodes.pop();
        let update = scene.process.ask(&mut web, &scene.nodes, ServiceAction::UpdateHosts);
        let (calls, answer) = scene.counted(update).await;
        let error = answer.unwrap_err();
        assert!(!error.is_in_progress() && error.to_string().contains("is in ERROR"), "{error:?}");
        assert!(calls.of("loadbalancer_members_update") < 10, "{calls:?}");
        assert_eq!(scene.members().await.len(), 5);
        scene.ensure(&mut web).await;
        assert_eq!((&scene.pool().await["provisioning_status"], scene.members().await.len()), (&json!("ACTIVE"), 4));
        scene.is_steady(&mut web).await;
    })
    .await;
}

/// The user grants Octavia the right to read it, or the operator enables a provider.
#[tokio::test]
async fn a_refusal_that_others_can_end_is_tried_again_after_minutes() {
    simulated(async |scene: &mut Scene| {
        for text in [
            "Could not retrieve certificate: ['https://vault/v1/secrets/x']",
            "Provider 'amphora' is not enabled.",
            "Validation failure: Invalid flavor_id.",
        ] {
            let mut web = web();
            let fault = Fault::Code { status: 400, code: String::new(), message: text.to_owned() };
            scene.simulation().fault(Rule::every(fault).on("load-balancer", "loadbalancer_create").window(0, 1));
            let pass = |seconds| async move {
                tokio::time::pause();
                tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
                tokio::time::resume();
            };
            scene.refused(&mut web).await;
            pass(60).await;
            let (calls, error) = scene.counted(scene.refused(&mut web)).await;
            assert!(error.contains(text) && calls.writes().is_empty(), "{error}: {calls:?}");
            pass(300).await;
            match text.contains("flavor") {
                true => drop(scene.refused(&mut web).await),
                false => drop(scene.ensure(&mut web).await),
            }
            scene.delete(&mut web).await;
        }
    })
    .await;
}

/// Each trial deletes the listener that serves.
#[tokio::test]
async fn a_listener_that_others_may_let_pass_replaces_another_one_at_most_once_an_hour() {
    simulated(async |scene: &mut Scene| {
        let mut web = web();
        scene.ensure(&mut web).await;
        set(&mut web, "x-forwarded-for", "true");
        let message = "Could not retrieve certificate: ['https://vault/v1/secrets/x']".to_owned();
        let fault = Fault::Code { status: 400, code: String::new(), message };
        // The record of the program on the Service changes with the refusal. The first request is refused for its port.
        let rule = Rule::every(fault).on("load-balancer", "loadbalancer_listener_create").window(1, 1);
        scene.simulation().fault(rule);
        scene.refused(&mut web).await;
        scene.simulation().faults(Faults::clear);
        for (seconds, is_sent) in [(360, false), (3600, true)] {
            assert_eq!(scene.listener().await["protocol"], "TCP");
            tokio::time::pause();
            tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
            tokio::time::resume();
            let (calls, answer) = scene.counted(scene.try_ensure(&mut web)).await;
            assert_eq!(
                (answer.is_ok(), calls.of("loadbalancer_listener_delete")),
                (is_sent, is_sent.into()),
                "{calls:?}"
            );
        }
        assert_eq!(scene.listener().await["protocol"], "HTTP");
    })
    .await;
}

#[tokio::test]
async fn without_key_manager_only_external_certificates_are_taken() {
    let mut options = Options::default();
    options.catalog.retain(|entry: &CatalogEntry| entry.kind != "key-manager");
    simulated_with(options, async |scene: &mut Scene| {
        let mut web = web();
        set(&mut web, "default-tls-container-ref", "https://vault/v1/secrets/x");
        let error = scene.refused(&mut web).await;
        assert!(error.contains("failed to find key-manager"), "{error}");
        scene.configure("[LoadBalancer]\ncontainer-store = external\n").await;
        scene.ensure(&mut web).await;
        assert_eq!(scene.listener().await["protocol"], "TERMINATED_HTTPS");
        scene.is_steady(&mut web).await;
    })
    .await;
}

/// The status of a load balancer does not show pools without a listener.
#[tokio::test]
async fn a_pool_that_the_driver_did_not_delete_is_deleted_again() {
    simulated(async |scene: &mut Scene| {
        for has_status in [true, false] {
            let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
            scene.ensure(&mut web).await;
            web.spec.ports.pop();
            let fault = || Fault::Operation { status: 500, code: "ERROR".to_owned(), message: "ERROR".to_owned() };
            let once = |action: &str| Rule::every(fault()).on("load-balancer", action).window(0, 1);
            scene.simulation().fault(once("loadbalancer_pool_delete"));
            if !has_status {
                scene.simulation().fault(Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_status_get"));
                scene.restart().await;
            }
            let error = scene.refused(&mut web).await;
            assert!(error.contains("in ERROR: pool pool_1_"), "{error}");
            assert_eq!((scene.listeners().await.len(), scene.pools().await.len()), (1, 2));
            scene.ensure(&mut web).await;
            assert_eq!(scene.pools().await.len(), 1);
            scene.simulation().fault(once("loadbalancer_listener_update"));
            set(&mut web, "connection-limit", "7");
            let error = scene.refused(&mut web).await;
            assert!(error.contains("in ERROR: listener listener_0_"), "{error}");
            scene.ensure(&mut web).await;
            scene.is_steady(&mut web).await;
            scene.delete(&mut web).await;
        }
    })
    .await;
}

/// They wait as long as the program does.
mod long_lane {
    use super::*;

    /// The balancer is read a moment after the refusal.
    #[tokio::test]
    async fn a_change_that_ends_at_the_time_of_the_look_is_no_error() {
        simulated(async |scene: &mut Scene| {
            let mut web = web();
            scene.ensure(&mut web).await;
            let lb = scene.balancer().await["id"].as_str().unwrap().to_owned();
            scene.nodes.pop();
            let message = format!("Load Balancer {lb} is immutable and cannot be updated.");
            let busy = Fault::Code { status: 409, code: String::new(), message };
            let mut pending = scene.get(&format!("{LBS}/{lb}")).await;
            pending["loadbalancer"]["provisioning_status"] = json!("PENDING_UPDATE");
            let pending = Fault::Status { status: 200, body: pending.to_string() };
            let (busy, pending) = (
                Rule::every(busy).on("load-balancer", "loadbalancer_members_update").window(0, 8),
                // The first read is that of the observation.
                Rule::every(pending).on("load-balancer", "loadbalancer_get").window(1, 1),
            );
            scene.simulation().fault(busy);
            scene.simulation().fault(pending);
            let update = scene.process.ask(&mut web, &scene.nodes, ServiceAction::UpdateHosts);
            let (calls, answer) = scene.counted(update).await;
            answer.unwrap();
            assert_eq!((calls.of("loadbalancer_members_update"), scene.members().await.len()), (9, 2), "{calls:?}");
            scene.is_steady(&mut web).await;
        })
        .await;
    }

    #[tokio::test]
    async fn a_driver_that_fails_before_the_last_change_is_no_wait() {
        simulated(async |scene: &mut Scene| {
            scene.configure("[LoadBalancer]\ncreate-monitor = true\n").await;
            let mut web = web();
            scene.ensure(&mut web).await;
            let fault = Fault::Operation { status: 500, code: "ERROR".to_owned(), message: "ERROR".to_owned() };
            scene.simulation().fault(Rule::every(fault).on("load-balancer", "loadbalancer_pool_update"));
            web.spec.session_affinity = "ClientIP".to_owned();
            set(&mut web, "health-monitor-delay", "7");
            let answer = scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure).await;
            let error = answer.unwrap_err();
            assert!(!error.is_in_progress() && error.to_string().contains("is in ERROR"), "{error:?}");
            scene.simulation().faults(Faults::clear);
            scene.ensure(&mut web).await;
            scene.is_steady(&mut web).await;
        })
        .await;
    }
}

/// Octavia's default of `udp_connect_min_interval_health_monitor`, which operators may lower.
#[tokio::test]
async fn checks_of_udp_that_octavia_may_find_too_frequent_are_reported() {
    simulated(async |scene: &mut Scene| {
        for (delay, is_said) in [("2", true), ("3", false)] {
            let mut dns = service("dns", &[(53, 30053)], json!({}));
            dns.spec.ports[0].protocol = "UDP".to_owned();
            set(&mut dns, "enable-health-monitor", "true");
            set(&mut dns, "health-monitor-delay", delay);
            set(&mut dns, "health-monitor-timeout", "1");
            let answer = scene.try_ensure(&mut dns).await;
            assert_eq!(
                answer.as_ref().is_err_and(|error| error.to_string().contains("larger than 3")),
                is_said,
                "{answer:?}"
            );
            let events = scene.events();
            let is_named = |event: &&String| {
                event.starts_with("LoadBalancerConfiguration: ") && event.contains("health-monitor-delay")
            };
            assert_eq!(events.iter().filter(is_named).count(), usize::from(is_said), "{events:?}");
            scene.delete(&mut dns).await;
        }
    })
    .await;
}
