//! Services: defaults, allocated addresses and ports, and the fields that a change of type clears.

use super::Context;
use crate::error::{ApiError, Cause};
use crate::value::{at, copy, list, list_mut, remove, set, set_default, text, texts};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Cluster addresses and node ports in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allocations {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
    next_address: u16,
    next_port: u16,
}

impl Allocations {
    /// The next free address after a moving cursor, so that a released one is not reused at once.
    fn address(&mut self, v6: bool) -> Result<IpAddr, ApiError> {
        for _ in 0..u16::MAX {
            self.next_address = self.next_address.wrapping_add(1);
            let [high, low] = self.next_address.to_be_bytes();
            let address = if v6 {
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, self.next_address))
            } else {
                IpAddr::V4(Ipv4Addr::new(10, 96, high, low))
            };
            if self.next_address > 9 && self.addresses.insert(address) {
                return Ok(address);
            }
        }
        Err(ApiError::internal("failed to allocate a serviceIP: range is full"))
    }

    fn port(&mut self) -> Result<u16, ApiError> {
        for _ in NODE_PORTS {
            self.next_port = if NODE_PORTS.contains(&(self.next_port + 1)) { self.next_port + 1 } else { 30000 };
            if self.ports.insert(self.next_port) {
                return Ok(self.next_port);
            }
        }
        Err(ApiError::internal("failed to allocate a nodePort: range is full"))
    }

    /// Releases all allocations of a Service.
    pub(crate) fn release(&mut self, service: &Value) {
        for address in texts(service, "/spec/clusterIPs") {
            if let Ok(address) = address.parse() {
                self.addresses.remove(&address);
            }
        }
        for port in held_ports(service) {
            self.ports.remove(&port);
        }
    }
}

fn number(value: &Value, path: &str) -> u16 {
    at(value, path).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok()).unwrap_or_default()
}

fn held_ports(service: &Value) -> BTreeSet<u16> {
    let ports = list(service, "/spec/ports").iter().map(|port| number(port, "/nodePort"));
    ports.chain([number(service, "/spec/healthCheckNodePort")]).filter(|port| *port != 0).collect()
}

fn kind_of(service: &Value) -> &str {
    text(service, "/spec/type")
}

fn has_address(service: &Value) -> bool {
    kind_of(service) != "ExternalName"
}

fn is_headless(service: &Value) -> bool {
    text(service, "/spec/clusterIP") == "None"
}

fn is_exposed(service: &Value) -> bool {
    matches!(kind_of(service), "NodePort" | "LoadBalancer")
}

fn wants_node_ports(service: &Value) -> bool {
    let refused = at(service, "/spec/allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    kind_of(service) == "NodePort" || (kind_of(service) == "LoadBalancer" && !refused)
}

fn wants_health_port(service: &Value) -> bool {
    kind_of(service) == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
}

pub(super) fn default_new(context: &Context<'_>, service: &mut Value) {
    set(service, "/status", json!({"loadBalancer": {}}));
    default_spec(service);
    default_families(context, service);
}

fn default_spec(service: &mut Value) {
    set_default(service, "/spec/sessionAffinity", "None");
    set_default(service, "/spec/type", "ClusterIP");
    if text(service, "/spec/sessionAffinity") == "ClientIP" {
        set_default(service, "/spec/sessionAffinityConfig/clientIP/timeoutSeconds", 10800);
    } else {
        remove(service, "/spec/sessionAffinityConfig");
    }
    for port in list_mut(service, "/spec/ports") {
        set_default(port, "/protocol", "TCP");
        if at(port, "/targetPort").is_none_or(|target| *target == 0 || *target == "") {
            let number = at(port, "/port").cloned();
            set(port, "/targetPort", number);
        }
        if at(port, "/nodePort").is_some_and(|port| *port == 0) {
            remove(port, "/nodePort");
        }
    }
    if is_exposed(service) {
        set_default(service, "/spec/externalTrafficPolicy", "Cluster");
    }
    if has_address(service) {
        set_default(service, "/spec/internalTrafficPolicy", "Cluster");
    }
    if kind_of(service) == "LoadBalancer" {
        set_default(service, "/spec/allocateLoadBalancerNodePorts", true);
    }
}

fn default_families(context: &Context<'_>, service: &mut Value) {
    if !has_address(service) {
        for field in ["/spec/clusterIP", "/spec/clusterIPs", "/spec/ipFamilies", "/spec/ipFamilyPolicy"] {
            remove(service, field);
        }
        return;
    }
    if text(service, "/spec/clusterIP").is_empty()
        && let Some(first) = texts(service, "/spec/clusterIPs").into_iter().next()
    {
        set(service, "/spec/clusterIP", first);
    }
    let mut families = texts(service, "/spec/ipFamilies");
    let mut policy = match text(service, "/spec/ipFamilyPolicy") {
        "" if families.len() > 1 => "RequireDualStack".to_owned(),
        "" => "SingleStack".to_owned(),
        policy => policy.to_owned(),
    };
    // A headless Service without selector may have endpoints of any family.
    let any = is_headless(service) && at(service, "/spec/selector").is_none();
    if any && families.is_empty() && policy != "PreferDualStack" {
        policy = "RequireDualStack".to_owned();
        families = vec!["IPv4".to_owned(), "IPv6".to_owned()];
    }
    if families.is_empty() {
        let given: Option<IpAddr> = text(service, "/spec/clusterIP").parse().ok();
        families.push(if given.is_some_and(|given| given.is_ipv6()) { "IPv6" } else { "IPv4" }.to_owned());
    }
    if policy == "SingleStack" {
        families.truncate(1);
    } else if context.dual_stack && families.len() == 1 {
        let other = if families.iter().any(|family| family == "IPv4") { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    set(service, "/spec/ipFamilies", families);
    set(service, "/spec/ipFamilyPolicy", policy);
}

/// Keeps fields that a client may omit from an update, and clears fields that only the old type needed.
pub(super) fn default_changed(context: &Context<'_>, old: &Value, new: &mut Value) {
    default_spec(new);
    keep_allocated(old, new);
    let mut clear = |is_needed: fn(&Value) -> bool, fields: &[&str]| {
        let dropped = is_needed(old) && !is_needed(new);
        for field in fields.iter().filter(|_| dropped) {
            if at(old, field) == at(new, field) {
                remove(new, field);
            }
        }
    };
    let balanced = |service: &Value| kind_of(service) == "LoadBalancer";
    clear(has_address, &["/spec/internalTrafficPolicy"]);
    clear(wants_health_port, &["/spec/healthCheckNodePort"]);
    clear(is_exposed, &["/spec/externalTrafficPolicy"]);
    clear(balanced, &["/spec/allocateLoadBalancerNodePorts", "/spec/loadBalancerClass"]);
    if is_exposed(old) && !is_exposed(new) {
        clear_old_node_ports(old, new);
    }
    if kind_of(new) != "LoadBalancer" {
        set(new, "/status/loadBalancer", Map::new());
    }
    default_families(context, new);
}

/// Keeps allocated values if a client sends none.
fn keep_allocated(old: &Value, new: &mut Value) {
    if has_address(old) && has_address(new) {
        let given = text(new, "/spec/clusterIP").to_owned();
        let stays = at(old, "/spec/clusterIPs") == at(new, "/spec/clusterIPs");
        if !given.is_empty() && given != text(old, "/spec/clusterIP") && stays {
            // A client that knows only the single field changed it.
            set(new, "/spec/clusterIPs", json!([given]));
        }
        if text(new, "/spec/clusterIP").is_empty() {
            copy(new, old, "/spec/clusterIP");
        }
        if list(new, "/spec/clusterIPs").is_empty() && at(old, "/spec/clusterIP") == at(new, "/spec/clusterIP") {
            copy(new, old, "/spec/clusterIPs");
        }
        for field in ["/spec/ipFamilies", "/spec/ipFamilyPolicy"] {
            if at(new, field).is_none() {
                copy(new, old, field);
            }
        }
    }
    if is_exposed(old) && wants_node_ports(new) {
        keep_node_ports(old, new);
    }
    if wants_health_port(old) && wants_health_port(new) && number(new, "/spec/healthCheckNodePort") == 0 {
        copy(new, old, "/spec/healthCheckNodePort");
    }
}

fn keep_node_ports(old: &Value, new: &mut Value) {
    let id = |port: &Value| (number(port, "/port"), text(port, "/protocol").to_owned());
    let mut used = held_ports(new);
    for port in list_mut(new, "/spec/ports").iter_mut().filter(|port| number(port, "/nodePort") == 0) {
        let before = list(old, "/spec/ports").iter().find(|before| id(before) == id(port));
        let kept = before.map_or(0, |before| number(before, "/nodePort"));
        if kept != 0 && used.insert(kept) {
            set(port, "/nodePort", kept);
        }
    }
}

fn clear_old_node_ports(old: &Value, new: &mut Value) {
    let before = held_ports(old);
    for port in list_mut(new, "/spec/ports") {
        if before.contains(&number(port, "/nodePort")) {
            remove(port, "/nodePort");
        }
    }
}

/// Allocates addresses and ports, and releases those that only the old version had.
pub(super) fn allocate(context: &mut Context<'_>, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    // The sets have a few thousand entries: a copy per write of a Service is simpler than an undo log.
    let backup = context.allocations.clone();
    if let Some(old) = old {
        context.allocations.release(old);
    }
    let outcome = allocate_addresses(context, service, old).and_then(|()| allocate_ports(context, service));
    if outcome.is_err() {
        *context.allocations = backup;
    }
    outcome
}

fn allocate_addresses(context: &mut Context<'_>, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !has_address(service) {
        return Ok(());
    }
    if is_headless(service) {
        set(service, "/spec/clusterIPs", json!(["None"]));
        return Ok(());
    }
    let mut addresses = texts(service, "/spec/clusterIPs");
    if addresses.is_empty() {
        addresses.extend(at(service, "/spec/clusterIP").and_then(Value::as_str).map(str::to_owned));
        addresses.retain(|address| !address.is_empty());
    }
    let families = texts(service, "/spec/ipFamilies");
    if !context.dual_stack && text(service, "/spec/ipFamilyPolicy") == "RequireDualStack" {
        let value = json!("RequireDualStack");
        let cause =
            Cause::invalid("spec.ipFamilyPolicy", &value, "this cluster is not configured for dual-stack services");
        return Err(invalid(context, service, &cause));
    }
    addresses.truncate(families.len());
    for (index, family) in families.iter().enumerate() {
        match addresses.get(index).cloned() {
            None => addresses.push(context.allocations.address(family == "IPv6")?.to_string()),
            Some(given) => claim(context, service, &given, old)?,
        }
    }
    if let Some(first) = addresses.first().cloned() {
        set(service, "/spec/clusterIP", first);
    }
    set(service, "/spec/clusterIPs", addresses);
    Ok(())
}

fn invalid(context: &Context<'_>, service: &Value, cause: &Cause) -> ApiError {
    ApiError::invalid(context.kind, text(service, "/metadata/name"), std::slice::from_ref(cause))
}

fn claim(context: &mut Context<'_>, service: &Value, given: &str, old: Option<&Value>) -> Result<(), ApiError> {
    let refuse = |why: &str| {
        let detail = format!("failed to allocate IP {given}: {why}");
        invalid(context, service, &Cause::invalid("spec.clusterIPs", &json!([given]), &detail))
    };
    let Ok(address) = given.parse::<IpAddr>() else {
        return Err(refuse("not a valid IP address"));
    };
    let inside = match address {
        IpAddr::V4(v4) => u32::from(v4) >> 20 == u32::from(Ipv4Addr::new(10, 96, 0, 0)) >> 20,
        IpAddr::V6(v6) => matches!(v6.segments(), [0xfd00, 0x10, 0x96, 0, ..]),
    };
    if !inside {
        return Err(refuse("the provided network does not match the current range"));
    }
    let ours = old.is_some_and(|old| texts(old, "/spec/clusterIPs").iter().any(|one| one == given));
    if context.allocations.addresses.contains(&address) && !ours {
        return Err(refuse("provided IP is already allocated"));
    }
    context.allocations.addresses.insert(address);
    Ok(())
}

fn allocate_ports(context: &mut Context<'_>, service: &mut Value) -> Result<(), ApiError> {
    let wanted = wants_node_ports(service);
    let mut ports = list(service, "/spec/ports").to_vec();
    // Requested ports first, so that no allocated port conflicts with them.
    for (index, port) in ports.iter().enumerate() {
        let given = number(port, "/nodePort");
        // Two protocols of one port may share a node port.
        let shared = ports.iter().take(index).any(|port| number(port, "/nodePort") == given);
        if given != 0 && !context.allocations.ports.insert(given) && !shared {
            let field = format!("spec.ports[{index}].nodePort");
            let cause = Cause::invalid(&field, &given.into(), "provided port is already allocated");
            return Err(invalid(context, service, &cause));
        }
    }
    for port in ports.iter_mut().filter(|port| wanted && number(port, "/nodePort") == 0) {
        set(port, "/nodePort", context.allocations.port()?);
    }
    if !ports.is_empty() {
        set(service, "/spec/ports", ports);
    }
    if wants_health_port(service) {
        let given = number(service, "/spec/healthCheckNodePort");
        if given == 0 {
            set(service, "/spec/healthCheckNodePort", context.allocations.port()?);
        } else if !context.allocations.ports.insert(given) {
            let what = format!("failed to allocate requested HealthCheck NodePort {given}");
            return Err(ApiError::internal(format!("{what}: provided port is already allocated")));
        }
    }
    Ok(())
}

pub(super) fn validate(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = kind_of(service);
    causes.extend(Cause::unless_one_of("spec.type", kind, &TYPES));
    if kind == "ExternalName" && text(service, "/spec/externalName").is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let ports = list(service, "/spec/ports");
    if ports.is_empty() && has_address(service) && !is_headless(service) {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        causes.extend(validate_port(ports, index, port));
    }
    let policy = text(service, "/spec/externalTrafficPolicy");
    causes.extend(Cause::unless_one_of("spec.externalTrafficPolicy", policy, &["Cluster", "Local"]));
    if !policy.is_empty() && !is_exposed(service) {
        let detail = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", &policy.into(), detail));
    }
    for (index, range) in texts(service, "/spec/loadBalancerSourceRanges").iter().enumerate() {
        causes.extend(validate_cidr(&format!("spec.LoadBalancerSourceRanges[{index}]"), range.trim()));
    }
    if kind != "LoadBalancer" && at(service, "/spec/loadBalancerClass").is_some() {
        causes.push(Cause::forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"));
    }
    causes
}

pub(super) fn validate_cidr(field: &str, cidr: &str) -> Option<Cause> {
    let (address, length) = cidr.split_once('/').unwrap_or_default();
    let most = address.parse::<IpAddr>().map_or(0, |address| if address.is_ipv6() { 128 } else { 32 });
    let good = most > 0 && length.parse::<u8>().is_ok_and(|length| length <= most);
    let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    (!good).then(|| Cause::invalid(field, &cidr.into(), detail))
}

fn validate_port(ports: &[Value], index: usize, port: &Value) -> Vec<Cause> {
    let field = |name: &str| format!("spec.ports[{index}].{name}");
    let mut causes = Vec::new();
    let name = text(port, "/name");
    if name.is_empty() && ports.len() > 1 {
        causes.push(Cause::required(&field("name"), ""));
    }
    if !name.is_empty() && ports.iter().take(index).any(|other| text(other, "/name") == name) {
        causes.push(Cause::duplicate(&field("name"), &format!("\"{name}\""), ""));
    }
    let value = at(port, "/port").cloned().unwrap_or(json!(0));
    for (member, value) in [("port", Some(&value)), ("targetPort", at(port, "/targetPort"))] {
        let number = value.and_then(Value::as_i64);
        if let Some(number) = number.filter(|number| !(1..=65535).contains(number)) {
            causes.push(Cause::invalid(&field(member), &number.into(), "must be between 1 and 65535, inclusive"));
        }
    }
    let protocol = text(port, "/protocol");
    causes.extend(Cause::unless_one_of(&field("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
    let same = |other: &&Value| at(other, "/port") == at(port, "/port") && text(other, "/protocol") == protocol;
    if ports.iter().take(index).any(|other| same(&other)) {
        let shown = format!(
            "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{value},\"TargetPort\":0,\"NodePort\":0}}"
        );
        causes.push(Cause::duplicate(&format!("spec.ports[{index}]"), &shown, ""));
    }
    let node_port = at(port, "/nodePort").and_then(Value::as_i64).unwrap_or_default();
    if node_port != 0 && !u16::try_from(node_port).is_ok_and(|port| NODE_PORTS.contains(&port)) {
        let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
        causes.push(Cause::invalid(&field("nodePort"), &node_port.into(), detail));
    }
    causes
}

pub(super) fn validate_change(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let both_have = has_address(old) && has_address(new);
    let before = text(old, "/spec/clusterIP");
    if both_have && !before.is_empty() && before != text(new, "/spec/clusterIP") {
        let value = json!(texts(new, "/spec/clusterIPs"));
        causes.push(Cause::invalid("spec.clusterIPs[0]", &value, "may not change once set"));
    }
    let both_balanced = kind_of(old) == "LoadBalancer" && kind_of(new) == "LoadBalancer";
    let class = |service| at(service, "/spec/loadBalancerClass").cloned();
    if both_balanced && class(old) != class(new) {
        let value = class(new).unwrap_or_default();
        causes.push(Cause::invalid("spec.loadBalancerClass", &value, "may not change once set"));
    }
    causes
}

pub(super) fn default_status(service: &mut Value) {
    let balanced = kind_of(service) == "LoadBalancer";
    for entry in list_mut(service, "/status/loadBalancer/ingress").iter_mut().filter(|_| balanced) {
        for field in ["/ip", "/hostname"] {
            if text(entry, field).is_empty() {
                remove(entry, field);
            }
        }
        if at(entry, "/ip").is_some() {
            set_default(entry, "/ipMode", "VIP");
        }
    }
}

pub(super) fn validate_status(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ingress = list(service, "/status/loadBalancer/ingress");
    if !ingress.is_empty() && kind_of(service) != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        causes.push(Cause::forbidden("status.loadBalancer.ingress", detail));
    }
    for (index, entry) in ingress.iter().enumerate() {
        let field = |name: &str| format!("status.loadBalancer.ingress[{index}].{name}");
        let address = text(entry, "/ip");
        if !address.is_empty() && address.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(&field("ip"), &address.into(), detail));
        }
        let mode = text(entry, "/ipMode");
        if address.is_empty() && !mode.is_empty() {
            causes.push(Cause::forbidden(&field("ipMode"), "may not be specified when `ip` is not set"));
        }
        causes.extend(Cause::unless_one_of(&field("ipMode"), mode, &["Proxy", "VIP"]));
        let host = text(entry, "/hostname");
        if !host.is_empty() && host.parse::<IpAddr>().is_ok() {
            causes.push(Cause::invalid(&field("hostname"), &host.into(), "must be a DNS name, not an IP address"));
        }
    }
    causes
}
