//! Warnings about the path by which nodes reach the internet. Pure.
//!
//! Without a NAT gateway or an address of their own, nodes reach it by the rules of the external load balancer behind which
//! they are. It ends with the last Service, or when a node leaves the pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::Finding;
use serde_json::{Value, json};

use super::super::json;
use super::super::members::{InstanceChange, InterfaceChange, scheme_of};
use super::super::names::is_pool_of_all;
use super::Planner;
use super::step::Write;
use crate::annotations::Scheme;
use crate::client::id::ArmId;

const OUTBOUND: &str = "LoadBalancerOutboundPath";
const REMEDY: &str = "unless the subnet has a NAT gateway, a firewall or another route to the internet, or the nodes have public addresses, \
                      give them one before";

impl Planner<'_> {
    /// Warns if the steps take the outbound path of nodes.
    pub(super) fn outbound_warnings(&mut self) {
        let mut deleted = BTreeSet::new();
        let mut left = BTreeMap::<String, BTreeSet<String>>::new();
        let joining: BTreeSet<String> = self.steps.iter().flat_map(|step| joins(&step.write)).collect();
        let live: BTreeSet<String> =
            self.observed.cluster.iter().flat_map(|facts| &facts.nodes).map(ToString::to_string).collect();
        let name = |pool: &ArmId| pool.parent().map(|balancer| balancer.name().to_lowercase()).unwrap_or_default();
        for step in &self.steps {
            match &step.write {
                Write::DeleteBalancer(change) => drop(deleted.insert(change.name.to_lowercase())),
                Write::Pool(change) if is_pool_of_all(&self.wanted.cluster, change.id.name()) => {
                    let gone = change.remove.iter().filter(|ip| live.contains(*ip) && !joining.contains(*ip));
                    left.entry(name(&change.id)).or_default().extend(gone.cloned());
                }
                Write::Instance(InstanceChange { pools, .. }) | Write::Interface(InterfaceChange { pools, .. }) => {
                    for pool in &pools.remove {
                        left.entry(name(pool)).or_default().insert(step.summary.id.clone());
                    }
                }
                _ => {}
            }
        }
        let item = self.wanted.items.values().next();
        let finding = |text: String| item.map(|item| item.finding(OUTBOUND, text));
        let of = |balancer: &Arc<Value>| -> Option<Finding> {
            let name = json::name(balancer).to_lowercase();
            let nodes = left.get(&name).filter(|nodes| !nodes.is_empty());
            match (deleted.contains(&name), nodes) {
                (true, _) => finding(format!(
                    "the load balancer {name}, by which nodes reach the internet, is deleted; {REMEDY}"
                )),
                (false, Some(nodes)) => {
                    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
                    let nodes = ccm_kit::inspect::first_few(&nodes);
                    finding(format!(
                        "by the load balancer {name} nodes reach the internet, and these leave it: {nodes}; {REMEDY}"
                    ))
                }
                (false, None) => None,
            }
        };
        let warnings: Vec<Finding> = self.observed.balancers.iter().filter(|it| is_path(it)).filter_map(of).collect();
        self.findings.extend(warnings);
    }
}

/// The addresses that become members.
fn joins(write: &Write) -> Vec<String> {
    match write {
        Write::Pool(change) => change.add.values().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// Whether nodes reach the internet by a load balancer.
fn is_path(balancer: &Value) -> bool {
    let by_rule = |rule: &Value| json::at(rule, &["properties", "disableOutboundSnat"]) != &json!(true);
    let by_outbound_rule = || !json::items(balancer, "outboundRules").is_empty();
    scheme_of(json::name(balancer)) == Scheme::External
        && (json::items(balancer, "loadBalancingRules").iter().any(by_rule) || by_outbound_rule())
}
