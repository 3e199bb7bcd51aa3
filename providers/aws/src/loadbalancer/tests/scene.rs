//! A Service and the simulated AWS: observes, plans and applies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::aws;
use ccm_cloudsim::aws::ec2::model::{Address, Peer};
use ccm_kit::Cluster;
use ccm_kit::balancer::BalancerCloud as _;
use ccm_provider::{Finding, Node, NodeRef, ProviderError, Scope, Service, ServiceAction, ServiceWork};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::annotations::{Key, TYPE};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::step::{Planned, Step};
use crate::loadbalancer::wanted::{Goal, Network, Wanted};
use crate::loadbalancer::{Balancers, purposeful};
use crate::node::fleet;
use crate::node::zones::Zones;
use crate::start::config::SharedProbe;
use crate::tests::env;
use crate::tests::world::{self, NODE_GROUP, World, id};

pub(in crate::loadbalancer) const BALANCER: &str = "a0f1e2d3caaaabbbbcccc0123456789a";
pub(in crate::loadbalancer) const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/one";
pub(in crate::loadbalancer) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// The groups of the VPC, with their names in tests. All but the first have no tags.
const GROUPS: [(&str, &str); 6] = [
    (NODE_GROUP, "sg-nodes"),
    ("sg-00000000000000002", "sg-bystander"),
    ("sg-00000000000000003", "sg-mine"),
    ("sg-00000000000000004", "sg-too"),
    ("sg-00000000000000005", "sg-user"),
    ("sg-00000000000000006", "sg-new"),
];

/// The ID of a group by its name in tests.
pub(in crate::loadbalancer) fn sg(name: &str) -> &'static str {
    GROUPS.iter().find(|(_, known)| *known == name).unwrap().0
}

/// A Service with its nodes, and the settings of its process.
#[derive(Debug, Clone)]
pub(in crate::loadbalancer) struct Asked {
    pub(in crate::loadbalancer) service: Service,
    /// The numbers of their instances.
    pub(in crate::loadbalancer) nodes: Vec<usize>,
    pub(in crate::loadbalancer) env: Env,
    pub(in crate::loadbalancer) action: ServiceAction,
}

/// `shop/web` with these ports and annotations, without their prefix.
pub(in crate::loadbalancer) fn service(ports: &Value, annotations: &[(&str, &str)]) -> Service {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "shop", "name": "web", "uid": "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab", "annotations": annotations,
        },
        "spec": {"type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "ports": ports},
    }))
    .unwrap()
}

/// A network balancer with the ports given as `(port, node port)` for two nodes.
pub(in crate::loadbalancer) fn nlb(ports: &[(i32, i32)]) -> Asked {
    let port = |(port, node_port): &(i32, i32)| json!({"name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP"});
    let ports = ports.iter().map(port).collect();
    Asked::of(service(&Value::Array(ports), &[])).with(&TYPE, "nlb").nodes(1..=2)
}

/// A classic balancer with the ports 80 and 443 for three nodes.
pub(in crate::loadbalancer) fn clb(annotations: &[(&str, &str)]) -> Asked {
    let ports = json!([
        {"name": "http", "port": 80, "nodePort": 31080, "protocol": "TCP"},
        {"name": "https", "port": 443, "nodePort": 31443, "protocol": "TCP"},
    ]);
    Asked::of(service(&ports, annotations)).ranges(&["10.0.0.0/8"])
}

impl Asked {
    pub(in crate::loadbalancer) fn of(service: Service) -> Self {
        Self { service, nodes: (1..=3).collect(), env: env(), action: ServiceAction::Ensure }
    }

    pub(in crate::loadbalancer) fn with<T>(mut self, key: &Key<T>, value: &str) -> Self {
        self.service.metadata.annotations.insert(key.row.key.to_owned(), value.to_owned());
        self
    }

    pub(in crate::loadbalancer) fn local(mut self) -> Self {
        self.service.spec.external_traffic_policy = "Local".to_owned();
        self.service.spec.health_check_node_port = 32000;
        self
    }

    pub(in crate::loadbalancer) fn udp(mut self) -> Self {
        self.service.spec.ports.iter_mut().for_each(|port| port.protocol = "UDP".to_owned());
        self
    }

    pub(in crate::loadbalancer) fn nodes(mut self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.nodes = nodes.into_iter().collect();
        self
    }

    pub(in crate::loadbalancer) fn ranges(mut self, ranges: &[&str]) -> Self {
        self.service.spec.load_balancer_source_ranges = Some(ranges.iter().map(|range| (*range).to_owned()).collect());
        self
    }

    pub(in crate::loadbalancer) fn managed(mut self) -> Self {
        self.env.managed_network_groups = true;
        self
    }

    pub(in crate::loadbalancer) fn shared(mut self) -> Self {
        self.env.shared_probe = Some(SharedProbe { port: 10256, path: "/healthz".to_owned() });
        self
    }

    pub(in crate::loadbalancer) fn to(mut self, action: ServiceAction) -> Self {
        self.action = action;
        self
    }

    pub(in crate::loadbalancer) fn gone(self) -> Self {
        self.to(ServiceAction::Delete)
    }

    pub(in crate::loadbalancer) fn work(&self) -> ServiceWork {
        let node = |number: &usize| -> NodeRef {
            let provider_id = Some(format!("aws:///us-west-2a/{}", id(*number)).into());
            Arc::new(Node { name: format!("node-{number}").into(), provider_id, ..Node::default() })
        };
        let nodes = self.nodes.iter().map(node).collect();
        ServiceWork { service: self.service.clone().into(), nodes, action: self.action, namespace: None }
    }

    /// The desired state of the Service.
    pub(in crate::loadbalancer) fn desired(&self) -> Result<Wanted, ProviderError> {
        crate::loadbalancer::wanted::of_service("kubernetes", &self.work(), &self.env)
    }
}

impl Asked {
    /// The desired network balancer, and the findings.
    pub(in crate::loadbalancer) fn network(&self) -> Result<(Network, Vec<Finding>), ProviderError> {
        let desired = self.desired()?;
        let Goal::Network(network) = desired.goal else { panic!("{desired:?}") };
        Ok((*network, desired.findings))
    }
}

/// Nodes in the cluster's group, and groups of the user.
#[derive(Debug)]
pub(in crate::loadbalancer) struct Scene {
    pub(in crate::loadbalancer) world: World,
    /// The IDs of created groups.
    made: Mutex<Vec<String>>,
}

/// A saved state of the account.
pub(in crate::loadbalancer) type State = aws::World;

impl Scene {
    pub(in crate::loadbalancer) fn with_nodes(nodes: usize) -> Self {
        let world = World::default().launched(nodes);
        world.state(|state| {
            for (id, name) in &GROUPS[1..] {
                state
                    .ec2
                    .groups
                    .insert((*id).to_owned(), world::group(name.trim_start_matches("sg-"), BTreeMap::new()));
            }
            for (id, zone, cidr) in
                [("subnet-a2", "us-west-2a", "10.0.11.0/24"), ("subnet-b2", "us-west-2b", "10.0.12.0/24")]
            {
                state.ec2.subnets.insert(id.to_owned(), world::subnet(zone, cidr, BTreeMap::new()));
            }
            for (number, id) in (1..).zip(["eip-1", "eip-2"]) {
                let (public_ip, interface, tags) = ([192, 0, 2, number].into(), None, BTreeMap::new());
                state.ec2.addresses.insert(id.to_owned(), Address { public_ip, interface, tags });
            }
            let certificates = [CERTIFICATE, "arn:aws:acm:us-west-2:123456789012:certificate/two"];
            certificates.into_iter().for_each(|arn| state.elb.add_certificate(arn));
            state.elb.add_certificate("arn:aws:acm:us-west-2:1:certificate/x");
        });
        Self { world, made: Mutex::default() }
    }

    /// With three nodes and the objects of the Service.
    pub(in crate::loadbalancer) async fn made(asked: &Asked) -> Self {
        let scene = Self::with_nodes(3);
        scene.settle(asked).await;
        scene
    }

    pub(in crate::loadbalancer) fn save(&self) -> State {
        self.world.state(|state| state.clone())
    }

    pub(in crate::loadbalancer) fn load(&self, saved: &State) {
        self.world.state(|state| *state = saved.clone());
    }

    /// The balancers of a new process.
    pub(in crate::loadbalancer) fn balancers(&self, asked: &Asked) -> Balancers {
        let api = self.world.api();
        let (fleet, zones) = (fleet::new(api.clone()), Arc::new(Zones::new(api.clone())));
        Balancers::new(api, fleet, zones, Cluster::default(), asked.env.clone())
    }

    pub(in crate::loadbalancer) async fn observe(&self, asked: &Asked) -> Observed {
        let wanted = vec![asked.desired().unwrap()];
        let observed = self.balancers(asked).observe("kubernetes", &[asked.work()], &wanted).await;
        observed.unwrap().remove(0).observed
    }

    pub(in crate::loadbalancer) async fn try_plan(&self, asked: &Asked) -> Result<Planned, ProviderError> {
        let (desired, observed) = (asked.desired()?, self.observe(asked).await);
        let mut made = self.made.lock();
        let groups = observed.groups.keys().filter(|id| !GROUPS.iter().any(|(known, _)| known == id));
        made.extend(groups.cloned());
        self.balancers(asked).plan_one(&desired, &observed)
    }

    pub(in crate::loadbalancer) async fn plan(&self, asked: &Asked) -> Planned {
        self.try_plan(asked).await.unwrap()
    }

    pub(in crate::loadbalancer) async fn apply(&self, asked: &Asked, steps: &[Step]) {
        let (balancers, outputs) = (self.balancers(asked), Mutex::default());
        let desired = asked.desired().unwrap();
        for step in steps {
            balancers
                .write(&purposeful(&desired, step.clone()).into(), &outputs, &Scope::default())
                .await
                .map(drop)
                .unwrap_or_else(|error| panic!("{error}: {step:#?}"));
        }
        balancers.finish(&outputs).unwrap();
    }

    /// Plans, applies, and asserts that nothing is left to do.
    pub(in crate::loadbalancer) async fn settle(&self, asked: &Asked) -> Planned {
        let planned = self.plan(asked).await;
        self.apply(asked, &planned.steps).await;
        let again = self.plan(asked).await;
        assert!(again.steps.is_empty(), "a second sync writes: {}", self.text(&again));
        if writes(&planned).contains(&"DeregisterTargets") {
            self.world.aws().clock().step(Duration::from_secs(600));
            let again = self.plan(asked).await;
            assert!(again.steps.is_empty(), "a sync after draining writes: {}", self.text(&again));
        }
        planned
    }

    /// Replaces IDs by the names that tests use.
    pub(in crate::loadbalancer) fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, name) in GROUPS {
            text = text.replace(id, name);
        }
        for id in &*self.made.lock() {
            text = text.replace(id, "sg-made-1");
        }
        (1..=3).fold(text, |text, number| text.replace(&id(number), &format!("i-{number}")))
    }

    /// A plan as users see it.
    pub(in crate::loadbalancer) fn text(&self, planned: &Planned) -> String {
        let mut plan = ccm_provider::Plan::new("shop/web");
        plan.steps = planned.steps.iter().map(|step| step.summary.clone()).collect();
        plan.findings.clone_from(&planned.findings);
        self.named(&plan.to_string())
    }

    /// The rules of a group with their descriptions.
    pub(in crate::loadbalancer) fn rules(&self, group: &str) -> Vec<String> {
        let rules = self.world.ec2(|ec2| ec2.groups[group].ingress.clone());
        let text = |rule: &aws::ec2::model::Rule| {
            let (Peer::V4(from) | Peer::V6(from) | Peer::Group(from) | Peer::Prefix(from)) = &rule.peer;
            let port = rule.from.map(|port| format!(" {port}")).unwrap_or_default();
            let description = rule.description.as_ref().map(|text| format!(" [{text}]")).unwrap_or_default();
            self.named(&format!("{}{port} from {from}{description}", rule.protocol))
        };
        let mut rules: Vec<String> = rules.iter().map(text).collect();
        rules.sort();
        rules
    }

    /// Deletes the balancer manually.
    pub(in crate::loadbalancer) fn delete_by_hand(&self) {
        let arn = self.world.state(|state| state.elbv2.balancers.keys().next().cloned());
        let cloud = self.world.aws();
        let deleted = match arn {
            Some(arn) => cloud.by_hand(aws::Service::Elbv2, "DeleteLoadBalancer", &format!("LoadBalancerArn={arn}")),
            None => cloud.by_hand(aws::Service::Elb, "DeleteLoadBalancer", &format!("LoadBalancerName={BALANCER}")),
        };
        deleted.unwrap();
    }

    /// Changes the network balancer.
    pub(in crate::loadbalancer) fn network(&self, change: impl FnOnce(&mut aws::elbv2::Balancer)) {
        self.world.state(|state| change(state.elbv2.balancers.values_mut().next().unwrap()));
    }

    /// Changes the classic balancer.
    pub(in crate::loadbalancer) fn classic(&self, change: impl FnOnce(&mut aws::elb::Balancer)) {
        self.world.state(|state| change(state.elb.balancers.get_mut(BALANCER).unwrap()));
    }
}

/// Names of the writes.
pub(in crate::loadbalancer) fn writes(planned: &Planned) -> Vec<&'static str> {
    planned.steps.iter().map(|step| step.write.operation().name).collect()
}
