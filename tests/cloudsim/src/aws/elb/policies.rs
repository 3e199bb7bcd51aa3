//! Policies of Classic Load Balancers.

use super::{Balancer, Policy, named, named_mut};
use crate::aws::balancing::{contradiction, listing};
use crate::aws::{ApiError, Call, World, Xml};

/// The default policy of a listener with a certificate.
pub(super) const DEFAULT_SECURITY_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-security-policy-table.html>
const SECURITY_POLICIES: [&str; 9] = [
    "ELBSecurityPolicy-2011-08",
    "ELBSecurityPolicy-2014-01",
    "ELBSecurityPolicy-2014-10",
    "ELBSecurityPolicy-2015-02",
    "ELBSecurityPolicy-2015-03",
    "ELBSecurityPolicy-2015-05",
    DEFAULT_SECURITY_POLICY,
    "ELBSecurityPolicy-TLS-1-1-2017-01",
    "ELBSecurityPolicy-TLS-1-2-2017-01",
];

const TYPES: [&str; 6] = [
    "AppCookieStickinessPolicyType",
    "BackendServerAuthenticationPolicyType",
    "LBCookieStickinessPolicyType",
    "ProxyProtocolPolicyType",
    "PublicKeyPolicyType",
    "SSLNegotiationPolicyType",
];

/// A predefined security policy of AWS as a policy of a balancer.
pub(super) fn predefined(name: &str) -> Policy {
    Policy {
        kind: "SSLNegotiationPolicyType".to_owned(),
        attributes: vec![("Reference-Security-Policy".to_owned(), name.to_owned())],
    }
}

/// A repetition with the same type and attributes succeeds: existing controllers repeat the call in each sync.
pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = call.params.required("PolicyName")?.to_owned();
    let kind = call.params.required("PolicyTypeName")?.to_owned();
    let attributes: Vec<(String, String)> = call
        .params
        .items("PolicyAttributes")
        .into_iter()
        .map(|item| {
            let text = |name| item.get(name).unwrap_or_default().to_owned();
            (text("AttributeName"), text("AttributeValue"))
        })
        .collect();
    let balancer = named_mut(world, call)?;
    if !TYPES.contains(&kind.as_str()) {
        return Err(ApiError::new("PolicyTypeNotFound", format!("There is no policy type {kind}")));
    }
    for (_, value) in attributes.iter().filter(|(name, _)| name == "Reference-Security-Policy") {
        if !SECURITY_POLICIES.contains(&value.as_str()) {
            return Err(contradiction(format!("There is no security policy {value}")));
        }
    }
    let policy = Policy { kind, attributes };
    match balancer.policies.get(&name) {
        Some(old) if *old != policy => {
            let text = format!("A policy with the name {name} exists for the load balancer {}", balancer.name);
            Err(ApiError::new("DuplicatePolicyName", text))
        }
        _ => {
            balancer.policies.insert(name, policy);
            Ok(Xml::new())
        }
    }
}

/// Without a balancer, returns AWS's predefined security policies.
pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let names = call.params.list("PolicyNames");
    let mut policies: Vec<(String, Policy)> = match call.params.get("LoadBalancerName") {
        Some(_) => named(world, call)?.policies.clone().into_iter().collect(),
        None => SECURITY_POLICIES.iter().map(|name| ((*name).to_owned(), predefined(name))).collect(),
    };
    if let Some(missing) = names.iter().find(|name| !policies.iter().any(|(known, _)| known == *name)) {
        return Err(unknown(missing));
    }
    policies.retain(|(name, _)| names.is_empty() || names.contains(&name.as_str()));
    Ok(listing("PolicyDescriptions", policies, None, |xml, (name, policy)| {
        xml.text("PolicyName", &name);
        xml.text("PolicyTypeName", &policy.kind);
        xml.list("PolicyAttributeDescriptions", "member", &policy.attributes, |xml, (name, value)| {
            xml.text("AttributeName", name);
            xml.text("AttributeValue", value);
        });
    }))
}

fn unknown(name: &str) -> ApiError {
    ApiError::new("PolicyNotFound", format!("There is no policy with name {name} for this load balancer"))
}

impl Balancer {
    fn check_policies(&self, names: &[String]) -> Result<(), ApiError> {
        names.iter().find(|name| !self.policies.contains_key(*name)).map_or(Ok(()), |missing| Err(unknown(missing)))
    }

    pub(super) fn write_policies(&self, xml: &mut Xml) {
        xml.elem("Policies", |xml| {
            xml.open("AppCookieStickinessPolicies");
            xml.close("AppCookieStickinessPolicies");
            xml.open("LBCookieStickinessPolicies");
            xml.close("LBCookieStickinessPolicies");
            xml.texts("OtherPolicies", "member", self.policies.keys());
        });
        xml.list("BackendServerDescriptions", "member", &self.backends, |xml, (port, policies)| {
            xml.value("InstancePort", port);
            xml.texts("PolicyNames", "member", policies);
        });
    }
}

/// Replaces the policies of an instance port. The policies of a port without a listener can only be removed.
pub(super) fn set_backend(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let port = call.params.required_within("InstancePort", 1, 65535)?;
    let names = call.params.texts("PolicyNames");
    let balancer = named_mut(world, call)?;
    balancer.check_policies(&names)?;
    if names.is_empty() {
        balancer.backends.remove(&port);
        return Ok(Xml::new());
    }
    if !balancer.listeners.values().any(|listener| listener.instance_port == port) {
        return Err(contradiction(format!("No listener has the instance port {port}")));
    }
    balancer.backends.insert(port, names);
    Ok(Xml::new())
}

pub(super) fn set_listener(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let port = call.params.required_within("LoadBalancerPort", 1, 65535)?;
    let names = call.params.texts("PolicyNames");
    let balancer = named_mut(world, call)?;
    balancer.check_policies(&names)?;
    let negotiation = names
        .iter()
        .any(|name| balancer.policies.get(name).is_some_and(|policy| policy.kind == "SSLNegotiationPolicyType"));
    let Some(listener) = balancer.listeners.get_mut(&port) else {
        return Err(ApiError::new("ListenerNotFound", format!("There is no listener on port {port}")));
    };
    if negotiation && listener.certificate.is_none() {
        return Err(contradiction(format!("The listener on port {port} has the protocol {}", listener.protocol)));
    }
    listener.policies = names;
    Ok(Xml::new())
}
