//! A process that ends after any of its writes: see [`ccm_provider_contract::crash`].

use async_trait::async_trait;
use ccm_cloudsim::openstack::Options;
use ccm_provider::{ProviderError, Service, ServiceAction};
use ccm_provider_contract::{Simulation, crash};
use serde_json::{Value, json};

use crate::scene::{INTERNAL, Scene, annotation, id, service, set, simulated_with, texts};

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_life_survives_a_death_after_each_write;
    simulated:;
}

const CONF: &str = "[LoadBalancer]\nmanage-security-groups = true\ncreate-monitor = true\n";

/// The work during which a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Create,
    CreateStepByStep,
    Update,
    Rename,
    RenameShared,
    Replace,
    Delete,
    DeleteStepByStep,
    LeaveShared,
    JoinShared,
}

impl Life {
    /// Prepares the cloud, and returns the Service to work on.
    async fn before(self, scene: &mut Scene) -> Service {
        let more = match self {
            Self::CreateStepByStep => "provider-requires-serial-api-calls = true\n",
            Self::DeleteStepByStep => "cascade-delete = false\n",
            _ => "",
        };
        scene.configure(&format!("{CONF}{more}")).await;
        let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
        match self {
            Self::Create | Self::CreateStepByStep => {}
            Self::Rename => {
                let old = scene.process_of("old").await;
                old.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap();
            }
            Self::RenameShared => {
                let old = scene.process_of("old").await;
                old.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap();
                // The balancer is older than the Service that shares it.
                scene.simulation().clock().step(std::time::Duration::from_secs(120));
                let mut api = service("api", &[(8080, 30808), (8081, 30809)], json!({}));
                api.metadata.creation_timestamp = Some(scene.simulation().clock().now());
                set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
                old.work(&mut api, &scene.nodes, ServiceAction::Ensure).await.unwrap();
                return api;
            }
            Self::Update => {
                scene.ensure(&mut web).await;
                scene.nodes.remove(0);
                set(&mut web, "x-forwarded-for", "true");
                set(&mut web, INTERNAL, "true");
                web.spec.ports = service("web", &[(80, 30081), (8080, 30808)], json!({})).spec.ports;
            }
            Self::Replace => {
                scene.ensure(&mut web).await;
                scene.cloud.set_status(id(&scene.balancer().await), "ERROR").await;
                set(&mut web, "recreate-in-error", "true");
            }
            Self::Delete | Self::DeleteStepByStep => drop(scene.ensure(&mut web).await),
            Self::JoinShared => {
                scene.ensure(&mut web).await;
                let mut api = service("api", &[(8080, 30808), (8081, 30809)], json!({}));
                set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
                return api;
            }
            Self::LeaveShared => {
                scene.ensure(&mut web).await;
                let mut api = service("api", &[(8080, 30808), (8081, 30809)], json!({}));
                set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
                scene.ensure(&mut api).await;
                return api;
            }
        }
        web
    }

    fn action(self) -> ServiceAction {
        match self {
            Self::Delete | Self::DeleteStepByStep | Self::LeaveShared => ServiceAction::Delete,
            _ => ServiceAction::Ensure,
        }
    }

    /// The minimum number of writes.
    fn writes(self) -> usize {
        match self {
            // The cascading deletion, the new balancer, and its floating IP.
            Self::Replace => 3,
            _ => 5,
        }
    }
}

/// The state of the cloud, without IDs and addresses.
async fn state(scene: &Scene) -> Vec<String> {
    let mut state = Vec::new();
    let pick = |object: &Value, keys: &[&str]| -> String {
        let shown = keys.iter().map(|key| object[*key].to_string());
        shown.collect::<Vec<_>>().join(" ")
    };
    let balancers = scene.balancers().await;
    for lb in &balancers {
        state.push(format!("{} {:?}", pick(lb, &["name", "description", "provisioning_status"]), texts(&lb["tags"])));
    }
    let pools = scene.pools().await;
    for listener in scene.listeners().await {
        let pool = pools.iter().find(|pool| pool["id"] == listener["default_pool_id"]);
        let keys = ["name", "protocol", "protocol_port", "tags", "insert_headers", "allowed_cidrs"];
        state.push(format!("{} {}", pick(&listener, &keys), pool.map_or(&Value::Null, |pool| &pool["name"])));
    }
    for pool in &pools {
        let members = scene.list(&format!("/v2.0/lbaas/pools/{}/members", id(pool))).await;
        let mut members: Vec<String> =
            members.iter().map(|member| pick(member, &["name", "address", "protocol_port"])).collect();
        members.sort();
        state.push(format!("{} {members:?}", pick(pool, &["name", "protocol", "lb_algorithm"])));
    }
    for monitor in scene.monitors().await {
        state.push(pick(&monitor, &["name", "type", "delay"]));
    }
    for ip in scene.floating_ips().await {
        let lb = balancers.iter().find(|lb| lb["vip_port_id"] == ip["port_id"]);
        state.push(format!("{} {}", ip["description"], lb.map_or(&Value::Null, |lb| &lb["name"])));
    }
    for group in scene.groups().await {
        for rule in group["security_group_rules"].as_array().unwrap() {
            state.push(format!(
                "{} {}",
                group["name"],
                pick(rule, &["protocol", "port_range_min", "remote_ip_prefix"])
            ));
        }
        let ports = scene.list(&format!("/v2.0/ports?security_groups={}", id(&group))).await;
        state.push(format!("{} on {} ports", group["name"], ports.len()));
    }
    let vips = scene.list("/v2.0/ports?device_owner=Octavia").await;
    state.push(format!("{} addresses of balancers", vips.len()));
    state.sort();
    state
}

/// A process that is about to work on a Service.
struct Work {
    scene: Scene,
    /// The Service at the start of the process: a process that ends records nothing.
    before: Service,
    service: Service,
}

#[async_trait(?Send)]
impl crash::Stage for Work {
    fn simulation(&self) -> &dyn Simulation {
        self.scene.simulation()
    }

    async fn work(&mut self, action: ServiceAction) -> Result<(), ProviderError> {
        self.scene.process.work(&mut self.service, &self.scene.nodes, action).await.map(drop)
    }

    async fn restart(&mut self) {
        self.scene.restart().await;
        self.service = self.before.clone();
    }

    async fn contents(&self) -> Vec<String> {
        state(&self.scene).await
    }
}

async fn dies_after_each_write(life: Life) {
    crash::every_prefix(life.action(), life.writes(), 8, async || {
        let mut scene = Scene::simulated().await;
        let service = life.before(&mut scene).await;
        Work { scene, before: service.clone(), service }
    })
    .await;
}

/// The calls of one life.
#[derive(Debug, Clone, Copy)]
enum Station {
    Create,
    NodeLeaves,
    PortsChange,
    Delete,
}

/// One life next to a Service of another cluster on the same nodes; returns the state after each station.
async fn live(scene: &mut Scene, work: impl AsyncFn(&Scene, &mut Service, ServiceAction)) -> Vec<Vec<String>> {
    scene.configure(CONF).await;
    let neighbor = scene.process_of("theirs").await;
    let mut theirs = service("theirs", &[(80, 31999)], json!({}));
    neighbor.work(&mut theirs, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let foreign = foreign(scene).await;
    assert!(foreign.len() > 6, "{foreign:#?}");
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    let mut ends = Vec::new();
    for station in [Station::Create, Station::NodeLeaves, Station::PortsChange, Station::Delete] {
        let action = match station {
            Station::Create => ServiceAction::Ensure,
            Station::NodeLeaves => {
                scene.nodes.remove(0);
                ServiceAction::UpdateHosts
            }
            Station::PortsChange => {
                web.spec.ports = service("web", &[(80, 30081), (8080, 30808)], json!({})).spec.ports;
                ServiceAction::Ensure
            }
            Station::Delete => ServiceAction::Delete,
        };
        work(scene, &mut web, action).await;
        assert_eq!(self::foreign(scene).await, foreign, "{station:?}");
        if action != ServiceAction::Delete {
            scene.restart().await;
            scene.is_steady(&mut web).await;
        }
        ends.push(state(scene).await);
    }
    ends
}

/// The complete objects of the other cluster: Octavia and Neutron show the time of the last write.
async fn foreign(scene: &Scene) -> Vec<Value> {
    let mut all = scene.balancers().await;
    all.extend(scene.listeners().await);
    all.extend(scene.pools().await);
    all.extend(scene.monitors().await);
    all.extend(scene.floating_ips().await);
    all.extend(scene.groups().await);
    all.retain(|object| object.to_string().contains("theirs"));
    for pool in all.clone().iter().filter(|object| object["lb_algorithm"].is_string()) {
        all.extend(scene.list(&format!("/v2.0/lbaas/pools/{}/members", id(pool))).await);
    }
    for object in &mut all {
        // Set by health checks.
        object.as_object_mut().unwrap().remove("operating_status");
    }
    all
}

/// Each write of a life is the last one of a process, which ends right after it; the next process continues.
async fn a_life_survives_a_death_after_each_write(scene: &mut Scene) {
    let mut expected = Vec::new();
    let undisturbed = async |scene: &Scene, service: &mut Service, action: ServiceAction| {
        scene.process.work(service, &scene.nodes, action).await.unwrap();
    };
    simulated_with(Options::default(), async |scene: &mut Scene| expected = live(scene, undisturbed).await).await;
    let dying = async |scene: &Scene, service: &mut Service, action: ServiceAction| {
        let mut deaths = 0;
        while !scene.work_until(service, action, 1).await {
            deaths += 1;
            assert!(deaths < 40, "no end of {action:?}");
        }
        println!("{action:?}: {deaths} deaths");
        assert!(deaths >= 2, "{action:?}: {deaths}");
    };
    // Real services choose addresses.
    let address = regex::Regex::new(r#"10\.50\.0\.[0-9]+\\""#).unwrap();
    for (is, expected) in live(scene, dying).await.into_iter().zip(expected) {
        let shown = |lines: Vec<String>| -> Vec<String> {
            lines.iter().map(|line| address.replace_all(line, "").into_owned()).collect()
        };
        assert_eq!(shown(is), shown(expected));
    }
}

macro_rules! lives {
    ($($name:ident $life:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            dies_after_each_write(Life::$life).await;
        })*
    };
}

lives!(
    a_creation_survives_any_death Create,
    a_creation_step_by_step_survives_any_death CreateStepByStep,
    a_change_survives_any_death Update,
    a_new_cluster_name_survives_any_death Rename,
    a_new_cluster_name_of_a_service_that_shares_survives_any_death RenameShared,
    a_balancer_in_error_that_is_made_again_survives_any_death Replace,
    a_deletion_survives_any_death Delete,
    a_deletion_step_by_step_survives_any_death DeleteStepByStep,
    leaving_a_shared_balancer_survives_any_death LeaveShared,
    joining_a_shared_balancer_survives_any_death JoinShared,
);
