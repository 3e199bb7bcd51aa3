//! Checks of every plan, regardless of its inputs. Pure.

use ccm_provider::ProviderError;

use super::balancer::BalancerChange;
use super::env::Env;
use super::json;
use super::plan::address::Outcome;
use super::plan::step::Write;
use super::tags;
use super::wanted::Wanted;

/// The steps that would delete or change what is not ours, each with the reason.
pub(super) fn guard(env: &Env, wanted: &Wanted, writes: &[&Write]) -> Vec<(usize, ProviderError)> {
    let refused = writes.iter().enumerate().filter_map(|(index, write)| {
        let why = problem(env, wanted, write)?;
        Some((index, ProviderError::bug(format!("{why}: not sent"))))
    });
    refused.collect()
}

fn problem(env: &Env, wanted: &Wanted, write: &Write) -> Option<String> {
    match write {
        Write::Address(change) => {
            let is_deleted = change.after(env, &change.before) == Outcome::Delete;
            let services = tags::services(tags::get(&change.before, &tags::SERVICE));
            let cluster = tags::get(&change.before, &tags::CLUSTER);
            let is_ours = !services.is_empty() && (cluster.is_empty() || json::same(cluster, &wanted.cluster));
            (is_deleted && !is_ours).then(|| format!("the public IP address {} is not made here", change.id))
        }
        Write::DeleteBalancer(change) if !env.manages(&wanted.cluster, &change.name) => {
            Some(format!("the load balancer {} is not managed", change.id))
        }
        Write::Balancer(change) | Write::DeleteBalancer(change) => lost_rule(env, wanted, change)
            .map(|rule| format!("the rule {rule} of the load balancer {} is of no Service in this work", change.name)),
        _ => None,
    }
}

/// A rule that would go although it is none of the Services'.
fn lost_rule(env: &Env, wanted: &Wanted, change: &BalancerChange) -> Option<String> {
    let after = change.after(env, |_| true);
    let (before, after) =
        (json::items(&change.before, "loadBalancingRules"), json::items(&after, "loadBalancingRules"));
    let is_ours = |name: &str| wanted.items.values().any(|item| item.names.own(name));
    let mut lost = before.iter().map(json::name).filter(|name| json::named(after, name).is_none() && !is_ours(name));
    lost.next().map(str::to_owned)
}
