//! Pod ranges from the IPv6 prefixes that EC2 delegates to the primary interface of an instance.
//!
//! An extension: upstream has no such controller, and kops has its own. Off unless `--controllers` names it. A node
//! that has ranges is left unchanged; the API server refuses to change them anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{Node, NodeChanges, NodeTask, NodeTaskLimits, NodeTaskSpec, NodeWork, Plan, ProviderError};

use crate::client::ec2::Instance;
use crate::client::{Api, Query};
use crate::node::identity::ProviderId;

pub(crate) const SPEC: NodeTaskSpec = NodeTaskSpec {
    name: "aws-ipv6-prefix-ipam",
    aliases: &[],
    queue: "aws_ipv6_prefix_ipam",
    on_by_default: false,
    taints: &[],
    check: |_| Vec::new(),
};

const WHY: &str = "EC2 delegated this prefix to the node's primary interface";
/// Delay of the next check of a node whose interface has no prefix: a prefix must be delegated first.
const NO_PREFIX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct PrefixIpam(pub(crate) Arc<dyn Api>);

/// The first prefix of the primary interface.
fn prefix(instance: &Instance) -> Option<&str> {
    let primary = instance.interfaces.iter().find(|interface| interface.device_index == Some(0))?;
    primary.ipv6_prefixes.first().map(String::as_str)
}

impl PrefixIpam {
    async fn prefixes(&self, work: &[NodeWork]) -> Result<BTreeMap<String, Option<String>>, ProviderError> {
        let ids: BTreeSet<String> = work
            .iter()
            .filter_map(|work| Some(ProviderId::instance(work.provider_id.as_deref())?.to_string()))
            .collect();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let instances = self.0.instances(&Query::by("instance-id", ids)).await?;
        Ok(instances.into_iter().map(|instance| (instance.id.clone(), prefix(&instance).map(str::to_owned))).collect())
    }
}

fn judge(work: &NodeWork, prefixes: &BTreeMap<String, Option<String>>) -> Result<NodeChanges, ProviderError> {
    let Some(id) = ProviderId::instance(work.provider_id.as_deref()) else { return Ok(NodeChanges::default()) };
    match prefixes.get(id.as_str()) {
        Some(Some(prefix)) => Ok(NodeChanges { pod_cidrs: vec![prefix.clone()], ..NodeChanges::default() }),
        Some(None) => Err(ProviderError::retry(
            format!("the primary network interface of {id} has no IPv6 prefix; assign one (ec2:AssignIpv6Addresses)"),
            NO_PREFIX,
        )),
        None => Err(ProviderError::unknown(format!("EC2 does not show the instance {id} yet"))),
    }
}

#[async_trait]
impl NodeTask for PrefixIpam {
    fn limits(&self) -> NodeTaskLimits {
        NodeTaskLimits { batch: 1000, workers: 1, rate: None, tries: None }
    }

    fn is_due(&self, node: &Node) -> bool {
        let id = ProviderId::instance(node.provider_id.as_deref());
        node.pod_cidrs.is_empty() && !node.deleting && id.is_some()
    }

    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        match self.prefixes(work).await {
            Ok(prefixes) => work.iter().map(|work| judge(work, &prefixes)).collect(),
            Err(error) => work.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError> {
        let prefixes = self.prefixes(std::slice::from_ref(work)).await?;
        let changes = judge(work, &prefixes)?;
        let step = work.node.as_ref().and_then(|node| changes.step(node, WHY));
        Ok(Plan { steps: step.into_iter().collect(), ..Plan::new(format!("node {} pod ranges", work.name)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ec2::InstanceInterface;

    fn work(provider_id: &str) -> NodeWork {
        NodeWork { name: "a".into(), provider_id: Some(provider_id.into()), node: None }
    }

    #[test]
    fn the_first_prefix_of_the_primary_interface_becomes_the_pod_range() {
        let interface = |device_index, prefix: &str| InstanceInterface {
            device_index: Some(device_index),
            ipv6_prefixes: vec![prefix.to_owned()],
            ..InstanceInterface::default()
        };
        let interfaces = vec![interface(1, "2001:db8:1::/80"), interface(0, "2001:db8::/80")];
        assert_eq!(prefix(&Instance { interfaces, ..Instance::default() }), Some("2001:db8::/80"));
        assert_eq!(prefix(&Instance::default()), None);
    }

    #[test]
    fn no_prefix_and_no_instance_are_different_answers() {
        let prefixes = [("i-01234567".to_owned(), Some("2001:db8::/80".to_owned())), ("i-89abcdef".to_owned(), None)];
        let judged = |id: &str| judge(&work(id), &prefixes.clone().into());
        assert_eq!(judged("aws:///z/i-01234567").unwrap().pod_cidrs, ["2001:db8::/80"]);
        assert_eq!(judged("aws:///z/i-89abcdef").unwrap_err().retry_after(), Some(NO_PREFIX));
        assert_eq!(judged("aws:///z/i-0badc0de").unwrap_err().retry_after(), None);
        assert!(judged("aws:///z/x/fargate-10.0.0.1").unwrap().is_empty());
    }
}
