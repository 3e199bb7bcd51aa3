//! Decides which controller owns a Service and a forwarding rule, and which kind of load balancer a Service gets. Pure.
//!
//! Upstream: `gce_loadbalancer.go` and `gce_util.go`. Other controllers manage newer kinds of load balancers; classes,
//! annotations and finalizers identify their Services.

use std::collections::BTreeSet;

use ccm_provider::{Service, ServiceAction};

use super::env::Options;
use crate::annotations::{Annotations, L4_RBS, Scheme, scheme_of};
use crate::client::balancing::ForwardingRule;
use crate::ownership::{
    CLASS_EXTERNAL, CLASS_INTERNAL, CLASS_RBS, CLASSES, ILB_FINALIZER, ILB_FINALIZER_V2, NETLB_FINALIZER,
    RBS_FINALIZERS,
};

/// The controller that manages the load balancer of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Us,
    /// This provider if there is a forwarding rule, else another controller.
    UsIfThere,
    Other,
}

/// The scheme of a rule; external if it has none.
pub(crate) fn real_scheme(rule: &ForwardingRule) -> Scheme {
    if rule.load_balancing_scheme.eq_ignore_ascii_case("INTERNAL") { Scheme::Internal } else { Scheme::External }
}

/// Whether a rule belongs to another controller, which uses the same name for it.
pub(crate) fn is_foreign(rule: &ForwardingRule) -> bool {
    real_scheme(rule) == Scheme::External && !rule.backend_service.is_empty() && rule.target.is_empty()
}

/// Whether a rule is one of ours, of this kind.
pub(crate) fn is_of_kind(scheme: Scheme, rule: &ForwardingRule) -> bool {
    !is_foreign(rule) && real_scheme(rule) == scheme
}

/// The scheme that a Service asks for: by its class, else by its annotations.
pub(crate) fn scheme(service: &Service) -> Scheme {
    match service.spec.load_balancer_class.as_deref() {
        Some(CLASS_INTERNAL) => Scheme::Internal,
        Some(CLASS_EXTERNAL) => Scheme::External,
        _ => scheme_of(Annotations::read(&service.metadata.annotations)),
    }
}

/// The finalizer of a kind of load balancer.
pub(crate) fn finalizer(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::External => NETLB_FINALIZER,
        Scheme::Internal => ILB_FINALIZER,
    }
}

/// The kinds of load balancers that a Service has had, by its finalizers.
pub(crate) fn begun(service: &Service) -> BTreeSet<Scheme> {
    let both = [Scheme::External, Scheme::Internal].into_iter();
    both.filter(|scheme| has_finalizer(service, finalizer(*scheme))).collect()
}

fn has_finalizer(service: &Service, name: &str) -> bool {
    service.metadata.finalizers.iter().any(|present| present == name)
}

/// Whether an external load balancer with a backend service is requested from another controller.
fn uses_rbs(service: &Service) -> bool {
    service.spec.load_balancer_class.as_deref() == Some(CLASS_RBS)
        || Annotations::read(&service.metadata.annotations).readable(&L4_RBS) == Some(true)
        || RBS_FINALIZERS.iter().any(|name| has_finalizer(service, name))
}

/// The owner of the load balancer that the Service requests.
pub(crate) fn owner(options: &Options, service: &Service, action: ServiceAction) -> Owner {
    let class = service.spec.load_balancer_class.as_deref();
    if let Some(class) = class {
        return if CLASSES.contains(&class) { Owner::Us } else { Owner::Other };
    }
    let scheme = scheme(service);
    if has_finalizer(service, finalizer(scheme)) {
        return Owner::Us;
    }
    match (scheme, action) {
        (Scheme::External, _) if uses_rbs(service) || options.rbs_by_default => Owner::Other,
        (Scheme::Internal, ServiceAction::Ensure) if options.subsets || has_finalizer(service, ILB_FINALIZER_V2) => {
            Owner::UsIfThere
        }
        (Scheme::Internal, ServiceAction::UpdateHosts | ServiceAction::Delete) if options.subsets => Owner::Other,
        _ => Owner::Us,
    }
}

/// The finalizers of the provider, each with whether the Service needs it.
pub(crate) fn finalizers(options: &Options, service: &Service) -> Vec<(&'static str, bool)> {
    let wanted = scheme(service);
    let other = (finalizer(wanted.other()), false);
    match owner(options, service, ServiceAction::Ensure) {
        // As upstream, a Service whose ports are refused before anything is made gets none.
        Owner::Us => {
            let is_needed = has_finalizer(service, finalizer(wanted)) || !is_mixed(service);
            vec![(finalizer(wanted), is_needed), other]
        }
        // A load balancer that was made here before is deleted, and its finalizer removed.
        Owner::UsIfThere | Owner::Other if begun(service).contains(&wanted.other()) => vec![other],
        Owner::UsIfThere | Owner::Other => Vec::new(),
    }
}

/// Whether the ports differ in protocol.
pub(crate) fn is_mixed(service: &Service) -> bool {
    let first = service.spec.ports.first().map(|port| &port.protocol);
    service.spec.ports.iter().any(|port| Some(&port.protocol) != first)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value)] // literals at all callers
    fn service(annotations: Value, finalizers: &[&str], class: Option<&str>) -> Service {
        serde_json::from_value(json!({
            "metadata": {"annotations": annotations, "finalizers": finalizers},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class},
        }))
        .unwrap()
    }

    fn owners(options: &Options, service: &Service) -> [Owner; 3] {
        [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete]
            .map(|action| owner(options, service, action))
    }

    const US: [Owner; 3] = [Owner::Us; 3];
    const OTHER: [Owner; 3] = [Owner::Other; 3];

    #[test]
    fn rbs_takes_external_services_unless_they_were_begun_here() {
        let plain = Options::default();
        for (annotations, finalizers, class, expected) in [
            (json!({}), &[][..], None, US),
            (json!({"cloud.google.com/l4-rbs": "enabled"}), &[], None, OTHER),
            (json!({"cloud.google.com/l4-rbs": "Enabled"}), &[], None, US),
            (json!({"cloud.google.com/l4-rbs": "enabled"}), &[NETLB_FINALIZER], None, US),
            (json!({}), &["gke.networking.io/l4-netlb-v2"], None, OTHER),
            (json!({}), &["gke.networking.io/l4-netlb-v3"], None, OTHER),
            (json!({}), &[], Some(CLASS_RBS), OTHER),
            (json!({"cloud.google.com/l4-rbs": "enabled"}), &[], Some(CLASS_EXTERNAL), US),
        ] {
            let service = service(annotations, finalizers, class);
            assert_eq!(owners(&plain, &service), expected, "{service:?}");
        }
        let by_default = Options { rbs_by_default: true, ..Options::default() };
        assert_eq!(owners(&by_default, &service(json!({}), &[], None)), OTHER);
        assert_eq!(owners(&by_default, &service(json!({}), &[NETLB_FINALIZER], None)), US);
        assert_eq!(owners(&by_default, &service(json!({}), &[], Some(CLASS_EXTERNAL))), US);
    }

    #[test]
    fn subsetting_takes_internal_services_without_a_rule() {
        let internal = json!({"networking.gke.io/load-balancer-type": "Internal"});
        let plain = Options::default();
        let subsets = Options { subsets: true, ..Options::default() };
        assert_eq!(owners(&plain, &service(internal.clone(), &[], None)), US);
        assert_eq!(
            owners(&plain, &service(internal.clone(), &[ILB_FINALIZER_V2], None)),
            [Owner::UsIfThere, Owner::Us, Owner::Us]
        );
        assert_eq!(
            owners(&subsets, &service(internal.clone(), &[], None)),
            [Owner::UsIfThere, Owner::Other, Owner::Other]
        );
        assert_eq!(owners(&subsets, &service(internal, &[ILB_FINALIZER], None)), US);
        assert_eq!(owners(&subsets, &service(json!({}), &[], Some(CLASS_INTERNAL))), US);
    }

    #[test]
    fn a_foreign_class_is_anothers() {
        assert_eq!(owners(&Options::default(), &service(json!({}), &[NETLB_FINALIZER], Some("foo.io/x"))), OTHER);
    }

    #[test]
    fn a_class_wins_over_the_annotation() {
        let internal = json!({"networking.gke.io/load-balancer-type": "Internal"});
        assert_eq!(scheme(&service(internal, &[], Some(CLASS_EXTERNAL))), Scheme::External);
        assert_eq!(scheme(&service(json!({}), &[], Some(CLASS_INTERNAL))), Scheme::Internal);
    }

    #[test]
    fn finalizers_are_those_of_the_wanted_kind_and_of_what_was_begun() {
        let options = Options::default();
        let of = |annotations, finalizers_present: &[&str], class| {
            finalizers(&options, &service(annotations, finalizers_present, class))
        };
        let internal = json!({"networking.gke.io/load-balancer-type": "Internal"});
        assert_eq!(of(json!({}), &[], None), [(NETLB_FINALIZER, true), (ILB_FINALIZER, false)]);
        assert_eq!(of(internal, &[NETLB_FINALIZER], None), [(ILB_FINALIZER, true), (NETLB_FINALIZER, false)]);
        let rbs = json!({"cloud.google.com/l4-rbs": "enabled"});
        assert_eq!(of(rbs.clone(), &[], None), []);
        assert_eq!(of(rbs, &[ILB_FINALIZER], None), [(ILB_FINALIZER, false)]);
        assert_eq!(of(json!({}), &[NETLB_FINALIZER], Some("foo.io/x")), []);
    }

    /// It may be handed to another controller, for which the finalizer would be a mark of ours.
    #[test]
    fn a_service_that_is_refused_before_anything_is_made_gets_no_finalizer() {
        let mut mixed = service(json!({}), &[], None);
        mixed.spec.ports = ["TCP", "UDP"]
            .map(|protocol| ccm_provider::ServicePort { port: 53, protocol: protocol.to_owned(), ..Default::default() })
            .into();
        let needs = |service: &Service| finalizers(&Options::default(), service)[0];
        assert_eq!(needs(&mixed), (NETLB_FINALIZER, false));
        mixed.metadata.finalizers = vec![NETLB_FINALIZER.to_owned()];
        assert_eq!(needs(&mixed), (NETLB_FINALIZER, true));
    }
}
