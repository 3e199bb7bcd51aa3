//! Plans as text, and plans applied to a small AWS in memory.

mod desired;
mod golden;
mod model;
mod properties;
mod refusals;
mod replay;

use std::collections::BTreeMap;

use ccm_provider::{Finding, ProviderError, Service, Severity};
use serde_json::{Value, json};

use super::super::desired::{Common, Desired, Goal, NamedGroups, Network, Subnets, TargetNode};
use super::super::observe::Observed;
use super::super::plan::{Env, Planned};
use crate::annotations::{ADDITIONAL_TAGS, Annotations, INTERNAL, Key, SECURITY_GROUPS, SUBNETS, TYPE};
use crate::ownership::Ownership;
use crate::start::config::HealthProbe;
use model::Cloud;

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/one";

/// A Service as a test writes it, and all that a wish comes from.
#[derive(Debug, Clone)]
struct Asked {
    service: Service,
    /// Instances of the nodes.
    nodes: Vec<String>,
    probe: HealthProbe,
    env: Env,
    must_exist: bool,
}

/// `shop/web` of type `nlb` with the ports given as `(port, node port)`, two nodes, cluster `c1`.
fn asked(ports: &[(i32, i32)]) -> Asked {
    let port = |(port, node_port): &(i32, i32)| json!({"name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP"});
    let service = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"},
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
            "ports": ports.iter().map(port).collect::<Vec<Value>>(),
        },
    });
    Asked {
        service: serde_json::from_value(service).unwrap(),
        nodes: vec!["i-1".to_owned(), "i-2".to_owned()],
        probe: HealthProbe::NodePort,
        env: Env {
            ownership: Ownership { cluster: "c1".to_owned(), legacy: false },
            vpc: "vpc-1".to_owned(),
            self_subnet: String::new(),
            node_groups_untouched: false,
            shared_group: None,
            managed_network_groups: false,
        },
        must_exist: false,
    }
}

impl Asked {
    fn with<T>(mut self, key: &Key<T>, value: &str) -> Self {
        self.service.metadata.annotations.insert(key.row.key.to_owned(), value.to_owned());
        self
    }

    fn local(mut self) -> Self {
        self.service.spec.external_traffic_policy = "Local".to_owned();
        self.service.spec.health_check_node_port = 32000;
        self
    }

    fn udp(mut self) -> Self {
        self.service.spec.ports.iter_mut().for_each(|port| port.protocol = "UDP".to_owned());
        self
    }

    fn nodes(mut self, nodes: &[&str]) -> Self {
        self.nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        self
    }

    fn ranges(mut self, ranges: &[&str]) -> Self {
        self.service.spec.load_balancer_source_ranges = Some(ranges.iter().map(|range| (*range).to_owned()).collect());
        self
    }

    fn managed(mut self) -> Self {
        self.env.managed_network_groups = true;
        self
    }

    fn shared(mut self) -> Self {
        self.probe = HealthProbe::Shared { port: 10256, path: "/healthz".to_owned() };
        self
    }

    fn network(&self) -> Result<(Network, Vec<Finding>), ProviderError> {
        let annotations = Annotations::read(&self.service.metadata.annotations);
        let node = |id: &String| (id.clone(), TargetNode { name: format!("node-{id}") });
        let ranges = self.service.spec.load_balancer_source_ranges.clone();
        let ranges = ranges.unwrap_or_else(|| vec!["0.0.0.0/0".to_owned()]);
        let common = Common {
            must_exist: self.must_exist,
            internal: annotations.get_or_default(&INTERNAL)?,
            source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            subnets: annotations.get(&SUBNETS)?.map_or(Subnets::Discover, Subnets::Named),
            tags: annotations.get_or_default(&ADDITIONAL_TAGS)?,
            targets: self.nodes.iter().map(node).collect::<BTreeMap<_, _>>(),
        };
        super::desired::network(&self.service, common, &self.probe)
    }

    fn desired(&self) -> Desired {
        self.with_goal(Goal::Network(Box::new(self.network().unwrap().0)))
    }

    fn gone(&self) -> Desired {
        self.with_goal(Goal::Absent)
    }

    fn with_goal(&self, goal: Goal) -> Desired {
        let annotations = Annotations::read(&self.service.metadata.annotations);
        Desired {
            service: self.service.key(),
            uid: self.service.metadata.uid.clone(),
            cluster_name: "kubernetes".into(),
            name: self.service.default_load_balancer_name(),
            goal,
            network: false,
            named_groups: NamedGroups {
                instead: annotations.get_or_default(&SECURITY_GROUPS).unwrap(),
                extra: Vec::new(),
            },
            findings: Vec::new(),
        }
    }

    fn subnets(&self) -> Vec<String> {
        let annotations = Annotations::read(&self.service.metadata.annotations);
        let discovered = || vec!["subnet-a".to_owned(), "subnet-b".to_owned()];
        annotations.get(&SUBNETS).unwrap().unwrap_or_else(discovered)
    }

    fn try_plan(&self, desired: &Desired, observed: &Observed) -> Result<Planned, ProviderError> {
        let reason = "the Service wants no load balancer any more";
        match &desired.goal {
            Goal::Network(network) => super::plan(desired, network, observed, &self.env, &|| Ok(self.subnets())),
            _ => super::delete(desired, observed, &self.env, reason),
        }
    }

    fn plan(&self, desired: &Desired, cloud: &Cloud) -> Planned {
        self.try_plan(desired, &cloud.observe(desired, &self.env)).unwrap()
    }

    /// Plans, applies, and makes sure that nothing is left to do.
    fn settle(&self, cloud: &mut Cloud) -> Planned {
        self.settle_wish(&self.desired(), cloud)
    }

    fn settle_wish(&self, desired: &Desired, cloud: &mut Cloud) -> Planned {
        let planned = self.plan(desired, cloud);
        cloud.apply(&planned.steps);
        let again = self.plan(desired, cloud);
        assert!(again.steps.is_empty(), "a second sync writes: {}", text(&again));
        cloud.drain();
        let again = self.plan(desired, cloud);
        assert!(again.steps.is_empty(), "a sync after draining writes: {}", text(&again));
        planned
    }
}

/// Three nodes, and the balancer as asked.
fn current(asked: &Asked) -> Cloud {
    let mut cloud = Cloud::with_nodes(3);
    asked.settle(&mut cloud);
    cloud.log.clear();
    cloud
}

fn text(planned: &Planned) -> String {
    let mut plan = ccm_provider::Plan::new("shop/web");
    plan.steps = planned.steps.iter().map(|step| step.summary.clone()).collect();
    plan.findings = planned.findings.clone();
    plan.to_string()
}

/// Names of the writes.
fn writes(planned: &Planned) -> Vec<&'static str> {
    planned.steps.iter().map(|step| step.write.operation().name).collect()
}

fn warned<T>(findings: &[Finding], key: &Key<T>) -> bool {
    findings.iter().any(|finding| finding.key == key.row.key && finding.severity == Severity::Warning)
}
