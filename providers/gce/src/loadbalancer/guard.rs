//! Invariants of all plans, regardless of their inputs. Pure.

use ccm_provider::{ProviderError, Verb};

use super::env::Env;
use super::observed::Observed;
use super::step::{Act, Step};
use super::wanted::Wanted;
use crate::client::resource::Collection;
use crate::ownership::ClusterNames;

/// The steps that change objects that are not ours, or open anything that nobody asked for, each with the reason.
pub(super) fn guard(env: &Env, observed: &Observed, wanted: &Wanted, steps: &[&Step]) -> Vec<(usize, ProviderError)> {
    let refused = steps.iter().enumerate().filter_map(|(index, step)| {
        let why = problem(env, observed, wanted, step)?;
        Some((index, ProviderError::bug(format!("{why}: not sent"))))
    });
    refused.collect()
}

fn problem(env: &Env, observed: &Observed, wanted: &Wanted, step: &Step) -> Option<String> {
    let write = step.act.write();
    let cluster = ClusterNames(&observed.cluster_id);
    let of_cluster = [
        cluster.health_check(),
        cluster.external_check_firewall(),
        cluster.internal_check_firewall(),
        cluster.instance_group(),
    ];
    let owned = step.items.first().filter(|_| !step.is_shared).and_then(|place| wanted.items.get(place));
    let is_of_service = owned.is_some_and(|item| {
        let names = &item.names;
        let firewalls =
            [names.firewall(), names.deny_firewall(), names.external_check_firewall(), names.internal_check_firewall()];
        write.name == names.balancer || firewalls.contains(&write.name)
    });
    let prefix = format!("k8s-{}-internal-", observed.cluster_id);
    let is_shared_backend =
        write.operation.collection == Collection::BackendServices && write.name.starts_with(&prefix);
    // The backend service of our rule may have any name; it is deleted unless it is used.
    let is_of_rule = matches!(step.act, Act::DeleteUnlessUsed(_))
        && owned.and_then(|item| observed.rule(&item.names)).and_then(super::plan::backend_name).as_ref()
            == Some(&write.name);
    if !(is_of_service || is_of_rule || is_shared_backend || of_cluster.contains(&write.name)) {
        return Some(format!("{write} is of no Service in this work"));
    }
    match &step.act {
        Act::Firewall(firewall) if step.verb != Verb::Delete => {
            if firewall.rule.target_tags.is_empty() {
                return Some(format!("the firewall rule {} would be for every instance of the network", write.name));
            }
            let is_unasked = firewall.is_deny && !env.options.denies;
            is_unasked.then(|| format!("nobody asked for the rule {}, which denies", write.name))
        }
        _ => None,
    }
}
