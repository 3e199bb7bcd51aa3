//! The tables of nodes, Services and routes.

use std::collections::BTreeMap;

use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use ccm_provider::{Node, Service};

use super::{Level, Row, Table};

/// The last error of an object.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) level: Level,
    pub(crate) error: String,
    pub(crate) fix: String,
}

/// The worst problem of each object.
#[derive(Debug, Default)]
pub(crate) struct Problems(BTreeMap<String, Problem>);

impl Problems {
    /// Adds a problem; of equally bad ones of an object, the first one stays.
    pub(crate) fn add(&mut self, subject: &str, problem: Problem) {
        // `node a addresses` is about `node a`.
        let object = subject.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ");
        match self.0.get_mut(&object) {
            Some(known) if known.level < problem.level => *known = problem,
            Some(_) => {}
            None => drop(self.0.insert(object, problem)),
        }
    }

    fn of(&self, object: &str) -> Option<&Problem> {
        self.0.get(object)
    }
}

/// A row that ends with the last error and its fix.
fn row(level: Level, mut cells: Vec<String>, problem: Option<&Problem>) -> Row {
    let level = problem.map_or(level, |problem| problem.level.max(level));
    cells.extend(problem.map_or_else(Default::default, |problem| [problem.error.clone(), problem.fix.clone()]));
    Row { level, cells }
}

pub(crate) fn nodes<'a>(nodes: impl Iterator<Item = &'a Node>, problems: &Problems) -> Table {
    let line = |node: &Node| {
        let (level, state) = match node.ready {
            _ if node.deleting => (Level::Waiting, "being deleted"),
            _ if node.has_taint(TAINT_UNINITIALIZED) => (Level::Waiting, "not initialized"),
            _ if node.has_taint(TAINT_SHUTDOWN) => (Level::Bad, "shut down"),
            Some(ConditionStatus::True) => (Level::Good, "ready"),
            Some(ConditionStatus::False) => (Level::Bad, "not ready"),
            Some(ConditionStatus::Unknown) | None => (Level::Bad, "readiness unknown"),
        };
        let addresses: Vec<String> =
            node.addresses.iter().map(|one| format!("{} {}", one.kind.as_str(), one.address)).collect();
        let provider_id = node.provider_id_or_empty().to_owned();
        let cells = vec![node.name.to_string(), state.into(), provider_id, addresses.join("\n")];
        row(level, cells, problems.of(&format!("node {}", node.name)))
    };
    Table {
        title: "Nodes",
        columns: &["Node", "State", "Provider ID", "Addresses", "Last error", "Fix"],
        rows: nodes.map(line).collect(),
        empty: "The cluster has no nodes.",
    }
}

pub(crate) fn services<'a>(services: impl Iterator<Item = &'a Service>, problems: &Problems) -> Table {
    let line = |service: &Service| {
        let key = format!("{}/{}", service.metadata.namespace, service.metadata.name);
        let problem = problems.of(&format!("service {key}"));
        let (spec, ingress) = (&service.spec, &service.status.load_balancer.ingress);
        let is_balanced = spec.kind == "LoadBalancer";
        if !is_balanced && problem.is_none() {
            return None;
        }
        let (level, state) = match &spec.load_balancer_class {
            _ if service.metadata.deletion_timestamp.is_some() => (Level::Waiting, "being deleted".to_owned()),
            _ if !is_balanced => (Level::Plain, format!("no load balancer ({})", spec.kind)),
            Some(class) => (Level::Plain, format!("class {class}")),
            None if ingress.is_empty() => (Level::Waiting, "no address".to_owned()),
            None => (Level::Good, "has an address".to_owned()),
        };
        let address = |one: &ccm_provider::LoadBalancerIngress| [one.ip.as_str(), one.hostname.as_str()].concat();
        let addresses: Vec<String> = ingress.iter().map(address).collect();
        let ports: Vec<String> = spec.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect();
        Some(row(level, vec![key, state, addresses.join("\n"), ports.join(" ")], problem))
    };
    Table {
        title: "Services with load balancers",
        columns: &["Service", "State", "Addresses", "Ports", "Last error", "Fix"],
        rows: services.filter_map(line).collect(),
        empty: "No Service has the type LoadBalancer.",
    }
}

/// The pod ranges of nodes, and whether the network of the node is said to work.
pub(crate) fn routes<'a>(nodes: impl Iterator<Item = &'a Node>, problems: &Problems) -> Table {
    let all = problems.of("routes").map(|problem| {
        row(Level::Plain, vec!["all nodes".into(), "not reconciled".into(), String::new()], Some(problem))
    });
    let line = |node: &Node| {
        let ranges = node.pod_cidrs.join("\n");
        let cells = |state: &str| vec![node.name.to_string(), state.to_owned(), ranges.clone()];
        match &node.network_unavailable {
            Some((ConditionStatus::False, _)) => row(Level::Good, cells("network available"), None),
            Some((_, reason)) => {
                let error = format!("condition NetworkUnavailable, reason {reason}");
                let fix = "see the events of the node, and the errors of the route controller".to_owned();
                row(Level::Bad, cells("no network"), Some(&Problem { level: Level::Bad, error, fix }))
            }
            None if ranges.is_empty() => row(Level::Plain, cells("no pod range"), None),
            None => row(Level::Plain, cells("no condition"), None),
        }
    };
    Table {
        title: "Routes",
        columns: &["Node", "State", "Pod ranges", "Last error", "Fix"],
        rows: all.into_iter().chain(nodes.map(line)).collect(),
        empty: "The cluster has no nodes.",
    }
}
