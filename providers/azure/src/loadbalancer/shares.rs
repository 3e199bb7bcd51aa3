//! What a write of a shared object has of each Service, and whose part an error of Azure names. Pure.

use std::time::Duration;

use ccm_provider::ProviderError;
use serde_json::Value;

use super::balancer::Edit;
use super::json;
use super::names::{Family, is_of, own_pool};
use super::plan::step::{SecurityPart, Write};
use super::refused::{ASIDE, BRIEFLY, DENIED, Refused, time_of};
use crate::annotations::SERVICE_TAGS;
use crate::client::id::ArmId;

/// What the error of a full subnet says.
const NO_ROOM: &str = "does not have enough capacity";
/// What the error about a missing right on another object says.
const LINKED: &str = "on the linked scope";

/// The parts of the Services in a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shares<'a> {
    Balancer(&'a [Edit]),
    Security(&'a [SecurityPart]),
}

impl<'a> Shares<'a> {
    pub(super) fn of(write: &'a Write) -> Self {
        match write {
            Write::Balancer(change) => Self::Balancer(&change.edits),
            Write::Security(change) => Self::Security(&change.parts),
            _ => Self::Balancer(&[]),
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Self::Balancer(edits) => edits.len(),
            Self::Security(parts) => parts.len(),
        }
    }

    /// Whether a Service has no load balancer until the write succeeds.
    pub(super) fn has_cut_off(self) -> bool {
        matches!(self, Self::Balancer(edits) if edits.iter().any(|edit| edit.is_cut_off))
    }

    /// The Services whose part an error names: keys, fingerprints, and for how long they are left out.
    pub(super) fn named(self, error: &ProviderError) -> Vec<(&'a str, u64, Duration)> {
        let usual = time_of(error);
        let text = &error.to_string().to_lowercase();
        match self {
            Self::Balancer(edits) => {
                let named = edits.iter().filter(|edit| names_part(text, edit));
                let named = named.map(|edit| left_out(edit, usual)).collect();
                // The subnet may have room for some of them.
                if text.contains(NO_ROOM) { second_half(named) } else { named }
            }
            Self::Security(parts) => {
                let names_rule = |part: &SecurityPart| part.claim.rules().iter().any(|rule| mentions(text, rule));
                let named = parts.iter().filter(|part| quoted_tag(part, text).is_some() || names_rule(part));
                named.map(|part| (&*part.key, part.fingerprint, usual)).collect()
            }
        }
    }

    /// The Services to leave out if an error names none: half of them, until only the one is left that Azure refuses. The
    /// cause may be something else: it is left out for a shorter time.
    pub(super) fn half(self, error: &ProviderError) -> Vec<(&'a str, u64, Duration)> {
        let Self::Balancer(edits) = self else { return Vec::new() };
        let usual = time_of(error).min(DENIED);
        second_half(edits.iter().map(|edit| left_out(edit, usual)).collect())
    }

    /// The annotation and the value that the text of an error, in lower case, quotes.
    pub(super) fn quoted(self, text: &str) -> Option<String> {
        let Self::Security(parts) = self else { return None };
        let tag = parts.iter().find_map(|part| quoted_tag(part, text))?;
        Some(format!("{} {tag:?}; write a service tag that Azure knows", SERVICE_TAGS.row.key))
    }

    /// Records that Azure refuses the part of a Service.
    pub(super) fn note(self, refused: &Refused, named: (&str, u64, Duration), error: ProviderError) {
        let (key, fingerprint, time) = named;
        let why = |what: &str| format!("{what}; correct what the error names, or change the Service");
        match self {
            Self::Balancer(_) => {
                let error = error.wrap(why("the load balancer is written without this Service"));
                refused.note(key, fingerprint, error, time);
            }
            Self::Security(_) => {
                let error = error.wrap(why("the security group is written without the rules of this Service"));
                refused.note_rules(key, fingerprint, error, time);
            }
        }
    }
}

fn left_out(edit: &Edit, usual: Duration) -> (&str, u64, Duration) {
    (&*edit.key, edit.fingerprint, if edit.is_cut_off { BRIEFLY } else { usual })
}

/// The second half of some Services, which is left out until the first one was tried; of a single one, itself.
fn second_half(mut services: Vec<(&str, u64, Duration)>) -> Vec<(&str, u64, Duration)> {
    if services.len() > 1 {
        services.sort_unstable();
        services = services.split_off(services.len().div_ceil(2));
        services.iter_mut().for_each(|(.., time)| *time = ASIDE);
    }
    services
}

/// The service tag of a Service that the text of an error, in lower case, quotes.
fn quoted_tag<'p>(part: &'p SecurityPart, text: &str) -> Option<&'p str> {
    let mut tags = part.claim.access.iter().flat_map(|access| &access.tags);
    tags.find(|tag| mentions(text, &format!("value provided: {tag}"))).map(String::as_str)
}

/// Whether the text of an error, in lower case, names an object of this part: one with the name of the Service, or its
/// public IP address by ID. The name of an address is users' choice, and may be any word of the text. Of a private
/// address, texts name no frontend, only the address, or the subnet that has none left or must not be used.
fn names_part(text: &str, edit: &Edit) -> bool {
    let ips = edit.frontends.iter().map(|frontend| json::reference(frontend, "publicIPAddress"));
    let mut ips = ips.filter_map(|id| ArmId::parse(id).ok()).map(|id| format!("/publicipaddresses/{}", id.name()));
    let names = [&edit.frontends, &edit.rules, &edit.probes].into_iter().flatten().map(json::name);
    let mut own = names.chain(edit.drops.iter().map(String::as_str)).filter(|name| is_of(name, &edit.base));
    let own_pools = [Family::V4, Family::V6].map(|family| own_pool(&edit.key, family));
    let pool = |name: &String| own_pools.contains(name) && mentions(text, &format!("/backendaddresspools/{name}"));
    let of_private = |frontend: &Value| {
        let subnet = json::reference(frontend, "subnet").rsplit('/').next().unwrap_or_default();
        let ip = json::property(frontend, "privateIPAddress");
        let is_full = || mentions(text, &format!("subnet {subnet} with address prefix"));
        let is_denied = || text.contains(LINKED) && mentions(text, &format!("/subnets/{subnet}"));
        !subnet.is_empty() && (is_full() || is_denied())
            || !ip.is_empty() && mentions(text, &format!("ip address {ip}"))
    };
    ips.any(|id| mentions(text, &id))
        || own.any(|name| mentions(text, name))
        || edit.pools.iter().any(pool)
        || edit.frontends.iter().any(of_private)
}

/// Whether a text in lower case contains a name, and not only as the beginning of a longer one.
fn mentions(text: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    let ends = |rest: &str| {
        let mut next = rest.chars();
        match next.next() {
            // The end of a sentence, or part of a name.
            Some('.') => !next.next().is_some_and(char::is_alphanumeric),
            Some(c) => !c.is_alphanumeric() && !matches!(c, '-' | '_'),
            None => true,
        }
    };
    text.match_indices(&name).any(|(at, _)| text.get(at + name.len()..).is_some_and(ends))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IPS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses";

    /// The part of a Service whose public IP address has this name.
    fn part(base: &str, ip: &str) -> Edit {
        Edit {
            key: "shop/web".to_owned(),
            base: base.to_owned(),
            pools: vec!["kubernetes".to_owned(), "shop-web".to_owned()],
            frontends: vec![json!({"name": base, "properties": {"publicIPAddress": {"id": format!("{IPS}/{ip}")}}})],
            rules: vec![json!({"name": format!("{base}-TCP-80")})],
            probes: vec![json!({"name": "cluster-service-shared-health-probe"})],
            ..Edit::default()
        }
    }

    #[test]
    fn an_error_is_that_of_the_part_whose_object_it_names() {
        let of = |text: &str, base, ip| names_part(&text.to_lowercase(), &part(base, ip));
        let taken = format!("Resource {IPS}/web1 is in use by another frontend.");
        assert!(of(&taken, "a1", "web1") && of(&taken, "a1", "WEB1"));
        assert!(!of(&taken, "a1", "web"), "the beginning of another name");
        assert!(!of(&taken, "a1", "in"), "a word of the text is no address");
        let rule = "Rule a1-TCP-80 is invalid.";
        assert!(of(rule, "a1", "x") && !of(rule, "a2", "x"));
        assert!(!of("Rule a1-TCP-8080 is invalid", "a1", "x"), "a rule of another port");
        assert!(!of("Probe cluster-service-shared-health-probe is invalid", "a1", "x"), "the probe is everybody's");
        let pool = |name: &str| format!("/loadBalancers/lb/backendAddressPools/{name} is invalid");
        assert!(of(&pool("shop-web"), "a1", "x") && !of(&pool("shop-web-ipv6"), "a1", "x"));
        assert!(!of(&pool("kubernetes"), "a1", "x"), "the pool is everybody's");
        let mut private = part("a1", "x");
        private.frontends = vec![json!({"name": "a1", "properties": {
            "privateIPAddress": "10.0.0.4", "subnet": {"id": "/subnets/Nodes"}}})];
        let of_private = |text: &str| names_part(&text.to_lowercase(), &private);
        assert!(of_private("is using the private IP address 10.0.0.4 which is already allocated"));
        assert!(!of_private(
            "Private static IP address 10.0.0.40 does not belong to the range of subnet prefix 10.0.0.0/27."
        ));
        assert!(of_private(
            "Subnet nodes with address prefix 10.0.0.0/29 does not have enough capacity for 1 IP addresses."
        ));
        let linked = |subnet: &str| {
            format!(
                "it may not perform 'subnets/join/action' on the linked scope(s) '/subnets/{subnet}' or they are invalid."
            )
        };
        assert!(of_private(&linked("nodes")) && !of_private(&linked("nodes2")));
        assert!(!of_private("/subnets/nodes is invalid"), "that of others, too");
        assert!(!of_private("Subnet nodes2 with address prefix 10.0.1.0/29 does not have enough capacity."));
        assert!(of(&format!("see {IPS}/web1."), "a1", "web1") && !of(&format!("see {IPS}/web1.eu"), "a1", "web1"));
    }
}
