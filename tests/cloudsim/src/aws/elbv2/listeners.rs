//! Listeners of Network Load Balancers.

use super::{Listener, balancer, group, listener};
use crate::aws::balancing::{self, contradiction, invalid};
use crate::aws::ec2::Tags;
use crate::aws::{ApiError, Call, World, Xml};
use std::collections::BTreeSet;

/// The default policy of a TLS listener that is created through the API.
const DEFAULT_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/network/describe-ssl-policies.html>
const POLICIES: [&str; 24] = [
    "ELBSecurityPolicy-2015-05",
    DEFAULT_POLICY,
    "ELBSecurityPolicy-FS-1-1-2019-08",
    "ELBSecurityPolicy-FS-1-2-2019-08",
    "ELBSecurityPolicy-FS-1-2-Res-2019-08",
    "ELBSecurityPolicy-FS-1-2-Res-2020-10",
    "ELBSecurityPolicy-FS-2018-06",
    "ELBSecurityPolicy-TLS-1-0-2015-04",
    "ELBSecurityPolicy-TLS-1-1-2017-01",
    "ELBSecurityPolicy-TLS-1-2-2017-01",
    "ELBSecurityPolicy-TLS-1-2-Ext-2018-06",
    "ELBSecurityPolicy-TLS13-1-0-2021-06",
    "ELBSecurityPolicy-TLS13-1-1-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Ext0-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Ext1-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Ext2-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-FIPS-2023-04",
    "ELBSecurityPolicy-TLS13-1-2-Res-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Res-FIPS-2023-04",
    "ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-3-2021-06",
    "ELBSecurityPolicy-TLS13-1-3-FIPS-2023-04",
    "ELBSecurityPolicy-TLS13-1-3-PQ-2025-09",
];

/// Creating a listener with the port and settings of an existing one returns the existing one.
pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let arn = call.params.required("LoadBalancerArn")?.to_owned();
    balancer(world, &arn)?;
    let port = call.params.within("Port", 1, 65535)?.ok_or_else(|| invalid("A listener port must be specified"))?;
    let protocol = call.params.get("Protocol").ok_or_else(|| invalid("A listener protocol must be specified"))?;
    let tags = balancing::tags(call)?;
    let group = action(call)?.ok_or_else(|| invalid("A default action must be specified"))?;
    let mut desired = Listener {
        arn: String::new(),
        balancer: arn.clone(),
        port,
        protocol: protocol.to_owned(),
        certificate: certificate(call)?,
        policy: call.params.get("SslPolicy").map(str::to_owned),
        alpn: alpn(call)?,
        group,
        tags: Tags::new(),
    };
    check(world, &mut desired)?;
    let same = world.elbv2.listeners.values().find(|other| {
        let mut other = (*other).clone();
        other.arn.clear();
        other.tags.clear();
        other == desired
    });
    if let Some(same) = same {
        return Ok(answer(vec![same], None));
    }
    check_free(world, &desired)?;
    if world.elbv2.listeners.values().filter(|other| other.balancer == arn).count()
        >= world.options.limits.network_listeners
    {
        return Err(ApiError::new("TooManyListeners", "The quota for the number of listeners has been reached"));
    }
    desired.tags = balancing::add_tags(world, Tags::new(), tags)?;
    desired.arn = format!("{}/{}", arn.replacen(":loadbalancer/", ":listener/", 1), world.hex(16));
    let xml = answer(vec![&desired], None);
    world.elbv2.listeners.insert(desired.arn.clone(), desired);
    Ok(xml)
}

/// Missing settings are kept, except that a listener without TLS loses certificate and policy, and that one which gets
/// TLS must be given both.
pub(super) fn modify(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let mut desired = listener(world, call.params.required("ListenerArn")?)?.clone();
    if let Some(port) = call.params.within("Port", 1, 65535)? {
        desired.port = port;
    }
    if let Some(protocol) = call.params.get("Protocol") {
        protocol.clone_into(&mut desired.protocol);
        if protocol != "TLS" {
            (desired.certificate, desired.policy, desired.alpn) = (None, None, None);
        }
    }
    desired.certificate = certificate(call)?.or(desired.certificate);
    desired.policy = call.params.get("SslPolicy").map(str::to_owned).or(desired.policy);
    desired.alpn = alpn(call)?.or(desired.alpn);
    if desired.protocol == "TLS" && desired.policy.is_none() {
        return Err(invalid("A security policy must be specified for listeners that get TLS"));
    }
    desired.group = action(call)?.unwrap_or(desired.group);
    check(world, &mut desired)?;
    check_free(world, &desired)?;
    let xml = answer(vec![&desired], None);
    world.elbv2.listeners.insert(desired.arn.clone(), desired);
    Ok(xml)
}

/// The target group of the single default action, in either of its two forms.
fn action(call: &Call) -> Result<Option<String>, ApiError> {
    let actions = call.params.items("DefaultActions");
    let [action] = actions.as_slice() else {
        return if actions.is_empty() {
            Ok(None)
        } else {
            Err(ApiError::new("TooManyActions", "Only one action is allowed"))
        };
    };
    if action.required("Type")? != "forward" {
        let text = "The action type must be 'forward' for listeners of network load balancers";
        return Err(ApiError::new("InvalidLoadBalancerAction", text));
    }
    let forward = action.sub("ForwardConfig").map(|config| config.items("TargetGroups")).unwrap_or_default();
    let mut groups: BTreeSet<&str> = forward.iter().filter_map(|group| group.get("TargetGroupArn")).collect();
    groups.extend(action.get("TargetGroupArn"));
    match (groups.len(), groups.pop_first()) {
        (1, Some(group)) => Ok(Some(group.to_owned())),
        _ => Err(ApiError::new("InvalidLoadBalancerAction", "Exactly one target group must be specified")),
    }
}

fn certificate(call: &Call) -> Result<Option<String>, ApiError> {
    match call.params.items("Certificates").as_slice() {
        [] => Ok(None),
        [one] => Ok(one.get("CertificateArn").map(str::to_owned)),
        _ => Err(invalid("Up to one certificate can be specified")),
    }
}

fn alpn(call: &Call) -> Result<Option<String>, ApiError> {
    const KNOWN: [&str; 5] = ["HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred", "None"];
    match call.params.list("AlpnPolicy").as_slice() {
        [] => Ok(None),
        [one] if KNOWN.contains(one) => Ok(Some((*one).to_owned())),
        other => Err(ApiError::new("ALPNPolicyNotFound", format!("The ALPN policy {other:?} does not exist"))),
    }
}

/// Checks that protocol, TLS settings and group are compatible; sets the default policy.
fn check(world: &World, desired: &mut Listener) -> Result<(), ApiError> {
    let protocol = desired.protocol.as_str();
    if !["TCP", "TLS", "UDP", "TCP_UDP"].contains(&protocol) {
        return Err(invalid(format!("Listener protocol '{protocol}' must be one of 'UDP, TCP, TLS, TCP_UDP'")));
    }
    if protocol == "TLS" {
        let arn = desired
            .certificate
            .as_deref()
            .ok_or_else(|| invalid("A certificate must be specified for TLS listeners"))?;
        if !world.elb.certificates.contains(arn) {
            return Err(ApiError::new("CertificateNotFound", format!("Certificate ARN '{arn}' is not valid")));
        }
        let policy = desired.policy.get_or_insert_with(|| DEFAULT_POLICY.to_owned());
        if !POLICIES.contains(&policy.as_str()) {
            return Err(ApiError::new("SSLPolicyNotFound", format!("SSL policy '{policy}' not found")));
        }
    } else if desired.certificate.is_some() || desired.policy.is_some() || desired.alpn.is_some() {
        return Err(invalid(format!("Certificates and policies cannot be specified for {protocol} listeners")));
    }
    let group = group(world, &desired.group)?;
    let fits = match protocol {
        "TLS" => ["TCP", "TLS"].as_slice(),
        "TCP" => &["TCP", "TCP_UDP"],
        "UDP" => &["UDP", "TCP_UDP"],
        _ => &["TCP_UDP"],
    };
    if !fits.contains(&group.settings.protocol.as_str()) {
        let text = format!(
            "The protocols of the listener ({protocol}) and the target group ({}) do not fit",
            group.settings.protocol
        );
        return Err(ApiError::new("IncompatibleProtocols", text));
    }
    if group.settings.vpc != balancer(world, &desired.balancer)?.vpc {
        return Err(contradiction("The target group and the load balancer are not in the same VPC"));
    }
    if world.elbv2.balancers_of(&desired.group).iter().any(|balancer| *balancer != desired.balancer) {
        let text = format!("The target group '{}' is already associated with another load balancer", desired.group);
        return Err(ApiError::new("TargetGroupAssociationLimit", text));
    }
    let mut groups: BTreeSet<&str> = BTreeSet::from([desired.group.as_str()]);
    let others =
        world.elbv2.listeners.values().filter(|other| other.balancer == desired.balancer && other.arn != desired.arn);
    groups.extend(others.map(|other| other.group.as_str()));
    if groups.len() > world.options.limits.groups_per_balancer {
        let text = "The quota for the number of target groups of a load balancer has been reached";
        return Err(ApiError::new("TooManyUniqueTargetGroupsPerLoadBalancer", text));
    }
    Ok(())
}

/// Checks that no other listener has this port and transport protocol.
fn check_free(world: &World, desired: &Listener) -> Result<(), ApiError> {
    let transports = |protocol: &str| match protocol {
        "UDP" => (false, true),
        "TCP_UDP" => (true, true),
        _ => (true, false),
    };
    let (tcp, udp) = transports(&desired.protocol);
    let taken = world.elbv2.listeners.values().any(|other| {
        let (other_tcp, other_udp) = transports(&other.protocol);
        other.arn != desired.arn
            && other.balancer == desired.balancer
            && other.port == desired.port
            && ((tcp && other_tcp) || (udp && other_udp))
    });
    if !taken {
        return Ok(());
    }
    let text =
        format!("A listener already exists on port {} for the load balancer '{}'", desired.port, desired.balancer);
    Err(ApiError::new("DuplicateListener", text))
}

fn answer(listeners: Vec<&Listener>, next: Option<&str>) -> Xml {
    balancing::listing("Listeners", listeners, next, |xml, listener| {
        xml.text("ListenerArn", &listener.arn);
        xml.text("LoadBalancerArn", &listener.balancer);
        xml.value("Port", listener.port);
        xml.text("Protocol", &listener.protocol);
        if let Some(certificate) = &listener.certificate {
            xml.list("Certificates", "member", [certificate], |xml, arn| xml.text("CertificateArn", arn));
        }
        xml.opt("SslPolicy", listener.policy.as_deref());
        if let Some(policy) = &listener.alpn {
            xml.texts("AlpnPolicy", "member", [policy]);
        }
        xml.list("DefaultActions", "member", [&listener.group], |xml, group| {
            xml.text("Type", "forward");
            xml.text("TargetGroupArn", group);
            xml.elem("ForwardConfig", |xml| {
                xml.list("TargetGroups", "member", [group], |xml, group| xml.text("TargetGroupArn", group));
            });
        });
    })
}

pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let arns = balancing::unique(call, "ListenerArns");
    let found: Vec<String> = match (call.params.get("LoadBalancerArn"), arns.is_empty()) {
        (None, true) => return Err(invalid("You must specify either listener ARNs or a load balancer ARN")),
        (Some(_), false) => {
            return Err(invalid("Listener ARNs and a load balancer ARN cannot be specified at the same time"));
        }
        (Some(arn), true) => {
            let arn = balancer(world, arn)?.arn.clone();
            let listeners = world.elbv2.listeners.values().filter(|other| other.balancer == arn);
            listeners.map(|listener| listener.arn.clone()).collect()
        }
        (None, false) => {
            arns.iter().map(|arn| listener(world, arn).map(|found| found.arn.clone())).collect::<Result<_, _>>()?
        }
    };
    let (page, next) = balancing::page(call, found)?;
    Ok(answer(page.iter().filter_map(|arn| world.elbv2.listeners.get(arn)).collect(), next.as_deref()))
}

pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let arn = listener(world, call.params.required("ListenerArn")?)?.arn.clone();
    world.elbv2.listeners.remove(&arn);
    Ok(Xml::new())
}
