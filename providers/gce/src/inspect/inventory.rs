//! The load balancers as all reports see them: what they say about their owner, and their state.

use std::collections::BTreeSet;

use ccm_kit::annotations::BalancerKind as _;
use ccm_kit::inspect::{Claim, DESIRED, Explained, LOAD_BALANCER, Object};
use ccm_provider::{Fact, Service};

use super::explain_service as state;
use crate::annotations::Scheme;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::claim::real_scheme;
use crate::loadbalancer::hosts::Host;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::Wanted;
use crate::ownership::{CLASSES, described_service};

/// The position of the only Service in its work.
const PLACE: usize = 0;

impl Explained for Balancers {
    const NOT_FOUND: &'static str = "check whether it is in another project or region";
    const CLASSES: &'static [&'static str] = &CLASSES;

    fn elsewhere(_: &Service) -> Vec<Fact> {
        let text = "its class, an annotation or a finalizer leaves the load balancer to another controller";
        vec![Fact::good(DESIRED, text)]
    }

    fn in_words(desired: &Wanted) -> Option<String> {
        let item = desired.items.get(&PLACE)?;
        let settings = item.settings.as_ref()?;
        let ports: Vec<String> = settings.ports.iter().map(ToString::to_string).collect();
        let scheme = match item.scheme {
            Scheme::External => "external",
            Scheme::Internal => "internal",
        };
        let (name, protocol) = (&item.names.balancer, &settings.protocol);
        Some(format!("a load balancer {name}, {scheme}: {protocol} {}", ports.join(", ")))
    }

    fn inventory(&self, service: &Service, desired: &Wanted, observed: &Observed) -> Vec<Object> {
        let Some(item) = desired.items.get(&PLACE) else { return Vec::new() };
        let found = observed.rule(&item.names).map(|rule| balancer(&rule.name, &rule.description, real_scheme(rule)));
        let members = state::hosts(item, observed).iter().map(id).collect();
        vec![Object { state: state::parts(self.env(), service, item, observed), members, ..found.unwrap_or_default() }]
    }

    fn keep_registered(desired: &mut Wanted, members: &BTreeSet<&str>) {
        for item in desired.items.values_mut().filter(|item| item.settings.is_some()) {
            item.hosts.known.retain(|host, _| members.contains(&*id(host)));
        }
    }
}

/// A balancer whose rule, pool, backend service or address has this name and description. The name contains the UID of a
/// Service. Nothing names the cluster.
pub(super) fn balancer(name: &str, description: &str, scheme: Scheme) -> Object {
    let is_uid = |digits: &&str| digits.len() == 31 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let uid = name.strip_prefix('a').filter(is_uid);
    let claim = uid.zip(described_service(description)).map(|(uid, service)| Claim {
        cluster: String::new(),
        service: service.to_string(),
        uid: uid.to_owned(),
        marks: vec![scheme.as_str().to_owned(), description.to_owned()],
    });
    Object { kind: LOAD_BALANCER, id: name.to_owned(), claim, ..Object::default() }
}

fn id(host: &Host) -> String {
    format!("{}/{}", host.zone, host.name)
}
