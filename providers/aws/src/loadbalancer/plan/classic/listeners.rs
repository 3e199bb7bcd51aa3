//! Listeners, and the policies of listeners and backends.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{Risk, Verb};

use super::Context;
use crate::client::Write;
use crate::client::elb::{Listener, ListenerDescription, LoadBalancer, Policy};
use crate::client::write::ElbWrite;
use crate::loadbalancer::names;
use crate::loadbalancer::observed;
use crate::loadbalancer::step::{Besides, Former, Kind, Step};

const PROXY_PROTOCOL_TYPE: &str = "ProxyProtocolPolicyType";
const SSL_NEGOTIATION_TYPE: &str = "SSLNegotiationPolicyType";

/// For plans: `ssl 443 -> tcp 31443 (arn:…)`.
pub(super) fn text(listener: &Listener) -> String {
    let Listener { port, protocol, instance_port, instance_protocol, certificate } = listener;
    let (protocol, instance_protocol) = (protocol.to_lowercase(), instance_protocol.to_lowercase());
    let certificate = certificate.as_ref().map(|arn| format!(" ({arn})")).unwrap_or_default();
    format!("{protocol} {port} to {instance_protocol} {instance_port}{certificate}")
}

fn same(a: &Listener, b: &Listener) -> bool {
    let words = |listener: &Listener| {
        let Listener { protocol, instance_protocol, certificate, .. } = listener;
        [Some(protocol), Some(instance_protocol), certificate.as_ref()]
            .map(|word| word.map(|word| word.to_ascii_lowercase()))
    };
    (a.port, a.instance_port) == (b.port, b.instance_port) && words(a) == words(b)
}

fn listeners(balancer: &LoadBalancer) -> impl Iterator<Item = (&Listener, &ListenerDescription)> {
    balancer.listeners.iter().filter_map(|description| Some((description.listener.as_ref()?, description)))
}

/// Whether two listeners differ at most in their certificates, which AWS changes in place.
fn same_but_certificate(a: &Listener, b: &Listener) -> bool {
    let plain = |listener: &Listener| Listener { certificate: None, ..listener.clone() };
    a.certificate.is_some() == b.certificate.is_some() && same(&plain(a), &plain(b))
}

fn is_tls(protocol: &str) -> bool {
    ["SSL", "HTTPS"].iter().any(|tls| protocol.eq_ignore_ascii_case(tls))
}

/// Whether AWS refuses one listener beside the other: of the listeners with one instance port, all or none have TLS to
/// the nodes.
fn excludes(a: &Listener, b: &Listener) -> bool {
    let mixed = is_tls(&a.instance_protocol) != is_tls(&b.instance_protocol);
    a.port == b.port || (a.instance_port == b.instance_port && mixed)
}

/// Replaces changed listeners and creates the missing ones, then deletes those of other ports. AWS changes nothing of a
/// listener in place but its certificate.
pub(super) fn sync(context: &Context<'_>, balancer: &LoadBalancer) -> Vec<Step> {
    let wanted = &context.classic.listeners;
    let found: Vec<&Listener> = listeners(balancer).map(|(listener, _)| listener).collect();
    let mut old: Vec<&Listener> =
        found.iter().filter(|listener| !wanted.iter().any(|wanted| same(wanted, listener))).copied().collect();
    old.sort();
    let mut new = wanted.clone();
    new.retain(|listener| !found.iter().any(|found| same(found, listener)));

    let mut steps = Vec::new();
    for former in old.clone() {
        let Some(at) = new.iter().position(|wanted| same_but_certificate(wanted, former)) else { continue };
        steps.extend(certificate(context, balancer, former, new.remove(at)));
        old.retain(|listener| listener.port != former.port);
    }
    let (changed, surplus): (Vec<&Listener>, Vec<&Listener>) =
        old.into_iter().partition(|listener| new.iter().any(|wanted| excludes(wanted, listener)));
    steps.extend(delete(context, &changed).map(|step| step.part(Kind::Frame, "listeners")));
    if !new.is_empty() {
        let write = ElbWrite::CreateLoadBalancerListeners { balancer: context.name(), listeners: new.clone() };
        let create = context.step(Verb::Create, "Listener", "the Service wants these listeners", write);
        let mut create = create.part(Kind::Frame, "listeners");
        create.besides = Besides::Former(changed.into_iter().map(|listener| as_it_is(balancer, listener)).collect());
        steps.push(new.iter().fold(create, |step, listener| step.change("listener", None, Some(text(listener)))));
    }
    // The others serve until the new ones do.
    steps.extend(delete(context, &surplus).map(|step| step.part(Kind::Retire, "")));
    steps
}

/// A listener with its policies.
fn as_it_is(balancer: &LoadBalancer, of: &Listener) -> Former {
    let policies = listeners(balancer).filter(|(listener, _)| *listener == of).flat_map(|(_, found)| &found.policies);
    (of.clone(), policies.cloned().collect())
}

fn certificate(context: &Context<'_>, balancer: &LoadBalancer, former: &Listener, wanted: Listener) -> Option<Step> {
    let was = as_it_is(balancer, former);
    let (balancer, port, certificate) = (context.name(), wanted.port, wanted.certificate.clone()?);
    let write = ElbWrite::SetLoadBalancerListenerSSLCertificate { balancer, port, certificate: certificate.clone() };
    let id = format!("{}:{port}", context.desired.name);
    let step = Step::new(Verb::Update, "Listener", id, "the annotation names another certificate", Write::Elb(write));
    let step = step.change("certificate", former.certificate.clone(), Some(certificate));
    let besides = Besides::Listener { former: was, wanted };
    Some(Step { besides, ..step.part(Kind::Frame, format!("certificate of port {port}")) })
}

fn delete(context: &Context<'_>, old: &[&Listener]) -> Option<Step> {
    if old.is_empty() {
        return None;
    }
    let ports = old.iter().map(|listener| listener.port).collect();
    let write = ElbWrite::DeleteLoadBalancerListeners { balancer: context.name(), ports };
    let delete = context.step(Verb::Delete, "Listener", "the Service wants no such listener", write).risk(Risk::Brief);
    Some(old.iter().fold(delete, |step, listener| step.change("listener", Some(text(listener)), None)))
}

/// Proxy protocol: one policy for the backend port of each listener. Backend ports without a wanted listener lose it with
/// their listener: one that stays until others serve needs it. Other policies of a port stay.
pub(super) fn proxy_protocol(context: &Context<'_>, existing: Option<&observed::Classic>) -> Vec<Step> {
    let nothing = BTreeMap::new();
    let found = existing.map_or(&nothing, |existing| &existing.balancer.backend_policies);
    let ports: BTreeSet<i32> = context.classic.listeners.iter().map(|listener| listener.instance_port).collect();
    let wanted = if context.classic.proxy_protocol { ports.clone() } else { BTreeSet::new() };
    let has = |port: &i32| found.get(port).is_some_and(|policies| policies.contains(names::PROXY_PROTOCOL_POLICY));
    let on: Vec<i32> = wanted.iter().filter(|port| !has(port)).copied().collect();
    let off: Vec<i32> = found.keys().filter(|port| has(port) && !wanted.contains(port)).copied().collect();

    let mut steps = Vec::new();
    if !on.is_empty() {
        let attributes = BTreeMap::from([("ProxyProtocol".to_owned(), "true".to_owned())]);
        let policy = names::PROXY_PROTOCOL_POLICY;
        steps.extend(policy_made(context, existing, policy, PROXY_PROTOCOL_TYPE, attributes));
    }
    for (port, is_on) in on.into_iter().map(|port| (port, true)).chain(off.into_iter().map(|port| (port, false))) {
        let mut policies = found.get(&port).cloned().unwrap_or_default();
        match is_on {
            true => policies.insert(names::PROXY_PROTOCOL_POLICY.to_owned()),
            false => policies.remove(names::PROXY_PROTOCOL_POLICY),
        };
        let policies = policies.into_iter().collect();
        let (balancer, instance_port) = (context.name(), port);
        let write = ElbWrite::SetLoadBalancerPoliciesForBackendServer { balancer, instance_port, policies };
        let reason = if is_on { "the annotation requires it" } else { "no annotation requires it any more" };
        let step = context.step(Verb::Update, "LoadBalancer", reason, write).risk(Risk::Brief);
        let step = match ports.contains(&port) {
            true => step.part(Kind::Settings, PROXY_PROTOCOL_TYPE),
            false => step.part(Kind::Retire, ""),
        };
        let field = format!("proxy protocol on node port {port}");
        steps.push(step.change(field, Some((!is_on).to_string()), Some(is_on.to_string())));
    }
    steps
}

/// The annotated TLS policy on each TLS listener that lacks it. Without the annotation, listeners keep their policies.
pub(super) fn ssl_policies(context: &Context<'_>, existing: Option<&observed::Classic>) -> Vec<Step> {
    let Some(reference) = &context.classic.ssl_policy else { return Vec::new() };
    if existing.is_some_and(|existing| existing.policies.is_none()) {
        return Vec::new();
    }
    let name = names::ssl_policy(reference);
    let nothing = BTreeSet::new();
    let mut lacking = tls_listeners(context, existing, &nothing);
    lacking.retain(|(_, policies)| !policies.contains(&name));
    let mut steps = Vec::new();
    if !lacking.is_empty() {
        let attributes = BTreeMap::from([("Reference-Security-Policy".to_owned(), reference.clone())]);
        steps.extend(policy_made(context, existing, &name, SSL_NEGOTIATION_TYPE, attributes));
    }
    for (Listener { port, .. }, policies) in lacking {
        let port = *port;
        // A listener has one TLS policy: the previous one is replaced, other policies stay.
        let is_other = |policy: &&String| {
            known(existing).iter().any(|known| known.name == **policy && known.kind != SSL_NEGOTIATION_TYPE)
        };
        let before = policies.iter().filter(|policy| !is_other(policy)).cloned().collect::<Vec<_>>().join(" ");
        let policies = policies.iter().filter(is_other).cloned().chain([name.clone()]).collect();
        let write = ElbWrite::SetLoadBalancerPoliciesOfListener { balancer: context.name(), port, policies };
        let id = format!("{}:{port}", context.desired.name);
        let step = Step::new(Verb::Update, "Listener", id, "the annotation names it", Write::Elb(write));
        // The listener of the port that has it already is there again if the new one is refused.
        let has =
            |(former, found): (&Listener, &ListenerDescription)| former.port == port && found.policies.contains(&name);
        let is_replaced = existing.is_some_and(|existing| listeners(&existing.balancer).any(has));
        let besides = if is_replaced { Besides::OfNewListener } else { Besides::Nothing };
        let step = step.change("TLS policy", Some(before).filter(|text| !text.is_empty()), Some(name.clone()));
        steps.push(Step { besides, ..step.part(Kind::Settings, SSL_NEGOTIATION_TYPE) });
    }
    steps
}

/// The TLS listeners after the listener steps, with the policies they have then; if only nodes changed, the existing
/// listeners.
fn tls_listeners<'a>(
    context: &'a Context<'_>,
    existing: Option<&'a observed::Classic>,
    nothing: &'a BTreeSet<String>,
) -> Vec<(&'a Listener, &'a BTreeSet<String>)> {
    let found: Vec<_> = existing.iter().flat_map(|existing| listeners(&existing.balancer)).collect();
    let mut all: Vec<_> = match context.classic.common.must_exist {
        true => found.into_iter().map(|(listener, description)| (listener, &description.policies)).collect(),
        false => {
            let policies = |wanted: &Listener| {
                // With another certificate, a listener keeps its policies.
                let found = found.iter().find(|(listener, _)| same_but_certificate(listener, wanted));
                found.map(|(_, description)| &description.policies)
            };
            context.classic.listeners.iter().map(|wanted| (wanted, policies(wanted).unwrap_or(nothing))).collect()
        }
    };
    all.retain(|(listener, _)| is_tls(&listener.protocol));
    all.sort_by_key(|(listener, _)| listener.port);
    all
}

fn known(existing: Option<&observed::Classic>) -> &[Policy] {
    existing.and_then(|existing| existing.policies.as_deref()).unwrap_or_default()
}

/// Creates a policy that the balancer does not have yet.
fn policy_made(
    context: &Context<'_>,
    existing: Option<&observed::Classic>,
    policy: &str,
    kind: &str,
    attributes: BTreeMap<String, String>,
) -> Option<Step> {
    if known(existing).iter().any(|known| known.name == policy) {
        return None;
    }
    let summary: Vec<String> = attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let write = ElbWrite::CreateLoadBalancerPolicy {
        balancer: context.name(),
        policy: policy.to_owned(),
        kind: kind.to_owned(),
        attributes,
    };
    let step = Step::new(Verb::Create, "LoadBalancerPolicy", policy, "the annotation requires it", Write::Elb(write));
    Some(step.change("attributes", None, Some(summary.join(" "))).part(Kind::Settings, kind.to_owned()))
}
