//! Invariants of all plans, regardless of their inputs. Pure.

use std::collections::BTreeSet;

use ccm_provider::{ProviderError, Verb};

use super::Env;
use super::desired::Desired;
use super::observed::Observed;
use super::step::{Act, Step};
use crate::client::resource::Collection;
use crate::ownership::ClusterNames;

/// Refuses a plan that changes objects that are not ours, or opens anything that nobody asked for.
pub(super) fn guard(env: &Env, observed: &Observed, desired: &Desired, steps: &[Step]) -> Result<(), ProviderError> {
    let cluster = ClusterNames(&observed.cluster_id);
    let of_cluster: BTreeSet<String> = [
        cluster.health_check(),
        cluster.external_check_firewall(),
        cluster.internal_check_firewall(),
        cluster.instance_group(),
    ]
    .into();
    for step in steps {
        let write = step.act.write();
        let owned = step.item.and_then(|place| desired.items.get(&place));
        let is_of_service = owned.is_some_and(|item| {
            let names = &item.names;
            let firewalls = [
                names.firewall(),
                names.deny_firewall(),
                names.external_check_firewall(),
                names.internal_check_firewall(),
            ];
            write.name == names.balancer || firewalls.contains(&write.name)
        });
        let prefix = format!("k8s-{}-internal-", observed.cluster_id);
        let is_shared_backend =
            write.operation.collection == Collection::BackendServices && write.name.starts_with(&prefix);
        // The backend service of our rule may have any name; it is deleted unless it is used.
        let is_of_rule = matches!(step.act, Act::DeleteUnlessUsed { .. })
            && owned.and_then(|item| observed.rule(&item.names)).and_then(super::plan::backend_name).as_ref()
                == Some(&write.name);
        if !(is_of_service || is_of_rule || is_shared_backend || of_cluster.contains(&write.name)) {
            return Err(ProviderError::bug(format!("{write} is of no Service in this work: not sent")));
        }
        if let Act::Firewall(firewall) = &step.act
            && step.verb != Verb::Delete
        {
            if firewall.rule.target_tags.is_empty() {
                let text =
                    format!("the firewall rule {} would be for every instance of the network: not sent", write.name);
                return Err(ProviderError::bug(text));
            }
            if firewall.is_deny && !env.options.denies {
                return Err(ProviderError::bug(format!(
                    "nobody asked for the rule {}, which denies: not sent",
                    write.name
                )));
            }
        }
    }
    Ok(())
}
